package activations

import (
	"errors"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	_ "github.com/mezzo-ml/mezzo/backend/cpu"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/backend/tensor/tensortest"
	"github.com/mezzo-ml/mezzo/layers/callspec/callspectest"
)

const golden = "../../keras/testdata/golden/activations.json"

func get(t testing.TB, text string) Func {
	t.Helper()
	f, err := Get(text)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// gradient is that of sum(f(x)·r) by x.
func gradient(f Func, x, r *tensor.Tensor) *tensor.Tensor {
	return tensor.GradientsAt(f(x).Mul(r).Sum(), x)[0]
}

// wrong tells where Keras 3.15.1 is wrong, by class: element i of x.
var wrong = map[string]func(c *tensortest.Case, i int) bool{
	// The gradient at 0 is given to both halves of the formula, which makes 2.
	"celu": func(c *tensortest.Case, i int) bool { return c.Inputs["x"].Data[i] == 0 },
	// Where several elements are positive the result does not sum to 1
	// (keras-team/keras#23425, fixed by #23469). TestSparsemax covers those.
	"sparsemax": func(c *tensortest.Case, i int) bool {
		y, sum := c.Outputs["y"], 0.0
		n := y.Shape[1]
		for _, v := range y.Data[i/n*n : i/n*n+n] {
			sum += v
		}
		return sum != 1
	},
}

// TestGolden compares values with Keras in all types, 16-bit ones with what
// Keras computes in float32, and gradients, at kinks too.
func TestGolden(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range tensortest.Load(t, golden).Cases {
		seen[c.Class()] = true
		f := get(t, callspectest.Text(&c, "kinks"))
		d, err := dtype.Parse(c.Policy)
		if err != nil {
			t.Fatal(err)
		}
		name := c.Name + " " + c.Policy
		x := c.Inputs["x"].As(d)
		at := x.Tensor()
		y := f(at)
		if want := c.Outputs["y"]; y.DType() != d || !y.Shape().Equal(want.Shape) {
			t.Fatalf("%s: got %v, want %v%v", name, y.Type(), d, want.Shape)
		}
		skip := func(i int) bool { return wrong[c.Class()] != nil && wrong[c.Class()](&c, i) }
		compare := func(what string, got *tensor.Tensor, want tensortest.Array, scale float64, skip func(int) bool) {
			data, err := got.Float64s()
			if err != nil {
				t.Fatal(err)
			}
			for i, w := range want.Data {
				if !skip(i) && !tensortest.Within(d, data[i], w, scale) {
					t.Errorf("%s: %s %d: got %v, want %v", name, what, i, data[i], w)
				}
			}
		}
		values := func(i int) bool { return c.Class() == "sparsemax" && skip(i) }
		if d.Is16() {
			compare("value", y, c.Outputs["y_float32"], 1, values)
			continue
		}
		// The largest arguments and results have magnitude 10.
		compare("value", y, c.Outputs["y"], 10, values)
		g := gradient(f, at, c.Tensor("r"))
		compare("gradient", g, c.Outputs["grad/x"], 10, skip)
	}
	for name := range table.Make {
		if alias := name == "swish" || name == "hard_swish"; !alias && !seen[name] {
			t.Errorf("%s: got no golden case, want at least one", name)
		}
	}
}

// all are specs for every activation.
func all() []string {
	specs := slices.Sorted(maps.Keys(table.Make))
	specs = slices.DeleteFunc(specs, func(s string) bool { return s == "threshold" })
	return append(specs, "threshold(0.3, -0.1)", "relu(negative_slope=0.3, max_value=5.3, threshold=0.7)", "relu(max_value=3.1)",
		"gelu(approximate=True)", "elu(alpha=0.3)", "celu(alpha=0.7)", "softmax(axis=0)", "sparsemax(axis=0)", "squareplus(b=0.1)")
}

// TestRoundsOnce: a 16-bit result is the float32 result, rounded.
func TestRoundsOnce(t *testing.T) {
	var data []float64
	for x := -9.0; x < 9; x += 0.0703125 {
		data = append(data, x)
	}
	for _, d := range []dtype.DType{dtype.Float16, dtype.BFloat16} {
		x := tensortest.Of(d, data, 2, len(data)/2)
		for _, s := range all() {
			f := get(t, s)
			got, err := f(x.Tensor()).Values()
			if err != nil {
				t.Fatal(err)
			}
			want, err := f(x.As(dtype.Float32).Tensor()).Values()
			if err != nil {
				t.Fatal(err)
			}
			for i := range want {
				if w := d.Round(want[i]); got[i] != w {
					t.Errorf("%s of %v in %v: got %v, want %v", s, x.Data[i], d, got[i], w)
					break
				}
			}
		}
	}
}

// TestLargeArguments: values and gradients of large arguments in float32 are
// those of float64, and so neither NaN nor, but for exponential, infinite.
func TestLargeArguments(t *testing.T) {
	at := []float64{-1e4, -100, -30, -5, 5, 30, 100, 1e4}
	for _, s := range all() {
		f := get(t, s)
		data := at
		if s == "exponential" {
			data = []float64{-1e4, -100, -30, -5, 5, 30, 80, 85} // eˣ is infinite beyond 88
		}
		results := map[dtype.DType][2][]float64{}
		for _, d := range []dtype.DType{dtype.Float32, dtype.Float64} {
			x := tensortest.Of(d, data, 4, 2).Tensor()
			y := f(x)
			r := tensor.Iota(d, y.Shape()...).AddScalar(1)
			g := tensor.GradientsAt(y.Mul(r).Sum(), x)[0]
			var both [2][]float64
			for i, v := range []*tensor.Tensor{y, g} {
				var err error
				if both[i], err = v.Float64s(); err != nil {
					t.Fatal(err)
				}
			}
			results[d] = both
		}
		for i, what := range []string{"value", "gradient"} {
			for k, want := range results[dtype.Float64][i] {
				got := results[dtype.Float32][i][k]
				// Magnitudes are at most 100 where results are not of the
				// magnitude of the argument; rel covers the others.
				if math.IsNaN(want) || math.IsInf(want, 0) || !tensortest.Within(dtype.Float32, got, want, 100) {
					t.Errorf("%s: %s %d at %v: got %v, want %v", s, what, k, data, got, want)
				}
			}
		}
	}
}

// TestGradients compares gradients with differences, away from kinks.
func TestGradients(t *testing.T) {
	x := tensortest.Of(dtype.Float64, []float64{-7.1, -2.2, -1.3, -0.61, -0.23, 0.13, 0.37, 0.82, 1.7, 3.4}, 2, 5)
	for _, s := range all() {
		f := get(t, s)
		at := x
		if s == "glu" {
			at.Shape = []int{5, 2}
		}
		tensortest.CheckGradient(t, s, at, func(x *tensor.Tensor) *tensor.Tensor {
			y := f(x)
			return y.Mul(tensor.Iota(dtype.Float64, y.Shape()...).AddScalar(1)).Sum()
		})
	}
}

// TestSmoothAtZero: at 0 the smooth functions have their gradient, though their
// formulas have kinks there.
func TestSmoothAtZero(t *testing.T) {
	for s, want := range map[string]float64{"softplus": 0.5, "squareplus": 0.5, "log_sigmoid": 0.5, "mish": 0.6,
		"elu": 1, "celu": 1, "celu(alpha=3)": 1, "softsign": 1, "silu": 0.5, "gelu": 0.5} {
		x := tensor.New([]float32{0}, 1)
		g, err := gradient(get(t, s), x, tensor.Ones(dtype.Float32, 1)).Item()
		if err != nil || !tensortest.Within(dtype.Float32, g, want, 1) {
			t.Errorf("%s: got gradient %v, %v at 0, want %v", s, g, err, want)
		}
	}
}

// TestTails: gradients keep their relative accuracy where they are near 0, to a
// few units and what rounding the argument of an exponential leaves, which
// grows with that argument. Results of 16 bits are rounded once more.
func TestTails(t *testing.T) {
	exp := func(factor, width float64) func(x float64) (float64, float64) {
		return func(x float64) (float64, float64) {
			if x > 0 {
				return 1, 0
			}
			return factor * math.Exp(x/width), x / width
		}
	}
	normal := func(x float64) (float64, float64) {
		pdf := math.Exp(-x*x/2) / math.Sqrt(2*math.Pi)
		return math.Erfc(-x/math.Sqrt2)/2 + x*pdf, 0
	}
	for text, f := range map[string]func(x float64) (want, argument float64){
		"elu":             exp(1, 1),
		"elu(alpha=0.3)":  exp(0.3, 1),
		"celu":            exp(1, 1),
		"celu(alpha=0.3)": exp(1, 0.3),
		"selu": func(x float64) (float64, float64) {
			if x >= 0 {
				return 1.0507009873554805, 0
			}
			return 1.0507009873554805 * 1.6732632423543772 * math.Exp(x), 0
		},
		"gelu": normal,
		"gelu(approximate=True)": func(x float64) (float64, float64) {
			u := 2 * math.Sqrt(2/math.Pi) * (x + 0.044715*x*x*x)
			s := 1 / (1 + math.Exp(-u))
			return s + x*s/(1+math.Exp(u))*2*math.Sqrt(2/math.Pi)*(1+3*0.044715*x*x), u
		},
		"softsign": func(x float64) (float64, float64) { return 1 / (1 + math.Abs(x)) / (1 + math.Abs(x)), 0 },
	} {
		activation := get(t, text)
		for _, d := range []dtype.DType{dtype.Float64, dtype.Float32, dtype.BFloat16, dtype.Float16} {
			var at []float64
			for x := -85.0; x < 20; x += 0.0625 {
				if _, u := f(x); u > -85 { // above the least normal number
					at = append(at, x)
				}
			}
			x := tensortest.Of(d, at, len(at))
			g, err := gradient(activation, x.Tensor(), tensor.Ones(d, len(at))).Float64s()
			if err != nil {
				t.Fatal(err)
			}
			const unit = 0x1p-23 // of float32, which 16-bit types compute in
			rel, _ := d.Tolerance()
			for i, v := range x.Data {
				want, u := f(v)
				tol := unit*(6+4*math.Abs(u)) + rel*float64(b2i(d.Is16()))
				least := 0x1p-126
				switch d {
				case dtype.Float64:
					tol = 64 * rel * (1 + math.Abs(u))
				case dtype.Float16:
					least = 0x1p-14
				}
				if strings.HasPrefix(text, "gelu") && v > -1.5 && v < 1 { // there is a root
					tol /= math.Min(math.Abs(want), 1)
				}
				if math.Abs(want) < least {
					continue
				}
				if math.Abs(g[i]-want) > tol*math.Abs(want) {
					t.Errorf("%s of %v at %v: got gradient %v, want %v, off by %.3g units of float32", text, d, v, g[i], want, math.Abs(g[i]/want-1)/unit)
				}
			}
		}
	}
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

// sorted is sparsemax of a vector as the paper computes it.
func sorted(z []float64) []float64 {
	s := slices.Sorted(slices.Values(z))
	slices.Reverse(s)
	sum, tau := 0.0, 0.0
	for k, v := range s {
		if sum += v; 1+float64(k+1)*v > sum {
			tau = (sum - 1) / float64(k+1)
		}
	}
	out := make([]float64, len(z))
	for i, v := range z {
		out[i] = max(v-tau, 0)
	}
	return out
}

func TestSparsemax(t *testing.T) {
	rows := [][]float64{{0.5, 0.5, 0.5, 0.5}, {3, 1, 1, -2}, {0.1, 0.3, 0.3, -0.2}, {1e4, 9999.5, 9999.75, -1e4}, {-1, -1, -1.25, -1.5}}
	var data, want []float64
	for _, r := range rows {
		data = append(data, r...)
		want = append(want, sorted(r)...)
	}
	x := tensortest.Of(dtype.Float32, data, 5, 4)
	tensortest.Close(t, "last axis", Sparsemax(x.Tensor(), -1), tensortest.Of(dtype.Float32, want, 5, 4), 1)
	tensortest.Close(t, "first axis", Sparsemax(x.Tensor().Transpose(), 0).Transpose(), tensortest.Of(dtype.Float32, want, 5, 4), 1)
	y := Sparsemax(x.Tensor().Reshape(5, 1, 4, 1), 2).Reshape(5, 4)
	tensortest.Close(t, "inner axis", y, tensortest.Of(dtype.Float32, want, 5, 4), 1)
}

// TestSymbolic: activations keep what is known of a shape while a model is
// built, and a broken tensor stays broken.
func TestSymbolic(t *testing.T) {
	x := tensor.Placeholder(dtype.BFloat16, tensor.Unknown, 6)
	broken := tensor.Broken(errors.New("broken before"))
	for _, s := range all() {
		if strings.HasSuffix(s, "(axis=0)") {
			continue
		}
		want := tensor.Shape{tensor.Unknown, 6}
		if s == "glu" {
			want[1] = 3
		}
		f := get(t, s)
		if y := f(x); !y.Shape().Equal(want) || y.DType() != x.DType() {
			t.Errorf("%s: got %v, want shape %v", s, y.Type(), want)
		}
		if y := f(broken); y.Err() != broken.Err() {
			t.Errorf("%s: got %v, want the broken tensor's error", s, y)
		}
	}
}

func TestErrors(t *testing.T) {
	names := strings.Join(slices.Sorted(maps.Keys(table.Make)), ", ")
	for text, want := range map[string]string{
		"rleu":                     `unknown activation "rleu"; did you mean "relu"? have ` + names,
		"leaky_relu(slope=1)":      `unknown argument "slope" of leaky_relu; did you mean "negative_slope"? have negative_slope`,
		"gelu(approximate=1)":      "argument approximate of gelu: got 1, want True or False",
		"tanh(1)":                  "too many arguments of tanh: got 1; it takes none",
		"threshold(1)":             "argument default_value of threshold is missing; have threshold, default_value",
		"relu(max_value=-1)":       "argument max_value of relu: got -1.0, want 0 or more",
		"relu(negative_slope=-.5)": "argument negative_slope of relu: got -0.5, want 0 or more",
		"celu(0)":                  "argument alpha of celu: got 0.0, want a number other than 0",
		"squareplus(b=0)":          "argument b of squareplus: got 0.0, want more than 0",
		"softmax(axis=None)":       "argument axis of softmax: got None, want an integer",
	} {
		if f, err := Get(text); f != nil || err == nil || err.Error() != want {
			t.Errorf("%s: got error %v, want %s", text, err, want)
		}
	}
	if f := get(t, ""); f == nil {
		t.Error(`"": got nil, want linear`)
	}
	for what, f := range map[string]func(){
		"glu: axis -1 of float32[2 3] has size 3, want an even one": func() { Glu(tensor.Zeros(dtype.Float32, 2, 3), -1) },
		"sparsemax: axis 2 ": func() { Sparsemax(tensor.Zeros(dtype.Float32, 2, 3), 2) },
	} {
		var err error
		func() {
			defer tensor.Catch(&err)
			f()
		}()
		if err == nil || !strings.HasPrefix(err.Error(), what) {
			t.Errorf("got error %v, want %s", err, what)
		}
	}
}
