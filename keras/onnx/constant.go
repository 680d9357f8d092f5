package onnx

import (
	"encoding/binary"
	"math"
	"slices"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/op"
	"github.com/mezzo-ml/mezzo/backend/tensor"
)

// maxFolded is the number of elements of values that are computed while the graph is
// recorded: shapes, scales and small masks.
const maxFolded = 1 << 16

// constant has elements that are known while the graph is recorded: those of an
// initializer, or of values computed from shapes.
type constant struct {
	proto *tensorProto // nil: dims and elements
	dims  op.Shape
	i     []int64   // integers and bools
	f     []float64 // floats
	typ   int64
	made  map[dtype.DType]*tensor.Tensor // of an initializer: recordings share it
}

func newInts(typ int64, dims []int, elements []int64) *constant {
	return &constant{dims: slices.Clone(dims), i: elements, typ: typ}
}

func newFloats(typ int64, dims []int, elements []float64) *constant {
	c := &constant{dims: slices.Clone(dims), f: elements, typ: typ}
	if typ != typeDouble { // what a computation in the file would give
		for i, x := range c.f {
			c.f[i] = float64(float32(x))
		}
	}
	return c
}

// result makes a constant a result of a node.
func (c *constant) result() []*value { return []*value{{c: c, typ: c.typ}} }

func (c *constant) shape() op.Shape {
	if c.proto == nil {
		return c.dims
	}
	s := make(op.Shape, len(c.proto.dims))
	for i, d := range c.proto.dims {
		s[i] = int(d)
	}
	return s
}

// small reports whether the elements are few, so that they may be read and copied.
func (c *constant) small() bool { return c.shape().Size() <= maxFolded }

// isFloat reports whether the elements are floats.
func (c *constant) isFloat() bool {
	typ := c.typ
	if c.proto != nil {
		typ = c.proto.typ
	}
	return elementTypes[typ].to.IsFloat()
}

// ints returns the elements of a small constant of integers or bools, never nil, and nil
// for others.
func (c *constant) ints() []int64 {
	if c.isFloat() || !c.small() {
		return nil
	}
	if c.proto != nil && c.i == nil {
		c.i = c.proto.integers()
	}
	if c.i == nil {
		return []int64{}
	}
	return c.i
}

// floats returns the elements of a small constant of any type.
func (c *constant) floats() []float64 {
	switch {
	case !c.small():
		return nil
	case !c.isFloat():
		out := make([]float64, 0, c.shape().Size())
		for _, n := range c.ints() {
			out = append(out, float64(n))
		}
		return out
	case c.proto != nil && c.f == nil:
		c.f = make([]float64, c.shape().Size())
		dtype.ToF64(c.f, c.proto.raw, elementTypes[c.proto.typ].to)
	}
	if c.f == nil {
		return []float64{}
	}
	return c.f
}

// integers returns the elements of a tensor of integers or bools.
func (t *tensorProto) integers() []int64 {
	size := elementSize(t.typ)
	out := make([]int64, len(t.raw)/size)
	for i := range out {
		b := t.raw[i*size:]
		switch t.typ {
		case typeUint8:
			out[i] = int64(b[0])
		case typeBool:
			if b[0] != 0 {
				out[i] = 1
			}
		case typeInt8:
			out[i] = int64(int8(b[0]))
		case typeUint16:
			out[i] = int64(binary.LittleEndian.Uint16(b))
		case typeInt16:
			out[i] = int64(int16(binary.LittleEndian.Uint16(b)))
		case typeInt32:
			out[i] = int64(int32(binary.LittleEndian.Uint32(b)))
		case typeUint32:
			out[i] = int64(binary.LittleEndian.Uint32(b))
		default:
			out[i] = int64(binary.LittleEndian.Uint64(b))
		}
	}
	return out
}

// tensor returns the elements as a tensor of type d.
func (c *constant) tensor(d dtype.DType) *tensor.Tensor {
	if c.proto == nil {
		return c.make(d)
	}
	if c.made == nil {
		c.made = map[dtype.DType]*tensor.Tensor{}
	}
	if c.made[d] == nil {
		c.made[d] = c.make(d)
	}
	return c.made[d]
}

func (c *constant) make(d dtype.DType) *tensor.Tensor {
	t := op.Type{DType: d, Shape: c.shape()}
	if d.Is16() && c.isFloat() && c.small() {
		c = c.limited(d.Max())
	}
	if len(t.Shape) == 0 && c.isFloat() {
		return tensor.Scalar(d, c.floats()[0])
	}
	if c.proto != nil {
		if from := elementTypes[c.proto.typ]; from.to.IsFloat() || from.size == from.to.Size() && c.proto.typ != typeBool {
			return tensor.FromBytes(op.Type{DType: from.to, Shape: t.Shape}, c.proto.raw).Cast(d)
		}
	}
	raw := make([]byte, t.Bytes())
	if c.isFloat() {
		dtype.FromF64(raw, c.f, d)
		return tensor.FromBytes(t, raw)
	}
	all := c.i
	if c.proto != nil && all == nil {
		all = c.proto.integers()
	}
	switch d {
	case dtype.Int64:
		for i, n := range all {
			binary.LittleEndian.PutUint64(raw[8*i:], uint64(n))
		}
	case dtype.Int32:
		for i, n := range all {
			binary.LittleEndian.PutUint32(raw[4*i:], uint32(n))
		}
	case dtype.Uint8, dtype.Bool:
		for i, n := range all {
			raw[i] = byte(n)
		}
	default:
		x := make([]float64, len(all))
		for i, n := range all {
			x[i] = float64(n)
		}
		dtype.FromF64(raw, x, d)
	}
	return tensor.FromBytes(t, raw)
}

// limited returns c with finite numbers limited to ±most. Masks of attention are products
// of 0 or 1 with the least number of float32, which is infinite in 16 bits: 0 times it
// must stay 0.
func (c *constant) limited(most float64) *constant {
	all := slices.Clone(c.floats())
	changed := false
	for i, x := range all {
		if !math.IsInf(x, 0) && math.Abs(x) > most {
			all[i], changed = math.Copysign(most, x), true
		}
	}
	if !changed {
		return c
	}
	return &constant{dims: c.shape(), f: all, typ: c.elementType()}
}

// scalar returns the only element of a constant, as NaN if it is none.
func (v *value) scalar() float64 {
	if v == nil || v.c == nil || v.c.shape().Size() != 1 {
		return math.NaN()
	}
	if x := v.c.floats(); len(x) == 1 {
		return x[0]
	}
	return math.NaN()
}
