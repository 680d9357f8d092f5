package tensor_test

import (
	"errors"
	"testing"

	"github.com/mezzo-ml/mezzo/backend"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/tensor"
)

func TestVariable(t *testing.T) {
	v := variable("dense/bias", dtype.Float16, 1, 2)
	if v.Name() != "dense/bias" || v.Type().String() != "float16[2]" || v.DType() != dtype.Float16 || !v.Shape().Equal(tensor.Shape{2}) {
		t.Errorf("got %s %v", v.Name(), v.Type())
	}
	if !v.Trainable() || v.Statistic() || v.Constraint() != nil || tensor.NewState("s", dtype.Float32, nil, nil).Trainable() {
		t.Error("wrong defaults")
	}
	want(t, "first value", v, 1, 2)
	want(t, "zeros", tensor.NewState("s", dtype.Int32, tensor.Shape{2}, nil), 0, 0)
	if err := v.Set([]float64{1.0001, 70000}); err != nil {
		t.Fatal(err)
	}
	want(t, "rounded to its type", v, 1, inf)
	if err := v.Reset(); err != nil {
		t.Fatal(err)
	}
	want(t, "after Reset", v, 1, 2)
	if f := must[[]float32](t)(v.Values()); f[1] != 2 {
		t.Errorf("Values: got %v", f)
	}
	wantError(t, "Set", v.Set([]float64{1}), "variable dense/bias: 1 elements given, float16[2] takes 2")
	wantError(t, "SetBytes", v.SetBytes(make([]byte, 3)), "variable dense/bias: 3 bytes given, float16[2] takes 4")
	_, err := v.Item()
	wantError(t, "Item", err, "variable dense/bias: float16[2] has not one element")

	v.SetName("head/bias")
	v.SetTrainable(false)
	v.SetStatistic(true)
	v.SetConstraint(T.Abs)
	if v.Name() != "head/bias" || v.Trainable() || !v.Statistic() || v.Constraint() == nil {
		t.Error("what was set is not there")
	}
	v.SetInitializer(func(dst []float64) error { dst[0] = 7; return nil })
	want(t, "before Reset", v, 1, 2)
	if err := v.Reset(); err != nil {
		t.Fatal(err)
	}
	want(t, "from the new initializer", v, 7, 0)

	bad := tensor.NewVariable("bad", dtype.Float32, nil, func([]float64) error { return errors.New("no numbers") })
	_, err = bad.Values()
	wantError(t, "initializer", err, "variable bad: no numbers")
	_, err = bad.Value().Values()
	wantError(t, "initializer, by its value", err, "variable bad: no numbers")
	_, err = tensor.Function(func(none) T { return bad.Value().Exp() }).Call(ctx, none{})
	wantError(t, "initializer, in a step", err, "variable bad: no numbers")
}

// TestItemAllocatesNothing: metrics and progress lines read scalars all the
// time.
func TestItemAllocatesNothing(t *testing.T) {
	v := scalar("v", 3)
	if n := testing.AllocsPerRun(100, func() {
		if x, err := v.Item(); x != 3 || err != nil {
			t.Error(x, err)
		}
	}); n != 0 {
		t.Errorf("Item allocates %v times", n)
	}
}

// TestSnapshots: a tensor taken as the value of a variable keeps its elements
// whatever becomes of the variable, and whenever it is read.
func TestSnapshots(t *testing.T) {
	v := variable("v", dtype.Float32, 1, 2)
	other := variable("other", dtype.Float32, 0, 0)
	step := tensor.Function(func(none) none {
		v.Assign(v.Value().AddScalar(1))
		return none{}
	}, vars{v})
	run := func() {
		if err := step.Run(ctx, none{}); err != nil {
			t.Fatal(err)
		}
	}
	run()
	changes := map[string]func(){
		"a step":      run,
		"a Call":      func() { must[none](t)(step.Call(ctx, none{})) },
		"Set":         func() { must[none](t)(none{}, v.Set([]float64{8, 9})) },
		"Reset":       func() { must[none](t)(none{}, v.Reset()) },
		"two steps":   func() { run(); run() },
		"no change":   func() {},
		"other's Set": func() { must[none](t)(none{}, other.Set([]float64{1, 1})) },
	}
	for name, change := range changes {
		before := values(t, v)
		unread, read, lazy := v.Value(), v.Value(), v.Value().MulScalar(2)
		sum := v.Value().Add(other.Value())
		w := values(t, other)
		want(t, name+": read before", read, before...)
		change()
		want(t, name+": read before and after", read, before...)
		want(t, name+": read after", unread, before...)
		want(t, name+": computed after", lazy, 2*before[0], 2*before[1])
		want(t, name+": computed after, with another", sum, before[0]+w[0], before[1]+w[1])
		want(t, name+": the new value", v.Value(), values(t, v)...)
	}
}

// TestValueAsArgument: a step may be called on the value of a variable that it
// changes.
func TestValueAsArgument(t *testing.T) {
	v := variable("v", dtype.Float32, 1, 2)
	step := tensor.Function(func(x T) T {
		v.Assign(v.Value().Add(x).MulScalar(10))
		return x
	}, vars{v})
	for _, w := range [][]float64{{1, 2}, {20, 40}} {
		x := must[T](t)(step.Call(ctx, v.Value()))
		want(t, "the argument", x, w...)
		want(t, "the variable", v, 20*w[0], 20*w[1])
	}
}

func TestAssignErrors(t *testing.T) {
	v := variable("v", dtype.Float32, 1, 2)
	wantError(t, "outside", catch(func() { v.Assign(f32(1, 2)) }), "Assign: variable v is assigned outside a Function; record it in a keras.Function that lists the variable's owner, or use Set")
	wantError(t, "rows outside", catch(func() { v.AssignRows(f32(0), f32(1)) }), "AssignRows: variable v is assigned outside a Function; record it in a keras.Function that lists the variable's owner, or use Set")
	for _, c := range []struct {
		name string
		f    func(x T)
		want string
	}{
		{"shape", func(x T) { v.Assign(x.Sum()) }, "Assign: variable v is float32[2], got float32[]"},
		{"type", func(x T) { v.Assign(x.Cast(dtype.Float16)) }, "Assign: variable v is float32[2], got float16[2]"},
		{"tuple", func(x T) { v.Assign(tensor.Tuple(x, x)) }, "Assign: variable v is float32[2], got a tuple of 2 tensors"},
		{"broken", func(x T) { v.Assign(tensor.Broken(errors.New("no"))) }, "Assign: variable v: no"},
		{"Set", func(x T) {
			if err := v.Set([]float64{0, 0}); err != nil {
				tensor.Fail("", "%w", err)
			}
		}, "variable v: Set inside a Function; use Assign"},
		{"Reset", func(x T) {
			if err := v.Reset(); err != nil {
				tensor.Fail("", "%w", err)
			}
		}, "variable v: Reset inside a Function; use Assign"},
	} {
		err := tensor.Function(func(x T) none {
			c.f(x)
			return none{}
		}, vars{v}).Run(ctx, f32(5, 6))
		wantError(t, c.name, err, c.want)
		want(t, c.name, v, 1, 2)
	}
}

// TestReadInFunction: what is read while a Function is recorded would be the
// number of that moment for ever, so that it is an error, whether the variable
// is listed, assigned, both or neither.
func TestReadInFunction(t *testing.T) {
	for _, debug := range []backend.Debug{{}, {Eager: true}} {
		debugging(t, debug)
		for name, c := range map[string]struct{ listed, assigned bool }{
			"neither": {}, "listed": {true, false}, "assigned": {true, true},
		} {
			v := scalar("total", 3)
			var owners []tensor.Stateful
			if c.listed {
				owners = append(owners, vars{v})
			}
			fn := tensor.Function(func(x T) T {
				if c.assigned {
					v.Assign(v.Value().Add(x))
				}
				const text = "variable total has no data inside a Function; read it when the call has returned"
				_, err := v.Item()
				wantError(t, name+": Item", err, text)
				_, err = v.Bytes()
				wantError(t, name+": Bytes", err, text)
				_, err = v.Values()
				wantError(t, name+": Values", err, text)
				_, err = v.Float64s()
				wantError(t, name+": Float64s", err, text)
				return x
			}, owners...)
			for range 2 {
				if _, err := fn.Call(ctx, tensor.Scalar(v.DType(), 1)); err != nil {
					t.Errorf("%s: %v", name, err)
				}
			}
			sum := 3.0
			if c.assigned {
				sum = 5
			}
			want(t, name, v, sum)
		}
	}
}
