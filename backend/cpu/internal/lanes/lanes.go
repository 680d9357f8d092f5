// Package lanes converts elements to the types that loops compute in, and has the
// loops: over blocks of elements ([Table], by operation) and over rows ([Rows]). They
// are the assembly of package vec if the current level has it, else portable Go.
//
// Where to look: lanes.go has the lane types, view.go typed views of memory, convert.go
// the conversions of 16-bit floats, loops.go and math.go the element-wise loops,
// rows.go the passes over rows of normalization, softmax and attention.
package lanes

import "github.com/mezzo-ml/mezzo/backend/dtype"

// Type is a lane type: the type of elements in block buffers, which loops compute in.
type Type uint8

const (
	F32  Type = iota // float16, bfloat16, float32
	F64              // float64
	I64              // uint8, int8, int32, int64
	Bool             // bool
)

// TypeOf returns the lane type of an element type.
func TypeOf(d dtype.DType) Type {
	switch {
	case d == dtype.Bool:
		return Bool
	case d.IsInt():
		return I64
	case d == dtype.Float64:
		return F64
	}
	return F32
}

// Size returns the bytes of an element of a block buffer.
func (d Type) Size() int { return [...]int{F32: 4, F64: 8, I64: 8, Bool: 1}[d] }

// Native reports whether elements in memory have the form of those in block buffers.
func Native(d dtype.DType) bool { return d.Size() == TypeOf(d).Size() }

// Load converts elements of type d to a block buffer of lane type to: the lane type
// of d, or F32 for integers that are read as float32.
func Load(reg, data []byte, d dtype.DType, to Type) {
	switch {
	case to == F32 && d != dtype.Float32:
		ToF32(dtype.View[float32](reg), data, d)
	case Native(d):
		copy(reg, data)
	default:
		dtype.ToI64(dtype.View[int64](reg), data, d)
	}
}

// Store converts a block buffer to elements of type d, which has the same lane type.
func Store(data, reg []byte, d dtype.DType) {
	switch {
	case Native(d):
		copy(data, reg)
	case TypeOf(d) == F32:
		FromF32(data, dtype.View[float32](reg), d)
	default:
		dtype.FromI64(data, dtype.View[int64](reg), d)
	}
}

// Wrap reduces each element to the range of an integer type, modulo its size.
func Wrap(x []int64, d dtype.DType) {
	switch d {
	case dtype.Uint8:
		for i, v := range x {
			x[i] = int64(uint8(v))
		}
	case dtype.Int8:
		for i, v := range x {
			x[i] = int64(int8(v))
		}
	case dtype.Int32:
		for i, v := range x {
			x[i] = int64(int32(v))
		}
	}
}

// Block is the elements of a block buffer: several of that many float32 fit in L1.
const Block = 1024
