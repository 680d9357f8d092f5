package tensor_test

import (
	"context"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/mezzo-ml/mezzo/backend"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
	"github.com/mezzo-ml/mezzo/backend/tensor"
)

// tapOf is the tap with that ID.
func tapOf(t *testing.T, taps *tensor.Taps, id tensor.TapID) *tensor.Tap {
	t.Helper()
	var all []string
	for i := range taps.Values {
		if taps.Values[i].ID == id {
			return &taps.Values[i]
		}
		all = append(all, string(taps.Values[i].ID))
	}
	t.Fatalf("there is no %s among %s", id, strings.Join(all, ", "))
	return nil
}

// relativeError is ‖x-y‖/‖y‖.
func relativeError(s *op.Statistics) float64 { return math.Sqrt(s.SquaredError / s.Y.Squares) }

// narrowStep is a training step of one layer in float16 under a loss scale of 4.
func narrowStep(w V) *tensor.Func[T, T] {
	return tensor.Function(func(x T) T {
		since := tensor.SequencePoint()
		y := x.Cast(dtype.Float16).MatMul(w.Value().Cast(dtype.Float16)).Tanh()
		tensor.Label("layer", since, y)
		loss := y.Cast(dtype.Float32).Square().Mean()
		g := tensor.Gradients(tensor.TagScaled(loss.MulScalar(4), "scaler"), []V{w})
		w.Assign(w.Value().Sub(tensor.Untag(g[0], "scaler").MulScalar(0.1 / 4)))
		return loss
	}, vars{w})
}

// halfPrecision rounds to float16.
func halfPrecision(x float64) float64 { return float64(dtype.F16ToF32(dtype.F16FromF64(x))) }

func near(a, b float64) bool { return math.Abs(a-b) <= 1e-5*math.Abs(b)+1e-12 }

// TestBesideEffect: what a rounding changes the loss by is the error times the loss's
// derivative, also by values whose own derivative the step does not store.
func TestBesideEffect(t *testing.T) {
	weights := []float64{0.1, 0.2, 0.3, -0.1, 1e-9, 0.7}
	w := tensor.NewVariable("w", dtype.Float32, tensor.Shape{3, 2}, func(dst []float64) error { copy(dst, weights); return nil })
	inputs := []float32{1, 2.3, 3, 0.7, 0.1, -1}
	x := f32(inputs...).Reshape(2, 3)
	step := narrowStep(w)
	taps := must[*tensor.Taps](t)(step.Beside(ctx, x, tensor.BesideOptions{Effect: true}))
	var product, weight float64
	slope := make([]float64, 4) // the derivative of four times the mean of four squares
	for i := range slope {
		var own, exact float64
		for k := range 3 {
			a, b := float64(inputs[i/2*3+k]), float64(float32(weights[2*k+i%2]))
			own += halfPrecision(a) * halfPrecision(b)
			exact += a * b
		}
		y := math.Tanh(exact)
		slope[i] = 2 * y * (1 - y*y)
		product += math.Pow(slope[i]*(halfPrecision(own)-own), 2)
	}
	for k := range 3 {
		for c := range 2 {
			g := slope[c]*float64(inputs[k]) + slope[2+c]*float64(inputs[3+k])
			b := float64(float32(weights[2*k+c]))
			weight += math.Pow(g*(halfPrecision(b)-b), 2)
		}
	}
	for id, want := range map[tensor.TapID]float64{"layer/MatMul#0": product, "layer/Cast#1": weight} {
		tap := tapOf(t, taps, id)
		if tap.Local == nil || tap.Effect == nil || !(math.Abs(tap.Effect.SquaredError/want-1) < 2e-2) {
			t.Errorf("%s: got the effect %+v, want a squared error of %v", id, tap.Effect, want)
		}
	}
	for _, v := range taps.Values {
		if v.Effect != nil && (v.Local == nil || strings.HasSuffix(v.Path, "/grad")) {
			t.Errorf("%s has the effect %+v", v.ID, v.Effect)
		}
	}
	plain := must[*tensor.Taps](t)(step.Beside(ctx, x, tensor.BesideOptions{Local: true}))
	for _, v := range plain.Values {
		if v.Effect != nil {
			t.Errorf("%s has an effect, which was not asked for", v.ID)
		}
	}
}

// The statistics are those of the values, which a test computes in float64.
func TestBeside(t *testing.T) {
	weights := []float64{0.1, 0.2, 0.3, -0.1, 1e-9, 0.7}
	w := tensor.NewVariable("w", dtype.Float32, tensor.Shape{3, 2}, func(dst []float64) error { copy(dst, weights); return nil })
	inputs := []float32{1, 2.3, 3, 0.7, 0.1, -1}
	x := f32(inputs...).Reshape(2, 3)
	step := narrowStep(w)
	before := must[[]byte](t)(w.Bytes())
	taps := must[*tensor.Taps](t)(step.Beside(ctx, x, tensor.BesideOptions{Local: true}))
	if after := must[[]byte](t)(w.Bytes()); !slices.Equal(before, after) {
		t.Errorf("the variable has changed")
	}

	var squared, local, squares float64
	for r := range 2 {
		for c := range 2 {
			var own, exact float64 // of products of float16 numbers, and of float32 ones
			for k := range 3 {
				a, b := float64(inputs[3*r+k]), float64(float32(weights[2*k+c]))
				own += halfPrecision(a) * halfPrecision(b)
				exact += a * b
			}
			squared += (halfPrecision(own) - exact) * (halfPrecision(own) - exact)
			local += (halfPrecision(own) - own) * (halfPrecision(own) - own)
			squares += exact * exact
		}
	}
	product := tapOf(t, taps, "layer/MatMul#0")
	if product.Type.DType != dtype.Float16 || product.Scaled || product.Shadow == nil || product.Local == nil {
		t.Fatalf("the product is %+v", product)
	}
	if s := product.Shadow; s.Count != 4 || s.Finite != 4 || !near(s.Y.Squares, squares) || !(math.Abs(s.SquaredError/squared-1) < 1e-2) {
		t.Errorf("the product beside its shadow: %d of %d, squares %v, error %v; want squares %v, error %v", s.Finite, s.Count, s.Y.Squares, s.SquaredError, squares, squared)
	}
	if s := product.Local; !(math.Abs(s.SquaredError/local-1) < 1e-2) {
		t.Errorf("the product alone: error %v, want %v", s.SquaredError, local)
	}
	weight := tapOf(t, taps, "layer/Cast#1")
	if s := weight.Shadow; s.Flushed != 1 || s.X.Zeros != 1 || s.Y.Zeros != 0 {
		t.Errorf("of the weights %d flush, want 1e-9 alone", s.Flushed)
	}
	if p := taps.Values[weight.Args[0]]; p.Variable != w || p.Op != op.Param || p.Shadow == nil || p.Shadow.SquaredError != 0 {
		t.Errorf("the cast reads %+v, want the variable", p)
	}
	if len(taps.Results) != 1 || len(taps.Assigned) != 1 || taps.Assigned[0].Variable != w || len(taps.Derivatives) != 1 {
		t.Fatalf("got results %v, assigned %v, derivatives %v", taps.Results, taps.Assigned, taps.Derivatives)
	}
	if loss := taps.Values[taps.Results[0]]; loss.Scaled || loss.Op != op.Mean || loss.Type.DType != dtype.Float32 {
		t.Errorf("the loss is %+v", loss)
	}
	d := taps.Derivatives[0]
	if scaled := taps.Values[d.Loss]; !scaled.Scaled || d.Variables[0] != w {
		t.Errorf("what is differentiated is %+v", scaled)
	}
	if g := taps.Values[d.Gradients[0]]; !g.Scaled || !g.Type.Equal(w.Type()) || !(relativeError(g.Shadow) > 1e-6 && relativeError(g.Shadow) < 1e-2) {
		t.Errorf("the gradient is %+v", g)
	}
	// The new values of float32 weights and the terms of the update round nothing: with
	// Update alone.
	terms := func(taps *tensor.Taps) (n int) {
		for _, v := range taps.Values {
			if v.Path == "" && v.Op == op.Mul && v.Shadow != nil && v.Type.Equal(w.Type()) {
				n++
			}
		}
		return n
	}
	all := must[*tensor.Taps](t)(step.Beside(ctx, x, tensor.BesideOptions{Update: true}))
	if taps.Assigned[0].Change != nil || all.Assigned[0].Change == nil {
		t.Errorf("got the change of the float32 weight %v, and %v with Update; want none, and one", taps.Assigned[0].Change, all.Assigned[0].Change)
	}
	if terms(taps) != 0 || terms(all) == 0 {
		t.Errorf("got statistics of %d terms of the update, and %d with Update; want none, and some", terms(taps), terms(all))
	}
	if v := taps.Values[taps.Assigned[0].Tap]; v.Scaled || v.Shadow != nil || !v.Type.Equal(w.Type()) {
		t.Errorf("the new value is %+v, want one without statistics", v)
	}
	if v := all.Values[all.Assigned[0].Tap]; v.Shadow == nil || v.Shadow.X.Zeros != 0 {
		t.Errorf("with Update the new value is %+v, want one with statistics", v)
	}

	// With float64 the error of float32 values shows, too.
	wide := must[*tensor.Taps](t)(step.Beside(ctx, x, tensor.BesideOptions{Wide: dtype.Float64}))
	if s := tapOf(t, wide, "layer/MatMul#0").Shadow; math.Abs(s.SquaredError/squared-1) > 1e-5 {
		t.Errorf("in float64 the error is %v, want %v", s.SquaredError, squared)
	}
	// A product in float32 has the error of its operands alone, and one of float32
	// operands none.
	promoted := must[*tensor.Taps](t)(step.Beside(ctx, x, tensor.BesideOptions{Promote: func(t *tensor.Tap) dtype.DType {
		if t.Path == "layer" {
			return dtype.Float32
		}
		return dtype.Invalid
	}}))
	if s := tapOf(t, promoted, "layer/MatMul#0").Shadow; s.SquaredError != 0 {
		t.Errorf("promoted, the error is %v, want 0", s.SquaredError)
	}
	only := must[*tensor.Taps](t)(step.Beside(ctx, x, tensor.BesideOptions{Only: func(t *tensor.Tap) bool { return t.Op == op.Tanh }}))
	for _, v := range only.Values {
		if (v.Shadow != nil) != (v.Op == op.Tanh) {
			t.Errorf("%s: statistics %v", v.ID, v.Shadow != nil)
		}
	}
	// The step goes on as if nobody had looked.
	loss := must[T](t)(step.Call(ctx, x))
	fresh := tensor.NewVariable("w", dtype.Float32, tensor.Shape{3, 2}, func(dst []float64) error { copy(dst, weights); return nil })
	want(t, "the loss", loss, values(t, must[T](t)(narrowStep(fresh).Call(ctx, x)))...)
	want(t, "the weights", w, values(t, fresh)...)
}

// In float16 1.0002 is 1, so that a ReLU falls the other way. The shadow that takes the
// step's decisions has its gradient; a free one has another.
func TestBesideDecisions(t *testing.T) {
	w := variable("w", dtype.Float32, 1.0002, 3)
	step := tensor.Function(func(x T) T {
		loss := w.Value().Cast(dtype.Float16).Mul(x).AddScalar(-1).Relu().Cast(dtype.Float32).Sum()
		w.Assign(tensor.Gradients(loss, []V{w})[0])
		return loss
	}, vars{w})
	x := tensor.Ones(dtype.Float16, 2)
	for free, lost := range map[bool]int64{false: 0, true: 1} {
		taps := must[*tensor.Taps](t)(step.Beside(ctx, x, tensor.BesideOptions{Free: free}))
		g := taps.Values[taps.Derivatives[0].Gradients[0]].Shadow
		if g.Flushed != lost || g.Count != 2 {
			t.Errorf("free %v: %d gradients are 0 and not in the shadow, want %d", free, g.Flushed, lost)
		}
	}
}

// The steps of a loop are values.
func TestBesideLoop(t *testing.T) {
	step := tensor.Function(func(x T) T {
		_, last := tensor.Loop([]T{x}, []T{tensor.Zeros(dtype.Float16, 2)}, false, func(x, s []T) (y, next []T) {
			return nil, []T{x[0].Add(s[0]).MulScalar(1.5)}
		})
		return last[0]
	})
	x := f32(100, 200, 3e4, 4e4, 5e4, 6e4).Reshape(3, 2).Cast(dtype.Float16)
	taps := must[*tensor.Taps](t)(step.Beside(ctx, x, tensor.BesideOptions{}))
	infinities := int64(0)
	for i, id := range []tensor.TapID{"/Mul#0", "/Mul#1", "/Mul#2"} {
		v := tapOf(t, taps, id)
		if v.Shadow.X.Infinities < infinities || v.Shadow.Y.Infinities != 0 {
			t.Errorf("step %d: %d infinities, in the shadow %d", i, v.Shadow.X.Infinities, v.Shadow.Y.Infinities)
		}
		infinities = v.Shadow.X.Infinities
	}
	if last := tapOf(t, taps, "/Mul#2").Shadow; infinities != 2 || last.Y.Largest != float64(float32(1.5*(1.5*(1.5*200+4e4)+6e4))) {
		t.Errorf("the last step has %d infinities beside %v", infinities, last.Y.Largest)
	}
}

func TestBesideErrors(t *testing.T) {
	step := narrowStep(variable("w", dtype.Float32, 1, 2))
	for name, f := range map[string]func() error{
		"got float16 for Wide, want float32 or float64": func() error {
			_, err := step.Beside(ctx, f32(1), tensor.BesideOptions{Wide: dtype.Float16})
			return err
		},
		"the context is nil": func() error {
			_, err := step.Beside(nil, f32(1), tensor.BesideOptions{}) //lint:ignore SA1012 that is what is tested
			return err
		},
		"MatMul": func() error {
			_, err := step.Beside(ctx, f32(1), tensor.BesideOptions{})
			return err
		},
		"context canceled": func() error {
			ctx, cancel := context.WithCancel(ctx)
			cancel()
			w := tensor.NewVariable("w", dtype.Float32, tensor.Shape{3, 2}, nil)
			_, err := narrowStep(w).Beside(ctx, tensor.Ones(dtype.Float32, 2, 3), tensor.BesideOptions{})
			return err
		},
	} {
		if err := f(); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("got error %v, want %s", err, name)
		}
	}
}

// TestBesideLost counts updates that 16-bit storage loses: 1/16 is half of the spacing
// of bfloat16 numbers at 16, and of float16 numbers at 128, and ties go to the even one.
func TestBesideLost(t *testing.T) {
	for d, want := range map[dtype.DType]float64{dtype.BFloat16: 4. / 8, dtype.Float16: 1. / 8, dtype.Float32: 0} {
		w := tensor.NewVariable("w", d, tensor.Shape{8}, func(x []float64) error {
			for i := range x {
				x[i] = math.Ldexp(1, i)
			}
			return nil
		})
		step := tensor.Function(func(x T) T {
			w.Assign(w.Value().Add(x.Cast(d)))
			return x
		}, vars{w})
		taps := must[*tensor.Taps](t)(step.Beside(ctx, f32(0, 0.0625, 0.0625, 0.0625, 0.0625, 0.0625, 0.0625, 0.0625), tensor.BesideOptions{}))
		if len(taps.Assigned) != 1 || taps.Assigned[0].Lost() != want {
			t.Errorf("%v: got %+v, lost %v, want %v", d, taps.Assigned, taps.Assigned[0].Lost(), want)
		}
	}
}

// Beside keeps its plan beside that of Call, and reads the variables of now.
func TestBesideKept(t *testing.T) {
	recorded := 0
	w := tensor.NewVariable("w", dtype.Float32, tensor.Shape{2}, nil)
	step := tensor.Function(func(x T) T {
		recorded++
		y := x.Mul(w.Value())
		w.Assign(w.Value().AddScalar(1))
		return y
	}, vars{w})
	largest := func(o tensor.BesideOptions) float64 {
		taps := must[*tensor.Taps](t)(step.Beside(ctx, f32(1, 3), o))
		return tapOf(t, taps, "/Mul#0").Shadow.X.Largest
	}
	plan := must[*ir.Graph](t)(step.Plan(f32(1, 3))).String()
	for i := range 4 {
		for _, o := range []tensor.BesideOptions{{}, {Wide: dtype.Float64}, {Free: true}, {Local: true}} {
			if got, want := largest(o), 3*float64(i); got != want {
				t.Errorf("call %d: the largest product is %v, want %v", i, got, want)
			}
		}
		if y := must[T](t)(step.Call(ctx, f32(1, 3))); !slices.Equal(must[[]float64](t)(y.Float64s()), []float64{float64(i), 3 * float64(i)}) {
			t.Errorf("call %d: got %v", i, y)
		}
	}
	once := recorded
	largest(tensor.BesideOptions{})
	if recorded != once && backend.Keeps(backend.Plans) {
		t.Errorf("Beside recorded the function again")
	}
	largest(tensor.BesideOptions{Only: func(*tensor.Tap) bool { return true }})
	if recorded == once {
		t.Errorf("Beside took a plan for other values")
	}
	if again := must[*ir.Graph](t)(step.Plan(f32(1, 3))).String(); again != plan {
		t.Errorf("the plan of Call is now\n%s\nwant\n%s", again, plan)
	}
}

// TestBesideSame: a variable has the statistics of its cast's shadow, a cast to a wider
// type those of its operand, and both are what Stats gives.
func TestBesideSame(t *testing.T) {
	weights := []float64{0.1, 0.2, 0, -0.1, 1e-9, 700, 1e-7, 3}
	w := tensor.NewVariable("w", dtype.Float32, tensor.Shape{2, 4}, func(dst []float64) error { copy(dst, weights); return nil })
	alone := tensor.NewVariable("alone", dtype.Float32, tensor.Shape{2, 4}, func(dst []float64) error { copy(dst, weights); return nil })
	step := tensor.Function(func(x T) T {
		narrow := w.Value().Cast(dtype.Float16).Mul(x.Cast(dtype.Float16))
		return narrow.Cast(dtype.Float32).Add(alone.Value()).Sum()
	}, vars{w, alone})
	x := f32(1, 1, 1, 1, 1, 1, 0.5, 3).Reshape(2, 4)
	taps := must[*tensor.Taps](t)(step.Beside(ctx, x, tensor.BesideOptions{}))
	stats := func(a, b T) *op.Statistics {
		return must[*op.Statistics](t)(op.DecodeStatistics(must[[]float64](t)(tensor.Stats(a, b).Float64s())))
	}
	exact := w.Value().Mul(x)
	rounded := w.Value().Cast(dtype.Float16).Mul(x.Cast(dtype.Float16))
	for id, want := range map[tensor.TapID]*op.Statistics{
		"w/Param#0": stats(w.Value(), w.Value()), "alone/Param#0": stats(w.Value(), w.Value()),
		"/Mul#0": stats(rounded, exact), "/Cast#2": stats(rounded.Cast(dtype.Float32), exact),
	} {
		if got := tapOf(t, taps, id).Shadow; got == nil || *got != *want {
			t.Errorf("%s: got %+v, want %+v", id, got, want)
		}
	}
	if n := tapOf(t, taps, "/Mul#0").Shadow.Subnormal; n == 0 {
		t.Errorf("no product is subnormal in float16")
	}
	// What its cast cannot hold, a variable can.
	if err := w.Set([]float64{1e5, 0.2, 0, -0.1, math.Inf(1), 700, math.NaN(), 3}); err != nil {
		t.Fatal(err)
	}
	taps = must[*tensor.Taps](t)(step.Beside(ctx, x, tensor.BesideOptions{}))
	if s := tapOf(t, taps, "w/Param#0").Shadow; s.Finite != 6 || s.X.Largest != 1e5 || s.X.NaNs != 1 || s.X.Infinities != 1 || s.X.Zeros != 1 || s.Flushed != 0 || s.SquaredError != 0 {
		t.Errorf("the variable with infinity and NaN: %+v", s)
	}
	if s := tapOf(t, taps, "/Cast#0").Shadow; s.Finite != 5 || s.X.Infinities != 2 {
		t.Errorf("its cast: %+v", s)
	}
}

// TestBesideAll: what others stand for has statistics on demand,
// and all others have the same ones with it.
func TestBesideAll(t *testing.T) {
	w := tensor.NewVariable("w", dtype.Float32, tensor.Shape{1, 1, 2, 2}, func(dst []float64) error { copy(dst, []float64{0.3, 1, 1, 2}); return nil })
	step := tensor.Function(func(x T) T {
		y := x.Cast(dtype.Float16).Conv(w.Value().Cast(dtype.Float16), tensor.ConvOptions{}).Relu()
		pooled := y.MaxPool(tensor.PoolOptions{Window: []int{2, 2}})
		overlapping := y.MaxPool(tensor.PoolOptions{Window: []int{2, 2}, Stride: []int{1, 1}})
		loss := pooled.Cast(dtype.Float32).Sum().Add(overlapping.Cast(dtype.Float32).Square().Sum())
		w.Assign(tensor.Gradients(loss, []V{w})[0])
		return y.Max()
	}, vars{w})
	x := f32(1, -2, 3, 4, -5, 6, 7, 8, 0.1, 1.3, -1, 2, 3, 1, -1, 1, 1, 2, 3, 4, 5, 4, 3, 2, -1, -1, 2, 2, 2, 3, 3, 3).Reshape(1, 4, 4, 2)
	few := must[*tensor.Taps](t)(step.Beside(ctx, x, tensor.BesideOptions{}))
	all := must[*tensor.Taps](t)(step.Beside(ctx, x, tensor.BesideOptions{All: true}))
	without := map[op.Code]int{}
	for i, v := range few.Values {
		with := all.Values[i]
		switch {
		case v.ID != with.ID:
			t.Fatalf("value %d is %s, and %s with All", i, v.ID, with.ID)
		case v.Shadow == nil && with.Shadow != nil:
			without[v.Op]++
		case v.Shadow != nil && (with.Shadow == nil || *v.Shadow != *with.Shadow):
			t.Errorf("%s: got %+v, and with All %+v", v.ID, v.Shadow, with.Shadow)
		}
	}
	// The result is a maximum, too, and has them.
	want := map[op.Code]int{op.Conv: 1, op.MaxPool: 2, op.MaxPoolGrad: 1, op.Where: 1}
	for c, n := range without {
		if n != want[c] {
			t.Errorf("%d of %v have statistics with All alone, want %d", n, c, want[c])
		}
		delete(want, c)
	}
	if len(want) > 0 {
		t.Errorf("with or without All: %v", want)
	}
}
