package tensor_test

import (
	"math"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/tensor"
)

// TestWithGradient: the gradient is the rule's, with what lies before and
// behind it as always, and other arguments than those of the value.
func TestWithGradient(t *testing.T) {
	x, u := f32(0.375, 1.625, -2.75), f32(1, 2, 3)
	loss := func() T {
		return x.MulScalar(2).Round().WithGradient(func(g T) []T { return []T{g, g.Mul(x), nil} }, x, u, x).Square().Sum()
	}
	g := tensor.GradientsAt(loss(), x, u)
	want(t, "value", loss(), 1+9+36)
	want(t, "by x", g[0], 2, 6, -12)
	want(t, "by u", g[1], 0.75, 9.75, 33)
	if g := tensor.GradientsAt(x.Square().WithGradient(func(g T) []T { return []T{g} }, u).Sum(), x); g[0] != nil {
		t.Errorf("got a gradient by x past the rule, which is for u: %v", g[0].Type())
	}
	// In 16 bits, where a consumer of float32 may record again what made a
	// tensor, the rule stays.
	h := tensor.New([]float32{1, 2}, 2).Cast(dtype.BFloat16)
	y := h.Reshape(1, 2).MatMul(h.Reshape(2, 1)).WithGradient(func(g T) []T { return []T{g.BroadcastTo(1, 2).Reshape(2).MulScalar(7)} }, h)
	want(t, "of a widened result", tensor.GradientsAt(y.Widen().Sum(), h)[0], 7, 7)
	s := h.Softmax(0).WithGradient(func(g T) []T { return []T{g} }, h)
	if _, _, ok := tensor.Logits(s); ok {
		t.Error("got the logits behind a softmax with a gradient of its own")
	}
	twice := tensor.Remat(func() T { return x.Square().WithGradient(func(g T) []T { return []T{g.MulScalar(3)} }, x) })
	want(t, "with Remat", tensor.GradientsAt(twice.Sum(), x)[0], 3, 3, 3)
}

// TestWithGradientAssigns: what a rule assigns follows the gradient that it
// gets, also where parts of the forward pass are computed again for that.
func TestWithGradientAssigns(t *testing.T) {
	w := variable("w", dtype.Float32, 0.5, -1, 2)
	largest := variable("largest", dtype.Float32, 0)
	step := tensor.Function(func(x T) T {
		h := w.Value().Mul(x)
		h = h.Sin().Exp().Add(h.Tanh()).Square().WithGradient(func(g T) []T {
			g = g.Cos()
			largest.Assign(g.Abs().Max().Reshape(1))
			return []T{g}
		}, h)
		return tensor.Gradients(h.Sin().Sum(), []V{w})[0]
	}, vars{w, largest})
	x := f32(1, 1, 1)
	got := must[[]float64](t)(must[T](t)(step.Call(ctx, x)).Float64s())
	most := 0.0
	for i, v := range []float64{0.5, -1, 2} {
		h := math.Exp(math.Sin(v)) + math.Tanh(v)
		g := math.Cos(math.Cos(h * h))
		most = max(most, math.Abs(g))
		if !(math.Abs(got[i]-g) <= 1e-5) {
			t.Errorf("gradient %d: got %v, want %v", i, got[i], g)
		}
	}
	if m := must[float64](t)(largest.Item()); !(math.Abs(m-most) <= 1e-5) {
		t.Errorf("the rule assigned %v, want %v", m, most)
	}
}

func TestWithGradientErrors(t *testing.T) {
	x := f32(1, 2)
	pass := func(g T) []T { return []T{g} }
	wantError(t, "integers", catch(func() { x.Cast(dtype.Int32).WithGradient(pass, x) }), "WithGradient: got int32[2], want a float tensor")
	wantError(t, "no argument", catch(func() { x.WithGradient(pass, nil) }), "WithGradient: argument 0 is no tensor that has a gradient")
	wantError(t, "another shape", catch(func() { tensor.GradientsAt(x.Sum().WithGradient(pass, x), x) }),
		"Gradients: the gradient of argument 0 of Identity is float32[], want float32[2]")
	wantError(t, "in a Loop", catch(func() {
		f := tensor.Function(func(x T) T {
			y, _ := tensor.Loop([]T{x}, nil, false, func(e, _ []T) (y, next []T) { return []T{e[0].WithGradient(pass, e[0])}, nil })
			return y[0]
		})
		if _, err := f.Call(ctx, x); err != nil {
			panic(err)
		}
	}), "Loop: the step uses WithGradient, which a Loop cannot; use Unstack and a loop in Go")
}
