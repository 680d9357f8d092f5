// Package activations holds Keras's activation functions: as Go functions, and
// by name as layers are given them, "relu" or "leaky_relu(negative_slope=0.1)".
//
// The main type is [Func], the main function [Get].
//
// Rules:
//   - The result has the element type of the argument. Functions of several
//     operations compute in float32 for 16-bit arguments and round once at
//     the end; the others are one operation, which does so by itself.
//   - Formulas and their gradients stay finite for every finite argument up to
//     1e18 in magnitude.
//   - Where a function has a kink its gradient is that of Keras on TensorFlow.
package activations

import (
	"math"

	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/layers/callspec"
)

// Func is an activation function. But for softmax and its kin, and glu, it
// works element by element.
type Func func(x *tensor.Tensor) *tensor.Tensor

// Get returns the activation of a Keras name, with its arguments if any; "" is
// linear:
//
//	linear  relu(negative_slope=0, max_value=None, threshold=0)  relu6
//	leaky_relu(negative_slope=0.2)  elu(alpha=1)  selu  celu(alpha=1)
//	gelu(approximate=False)  silu, swish  mish  glu(axis=-1)
//	sigmoid  hard_sigmoid  log_sigmoid  sparse_sigmoid
//	hard_silu, hard_swish  tanh  hard_tanh  tanh_shrink
//	softmax(axis=-1)  log_softmax(axis=-1)  sparsemax(axis=-1)
//	softplus  squareplus(b=4)  sparse_plus  softsign  exponential
//	hard_shrink(threshold=0.5)  soft_shrink(threshold=0.5)
//	threshold(threshold, default_value)
//
// The formulas are those of the functions of this package.
func Get(text string) (Func, error) {
	if text == "" {
		return Linear, nil
	}
	return table.Get(text)
}

// Names lists what Get knows, sorted; aliases too.
func Names() []string { return table.Names() }

var table = callspec.Table[Func]{Kind: "activation", Make: map[string]func(callspec.Spec) (Func, error){
	"linear":         plain(Linear),
	"relu":           relu,
	"relu6":          plain(Relu6),
	"leaky_relu":     number(LeakyRelu, "negative_slope", 0.2),
	"elu":            number(Elu, "alpha", 1),
	"selu":           plain(Selu),
	"celu":           celu,
	"gelu":           gelu,
	"silu":           plain(Silu),
	"swish":          plain(Silu),
	"mish":           plain(Mish),
	"glu":            along(Glu),
	"sigmoid":        plain(Sigmoid),
	"hard_sigmoid":   plain(HardSigmoid),
	"log_sigmoid":    plain(LogSigmoid),
	"sparse_sigmoid": plain(SparseSigmoid),
	"hard_silu":      plain(HardSilu),
	"hard_swish":     plain(HardSilu),
	"tanh":           plain(Tanh),
	"hard_tanh":      plain(HardTanh),
	"tanh_shrink":    plain(TanhShrink),
	"softmax":        along(Softmax),
	"log_softmax":    along(LogSoftmax),
	"sparsemax":      along(Sparsemax),
	"softplus":       plain(Softplus),
	"squareplus":     squareplus,
	"sparse_plus":    plain(SparsePlus),
	"softsign":       plain(Softsign),
	"exponential":    plain(Exponential),
	"hard_shrink":    number(HardShrink, "threshold", 0.5),
	"soft_shrink":    number(SoftShrink, "threshold", 0.5),
	"threshold":      threshold,
}}

// plain is an activation without parameters.
func plain(f Func) func(callspec.Spec) (Func, error) {
	return func(s callspec.Spec) (Func, error) { return f, s.Bind() }
}

// number is an activation with one number for a parameter.
func number(f func(*tensor.Tensor, float64) *tensor.Tensor, name string, byDefault float64) func(callspec.Spec) (Func, error) {
	return func(s callspec.Spec) (Func, error) {
		v := byDefault
		err := s.Bind(callspec.Optional(name, &v))
		return func(x *tensor.Tensor) *tensor.Tensor { return f(x, v) }, err
	}
}

// along is an activation along an axis.
func along(f func(*tensor.Tensor, int) *tensor.Tensor) func(callspec.Spec) (Func, error) {
	return func(s callspec.Spec) (Func, error) {
		axis := -1
		err := s.Bind(callspec.Optional("axis", &axis))
		return func(x *tensor.Tensor) *tensor.Tensor { return f(x, axis) }, err
	}
}

func relu(s callspec.Spec) (Func, error) {
	slope, threshold := 0.0, 0.0
	var limit *float64
	err := s.Bind(callspec.Optional("negative_slope", &slope), callspec.Optional("max_value", &limit), callspec.Optional("threshold", &threshold))
	if err != nil {
		return nil, err
	}
	most := math.Inf(1)
	if limit != nil {
		most = *limit
		if err := s.NotNegative("max_value", most); err != nil {
			return nil, err
		}
	}
	return func(x *tensor.Tensor) *tensor.Tensor { return ReluWith(x, slope, most, threshold) }, s.NotNegative("negative_slope", slope)
}

func celu(s callspec.Spec) (Func, error) {
	alpha := 1.0
	if err := s.Bind(callspec.Optional("alpha", &alpha)); err != nil {
		return nil, err
	}
	if alpha == 0 {
		return nil, s.Reject("alpha", alpha, "a number other than 0")
	}
	return func(x *tensor.Tensor) *tensor.Tensor { return Celu(x, alpha) }, nil
}

func gelu(s callspec.Spec) (Func, error) {
	approximate := false
	err := s.Bind(callspec.Optional("approximate", &approximate))
	return func(x *tensor.Tensor) *tensor.Tensor { return Gelu(x, approximate) }, err
}

func squareplus(s callspec.Spec) (Func, error) {
	b := 4.0
	if err := s.Bind(callspec.Optional("b", &b)); err != nil {
		return nil, err
	}
	if b <= 0 {
		return nil, s.Reject("b", b, "more than 0")
	}
	return func(x *tensor.Tensor) *tensor.Tensor { return Squareplus(x, b) }, nil
}

func threshold(s callspec.Spec) (Func, error) {
	var at, otherwise float64
	err := s.Bind(callspec.Required("threshold", &at), callspec.Required("default_value", &otherwise))
	return func(x *tensor.Tensor) *tensor.Tensor { return Threshold(x, at, otherwise) }, err
}
