package keras

import (
	"context"
	"io"
	"math"
	"slices"
	"testing"

	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/losses"
	"github.com/mezzo-ml/mezzo/optimizers"
	"github.com/mezzo-ml/mezzo/policy"
)

var background = context.Background()

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// wantError fails unless err has exactly this text.
func wantError(t testing.TB, err error, text string) {
	t.Helper()
	switch {
	case err == nil:
		t.Errorf("got no error, want %q", text)
	case err.Error() != text:
		t.Errorf("got error\n\t%v\nwant\n\t%s", err, text)
	}
}

// underPolicy sets the global policy for one test.
func underPolicy(t testing.TB, name string) {
	previous := policy.SetGlobal(name)
	t.Cleanup(func() { policy.SetGlobal(previous) })
}

// numbers returns n numbers in [-1, 1) that look random and are the same each
// time.
func numbers(n int) []float32 {
	out := make([]float32, n)
	x := uint32(2463534242)
	for i := range out {
		x ^= x << 13
		x ^= x >> 17
		x ^= x << 5
		out[i] = float32(int32(x)) / (1 << 31)
	}
	return out
}

// rising returns 0, 1, 2 … n-1.
func rising(n int) []float32 {
	out := make([]float32, n)
	for i := range out {
		out[i] = float32(i)
	}
	return out
}

// regression is a dataset of n samples of 3 features and a target that a
// linear model can learn.
func regression(n int) *Pipeline {
	x := numbers(3 * n)
	y := make([]float32, n)
	for i := range y {
		y[i] = x[3*i] - 2*x[3*i+1] + 0.5*x[3*i+2] + 0.25
	}
	return FromTensors(NewTensor(x, n, 3), NewTensor(y, n, 1), nil)
}

// line is a compiled model of one Dense(1).
func line(t testing.TB) *Model {
	t.Helper()
	m := Sequential(&layers.Dense{Units: 1})
	check(t, m.Compile(lineConfig()))
	return m
}

func lineConfig() CompileConfig {
	return CompileConfig{Optimizer: &optimizers.SGD{LearningRate: 0.1}, Loss: &losses.MeanSquaredError{}}
}

// fit runs Fit without output.
func fit(t testing.TB, m *Model, d Dataset, c FitConfig) *History {
	t.Helper()
	h, err := m.Fit(background, d, silent(c))
	check(t, err)
	return h
}

func silent(c FitConfig) FitConfig {
	c.Output = io.Discard
	if c.Verbose == VerbosityAuto {
		c.Verbose = VerbositySilent
	}
	return c
}

// bits returns the bytes of all variables of the owners.
func bits(t testing.TB, owners ...Stateful) [][]byte {
	t.Helper()
	var out [][]byte
	for _, o := range owners {
		for _, v := range o.Variables() {
			b, err := v.Bytes()
			check(t, err)
			out = append(out, b)
		}
	}
	return out
}

func same(a, b [][]byte) bool { return slices.EqualFunc(a, b, slices.Equal[[]byte]) }

func values(t testing.TB, x *Tensor) []float64 {
	t.Helper()
	v, err := x.Float64s()
	check(t, err)
	return v
}

func weightsOf(t testing.TB, m *Model) [][]float64 {
	t.Helper()
	ws, err := m.GetWeights()
	check(t, err)
	var out [][]float64
	for _, w := range ws {
		out = append(out, values(t, w))
	}
	return out
}

// near compares numbers that went through n float32 operations or so.
func near(got, want float64, n float64) bool {
	rel, abs := Float32.Tolerance()
	return math.Abs(got-want) <= n*(abs+rel*math.Abs(want)) || math.IsNaN(got) && math.IsNaN(want)
}

func wantNear(t testing.TB, what string, got, want []float64, n float64) {
	t.Helper()
	if len(got) != len(want) {
		t.Errorf("%s: got %d numbers, want %d", what, len(got), len(want))
		return
	}
	for i := range got {
		if !near(got[i], want[i], n) {
			t.Errorf("%s: number %d: got %v, want %v", what, i, got[i], want[i])
			return
		}
	}
}

// rows reads a dataset to its end: the numbers of each element's X, and how
// many rows each has.
func rows(t testing.TB, d Dataset) (all []float64, sizes []int) {
	t.Helper()
	for b, err := range d.Batches() {
		check(t, err)
		v := values(t, b.X)
		all = append(all, v...)
		sizes = append(sizes, len(v))
	}
	return all, sizes
}
