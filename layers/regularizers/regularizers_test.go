package regularizers

import (
	"math"
	"strings"
	"testing"

	_ "github.com/mezzo-ml/mezzo/backend/cpu"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/backend/tensor/tensortest"
	"github.com/mezzo-ml/mezzo/layers/callspec/callspectest"
)

func get(t testing.TB, text string) Regularizer {
	t.Helper()
	f, err := Get(text)
	if err != nil || f == nil {
		t.Fatalf("%s: got %v, %v", text, f, err)
	}
	return f
}

func TestGolden(t *testing.T) {
	for _, c := range tensortest.Load(t, "../../keras/testdata/golden/regularizers.json").Cases {
		f := get(t, callspectest.Text(&c))
		w := c.Tensor("w")
		y := f(w)
		tensortest.Close(t, c.Name, y, c.Outputs["penalty"], 1)
		want, ok := c.Outputs["grad/w"]
		if !ok {
			continue
		}
		g := tensor.GradientsAt(y, w)[0]
		if g == nil { // l1l2 without arguments depends on nothing
			g = tensor.Zeros(dtype.Float32, want.Shape...)
		}
		// Gradients of the matrix of magnitude 0.01 have magnitude 1, but are
		// differences of terms of 1/0.01.
		scale := 1.0
		if strings.HasSuffix(c.Name, "small") {
			scale = 100
		}
		tensortest.Close(t, c.Name+" gradient", g, want, scale)
	}
}

// TestTypes: a penalty is float32 whatever the weight, computed without
// rounding to 16 bits, and its gradient has the weight's type.
func TestTypes(t *testing.T) {
	for _, d := range dtype.Floats() {
		// Σw² is 147456, Σ|w| 196608: both overflow float16.
		data := make([]float64, 1<<18)
		for i := range data {
			data[i] = 0.75
		}
		a := tensortest.Of(d, data, 1<<9, 1<<9)
		for s, want := range map[string]float64{"l2(0.5)": 0.5 * 0.5625 * (1 << 18), "l1(1)": 0.75 * (1 << 18), "l1l2(1, 0.5)": (0.75 + 0.5*0.5625) * (1 << 18)} {
			w := a.Tensor()
			y := get(t, s)(w)
			tensortest.Close(t, s+" "+d.String(), y, tensortest.Of(dtype.Float32, []float64{want}), 1)
			if g := tensor.GradientsAt(y, w)[0]; y.DType() != dtype.Float32 || g.DType() != d {
				t.Errorf("%s of %v: got %v and a gradient of %v, want float32 and %v", s, d, y.Type(), g.Type(), d)
			}
		}
	}
}

// TestGradients checks float64 gradients, which Keras's float32 ones do not.
func TestGradients(t *testing.T) {
	x := tensortest.Of(dtype.Float64, []float64{0.5, -0.3, 0.8, 1.2, 0.4, -0.9}, 2, 3)
	for _, s := range []string{"l1(0.1)", "l2(0.1)", "l1l2(0.2, 0.3)", "orthogonal_regularizer(0.5)", "orthogonal_regularizer(0.5, columns)"} {
		f := get(t, s)
		w := x.Tensor()
		got, err := tensor.GradientsAt(f(w), w)[0].Float64s()
		if err != nil {
			t.Fatal(err)
		}
		for i := range x.Data {
			at := func(d float64) float64 {
				y := tensortest.Of(x.DType, x.Data, x.Shape...)
				y.Data[i] += d
				v, err := f(y.Tensor()).Item()
				if err != nil {
					t.Fatal(err)
				}
				return v
			}
			// The penalty is rounded to float32: an error of 6e-8 of at most 1,
			// over 2h = 2e-3, next to h² = 1e-6 for the difference.
			if want := (at(1e-3) - at(-1e-3)) / 2e-3; math.Abs(got[i]-want) > 1e-4 {
				t.Errorf("%s: gradient %d: got %v, want %v", s, i, got[i], want)
			}
		}
	}
}

// TestOrthogonalDegenerate: vectors of zeros and single vectors have no angles.
func TestOrthogonalDegenerate(t *testing.T) {
	w := tensor.New([]float32{0, 0, 1, 2}, 2, 2)
	y := get(t, "orthogonal_regularizer")(w)
	tensortest.Close(t, "penalty", y, tensortest.Of(dtype.Float32, []float64{0}), 1)
	tensortest.Close(t, "gradient", tensor.GradientsAt(y, w)[0], tensortest.Of(dtype.Float32, make([]float64, 4), 2, 2), 1)
	one := get(t, "OrthogonalRegularizer(mode=columns)")(tensor.New([]float32{1, 2}, 2, 1))
	tensortest.Close(t, "one column", one, tensortest.Of(dtype.Float32, []float64{0}), 1)
}

func TestErrors(t *testing.T) {
	if f, err := Get(""); f != nil || err != nil {
		t.Errorf(`"": got %v, %v, want nil, nil`, f, err)
	}
	for text, want := range map[string]string{
		"l3":                                `unknown regularizer "l3"; have l1, l1_l2, l1l2, l2, orthogonal_regularizer`,
		"l2(l1=0.1)":                        `unknown argument "l1" of l2; have l2`,
		"L1L2(l3=0.1)":                      `unknown argument "l3" of l1l2; have l1, l2`,
		"l1(-1)":                            "argument l1 of l1: got -1.0, want 0 or more",
		"orthogonal_regularizer(factor=-1)": "argument factor of orthogonal_regularizer: got -1.0, want 0 or more",
		"orthogonal_regularizer(mode=all)":  `argument mode of orthogonal_regularizer: got "all", want one of rows, columns`,
	} {
		if f, err := Get(text); f != nil || err == nil || err.Error() != want {
			t.Errorf("%s: got error %v, want %s", text, err, want)
		}
	}
	var err error
	func() {
		defer tensor.Catch(&err)
		get(t, "orthogonal_regularizer")(tensor.Zeros(dtype.Float32, 3))
	}()
	if want := "orthogonal_regularizer: got a weight of shape [3], want a matrix"; err == nil || err.Error() != want {
		t.Errorf("got error %v, want %s", err, want)
	}
}
