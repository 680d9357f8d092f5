package keras

import (
	"slices"
	"strings"
	"testing"

	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/losses"
	"github.com/mezzo-ml/mezzo/optimizers"
)

// protected divides by its input, kept from 0 by a constant.
type protected struct {
	layers.Base
	DType   string
	Epsilon float64
}

func (l *protected) Config() layers.Config     { return layers.Config{DType: l.DType} }
func (*protected) Build(...layers.Shape) error { return nil }
func (l *protected) Call(_ layers.Pass, x *Tensor) *Tensor {
	return x.Div(x.Abs().AddScalar(l.Epsilon))
}

// linted is what Lint finds, one line each: layer and what.
func linted(t *testing.T, m *Model, b Batch) []string {
	t.Helper()
	all, err := m.Lint(b)
	check(t, err)
	var out []string
	for _, f := range all {
		if f.Layer == "" || f.What == "" || f.Why == "" || f.Fix == "" {
			t.Errorf("got a finding with empty parts: %+v", f)
		}
		out = append(out, f.Layer+": "+f.What)
	}
	return out
}

// TestLintSizes: sizes that are no multiples of 8 are found where they are made,
// once, and only where products read 16 bits.
func TestLintSizes(t *testing.T) {
	seed := func(filters, classes int) *Model {
		return Sequential(
			&layers.Reshape{TargetShape: []int{28, 28, 1}},
			&layers.Conv2D{Filters: filters, KernelSize: []int{3}, Activation: "relu"},
			&layers.Conv2D{Filters: 1000, KernelSize: []int{3}, Strides: []int{2}},
			&layers.GlobalAveragePooling2D{},
			&layers.Dense{Units: classes, Activation: "softmax"},
		)
	}
	table := func() *Model {
		in := Input(215)
		x := Apply(&layers.Dense{Units: 1000}, in)
		x = Apply(&layers.Dense{Units: 500}, x)
		m, err := NewModel(in, Apply(&layers.Dense{Units: 1}, x))
		check(t, err)
		return m
	}
	sequence := func() *Model {
		return Sequential(&layers.Embedding{InputDim: 100, OutputDim: 30}, &layers.LSTM{Units: 20, ReturnSequences: true},
			&layers.Bidirectional{Layer: &layers.GRU{Units: 12}}, &layers.Dense{Units: 16})
	}
	attention := func() *Model {
		in := Input(6, 32)
		x := Apply(&layers.MultiHeadAttention{NumHeads: 4, KeyDim: 12}, in, in)
		m, err := NewModel(in, x)
		check(t, err)
		return m
	}
	for _, c := range []struct {
		name string
		m    func() *Model
		b    Batch
		want []string
	}{
		{"seed", func() *Model { return seed(420, 10) }, Batch{X: NewTensor(make([]float32, 100*784), 100, 784)},
			[]string{"conv2d: Filters 420 is not a multiple of 8", "dense: Units 10 is not a multiple of 8", "sequential: a batch of 100 samples is not a multiple of 8"}},
		{"aligned", func() *Model { return seed(424, 16) }, Batch{X: NewTensor(make([]float32, 96*784), 96, 784)}, nil},
		{"table", table, Batch{}, []string{"dense: its input has 215 features, not a multiple of 8", "dense_1: Units 500 is not a multiple of 8"}},
		{"sequence", sequence, Batch{X: NewTensor(make([]int32, 8*5), 8, 5)},
			[]string{"lstm: its input has 30 features, not a multiple of 8", "lstm: Units 20 is not a multiple of 8", "bidirectional/forward_gru: Units 12 is not a multiple of 8"}},
		{"attention", attention, Batch{}, []string{"multi_head_attention: KeyDim 12 is not a multiple of 8"}},
	} {
		for _, name := range []string{"float32", "mixed_bfloat16", "mixed_float16"} {
			underPolicy(t, name)
			want := c.want
			if name == "float32" {
				want = nil
			}
			if got := linted(t, c.m(), c.b); !slices.Equal(got, want) {
				t.Errorf("%s, %s: got\n\t%s\nwant\n\t%s", c.name, name, strings.Join(got, "\n\t"), strings.Join(want, "\n\t"))
			}
		}
	}
	all, err := seed(420, 10).Lint(Batch{X: NewTensor(make([]float32, 784), 1, 784)})
	check(t, err)
	if got, want := all[0].Fix, "Filters: 424 (0.952 % more multiplications)"; got != want {
		t.Errorf("got fix %q, want %q", got, want)
	}
	if got, want := all[1].Fix, "Units: 16 (60 % more multiplications); where they are classes, labels stay below 10"; got != want {
		t.Errorf("got fix %q, want %q", got, want)
	}
	if got, want := all[1].String(), "dense: Units 10 is not a multiple of 8: "+whyEight+"; "+all[1].Fix; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestLintPrecision: what loses digits is found, and nothing in what a newcomer
// writes.
func TestLintPrecision(t *testing.T) {
	sparse := func(logits bool) *losses.SparseCategoricalCrossentropy {
		return &losses.SparseCategoricalCrossentropy{FromLogits: logits}
	}
	for _, c := range []struct {
		name, policy string
		m            *Model
		c            CompileConfig
		want         []string
	}{
		{"guide", "mixed_float16", Sequential(&layers.Dense{Units: 8, Activation: "relu"}, &layers.Dense{Units: 8, Activation: "softmax"}),
			CompileConfig{Loss: sparse(false)}, nil},
		{"normalized", "mixed_float16", Sequential(&layers.LayerNormalization{Epsilon: new(1e-12)}, &layers.BatchNormalization{Epsilon: new(1e-9)},
			&layers.UnitNormalization{}, &layers.Dense{Units: 1}), CompileConfig{Loss: &losses.MeanSquaredError{}}, nil},
		{"logits", "mixed_bfloat16", Sequential(&layers.Dense{Units: 8}), CompileConfig{Loss: sparse(true)}, nil},
		{"logits for probabilities", "float32", Sequential(&layers.Dense{Units: 8}), CompileConfig{Loss: sparse(false)},
			[]string{"dense: SparseCategoricalCrossentropy takes this output for probabilities whose logits it does not know"}},
		{"rounded", "mixed_float16", Sequential(&layers.Dense{Units: 8, Activation: "softmax"}, &layers.Dropout{Rate: 0.1}), CompileConfig{Loss: sparse(false)},
			[]string{"dropout: the output is rounded to float16 before it is float32",
				"dropout: SparseCategoricalCrossentropy takes this output for probabilities whose logits it does not know"}},
		{"tanh", "mixed_bfloat16", Sequential(&layers.Dense{Units: 8, Activation: "tanh"}), CompileConfig{Loss: &losses.MeanSquaredError{}},
			[]string{"dense: the output is rounded to bfloat16 before it is float32"}},
		{"kept", "mixed_float16", Sequential(&layers.Dense{Units: 8}).KeepOutputDType(), CompileConfig{Loss: &losses.MeanSquaredError{}},
			[]string{"dense: the model returns it in float16"}},
		{"epsilon", "mixed_float16", Sequential(&protected{Epsilon: 1e-8}, &layers.Dense{Units: 8}), CompileConfig{Loss: &losses.MeanSquaredError{}},
			[]string{"protected: the constant 1e-08 is 0 in float16"}},
		{"mask", "mixed_float16", Sequential(&protected{Epsilon: -1e9}, &layers.Dense{Units: 8}), CompileConfig{Loss: &losses.MeanSquaredError{}},
			[]string{"protected: the constant -1e+09 is -Inf in float16"}},
		{"epsilon that is held", "mixed_float16", Sequential(&protected{Epsilon: 1e-6}, &layers.Dense{Units: 8}), CompileConfig{Loss: &losses.MeanSquaredError{}}, nil},
		{"epsilon in float32", "mixed_float16", Sequential(&protected{Epsilon: 1e-8, DType: "float32"}, &layers.Dense{Units: 8}),
			CompileConfig{Loss: &losses.MeanSquaredError{}}, nil},
		{"epsilon in bfloat16", "mixed_bfloat16", Sequential(&protected{Epsilon: 1e-8}, &layers.Dense{Units: 8}), CompileConfig{Loss: &losses.MeanSquaredError{}}, nil},
		{"unscaled", "mixed_float16", Sequential(&layers.Dense{Units: 8}), CompileConfig{Loss: &losses.MeanSquaredError{}, AutoScaleLoss: new(false)},
			[]string{"sequential: layers compute in float16, and the loss is not scaled"}},
		{"stored", "bfloat16", Sequential(&layers.Dense{Units: 8}), CompileConfig{Loss: &losses.MeanSquaredError{}},
			[]string{"dense: its weights are stored in bfloat16"}},
		// What normalizes keeps its weights in float32 whatever the policy.
		{"stored in float32", "bfloat16", Sequential(&layers.BatchNormalization{}, &layers.Dense{Units: 8}), CompileConfig{Loss: &losses.MeanSquaredError{}},
			[]string{"dense: its weights are stored in bfloat16"}},
		{"stored in float32", "float16", Sequential(&layers.BatchNormalization{}, &layers.Dense{Units: 8}), CompileConfig{Loss: &losses.MeanSquaredError{}},
			[]string{"dense: its weights are stored in float16"}},
	} {
		underPolicy(t, c.policy)
		check(t, c.m.Build(16))
		check(t, c.m.Compile(c.c))
		if got := linted(t, c.m, Batch{}); !slices.Equal(got, c.want) {
			t.Errorf("%s: got\n\t%s\nwant\n\t%s", c.name, strings.Join(got, "\n\t"), strings.Join(c.want, "\n\t"))
		}
	}
	_, err := Sequential(&layers.Dense{Units: 1}).Lint(Batch{})
	wantError(t, err, "model sequential: Lint: it is not built; give a batch, or Build it first")
}

// ratioCell is a cell whose state is divided by itself, kept from 0.
type ratioCell struct {
	layers.Base
	units int
}

func (*ratioCell) Config() layers.Config       { return layers.Config{} }
func (*ratioCell) Build(...layers.Shape) error { return nil }
func (c *ratioCell) StateShapes() []Shape      { return []Shape{{c.units}} }
func (*ratioCell) Call(_ layers.Pass, x *Tensor) *Tensor {
	y := x.Unpack()[0].Add(x.Unpack()[1])
	y = y.Div(y.Abs().AddScalar(1e-8))
	return Tuple(y, y)
}

// TestLintLoop: what the steps of a loop compute is looked at, too.
func TestLintLoop(t *testing.T) {
	for _, name := range []string{"float32", "mixed_bfloat16", "mixed_float16"} {
		underPolicy(t, name)
		cells := &layers.StackedRNNCells{Cells: []layers.Layer{&layers.LSTMCell{Units: 20}, &ratioCell{units: 20}}}
		m := Sequential(&layers.RNN{Cell: cells, ReturnSequences: true}, &layers.Dense{Units: 8})
		var want []string
		if name == "mixed_float16" {
			want = append(want, "rnn/stacked_rnn_cells/ratio_cell: the constant 1e-08 is 0 in float16")
		}
		if name != "float32" {
			want = append(want, "rnn/stacked_rnn_cells/lstm_cell: Units 20 is not a multiple of 8")
		}
		if got := linted(t, m, Batch{X: NewTensor(make([]float32, 8*5*16), 8, 5, 16)}); !slices.Equal(got, want) {
			t.Errorf("%s: got\n\t%s\nwant\n\t%s", name, strings.Join(got, "\n\t"), strings.Join(want, "\n\t"))
		}
	}
}

// TestLintChangesNothing: training goes on to the same bits, without copies of
// weights that only the linter would read.
func TestLintChangesNothing(t *testing.T) {
	underPolicy(t, "mixed_float16")
	var state [2][][]byte
	for i := range state {
		m := Sequential(&layers.Dense{Units: 12}, &layers.Dropout{Rate: 0.5}, &layers.BatchNormalization{}, &layers.Dense{Units: 1})
		check(t, m.Build(3))
		check(t, m.Compile(CompileConfig{Optimizer: &optimizers.Adam{}, Loss: &losses.MeanSquaredError{}}))
		for b, err := range regression(32).Batch(8).Batches() {
			check(t, err)
			if i == 1 {
				linted(t, m, b)
			}
			check(t, m.TrainStep(background, b))
		}
		state[i] = bits(t, m, m.Optimizer())
	}
	if !same(state[0], state[1]) {
		t.Error("Lint changed the training")
	}
}
