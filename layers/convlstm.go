package layers

import (
	"fmt"
	"slices"

	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/layers/internal/support"
)

// ConvLSTM1D is an [LSTM] whose products are convolutions, for sequences of
// fields: of lines here (Shi et al. 2015). Convolutions of the state keep its
// size.
//
// Inputs and result are those of [RNN], of steps [n channels] with outputs and
// states [outputs Filters]; the sizes must be known. Weights, in its cell:
// kernel [KernelSize… channels 4·Filters], recurrent_kernel [KernelSize…
// Filters 4·Filters], bias [4·Filters]; gates i, f, c, o. The steps are a loop
// of the graph, so sequences have a known length.
type ConvLSTM1D struct {
	Filters              int     // channels of output and states; required
	KernelSize           PerAxis // size of the windows: 1 number for all axes, or one for each; required
	Strides              PerAxis `default:"1"`             // from one window to the next, in the input
	Padding              string  `default:"valid"`         // or same, of the input
	DataFormat           string  `default:"channels_last"` // or channels_first
	DilationRate         PerAxis `default:"1"`             // between the elements of a window in the input; not together with Strides
	Activation           string  `default:"tanh"`
	RecurrentActivation  string  `default:"sigmoid"`
	UseBias              *bool   `default:"true"`
	KernelInitializer    string  `default:"glorot_uniform"`
	RecurrentInitializer string  `default:"orthogonal"`
	BiasInitializer      string  `default:"zeros"`
	UnitForgetBias       *bool   `default:"true"` // the bias of the forget gate starts as 1
	KernelRegularizer    string
	RecurrentRegularizer string
	BiasRegularizer      string
	ActivityRegularizer  string
	KernelConstraint     string
	RecurrentConstraint  string
	BiasConstraint       string
	Dropout              float64 // share of the input that is dropped, at all steps alike
	RecurrentDropout     float64 // share of the state that is dropped before each gate
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

// ConvLSTM2D is [ConvLSTM1D] for sequences of images [rows columns channels].
type ConvLSTM2D struct {
	Filters              int     // channels of output and states; required
	KernelSize           PerAxis // size of the windows: 1 number for all axes, or one for each; required
	Strides              PerAxis `default:"1"`             // from one window to the next, in the input
	Padding              string  `default:"valid"`         // or same, of the input
	DataFormat           string  `default:"channels_last"` // or channels_first
	DilationRate         PerAxis `default:"1"`             // between the elements of a window in the input; not together with Strides
	Activation           string  `default:"tanh"`
	RecurrentActivation  string  `default:"sigmoid"`
	UseBias              *bool   `default:"true"`
	KernelInitializer    string  `default:"glorot_uniform"`
	RecurrentInitializer string  `default:"orthogonal"`
	BiasInitializer      string  `default:"zeros"`
	UnitForgetBias       *bool   `default:"true"` // the bias of the forget gate starts as 1
	KernelRegularizer    string
	RecurrentRegularizer string
	BiasRegularizer      string
	ActivityRegularizer  string
	KernelConstraint     string
	RecurrentConstraint  string
	BiasConstraint       string
	Dropout              float64 // share of the input that is dropped, at all steps alike
	RecurrentDropout     float64 // share of the state that is dropped before each gate
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

// ConvLSTM3D is [ConvLSTM1D] for sequences of volumes [depth rows columns
// channels].
type ConvLSTM3D struct {
	Filters              int     // channels of output and states; required
	KernelSize           PerAxis // size of the windows: 1 number for all axes, or one for each; required
	Strides              PerAxis `default:"1"`             // from one window to the next, in the input
	Padding              string  `default:"valid"`         // or same, of the input
	DataFormat           string  `default:"channels_last"` // or channels_first
	DilationRate         PerAxis `default:"1"`             // between the elements of a window in the input; not together with Strides
	Activation           string  `default:"tanh"`
	RecurrentActivation  string  `default:"sigmoid"`
	UseBias              *bool   `default:"true"`
	KernelInitializer    string  `default:"glorot_uniform"`
	RecurrentInitializer string  `default:"orthogonal"`
	BiasInitializer      string  `default:"zeros"`
	UnitForgetBias       *bool   `default:"true"` // the bias of the forget gate starts as 1
	KernelRegularizer    string
	RecurrentRegularizer string
	BiasRegularizer      string
	ActivityRegularizer  string
	KernelConstraint     string
	RecurrentConstraint  string
	BiasConstraint       string
	Dropout              float64 // share of the input that is dropped, at all steps alike
	RecurrentDropout     float64 // share of the state that is dropped before each gate
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
func (l *ConvLSTM1D) Config() Config { return Config{l.Name, l.DType} }

// Build builds the cell.
func (l *ConvLSTM1D) Build(in ...Shape) error { return l.make(1, in) }

// CheckInput requires a sequence with the features it was built for; states
// are optional.
func (l *ConvLSTM1D) CheckInput(in ...Shape) error { return l.check(in) }

// Call computes the layer on x.
func (l *ConvLSTM1D) Call(p Pass, x *tensor.Tensor) *tensor.Tensor { return l.call(&l.Base, p, x) }

// Config returns the fields Name and DType.
func (l *ConvLSTM2D) Config() Config { return Config{l.Name, l.DType} }

// Build builds the cell.
func (l *ConvLSTM2D) Build(in ...Shape) error { return (*ConvLSTM1D)(l).make(2, in) }

// CheckInput requires a sequence with the features it was built for; states
// are optional.
func (l *ConvLSTM2D) CheckInput(in ...Shape) error { return l.check(in) }

// Call computes the layer on x.
func (l *ConvLSTM2D) Call(p Pass, x *tensor.Tensor) *tensor.Tensor { return l.call(&l.Base, p, x) }

// Config returns the fields Name and DType.
func (l *ConvLSTM3D) Config() Config { return Config{l.Name, l.DType} }

// Build builds the cell.
func (l *ConvLSTM3D) Build(in ...Shape) error { return (*ConvLSTM1D)(l).make(3, in) }

// CheckInput requires a sequence with the features it was built for; states
// are optional.
func (l *ConvLSTM3D) CheckInput(in ...Shape) error { return l.check(in) }

// Call computes the layer on x.
func (l *ConvLSTM3D) Call(p Pass, x *tensor.Tensor) *tensor.Tensor { return l.call(&l.Base, p, x) }

func (l *ConvLSTM1D) make(n int, in []Shape) error {
	if len(in) == 0 || len(in[0]) != n+3 {
		return fmt.Errorf("got inputs %v, want a sequence [batch steps …] of %d axes", in, n+3)
	}
	l.scanOptions = scanOptions{l.ReturnSequences, l.ReturnState, l.GoBackwards, l.Stateful, l.Unroll, l.ZeroOutputForMask}
	if err := l.SetActivityRegularizer(l.ActivityRegularizer); err != nil {
		return err
	}
	return l.prepare(&l.Base, "conv_lstm_cell", &convLSTMCell{fields: Defaults(*l), axes: n}, in)
}

// convLSTMCell is a step of the layers ConvLSTM.
type convLSTMCell struct {
	Base
	cellCore
	fields ConvLSTM1D
	axes   int
	conv   convolution
	shape  Shape // of the states
}

// Config returns nothing: the layer around it has the fields.
func (c *convLSTMCell) Config() Config { return Config{} }

// Build makes the weights.
func (c *convLSTMCell) Build(in ...Shape) error {
	f := &c.fields
	if err := support.Positive("Filters", f.Filters); err != nil {
		return err
	}
	w := &c.conv.windows
	if err := w.Of(c.axes, "KernelSize", f.KernelSize, f.Strides, f.DilationRate, f.Padding, "valid", "same"); err != nil {
		return err
	}
	if err := c.conv.open(c.axes, f.DataFormat, in); err != nil {
		return err
	}
	if n := support.Unknowns(in[0][1:]); n > 0 {
		return fmt.Errorf("a step is %v, want sizes that are known: the states depend on them", in[0])
	}
	d := cellFields{
		Units: f.Filters, Activation: f.Activation, RecurrentActivation: f.RecurrentActivation, UseBias: f.UseBias,
		Kernel:    [3]string{f.KernelInitializer, f.KernelRegularizer, f.KernelConstraint},
		Recurrent: [3]string{f.RecurrentInitializer, f.RecurrentRegularizer, f.RecurrentConstraint},
		Bias:      [3]string{f.BiasInitializer, f.BiasRegularizer, f.BiasConstraint},
		Dropout:   f.Dropout, RecurrentDropout: f.RecurrentDropout, Seed: f.Seed, gates: 4,
	}
	if *f.UnitForgetBias {
		d.adjust = forgetOnes(f.Filters)
	}
	size := Shape(w.Size)
	if err := c.weigh(&c.Base, d, slices.Concat(size, Shape{c.conv.channels, 4 * f.Filters}), slices.Concat(size, Shape{f.Filters, 4 * f.Filters})); err != nil {
		return err
	}
	x := w.Field.ChannelsLast(tensor.Placeholder(c.ComputeDType(), in[0]...))
	y := c.conv.conv(x, tensor.Placeholder(c.ComputeDType(), slices.Concat(size, Shape{c.conv.channels, f.Filters})...), 1)
	c.shape = w.Field.Restore(y).Shape()[1:].Clone()
	return nil
}

// CheckInput returns nil: the layer checks its input.
func (c *convLSTMCell) CheckInput(...Shape) error { return nil }

// StateShapes implements Cell: h and c.
func (c *convLSTMCell) StateShapes() []Shape { return []Shape{c.shape, c.shape} }

// Call computes a step.
func (c *convLSTMCell) Call(p Pass, x *tensor.Tensor) *tensor.Tensor {
	in, states := unpackCell(x, 2)
	field := &c.conv.windows.Field
	z := c.conv.conv(field.ChannelsLast(c.drop(p, in)), c.kernel.Value(), 1)
	if c.bias != nil {
		z = z.Add(c.bias.Value())
	}
	h := field.ChannelsLast(states[0])
	u, axis := c.recurrent.Value(), h.Rank()-1
	same := tensor.ConvOptions{Padding: "same"}
	var q *tensor.Tensor
	if masks := c.gateMasks(p, h, 0); masks == nil {
		q = h.Conv(u, same).Widen()
	} else {
		var all []*tensor.Tensor
		for g, mask := range masks {
			all = append(all, h.Mul(mask).Conv(u.Slice(axis, g*c.units, (g+1)*c.units), same).Widen())
		}
		q = tensor.Concat(axis, all...)
	}
	z = z.Widen().Add(q)
	gate := func(g int) *tensor.Tensor { return z.Slice(axis, g*c.units, (g+1)*c.units) }
	out, state := lstmStep(gate(0), gate(1), gate(2), gate(3), field.ChannelsLast(states[1]).Widen(), c.activation, c.gate)
	out = field.Restore(out.Cast(in.DType()))
	return tensor.Tuple(out, out, field.Restore(state.Cast(in.DType())))
}
