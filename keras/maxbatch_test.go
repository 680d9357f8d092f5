package keras

import (
	"cmp"
	"fmt"
	"math"
	"testing"

	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/losses"
	"github.com/mezzo-ml/mezzo/optimizers"
	"github.com/mezzo-ml/mezzo/policy"
)

// varied is a compiled model with a nested model, a shared layer, moving
// statistics, dropout and a layer of another policy.
func varied(t testing.TB) *Model {
	t.Helper()
	inner := Sequential(&layers.Dense{Units: 24, Activation: "gelu"}, &layers.Dropout{Rate: 0.2}).Named("block")
	shared := &layers.Dense{Units: 24, Name: "shared"}
	x := Input(24)
	y := Apply(shared, Apply(layers.Remat(inner.Layer()), x))
	y = Apply(&layers.BatchNormalization{}, Apply(shared, y))
	y = Apply(&layers.Dense{Units: 5, DType: "float32", KernelRegularizer: "l2"}, y)
	m, err := NewModel(x, y)
	check(t, err)
	check(t, m.Compile(CompileConfig{Optimizer: &optimizers.Adam{UseEMA: true},
		Loss: &losses.SparseCategoricalCrossentropy{FromLogits: true}}))
	return m
}

func variedBatch(n int) Batch {
	return Batch{X: NewTensor(numbers(24*n), n, 24), Y: NewTensor(make([]int32, n), n)}
}

// TestMaxBatch: the batch that is found fits and one more sample does not, under
// every policy, also as seen from a model of another one.
func TestMaxBatch(t *testing.T) {
	SkipRace(t)
	names := []string{"float32", "mixed_bfloat16", "mixed_float16"}
	const budget = 1 << 20
	for _, from := range names {
		underPolicy(t, from)
		m := varied(t)
		for _, name := range append(names, "") {
			n, err := m.MaxBatch(variedBatch(2), budget, name)
			check(t, err)
			previous := policy.SetGlobal(cmp.Or(name, from))
			own := varied(t)
			policy.SetGlobal(previous)
			fits, err := own.PlanMemory(variedBatch(n))
			check(t, err)
			more, err := own.PlanMemory(variedBatch(n + 1))
			check(t, err)
			if n < 50 || fits.Peak > budget || more.Peak <= budget {
				t.Errorf("%s from %s: got %d samples of %d bytes, and %d bytes with one more; want the budget of %d between", name, from, n, fits.Peak, more.Peak, budget)
			}
		}
		if got := m.training.train.Programs(); got != 0 {
			t.Errorf("%s: the search has left %d programs", from, got)
		}
		if n, err := m.MaxBatch(variedBatch(1), 1000, ""); n != 0 || err != nil {
			t.Errorf("%s: got %d, %v in 1000 bytes, want 0", from, n, err)
		}
	}
}

func TestMaxBatchErrors(t *testing.T) {
	m := Sequential(&layers.Dense{Units: 3})
	_, err := m.MaxBatch(Batch{}, 1, "")
	wantError(t, err, "model sequential: it is not compiled; call Compile before MaxBatch")
	m = line(t)
	_, err = m.MaxBatch(Batch{}, 0, "")
	wantError(t, err, "model sequential: MaxBatch: the budget is 0 bytes, want a positive number")
	_, err = m.MaxBatch(Batch{}, 1, "")
	wantError(t, err, "model sequential: the batch has no X")
	_, err = m.MaxBatch(Batch{X: NewTensor([]float32{1})}, 1, "")
	wantError(t, err, "model sequential: MaxBatch: the batch has the scalar float32[]; axis 0 counts samples")
	_, err = m.MaxBatch(Batch{}, 1, "float8")
	wantError(t, err, `model sequential: Clone: policy: unknown policy "float8"; did you mean "mixed_float8"? want mixed_float16, mixed_bfloat16, mixed_float32, mixed_float8, auto_float16, auto_bfloat16 or a float type such as float32`)
}

// TestLargest: the search ends at the right place for lines, steps and curves,
// and asks seldom.
func TestLargest(t *testing.T) {
	for name, need := range map[string]func(n int) Bytes{
		"line":      func(n int) Bytes { return Bytes(1000 + 37*n) },
		"through 0": func(n int) Bytes { return Bytes(n) },
		"steps":     func(n int) Bytes { return Bytes(5000 + (n+15)/16*16*100) },
		"square":    func(n int) Bytes { return Bytes(n * n) },
		"root":      func(n int) Bytes { return Bytes(1000 * math.Sqrt(float64(n))) },
		"flat":      func(n int) Bytes { return Bytes(9000 + n/100) },
	} {
		for _, budget := range []Bytes{1, 8_999, 9_000, 9_001, 10_000, 123_456, 10_000_000} {
			calls := 0
			n, err := largest(budget, func(n int) (Bytes, error) { calls++; return need(n), nil })
			check(t, err)
			if n > 0 && need(n) > budget || need(n+1) <= budget || calls > 60 || name == "line" && calls > 12 {
				t.Errorf("%s, %d bytes: got %d after %d calls: %d bytes, and %d with one more", name, budget, n, calls, need(n), need(n+1))
			}
		}
	}
	if n, err := largest(1<<62, func(n int) (Bytes, error) { return 0, nil }); n != math.MaxInt32 || err != nil {
		t.Errorf("without a bound: got %d, %v", n, err)
	}
	if _, err := largest(9, func(int) (Bytes, error) { return 0, fmt.Errorf("no") }); err == nil {
		t.Error("an error was lost")
	}
}

// TestClone: a clone has the layers, names and policies of a model, weights of
// its own with the same first values, and trains to the same bits.
func TestClone(t *testing.T) {
	underPolicy(t, "mixed_bfloat16")
	m := varied(t)
	check(t, m.SetSeed(7))
	m.Layers()[1].(*layers.Dense).SetTrainable(false)
	check(t, m.Compile(m.training.config))
	policy.SetGlobal("float64") // must not matter
	c, err := m.cloneCompiled("")
	check(t, err)
	var a, b [2]string
	for i, x := range []*Model{m, c} {
		for _, l := range x.Layers() {
			a[i] += fmt.Sprint(layers.BaseOf(l).Path(), layers.BaseOf(l).Policy(), layers.Class(l), " ")
		}
		for _, w := range x.Weights() {
			b[i] += fmt.Sprint(w.Name(), w.Type(), w.Trainable(), " ")
		}
	}
	if a[0] != a[1] || b[0] != b[1] {
		t.Errorf("got\n%s\n%s\nwant\n%s\n%s", a[1], b[1], a[0], b[0])
	}
	for range 3 {
		check(t, m.TrainStep(background, variedBatch(8)))
		check(t, c.TrainStep(background, variedBatch(8)))
	}
	if !same(bits(t, m, m.Optimizer()), bits(t, c, c.Optimizer())) {
		t.Error("the clone trains to other bits")
	}
	half, err := m.Clone("mixed_float16")
	check(t, err)
	for _, l := range half.Layers() {
		want := "mixed_float16"
		if l.Config().DType != "" {
			want = l.Config().DType
		}
		if got := layers.BaseOf(l).Policy().Name; got != want {
			t.Errorf("%s: got policy %s, want %s", layers.BaseOf(l).Path(), got, want)
		}
	}
	// What is not built yet can be cloned too.
	s := Sequential(&layers.Dense{Units: 2}, &layers.Bidirectional{Layer: &layers.LSTM{Units: 3}})
	other, err := s.Clone("mixed_float16")
	check(t, err)
	check(t, other.Build(4, 3))
	if s.built || other.computesIn(Float32) {
		t.Errorf("got %v built and %v in float32, want neither", s.built, other.computesIn(Float32))
	}
}
