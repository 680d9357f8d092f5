package layers_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/op"
	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/layers/layertest"
)

// recurrentCases are recurrent layers with the types of their inputs.
func recurrentCases() []layerCase {
	seed := int64(7)
	seq := []op.Type{f32(3, 4, 2)}
	step, one := []op.Type{f32(3, 2), f32(3, 3)}, []op.Type{f32(3, 2), f32(3, 3), f32(3, 3)}
	lstm := func() layers.Layer { return &layers.LSTM{Units: 3, ReturnSequences: true} }
	return []layerCase{
		{"simple rnn", func() layers.Layer { return &layers.SimpleRNN{Units: 3} }, seq},
		{"simple rnn, fields", func() layers.Layer {
			return &layers.SimpleRNN{Units: 3, Activation: "sigmoid", UseBias: new(false), RecurrentRegularizer: "l2", KernelConstraint: "max_norm(3)",
				ReturnSequences: true, GoBackwards: true, Dropout: 0.3, RecurrentDropout: 0.2, Seed: &seed, ActivityRegularizer: "l2"}
		}, seq},
		{"lstm", func() layers.Layer { return &layers.LSTM{Units: 3} }, seq},
		{"lstm, fields", func() layers.Layer {
			return &layers.LSTM{Units: 3, UnitForgetBias: new(false), ReturnSequences: true, ReturnState: true, Dropout: 0.4, RecurrentDropout: 0.3, GoBackwards: true}
		}, seq},
		{"lstm, states", func() layers.Layer { return &layers.LSTM{Units: 3, ReturnState: true} }, append(seq, f32(3, 3), f32(3, 3))},
		{"lstm, step by step", func() layers.Layer { return &layers.LSTM{Units: 3, Unroll: true} }, seq},
		{"lstm, dropout", func() layers.Layer { return &layers.LSTM{Units: 3, Dropout: 0.4} }, seq},
		{"gru", func() layers.Layer { return &layers.GRU{Units: 3, ReturnSequences: true} }, seq},
		{"gru, reset before", func() layers.Layer { return &layers.GRU{Units: 3, ResetAfter: new(false)} }, seq},
		{"gru, recurrent dropout", func() layers.Layer { return &layers.GRU{Units: 3, ResetAfter: new(false), RecurrentDropout: 0.3} }, seq},
		{"simple rnn cell", func() layers.Layer { return &layers.SimpleRNNCell{Units: 3, Dropout: 0.2} }, step},
		{"lstm cell", func() layers.Layer { return &layers.LSTMCell{Units: 3} }, one},
		{"gru cell", func() layers.Layer { return &layers.GRUCell{Units: 3, RecurrentDropout: 0.2} }, step},
		{"rnn", func() layers.Layer { return &layers.RNN{Cell: &layers.GRUCell{Units: 3}, ReturnState: true} }, seq},
		{"stacked cells", func() layers.Layer {
			return &layers.RNN{Cell: &layers.StackedRNNCells{Cells: []layers.Layer{&layers.LSTMCell{Units: 3, Dropout: 0.3}, &layers.LSTMCell{Units: 2, RecurrentDropout: 0.3}}}, ReturnSequences: true}
		}, seq},
		{"stacked cells alone", func() layers.Layer {
			return &layers.StackedRNNCells{Cells: []layers.Layer{&layers.GRUCell{Units: 3}, &layers.SimpleRNNCell{Units: 2}}}
		}, []op.Type{f32(3, 2), f32(3, 3), f32(3, 2)}},
		{"bidirectional", func() layers.Layer { return &layers.Bidirectional{Layer: lstm()} }, seq},
		{"bidirectional, backward layer", func() layers.Layer {
			return &layers.Bidirectional{Layer: lstm(), BackwardLayer: &layers.GRU{Units: 3, GoBackwards: true, ReturnSequences: true}, MergeMode: "ave"}
		}, seq},
		{"bidirectional, none", func() layers.Layer {
			return &layers.Bidirectional{Layer: &layers.SimpleRNN{Units: 2, ReturnState: true}, MergeMode: "none"}
		}, seq},
		{"conv lstm 1D", func() layers.Layer { return &layers.ConvLSTM1D{Filters: 2, KernelSize: layers.PerAxis{2}} }, []op.Type{f32(2, 3, 5, 2)}},
		{"conv lstm 2D", func() layers.Layer {
			return &layers.ConvLSTM2D{Filters: 2, KernelSize: layers.PerAxis{3, 2}, Padding: "same", Strides: layers.PerAxis{2}, DataFormat: "channels_first",
				ReturnSequences: true, ReturnState: true, Dropout: 0.2, RecurrentDropout: 0.3}
		}, []op.Type{f32(2, 3, 2, 4, 5)}},
		{"conv lstm 3D", func() layers.Layer { return &layers.ConvLSTM3D{Filters: 1, KernelSize: layers.PerAxis{2}} }, []op.Type{f32(2, 2, 3, 2, 3, 1)}},
		{"time distributed", func() layers.Layer { return &layers.TimeDistributed{Layer: &layers.Dense{Units: 3}} }, seq},
	}
}

// squareCell is a cell of another package: h ← h² + x·w.
type squareCell struct {
	layers.Base
	w *layers.Weight
}

func (c *squareCell) Config() layers.Config       { return layers.Config{} }
func (c *squareCell) StateShapes() []layers.Shape { return []layers.Shape{{3}} }
func (c *squareCell) Build(in ...layers.Shape) (err error) {
	c.w, err = c.AddWeight("w", layers.Shape{in[0][1], 3}, "glorot_uniform")
	return err
}

func (c *squareCell) Call(_ layers.Pass, x *tensor.Tensor) *tensor.Tensor {
	h := x.Unpack()[1].Square().Add(x.Unpack()[0].MatMul(c.w.Value()))
	return tensor.Tuple(h, h)
}

// TestRecurrentGraph: the graph of a training step has as many values for ten
// steps of a sequence as for three, whatever the cell.
func TestRecurrentGraph(t *testing.T) {
	for name, c := range map[string]struct {
		layer   func() layers.Layer
		feature []int
	}{
		"lstm":              {func() layers.Layer { return &layers.LSTM{Units: 3} }, []int{2}},
		"recurrent dropout": {func() layers.Layer { return &layers.GRU{Units: 3, RecurrentDropout: 0.3, ReturnSequences: true} }, []int{2}},
		"activation":        {func() layers.Layer { return &layers.LSTM{Units: 3, Activation: "softsign", GoBackwards: true} }, []int{2}},
		"custom":            {func() layers.Layer { return &layers.RNN{Cell: &squareCell{}} }, []int{2}},
		"stacked": {func() layers.Layer {
			return &layers.RNN{Cell: &layers.StackedRNNCells{Cells: []layers.Layer{&layers.LSTMCell{Units: 3}, &squareCell{}, &layers.GRUCell{Units: 2, RecurrentDropout: 0.2}}}}
		}, []int{2}},
		"conv lstm": {func() layers.Layer {
			return &layers.ConvLSTM2D{Filters: 2, KernelSize: layers.PerAxis{2}, ReturnSequences: true}
		}, []int{4, 5, 2}},
	} {
		for _, masked := range []bool{false, true} {
			size := func(steps int) int {
				l := c.layer()
				f := tensor.Function(func(x *tensor.Tensor) *tensor.Tensor {
					if masked {
						x = x.WithMask(x.Reshape(2, steps, -1).Sum(2).GreaterScalar(0))
					}
					y := layers.Apply(l, layers.Pass{Training: true}, x)
					var all []*tensor.Variable
					for _, w := range layers.BaseOf(l).TrainableWeights() {
						all = append(all, w.Variable)
					}
					return tensor.Tuple(append(tensor.Gradients(y.Widen().Sum(), all), y)...)
				}, layers.BaseOf(l))
				g, err := f.Plan(tensor.Placeholder(dtype.Float32, append([]int{2, steps}, c.feature...)...))
				if err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				return len(g.Values)
			}
			if few, many := size(3), size(10); few != many {
				t.Errorf("%s, masked %v: %d values for 3 steps, %d for 10, want as many", name, masked, few, many)
			}
		}
	}
}

func TestRecurrentErrors(t *testing.T) {
	seq := f32(op.Unknown, 4, 2)
	for _, c := range []struct {
		layer layers.Layer
		want  string
		in    []op.Type
	}{
		{&layers.LSTM{}, "layer lstm: Build: layer lstm/lstm_cell: Build: Units is 0, want a positive number", nil},
		{&layers.LSTM{Units: 2}, "layer lstm: Build: got inputs [[? 4]], want a sequence [batch steps features]", []op.Type{f32(op.Unknown, 4)}},
		{&layers.LSTM{Units: 2}, "layer lstm: Build: got 2 inputs, want a sequence, or a sequence and 2 states", []op.Type{seq, f32(op.Unknown, 2)}},
		{&layers.GRU{Units: 2}, "layer gru: Build: state 0 is [? 3], want the shape [2] in each sample", []op.Type{seq, f32(op.Unknown, 3)}},
		{&layers.GRU{Units: 2, Dropout: 2}, "layer gru: Build: layer gru/gru_cell: Build: Dropout: Rate is 2, want a number from 0 to 1", nil},
		{&layers.RNN{}, "layer rnn: Build: Cell is nil, want a cell such as LSTMCell", nil},
		{&layers.RNN{Cell: &layers.Dense{Units: 2}}, "layer rnn: Build: Cell is a Dense, which has no method StateShapes, want a cell such as LSTMCell", nil},
		{&layers.RNN{Cell: &layers.StackedRNNCells{}}, "layer rnn: Build: layer rnn/stacked_rnn_cells: Build: Cells is empty, want at least one cell", nil},
		{&layers.ConvLSTM1D{}, "layer conv_lstm1d: Build: layer conv_lstm1d/conv_lstm_cell: Build: Filters is 0, want a positive number", []op.Type{f32(op.Unknown, 4, 5, 2)}},
		{&layers.ConvLSTM1D{Filters: 2, KernelSize: layers.PerAxis{2}}, "layer conv_lstm1d: Build: layer conv_lstm1d/conv_lstm_cell: Build: a step is [? ? 2], want sizes that are known: the states depend on them",
			[]op.Type{f32(op.Unknown, 4, op.Unknown, 2)}},
		{&layers.Bidirectional{}, "layer bidirectional: Build: Layer is nil, want a recurrent layer", nil},
		{&layers.Bidirectional{Layer: &layers.Dense{Units: 2}}, "layer bidirectional: Build: Layer is a Dense, want a recurrent layer", nil},
		{&layers.Bidirectional{Layer: &layers.LSTM{Units: 2}, MergeMode: "add"}, `layer bidirectional: Build: MergeMode is "add", want concat, sum, mul, ave or none`, nil},
		{&layers.Bidirectional{Layer: &layers.LSTM{Units: 2}, BackwardLayer: &layers.LSTM{Units: 2, Name: "b"}}, "layer bidirectional: Build: GoBackwards is false in both layers, want them to differ", nil},
		{&layers.TimeDistributed{}, "layer time_distributed: Build: Layer is nil, want a layer", nil},
		{&layers.TimeDistributed{Layer: &layers.Dense{Units: 2}}, "layer time_distributed: Build: input [? 4] has 2 axes, want at least 3", []op.Type{f32(op.Unknown, 4)}},
	} {
		if c.in == nil {
			c.in = []op.Type{seq}
		}
		layertest.BadField(t, c.layer, c.want, c.in...)
	}
}

// total is a cell in another module's way: it sums what it is given.
type total struct {
	layers.Base
	n int
}

func (c *total) Config() layers.Config          { return layers.Config{} }
func (c *total) Build(in ...layers.Shape) error { c.n = in[0][1]; return nil }
func (c *total) StateShapes() []layers.Shape    { return []layers.Shape{{c.n}} }
func (c *total) Call(_ layers.Pass, x *tensor.Tensor) *tensor.Tensor {
	s := x.Unpack()[0].Add(x.Unpack()[1])
	return tensor.Tuple(s, s)
}

// TestCustomCell goes through a sequence with a cell of one's own, and carries
// its state to the next call until it is reset.
func TestCustomCell(t *testing.T) {
	l := &layers.RNN{Cell: &total{}, ReturnSequences: true, Stateful: true}
	f := tensor.Function(func(x *tensor.Tensor) *tensor.Tensor { return layers.Apply(l, layers.Pass{}, x) }, l)
	call := func(x *tensor.Tensor) string {
		y, err := f.Call(context.Background(), x)
		if err != nil {
			return err.Error()
		}
		v, err := y.Values()
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(v)
	}
	x := tensor.New([]float32{1, 2, 3, 10, 20, 30}, 2, 3, 1)
	want := func(got, want string) {
		t.Helper()
		if got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	want(call(x), "[1 3 6 10 30 60]")
	want(call(x), "[7 9 12 70 90 120]")
	if err := l.ResetState(); err != nil {
		t.Fatal(err)
	}
	want(call(x), "[1 3 6 10 30 60]")
	want(call(tensor.Zeros(dtype.Float32, 3, 3, 1)), "layer rnn: Call: got a batch of 3, want 2: a stateful layer carries the state of each sample to the next batch")
}

// TestSequenceLengths: a layer takes sequences of any length, and unknown
// lengths while a model is built.
func TestSequenceLengths(t *testing.T) {
	for _, l := range []layers.Layer{
		&layers.LSTM{Units: 3, ReturnSequences: true, GoBackwards: true},
		&layers.GRU{Units: 3, ReturnSequences: true, Unroll: true},
		&layers.Bidirectional{Layer: &layers.SimpleRNN{Units: 3, ReturnSequences: true}, MergeMode: "sum"},
		&layers.TimeDistributed{Layer: &layers.Dense{Units: 3}},
	} {
		y := layers.Apply(l, layers.Pass{}, tensor.Placeholder(dtype.Float32, -1, -1, 2))
		if want := (op.Shape{-1, -1, 3}); !y.Shape().Equal(want) {
			t.Errorf("%s: got %v, want %v", layers.Class(l), y.Shape(), want)
		}
		for _, n := range []int{1, 4} {
			y := layers.Apply(l, layers.Pass{}, tensor.Ones(dtype.Float32, 2, n, 2))
			if want := (op.Shape{2, n, 3}); !y.Shape().Equal(want) {
				t.Errorf("%s: got %v, want %v", layers.Class(l), y.Shape(), want)
			}
		}
	}
}
