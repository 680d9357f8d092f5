package hdf5

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/mezzo-ml/mezzo/keras/internal/safeio"
)

const (
	signature = "\x89HDF\r\n\x1a\n"
	undefined = math.MaxUint64 // an address that points nowhere
	maxDepth  = 64             // of groups, and of B-trees
	maxRank   = 32             // HDF5's own limit
	vlenSize  = 16             // of a reference to a string

	maxStructure = 256 << 20 // bytes of a file that are not numbers
)

var le = binary.LittleEndian

// file is a file that is read.
type file struct {
	name   string
	r      io.ReaderAt
	size   uint64
	budget uint64 // bytes of structure that may still be read
	object string // path of what is read, for errors
	seen   map[uint64]bool
	heaps  map[uint64]map[uint16][]byte // global heap collections by address
}

// Open opens the file at path and reads its structure. Close the file when its
// datasets are no longer needed.
func Open(path string) (root *Group, close func() error, err error) {
	f, size, err := safeio.Open(path)
	if err != nil {
		return nil, nil, err
	}
	if root, err = Read(path, f, size); err != nil {
		f.Close()
		return nil, nil, err
	}
	return root, f.Close, nil
}

// Read reads the structure of a file of so many bytes; name is what errors call
// it. Datasets read from r later.
func Read(name string, r io.ReaderAt, size int64) (root *Group, err error) {
	f := &file{
		name: name, r: r, size: uint64(max(size, 0)), object: "/",
		seen: map[uint64]bool{}, heaps: map[uint64]map[uint16][]byte{},
	}
	// Well-formed files are read once, but for the first bytes of some blocks. A
	// file with holes has any size, and no structure takes that much.
	f.budget = 4*min(f.size, maxStructure) + 4096
	defer f.recover(&err)
	root, ok := f.read(f.superblock(), "", 0).(*Group)
	if !ok {
		f.fail("it is a dataset, want a group")
	}
	return root, nil
}

// failure carries an error out of the reader.
type failure struct{ err error }

// fail ends the reading with an error. Texts of the file in it are cut.
func (f *file) fail(format string, args ...any) {
	for i, a := range args {
		switch a := a.(type) {
		case string:
			args[i] = safeio.Text(a)
		case []byte:
			args[i] = safeio.Text(string(a))
		}
	}
	panic(failure{&Error{f.name, safeio.Text(f.object), fmt.Sprintf(format, args...)}})
}

func (f *file) recover(err *error) {
	switch r := recover().(type) {
	case nil:
	case failure:
		*err = r.err
	default:
		panic(r)
	}
}

// bytes reads n bytes of data at an address.
func (f *file) bytes(at, n uint64) []byte {
	if at > f.size || n > f.size-at {
		f.fail("it has %d bytes at %d, the file ends at %d; it is truncated or damaged", n, at, f.size)
	}
	b := make([]byte, n)
	if got, err := f.r.ReadAt(b, int64(at)); uint64(got) < n {
		panic(failure{fmt.Errorf("hdf5: %s: %s: %w", f.name, safeio.Text(f.object), err)})
	}
	return b
}

// charge takes n bytes from what the structure of a file of this size can need.
func (f *file) charge(n uint64) {
	if n > f.budget {
		f.fail("the file's structure refers to the same bytes again and again; it is damaged")
	}
	f.budget -= n
}

// block reads n bytes of structure.
func (f *file) block(at, n uint64) *cursor {
	f.charge(n)
	return &cursor{f, f.bytes(at, n)}
}

// Is reports whether a file begins as HDF5 files do.
func Is(r io.ReaderAt) bool {
	b := make([]byte, len(signature))
	n, _ := r.ReadAt(b, 0)
	return n == len(b) && string(b) == signature
}

// signed reads a block that starts with a signature, which is skipped.
func (f *file) signed(at uint64, sign string, n uint64) *cursor {
	c := f.block(at, n)
	if got := c.take(len(sign)); string(got) != sign {
		f.fail("at %d: got %q, want %q; the file is damaged", at, got, sign)
	}
	return c
}

// once is an error when a structure is reached a second time.
func (f *file) once(at uint64) {
	if f.seen[at] {
		f.fail("the structure at %d is linked twice", at)
	}
	f.seen[at] = true
}

// cursor reads numbers from a block, and fails where it ends.
type cursor struct {
	f *file
	b []byte
}

func (c *cursor) take(n int) []byte {
	if n < 0 || n > len(c.b) {
		c.f.fail("got %d bytes of a structure, want %d; the file is damaged", len(c.b), n)
	}
	b := c.b[:n:n]
	c.b = c.b[n:]
	return b
}

func (c *cursor) skip(n int)  { c.take(n) }
func (c *cursor) u8() uint8   { return c.take(1)[0] }
func (c *cursor) u16() uint16 { return le.Uint16(c.take(2)) }
func (c *cursor) u32() uint32 { return le.Uint32(c.take(4)) }
func (c *cursor) u64() uint64 { return le.Uint64(c.take(8)) }

// uint reads a number of n bytes, 8 at most.
func (c *cursor) uint(n int) (v uint64) {
	for i, x := range c.take(n) {
		v |= uint64(x) << (8 * i)
	}
	return v
}

// superblock checks the start of the file and returns the address of the root.
func (f *file) superblock() (root uint64) {
	if f.size < 48 {
		f.fail("got %d bytes; it is no HDF5 file", f.size)
	}
	c := f.block(0, min(104, f.size))
	if string(c.take(8)) != signature {
		f.fail("it does not start with the signature of HDF5; it is no HDF5 file")
	}
	version := c.u8()
	switch version {
	case 0, 1:
		c.skip(4)
	case 2, 3:
	default:
		f.fail("got version %d of the superblock, want 0 to 3", version)
	}
	if offsets, lengths := c.u8(), c.u8(); offsets != 8 || lengths != 8 {
		f.fail("got addresses of %d bytes and sizes of %d, want 8", offsets, lengths)
	}
	if version < 2 {
		c.skip(9 + 4*int(version))
	} else {
		c.skip(1)
	}
	if base := c.u64(); base != 0 {
		f.fail("got base address %d, want 0", base)
	}
	c.skip(8)
	if end := c.u64(); end > f.size {
		f.fail("got %d bytes, want %d; the file is truncated", f.size, end)
	}
	if version < 2 {
		c.skip(16)
	}
	return c.u64()
}

// message is one entry of an object's header.
type message struct {
	kind uint16
	body *cursor
}

// The kinds of messages.
const (
	dataspaceMessage    = 0x1
	linkInfoMessage     = 0x2
	datatypeMessage     = 0x3
	linkMessage         = 0x6
	externalMessage     = 0x7
	layoutMessage       = 0x8
	filterMessage       = 0xb
	attributeMessage    = 0xc
	continuationMessage = 0x10
	symbolTableMessage  = 0x11
	attributeInfo       = 0x15
)

// header reads the messages of an object.
func (f *file) header(at uint64) []message {
	if string(f.block(at, 4).take(4)) == "OHDR" {
		return f.header2(at)
	}
	c := f.block(at, 16)
	if v := c.u8(); v != 1 {
		f.fail("got version %d of its header, want 1 or 2; the file is damaged", v)
	}
	c.skip(1)
	left := int(c.u16())
	c.skip(4)
	blocks := []*cursor{f.block(at+16, uint64(c.u32()))}
	var all []message
	for i := 0; i < len(blocks); i++ {
		for c := blocks[i]; len(c.b) >= 8 && left > 0; left-- {
			kind, size, flags := c.u16(), c.u16(), c.u8()
			c.skip(3)
			body := &cursor{f, c.take(int(size))}
			if kind == continuationMessage {
				blocks = append(blocks, f.block(body.u64(), body.u64()))
				continue
			}
			all = append(all, f.message(kind, flags, body))
		}
	}
	return all
}

// header2 is header for version 2, which h5py's libver="latest" writes.
func (f *file) header2(at uint64) []message {
	c := f.block(at, 6)
	c.skip(4)
	if v := c.u8(); v != 2 {
		f.fail("got version %d of its header, want 1 or 2; the file is damaged", v)
	}
	flags := c.u8()
	at += 6
	if flags&0x20 != 0 {
		at += 16 // times
	}
	if flags&0x10 != 0 {
		at += 4 // limits of attributes
	}
	width := 1 << (flags & 3)
	blocks := []*cursor{f.block(at+uint64(width), f.block(at, uint64(width)).uint(width))}
	var all []message
	for i := 0; i < len(blocks); i++ {
		for c := blocks[i]; len(c.b) >= 4; {
			kind, size, messageFlags := uint16(c.u8()), int(c.u16()), c.u8()
			if flags&4 != 0 {
				if len(c.b) < 2 {
					break // a gap
				}
				c.skip(2)
			}
			if size > len(c.b) {
				break // a gap
			}
			body := &cursor{f, c.take(size)}
			if kind != continuationMessage {
				all = append(all, f.message(kind, messageFlags, body))
				continue
			}
			to, n := body.u64(), body.u64()
			if n < 8 {
				f.fail("got %d bytes of a header, want 8 or more; the file is damaged", n)
			}
			next := f.signed(to, "OCHK", n)
			next.b = next.b[:n-8] // the last 4 are a checksum
			blocks = append(blocks, next)
		}
	}
	return all
}

func (f *file) message(kind uint16, flags uint8, body *cursor) message {
	if flags&2 != 0 && (kind == datatypeMessage || kind == attributeMessage || kind == dataspaceMessage) {
		f.fail("it has a type that is shared with other objects, which cannot be read")
	}
	return message{kind, body}
}

// read reads the group or dataset at an address.
func (f *file) read(at uint64, path string, depth int) any {
	defer func(outer string) { f.object = outer }(f.object)
	f.object = path
	if path == "" {
		f.object = "/"
	}
	if depth > maxDepth {
		f.fail("groups are nested more than %d deep", maxDepth)
	}
	f.once(at)
	g, d := NewGroup(), &Dataset{from: f, path: f.object}
	d.Attrs = g.Attrs
	isGroup, hasType, hasSpace := false, false, false
	var layout *cursor
	add := func(name string, at uint64) {
		if name == "" || name == "." || name == ".." || strings.ContainsAny(name, "/\x00") {
			f.fail("it has a member named %q", name)
		}
		if g.Groups[name] != nil || g.Datasets[name] != nil {
			f.fail("it has two members named %q", name)
		}
		switch o := f.read(at, path+"/"+name, depth+1).(type) {
		case *Group:
			g.Groups[name] = o
		case *Dataset:
			g.Datasets[name] = o
		}
	}
	for _, m := range f.header(at) {
		c := m.body
		switch m.kind {
		case dataspaceMessage:
			d.Shape, hasSpace = f.dataspace(c), true
		case datatypeMessage:
			d.Type, d.big = f.datatype(c)
			hasType = true
		case layoutMessage:
			layout = c
		case externalMessage:
			f.fail("its data is in another file")
		case filterMessage:
			f.fail("it is compressed; rewrite the file with h5repack -l CONTI -f NONE")
		case attributeMessage:
			name, a := f.attribute(c)
			g.Attrs[name] = a
		case attributeInfo:
			f.attributeInfo(c)
		case symbolTableMessage:
			isGroup = true
			tree, heap := c.u64(), c.u64()
			f.symbols(tree, f.localHeap(heap), 0, add)
		case linkInfoMessage:
			isGroup = true
			f.linkInfo(c)
		case linkMessage:
			isGroup = true
			add(f.link(c))
		}
	}
	switch {
	case isGroup:
		return g
	case !hasType || !hasSpace || layout == nil:
		f.fail("it is neither a group nor a dataset; the file is damaged")
	}
	f.layout(d, layout)
	return d
}
