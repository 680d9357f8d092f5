// Package constraints projects weights after each update, by Keras name:
// "max_norm(3)".
//
// The main type is [Constraint], the main function [Get].
//
// Rules: the result has the type and shape of the weight. Norms are Euclidean,
// over the axes given, with Keras's epsilon of 1e-7 in divisions; they are
// computed in float32 for 16-bit weights.
package constraints

import (
	"fmt"

	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/layers/callspec"
)

// Constraint returns the weight nearest to w, or near it, that it allows.
type Constraint = func(w *tensor.Tensor) *tensor.Tensor

// epsilon is keras.config.epsilon().
const epsilon = 1e-7

// Get returns the constraint of a Keras name, with its arguments if any, or
// nil for "":
//
//	max_norm(max_value=2, axis=0)
//	unit_norm(axis=0)
//	min_max_norm(min_value=0, max_value=1, rate=1, axis=0)
//	non_neg
//
// axis is the axis, or the list of axes, that one norm is taken over: 0 for a
// dense layer's kernel, [0, 1, 2] for the filters of a Conv2D. min_max_norm
// moves norms by rate, 0 to 1, of the way into range.
func Get(text string) (Constraint, error) {
	if text == "" {
		return nil, nil
	}
	return table.Get(text)
}

// Names lists what Get knows, sorted; aliases too.
func Names() []string { return table.Names() }

var table = callspec.Table[Constraint]{Kind: "constraint", Make: map[string]func(callspec.Spec) (Constraint, error){
	"max_norm":     maxNorm,
	"unit_norm":    unitNorm,
	"min_max_norm": minMaxNorm,
	"non_neg":      nonNeg,
}}

// rescaled returns w with its norms over axes changed to what f makes of them.
func rescaled(w *tensor.Tensor, axes []int, f func(norm *tensor.Tensor) *tensor.Tensor) *tensor.Tensor {
	v := w.Cast(w.DType().Accumulator())
	norm := v.Square().SumKeep(axes...).Sqrt()
	return v.Mul(f(norm).Div(norm.AddScalar(epsilon))).Cast(w.DType())
}

func maxNorm(s callspec.Spec) (Constraint, error) {
	limit, axes := 2.0, []int{0}
	if err := s.Bind(callspec.Optional("max_value", &limit), callspec.Optional("axis", &axes)); err != nil {
		return nil, err
	}
	if err := s.NotNegative("max_value", limit); err != nil {
		return nil, err
	}
	return func(w *tensor.Tensor) *tensor.Tensor {
		return rescaled(w, axes, func(norm *tensor.Tensor) *tensor.Tensor { return norm.MinimumScalar(limit) })
	}, nil
}

func unitNorm(s callspec.Spec) (Constraint, error) {
	axes := []int{0}
	if err := s.Bind(callspec.Optional("axis", &axes)); err != nil {
		return nil, err
	}
	return func(w *tensor.Tensor) *tensor.Tensor {
		return rescaled(w, axes, func(norm *tensor.Tensor) *tensor.Tensor { return tensor.Ones(norm.DType()) })
	}, nil
}

func minMaxNorm(s callspec.Spec) (Constraint, error) {
	low, high, rate, axes := 0.0, 1.0, 1.0, []int{0}
	if err := s.Bind(callspec.Optional("min_value", &low), callspec.Optional("max_value", &high),
		callspec.Optional("rate", &rate), callspec.Optional("axis", &axes)); err != nil {
		return nil, err
	}
	if err := s.NotNegative("min_value", low); err != nil {
		return nil, err
	}
	if low > high {
		return nil, s.Reject("min_value", low, fmt.Sprintf("at most max_value, %v", high))
	}
	if rate < 0 || rate > 1 {
		return nil, s.Reject("rate", rate, "0 to 1")
	}
	return func(w *tensor.Tensor) *tensor.Tensor {
		return rescaled(w, axes, func(norm *tensor.Tensor) *tensor.Tensor {
			return norm.Clip(low, high).MulScalar(rate).Add(norm.MulScalar(1 - rate))
		})
	}, nil
}

func nonNeg(s callspec.Spec) (Constraint, error) {
	return (*tensor.Tensor).Relu, s.Bind()
}
