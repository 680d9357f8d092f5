package driver

import (
	"hash/maphash"
	"sync"
	"sync/atomic"
)

// Contents is the version of a buffer's elements. Devices embed it in their buffers and
// call Changed wherever they write to one: in Alloc, CopyIn, Fill and CopyFrom, and
// when a program runs that has the buffer among its outputs, donated inputs included
// ([ir.Graph.Donated]). A write by the host calls it before and after, so that nothing
// read in between counts as current.
//
// Cached data derived from a buffer (packed operands, 16-bit shadow weights) records
// the version it was made from, and is current only while the buffer has that version.
type Contents struct {
	version  atomic.Uint64
	verified struct {
		sync.Mutex
		version, hash uint64
	}
}

// versions counts the writes to all buffers of the process.
var versions atomic.Uint64

// Changed gives the contents a version that no buffer of the process has had.
func (c *Contents) Changed() { c.version.Store(versions.Add(1)) }

// Version is the version of the contents; 0 if Changed was never called, which
// nothing that is kept may take for current.
func (c *Contents) Version() uint64 { return c.version.Load() }

// hashSeed is of the hashes of Verify.
var hashSeed = maphash.MakeSeed()

// Verify reports whether elements, all of the buffer, are the same as when Verify last
// saw the present version. Devices call it before and after each run under
// MEZZO_DEBUG=check: a write that does not change the version leaves derived data
// stale.
func (c *Contents) Verify(elements []byte) bool {
	c.verified.Lock()
	defer c.verified.Unlock()
	version := c.Version()
	hash := maphash.Bytes(hashSeed, elements)
	if version == 0 || c.Version() != version { // unknown, or being written
		return true
	}
	same := c.verified.version != version || c.verified.hash == hash
	c.verified.version, c.verified.hash = version, hash
	return same
}
