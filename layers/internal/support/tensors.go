package support

import (
	"fmt"
	"slices"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/layers/resample"
	"github.com/mezzo-ml/mezzo/policy"
)

// OverLast applies f, which makes n of the last axis of a matrix, to x: one
// product of two matrices, whatever the rank. While a model is built a shape
// with several unknown axes cannot be folded, nor need it be.
func OverLast(x *tensor.Tensor, n int, f func(*tensor.Tensor) *tensor.Tensor) *tensor.Tensor {
	shape := x.Shape().Clone()
	shape[len(shape)-1] = n
	if len(shape) <= 2 || Unknowns(shape) > 1 {
		return f(x)
	}
	return f(x.Reshape(FoldedRows(x.Shape()), x.Dim(-1))).Reshape(shape...)
}

// FoldedRows is the product of all axes but the last, or tensor.Unknown.
func FoldedRows(s tensor.Shape) int { return s[:len(s)-1].Size() }

// Indices returns x, integers or floats, as int32 or int64.
func Indices(x *tensor.Tensor) *tensor.Tensor {
	if x.DType() == dtype.Int64 {
		return x
	}
	return x.Cast(dtype.Int32)
}

func CastFloats(x *tensor.Tensor, d dtype.DType) *tensor.Tensor {
	one := func(t *tensor.Tensor) *tensor.Tensor {
		if !t.DType().IsFloat() || t.DType() == d {
			return t
		}
		if d == dtype.Float32 || d == dtype.Float64 {
			t = t.Widen()
		}
		return t.Cast(d)
	}
	if !x.IsTuple() {
		return one(x)
	}
	parts := slices.Clone(x.Unpack())
	for i, t := range parts {
		parts[i] = one(t)
	}
	return tensor.Tuple(parts...)
}

// Widest is the type that normalization computes in: float32, or float64 where
// the input or the policy has it.
func Widest(p policy.Policy, x *tensor.Tensor) dtype.DType {
	return dtype.Promote(dtype.Promote(p.Variable, dtype.Float32), x.DType())
}

// ResampleTable is resample.Weights, unless the table would be too large.
func ResampleTable(how string, antialias bool, from, to int) ([]float64, error) {
	if err := CheckTable(fmt.Sprintf("%d pixels in the place of %d", to, from), to, from); err != nil {
		return nil, err
	}
	return resample.Weights(how, antialias, from, to)
}

// Resampled multiplies an axis of floats by weights [to from].
func Resampled(x *tensor.Tensor, axis int, weights []float64) *tensor.Tensor {
	n := x.Dim(axis)
	xs := "abcdef"[:x.Rank()]
	out := xs[:axis] + "z" + xs[axis+1:]
	return tensor.Einsum("z"+xs[axis:axis+1]+","+xs+"->"+out, Constant(x.DType(), weights, len(weights)/n, n), x)
}

// Constant is a tensor of given numbers, rounded to d.
func Constant(d dtype.DType, data []float64, shape ...int) *tensor.Tensor {
	return tensor.New(data, shape...).Cast(d)
}
