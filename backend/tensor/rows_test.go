package tensor_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/mezzo-ml/mezzo/backend"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
	"github.com/mezzo-ml/mezzo/backend/tensor"
)

func TestUnique(t *testing.T) {
	places, distinct := tensor.Unique(tensor.New([]int32{7, 2, 7, 0, 2, 9}, 2, 3), 10)
	want(t, "places", places, 0, 1, 0, 2, 1, 3)
	want(t, "distinct", distinct, 7, 2, 0, 9, 10, 10)
}

func TestScatterUpdate(t *testing.T) {
	x := tensor.New([]float32{1, 2, 3, 4, 5, 6}, 3, 2)
	rows := tensor.New([]float32{10, 20, 30, 40, 50, 60}, 3, 2)
	want(t, "rows", tensor.ScatterUpdate(x, indices(2, 3, 2), rows), 1, 2, 3, 4, 50, 60)
	want(t, "argument", x, 1, 2, 3, 4, 5, 6)
}

// TestSparseRows: rows at their indices are all that a tensor holds, to the bit.
func TestSparseRows(t *testing.T) {
	idx := indices(7, 2, 7, 0)
	g := tensor.New(randoms(1, 12, -1, 1), 4, 3).Cast(dtype.Float32)
	more := tensor.New(randoms(2, 6, -1, 1), 1, 2, 3).Cast(dtype.Float32)
	half := dtype.Float16
	three := tensor.Scalar(dtype.Float32, 3)
	const n = 20
	s := g.ScatterAdd(idx, n)
	for name, c := range map[string]struct {
		x  T
		ok bool
	}{
		"scatter":             {s, true},
		"quotient":            {s.Div(three), true},
		"products":            {three.Mul(s).Mul(three).Neg(), true},
		"casts":               {g.Cast(half).ScatterAdd(idx, n).Cast(dtype.Float32).Cast(half), true},
		"limits":              {s.Clip(-0.5, 0.25), true},
		"two":                 {s.Add(more.ScatterAdd(tensor.New([]int32{2, 5}, 1, 2), n)).DivScalar(3), true},
		"difference":          {s.Sub(s.DivScalar(7)), true},
		"sum with a scalar":   {s.AddScalar(1), false},
		"a limit above 0":     {s.MaximumScalar(0.5), false},
		"quotient of scalars": {three.Div(s), false},
		"product of tensors":  {s.Mul(tensor.Ones(dtype.Float32, n, 3)), false},
		"dense":               {tensor.Ones(dtype.Float32, n, 3), false},
		"more rows than room": {g.ScatterAdd(indices(0, 1, 2, 3), 4), false},
		"other indices":       {s.Add(g.ScatterAdd(idx.Cast(dtype.Int64), n)), false},
		"no rows":             {tensor.Zeros(dtype.Float32, 0, 3).ScatterAdd(tensor.Zeros(dtype.Int32, 0), n), false},
		"scalar":              {three, false},
	} {
		at, rows, ok := tensor.SparseRows(c.x)
		if ok != c.ok {
			t.Errorf("%s: got %v, want %v", name, ok, c.ok)
		}
		if ok {
			again := tensor.ScatterUpdate(tensor.Zeros(c.x.DType(), n, 3), at, rows)
			want(t, name, again, values(t, c.x)...)
		}
	}
}

// TestAssignRows: rows of a variable change in place, and not where a step is
// gated; what lies between the rows is neither read nor written.
func TestAssignRows(t *testing.T) {
	for _, d := range []dtype.DType{dtype.Float32, dtype.Float16, dtype.BFloat16} {
		data := make([]float64, 2*9)
		for i := range data {
			data[i] = float64(i)
		}
		for _, skip := range [][]string{nil, {"donate"}, ir.OptionalPasses()} {
			what := fmt.Sprintf("%v without %q", d, skip)
			v := tensor.NewVariable("v", d, tensor.Shape{9, 2}, func(dst []float64) error {
				copy(dst, data)
				return nil
			})
			fn := tensor.Function(func(ok T) none {
				at, rows, _ := tensor.SparseRows(tensor.Ones(d, 3, 2).ScatterAdd(indices(4, 8, 4), 9))
				tensor.Predicated(ok.GreaterScalar(0), func() {
					v.AssignRows(at, v.Rows(at).Add(rows))
				})
				return none{}
			}, vars{v})
			fn.Options(ir.Options{Skip: skip, Check: true})
			for i := range 3 {
				if err := fn.Run(ctx, tensor.Scalar(dtype.Float32, float64(i%2))); err != nil {
					t.Fatal(err)
				}
			}
			expect := append([]float64{}, data...)
			expect[8], expect[9], expect[16], expect[17] = 10, 11, 17, 18
			want(t, what, v, expect...)
			if skip != nil {
				continue
			}
			g := must[*ir.Graph](t)(fn.Plan(tensor.Scalar(dtype.Float32, 0)))
			for _, x := range g.Values {
				if x.Op == op.ScatterUpdate && x.Slot != x.Args[0].Slot && !backend.Skipping() {
					t.Errorf("%s: rows are put into a copy\n%v", what, g)
				}
			}
			if err := g.Verify(); err != nil {
				t.Error(err)
			}
		}
	}
	v := scalar("v", 1)
	err := func() (err error) {
		defer tensor.Catch(&err)
		v.AssignRows(indices(0), f32(1))
		return nil
	}()
	if err == nil || !strings.Contains(err.Error(), "AssignRows: variable v is assigned outside a Function") {
		t.Errorf("got %v", err)
	}
}
