package cpu

import (
	"fmt"
	"hash/maphash"
	"sync"

	"github.com/mezzo-ml/mezzo/backend"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// checking reports whether runs check themselves: under KERAS_DEBUG=check, and
// in this package's tests. Then memory has guards (guard.go), the elements of
// buffers are compared with those that their version had before, and packed
// copies with their operands.
var checking = backend.DebugFromEnv().Check

// checkingKept is checking of packed copies, which are then packed in each run.
var checkingKept = checking

// checksum is the hash of a buffer's elements when it had a version.
type checksum struct {
	mu           sync.Mutex
	version, sum uint64
}

var checksumSeed = maphash.MakeSeed()

// verify reports whether the elements are those that the buffer had when its
// present version was last verified.
func (b *Buffer) verify() bool {
	c := &b.checked
	c.mu.Lock()
	defer c.mu.Unlock()
	version := b.Version()
	sum := maphash.Bytes(checksumSeed, b.storage)
	if version == 0 || b.Version() != version { // unknown, or somebody else writes to it now
		return true
	}
	same := c.version != version || c.sum == sum
	c.version, c.sum = version, sum
	return same
}

// nameOf names a value by what computes it, and for whom.
func nameOf(v *ir.Value) string {
	if v.Path == "" {
		return fmt.Sprintf("%v %v", v.Op, v.Type)
	}
	return fmt.Sprintf("%s (%v %v)", v.Path, v.Op, v.Type)
}

// nameOf names a buffer of the caller: by the input that it is, or by the
// values that are computed there.
func (p *Program) nameOf(b callerBuffer) string {
	kind := "input"
	if b.out {
		kind = "output"
	}
	name := fmt.Sprintf("the buffer of %s %d", kind, b.index)
	if !b.out {
		name += ", " + nameOf(p.graph.Params[b.index])
	}
	for _, x := range p.binds {
		if v := p.graph.Values[x.pos]; p.buffers[x.from] == b && v.Op != op.Param && !v.View() {
			name += "; written by " + nameOf(v)
		}
	}
	return name
}

// String names a program by the values that it stores.
func (p *Program) String() string {
	name := fmt.Sprintf("the program of %d values", len(p.graph.Values))
	if n := len(p.graph.Outputs); n > 0 {
		name += fmt.Sprintf(" with the results %s … %s", nameOf(p.graph.Outputs[0]), nameOf(p.graph.Outputs[n-1]))
	}
	return name
}
