package tensor_test

import (
	"context"
	"math"
	"os"
	"strings"
	"testing"

	"github.com/mezzo-ml/mezzo/backend"
	_ "github.com/mezzo-ml/mezzo/backend/cpu"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/op"
	"github.com/mezzo-ml/mezzo/backend/tensor"
)

type (
	T    = *tensor.Tensor
	V    = *tensor.Variable
	none = struct{}
)

var ctx = context.Background()

// vars is the owner of some variables.
type vars []V

func (v vars) Variables() []V { return v }

// owner is one whose variables are made while it is used.
type owner struct{ vars []V }

func (o *owner) Variables() []V { return o.vars }

func variable(name string, d dtype.DType, data ...float64) V {
	return tensor.NewVariable(name, d, tensor.Shape{len(data)}, func(dst []float64) error {
		copy(dst, data)
		return nil
	})
}

// scalar is a float32 variable without axes.
func scalar(name string, x float64) V {
	return tensor.NewVariable(name, dtype.Float32, nil, func(dst []float64) error {
		dst[0] = x
		return nil
	})
}

func f32(data ...float32) T { return tensor.New(data, len(data)) }

// must returns a function that fails the test for an error.
func must[R any](t testing.TB) func(R, error) R {
	return func(r R, err error) R {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
}

func values(t testing.TB, x interface{ Float64s() ([]float64, error) }) []float64 {
	t.Helper()
	return must[[]float64](t)(x.Float64s())
}

// want fails the test unless x has exactly these elements.
func want(t testing.TB, what string, x interface{ Float64s() ([]float64, error) }, w ...float64) {
	t.Helper()
	got := values(t, x)
	if len(got) != len(w) {
		t.Errorf("%s: got %v, want %v", what, got, w)
		return
	}
	for i := range w {
		if got[i] != w[i] && !(math.IsNaN(got[i]) && math.IsNaN(w[i])) {
			t.Errorf("%s: got %v, want %v", what, got, w)
			return
		}
	}
}

// wantError fails the test unless err says exactly this.
func wantError(t testing.TB, what string, err error, text string) {
	t.Helper()
	if err == nil || err.Error() != text {
		t.Errorf("%s: got error %v, want %q", what, err, text)
	}
}

// catch is the error that f panics with.
func catch(f func()) (err error) {
	defer tensor.Catch(&err)
	f()
	return nil
}

// debugging sets what MEZZO_DEBUG would for the rest of a test.
func debugging(t testing.TB, d backend.Debug) {
	old := backend.DebugFromEnv
	backend.DebugFromEnv = func() backend.Debug { return d }
	t.Cleanup(func() { backend.DebugFromEnv = old })
}

// stderr is what f writes on standard error.
func stderr(t testing.TB, f func()) string {
	file := must[*os.File](t)(os.CreateTemp(t.TempDir(), "stderr"))
	defer file.Close()
	old := os.Stderr
	os.Stderr = file
	defer func() { os.Stderr = old }()
	f()
	return string(must[[]byte](t)(os.ReadFile(file.Name())))
}

// lines counts those of s that start with prefix.
func lines(s, prefix string) int { return strings.Count("\n"+s, "\n"+prefix) }

// randoms are n numbers in [lo, hi), the same for the same seed.
func randoms(seed uint64, n int, lo, hi float64) []float64 {
	out := make([]float64, n)
	for i := range out {
		seed += 0x9e3779b97f4a7c15 // splitmix64
		z := seed
		z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
		z = (z ^ z>>27) * 0x94d049bb133111eb
		out[i] = lo + (hi-lo)*float64((z^z>>31)>>11)/(1<<53)
	}
	return out
}

// has reports whether the value is the result of operation c.
func has(x T, c op.Code) bool {
	if c == op.RNN || c == op.Loop { // its results are parts, and what is made of them
		return tensor.OpOf(x) == op.Result || tensor.OpOf(x) == op.Add
	}
	return tensor.OpOf(x) == c
}

var inf = math.Inf(1)
