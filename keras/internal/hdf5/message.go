package hdf5

import (
	"bytes"
	"math"
)

// dataspace reads a shape.
func (f *file) dataspace(c *cursor) []int {
	version, rank := c.u8(), int(c.u8())
	c.skip(1)
	switch version {
	case 1:
		c.skip(5)
	case 2:
		if kind := c.u8(); kind > 1 {
			f.fail("it holds nothing at all (a null dataspace), want an array")
		}
	default:
		f.fail("got version %d of a shape, want 1 or 2", version)
	}
	if rank > maxRank {
		f.fail("got %d axes, want at most %d", rank, maxRank)
	}
	shape := make([]int, rank)
	for i := range shape {
		n := c.u64()
		if n > math.MaxInt {
			f.fail("axis %d has size %d", i, n)
		}
		shape[i] = int(n)
	}
	return shape
}

// datatype reads the type of elements.
func (f *file) datatype(c *cursor) (t Type, big bool) {
	class := c.u8() & 15
	bits := c.uint(3)
	size := c.u32()
	if size == 0 || size > 1<<20 {
		f.fail("got elements of %d bytes", size)
	}
	t = Type{Class: Class(class), Size: int(size)}
	switch t.Class {
	case Integer:
		t.Signed = bits&8 != 0
		big = bits&1 != 0
		f.whole(c, t)
	case Float:
		big = bits&1 != 0
		f.ieee(c, t)
	case Text, Opaque:
	case Enum:
		base, order := f.datatype(c)
		if base.Class != Integer || base.Size != t.Size {
			f.fail("got an enum of %v, want one of integers", base)
		}
		t.Signed, big = base.Signed, order
	case Strings:
		if bits&15 != 1 || size != vlenSize {
			f.fail("its elements are sequences, which cannot be read")
		}
	default:
		f.fail("its elements are of class %d, which cannot be read", class)
	}
	return t, big
}

// whole checks that all bits of an integer count.
func (f *file) whole(c *cursor, t Type) {
	offset, bits := c.u16(), c.u16()
	if offset != 0 || int(bits) != 8*t.Size || t.Size > 8 {
		f.fail("got integers of %d bits at bit %d in %d bytes", bits, offset, t.Size)
	}
}

// formats are exponent position, exponent bits, fraction bits and bias of the
// IEEE formats by their size.
var formats = map[int][4]byte{2: {10, 5, 10, 15}, 4: {23, 8, 23, 127}, 8: {52, 11, 52, 0xff}} // the low byte of 1023

// ieee checks that a float is of an IEEE format.
func (f *file) ieee(c *cursor, t Type) {
	c.skip(4)
	at, exponent := c.u8(), c.u8()
	c.skip(1)
	fraction, bias := c.u8(), c.u32()
	want, ok := formats[t.Size]
	if !ok || want != [4]byte{at, exponent, fraction, byte(bias)} {
		f.fail("got floats of %d bytes with %d bits of exponent, want float16, float32 or float64", t.Size, exponent)
	}
}

// elements is the number of bytes of an array, which must not exceed limit.
func (f *file) elements(t Type, shape []int, limit uint64) uint64 {
	n := uint64(t.Size)
	for _, s := range shape {
		if s == 0 {
			return 0
		}
	}
	for _, s := range shape {
		if uint64(s) > limit/n {
			f.fail("%v%v is larger than what is stored; the file is damaged", t, shape)
		}
		n *= uint64(s)
	}
	if n > limit {
		f.fail("%v%v is larger than what is stored; the file is damaged", t, shape)
	}
	return n
}

// attribute reads an attribute.
func (f *file) attribute(c *cursor) (string, Attr) {
	version := c.u8()
	c.skip(1)
	sizes := [3]int{int(c.u16()), int(c.u16()), int(c.u16())}
	switch version {
	case 1:
	case 2:
	case 3:
		c.skip(1)
	default:
		f.fail("got version %d of an attribute, want 1 to 3", version)
	}
	var parts [3][]byte
	for i, n := range sizes {
		parts[i] = c.take(n)
		if version == 1 {
			c.skip(-n & 7)
		}
	}
	name := string(bytes.TrimRight(parts[0], "\x00"))
	t, big := f.datatype(&cursor{f, parts[1]})
	a := Attr{Type: t, Shape: f.dataspace(&cursor{f, parts[2]})}
	b := c.take(int(f.elements(t, a.Shape, uint64(len(c.b)))))
	switch {
	case t.Class == Text:
		for i := 0; i < len(b); i += t.Size {
			text, _, _ := bytes.Cut(b[i:i+t.Size], []byte{0})
			a.Strings = append(a.Strings, string(text))
		}
	case t.Class == Strings:
		for r := (&cursor{f, b}); len(r.b) > 0; {
			a.Strings = append(a.Strings, f.text(r))
		}
	case big:
		a.Data = swapped(b, t.Size)
	default:
		a.Data = b
	}
	return name, a
}

// text reads a string of variable length.
func (f *file) text(c *cursor) string {
	n, heap, index := c.u32(), c.u64(), c.u32()
	if n == 0 {
		return ""
	}
	b := f.globalHeap(heap)[uint16(index)]
	if index > math.MaxUint16 || uint64(n) > uint64(len(b)) {
		f.fail("a string of %d bytes is not where it should be; the file is damaged", n)
	}
	f.charge(uint64(n)) // several may refer to one
	return string(b[:n])
}

// globalHeap reads a collection of strings.
func (f *file) globalHeap(at uint64) map[uint16][]byte {
	if heap, ok := f.heaps[at]; ok {
		return heap
	}
	c := f.signed(at, "GCOL", 16)
	c.skip(4)
	n := c.u64()
	if n < 16 {
		f.fail("got a heap of %d bytes, want 16 or more; the file is damaged", n)
	}
	c = f.block(at+16, n-16)
	heap := map[uint16][]byte{}
	for len(c.b) >= 16 {
		index := c.u16()
		c.skip(6)
		size := c.u64()
		if index == 0 {
			break // the free space
		}
		if size > uint64(len(c.b)) {
			f.fail("got a string of %d bytes in a heap with %d left; the file is damaged", size, len(c.b))
		}
		heap[index] = c.take(int(size))
		c.skip(min(int(-size&7), len(c.b)))
	}
	f.heaps[at] = heap
	return heap
}

func (f *file) attributeInfo(c *cursor) {
	c.skip(1)
	if flags := c.u8(); flags&1 != 0 {
		c.skip(2)
	}
	if c.u64() != undefined {
		f.fail(`it has more attributes than can be read; write the file without libver="latest"`)
	}
}

func (f *file) linkInfo(c *cursor) {
	c.skip(1)
	if flags := c.u8(); flags&1 != 0 {
		c.skip(8)
	}
	if c.u64() != undefined {
		f.fail(`it has more members than can be read; write the file without libver="latest" and track_order`)
	}
}

// link reads a member of a group.
func (f *file) link(c *cursor) (name string, at uint64) {
	c.skip(1)
	flags := c.u8()
	var kind uint8
	if flags&8 != 0 {
		kind = c.u8()
	}
	if flags&4 != 0 {
		c.skip(8)
	}
	if flags&16 != 0 {
		c.skip(1)
	}
	n := c.uint(1 << (flags & 3))
	name = string(c.take(int(min(n, math.MaxInt32))))
	if kind != 0 {
		f.fail("its member %q is a soft or external link", name)
	}
	return name, c.u64()
}

// localHeap reads the names of a group's members.
func (f *file) localHeap(at uint64) []byte {
	c := f.signed(at, "HEAP", 32)
	c.skip(4)
	n := c.u64()
	c.skip(8)
	return f.block(c.u64(), n).b
}

// symbols reads the members of a group from a B-tree.
func (f *file) symbols(at uint64, names []byte, depth int, add func(name string, at uint64)) {
	if depth > maxDepth {
		f.fail("its B-tree is more than %d deep; the file is damaged", maxDepth)
	}
	f.once(at)
	c := f.signed(at, "TREE", 24)
	kind, level, n := c.u8(), c.u8(), int(c.u16())
	if kind != 0 {
		f.fail("got a B-tree of kind %d, want 0; the file is damaged", kind)
	}
	for c = f.block(at+24, 16*uint64(n)+8); n > 0; n-- {
		c.skip(8)
		child := c.u64()
		if level > 0 {
			f.symbols(child, names, depth+1, add)
			continue
		}
		f.once(child)
		s := f.signed(child, "SNOD", 8)
		s.skip(2)
		m := int(s.u16())
		for s = f.block(child+8, 40*uint64(m)); m > 0; m-- {
			name, header, cache := s.u64(), s.u64(), s.u32()
			s.skip(20)
			if name >= uint64(len(names)) {
				f.fail("the name of a member is not where it should be; the file is damaged")
			}
			text, _, ended := bytes.Cut(names[name:], []byte{0})
			if !ended {
				f.fail("the name of a member does not end; the file is damaged")
			}
			f.charge(uint64(len(text)))
			if cache == 2 {
				f.fail("its member %q is a soft link", text)
			}
			add(string(text), header)
		}
	}
}

// layout finds the data of a dataset.
func (f *file) layout(d *Dataset, c *cursor) {
	if d.Type.Class == Strings {
		f.fail("its elements are strings of variable length, want numbers")
	}
	version, class := c.u8(), c.u8()
	if version != 3 && version != 4 {
		f.fail("got version %d of its layout, want 3 or 4", version)
	}
	switch class {
	case 0: // in the header
		d.data = c.take(int(c.u16()))
		d.data = d.data[:f.elements(d.Type, d.Shape, uint64(len(d.data)))]
	case 1: // contiguous
		at, size := c.u64(), c.u64()
		if at == undefined {
			size = 0
		}
		if at != undefined && (at > f.size || size > f.size-at) {
			f.fail("its %d bytes at %d are not in the file, which ends at %d; it is truncated or damaged", size, at, f.size)
		}
		if d.at = at; f.elements(d.Type, d.Shape, size) == 0 {
			d.data = []byte{}
		}
	default:
		f.fail("it is chunked; rewrite the file with h5repack -l CONTI -f NONE")
	}
}
