package onnx

import (
	"fmt"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// Element types: TensorProto.DataType.
const (
	typeFloat    = 1
	typeUint8    = 2
	typeInt8     = 3
	typeUint16   = 4
	typeInt16    = 5
	typeInt32    = 6
	typeInt64    = 7
	typeString   = 8
	typeBool     = 9
	typeFloat16  = 10
	typeDouble   = 11
	typeUint32   = 12
	typeUint64   = 13
	typeBFloat16 = 16
)

// elementTypes has Mezzo's type of each element type of ONNX, and the size of an element
// in a file, in bytes. Integers that Mezzo has no type for are computed in a wider one.
var elementTypes = map[int64]struct {
	name string
	to   dtype.DType
	size int
}{
	typeFloat:    {"FLOAT", dtype.Float32, 4},
	typeUint8:    {"UINT8", dtype.Uint8, 1},
	typeInt8:     {"INT8", dtype.Int32, 1},
	typeUint16:   {"UINT16", dtype.Int32, 2},
	typeInt16:    {"INT16", dtype.Int32, 2},
	typeInt32:    {"INT32", dtype.Int32, 4},
	typeInt64:    {"INT64", dtype.Int64, 8},
	typeBool:     {"BOOL", dtype.Bool, 1},
	typeFloat16:  {"FLOAT16", dtype.Float16, 2},
	typeDouble:   {"DOUBLE", dtype.Float64, 8},
	typeUint32:   {"UINT32", dtype.Int64, 4},
	typeBFloat16: {"BFLOAT16", dtype.BFloat16, 2},
}

// elements has ONNX's element type of each type of Mezzo.
var elements = map[dtype.DType]int64{
	dtype.Float32: typeFloat, dtype.Uint8: typeUint8, dtype.Int32: typeInt32, dtype.Int64: typeInt64, dtype.Bool: typeBool,
	dtype.Int8: typeInt8, dtype.Float16: typeFloat16, dtype.Float64: typeDouble, dtype.BFloat16: typeBFloat16,
}

// elementSize returns the bytes of an element, 0 for types that are not read.
func elementSize(typ int64) int { return elementTypes[typ].size }

// typeName returns the name of an element type.
func typeName(typ int64) string {
	switch e, ok := elementTypes[typ]; {
	case ok:
		return e.name
	case typ == typeString:
		return "STRING"
	case typ == typeUint64:
		return "UINT64"
	}
	return fmt.Sprintf("element type %d", typ)
}

// shape returns the sizes and checks them, and that there are as many elements as they
// say. A shape never takes memory: the elements are in the file.
func (t *tensorProto) shape() ([]int, error) {
	size := elementSize(t.typ)
	if size == 0 {
		return nil, fmt.Errorf("its elements are %s, which is not supported", typeName(t.typ))
	}
	shape := make([]int, len(t.dims))
	for i, d := range t.dims {
		if d < 0 || d > op.Limit {
			return nil, fmt.Errorf("axis %d has the size %d", i, d)
		}
		shape[i] = int(d)
	}
	whole := op.Type{DType: dtype.Uint8, Shape: shape}
	if err := whole.Check(); err != nil {
		return nil, err
	}
	if bytes := op.Times(whole.Shape.Size(), size); t.external == nil && bytes != len(t.raw) {
		return nil, fmt.Errorf("it has %d bytes of elements, want %d for shape %v of %s", len(t.raw), bytes, op.Shape(shape), typeName(t.typ))
	}
	return shape, nil
}
