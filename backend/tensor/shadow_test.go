package tensor_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/mezzo-ml/mezzo/backend"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
	"github.com/mezzo-ml/mezzo/backend/tensor"
)

// casts counts the casts of a plan to 16 bits of inputs in float32.
func casts(g *ir.Graph) (n int) {
	for _, v := range g.Values {
		if v.Op == op.Cast && v.Type.DType.Is16() && v.Args[0].Op == op.Param && v.Args[0].Type.DType == dtype.Float32 {
			n++
		}
	}
	return n
}

// TestShadows: a function that casts a variable sees what it is at the start of
// each call, whoever wrote it, and casts it itself in none.
func TestShadows(t *testing.T) {
	if backend.Skipping() {
		t.Skip("tests what MEZZO_SKIP leaves out")
	}
	for _, d := range []dtype.DType{dtype.Float16, dtype.BFloat16} {
		v := variable("v", dtype.Float32, 1.001, 2.003, 3.007)
		x := f32(1, 1, 1).Cast(d)
		read := tensor.Function(func(x T) T { return v.Value().Cast(d).Mul(x) })
		step := tensor.Function(func(x T) none {
			v.Assign(v.Value().Cast(d).Mul(x).Cast(dtype.Float32).Add(v.Value().MulScalar(0.3)))
			return none{}
		}, vars{v})
		other := tensor.Function(func(x T) none { // does not read the copy
			v.Assign(v.Value().MulScalar(1.37))
			return none{}
		}, vars{v})
		check := func(what string) {
			t.Helper()
			var now []float64
			for _, e := range values(t, v) {
				now = append(now, float64(d.Round(float32(e))))
			}
			want(t, fmt.Sprintf("%v: %s", d, what), must[T](t)(read.Call(ctx, x)), now...)
		}
		run := func(what string, fn *tensor.Func[T, none]) {
			t.Helper()
			if err := fn.Run(ctx, x); err != nil {
				t.Fatal(err)
			}
			check(what)
		}
		run("before anybody reads a cast", other)
		check("again")
		run("a step", step)
		run("another step", step)
		run("written by a program made before the copy", other)
		run("a step after it", step)
		if err := v.Set([]float64{0.1, 0.2, 0.3}); err != nil {
			t.Fatal(err)
		}
		check("Set")
		held := v.Value()
		run("with the old value held", step)
		want(t, "held", held, float64(float32(0.1)), float64(float32(0.2)), float64(float32(0.3)))
		if err := v.Reset(); err != nil {
			t.Fatal(err)
		}
		check("Reset")
		late := tensor.Function(func(x T) none { // writes the copy, which it does not read
			v.Assign(v.Value().MulScalar(1.73))
			return none{}
		}, vars{v})
		run("written blindly", late)
		if p := must[*ir.Graph](t)(late.Plan(x)); len(p.Outputs) != 2 || p.Outputs[1].Type.DType != d {
			t.Errorf("%v: a program that assigns a variable does not write its copy:\n%v", d, p)
		}
		cancelled, cancel := context.WithCancel(ctx)
		cancel()
		if err := late.Run(cancelled, x); err == nil {
			t.Error("a cancelled run has no error")
		}
		check("cancelled")
		for what, fn := range map[string]*tensor.Func[T, none]{"step": step, "late": late} {
			if n := testing.AllocsPerRun(20, func() {
				if err := fn.Run(ctx, x); err != nil {
					t.Error(err)
				}
			}); n != 0 {
				t.Errorf("%v: %s: %v allocations, want 0", d, what, n)
			}
		}
		for _, p := range []*ir.Graph{must[*ir.Graph](t)(read.Plan(x)), must[*ir.Graph](t)(step.Plan(x))} {
			if casts(p) != 0 || !strings.Contains(p.String(), "v ("+d.String()+")") {
				t.Errorf("%v: a program casts the variable:\n%v", d, p)
			}
		}
		if m := must[tensor.Memory](t)(step.MemoryOf(x)); m.Variables != 3*(4+2) {
			t.Errorf("%v: variables take %d bytes, want 18 with the copy", d, m.Variables)
		}
		step.KeepCasts(false)
		if p := must[*ir.Graph](t)(step.Plan(x)); casts(p) == 0 && !strings.Contains(p.String(), ":"+d.String()) {
			t.Errorf("%v: without kept casts there is none:\n%v", d, p)
		}
		run("without kept casts", step)
	}
}

// TestShadowsTogether: copies are right for every choice of passes, and when
// results are the casts themselves.
func TestShadowsTogether(t *testing.T) {
	for _, d := range []dtype.DType{dtype.Float16, dtype.BFloat16} {
		for _, o := range []ir.Options{{}, {Check: true}, {Skip: ir.OptionalPasses()}, {Skip: []string{"donate"}}, {Skip: []string{"dce"}}, {Watch: true}} {
			v, w := variable("v", dtype.Float32, 0.1, 0.7), variable("w", dtype.Float32, 0.3, 0.9)
			fn := tensor.Function(func(x T) []T {
				a, b := v.Value().Cast(d), w.Value().Cast(d)
				v.Assign(w.Value()) // exchanged
				w.Assign(a.Cast(dtype.Float32).Add(x))
				return []T{a, b, a.Mul(b)}
			}, vars{v, w})
			fn.Options(o)
			for range 3 {
				a, b := d.Round(float32(values(t, v)[0])), d.Round(float32(values(t, w)[0]))
				got := must[[]T](t)(fn.Call(ctx, f32(0.01, 0.02)))
				for i, x := range []float32{a, b, d.Round(a * b)} {
					if y := values(t, got[i])[0]; y != float64(x) {
						t.Errorf("%v, %+v: result %d is %v, want %v", d, o, i, y, x)
					}
				}
			}
		}
	}
}
