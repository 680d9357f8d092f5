package tensor_test

import (
	"github.com/mezzo-ml/mezzo/backend/op"
	"github.com/mezzo-ml/mezzo/backend/tensor"
)

// scans has each cell, in both directions, with and without a mask, each of the
// results by itself, and products with the input, whose gradient is wanted or
// not.
func scans() []point {
	const steps, batch, units, features = 3, 2, 2, 3
	input := make([]float32, steps*batch*features)
	for i := range input {
		input[i] = float32(i*7%11)/11 - 0.4
	}
	mask := tensor.New([]bool{true, true, false, true, true, false}, steps, batch)
	var all []point
	for _, cell := range []op.Cell{op.TanhCell, op.ReluCell, op.LSTMCell, op.GRUCell, op.GRUBeforeCell} {
		for which := range 6 {
			f := func(x []T) T {
				o := tensor.RNNOptions{Cell: cell, Reverse: which%2 == 1, H: x[2]}
				if cell.HasState() {
					o.C = x[3]
				}
				if cell.HasBias() {
					o.Bias = x[3].Slice(0, 0, 1).Reshape(units)
				}
				if which > 1 {
					o.Mask = mask
				}
				z := x[0]
				if which > 3 {
					o.Kernel, o.Input = x[len(x)-2], x[len(x)-1]
				}
				if which == 4 {
					z = tensor.New(input, steps, batch, features).Cast(z.DType())
				}
				r := tensor.RNN(z, x[1], o)
				switch {
				case which == 0:
					return r.Outputs
				case which == 1:
					return r.Last
				case which == 2 && r.State != nil:
					return r.State
				case which == 4: // which x[0] has a part in
					return r.Outputs.Sum(0).Add(x[0].Slice(2, 0, units).Sum(0))
				}
				y := r.Outputs.Sum(0).Add(r.Last.MulScalar(3))
				if r.State != nil {
					y = y.Add(r.State.MulScalar(-2))
				}
				return y
			}
			lo, hi := -1.0, 1.0
			if cell == op.ReluCell { // away from the kink
				lo, hi = 0.1, 1
			}
			g := cell.Gates() * units
			shapes := [][]int{s(steps, batch, g), s(units, g), s(batch, units)}
			if cell.HasState() || cell.HasBias() {
				shapes = append(shapes, s(batch, units))
			}
			if which > 3 {
				shapes[0] = s(steps, batch, features)
				shapes = append(shapes, s(features, g), s(g))
			}
			all = append(all, at(lo, hi, f, shapes...))
		}
	}
	return all
}
