// Package regularizers computes penalties on weights, by Keras name:
// "l2(0.0001)".
//
// The main type is [Regularizer], the main function [Get].
//
// Rules: a penalty is a float32 scalar whatever the type of the weight. It is
// computed in float32 from 16-bit weights and in float64 from float64 ones,
// and so is its gradient.
package regularizers

import (
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/layers/callspec"
)

// Regularizer returns the penalty on w: a float32 scalar that is added to the
// loss.
type Regularizer func(w *tensor.Tensor) *tensor.Tensor

// Get returns the regularizer of a Keras name, with its arguments if any, or
// nil for "":
//
//	l1(l1=0.01)                    l1·Σ|w|
//	l2(l2=0.01)                    l2·Σw², without ½
//	l1l2(l1=0, l2=0), l1_l2        both; nothing without arguments
//	orthogonal_regularizer(factor=0.01, mode=rows)
//
// orthogonal_regularizer takes matrices: factor/2 times the mean of |cosine|
// between different rows (or columns), as far as these are not 0.
func Get(text string) (Regularizer, error) {
	if text == "" {
		return nil, nil
	}
	return table.Get(text)
}

// Names lists what Get knows, sorted; aliases too.
func Names() []string { return table.Names() }

var table = callspec.Table[Regularizer]{Kind: "regularizer", Make: map[string]func(callspec.Spec) (Regularizer, error){
	"l1": func(s callspec.Spec) (Regularizer, error) {
		l1 := 0.01
		return norms(&l1, new(float64), s, "l1")
	},
	"l2": func(s callspec.Spec) (Regularizer, error) {
		l2 := 0.01
		return norms(new(float64), &l2, s, "l2")
	},
	"l1l2":                   both,
	"l1_l2":                  both,
	"orthogonal_regularizer": orthogonal,
}}

func both(s callspec.Spec) (Regularizer, error) {
	return norms(new(float64), new(float64), s, "l1", "l2")
}

// norms is l1·Σ|w| + l2·Σw², with the factors of the given names bound.
func norms(l1, l2 *float64, s callspec.Spec, names ...string) (Regularizer, error) {
	factors := map[string]*float64{"l1": l1, "l2": l2}
	var params []callspec.Param
	for _, n := range names {
		params = append(params, callspec.Optional(n, factors[n]))
	}
	if err := s.Bind(params...); err != nil {
		return nil, err
	}
	for _, n := range names {
		if err := s.NotNegative(n, *factors[n]); err != nil {
			return nil, err
		}
	}
	return func(w *tensor.Tensor) *tensor.Tensor {
		var sum *tensor.Tensor
		if *l1 != 0 {
			sum = accumulated(w).Abs().Sum().MulScalar(*l1)
		}
		if *l2 != 0 {
			squares := w.SumSquares().MulScalar(*l2)
			if sum != nil {
				squares = sum.Add(squares)
			}
			sum = squares
		}
		if sum == nil {
			return tensor.Zeros(dtype.Float32)
		}
		return sum.Cast(dtype.Float32)
	}, nil
}

// accumulated returns w in the type that sums over it are taken in.
func accumulated(w *tensor.Tensor) *tensor.Tensor { return w.Cast(w.DType().Accumulator()) }

func orthogonal(s callspec.Spec) (Regularizer, error) {
	factor, mode := 0.01, "rows"
	if err := s.Bind(callspec.Optional("factor", &factor), callspec.Optional("mode", &mode)); err != nil {
		return nil, err
	}
	if err := s.NotNegative("factor", factor); err != nil {
		return nil, err
	}
	if err := s.OneOf("mode", mode, "rows", "columns"); err != nil {
		return nil, err
	}
	return func(w *tensor.Tensor) *tensor.Tensor {
		if w.Rank() != 2 {
			tensor.Fail("orthogonal_regularizer", "got a weight of shape %v, want a matrix", w.Shape())
		}
		w = accumulated(w)
		axis := 1 // summed over
		if mode == "columns" {
			axis = 0
		}
		n := w.Dim(1 - axis)
		if n < 2 {
			return tensor.Zeros(dtype.Float32) // no pairs
		}
		square := w.Square().SumKeep(axis)
		// A vector of zeros has no direction: it counts as orthogonal to all,
		// and a 1 in its place keeps 0/0 out of the gradient.
		one := tensor.Scalar(w.DType(), 1)
		unit := w.Mul(tensor.Where(square.GreaterScalar(0), square, one).Rsqrt())
		gram := unit.MatMulT(unit, mode == "columns", mode == "rows")
		column := tensor.Iota(dtype.Int32, n, n)
		diagonal := column.Equal(column.Transpose())
		off := tensor.Where(diagonal, tensor.Zeros(w.DType()), gram)
		pairs := float64(n) * float64(n-1) / 2
		return off.Abs().Sum().MulScalar(factor * 0.5 / pairs).Cast(dtype.Float32)
	}, nil
}
