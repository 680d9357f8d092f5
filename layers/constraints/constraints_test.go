package constraints

import (
	"math"
	"testing"

	_ "github.com/mezzo-ml/mezzo/backend/cpu"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/backend/tensor/tensortest"
	"github.com/mezzo-ml/mezzo/layers/callspec/callspectest"
)

func get(t testing.TB, text string) Constraint {
	t.Helper()
	f, err := Get(text)
	if err != nil || f == nil {
		t.Fatalf("%s: got no constraint, error %v", text, err)
	}
	return f
}

func TestGolden(t *testing.T) {
	for _, c := range tensortest.Load(t, "../../keras/testdata/golden/constraints.json").Cases {
		w := get(t, callspectest.Text(&c))(c.Inputs["w"].Tensor())
		tensortest.Close(t, c.Name, w, c.Outputs["w"], 1)
	}
}

// TestVector131 is Keras's test of MaxNorm: columns of norm 0, 1, 3 and 3·√3.
func TestVector131(t *testing.T) {
	w := tensor.New([]float32{0, 1, 3, 3, 0, 0, 0, 3, 0, 0, 0, 3}, 3, 4)
	third := 2 / math.Sqrt(3)
	want := tensortest.Of(dtype.Float32, []float64{0, 1, 2, third, 0, 0, 0, third, 0, 0, 0, third}, 3, 4)
	tensortest.Close(t, "max_norm(2)", get(t, "max_norm(2)")(w), want, 1)
}

// TestTypes: the result has the weight's type, and a norm whose square
// overflows float16 is right.
func TestTypes(t *testing.T) {
	for _, d := range dtype.Floats() {
		w := tensortest.Of(d, []float64{300, -1, 400, 0.5}, 2, 2)
		for s, want := range map[string][]float64{
			"max_norm(5)":               {3, -1, 4, 0.5},
			"min_max_norm(1, 5, 0.5)":   {151.5, -1, 202, 0.5}, // norms 500 and √1.25, one of which is within 1 … 5
			"non_neg":                   {300, 0, 400, 0.5},
			"unit_norm(axis=[0, 1])":    {0.6, -0.002, 0.8, 0.001},
			"max_norm(1, axis=(0, -1))": {0.6, -0.002, 0.8, 0.001},
		} {
			got := get(t, s)(w.Tensor())
			if got.DType() != d {
				t.Errorf("%s: got %v, want %v", s, got.Type(), d)
			}
			exact := tensortest.Of(dtype.Float64, want, 2, 2)
			// ε shortens vectors by 1e-7, and the √250001.25 of the whole
			// matrix is 500.00125: relative 2.5e-6.
			tensortest.Close(t, s+" "+d.String(), got.Cast(dtype.Float32), exact, tolerance(d))
		}
	}
}

// tolerance is that of d, in units of float32's, and 4e-6 for what TestTypes
// rounds off.
func tolerance(d dtype.DType) float64 {
	rel, _ := d.Tolerance()
	unit, _ := dtype.Float32.Tolerance()
	return (rel + 4e-6) / unit
}

func TestErrors(t *testing.T) {
	if f, err := Get(""); f != nil || err != nil {
		t.Errorf(`"": got a constraint or error %v, want neither`, err)
	}
	for text, want := range map[string]string{
		"maxnorm":                `unknown constraint "maxnorm"; did you mean "max_norm"? have max_norm, min_max_norm, non_neg, unit_norm`,
		"MaxNorm(max=1)":         `unknown argument "max" of max_norm; did you mean "max_value"? have max_value, axis`,
		"max_norm(-1)":           "argument max_value of max_norm: got -1.0, want 0 or more",
		"max_norm(axis=x)":       `argument axis of max_norm: got "x", want an integer or a list of integers`,
		"min_max_norm(2)":        "argument min_value of min_max_norm: got 2.0, want at most max_value, 1",
		"min_max_norm(-1)":       "argument min_value of min_max_norm: got -1.0, want 0 or more",
		"min_max_norm(rate=1.5)": "argument rate of min_max_norm: got 1.5, want 0 to 1",
		"non_neg(0)":             "too many arguments of non_neg: got 1; it takes none",
	} {
		if f, err := Get(text); f != nil || err == nil || err.Error() != want {
			t.Errorf("%s: got error %v, want %s", text, err, want)
		}
	}
	var err error
	func() {
		defer tensor.Catch(&err)
		get(t, "unit_norm(axis=2)")(tensor.Zeros(dtype.Float32, 3, 3))
	}()
	if err == nil {
		t.Error("axis 2 of a matrix: got no error")
	}
}
