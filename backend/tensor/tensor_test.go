package tensor_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/x448/float16"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/op"
	"github.com/mezzo-ml/mezzo/backend/tensor"
)

func TestElements(t *testing.T) {
	for _, c := range []struct {
		x    T
		d    dtype.DType
		want []float64
	}{
		{tensor.New([]bool{true, false}, 2), dtype.Bool, []float64{1, 0}},
		{tensor.New([]uint8{200}, 1), dtype.Uint8, []float64{200}},
		{tensor.New([]int8{-100}), dtype.Int8, []float64{-100}},
		{tensor.New([]int32{-3}), dtype.Int32, []float64{-3}},
		{tensor.New([]int64{1 << 40}), dtype.Int64, []float64{1 << 40}},
		{tensor.New([]float16.Float16{float16.Fromfloat32(1.5)}), dtype.Float16, []float64{1.5}},
		{tensor.New([]dtype.BFloat{dtype.BFloat(dtype.BF16FromF32(2.5))}), dtype.BFloat16, []float64{2.5}},
		{f32(1.25), dtype.Float32, []float64{1.25}},
		{tensor.New([]float64{0.1}), dtype.Float64, []float64{0.1}},
		{tensor.New([]float32{}, 0, 3), dtype.Float32, nil},
		{tensor.Full(dtype.Float16, 1.0001, 2), dtype.Float16, []float64{1, 1}},
		{tensor.Zeros(dtype.Int32, 1, 2), dtype.Int32, []float64{0, 0}},
		{tensor.Ones(dtype.Float32), dtype.Float32, []float64{1}},
		{tensor.Iota(dtype.Int64, 2, 3), dtype.Int64, []float64{0, 1, 2, 0, 1, 2}},
	} {
		if c.x.DType() != c.d {
			t.Errorf("got %v, want %v", c.x.Type(), c.d)
		}
		want(t, c.d.String(), c.x, c.want...)
	}
	x := tensor.New([]float32{1, 2.9, -3, 4}, 2, 2)
	if i := must[[]int64](t)(x.Int64s()); i[1] != 2 || i[2] != -3 {
		t.Errorf("Int64s: got %v", i)
	}
	if b := must[[]byte](t)(x.Bytes()); len(b) != 16 {
		t.Errorf("Bytes: got %d", len(b))
	}
	if x.Rank() != 2 || x.Dim(-1) != 2 || x.Len() != 1 || x.String() != "float32[2 2]\n[[  1 2.9]\n [ -3   4]]" {
		t.Errorf("got %v", x)
	}
	data := []float32{1}
	y := tensor.New(data)
	data[0] = 2
	want(t, "a copy", y, 1)
	for name, c := range map[string]struct {
		f    func()
		want string
	}{
		"count":     {func() { tensor.New([]float32{1, 2}, 3) }, "NewTensor: 2 elements given, float32[3] takes 3"},
		"no shape":  {func() { tensor.New([]float32{1, 2, 3}) }, "NewTensor: 3 elements and no shape given, want shape 3 for a vector"},
		"nothing":   {func() { tensor.New([]float32{}) }, "NewTensor: 0 elements and no shape given, want shape 0 for a vector"},
		"negative":  {func() { tensor.New([]float32{}, -1) }, "NewTensor: shape [-1] has a negative axis"},
		"bytes":     {func() { tensor.FromBytes(x.Type(), nil) }, "FromBytes: 0 bytes given, float32[2 2] takes 16"},
		"full":      {func() { tensor.Full(dtype.Float32, 1, -3) }, "BroadcastTo: shape [-3] has a negative axis"},
		"dim":       {func() { x.Dim(2) }, "Dim: axis 2 does not exist in shape [2 2]"},
		"axis":      {func() { x.Sum(5) }, "Sum: axis 5 does not exist in shape [2 2]"},
		"reshape":   {func() { x.Reshape(3, -1) }, "Reshape: float32[2 2] has 4 elements, which do not fill [3 ?]"},
		"two holes": {func() { x.Reshape(-1, -1) }, "Reshape: shape [? ?] has more than one -1"},
		"squeeze":   {func() { x.Squeeze(0) }, "Squeeze: axis 0 of float32[2 2] does not have size 1"},
		"expand":    {func() { x.ExpandDims(3) }, "ExpandDims: axis 3 does not exist in the result of float32[2 2]"},
		"concat":    {func() { tensor.Concat(0) }, "Concat: no tensors given"},
		"nil":       {func() { x.Add(nil) }, "Add: an argument is nil"},
		"tuple":     {func() { x.Add(tensor.Tuple(x, x)) }, "Add: an argument is a tuple of 2 tensors; use Unpack"},
		"nested":    {func() { tensor.Tuple(tensor.Tuple(x)) }, "Tuple: tuples do not nest"},
		"nil part":  {func() { tensor.Tuple(x, nil) }, "Tuple: a tensor is nil"},
	} {
		wantError(t, name, catch(c.f), c.want)
	}
	_, err := x.Item()
	wantError(t, "Item", err, "Item: float32[2 2] has 4 elements, want 1")
	_, err = tensor.Tuple(x).Values()
	wantError(t, "tuple", err, "read: a tuple of 1 tensors has no elements of its own; use Unpack")
	_, err = tensor.Uninitialized(dtype.Float32, 2, -1)
	wantError(t, "Uninitialized", err, "Uninitialized: shape [2 -1] has a negative axis")
	_, err = x.Gather(indices(7)).Values()
	wantError(t, "index", err, "Gather: index 7 at position 0 is out of range, want 0 to 1")
}

// TestMethods has the methods that no other test calls.
func TestMethods(t *testing.T) {
	x, y := f32(-1.5, 0.5, 2), f32(0.5, 0.5, 0.5)
	p, q := x.Less(y), x.Equal(y)
	for _, c := range []struct {
		name string
		got  T
		want []float64
	}{
		{"Ceil", x.Ceil(), []float64{-1, 1, 2}},
		{"Floor", x.Floor(), []float64{-2, 0, 2}},
		{"Round", x.Round(), []float64{-2, 0, 2}},
		{"Sign", x.Sign(), []float64{-1, 1, 1}},
		{"Not", p.Not(), []float64{0, 1, 1}},
		{"Or", p.Or(q), []float64{1, 1, 0}},
		{"And", p.And(q), []float64{0, 0, 0}},
		{"IsFinite", x.Div(f32(1, 0, 1)).IsFinite(), []float64{1, 0, 1}},
		{"NotEqual", x.NotEqual(y), []float64{1, 0, 1}},
		{"LessEqual", x.LessEqual(y), []float64{1, 1, 0}},
		{"GreaterEqual", x.GreaterEqual(y), []float64{0, 1, 1}},
		{"LessScalar", x.LessScalar(0.5), []float64{1, 0, 0}},
		{"GreaterScalar", x.GreaterScalar(0.5), []float64{0, 0, 1}},
		{"Clip", x.Clip(-1, 1), []float64{-1, 0.5, 1}},
		{"DivScalar", x.DivScalar(0.5), []float64{-3, 1, 4}},
		{"ArgMin", x.ArgMin(0), []float64{0}},
		{"ArgMax", x.ArgMax(-1), []float64{2}},
		{"SumAs", tensor.SumAs(x.Cast(dtype.Float16), dtype.Float32, 0), []float64{1}},
		{"ExpandDims", x.ExpandDims(-1).Squeeze(1), []float64{-1.5, 0.5, 2}},
		{"Slice to the end", x.Slice(0, 1, -1), []float64{0.5, 2}},
	} {
		want(t, c.name, c.got, c.want...)
	}
}

func TestOverwrite(t *testing.T) {
	x := must[T](t)(tensor.Uninitialized(dtype.Uint8, 3))
	fn := tensor.Function(func(x T) T { return x.Cast(dtype.Float32).Sum() })
	for i := range byte(3) {
		if err := tensor.Overwrite(x, func(dst []byte) error { dst[1] = i; return nil }); err != nil {
			t.Fatal(err)
		}
		want(t, "overwritten", must[T](t)(fn.Call(ctx, x)), float64(i))
	}
	if h := must[[]byte](t)(tensor.HostBytes(x)); len(h) != 3 || h[1] != 2 {
		t.Errorf("Host: got %v", h)
	}
	wantError(t, "a result", tensor.Overwrite(x.Cast(dtype.Float32), nil), "Overwrite: float32[3] does not own its data")
	v := scalar("v", 1)
	if err := tensor.Eval(ctx, v.Value()); err != nil {
		t.Fatal(err)
	}
	wantError(t, "a variable", tensor.Overwrite(v.Value(), nil), "Overwrite: float32[] does not own its data")
}

// TestEval computes what is shared once, and stops with its context.
func TestEval(t *testing.T) {
	x := f32(1, 2).Exp()
	y, z := x.Log(), x.MulScalar(2)
	if err := tensor.Eval(ctx, y, z, tensor.Tuple(x, z)); err != nil {
		t.Fatal(err)
	}
	want(t, "z", z, 2*values(t, x)[0], 2*values(t, x)[1])
	stopped, cancel := context.WithCancel(ctx)
	cancel()
	if err := tensor.Eval(stopped, f32(1).Exp()); !errors.Is(err, context.Canceled) {
		t.Errorf("got error %v", err)
	}
	state := tensor.New([]int64{1, 0}, 2)
	a, b := tensor.RandomUniform(state, 1, 4), tensor.RandomUniform(state, 2, 4)
	want(t, "the same stream", tensor.RandomUniform(state, 1, 4), values(t, a)...)
	if values(t, a)[0] == values(t, b)[0] {
		t.Error("two streams give the same numbers")
	}
}

// TestSymbolic: what depends on a placeholder has a type and never data.
func TestSymbolic(t *testing.T) {
	x := tensor.Placeholder(dtype.Float16, tensor.Unknown, 3)
	v := variable("v", dtype.Float16, 1, 2, 3)
	y := x.Add(v.Value()).Reshape(-1, 1, 3).Slice(0, 0, -1)
	if !y.Symbolic() || y.Type().String() != "float16[? 1 3]" || tensor.IsRecorded(y) || !tensor.Tuple(v.Value(), y).Symbolic() || v.Value().Symbolic() {
		t.Errorf("got %v", y)
	}
	_, err := y.Values()
	wantError(t, "read", err, "Eval: float16[? 1 3] has no data: it belongs to a model under construction")
	_, err = v.Value().BroadcastTo(tensor.Unknown, 3).Values()
	wantError(t, "unknown shape", err, "Eval: float16[? 3] has no data: it belongs to a model under construction")
	_, err = tensor.Function(func(z T) T { return z.Add(x.Sum()) }).Call(ctx, tensor.Zeros(dtype.Float16))
	wantError(t, "in a Function", err, "Function: float16[? 3] has no data: it belongs to a model under construction")
	err = tensor.Function(func(none) none {
		v.Assign(tensor.Placeholder(dtype.Float16, 3))
		return none{}
	}, vars{v}).Run(ctx, none{})
	wantError(t, "assigned", err, "Function: float16[3] has no data: it belongs to a model under construction")
	tensor.SetOrigin(y, "layer")
	if tensor.OriginOf(y) != "layer" || tensor.OriginOf(x) != nil {
		t.Error("wrong origin")
	}
}

// TestBroken: a broken tensor breaks what is computed from it, and panics
// nowhere.
func TestBroken(t *testing.T) {
	cause := errors.New("layer dense: no units")
	b := tensor.Broken(cause)
	x := f32(1, 2)
	for i, y := range []T{
		b, b.Cast(dtype.Float16), x.CastLike(b), b.CastLike(x), b.Exp(), x.Add(b), b.AddScalar(1), b.Clip(0, 1), b.Sum(), b.SumSquares(), b.Mean(3),
		b.ArgMax(1), b.Softmax(-1), b.MatMul(x), b.Reshape(2), b.ExpandDims(4), b.Squeeze(4), b.Transpose(), b.BroadcastTo(2), b.Slice(3, 0, 1),
		b.Pad(nil, nil, 0), b.Gather(x), x.Gather(b), b.Widen(), b.StopGradient(), tensor.TagScaled(b, 1), tensor.Untag(b, 1), tensor.Concat(0, b, x),
		tensor.Concat(0, x, b), tensor.Where(b, x, x), tensor.Tuple(x, b),
	} {
		if y.Err() != cause {
			t.Errorf("result %d is not broken: %v", i, y)
		}
	}
	if b.String() != "broken tensor: layer dense: no units" {
		t.Errorf("got %q", b)
	}
	_, err := b.Values()
	wantError(t, "read", err, cause.Error())
	_, err = tensor.Function(func(x T) T { return b }).Call(ctx, x)
	wantError(t, "returned", err, cause.Error())
}

// TestMarks: the mark of a loss scale spreads to all that it makes larger.
func TestMarks(t *testing.T) {
	v, w := variable("v", dtype.Float32, 1, 2), variable("w", dtype.Float32, 3, 4)
	by := new(int)
	loss := tensor.TagScaled(v.Value().Mul(w.Value()).Sum().MulScalar(8), by)
	g := tensor.Gradients(loss, []V{v, w})
	want(t, "gradient", g[0], 24, 32)
	for name, x := range map[string]T{
		"loss": loss, "v": g[0], "w": g[1], "sum": g[0].Add(w.Value()), "cast": g[0].Cast(dtype.Float16),
		"norm": g[0].SumSquares().Sqrt(), "tuple part": tensor.Tuple(g[0]).Unpack()[0], "widened": g[0].Cast(dtype.Float16).Sum().Widen(),
	} {
		if tensor.ScaledBy(x) != by {
			t.Errorf("%s does not carry the mark", name)
		}
	}
	for name, x := range map[string]T{
		"unmarked": tensor.Untag(g[0], by), "after": tensor.Untag(g[0], by).MulScalar(2), "finite": g[0].AllFinite(), "comparison": g[0].Greater(v.Value()),
		"selected": tensor.Where(g[0].AllFinite(), v.Value(), w.Value()), "index": g[0].ArgMax(0), "v": v.Value(),
	} {
		if tensor.ScaledBy(x) != nil {
			t.Errorf("%s carries the mark", name)
		}
	}
	half := v.Value().Cast(dtype.Float16).Sum()
	if tensor.ScaledBy(tensor.Untag(tensor.TagScaled(half, by), by).Widen()) != nil || tensor.ScaledBy(tensor.TagScaled(half, by).Widen()) != by {
		t.Error("Widen changes the mark")
	}
}

// TestPredicated: inside, an Assign keeps the old value where the condition is
// false; gates nest.
func TestPredicated(t *testing.T) {
	a, b, c := scalar("a", 1), scalar("b", 1), scalar("c", 1)
	mean, held := scalar("mean", 1), scalar("held", 1)
	mean.SetStatistic(true)
	held.SetStatistic(true)
	add := func(v V, x float64) { v.Assign(v.Value().AddScalar(x)) }
	fn := tensor.Function(func(x T) none {
		p, q := x.Slice(0, 0, 1).Squeeze(0), x.Slice(0, 1, 2).Squeeze(0)
		add(mean, 1)
		add(mean, 1)
		add(a, 100)
		tensor.Predicated(p, func() {
			add(a, 1)
			tensor.Predicated(q, func() { add(b, 1) })
			add(a, 1)
		})
		add(c, 1)
		tensor.PredicateStatistics(p)
		add(held, 1) // after: gated as well
		return none{}
	}, vars{a, b, c, mean, held})
	for i, p := range []bool{false, true} {
		for j, q := range []bool{false, true} {
			for _, v := range []V{a, b, c, mean, held} {
				if err := v.Reset(); err != nil {
					t.Fatal(err)
				}
			}
			if err := fn.Run(ctx, tensor.New([]bool{p, q}, 2)); err != nil {
				t.Fatal(err)
			}
			for _, x := range []struct {
				v    V
				want int
			}{{a, 101 + 2*i}, {b, 1 + i*j}, {c, 2}, {mean, 1 + 2*i}, {held, 1 + i}} {
				want(t, fmt.Sprintf("%v, %v: %s", p, q, x.v.Name()), x.v, float64(x.want))
			}
		}
	}
	yes := tensor.New([]bool{true})
	wantError(t, "Predicated outside", catch(func() { tensor.Predicated(yes, func() {}) }), "Predicated: the condition was not recorded in a Function")
	wantError(t, "PredicateStatistics outside", catch(func() { tensor.PredicateStatistics(yes) }), "PredicateStatistics: the condition was not recorded in a Function")
}

// TestPredicateAssigned: what was assigned before keeps the old value where the
// condition is false, what is assigned later does not.
func TestPredicateAssigned(t *testing.T) {
	before, later := scalar("before", 1), scalar("later", 1)
	fn := tensor.Function(func(x T) none {
		before.Assign(before.Value().AddScalar(1))
		tensor.PredicateAssigned(x.Squeeze(0))
		later.Assign(later.Value().AddScalar(1))
		return none{}
	}, vars{before, later})
	for i, p := range []bool{false, true} {
		if err := fn.Run(ctx, tensor.New([]bool{p}, 1)); err != nil {
			t.Fatal(err)
		}
		want(t, "before", before, float64(1+i))
		want(t, "later", later, float64(2+i))
	}
	wantError(t, "PredicateAssigned outside", catch(func() { tensor.PredicateAssigned(tensor.New([]bool{true})) }),
		"PredicateAssigned: the condition was not recorded in a Function")
}

// TestPaths: the graph of a step names who recorded what.
func TestPaths(t *testing.T) {
	v := scalar("dense/bias", 1)
	fn := tensor.Function(func(x T) T {
		since := tensor.SequencePoint()
		y := x.Add(v.Value()).Sum()
		v.Assign(y)
		tensor.Label("dense", since, y)
		return y.Exp()
	}, vars{v})
	g, err := fn.Plan(f32(1, 2))
	if err != nil {
		t.Fatal(err)
	}
	paths := map[op.Code]string{}
	for _, v := range g.Values {
		paths[v.Op] += " " + v.Path
	}
	for c, w := range map[op.Code]string{op.Param: "dense/bias", op.Sum: " dense", op.Exp: " "} {
		if !strings.Contains(paths[c], w) || c == op.Exp && paths[c] != w {
			t.Errorf("%v: got paths %q, want %q", c, paths[c], w)
		}
	}
}
