package tensor_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/pprof"
	"strings"
	"testing"

	"github.com/mezzo-ml/mezzo/backend"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
	"github.com/mezzo-ml/mezzo/backend/tensor"
)

// TestEager: computing each operation at once gives the bits of the compiled
// step.
func TestEager(t *testing.T) {
	for _, d := range computeTypes {
		want := newMLP(d, dtype.Float32).train(t, ir.Options{})
		t.Run(d.String(), func(t *testing.T) {
			debugging(t, backend.Debug{Eager: true})
			if !bytes.Equal(newMLP(d, dtype.Float32).train(t, ir.Options{}), want) {
				t.Error("other bits than the compiled step")
			}
		})
	}
}

// TestEagerSemantics runs the tests of what a Function means in eager mode.
func TestEagerSemantics(t *testing.T) {
	debugging(t, backend.Debug{Eager: true})
	t.Run("results", TestResults)
	t.Run("snapshots", TestSnapshots)
	t.Run("values as arguments", TestValueAsArgument)
	t.Run("assign", TestAssignErrors)
	t.Run("owners", TestForgottenOwner)
	t.Run("variables made inside", TestVariablesMadeInside)
	t.Run("transaction", TestTransaction)
	t.Run("gates", TestPredicated)
	t.Run("marks", TestMarks)
	t.Run("each", TestEach)
	t.Run("panics", TestPanics)
	t.Run("in place", TestInPlace) // plans are those of compiled mode
	fn := tensor.Function(func(x T) T {
		y := x.Exp()
		want(t, "read inside", y, 1)
		return y
	})
	want(t, "result", must[T](t)(fn.Call(ctx, f32(0))), 1)
	// The line that cannot be computed is the one that fails.
	err := catch(func() {
		f32(1).Gather(indices(3))
		t.Error("recorded on")
	})
	wantError(t, "index", err, "Gather: Gather: index 3 at position 0 is out of range, want 0 to 0")
}

// logStep takes the logarithm of a weight in layer dense.
func logStep(v V) *tensor.Func[T, T] {
	return tensor.Function(func(x T) T {
		since := tensor.SequencePoint()
		y := v.Value().Mul(x).Log()
		tensor.Label("dense", since, y)
		z := y.AddScalar(1)
		v.Assign(z)
		return z.Sum()
	}, vars{v})
}

const madeNaN = "layer dense: Log made a NaN in float32[2] (invalid operation; its inputs were finite)"

// TestNaNInLoop: the values of a loop's steps are shown, too, each of them apart.
func TestNaNInLoop(t *testing.T) {
	fn := tensor.Function(func(x T) T {
		y, _ := tensor.Loop([]T{x}, []T{tensor.Zeros(dtype.Float32)}, false, func(x, last []T) (y, next []T) {
			z := x[0].Log().AddScalar(1).Add(last[0])
			return []T{z}, []T{z}
		})
		return y[0].Sum()
	})
	first := must[*tensor.NonFinite](t)(fn.FirstNonFinite(ctx, f32(2, 3, -1)))
	wantError(t, "FirstNonFinite", first, "Log made a NaN in float32[] (invalid operation; its inputs were finite)")
	seen := map[op.Code]int{}
	if err := fn.Watch(ctx, f32(2, 3, 4), func(v *ir.Value, _ []byte) error {
		seen[v.Op]++
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if seen[op.Log] != 3 || seen[op.Loop] != 1 {
		t.Errorf("got %v, want the logarithm of each of three steps, and the loop", seen)
	}
}

func TestNaN(t *testing.T) {
	v := variable("dense/kernel", dtype.Float32, 1, -2)
	first := must[*tensor.NonFinite](t)(logStep(v).FirstNonFinite(ctx, f32(1, 1)))
	wantError(t, "FirstNonFinite", first, madeNaN)
	want(t, "Watch changes nothing", v, 1, -2)
	if first := must[*tensor.NonFinite](t)(logStep(v).FirstNonFinite(ctx, f32(1, -1))); first != nil {
		t.Errorf("got %v for finite values", first)
	}

	debugging(t, backend.Debug{NaN: true})
	fn := logStep(v)
	_, err := fn.Call(ctx, f32(1, 1))
	wantError(t, "invalid", err, madeNaN)
	var n *tensor.NonFinite
	if !errors.As(err, &n) || n.Path != "dense" || n.Op != op.Log || !n.NaN || n.Given {
		t.Errorf("got %+v", n)
	}
	want(t, "a step that stops changes nothing", v, 1, -2)
	wantError(t, "overflow", fn.Run(ctx, f32(0, -1)), "layer dense: Log made an infinity in float32[2] (overflow; its inputs were finite)")
	wantError(t, "argument", fn.Run(ctx, f32(float32(inf), 1)), "argument 0: an infinity was there before the step, in float32[2]")
	if _, err := fn.Call(ctx, f32(1, -1)); err != nil {
		t.Error(err)
	}
	if err := v.Set([]float64{1, inf - inf}); err != nil {
		t.Fatal(err)
	}
	wantError(t, "variable", fn.Run(ctx, f32(1, 1)), "dense/kernel: a NaN was there before the step, in float32[2]")
	nan := tensor.New([]float64{1, inf}, 2)
	wantError(t, "data", tensor.Function(func(x T) T { return x.Add(nan) }).Run(ctx, nan.Neg().Exp()),
		"data: an infinity was there before the step, in float64[2]")

	debugging(t, backend.Debug{NaN: true, Eager: true})
	_, err = logStep(variable("w", dtype.Float32, 1, -2)).Call(ctx, f32(1, 1))
	wantError(t, "eager", err, "Log: Log made a NaN in float32[2] (invalid operation; its inputs were finite)")
}

// fresh makes each program of TestPrinted one that was not compiled before,
// however often the test runs.
var fresh = 1000.0

// TestPrinted: what MEZZO_DEBUG prints on standard error.
func TestPrinted(t *testing.T) {
	if backend.Skipping() {
		t.Skip("tests what MEZZO_SKIP leaves out")
	}
	step := func() func() {
		fresh++
		v := variable("dense/bias", dtype.Float32, 1, 2)
		fn := tensor.Function(func(x T) none {
			since := tensor.SequencePoint()
			y := x.MulScalar(-fresh).Exp().Add(v.Value())
			v.Assign(y)
			tensor.Label("dense", since, y)
			return none{}
		}, vars{v})
		return func() {
			for range 4 {
				if err := fn.Run(ctx, f32(1, 2)); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	debugging(t, backend.Debug{})
	if got := stderr(t, step()); got != "" {
		t.Errorf("without MEZZO_DEBUG: got %q", got)
	}
	debugging(t, backend.Debug{Graph: true})
	got := stderr(t, step())
	for _, w := range []string{"graph: 6 values\n", fmt.Sprintf("Const() float32[] value=%v  # dense\n", -fresh), "= Param() float32[2]", "# dense/bias\n", "out 0 = %5 may overwrite input 0\n"} {
		if !strings.Contains(got, w) {
			t.Errorf("graph: got\n%swithout %q", got, w)
		}
	}
	if lines(got, "graph: ") != 1 {
		t.Errorf("graph: got\n%swant one graph", got)
	}

	debugging(t, backend.Debug{Passes: true, Check: true})
	got = stderr(t, step())
	if lines(got, "recorded: 6 values\n") != 1 || lines(got, "pass dce: 6 values\n") != 1 || lines(got, "pass fuse: 4 values\n") != 1 {
		t.Errorf("passes: got\n%s", got)
	}
	// Those that run for every device.
	for _, pass := range []string{"simplify", "cse", "precisions", "dce", "reshapes", "fuse", "donate", "schedule", "multioutput", "horizontal", "separable", "slots", "share"} {
		if lines(got, "pass "+pass+": ") != 1 {
			t.Errorf("passes: got\n%swithout %s", got, pass)
		}
	}

	debugging(t, backend.Debug{Plan: true})
	got = stderr(t, step())
	for _, w := range []string{"plan: 4 values; bytes: 0 arena, 16 inputs, 0 outputs, 4 constants\n", "  # dense  @in ", "out 0 = %3 over input 0\n", " ns  %3 = Fused float32[2]  # dense\n"} {
		if !strings.Contains(got, w) {
			t.Errorf("plan: got\n%swithout %q", got, w)
		}
	}
	if n := lines(got, "plan: third run, nanoseconds per step\n"); n != 1 {
		t.Errorf("plan: times printed %d times, want once", n)
	}
}

// TestTraceFile: the third run of each plan is in the file, as a process.
func TestTraceFile(t *testing.T) {
	if backend.Skipping() {
		t.Skip("tests what MEZZO_SKIP leaves out")
	}
	file := filepath.Join(t.TempDir(), "trace.json")
	debugging(t, backend.Debug{Trace: file})
	fn := tensor.Function(func(x T) T {
		since := tensor.SequencePoint()
		y := x.MatMul(x).Exp()
		tensor.Label("dense", since, y)
		return y
	})
	for run := 1; run <= 4; run++ {
		must[T](t)(fn.Call(ctx, f32(1, 2, 3, 4).Reshape(2, 2)))
		must[T](t)(fn.Call(ctx, f32(1).Reshape(1, 1)))
		b, err := os.ReadFile(file)
		if run < 3 {
			if err == nil {
				t.Fatalf("after run %d: got a trace", run)
			}
			continue
		}
		var trace struct {
			TraceEvents []struct {
				Name, Ph string
				Pid      int
			}
		}
		if err := json.Unmarshal(b, &trace); err != nil {
			t.Fatal(err)
		}
		seen := map[int]int{}
		for _, e := range trace.TraceEvents {
			if e.Ph == "X" && e.Name == "dense MatMul" {
				seen[e.Pid]++
			}
		}
		if len(seen) != 2 {
			t.Errorf("after run %d: got products in the processes %v, want two\n%s", run, seen, b)
		}
	}
	debugging(t, backend.Debug{Trace: filepath.Join(file, "none")})
	got := stderr(t, func() {
		for range 3 {
			must[T](t)(tensor.Function(func(x T) T { return x.Exp() }).Call(ctx, f32(1)))
		}
		fn := tensor.Function(func(x T) T { return x.Log() })
		for range 3 {
			must[T](t)(fn.Call(ctx, f32(1)))
		}
	})
	if lines(got, "MEZZO_DEBUG: trace: open ") != 1 {
		t.Errorf("got %q, want a complaint", got)
	}
}

// TestPprofLabels: profiles find the layer and the operation of what runs, and
// nothing when it has run.
func TestPprofLabels(t *testing.T) {
	debugging(t, backend.Debug{Pprof: true})
	fresh++
	fn := tensor.Function(func(x T) T {
		since := tensor.SequencePoint()
		y := x.MulScalar(fresh).Exp()
		tensor.Label("dense", since, y)
		return y
	})
	goroutines := func() string {
		var b strings.Builder
		if err := pprof.Lookup("goroutine").WriteTo(&b, 1); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	seen := ""
	err := fn.Watch(ctx, f32(1, 2), func(v *ir.Value, _ []byte) error {
		if v.Op == op.Exp {
			seen = goroutines()
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if want := `labels: {"layer":"dense", "op":"Exp"}`; !strings.Contains(seen, want) {
		t.Errorf("got\n%s\nwant %s", seen, want)
	}
	if after := goroutines(); strings.Contains(after, `"layer"`) {
		t.Errorf("labels are left:\n%s", after)
	}
}

// TestCheckIsAnotherProgram: the checks run although the program was compiled
// without them before.
func TestCheckIsAnotherProgram(t *testing.T) {
	if backend.Skipping() {
		t.Skip("tests what MEZZO_SKIP leaves out")
	}
	step := func() *ir.Graph {
		return must[*ir.Graph](t)(tensor.Function(func(x T) T { return x.Exp().MulScalar(1234) }).Plan(f32(1)))
	}
	plain := step()
	if step() != plain {
		t.Error("one structure, two programs")
	}
	debugging(t, backend.Debug{Check: true})
	if step() == plain {
		t.Error("the program that was not checked is used")
	}
	// Errors of a run name the layer, so programs do not share across names.
	named := func(path string) *ir.Graph {
		return must[*ir.Graph](t)(tensor.Function(func(x T) T {
			since := tensor.SequencePoint()
			y := x.Exp()
			tensor.Label(path, since, y)
			return y
		}).Plan(f32(1)))
	}
	if a, b := fmt.Sprint(named("dense")), fmt.Sprint(named("head")); a == b || !strings.Contains(b, "# head") {
		t.Errorf("got\n%s%s", a, b)
	}
}
