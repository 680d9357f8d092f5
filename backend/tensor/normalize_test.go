package tensor_test

import (
	"github.com/mezzo-ml/mezzo/backend/op"
	"github.com/mezzo-ml/mezzo/backend/tensor"
)

// normalizations are points of LayerNorm or of its gradient.
func normalizations(c op.Code) []point {
	var all []point
	for _, uncentered := range []bool{false, true} {
		a := op.Attr{Epsilon: 0.1, Uncentered: uncentered}
		third := s(4)
		if c == op.LayerNormGrad {
			third = s(3, 4)
		}
		all = append(all, at(-1, 1, func(x []T) T { return tensor.Record(c, a, x...) }, s(3, 4), s(4), third))
	}
	return all
}

// columnNormalizations are points of BatchNorm: each column, groups of
// them, and all together.
func columnNormalizations() []point {
	var all []point
	for _, groups := range []int{0, 2, 1} {
		a := op.Attr{Epsilon: 0.1, Groups: groups}
		all = append(all, at(-1, 1, func(x []T) T { return tensor.Record(op.BatchNorm, a, x...) }, s(2, 3, 4), s(4), s(4)))
	}
	return all
}
