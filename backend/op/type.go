// Package op is the table of operations: their names, the shapes and element types that
// they take and return, and how the compiler may treat them. It does not depend on
// tensors, gradients or devices; it is the vocabulary that backend/tensor records,
// backend/ir compiles and devices run.
//
// Main types: [Code] names an operation, [Info] is its row in the table,
// [Type] is an element type with a shape, [Attr] holds what an operation needs
// besides its arguments.
//
// Rules: properties are columns of the table, never lists of codes in other
// packages; shapes and types are settled by Infer once, so kernels trust them.
package op

import (
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strconv"
	"strings"

	"github.com/mezzo-ml/mezzo/backend/dtype"
)

// Unknown is the size of an axis that is not known yet: the batch axis of a
// model under construction. It prints as "?". No compiled graph contains it.
const Unknown = -1

// Shape lists the sizes of the axes, outermost first. A scalar has none.
type Shape []int

// Limit bounds the sizes of axes, the elements of a shape, the bytes of a value and the
// integers of attributes: 2⁴⁷ where int has 64 bits, the most that a process can
// address. Sums of numbers below it do not overflow.
const Limit = math.MaxInt >> (strconv.IntSize / 64 * 16)

// Size returns the number of elements, at most Limit, or Unknown if an axis is Unknown.
func (s Shape) Size() int {
	n := 1
	for _, d := range s {
		if d == Unknown {
			return Unknown
		}
		n = Times(n, d)
	}
	return n
}

// Times returns x·y for x and y from 0 to Limit, at most Limit.
func Times(x, y int) int {
	if hi, lo := bits.Mul64(uint64(x), uint64(y)); hi != 0 || lo > Limit {
		return Limit
	}
	return x * y
}

// Known reports whether every axis has a size.
func (s Shape) Known() bool { return !slices.Contains(s, Unknown) }

// Equal reports whether both shapes have the same axes.
func (s Shape) Equal(t Shape) bool { return slices.Equal(s, t) }

// Clone returns a copy that shares nothing with s.
func (s Shape) Clone() Shape { return slices.Clone(s) }

// Axis resolves a possibly negative axis to 0 … len(s)-1.
func (s Shape) Axis(axis int) (int, error) {
	a := axis
	if a < 0 {
		a += len(s)
	}
	if a < 0 || a >= len(s) {
		return 0, fmt.Errorf("axis %d does not exist in shape %v", axis, s)
	}
	return a, nil
}

// String prints "[? 784]"; a scalar is "[]".
func (s Shape) String() string {
	var b strings.Builder
	b.WriteByte('[')
	for i, d := range s {
		if i > 0 {
			b.WriteByte(' ')
		}
		if d == Unknown {
			b.WriteByte('?')
		} else {
			b.WriteString(strconv.Itoa(d))
		}
	}
	b.WriteByte(']')
	return b.String()
}

// Type is the element type and the shape of a value.
type Type struct {
	DType dtype.DType
	Shape Shape
}

// String prints "float16[? 784]".
func (t Type) String() string { return t.DType.String() + t.Shape.String() }

// Equal reports whether element type and shape agree.
func (t Type) Equal(u Type) bool { return t.DType == u.DType && t.Shape.Equal(u.Shape) }

// Bytes returns the size of a value of this type, at most Limit. Shape must be known.
func (t Type) Bytes() int { return Times(t.DType.Size(), t.Shape.Size()) }

// Check returns an error for shapes with negative axes, or with more elements than
// memory can hold. As in NumPy, an axis of size 0 does not make other axes valid,
// because derived shapes may omit it.
func (t Type) Check() error {
	n := max(t.DType.Size(), 1)
	for _, d := range t.Shape {
		switch {
		case d < Unknown:
			return fmt.Errorf("shape %v has a negative axis", t.Shape)
		case d > 0:
			n = Times(n, d)
		}
	}
	if n >= Limit {
		return fmt.Errorf("shape %v is too large: %v elements of it would take 2^%d bytes or more", t.Shape, t.DType, bits.Len(Limit))
	}
	return nil
}

// Broadcast returns the shape of an element-wise operation on shapes a and b by NumPy's
// rule: axes align at the end, and an axis of size 1, or a missing one, repeats.
func Broadcast(a, b Shape) (Shape, error) {
	x, y := a, b
	if len(a) < len(b) {
		a, b = b, a
	}
	out := a.Clone()
	off := len(a) - len(b)
	for i, d := range b {
		switch c := a[off+i]; {
		case c == d, d == 1:
		case c == 1:
			out[off+i] = d
		default:
			return nil, fmt.Errorf("shapes %v and %v do not broadcast", x, y)
		}
	}
	return out, nil
}
