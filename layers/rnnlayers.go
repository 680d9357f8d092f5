package layers

import "github.com/mezzo-ml/mezzo/backend/tensor"

// SimpleRNN is the plain recurrent layer: h ← activation(x·kernel +
// h·recurrent_kernel + bias) at each step (Elman 1990).
//
// Inputs and result are those of [RNN]; the state is h. Weights, in its cell:
// kernel [features Units], recurrent_kernel [Units Units], bias [Units].
//
// It is one operation of the graph when Activation is tanh or relu.
type SimpleRNN struct {
	Units                int    // size of output and states; required
	Activation           string `default:"tanh"`
	UseBias              *bool  `default:"true"`
	KernelInitializer    string `default:"glorot_uniform"`
	RecurrentInitializer string `default:"orthogonal"`
	BiasInitializer      string `default:"zeros"`
	KernelRegularizer    string
	RecurrentRegularizer string
	BiasRegularizer      string
	ActivityRegularizer  string
	KernelConstraint     string
	RecurrentConstraint  string
	BiasConstraint       string
	Dropout              float64 // share of the features that is dropped, at all steps alike
	RecurrentDropout     float64 // share of the state that is dropped before it is multiplied; the steps are a loop of the graph then
	Seed                 *int64
	ReturnSequences      bool // return the output of each step
	ReturnState          bool // return the last states too
	GoBackwards          bool // start at the last step; outputs are in that order
	Stateful             bool // begin where the last call ended; batches must have one size
	Unroll               bool // record each step by itself
	ZeroOutputForMask    bool // outputs of steps that are masked out are zero
	Name, DType          string

	Base
	SetsMask
	recurrent
}

// Config returns the fields Name and DType.
func (s *SimpleRNN) Config() Config { return Config{s.Name, s.DType} }

// Build builds the cell.
func (s *SimpleRNN) Build(in ...Shape) error {
	s.scanOptions = scanOptions{s.ReturnSequences, s.ReturnState, s.GoBackwards, s.Stateful, s.Unroll, s.ZeroOutputForMask}
	if err := s.SetActivityRegularizer(s.ActivityRegularizer); err != nil {
		return err
	}
	return s.prepare(&s.Base, "simple_rnn_cell", &SimpleRNNCell{
		Units:                s.Units,
		Activation:           s.Activation,
		UseBias:              s.UseBias,
		KernelInitializer:    s.KernelInitializer,
		RecurrentInitializer: s.RecurrentInitializer,
		BiasInitializer:      s.BiasInitializer,
		KernelRegularizer:    s.KernelRegularizer,
		RecurrentRegularizer: s.RecurrentRegularizer,
		BiasRegularizer:      s.BiasRegularizer,
		KernelConstraint:     s.KernelConstraint,
		RecurrentConstraint:  s.RecurrentConstraint,
		BiasConstraint:       s.BiasConstraint,
		Dropout:              s.Dropout,
		RecurrentDropout:     s.RecurrentDropout,
		Seed:                 s.Seed,
	}, in)
}

// CheckInput requires a sequence with the features it was built for; states
// are optional.
func (s *SimpleRNN) CheckInput(in ...Shape) error { return s.check(in) }

// Call computes the layer on x.
func (s *SimpleRNN) Call(p Pass, x *tensor.Tensor) *tensor.Tensor { return s.call(&s.Base, p, x) }

// LSTM is the layer of long short-term memory (Hochreiter and Schmidhuber 1997):
//
//	i, f, o = recurrentActivation(x·kernel + h·recurrent_kernel + bias)
//	c ← f·c + i·activation(x·kernel + h·recurrent_kernel + bias)
//	h ← o·activation(c)
//
// each with columns of its own, in the order i, f, c, o.
//
// Inputs and result are those of [RNN]; the states are h and c. Weights, in its
// cell: kernel [features 4·Units], recurrent_kernel [Units 4·Units], bias
// [4·Units].
//
// With the usual activations it is one operation of the graph, in which c stays
// in float32 from step to step.
type LSTM struct {
	Units                int    // size of output and states; required
	Activation           string `default:"tanh"`
	RecurrentActivation  string `default:"sigmoid"`
	UseBias              *bool  `default:"true"`
	KernelInitializer    string `default:"glorot_uniform"`
	RecurrentInitializer string `default:"orthogonal"`
	BiasInitializer      string `default:"zeros"`
	UnitForgetBias       *bool  `default:"true"` // the bias of the forget gate starts as 1
	KernelRegularizer    string
	RecurrentRegularizer string
	BiasRegularizer      string
	ActivityRegularizer  string
	KernelConstraint     string
	RecurrentConstraint  string
	BiasConstraint       string
	Dropout              float64 // share of the features that is dropped, at all steps alike
	RecurrentDropout     float64 // share of the state that is dropped before it is multiplied; the steps are a loop of the graph then
	Seed                 *int64
	ReturnSequences      bool // return the output of each step
	ReturnState          bool // return the last states too
	GoBackwards          bool // start at the last step; outputs are in that order
	Stateful             bool // begin where the last call ended; batches must have one size
	Unroll               bool // record each step by itself
	ZeroOutputForMask    bool // outputs of steps that are masked out are zero
	Name, DType          string

	Base
	SetsMask
	recurrent
}

// Config returns the fields Name and DType.
func (l *LSTM) Config() Config { return Config{l.Name, l.DType} }

// Build builds the cell.
func (l *LSTM) Build(in ...Shape) error {
	l.scanOptions = scanOptions{l.ReturnSequences, l.ReturnState, l.GoBackwards, l.Stateful, l.Unroll, l.ZeroOutputForMask}
	if err := l.SetActivityRegularizer(l.ActivityRegularizer); err != nil {
		return err
	}
	return l.prepare(&l.Base, "lstm_cell", &LSTMCell{
		Units:                l.Units,
		Activation:           l.Activation,
		RecurrentActivation:  l.RecurrentActivation,
		UseBias:              l.UseBias,
		KernelInitializer:    l.KernelInitializer,
		RecurrentInitializer: l.RecurrentInitializer,
		BiasInitializer:      l.BiasInitializer,
		KernelRegularizer:    l.KernelRegularizer,
		RecurrentRegularizer: l.RecurrentRegularizer,
		BiasRegularizer:      l.BiasRegularizer,
		KernelConstraint:     l.KernelConstraint,
		RecurrentConstraint:  l.RecurrentConstraint,
		BiasConstraint:       l.BiasConstraint,
		Dropout:              l.Dropout,
		RecurrentDropout:     l.RecurrentDropout,
		Seed:                 l.Seed,
		UnitForgetBias:       l.UnitForgetBias,
	}, in)
}

// CheckInput requires a sequence with the features it was built for; states
// are optional.
func (l *LSTM) CheckInput(in ...Shape) error { return l.check(in) }

// Call computes the layer on x.
func (l *LSTM) Call(p Pass, x *tensor.Tensor) *tensor.Tensor { return l.call(&l.Base, p, x) }

// GRU is the layer of gated recurrent units (Cho et al. 2014):
//
//	z, r = recurrentActivation(x·kernel + h·recurrent_kernel + bias)
//	g = activation(x·kernel + bias + r·(h·recurrent_kernel + bias))
//	h ← z·h + (1-z)·g
//
// each with columns of its own, in the order z, r, g. With ResetAfter false g is
// activation(x·kernel + (r·h)·recurrent_kernel + bias).
//
// Inputs and result are those of [RNN]; the state is h. Weights, in its cell:
// kernel [features 3·Units], recurrent_kernel [Units 3·Units], bias [2 3·Units],
// of input and recurrence, or with ResetAfter false [3·Units].
//
// With the usual activations it is one operation of the graph.
type GRU struct {
	Units                int    // size of output and states; required
	Activation           string `default:"tanh"`
	RecurrentActivation  string `default:"sigmoid"`
	UseBias              *bool  `default:"true"`
	KernelInitializer    string `default:"glorot_uniform"`
	RecurrentInitializer string `default:"orthogonal"`
	BiasInitializer      string `default:"zeros"`
	KernelRegularizer    string
	RecurrentRegularizer string
	BiasRegularizer      string
	ActivityRegularizer  string
	KernelConstraint     string
	RecurrentConstraint  string
	BiasConstraint       string
	Dropout              float64 // share of the features that is dropped, at all steps alike
	RecurrentDropout     float64 // share of the state that is dropped before it is multiplied; the steps are a loop of the graph then
	ResetAfter           *bool   `default:"true"` // the reset gate acts after the product
	Seed                 *int64
	ReturnSequences      bool // return the output of each step
	ReturnState          bool // return the last states too
	GoBackwards          bool // start at the last step; outputs are in that order
	Stateful             bool // begin where the last call ended; batches must have one size
	Unroll               bool // record each step by itself
	ZeroOutputForMask    bool // outputs of steps that are masked out are zero
	Name, DType          string

	Base
	SetsMask
	recurrent
}

// Config returns the fields Name and DType.
func (g *GRU) Config() Config { return Config{g.Name, g.DType} }

// Build builds the cell.
func (g *GRU) Build(in ...Shape) error {
	g.scanOptions = scanOptions{g.ReturnSequences, g.ReturnState, g.GoBackwards, g.Stateful, g.Unroll, g.ZeroOutputForMask}
	if err := g.SetActivityRegularizer(g.ActivityRegularizer); err != nil {
		return err
	}
	return g.prepare(&g.Base, "gru_cell", &GRUCell{
		Units:                g.Units,
		Activation:           g.Activation,
		RecurrentActivation:  g.RecurrentActivation,
		UseBias:              g.UseBias,
		KernelInitializer:    g.KernelInitializer,
		RecurrentInitializer: g.RecurrentInitializer,
		BiasInitializer:      g.BiasInitializer,
		KernelRegularizer:    g.KernelRegularizer,
		RecurrentRegularizer: g.RecurrentRegularizer,
		BiasRegularizer:      g.BiasRegularizer,
		KernelConstraint:     g.KernelConstraint,
		RecurrentConstraint:  g.RecurrentConstraint,
		BiasConstraint:       g.BiasConstraint,
		Dropout:              g.Dropout,
		RecurrentDropout:     g.RecurrentDropout,
		Seed:                 g.Seed,
		ResetAfter:           g.ResetAfter,
	}, in)
}

// CheckInput requires a sequence with the features it was built for; states
// are optional.
func (g *GRU) CheckInput(in ...Shape) error { return g.check(in) }

// Call computes the layer on x.
func (g *GRU) Call(p Pass, x *tensor.Tensor) *tensor.Tensor { return g.call(&g.Base, p, x) }
