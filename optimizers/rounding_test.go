package optimizers

import (
	"bytes"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"

	_ "github.com/mezzo-ml/mezzo/backend/cpu"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/tensor"
)

// TestRoundStochastic compares with the two neighbours of each number, found by going
// through all numbers of the type.
func TestRoundStochastic(t *testing.T) {
	for _, d := range []dtype.DType{dtype.Float16, dtype.BFloat16} {
		var grid []float64 // all finite numbers
		for i := range 1 << 16 {
			b := []byte{byte(i), byte(i >> 8)}
			var x [1]float64
			dtype.ToF64(x[:], b, d)
			if !math.IsNaN(x[0]) && !math.IsInf(x[0], 0) {
				grid = append(grid, x[0])
			}
		}
		slices.Sort(grid)
		r := rand.New(rand.NewPCG(1, 2))
		var x, u []float32
		for range 20000 {
			v := float32(math.Ldexp(r.NormFloat64(), r.IntN(30)-20))
			switch r.IntN(4) {
			case 0: // on the grid
				v = float32(grid[r.IntN(len(grid))])
			case 1: // just below or above a power of two
				v = math.Nextafter32(float32(math.Ldexp(1, r.IntN(20)-10)), float32(r.IntN(3)-1)*1e9)
			}
			x, u = append(x, v), append(u, r.Float32())
		}
		x = append(x, float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1)), 0, float32(math.Copysign(0, -1)))
		u = append(u, 0, 0, 0, 0, 0)
		y, err := roundStochastic(tensor.New(x, len(x)), d, tensor.New(u, len(u))).Float64s()
		if err != nil {
			t.Fatal(err)
		}
		for i, got := range y {
			v := float64(x[i])
			if math.IsNaN(v) || math.IsInf(v, 0) || math.Abs(v) > grid[len(grid)-1] {
				if got != float64(d.Round(x[i])) && !math.IsNaN(v) {
					t.Errorf("%v: %v is rounded to %v", d, v, got)
				}
				continue
			}
			hi, _ := slices.BinarySearch(grid, v)
			if grid[hi] == v {
				if got != v {
					t.Errorf("%v: %v has the type's precision and is rounded to %v", d, v, got)
				}
				continue
			}
			below, above := grid[hi-1], grid[hi]
			nearest, other := below, above
			if float64(d.Round(x[i])) == above {
				nearest, other = above, below
			}
			want := nearest
			if float64(u[i]) < (v-nearest)/(other-nearest) {
				want = other
			}
			// Where u is the share but for rounding, both are right.
			if got != want && !(got == nearest || got == other) || got != want && math.Abs(float64(u[i])-(v-nearest)/(other-nearest)) > 1e-6 {
				t.Errorf("%v: %v between %v and %v with u %v is rounded to %v, want %v", d, v, below, above, u[i], got, want)
			}
		}
	}
}

type weights []*tensor.Variable

func (w weights) Variables() []*tensor.Variable { return w }

// TestStochasticRounding: updates of 1e-4 of a bfloat16 weight of 1, whose spacing is
// 1/128, add up in the mean, the same bits on any number of threads.
func TestStochasticRounding(t *testing.T) {
	train := func(seed *int64) []byte {
		w := tensor.NewVariable("w", dtype.BFloat16, tensor.Shape{4096}, func(x []float64) error {
			for i := range x {
				x[i] = 1
			}
			return nil
		})
		vars := weights{w}
		o := &SGD{LearningRate: 1, StochasticRounding: seed}
		step := tensor.Function(func(struct{}) struct{} {
			loss := w.Value().Cast(dtype.Float32).Sum().MulScalar(1e-4)
			o.ApplyGradients(tensor.Gradients(loss, vars), vars)
			return struct{}{}
		}, vars, o)
		for range 500 {
			if err := step.Run(t.Context(), struct{}{}); err != nil {
				t.Fatal(err)
			}
		}
		b, err := w.Bytes()
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	mean := func(b []byte) (m float64) {
		x := make([]float64, len(b)/2)
		dtype.ToF64(x, b, dtype.BFloat16)
		for _, v := range x {
			m += v / float64(len(x))
		}
		return m
	}
	if m := mean(train(nil)); m != 1 {
		t.Errorf("rounded to nearest the weights are %v, want 1: all updates are lost", m)
	}
	seven := train(new(int64(7)))
	// Each element is a random walk: 0.05 of spacings of 1/256 below 1.
	if m := mean(seven); math.Abs(m-0.95) > 0.002 {
		t.Errorf("the mean is %v, want 0.95", m)
	}
	old := runtime.GOMAXPROCS(1)
	again := train(new(int64(7)))
	runtime.GOMAXPROCS(old)
	if !bytes.Equal(seven, again) {
		t.Error("another number of threads rounds otherwise")
	}
	if bytes.Equal(seven, train(new(int64(8)))) {
		t.Error("another seed rounds in the same way")
	}
}
