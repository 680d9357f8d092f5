// Package hdf5 reads and writes the part of the HDF5 format that Keras's
// weight files use: a tree of [Group]s and [Dataset]s with attributes,
// contiguous and not compressed.
//
// [Open] and [Read] return the root of a file; [Write] writes one. A [Dataset]
// is an array of one [Type], in row-major order and little-endian. Its elements
// are read only when Dataset.Bytes asks for them.
//
// Rules:
//   - Nothing is skipped silently: what the package cannot read, such as
//     chunked or compressed data, links out of the file and the storage of
//     h5py's libver="latest" for groups of more than 8 members, is an error.
//   - Files are not trusted. No size in a file makes the package take more
//     memory than a small multiple of the file's own size, and no cycle makes
//     it run on.
//   - Errors about the content of a file are of type *[Error].
//
// The format is that of the HDF5 File Format Specification, version 3.0; files
// are written in its oldest form, as h5py does by default: superblock 0,
// symbol tables, object headers of version 1.
package hdf5

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Error says what is wrong with a file.
type Error struct {
	File    string // as given to Open or Read
	Object  string // path of the group or dataset: "/layers/dense"
	Message string
}

// Error returns the file, the object and the message.
func (e *Error) Error() string {
	return fmt.Sprintf("hdf5: %s: %s: %s", e.File, e.Object, e.Message)
}

// Class is a kind of elements, as HDF5 numbers them.
type Class uint8

// The classes that the package knows.
const (
	Integer Class = 0
	Float   Class = 1
	Text    Class = 3 // of a fixed length, padded with zeros
	Opaque  Class = 5
	Enum    Class = 8 // of integers; h5py's bool
	Strings Class = 9 // of any length, UTF-8; attributes only
)

// Type is the type of elements.
type Type struct {
	Class  Class
	Size   int  // bytes
	Signed bool // Integer and Enum
}

// The types of weights. bfloat16 has none of its own: Keras writes Opaque16,
// with an attribute dtype.
var (
	Bool     = Type{Enum, 1, true}
	Uint8    = Type{Integer, 1, false}
	Int8     = Type{Integer, 1, true}
	Uint32   = Type{Integer, 4, false}
	Int32    = Type{Integer, 4, true}
	Int64    = Type{Integer, 8, true}
	Float16  = Type{Float, 2, false}
	Float32  = Type{Float, 4, false}
	Float64  = Type{Float, 8, false}
	Opaque16 = Type{Opaque, 2, false}
)

// String describes the type: "float32", "opaque of 2 bytes".
func (t Type) String() string {
	switch {
	case t.Class == Float:
		return fmt.Sprintf("float%d", 8*t.Size)
	case t.Class == Integer && t.Signed:
		return fmt.Sprintf("int%d", 8*t.Size)
	case t.Class == Integer:
		return fmt.Sprintf("uint%d", 8*t.Size)
	case t.Class == Strings:
		return "strings"
	}
	names := map[Class]string{Text: "text", Opaque: "opaque", Enum: "enum"}
	return fmt.Sprintf("%s of %d bytes", names[t.Class], t.Size)
}

// Attr is the value of an attribute.
type Attr struct {
	Type    Type
	Shape   []int    // empty for a scalar
	Strings []string // the elements, where Type.Class is Text or Strings
	Data    []byte   // the elements, where it is another
}

// StringAttr is an attribute that holds one string, of variable length as h5py
// writes it.
func StringAttr(s string) Attr {
	return Attr{Type: Type{Class: Strings, Size: vlenSize}, Strings: []string{s}}
}

// Group holds groups and datasets by name. Its maps may be nil.
type Group struct {
	Groups   map[string]*Group
	Datasets map[string]*Dataset
	Attrs    map[string]Attr
}

// NewGroup makes an empty group.
func NewGroup() *Group {
	return &Group{Groups: map[string]*Group{}, Datasets: map[string]*Dataset{}, Attrs: map[string]Attr{}}
}

// Group returns the group at a path below g, "layers/dense", or nil.
func (g *Group) Group(path string) *Group {
	for name := range strings.SplitSeq(path, "/") {
		if g == nil {
			return nil
		}
		g = g.Groups[name]
	}
	return g
}

// Require returns the group at a path below g, which it makes where there is
// none.
func (g *Group) Require(path string) *Group {
	for name := range strings.SplitSeq(path, "/") {
		next := g.Groups[name]
		if next == nil {
			next = NewGroup()
			g.Groups[name] = next
		}
		g = next
	}
	return g
}

// Names lists the members of g, sorted.
func (g *Group) Names() []string {
	return slices.Sorted(func(yield func(string) bool) {
		for name := range maps.Keys(g.Groups) {
			if !yield(name) {
				return
			}
		}
		for name := range maps.Keys(g.Datasets) {
			if !yield(name) {
				return
			}
		}
	})
}

// Dataset is an array.
type Dataset struct {
	Type  Type
	Shape []int // empty for a scalar
	Attrs map[string]Attr

	data []byte // of a new one, or stored in the header
	from *file  // else
	path string
	at   uint64
	big  bool // big-endian
}

// NewDataset makes a dataset of data, which is kept, not copied.
func NewDataset(t Type, shape []int, data []byte) *Dataset {
	return &Dataset{Type: t, Shape: shape, Attrs: map[string]Attr{}, data: data}
}

// Size is the number of bytes that Bytes returns.
func (d *Dataset) Size() int {
	n := d.Type.Size
	for _, s := range d.Shape {
		n *= s
	}
	return n
}

// Bytes returns the elements in row-major order, little-endian. Do not change
// them. The file must be open still.
func (d *Dataset) Bytes() (b []byte, err error) {
	if d.from == nil {
		return d.data, nil
	}
	d.from.object = d.path
	defer d.from.recover(&err)
	b = d.data
	if b == nil {
		b = d.from.bytes(d.at, uint64(d.Size()))
	}
	if d.big {
		b = swapped(b, d.Type.Size)
	}
	return b, nil
}

func swapped(b []byte, size int) []byte {
	out := slices.Clone(b)
	for e := range slices.Chunk(out, size) {
		slices.Reverse(e)
	}
	return out
}
