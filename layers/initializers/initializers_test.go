package initializers

import (
	"encoding/json"
	"maps"
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/mezzo-ml/mezzo/backend"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/philox"
	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/backend/tensor/tensortest"
	"github.com/mezzo-ml/mezzo/layers/callspec/callspectest"
)

func values(t testing.TB, text string, seed uint64, shape ...int) []float64 {
	t.Helper()
	f, err := Get(text)
	if err != nil {
		t.Fatal(err)
	}
	dst := make([]float64, tensor.Shape(shape).Size())
	if err := f(dst, shape, seed); err != nil {
		t.Fatal(err)
	}
	return dst
}

// normal is the normal distribution function.
func normal(z float64) float64 { return 0.5 * math.Erfc(-z/math.Sqrt2) }

// TestGolden compares the distributions with Keras's limits and deviations.
func TestGolden(t *testing.T) {
	for _, c := range tensortest.Load(t, "../../keras/testdata/golden/inits.json").Cases {
		var shape []int
		if err := json.Unmarshal(c.Config["shape"], &shape); err != nil {
			t.Fatal(err)
		}
		text := callspectest.Text(&c, "alias", "shape")
		out := func(name string) float64 {
			if a, ok := c.Outputs[name]; ok && len(a.Data) == 1 {
				return a.Data[0]
			}
			return math.NaN()
		}
		if w, ok := c.Outputs["w"]; ok {
			if got := values(t, text, 1, shape...); !slices.Equal(got, w.Data) {
				t.Errorf("%s: got %v, want %v", text, got, w.Data)
			}
			continue
		}
		if k, ok := c.Outputs["kernel"]; ok {
			// Keras rounds angles of up to 2π·frame/2, half a unit in the last
			// place each time in four operations.
			tol := 2 * math.Pi * float64(shape[0]) * dtype.Float32.Epsilon()
			for i, v := range values(t, text, 1, shape...) {
				if !(math.Abs(v-k.Data[i]) <= tol) {
					t.Errorf("%s: element %d: got %v, want %v", text, i, v, k.Data[i])
				}
			}
			continue
		}
		var sample []float64
		for seed := uint64(0); len(sample) < 20000; seed++ {
			sample = append(sample, values(t, text, seed, shape...)...)
		}
		checkSample(t, c.Name, sample, out)
	}
}

// checkSample compares a sample with what is known of its distribution.
func checkSample(t *testing.T, name string, sample []float64, out func(string) float64) {
	n := float64(len(sample))
	slices.Sort(sample)
	least, most := sample[0], sample[len(sample)-1]
	if v := out("value"); !math.IsNaN(v) {
		if float32(least) != float32(v) || float32(most) != float32(v) {
			t.Errorf("%s: got %v to %v, want %v", name, least, most, v)
		}
		return
	}
	limit, bound, sigma, stddev := out("limit"), out("bound"), out("sigma"), out("stddev")
	// Golden numbers are rounded to float32: 1e-7 of them.
	if top := (1 + 1e-7) * max(0, limit, bound); -least > top || most > top {
		t.Errorf("%s: got values from %v to %v, want within ±%v", name, least, most, top)
	}
	var sum, squares float64
	for _, v := range sample {
		sum += v
		squares += v * v
	}
	// Five standard errors: that of a mean is σ/√n, that of a deviation at most
	// σ/√(2n), the normal distribution having the heaviest tails here.
	if mean := sum / n; math.Abs(mean) > 5*stddev/math.Sqrt(n) {
		t.Errorf("%s: got mean %v of %v numbers with deviation %v, want 0", name, mean, n, stddev)
	}
	if got := math.Sqrt(squares / n); math.Abs(got/stddev-1) > 5/math.Sqrt(2*n) {
		t.Errorf("%s: got deviation %v of %v numbers, want %v", name, got, n, stddev)
	}
	cdf := func(x float64) float64 { return normal(x / sigma) }
	switch {
	case !math.IsNaN(limit):
		cdf = func(x float64) float64 { return (x/limit + 1) / 2 }
	case !math.IsNaN(bound):
		low := normal(-bound / sigma)
		cdf = func(x float64) float64 { return (normal(x/sigma) - low) / (1 - 2*low) }
	}
	// Kolmogorov and Smirnov: the largest distance of the distribution functions
	// exceeds 2.3/√n with probability 2·exp(-2·2.3²) = 5e-5.
	far := 0.0
	for i, x := range sample {
		p := cdf(x)
		far = max(far, p-float64(i)/n, float64(i+1)/n-p)
	}
	if far > 2.3/math.Sqrt(n) {
		t.Errorf("%s: the distribution function is off by %v for %v numbers, want at most %v", name, far, n, 2.3/math.Sqrt(n))
	}
}

// TestNumbers pins how numbers come from Philox: first weights, and with them
// training runs, stay the same.
func TestNumbers(t *testing.T) {
	words := make([]uint32, 8)
	philox.Words(7, 0, stream, 0, words)
	uniform, gauss := values(t, "random_uniform(0, 1)", 7, 4), values(t, "random_normal(stddev=1)", 7, 4)
	for i := range 4 {
		want := (float64((uint64(words[2*i])<<32|uint64(words[2*i+1]))>>12) + 0.5) * 0x1p-52
		if uniform[i] != want {
			t.Errorf("uniform %d: got %v, want %v", i, uniform[i], want)
		}
		// Erfinv is good to about 1e-15 of its result, and cancellation in 2u-1
		// costs no more than that here.
		if p := normal(gauss[i]); math.Abs(p-want) > 1e-14 {
			t.Errorf("normal %d: got %v with probability %v, want %v", i, gauss[i], p, want)
		}
	}
}

func TestSeeds(t *testing.T) {
	for _, s := range []string{"glorot_uniform", "he_normal", "random_normal", "truncated_normal", "orthogonal"} {
		a := values(t, s, 1, 6, 5)
		if !slices.Equal(a, values(t, s, 1, 6, 5)) {
			t.Errorf("%s: got other values for one seed", s)
		}
		if slices.Equal(a, values(t, s, 2, 6, 5)) {
			t.Errorf("%s: got the same values for two seeds", s)
		}
		if !slices.Equal(a, values(t, s+"(seed=1)", 2, 6, 5)) {
			t.Errorf("%s: the spec's seed does not replace the caller's", s)
		}
		if !slices.Equal(a, values(t, s+"(seed=None)", 1, 6, 5)) {
			t.Errorf("%s: seed=None does not leave the caller's seed", s)
		}
	}
	if a := values(t, "uniform(seed=-1)", 0, 9); !slices.Equal(a, values(t, "uniform", math.MaxUint64, 9)) {
		t.Error("seed=-1: got other values than for the same 64 bits")
	}
}

// TestWorkers: values do not depend on the number of processors, for counts of
// elements around those that one goroutine fills.
func TestWorkers(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	for _, text := range []string{"random_uniform", "truncated_normal", "orthogonal"} {
		for _, shape := range [][]int{{chunk - 1, 1}, {2*chunk + 1, 1}, {5*chunk + 3, 1}, {300, 200}} {
			runtime.GOMAXPROCS(1)
			one := values(t, text, 3, shape...)
			runtime.GOMAXPROCS(4)
			if !slices.Equal(one, values(t, text, 3, shape...)) {
				t.Errorf("%s%v: got other values with 4 processors than with 1", text, shape)
			}
		}
	}
	long, short := values(t, "normal", 3, 3*chunk), values(t, "normal", 3, 100)
	if !slices.Equal(long[:100], short) {
		t.Error("normal: the first numbers depend on how many there are")
	}
}

func TestOrthogonal(t *testing.T) {
	for _, shape := range [][]int{{5, 3}, {3, 5}, {4, 4}, {2, 3, 2, 8}, {2, 2, 20}, {1, 1}, {70, 40}} {
		w := values(t, "orthogonal(gain=2)", 5, shape...)
		backend.SetBits(backend.PortableBits)
		for i, v := range values(t, "orthogonal(gain=2)", 5, shape...) {
			if math.Abs(v-w[i]) > 1e-12 {
				t.Fatalf("%v: with portable bits element %d is %v, want %v", shape, i, v, w[i])
			}
		}
		backend.SetBits(backend.FastBits)
		cols := shape[len(shape)-1]
		rows := len(w) / cols
		at := func(i, k int) float64 { return w[k*cols+i] } // column i
		n, m := cols, rows
		if rows < cols {
			at = func(i, k int) float64 { return w[i*cols+k] } // row i
			n, m = rows, cols
		}
		for i := range n {
			for j := range n {
				dot, want := 0.0, 0.0
				if i == j {
					want = 4
				}
				for k := range m {
					dot += at(i, k) * at(j, k)
				}
				// Sums of at most 70 products of magnitude 4 in float64.
				if math.Abs(dot-want) > 1e-13 {
					t.Errorf("%v: got product %v of vectors %d and %d, want %v", shape, dot, i, j, want)
				}
			}
		}
	}
	// Uniform among rotations and reflections: without correction of signs QR
	// always gives the same sign to some elements.
	positive := 0
	for seed := range uint64(400) {
		if values(t, "orthogonal", seed, 1, 1)[0] > 0 {
			positive++
		}
	}
	// Mean 200, deviation 10; five of them.
	if positive < 150 || positive > 250 {
		t.Errorf("got %d of 400 signs positive, want about half", positive)
	}
}

func TestIdentity(t *testing.T) {
	if got := values(t, "Identity(gain=3)", 0, 2, 3); !slices.Equal(got, []float64{3, 0, 0, 0, 3, 0}) {
		t.Errorf("got %v", got)
	}
}

func TestFans(t *testing.T) {
	for _, c := range []struct {
		v       scaling
		shape   []int
		in, out float64
	}{
		{scaling{}, nil, 1, 1},
		{scaling{}, []int{7}, 7, 7},
		{scaling{}, []int{7, 8}, 7, 8},
		{scaling{}, []int{3, 3, 4, 5}, 36, 45},
		{scaling{inputs: []int{0}, outputs: []int{1, 2}}, []int{6, 2, 3}, 6, 6},
		{scaling{inputs: []int{0, 1}, outputs: []int{-1}}, []int{6, 2, 3}, 12, 3},
		{scaling{inputs: []int{0}}, []int{6, 2, 3}, 12, 18}, // as in Keras: both or neither
	} {
		in, out, err := c.v.fans(c.shape)
		if err != nil || in != c.in || out != c.out {
			t.Errorf("%v %v: got %v, %v, %v, want %v, %v", c.v, c.shape, in, out, err, c.in, c.out)
		}
	}
}

func TestErrors(t *testing.T) {
	names := strings.Join(slices.Sorted(maps.Keys(table.Make)), ", ")
	for text, want := range map[string]string{
		"":                                   "no initializer given",
		"xavier":                             `unknown initializer "xavier"; have ` + names,
		"random_normal(sttdev=1)":            `unknown argument "sttdev" of random_normal; did you mean "stddev"? have mean, stddev, seed`,
		"random_normal(stddev=-1)":           "argument stddev of random_normal: got -1.0, want 0 or more",
		"uniform(1, 0)":                      "argument minval of uniform: got 1.0, want at most maxval, 0",
		"variance_scaling(0)":                "argument scale of variance_scaling: got 0.0, want more than 0",
		"variance_scaling(mode=fan)":         `argument mode of variance_scaling: got "fan", want one of fan_in, fan_out, fan_avg`,
		"variance_scaling(distribution=all)": `argument distribution of variance_scaling: got "all", want one of uniform, truncated_normal, untruncated_normal`,
		"zeros(1)":                           "too many arguments of zeros: got 1; it takes none",
	} {
		if f, err := Get(text); f != nil || err == nil || err.Error() != want {
			t.Errorf("%q: got error %v, want %s", text, err, want)
		}
	}
	for _, c := range []struct {
		text  string
		shape []int
		n     int
		want  string
	}{
		{"identity", []int{3}, 3, "initializer identity: got shape [3] of rank 1, want a matrix"},
		{"orthogonal", []int{3}, 3, "initializer orthogonal: got shape [3] of rank 1, want rank 2 or more"},
		{"zeros", []int{3}, 2, "initializer zeros: got 2 elements and shape [3], want known axes and as many elements"},
		{"zeros", []int{-1, 2}, 2, "initializer zeros: got 2 elements and shape [? 2], want known axes and as many elements"},
		{"he_normal(input_axes=[2], output_axes=[0])", []int{1, 2}, 2, "initializer he_normal(input_axes=[2], output_axes=[0]): "},
	} {
		f, err := Get(c.text)
		if err != nil {
			t.Fatal(err)
		}
		if err = f(make([]float64, c.n), c.shape, 0); err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%s%v: got error %v, want %s", c.text, c.shape, err, c.want)
		}
	}
	if got := values(t, "orthogonal", 0, 0, 4); len(got) != 0 {
		t.Errorf("no elements: got %v", got)
	}
}
