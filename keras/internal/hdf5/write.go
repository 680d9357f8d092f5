package hdf5

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// The capacity of a group's structures, as h5py has them: a symbol table node
// holds 2·leafK members, a B-tree node 2·treeK children.
const (
	leafK    = 4
	treeK    = 16
	nodeSize = 24 + 2*treeK*16 + 8
)

// Write writes a file with everything below root. The datasets may be those of
// another file. Names must not be empty nor contain "/"; attributes must be
// strings of variable length, of 64 KiB at most together.
func Write(w io.WriterAt, root *Group) error {
	out := &writer{w: w, end: 96}
	header, tree, heap := out.group("", root)
	start := []byte(signature + "\x00\x00\x00\x00\x00\x08\x08\x00")
	start = le.AppendUint16(start, leafK)
	start = le.AppendUint16(start, treeK)
	start = le.AppendUint32(start, 0)
	start = numbers(start, 0, undefined, out.end, undefined, 0, header)
	start = append(start, 1, 0, 0, 0, 0, 0, 0, 0)
	out.at(0, numbers(start, tree, heap))
	return out.err
}

// writer writes on until the first error.
type writer struct {
	w   io.WriterAt
	end uint64
	err error
}

func (w *writer) at(at uint64, b []byte) {
	if w.err == nil {
		_, w.err = w.w.WriteAt(b, int64(at))
	}
}

// put appends a block and returns its address, a multiple of 8.
func (w *writer) put(b []byte) uint64 {
	at := (w.end + 7) &^ 7
	w.end = at + uint64(len(b))
	w.at(at, b)
	return at
}

func (w *writer) fail(path, format string, args ...any) {
	if w.err == nil {
		w.err = fmt.Errorf("hdf5: "+path+": "+format, args...)
	}
}

func numbers(b []byte, values ...uint64) []byte {
	for _, v := range values {
		b = le.AppendUint64(b, v)
	}
	return b
}

// padded fills b up to a multiple of 8 bytes.
func padded(b []byte) []byte { return append(b, make([]byte, -len(b)&7)...) }

// entry is a message that is written.
type entry struct {
	kind uint16
	body []byte
}

// header writes the header of an object.
func (w *writer) header(path string, entries []entry, attrs map[string]Attr) uint64 {
	for _, name := range slices.Sorted(maps.Keys(attrs)) {
		entries = append(entries, entry{attributeMessage, w.attribute(path, name, attrs[name])})
	}
	var body []byte
	for _, e := range entries {
		b := padded(e.body)
		body = le.AppendUint16(body, e.kind)
		body = le.AppendUint16(body, uint16(len(b)))
		body = append(body, 0, 0, 0, 0)
		body = append(body, b...)
	}
	h := le.AppendUint16([]byte{1, 0}, uint16(len(entries)))
	h = le.AppendUint32(h, 1)
	h = le.AppendUint32(h, uint32(len(body)))
	return w.put(append(append(h, 0, 0, 0, 0), body...))
}

func dataspace(shape []int) []byte {
	b := []byte{1, byte(len(shape)), 0, 0, 0, 0, 0, 0}
	for _, s := range shape {
		b = le.AppendUint64(b, uint64(s))
	}
	return b
}

// datatype encodes a type, nil for one that is not written.
func datatype(t Type) []byte {
	head := func(class, bits, sign byte) []byte {
		return le.AppendUint32([]byte{0x10 | class, bits, sign, 0}, uint32(t.Size))
	}
	sign := byte(0)
	if t.Signed {
		sign = 8
	}
	switch t.Class {
	case Integer:
		return append(head(0, sign, 0), 0, 0, byte(8*t.Size), 0)
	case Float:
		f, ok := formats[t.Size]
		if !ok {
			return nil
		}
		bits := byte(8 * t.Size)
		bias := uint32(f[3])
		if t.Size == 8 {
			bias = 1023
		}
		return le.AppendUint32(append(head(1, 0x20, bits-1), 0, 0, bits, 0, f[0], f[1], 0, f[2]), bias)
	case Opaque: // with an empty tag
		return head(5, 0, 0)
	case Enum: // numpy's bool, as h5py writes it
		if t != Bool {
			return nil
		}
		b := append(head(8, 2, 0), datatype(Type{Integer, 1, true})...)
		return append(b, "FALSE\x00\x00\x00TRUE\x00\x00\x00\x00\x00\x01"...)
	case Strings:
		return append([]byte{0x19, 1, 1, 0, vlenSize, 0, 0, 0}, 0x10, 0, 0, 0, 1, 0, 0, 0, 0, 0, 8, 0)
	}
	return nil
}

func (w *writer) attribute(path, name string, a Attr) []byte {
	count := 1
	for _, s := range a.Shape {
		count *= s
	}
	if a.Type.Class != Strings || len(a.Strings) != count {
		w.fail(path, "attribute %q: got %v%v of %d strings, want strings of variable length", name, a.Type, a.Shape, len(a.Strings))
		return nil
	}
	parts := [][]byte{append([]byte(name), 0), datatype(a.Type), dataspace(a.Shape)}
	b := []byte{1, 0}
	for _, p := range parts {
		b = le.AppendUint16(b, uint16(len(p)))
	}
	for _, p := range parts {
		b = append(b, padded(p)...)
	}
	b = append(b, w.strings(a.Strings)...)
	if len(b) > 64000 {
		w.fail(path, "attribute %q: got %d bytes, want at most 64000", name, len(b))
	}
	return b
}

// strings writes strings to a collection of the global heap of their own, and
// returns the references.
func (w *writer) strings(all []string) []byte {
	var body, refs []byte
	var lengths, indices []uint32
	index := uint32(0)
	for _, s := range all {
		lengths = append(lengths, uint32(len(s)))
		if s == "" {
			indices = append(indices, 0)
			continue
		}
		index++
		indices = append(indices, index)
		body = le.AppendUint16(body, uint16(index))
		body = append(body, 0, 0, 0, 0, 0, 0)
		body = le.AppendUint64(body, uint64(len(s)))
		body = padded(append(body, s...))
	}
	at := uint64(0)
	if index > 0 {
		const least = 4096 // of a collection
		size := max(least, 16+len(body)+16)
		free := size - 16 - len(body)
		heap := numbers([]byte("GCOL\x01\x00\x00\x00"), uint64(size))
		heap = append(heap, body...)
		heap = numbers(heap, 0, uint64(free))
		at = w.put(append(heap, make([]byte, free-16)...))
	}
	for i, n := range lengths {
		refs = le.AppendUint32(refs, n)
		if n == 0 {
			refs = append(refs, make([]byte, 12)...)
			continue
		}
		refs = le.AppendUint64(refs, at)
		refs = le.AppendUint32(refs, indices[i])
	}
	return refs
}

// dataset writes a dataset and returns the address of its header.
func (w *writer) dataset(path string, d *Dataset) uint64 {
	t := datatype(d.Type)
	if t == nil || d.Type.Class == Strings {
		w.fail(path, "cannot write a dataset of %v", d.Type)
		return 0
	}
	data, err := d.Bytes()
	if err != nil {
		w.err = err
		return 0
	}
	if len(data) != d.Size() || len(d.Shape) > maxRank {
		w.fail(path, "got %d bytes, want %d for %v%v", len(data), d.Size(), d.Type, d.Shape)
		return 0
	}
	at := uint64(undefined)
	if len(data) > 0 {
		at = w.put(data)
	}
	return w.header(path, []entry{
		{dataspaceMessage, dataspace(d.Shape)},
		{datatypeMessage, t},
		{0x5, []byte{2, 2, 2, 0}}, // fill value: none; h5dump wants the message
		{layoutMessage, numbers([]byte{3, 1}, at, uint64(len(data)))},
	}, d.Attrs)
}

// member is where a member of a group was written.
type member struct{ name, header, tree, heap uint64 }

// group writes a group and returns the addresses of its header, B-tree and
// names.
func (w *writer) group(path string, g *Group) (header, tree, heap uint64) {
	names := make([]byte, 8)
	var members []member
	for _, name := range g.Names() {
		if name == "" || name == "." || strings.ContainsAny(name, "/\x00") {
			w.fail(path, "a member is named %q", name)
		}
		m := member{name: uint64(len(names))}
		names = padded(append(append(names, name...), 0))
		d, sub := g.Datasets[name], g.Groups[name]
		switch {
		case d != nil && sub != nil:
			w.fail(path, "%q is both a group and a dataset", name)
		case d != nil:
			m.header = w.dataset(path+"/"+name, d)
		default:
			m.header, m.tree, m.heap = w.group(path+"/"+name, sub)
		}
		if w.err != nil {
			return 0, 0, 0
		}
		members = append(members, m)
	}
	free := uint64(len(names))
	names = numbers(names, 1, 16) // a free block of 16 bytes, the last
	heap = w.put(numbers([]byte("HEAP\x00\x00\x00\x00"), uint64(len(names)), free, w.put(names)))
	tree = w.tree(w.nodes(members))
	return w.header(path, []entry{{symbolTableMessage, numbers(nil, tree, heap)}}, g.Attrs), tree, heap
}

// child is a node below a B-tree node, with the last name in it.
type child struct{ last, at uint64 }

// nodes writes the symbol table nodes of a group.
func (w *writer) nodes(members []member) []child {
	var out []child
	for part := range slices.Chunk(members, 2*leafK) {
		b := le.AppendUint16([]byte("SNOD\x01\x00"), uint16(len(part)))
		for _, m := range part {
			b = numbers(b, m.name, m.header)
			if m.tree == 0 {
				b = append(b, make([]byte, 24)...)
				continue
			}
			b = numbers(append(b, 1, 0, 0, 0, 0, 0, 0, 0), m.tree, m.heap)
		}
		b = append(b, make([]byte, 8+2*leafK*40-len(b))...)
		out = append(out, child{part[len(part)-1].name, w.put(b)})
	}
	return out
}

// tree writes a B-tree, level by level, and returns its address.
func (w *writer) tree(children []child) uint64 {
	for level := byte(0); ; level++ {
		parts := slices.Collect(slices.Chunk(children, 2*treeK))
		if len(parts) == 0 {
			parts = [][]child{nil}
		}
		base := (w.end + 7) &^ 7
		before := uint64(0)
		var above []child
		for i, part := range parts {
			left, right := uint64(undefined), uint64(undefined)
			if i > 0 {
				left = base + uint64(i-1)*nodeSize
			}
			if i < len(parts)-1 {
				right = base + uint64(i+1)*nodeSize
			}
			b := le.AppendUint16([]byte{'T', 'R', 'E', 'E', 0, level}, uint16(len(part)))
			b = numbers(b, left, right, before)
			for _, c := range part {
				b = numbers(b, c.at, c.last)
				before = c.last
			}
			b = append(b, make([]byte, nodeSize-len(b))...)
			above = append(above, child{before, w.put(b)})
		}
		if len(above) == 1 {
			return above[0].at
		}
		children = above
	}
}
