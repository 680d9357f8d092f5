package onnx

import (
	"slices"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/layers"
)

// notExported are the operations that Export has no nodes for, as docs/onnx.md says.
var notExported = []op.Code{
	op.RandomUniform,           // inference draws nothing
	op.RoundE4M3, op.RoundE5M2, // of 8-bit policies: exported under float32
	op.QuantizedMatMul,                    // ONNX quantizes tensors, and not rows
	op.Stats, op.Unique, op.ScatterUpdate, // of the precision doctor and of optimizers
	op.ConvKernelGrad, op.MaxPoolGrad, op.MaxPoolGradGrad, op.AvgPoolGrad, // gradients
	op.RNNGrad, op.SoftmaxGrad, op.LayerNormGrad, op.AttentionGrad, // gradients
	op.AllReduceStart, op.AllReduceDone, op.AllGatherStart, op.AllGatherDone, // training on several ranks
	op.Fused, op.ExtraOutput, // made by passes, which run later
}

// TestCodes: each operation is exported, expanded, or in the list above.
func TestCodes(t *testing.T) {
	for _, c := range op.Codes() {
		_, isComposite := composites[c]
		known := isComposite || direct[c] != "" || lowerings[c] != nil || c == op.Param || expanded(&ir.Value{Op: c, Attr: op.Attr{Scan: &op.Scan{}}})
		if known == slices.Contains(notExported, c) {
			t.Errorf("%v: exported is %v, want the opposite of what the list says", c, known)
		}
	}
}

// function is a layer of a function, for operations that no layer records.
type function struct {
	layers.Base
	f func(x []*keras.Tensor) *keras.Tensor
}

func (*function) Config() layers.Config                               { return layers.Config{} }
func (*function) Build(...layers.Shape) error                         { return nil }
func (*function) CheckInput(...layers.Shape) error                    { return nil }
func (f *function) Call(_ layers.Pass, x *keras.Tensor) *keras.Tensor { return f.f(x.Unpack()) }

// functions are models of one function.
func functions() (all []functionCase) {
	floats, ints := []string{"float32[3 4 5]"}, []string{"int32[3 4]"}
	add := func(name string, in []string, f func(x []*keras.Tensor) *keras.Tensor) {
		all = append(all, functionCase{"function " + name, in, f})
	}
	one := func(name string, f func(x *keras.Tensor) *keras.Tensor) {
		add(name, floats, func(x []*keras.Tensor) *keras.Tensor { return f(x[0]) })
	}
	for _, c := range []op.Code{op.Neg, op.Abs, op.Sign, op.Exp, op.Expm1, op.Square, op.Sin, op.Cos, op.Erf, op.NormalCDF, op.NormalPDF, op.Floor, op.Ceil, op.Round, op.Softplus} {
		one(c.String(), func(x *keras.Tensor) *keras.Tensor { return tensor.Record(c, op.Attr{}, x) })
	}
	for _, c := range []op.Code{op.Log, op.Log1p, op.Sqrt, op.Rsqrt, op.Reciprocal} {
		one(c.String(), func(x *keras.Tensor) *keras.Tensor { return tensor.Record(c, op.Attr{}, x.Abs().AddScalar(0.01)) })
	}
	one("near 0", func(x *keras.Tensor) *keras.Tensor {
		x = x.MulScalar(1e-6)
		return tensor.Concat(1, x.Expm1(), x.Log1p())
	})
	one("Mod", func(x *keras.Tensor) *keras.Tensor { return x.Mod(tensor.Scalar(keras.Float32, 0.7)) })
	one("IsFinite", func(x *keras.Tensor) *keras.Tensor { return x.Div(x.Round()).IsFinite() })
	one("NotEqual", func(x *keras.Tensor) *keras.Tensor { return x.NotEqual(x.Round().MulScalar(2)) })
	one("bools", func(x *keras.Tensor) *keras.Tensor {
		a, b := x.GreaterScalar(0), x.LessScalar(1)
		return tensor.Concat(1, a.And(b), a.Or(b), a.Not(), a.Add(b), a.Sub(b), a.Mul(b), a.Maximum(b))
	})
	one("reductions", func(x *keras.Tensor) *keras.Tensor {
		return tensor.Concat(1, x.Sum(2), x.Mean(2), x.Prod(2), x.Max(2), x.Min(2), x.LogSoftmax(2).Mean(2))
	})
	one("arguments", func(x *keras.Tensor) *keras.Tensor { return tensor.Concat(1, x.ArgMax(2), x.ArgMin(1)) })
	one("TakeAlongAxis", func(x *keras.Tensor) *keras.Tensor { return x.TakeAlongAxis(x.ArgMax(2)) })
	one("slices", func(x *keras.Tensor) *keras.Tensor {
		return x.SliceAll([]int{0, 1, 0}, []int{x.Dim(0), 4, 5}, []int{1, 2, 3}).Pad([]int{0, 1, 0}, []int{0, 0, 2}, -1)
	})
	one("AllFinite", func(x *keras.Tensor) *keras.Tensor {
		return tensor.Where(x.AllFinite(), x, x.Sub(x.SumSquares()))
	})
	one("the size of the batch", func(x *keras.Tensor) *keras.Tensor {
		return x.Add(tensor.Iota(keras.Float32, x.Dim(0)).Reshape(-1, 1, 1)).Mul(tensor.Full(keras.Float32, 2, x.Shape()...))
	})
	add("integers", ints, func(x []*keras.Tensor) *keras.Tensor {
		two := tensor.Scalar(keras.Int32, 2)
		y := x[0].Sub(two)
		return tensor.Concat(1, y.Mul(y), y.Div(two), y.Mod(two), y.Abs(), y.Neg(), y.Maximum(x[0]), y.Square())
	})
	add("ScatterAdd", ints, func(x []*keras.Tensor) *keras.Tensor {
		return x[0].Cast(keras.Float32).Sum(0).ScatterAdd(tensor.New([]int32{2, 0, 2, 1}, 4), 3).BroadcastTo(x[0].Dim(0), 3)
	})
	return all
}

type functionCase struct {
	name string
	in   []string
	f    func(x []*keras.Tensor) *keras.Tensor
}
