package tensor_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"sync"
	"testing"

	"github.com/mezzo-ml/mezzo/backend"
	"github.com/mezzo-ml/mezzo/backend/driver"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
	"github.com/mezzo-ml/mezzo/backend/tensor"
)

// signature has everything an argument or a result may be made of.
type signature struct {
	One   T
	Tuple T
	List  []T
	Inner struct{ A, B T }
	None  T
	Empty []T
}

func TestSignatures(t *testing.T) {
	in := signature{One: f32(1), Tuple: tensor.Tuple(f32(2), f32(3)), List: []T{f32(4), nil, tensor.Tuple(f32(5), f32(6))}}
	in.Inner.B = f32(7)
	calls := 0
	fn := tensor.Function(func(x signature) signature {
		calls++
		if x.None != nil || x.Inner.A != nil || x.Empty != nil || x.List[1] != nil {
			t.Error("what was nil is not")
		}
		more := func(t T) T {
			if t.IsTuple() {
				p := t.Unpack()
				return tensor.Tuple(p[0].AddScalar(10), p[1].AddScalar(10))
			}
			return t.AddScalar(10)
		}
		out := signature{One: more(x.One), Tuple: more(x.Tuple), List: []T{more(x.List[0]), nil, more(x.List[2])}}
		out.Inner.B = more(x.Inner.B)
		return out
	})
	for range 2 {
		out := must[signature](t)(fn.Call(ctx, in))
		want(t, "One", out.One, 11)
		want(t, "Tuple", out.Tuple.Unpack()[0], 12)
		want(t, "Tuple", out.Tuple.Unpack()[1], 13)
		want(t, "List", out.List[0], 14)
		want(t, "List", out.List[2].Unpack()[1], 16)
		want(t, "Inner", out.Inner.B, 17)
		if out.None != nil || out.Inner.A != nil || out.Empty != nil || out.List[1] != nil || len(out.List) != 3 || out.Tuple.Len() != 2 {
			t.Errorf("got %v", out)
		}
	}
	if calls != 1 && backend.Keeps(backend.Plans) {
		t.Errorf("recorded %d times, want 1", calls)
	}
	defer func() {
		if r := recover(); r == nil {
			t.Error("a Function of an int was made")
		}
	}()
	tensor.Function(func(struct{ N int }) T { return nil })
}

// TestProgramPerType: a program serves arguments of the same types in the same
// places.
func TestProgramPerType(t *testing.T) {
	if backend.Skipping() {
		t.Skip("tests what MEZZO_SKIP leaves out")
	}
	type pair struct{ A, B T }
	calls := 0
	fn := tensor.Function(func(x pair) T {
		calls++
		if x.A != nil {
			return x.A.AddScalar(1)
		}
		return x.B.AddScalar(2)
	})
	for range 2 {
		want(t, "A", must[T](t)(fn.Call(ctx, pair{A: f32(1)})), 2)
		want(t, "B", must[T](t)(fn.Call(ctx, pair{B: f32(1)})), 3)
		want(t, "another shape", must[T](t)(fn.Call(ctx, pair{A: f32(1, 2)})), 2, 3)
		want(t, "another type", must[T](t)(fn.Call(ctx, pair{A: tensor.New([]float64{1})})), 2)
	}
	if calls != 4 || fn.Programs() != 4 {
		t.Errorf("recorded %d times, %d programs, want 4", calls, fn.Programs())
	}
	fn.Options(ir.Options{Check: true})
	want(t, "with options", must[T](t)(fn.Call(ctx, pair{A: f32(1)})), 2)
	if calls != 5 || fn.Programs() != 1 {
		t.Errorf("recorded %d times, %d programs after Options, want 5 and 1", calls, fn.Programs())
	}
	_, err := fn.Call(ctx, pair{A: tensor.Broken(errors.New("no input"))})
	wantError(t, "broken argument", err, "Function: no input")
	_, err = fn.Plan(pair{A: tensor.Placeholder(dtype.Float32, tensor.Unknown)})
	wantError(t, "unknown shape", err, "Function: an argument is float32[?], want one of known shape")
	if g := must[*ir.Graph](t)(fn.Plan(pair{A: tensor.Placeholder(dtype.Float32, 9)})); len(g.Outputs) != 1 {
		t.Errorf("got plan\n%v", g)
	}
}

// TestVariablesMadeInside: a step that makes variables, in several rounds, is
// recorded again until it knows all, and runs once.
func TestVariablesMadeInside(t *testing.T) {
	model, slots := &owner{}, &owner{}
	calls := 0
	fn := tensor.Function(func(x T) T {
		calls++
		if model.vars == nil {
			model.vars = append(model.vars, scalar("w", 1), scalar("count", 0))
		}
		w, count := model.vars[0], model.vars[1]
		count.Assign(tensor.Scalar(dtype.Float32, 5)) // a constant, just made
		count.Assign(count.Value().AddScalar(1))
		if slots.vars == nil && calls > 1 {
			slots.vars = append(slots.vars, scalar("slot", 2))
		}
		for _, s := range slots.vars {
			s.Assign(s.Value().MulScalar(2))
			w.Assign(w.Value().Add(s.Value()))
		}
		return x.Add(w.Value())
	}, model, slots)
	want(t, "first", must[T](t)(fn.Call(ctx, f32(10))), 15)
	if calls != 3 {
		t.Errorf("recorded %d times, want 3", calls)
	}
	want(t, "second", must[T](t)(fn.Call(ctx, f32(10))), 23)
	want(t, "count", model.vars[1], 6)

	endless := &owner{}
	err := tensor.Function(func(none) none {
		endless.vars = append(endless.vars, scalar("v", 0))
		return none{}
	}, endless).Run(ctx, none{})
	wantError(t, "endless", err, "Function: it makes new variables each time it is recorded; make them once, and keep them")
}

func TestForgottenOwner(t *testing.T) {
	a, b := scalar("model/a", 1), scalar("rmsprop/b", 2)
	for name, f := range map[string]func(x T) none{
		"from an argument": func(x T) none { b.Assign(x.Sum()); return none{} },
		"a constant":       func(x T) none { b.Assign(tensor.Scalar(dtype.Float32, 1)); return none{} },
		"from itself":      func(x T) none { b.Assign(b.Value().AddScalar(1)); b.Assign(b.Value()); return none{} },
	} {
		err := tensor.Function(f, vars{a}).Run(ctx, f32(1, 2))
		wantError(t, name, err, "Function: it assigns variable rmsprop/b but its owner is not in the Function's list")
		want(t, name, b, 2)
	}
	// What is only read need not be listed, and is read at each call.
	read := tensor.Function(func(x T) T { return x.Mul(b.Value()) })
	want(t, "unlisted", must[T](t)(read.Call(ctx, f32(1, 2))), 2, 4)
	if err := b.Set([]float64{3}); err != nil {
		t.Fatal(err)
	}
	want(t, "unlisted, set", must[T](t)(read.Call(ctx, f32(1, 2))), 3, 6)
}

// TestResults: a Function may return what it was given, a variable before and
// after its change, a constant, one tensor twice, and data from outside.
func TestResults(t *testing.T) {
	v, w, u := scalar("v", 1), scalar("w", 10), scalar("u", 100)
	outside := f32(7)
	fn := tensor.Function(func(x T) []T {
		before, y := v.Value(), x.Exp()
		swapped := v.Value()
		v.Assign(w.Value())
		w.Assign(swapped)
		u.Assign(x.Sum()) // the old value is not read
		return []T{x, x, before, v.Value(), w.Value(), tensor.Scalar(dtype.Float32, 4), y, y, outside, u.Value()}
	}, vars{v, w, u})
	for i := range 3 {
		a, b := 1.0, 10.0
		if i%2 == 1 {
			a, b = b, a
		}
		got := must[[]T](t)(fn.Call(ctx, f32(0)))
		for j, x := range []float64{0, 0, a, b, a, 4, 1, 1, 7, 0} {
			want(t, fmt.Sprintf("call %d, result %d", i, j), got[j], x)
		}
		want(t, "v", v, b)
		want(t, "w", w, a)
		want(t, "u", u, 0)
		// Results are the caller's own.
		if err := v.Set([]float64{b}); err != nil {
			t.Fatal(err)
		}
		want(t, "returned variable", got[3], b)
		if sum := got[0].Add(got[2]); tensor.IsRecorded(sum) {
			t.Error("a result is part of a recording")
		}
	}
	want(t, "outside", outside, 7)
}

// TestInPlace: an updated variable stays where it is, and needs no second
// copy.
func TestInPlace(t *testing.T) {
	if backend.Skipping() {
		t.Skip("tests what MEZZO_SKIP leaves out")
	}
	v := tensor.NewVariable("v", dtype.Float32, tensor.Shape{1000}, nil)
	fn := tensor.Function(func(x T) none {
		v.Assign(v.Value().Add(x))
		return none{}
	}, vars{v})
	x := f32(1)
	g := must[*ir.Graph](t)(fn.Plan(x))
	if len(g.Donated) != 1 || g.Donated[0] < 0 || g.Params[g.Donated[0]].Path != "v" || g.ArenaBytes != 0 {
		t.Errorf("the variable is not updated in place:\n%v", g)
	}
	m := must[tensor.Memory](t)(fn.MemoryOf(x))
	m.Workspace = 0 // the device's
	if m != (tensor.Memory{Variables: 4000, Arguments: 4}) {
		t.Errorf("got %+v", m)
	}
	fn.Options(ir.Options{Skip: []string{"donate"}})
	if m := must[tensor.Memory](t)(fn.MemoryOf(x)); m.Variables != 8000 {
		t.Errorf("without donation: got %+v", m)
	}
}

func TestEscape(t *testing.T) {
	v := scalar("v", 1)
	var x, y, leaf T
	fn := tensor.Function(func(a T) none {
		x, y, leaf = a, a.Exp(), v.Value()
		if _, err := y.Values(); err == nil || err.Error() != "Eval: float32[1] has no data inside a Function; return it to read it" {
			t.Errorf("read inside: got error %v", err)
		}
		return none{}
	}, vars{v})
	if err := fn.Run(ctx, f32(1)); err != nil {
		t.Fatal(err)
	}
	const late = "an argument was recorded by a Function that has returned; return it from the Function instead"
	for name, z := range map[string]T{"argument": x, "result": y, "variable": leaf} {
		wantError(t, name, catch(func() { z.Exp() }), "Exp: "+late)
		err := tensor.Function(func(b T) T { return b.Add(z) }).Run(ctx, f32(1))
		wantError(t, name+" in another Function", err, "Add: "+late)
		err = tensor.Function(func(b T) T { return z }).Run(ctx, f32(1))
		wantError(t, name+" returned by another Function", err,
			"Function: "+z.Type().String()+" was recorded by a Function that has returned; return it from that Function instead")
		if _, err := z.Values(); err == nil {
			t.Errorf("%s can be read", name)
		}
	}
}

// TestNested: a Function called in another is part of it, with or without
// arguments to tell, and may be itself.
func TestNested(t *testing.T) {
	v := scalar("v", 1)
	count := tensor.Function(func(none) T {
		v.Assign(v.Value().AddScalar(1))
		return v.Value()
	}, vars{v})
	double := tensor.Function(func(x T) T { return x.MulScalar(2) })
	var depth int
	var self *tensor.Func[T, T]
	self = tensor.Function(func(x T) T {
		if depth++; depth > 3 {
			return x
		}
		return must[T](t)(self.Call(ctx, x.MulScalar(3)))
	})
	constant := f32(5)
	outer := tensor.Function(func(x T) []T {
		n := must[T](t)(count.Call(ctx, none{}))
		if err := count.Run(ctx, none{}); err != nil {
			t.Fatal(err)
		}
		return []T{n, v.Value(), must[T](t)(double.Call(ctx, x)), must[T](t)(double.Call(ctx, constant)), must[T](t)(self.Call(ctx, x))}
	}, vars{v})
	for i := range 2 {
		depth = 0
		got := must[[]T](t)(outer.Call(ctx, f32(1)))
		for j, w := range []float64{float64(2*i + 2), float64(2*i + 3), 2, 10, 27} {
			want(t, fmt.Sprintf("call %d, result %d", i, j), got[j], w)
		}
	}
	if count.Programs()+double.Programs()+self.Programs() != 0 {
		t.Error("nested Functions were compiled")
	}
	wantError(t, "list of the outer", tensor.Function(func(none) T {
		return must[T](t)(count.Call(ctx, none{}))
	}).Run(ctx, none{}), "Function: it assigns variable v but its owner is not in the Function's list")
	wantError(t, "Plan inside", tensor.Function(func(x T) T {
		if _, err := double.Plan(f32(1)); err != nil {
			tensor.Fail("", "%w", err)
		}
		return x
	}).Run(ctx, f32(1)), "Function: it is planned or watched inside another Function; do that outside")
	// On a symbolic tensor a Function extends the model under construction.
	y := must[T](t)(double.Call(ctx, tensor.Placeholder(dtype.Float16, tensor.Unknown, 3)))
	if !y.Symbolic() || y.Type().String() != "float16[? 3]" {
		t.Errorf("got %v", y)
	}
}

// TestTransaction: a step that fails changes no variable by a bit.
func TestTransaction(t *testing.T) {
	v := variable("v", dtype.Float32, 1, 2)
	total := scalar("total", 3)
	type in struct{ X, I T }
	fn := tensor.Function(func(x in) T {
		v.Assign(v.Value().Add(x.X))
		total.Assign(x.X.Sum())
		return v.Value().Gather(x.I)
	}, vars{v, total})
	good, bad := in{f32(1, 1), indices(0)}, in{f32(5, 5), indices(2)}
	for i := range 3 {
		if i > 0 {
			want(t, "result", must[T](t)(fn.Call(ctx, good)), float64(i+1))
		}
		held := v.Value() // makes the next step move v
		if i == 1 {
			held = nil
		}
		_, err := fn.Call(ctx, bad)
		var index *driver.IndexError
		if !errors.As(err, &index) || index.Got != 2 || index.Op != op.Gather {
			t.Fatalf("got error %v, want one of index 2", err)
		}
		stopped, cancel := context.WithCancel(ctx)
		cancel()
		if _, err := fn.Call(stopped, good); !errors.Is(err, context.Canceled) {
			t.Fatalf("got error %v, want that of the context", err)
		}
		if err := fn.Run(&late{Context: ctx, after: 1}, good); !errors.Is(err, context.Canceled) {
			t.Fatalf("got error %v, want that of the context", err)
		}
		want(t, "v", v, 1+float64(i), 2+float64(i))
		want(t, "total", total, map[bool]float64{true: 3, false: 2}[i == 0])
		if held != nil {
			want(t, "held", held, 1+float64(i), 2+float64(i))
		}
	}
}

// late is a context that ends after some checks.
type late struct {
	context.Context
	after int
}

func (l *late) Err() error {
	if l.after--; l.after < 0 {
		return context.Canceled
	}
	return nil
}

// TestConcurrentCalls: calls take turns, and results are their caller's.
func TestConcurrentCalls(t *testing.T) {
	v := scalar("v", 0)
	fn := tensor.Function(func(x T) T {
		v.Assign(v.Value().AddScalar(1))
		return x.MulScalar(2)
	}, vars{v})
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			x := make([]float32, 1+i%2)
			x[0] = float32(i)
			for range 20 {
				y, err := fn.Call(ctx, tensor.New(x, len(x)))
				if err != nil {
					t.Error(err)
					return
				}
				if z, err := y.Values(); err != nil || z[0] != 2*x[0] {
					t.Errorf("got %v, %v, want %v", z, err, 2*x[0])
				}
				y.Release()
			}
		})
	}
	wg.Wait()
	want(t, "v", v, 160)
}

func TestRelease(t *testing.T) {
	if backend.Skipping() {
		t.Skip("tests what MEZZO_SKIP leaves out")
	}
	v := scalar("v", 0)
	type in struct{ X, Y T }
	fn := tensor.Function(func(x in) T {
		v.Assign(v.Value().Add(x.X.Sum()))
		return x.X.Mul(x.Y)
	}, vars{v})
	x := in{f32(1, 2), f32(3, 4)}
	a := must[T](t)(fn.Call(ctx, x))
	b := must[T](t)(fn.Call(ctx, x))
	if a == b {
		t.Fatal("two results share memory")
	}
	a.Release()
	a.Release() // does nothing
	c, d := must[T](t)(fn.Call(ctx, x)), must[T](t)(fn.Call(ctx, x))
	if c != a || d == a || d == b {
		t.Error("released memory is not used again, or twice")
	}
	want(t, "reused", c, 3, 8)
	x.X.Release()
	(T)(nil).Release()
	want(t, "not a result", x.X, 1, 2)

	d.Release()
	if n := testing.AllocsPerRun(50, func() {
		if err := fn.Run(ctx, x); err != nil {
			t.Error(err)
		}
	}); n != 0 {
		t.Errorf("Run allocates %v times", n)
	}
	if n := testing.AllocsPerRun(50, func() {
		y, err := fn.Call(ctx, x)
		if err != nil {
			t.Error(err)
		}
		y.Release()
	}); n != 0 {
		t.Errorf("Call and Release allocate %v times", n)
	}
}

func TestEach(t *testing.T) {
	v := scalar("v", 0)
	fn := tensor.Function(func(x T) none {
		v.Assign(v.Value().Add(tensor.Iota(dtype.Float32, 3).Gather(x).Sum()))
		return none{}
	}, vars{v})
	seen := 0
	seq := func(fail error) iter.Seq2[T, error] {
		return func(yield func(T, error) bool) {
			for _, i := range []int32{1, 2, 3, 1} {
				seen++
				if !yield(indices(i), nil) {
					return
				}
			}
			yield(nil, fail)
		}
	}
	err := fn.Each(ctx, seq(nil))
	if err == nil || seen != 3 {
		t.Errorf("got error %v after %d elements, want one of the third", err, seen)
	}
	want(t, "v", v, 3)
	broken := errors.New("the file is damaged")
	err = fn.Each(ctx, func(yield func(T, error) bool) { _ = yield(indices(1), nil) && yield(nil, broken) })
	if err != broken {
		t.Errorf("got error %v, want that of the sequence", err)
	}
	want(t, "v", v, 4)
}

// TestPanics: Catch returns what recording panics with; other panics are
// those of the program.
func TestPanics(t *testing.T) {
	v := scalar("v", 1)
	panicking := true
	fn := tensor.Function(func(x T) T {
		v.Assign(x.Sum())
		if panicking {
			panic("mine")
		}
		return x
	}, vars{v})
	func() {
		defer func() {
			if r := recover(); r != "mine" {
				t.Errorf("got panic %v, want mine", r)
			}
		}()
		_, err := fn.Call(ctx, f32(4))
		t.Errorf("got error %v, want a panic", err)
	}()
	panicking = false // nothing is locked or bound
	want(t, "after a panic", must[T](t)(fn.Call(ctx, f32(4))), 4)
	want(t, "v", v, 4)

	_, err := tensor.Function(func(x T) T { return x.MatMul(x) }).Call(ctx, tensor.New(make([]float32, 6), 2, 3))
	wantError(t, "shapes", err, "MatMul: inner dimensions differ: float32[2 3] and float32[2 3]")
	var e *tensor.Error
	if !errors.As(err, &e) || e.Op != "MatMul" {
		t.Errorf("got %T", err)
	}
	e = &tensor.Error{Path: "dense", Op: "Call", Err: errors.New("no")}
	if e.Error() != "layer dense: Call: no" {
		t.Errorf("got %q", e)
	}
}

// preconditioned is an owner with a precondition.
type preconditioned struct {
	vars
	err error
}

func init() {
	tensor.RegisterPrecondition(func(o tensor.Stateful) func() error {
		if p, ok := o.(*preconditioned); ok {
			return func() error { return p.err }
		}
		return nil
	})
}

// TestPrecondition: preconditions are checked before every run, also of plans that
// are compiled already.
func TestPrecondition(t *testing.T) {
	k := &preconditioned{vars: vars{scalar("v", 0)}}
	fn := tensor.Function(func(x T) T {
		k.vars[0].Assign(k.vars[0].Value().Add(x))
		return x
	}, k)
	x := tensor.Scalar(k.vars[0].DType(), 1)
	calls := map[string]func() error{
		"Call":     func() error { _, err := fn.Call(ctx, x); return err },
		"Run":      func() error { return fn.Run(ctx, x) },
		"Plan":     func() error { _, err := fn.Plan(x); return err },
		"MemoryOf": func() error { _, err := fn.MemoryOf(x); return err },
		"Watch":    func() error { return fn.Watch(ctx, x, func(*ir.Value, []byte) error { return nil }) },
		"Trace":    func() error { return fn.Trace(ctx, x, io.Discard) },
		"Times":    func() error { _, err := fn.Times(ctx, x); return err },
	}
	for _, err := range []error{nil, errors.New("it has changed"), nil} {
		k.err = err
		for name, call := range calls {
			if got := call(); err == nil && got != nil || err != nil && (got == nil || got.Error() != err.Error()) {
				t.Errorf("%s: got %v, want %v", name, got, err)
			}
		}
	}
	want(t, "calls that ran", k.vars[0], 8) // Call, Run, Trace and Times, twice
}

// TestNil: a nil owner and a nil context are errors that name them.
func TestNil(t *testing.T) {
	var none *owner
	identity := func(x T) T { return x }
	x := f32(1)
	for _, c := range []struct {
		owners []tensor.Stateful
		text   string
	}{
		{[]tensor.Stateful{vars{}, none}, "Function: owner 2 of its list is a nil *tensor_test.owner"},
		{[]tensor.Stateful{nil}, "Function: owner 1 of its list is nil"},
	} {
		_, err := tensor.Function(identity, c.owners...).Call(ctx, x)
		wantError(t, "Call", err, c.text)
		wantError(t, "Run", tensor.Function(identity, c.owners...).Run(ctx, x), c.text)
	}
	fn := tensor.Function(identity)
	var noContext context.Context
	_, err := fn.Call(noContext, x)
	wantError(t, "Call", err, "Function: the context is nil; use context.Background()")
	wantError(t, "Run", fn.Run(noContext, x), "Function: the context is nil; use context.Background()")
	wantError(t, "Watch", fn.Watch(noContext, x, nil), "Watch: the context is nil; use context.Background()")
	wantError(t, "Trace", fn.Trace(noContext, x, io.Discard), "Trace: the context is nil; use context.Background()")
	_, err = fn.Times(noContext, x)
	wantError(t, "Times", err, "Times: the context is nil; use context.Background()")
	wantError(t, "Eval", tensor.Eval(noContext, x.Exp()), "Eval: the context is nil; use context.Background()")
}
