package keras

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/mezzo-ml/mezzo/keras/metrics"
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/losses"
	"github.com/mezzo-ml/mezzo/optimizers"
)

// twoHeads is a model with the inputs a and b and the outputs price and kind.
func twoHeads(t testing.TB) *Model {
	a, b := Named("a", Input(2)), Named("b", Input(3))
	h := Apply(&layers.Dense{Units: 4, Activation: "tanh"}, Apply(&layers.Concatenate{}, a, b))
	return newModel(t, Tuple(a, b), Tuple(Apply(&layers.Dense{Units: 1, Name: "price"}, h), Apply(&layers.Dense{Units: 3, Name: "kind"}, h)))
}

func twoHeadsData(t testing.TB, m *Model) *Pipeline {
	t.Helper()
	n := 12
	kinds := make([]int32, n)
	for i := range kinds {
		kinds[i] = int32(i % 3)
	}
	x, err := m.Inputs(map[string]*Tensor{"b": NewTensor(numbers(3*n), n, 3), "a": NewTensor(numbers(2*n), n, 2)})
	check(t, err)
	y, err := m.Targets(map[string]*Tensor{"kind": NewTensor(kinds, n), "price": NewTensor(numbers(n), n, 1)})
	check(t, err)
	w, err := m.Targets(map[string]*Tensor{"kind": NewTensor(rising(n), n), "price": NewTensor(rising(n)[:n], n)})
	check(t, err)
	return FromTensors(x, y, w)
}

// TestOutputsByName: losses, weights and metrics by the names of outputs train as lists in
// their order do.
func TestOutputsByName(t *testing.T) {
	crossentropy := &losses.SparseCategoricalCrossentropy{FromLogits: true}
	train := func(c CompileConfig) (*Model, *History) {
		m := twoHeads(t)
		c.Optimizer = &optimizers.Adam{LearningRate: 0.01}
		check(t, m.Compile(c))
		return m, fit(t, m, twoHeadsData(t, m), FitConfig{BatchSize: 5, Epochs: 2, Shuffle: new(false)})
	}
	lists, want := train(CompileConfig{
		Losses: []losses.Loss{&losses.MeanSquaredError{}, crossentropy}, LossWeights: []float64{1, 0.3},
		OutputMetrics:         [][]metrics.Metric{{&metrics.MeanAbsoluteError{}}, nil},
		OutputWeightedMetrics: [][]metrics.Metric{{&metrics.MeanAbsoluteError{}}, {&metrics.SparseCategoricalAccuracy{}}},
	})
	named, got := train(CompileConfig{Outputs: map[string]OutputConfig{
		"kind":  {Loss: crossentropy, LossWeight: new(0.3), WeightedMetrics: []metrics.Metric{&metrics.SparseCategoricalAccuracy{}}},
		"price": {Loss: &losses.MeanSquaredError{}, Metrics: []metrics.Metric{&metrics.MeanAbsoluteError{}}, WeightedMetrics: []metrics.Metric{&metrics.MeanAbsoluteError{}}},
	}})
	if !same(bits(t, lists), bits(t, named)) || fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("by name:\n%v\nin order:\n%v", got, want)
	}
	var names []string
	for _, l := range got.Logs[0][:6] {
		names = append(names, l.Name)
	}
	if want := []string{"kind_loss", "kind_sparse_categorical_accuracy", "loss", "price_loss", "price_mean_absolute_error", "price_weighted_mean_absolute_error"}; !slices.Equal(names, want) {
		t.Errorf("got logs %q, want %q", names, want)
	}
	if a, b := got.Logs[0].Get("price_mean_absolute_error"), got.Logs[0].Get("price_weighted_mean_absolute_error"); a == b {
		t.Error("sample weights do not count in the weighted metric")
	}
}

func TestNameErrors(t *testing.T) {
	m := twoHeads(t)
	one := NewTensor([]float32{1}, 1, 1)
	_, err := m.Inputs(map[string]*Tensor{"a": one})
	wantError(t, err, `model functional: Inputs: input "b" is missing; it has ["a" "b"]`)
	_, err = m.Targets(map[string]*Tensor{"kind": one, "price": one, "prize": one})
	wantError(t, err, `model functional: Targets: it has no output "prize"; have ["price" "kind"]`)
	_, err = Sequential(&layers.Dense{Units: 1}).Inputs(map[string]*Tensor{"a": one})
	wantError(t, err, "model sequential: Inputs: it is not built; its names are not known yet")
	mse := &losses.MeanSquaredError{}
	wantError(t, m.Compile(CompileConfig{Outputs: map[string]OutputConfig{"prize": {Loss: mse}}}), `model functional: Compile: there is no output "prize" in it; have ["price" "kind"]`)
	wantError(t, m.Compile(CompileConfig{Loss: mse, Outputs: map[string]OutputConfig{"price": {Loss: mse}}}),
		"model functional: Compile: Outputs is given, and a loss, weight or metric outside of it; use one")
	wantError(t, m.Compile(CompileConfig{Outputs: map[string]OutputConfig{"price": {Loss: mse, LossWeight: new(math.NaN())}}}),
		`model functional: Compile: LossWeight of output "price" is NaN, want a finite number`)
	wantError(t, m.Compile(CompileConfig{Loss: mse, WeightedMetrics: []metrics.Metric{&metrics.MeanAbsoluteError{}}}),
		"model functional: Compile: it has 2 outputs; give OutputWeightedMetrics, a list for each")
}

// TestWeightedMetrics: numbers by hand.
func TestWeightedMetrics(t *testing.T) {
	m := Sequential(&layers.Dense{Units: 1, KernelInitializer: "ones"})
	check(t, m.Compile(CompileConfig{Loss: &losses.MeanSquaredError{}, Metrics: []metrics.Metric{&metrics.MeanAbsoluteError{}}, WeightedMetrics: []metrics.Metric{&metrics.MeanAbsoluteError{}, &metrics.MeanSquaredError{}}}))
	b := Batch{X: NewTensor([]float32{1, 2, 3}, 3, 1), Y: NewTensor([]float32{0, 0, 0}, 3, 1), Weight: NewTensor([]float32{1, 0, 3}, 3)}
	logs, err := m.TestOnBatch(background, b)
	check(t, err)
	// Errors 1, 2, 3 with the weights 1, 0, 3.
	for name, want := range map[string]float64{"mean_absolute_error": 2, "weighted_mean_absolute_error": 2.5, "mean_squared_error": 7} {
		if got := logs.Get(name); math.Abs(got-want) > 1e-6 {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
}

// TestProgbarValues: means over the units of work, as Keras's Progbar shows.
func TestProgbarValues(t *testing.T) {
	var out bytes.Buffer
	bar := NewProgbar(&out)
	bar.UpdateWith(1, 4, Log{"loss", 4}, Log{"rate", 1})
	bar.UpdateWith(4, 4, Log{"loss", 2}) // counts for three
	if got := out.String(); !strings.Contains(got, "4/4 - ") || !strings.HasSuffix(got, " - loss: 2.5000 - rate: 1.0000\n") {
		t.Errorf("got %q, want the mean loss 2.5 and the rate 1", got)
	}
	out.Reset()
	bar.UpdateWith(1, 1, Log{"loss", 7})
	if got := out.String(); !strings.HasSuffix(got, " - loss: 7.0000\n") {
		t.Errorf("a second line: got %q, want the loss 7 alone", got)
	}
}

func TestExpandNested(t *testing.T) {
	in := Input(4)
	innermost := Sequential(&layers.Dense{Units: 3, Name: "deep"}).Named("innermost")
	inner := Sequential(&layers.Dense{Units: 4, Name: "first"}, innermost.Layer()).Named("inner")
	m := newModel(t, in, Apply(&layers.Dense{Units: 2, Name: "last"}, Apply(inner.Layer(), in)))
	var b strings.Builder
	check(t, m.Summary(&b, ExpandNested))
	at := -1
	for _, want := range []string{"│ inner (Sequential) ", "│ └ first (Dense) ", "│ └ innermost (Sequential) ", "│    └ deep (Dense) ", "│ last (Dense) "} {
		next := strings.Index(b.String(), want)
		if next <= at {
			t.Errorf("%q is not where it should be in\n%s", want, &b)
		}
		at = next
	}
	b.Reset()
	check(t, m.Summary(&b))
	if strings.Contains(b.String(), "└ ") {
		t.Errorf("nested layers are listed without the option:\n%s", &b)
	}
}
