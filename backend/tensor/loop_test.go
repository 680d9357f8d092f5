package tensor_test

import (
	"fmt"
	"testing"

	"github.com/mezzo-ml/mezzo/backend"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/backend/tensor/tensortest"
)

// recurrent is a step with a product, an output of its own and two states, of
// which one is an output too.
func recurrent(w T) func(x, states []T) (y, next []T) {
	return func(x, states []T) (y, next []T) {
		h := x[0].Add(states[0].MatMul(w)).Tanh()
		c := states[1].Mul(h.Sigmoid())
		return []T{h, c.Add(x[0].Sin())}, []T{h, c}
	}
}

// loops has each result of a loop by itself, in both directions.
func loops() []point {
	const steps, batch, units = 3, 2, 2
	shapes := [][]int{s(steps, batch, units), s(units, units), s(batch, units), s(batch, units)}
	var all []point
	for which := range 8 {
		all = append(all, at(-1, 1, func(x []T) T {
			y, last := tensor.Loop(x[:1], x[2:4], which%2 == 1, recurrent(x[1]))
			switch which / 2 {
			case 0:
				return y[0]
			case 1:
				return y[1].Sum(0).Add(last[1].MulScalar(2))
			case 2:
				return last[0]
			}
			return y[0].Mul(y[1]).Sum(0).Add(last[0]).Add(last[1])
		}, shapes...))
	}
	// No state; what is read at every step.
	return append(all, at(-1, 1, func(x []T) T {
		y, _ := tensor.Loop(x[:1], nil, false, func(e, _ []T) (y, next []T) { return []T{e[0].Mul(x[1]).Tanh()}, nil })
		return y[0]
	}, s(4, 3), s(3)))
}

// TestLoop: a loop gives what its steps give one by one, and so do its
// gradients, in every float type and for every number of steps.
func TestLoop(t *testing.T) {
	for _, d := range dtype.Floats() {
		for _, steps := range []int{1, 2, 5} {
			for _, reverse := range []bool{false, true} {
				random := func(seed uint64, shape ...int) T {
					return tensortest.Of(d, randoms(seed, tensor.Shape(shape).Size(), -1, 1), shape...).Tensor()
				}
				x, w := random(1, steps, 3, 4), random(2, 4, 4)
				first := []T{random(3, 3, 4), random(4, 3, 4)}
				run := func(loop bool) []T {
					var y, last []T
					if loop {
						y, last = tensor.Loop([]T{x}, first, reverse, recurrent(w))
					} else {
						y, last = stepByStep(x, first, reverse, recurrent(w))
					}
					loss := y[0].Mul(y[1]).Sum().Add(last[0].Sum()).Add(last[1].Sum())
					return append(append(y, last...), tensor.GradientsAt(loss, x, w, first[0], first[1])...)
				}
				got, want := run(true), run(false)
				for i := range got {
					w := tensortest.Of(got[i].DType(), values(t, want[i]), want[i].Shape()...)
					// Gradients are sums of up to 60 products of numbers below 2
					// here, which round at other places.
					tensortest.Close(t, fmt.Sprintf("%v, %d steps, result %d", d, steps, i), got[i], w, 16)
				}
			}
		}
	}
}

// TestLoopEager: the same where every operation is computed when it is recorded.
func TestLoopEager(t *testing.T) {
	debugging(t, backend.Debug{Eager: true})
	TestLoop(t)
}

// TestLoopErrors lists what a loop does not take.
func TestLoopErrors(t *testing.T) {
	x, state := f32(1, 2, 3), f32(1)
	step := func(y, next []T) func(x, states []T) ([]T, []T) {
		return func(x, states []T) ([]T, []T) { return y, next }
	}
	for _, c := range []struct {
		want      string
		sequences []T
		f         func(x, states []T) (y, next []T)
	}{
		{"Loop: got no sequences, want at least one", nil, step(nil, nil)},
		{"Loop: got a sequence float32[1], want 3 steps as in the first one", []T{x, state}, step(nil, nil)},
		{"Loop: got float32[? 2], want tensors of known shape", []T{tensor.Placeholder(dtype.Float32, -1, 2)}, step(nil, nil)},
		{"Loop: the step returned 0 states, want 1", []T{x}, step([]T{x}, nil)},
		{"Loop: state 0 becomes float32[3], want shape [1] as it was", []T{x}, step(nil, []T{x})},
		{"Loop: a step returned float32 and bool, want floats, or one type", []T{x}, step([]T{state, state.Equal(state)}, []T{state})},
	} {
		wantError(t, c.want, catch(func() { tensor.Loop(c.sequences, []T{state}, false, c.f) }), c.want)
	}
	v := scalar("v", 0)
	_, err := tensor.Function(func(x T) T {
		y, _ := tensor.Loop([]T{x}, nil, false, func(x, _ []T) (y, next []T) {
			v.Assign(x[0])
			return x, nil
		})
		return y[0]
	}, vars{v}).Call(ctx, x)
	wantError(t, "assigned", err, "Loop: the step assigns v what depends on the step; return it as a state")
}

func stepByStep(x T, states []T, reverse bool, f func(x, states []T) (y, next []T)) (y, last []T) {
	n := x.Dim(0)
	rows := make([][]T, 2)
	for k := range rows {
		rows[k] = make([]T, n)
	}
	for i := range n {
		if reverse {
			i = n - 1 - i
		}
		var out []T
		out, states = f([]T{x.Slice(0, i, i+1).Reshape(x.Shape()[1:]...)}, states)
		for k := range rows {
			rows[k][i] = out[k].ExpandDims(0)
		}
	}
	return []T{tensor.Concat(0, rows[0]...), tensor.Concat(0, rows[1]...)}, states
}

// TestLoopGraph: the graph of a loop and its gradient does not grow with the
// steps; what is kept does, by the states.
func TestLoopGraph(t *testing.T) {
	size := func(steps int) (values, bytes int) {
		f := tensor.Function(func(x T) T {
			w := tensor.Ones(dtype.Float32, 8, 8)
			state := tensor.Zeros(dtype.Float32, 4, 8)
			y, _ := tensor.Loop([]T{x}, []T{state, state}, false, recurrent(w))
			return tensor.Tuple(tensor.GradientsAt(y[0].Sum(), x, w)...)
		})
		g := must[*ir.Graph](t)(f.Plan(tensor.Placeholder(dtype.Float32, steps, 4, 8)))
		return len(g.Values), g.Memory().Arena
	}
	few, small := size(10)
	many, large := size(100)
	if few != many {
		t.Errorf("%d values for 10 steps, %d for 100, want as many", few, many)
	}
	if large > 11*small {
		t.Errorf("%d bytes for 10 steps, %d for 100, want ten times as much", small, large)
	}
}
