package tensor_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/op"
	"github.com/mezzo-ml/mezzo/backend/tensor"
)

// point is where a gradient is checked: float64 arguments with elements
// between lo and hi, and what is computed from them.
type point struct {
	lo, hi float64
	shapes [][]int
	f      func(x []T) T
}

func at(lo, hi float64, f func(x []T) T, shapes ...[]int) point { return point{lo, hi, shapes, f} }

func s(d ...int) []int { return d }

// unary checks f where all is smooth for elements between lo and hi.
func unary(lo, hi float64, f func(x T) T) []point {
	return []point{at(lo, hi, func(x []T) T { return f(x[0]) }, s(2, 3))}
}

// binary checks f with arguments of equal shape, and broadcast either way.
func binary(lo, hi float64, f func(x, y T) T) []point {
	g := func(x []T) T { return f(x[0], x[1]) }
	return []point{
		at(lo, hi, g, s(2, 3), s(2, 3)),
		at(lo, hi, g, s(2, 3), s(3)),
		at(lo, hi, g, s(3, 1), s(2, 1, 4)),
		at(lo, hi, g, s(), s(2, 2)),
		at(lo, hi, func(x []T) T { return f(x[0], x[0]) }, s(3)),
	}
}

// reduction checks f over the last axis, the first and all axes.
func reduction(f func(x T, axes ...int) T) []point {
	var all []point
	for _, axes := range [][]int{{-1}, {0}, {0, 2}, nil} {
		all = append(all, at(0.5, 2, func(x []T) T { return f(x[0], axes...) }, s(2, 3, 2)))
	}
	return append(all, at(0.5, 2, func(x []T) T { return f(x[0]) }, s()))
}

func indices(n ...int32) T { return tensor.New(n, len(n)) }

func matmuls() []point {
	var all []point
	for _, ta := range []bool{false, true} {
		for _, tb := range []bool{false, true} {
			for _, batch := range [][2][]int{{nil, nil}, {s(2), s(2)}, {s(2, 1), s(3)}, {nil, s(2)}, {s(3), nil}} {
				x, y := s(2, 4), s(4, 3)
				if ta {
					x = s(4, 2)
				}
				if tb {
					y = s(3, 4)
				}
				f := func(x []T) T { return x[0].MatMulT(x[1], ta, tb) }
				all = append(all, at(-1, 1, f, append(s(batch[0]...), x...), append(s(batch[1]...), y...)))
			}
		}
	}
	return append(all, at(-1, 1, func(x []T) T { return x[0].MatMul(x[0]) }, s(3, 3)))
}

// points has a case for each operation with a gradient.
func points() map[op.Code][]point {
	mask := tensor.New([]bool{true, false, true}, 3)
	x0 := func(f func(x T) T, shape ...int) []point {
		return []point{at(-1, 1, func(x []T) T { return f(x[0]) }, shape)}
	}
	return map[op.Code][]point{
		op.Identity:   unary(-1, 1, func(x T) T { return tensor.Record(op.Identity, op.Attr{}, x) }),
		op.Cast:       unary(-1, 1, func(x T) T { return tensor.Record(op.Cast, op.Attr{DType: dtype.Float64}, x) }),
		op.Neg:        unary(-1, 1, T.Neg),
		op.Abs:        append(unary(0.1, 1, T.Abs), unary(-1, -0.1, T.Abs)...),
		op.Exp:        unary(-1, 1, T.Exp),
		op.Expm1:      unary(-1, 1, T.Expm1),
		op.Log:        unary(0.3, 2, T.Log),
		op.Log1p:      unary(-0.5, 2, T.Log1p),
		op.Sqrt:       unary(0.3, 2, T.Sqrt),
		op.Rsqrt:      unary(0.3, 2, T.Rsqrt),
		op.Reciprocal: unary(0.3, 2, T.Reciprocal),
		op.Square:     unary(-1, 1, T.Square),
		op.Sin:        unary(-3, 3, T.Sin),
		op.Cos:        unary(-3, 3, T.Cos),
		op.Tanh:       unary(-2, 2, T.Tanh),
		op.Sigmoid:    unary(-2, 2, T.Sigmoid),
		op.Relu:       append(unary(0.1, 1, T.Relu), unary(-1, -0.1, T.Relu)...),
		op.Erf:        unary(-2, 2, T.Erf),
		op.NormalCDF:  unary(-3, 3, tensor.NormalCDF),
		op.NormalPDF:  unary(-3, 3, tensor.NormalPDF),
		op.Add:        binary(-1, 1, T.Add),
		op.Sub:        binary(-1, 1, T.Sub),
		op.Mul:        binary(-1, 1, T.Mul),
		op.Div:        binary(0.5, 2, T.Div),
		// Between 2·0.6 and 3·0.6 the floor of the quotient does not jump.
		op.Mod:     unary(1.41, 1.49, func(x T) T { return x.Mod(x.MulScalar(0).AddScalar(0.6)) }),
		op.Pow:     binary(0.5, 2, T.Pow),
		op.Maximum: binary(-1, 1, T.Maximum),
		op.Minimum: binary(-1, 1, T.Minimum),
		op.Where: {
			at(-1, 1, func(x []T) T { return tensor.Where(mask, x[0], x[1]) }, s(2, 3), s(2, 3)),
			at(-1, 1, func(x []T) T { return tensor.Where(mask, x[0], x[1]) }, s(), s(2, 1)),
		},
		op.Sum:        append(reduction(T.Sum), reduction(T.SumKeep)...),
		op.Mean:       append(reduction(T.Mean), reduction(T.MeanKeep)...),
		op.Prod:       reduction(T.Prod),
		op.Max:        append(reduction(T.Max), reduction(T.MaxKeep)...),
		op.Min:        reduction(T.Min),
		op.SumSquares: unary(-1, 1, T.SumSquares),
		op.MatMul:     matmuls(),

		op.Conv:            convs(op.Conv),
		op.ConvInputGrad:   convs(op.ConvInputGrad),
		op.ConvKernelGrad:  convs(op.ConvKernelGrad),
		op.MaxPool:         pools(op.MaxPool),
		op.MaxPoolGrad:     pools(op.MaxPoolGrad),
		op.MaxPoolGradGrad: pools(op.MaxPoolGradGrad),
		op.AvgPool:         pools(op.AvgPool),
		op.AvgPoolGrad:     pools(op.AvgPoolGrad),

		op.RNN:    scans(),
		op.Loop:   loops(),
		op.Result: x0(func(x T) T { return tensor.Record(op.Result, op.Attr{Start: []int{2}, Dims: s(2, 2)}, x) }, 7),

		op.Softmax:          append(unary(-1, 1, func(x T) T { return x.Softmax(-1) }), unary(-1, 1, func(x T) T { return x.Softmax(0) })...),
		op.SoftmaxGrad:      {at(-1, 1, func(x []T) T { return tensor.Record(op.SoftmaxGrad, op.Attr{Axes: s(1)}, x...) }, s(2, 3), s(2, 3))},
		op.LogSoftmax:       append(unary(-1, 1, func(x T) T { return x.LogSoftmax(-1) }), unary(-1, 1, func(x T) T { return x.LogSoftmax(0) })...),
		op.LayerNorm:        normalizations(op.LayerNorm),
		op.LayerNormGrad:    normalizations(op.LayerNormGrad),
		op.Moments:          {at(-1, 1, func(x []T) T { return tensor.Record(op.Moments, op.Attr{}, x...) }, s(2, 3, 4))},
		op.BatchNormReduce:  {at(-1, 1, func(x []T) T { return tensor.Record(op.BatchNormReduce, op.Attr{}, x...) }, s(2, 3, 4), s(2, 4), s(2, 3, 4))},
		op.BatchNorm:        columnNormalizations(),
		op.Attention:        attentions(),
		op.AttentionForward: attentionParts(op.AttentionForward),
		op.AttentionGrad:    attentionParts(op.AttentionGrad),
		op.Reshape:          x0(func(x T) T { return x.Reshape(3, -1) }, 2, 3),
		op.Barrier:          x0(func(x T) T { return tensor.Record(op.Barrier, op.Attr{}, x, f32(1, 2)) }, 2, 3),
		op.Transpose: append(x0(func(x T) T { return x.Transpose(2, 0, 1) }, 2, 3, 4),
			x0(func(x T) T { return x.Transpose() }, 2, 3)...),
		op.BroadcastTo: append(x0(func(x T) T { return x.BroadcastTo(4, 2, 3) }, 2, 1), x0(func(x T) T { return x.BroadcastTo(2) })...),
		op.Concat: {
			at(-1, 1, func(x []T) T { return tensor.Concat(1, x[0], x[1], x[0]) }, s(2, 3), s(2, 1)),
			at(-1, 1, func(x []T) T { return tensor.Concat(-2, x...) }, s(2, 3), s(0, 3), s(1, 3)),
		},
		op.Slice: append(append(x0(func(x T) T { return x.Slice(-1, 1, 3) }, 2, 4),
			x0(func(x T) T { return x.SliceAll(s(1, 0), s(7, 3), s(3, 2)) }, 8, 4)...),
			x0(func(x T) T { return x.SliceAll(s(2, 1), s(2, 4), s(2, 2)) }, 8, 4)...),
		op.Pad: x0(func(x T) T { return x.Pad(s(1, 0), s(2, 3), 0.5) }, 2, 3),
		op.Gather: append(x0(func(x T) T { return x.Gather(indices(2, 0, 2, 2)) }, 3, 2),
			x0(func(x T) T { return x.Gather(tensor.New([]int64{1, 1, 0, 1}, 2, 2)) }, 3)...),
		op.ScatterAdd:       x0(func(x T) T { return x.ScatterAdd(indices(4, 1, 1), 5) }, 3, 2),
		op.TakeAlongAxis:    x0(func(x T) T { return x.TakeAlongAxis(indices(2, 0)) }, 2, 3),
		op.ScatterAlongAxis: x0(func(x T) T { return x.ScatterAlongAxis(indices(2, 0), 3) }, 2),
	}
}

// TestEveryGradient compares the gradient of every operation that has one with
// central differences in float64, along a random direction per argument. Unary
// operations with a formula need no case: they are taken between -2 and 2, so one
// with a kink there does.
func TestEveryGradient(t *testing.T) {
	cases := points()
	for _, c := range op.Codes() {
		if !c.Info().Grad {
			if cases[c] != nil {
				t.Errorf("%v has a case but no gradient", c)
			}
			continue
		}
		if s := c.Info().Scalar; cases[c] == nil && s != nil && c.Info().Args == 1 {
			lo := -2.0
			if s.Positive {
				lo = 0.3
			}
			cases[c] = unary(lo, 2, func(x T) T { return tensor.Record(c, op.Attr{}, x) })
		}
		if cases[c] == nil {
			t.Errorf("%v has a gradient but no case here", c)
		}
		for i, p := range cases[c] {
			t.Run(fmt.Sprintf("%v/%d", c, i), func(t *testing.T) { checkPoint(t, c, p) })
		}
	}
}

func checkPoint(t *testing.T, c op.Code, p point) {
	x := make([][]float64, len(p.shapes))
	for i, shape := range p.shapes {
		x[i] = randoms(uint64(17*i+1), tensor.Shape(shape).Size(), p.lo, p.hi)
	}
	record := func() ([]T, T) {
		xs := make([]T, len(x))
		for i := range x {
			xs[i] = tensor.New(x[i], p.shapes[i]...)
		}
		y := p.f(xs)
		if !has(y, c) {
			t.Fatalf("the case is one of %v", tensor.OpOf(y))
		}
		r := tensor.New(randoms(99, y.Shape().Size(), -1, 1), y.Shape()...)
		return xs, y.Mul(r).Sum()
	}
	xs, loss := record()
	grads := tensor.GradientsAt(loss, xs...)
	// The error of a central difference is h²/6 times the third derivative and
	// ε/h times the value: about 1e-10 each for h = 1e-5 and functions of
	// magnitude 1. 1e-7 leaves room for tens of elements of magnitude 10; a
	// wrong rule is off by far more.
	const h = 1e-5
	for i, g := range grads {
		if g == nil {
			t.Fatalf("argument %d has no gradient", i)
		}
		if !g.Type().Equal(xs[i].Type()) {
			t.Fatalf("the gradient of argument %d is %v, want %v", i, g.Type(), xs[i].Type())
		}
		d := randoms(uint64(7*i+5), len(x[i]), -1, 1)
		got := 0.0
		for j, v := range values(t, g) {
			got += v * d[j]
		}
		shifted := func(h float64) float64 {
			for j := range d {
				x[i][j] += h * d[j]
			}
			_, loss := record()
			for j := range d {
				x[i][j] -= h * d[j]
			}
			return must[float64](t)(loss.Item())
		}
		want := (shifted(h) - shifted(-h)) / (2 * h)
		if math.Abs(got-want) > 1e-7*(1+math.Abs(want)) {
			t.Errorf("argument %d: got %v along a random direction, want %v", i, got, want)
		}
	}
}

// gradient is that of the sum of f(x).
func gradient(f func(x T) T, x T) T { return tensor.GradientsAt(f(x).Sum(), x)[0] }

// TestGradientsAtCorners has the places where differences cannot tell.
func TestGradientsAtCorners(t *testing.T) {
	x := f32(3, 1, 3, 2)
	want(t, "Max of a tie", gradient(func(x T) T { return x.Max() }, x), 0.5, 0, 0.5, 0)
	want(t, "Min", gradient(func(x T) T { return x.Min() }, x), 0, 1, 0, 0)
	y := f32(3, 2, 1, 2)
	g := tensor.GradientsAt(x.Maximum(y).Sum(), x, y)
	want(t, "Maximum of a tie, left", g[0], 1, 0, 1, 1)
	want(t, "Maximum of a tie, right", g[1], 0, 1, 0, 0)
	g = tensor.GradientsAt(x.Minimum(y).Sum(), x, y)
	want(t, "Minimum of a tie, left", g[0], 1, 1, 0, 1)
	want(t, "Minimum of a tie, right", g[1], 0, 0, 1, 0)
	// tf.clip_by_value's: limits pass the gradient, NaN does not.
	for _, d := range []dtype.DType{dtype.Float64, dtype.Float32, dtype.BFloat16, dtype.Float16} {
		z := f32(-2, -1, 0, 1, 2, float32(math.NaN())).Cast(d)
		want(t, "Clip", gradient(func(x T) T { return x.Clip(-1, 1) }, z), 0, 1, 1, 1, 0, 0)
	}
	want(t, "Relu", gradient(T.Relu, f32(-1, 0, 1)), 0, 0, 1)
	want(t, "Abs", gradient(T.Abs, f32(-1, 0, 1)), -1, 0, 1)
	want(t, "Gather of one row three times", gradient(func(x T) T { return x.Gather(indices(1, 1, 1)) }, f32(5, 6)), 0, 3)

	base, exponent := f32(0, 0, 0, -2), f32(0, 1, 2, 3)
	g = tensor.GradientsAt(base.Pow(exponent).Sum(), base, exponent)
	want(t, "Pow by the base", g[0], 0, 1, 0, 12)
	want(t, "Pow by the exponent", g[1], 0, 0, 0, 0)

	want(t, "Prod without 0", gradient(func(x T) T { return x.Prod() }, f32(2, 3, 4)), 12, 8, 6)
	want(t, "Prod with a 0", gradient(func(x T) T { return x.Prod() }, f32(2, 0, 4)), 0, 8, 0)
	want(t, "Prod with two", gradient(func(x T) T { return x.Prod() }, f32(0, 0, 4)), 0, 0, 0)
	g = tensor.GradientsAt(f32(7).Mod(y).Sum(), y)
	want(t, "Mod by the divisor", g[0], -2, -3, -7, -3)

	want(t, "an empty sum", gradient(func(x T) T { return x.Sum() }, f32()))
}

// TestMeanOfMany: float16 holds neither 2049 nor 70000, yet the gradient of a
// mean is 1/n rounded once.
func TestMeanOfMany(t *testing.T) {
	for _, n := range []int{2049, 70000} {
		x := tensor.New(make([]float32, n), n).Cast(dtype.Float16)
		g := values(t, gradient(func(x T) T { return x.Mean() }, x))
		if w := float64(dtype.Float16.Round(1 / float32(n))); g[0] != w || g[n-1] != w {
			t.Errorf("n = %d: got %v, want %v", n, g[0], w)
		}
	}
}

func TestGradientsOfVariables(t *testing.T) {
	a, b, c := variable("a", dtype.Float32, 1, 2), variable("b", dtype.Float32, 3, 4), variable("c", dtype.Float32, 5, 6)
	y := a.Value().Mul(b.Value()).Add(a.Value()) // a twice
	loss := y.Mul(b.Value().StopGradient()).Sum()
	g := tensor.Gradients(loss, []V{a, b, c})
	want(t, "a", g[0], 12, 20) // (b+1)·b
	want(t, "b", g[1], 3, 8)   // a·b, one of the two factors
	if g[2] != nil {
		t.Errorf("loss does not depend on c, got gradient %v", g[2].Type())
	}
	// Conversions to integers and comparisons carry no gradient.
	steps := a.Value().Floor().Add(a.Value().Greater(b.Value()).Cast(dtype.Float32)).Sum()
	if g := tensor.Gradients(steps, []V{a}); g[0] != nil {
		t.Errorf("got a gradient through Floor and Greater: %v", g[0].Type())
	}
	if g := tensor.GradientsAt(a.Value().Cast(dtype.Int32).Cast(dtype.Float32).Sum(), a.Value()); g[0] != nil {
		t.Errorf("got a gradient through int32: %v", g[0].Type())
	}
	// A gradient can be differentiated again.
	x := f32(2, 3)
	first := gradient(func(x T) T { return x.Square().Mul(x) }, x)
	want(t, "second derivative of x³", tensor.GradientsAt(first.Sum(), x)[0], 12, 18)
}

func TestGradientsErrors(t *testing.T) {
	v := variable("v", dtype.Float32, 1, 2)
	wantError(t, "not a scalar", catch(func() { tensor.Gradients(v.Value(), []V{v}) }),
		"Gradients: the loss is float32[2], want a float scalar")
	wantError(t, "not a float", catch(func() { tensor.Gradients(v.Value().Cast(dtype.Int32).Sum(), []V{v}) }),
		"Gradients: the loss is int32[], want a float scalar")
	wantError(t, "broken", catch(func() { tensor.Gradients(tensor.Broken(fmt.Errorf("no")), []V{v}) }), "Gradients: no")
}

// TestGradientPaths: what a gradient records is named after the layer.
func TestGradientPaths(t *testing.T) {
	v := variable("v", dtype.Float32, 1, 2)
	since := tensor.SequencePoint()
	y := v.Value().Exp()
	tensor.Label("dense", since, y)
	g := tensor.Gradients(y.Sum(), []V{v})
	if y.Path() != "dense" || g[0].Path() != "dense/grad" {
		t.Errorf("got paths %q and %q", y.Path(), g[0].Path())
	}
}
