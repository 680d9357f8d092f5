package layers

import (
	"fmt"

	"github.com/mezzo-ml/mezzo/backend/op"
	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/layers/activations"
	"github.com/mezzo-ml/mezzo/layers/internal/support"
)

// Cell is a layer that computes one step of a sequence, for RNN. Its input is
// a tuple of x at this step and the states. Its result is a tuple of the
// output and the next states.
type Cell interface {
	Layer
	// StateShapes lists the shapes of the states without the batch. It is
	// asked once the cell is built.
	StateShapes() []Shape
}

// sequenceCell is a Cell that has something to do before and after the steps
// of a sequence.
type sequenceCell interface {
	begin()
	end()
}

// cellFields are the fields that the cells of this package share, and the
// layers made of them.
type cellFields struct {
	Units                           int
	Activation, RecurrentActivation string
	UseBias                         *bool
	Kernel, Recurrent, Bias         [3]string // initializer, regularizer, constraint
	Dropout, RecurrentDropout       float64
	Seed                            *int64
	gates                           int
	biasShape                       Shape
	adjust                          func(bias []float64)
}

// cellCore is the part that the cells of this package share.
type cellCore struct {
	units, gates              int
	kernel, recurrent, bias   *Weight
	activation, gate          activations.Func
	activationName, gateName  string
	dropout, recurrentDropout float64
	inputState, recurState    *tensor.Variable

	// While a sequence is gone through, masks of dropout stay the same.
	holds      bool
	inputMask  *tensor.Tensor
	recurMasks []*tensor.Tensor
}

func (c *cellCore) begin() { c.holds, c.inputMask, c.recurMasks = true, nil, nil }
func (c *cellCore) end()   { c.holds, c.inputMask, c.recurMasks = false, nil, nil }

// prepare checks f and makes the weights for inputs in: x, and the states.
func (c *cellCore) prepare(b *Base, f cellFields, states int, in []Shape) (err error) {
	if f.Units <= 0 {
		return fmt.Errorf("Units is %d, want a positive number", f.Units)
	}
	if len(in) != states+1 && len(in) != 1 {
		return fmt.Errorf("got %d inputs, want x and %d states", len(in), states)
	}
	if len(in[0]) != 2 {
		return fmt.Errorf("x is %v, want [batch features]", in[0])
	}
	features, err := support.KnownAxis(in[0], 1)
	if err != nil {
		return err
	}
	for i, s := range in[1:] {
		if len(s) != 2 || s[1] != f.Units {
			return fmt.Errorf("state %d is %v, want [batch %d]", i, s, f.Units)
		}
	}
	return c.weigh(b, f, Shape{features, f.gates * f.Units}, Shape{f.Units, f.gates * f.Units})
}

// weigh checks the fields that do not depend on shapes, and adds the weights.
func (c *cellCore) weigh(b *Base, f cellFields, kernel, recurrent Shape) (err error) {
	c.units, c.gates = f.Units, f.gates
	c.activationName, c.gateName = f.Activation, f.RecurrentActivation
	if c.activation, err = activations.Get(f.Activation); err != nil {
		return err
	}
	if c.gate, err = activations.Get(f.RecurrentActivation); err != nil {
		return fmt.Errorf("RecurrentActivation: %w", err)
	}
	c.dropout, c.recurrentDropout = f.Dropout, f.RecurrentDropout
	if c.inputState, err = b.rateState(f.Dropout, f.Seed); err != nil {
		return fmt.Errorf("Dropout: %w", err)
	}
	seed := f.Seed
	if seed != nil { // other random numbers than the input's
		seed = new(*seed + 1)
	}
	if c.recurState, err = b.rateState(f.RecurrentDropout, seed); err != nil {
		return fmt.Errorf("RecurrentDropout: %w", err)
	}
	add := func(name string, s Shape, from [3]string, more ...WeightOption) (*Weight, error) {
		return b.AddWeight(name, s, from[0], append(more, Regularizer(from[1]), Constraint(from[2]))...)
	}
	if c.kernel, err = add("kernel", kernel, f.Kernel); err != nil {
		return err
	}
	if c.recurrent, err = add("recurrent_kernel", recurrent, f.Recurrent); err != nil {
		return err
	}
	if !*f.UseBias {
		return nil
	}
	var more []WeightOption
	if f.adjust != nil {
		more = append(more, adjusted(f.adjust))
	}
	shape := f.biasShape
	if shape == nil {
		shape = Shape{f.gates * f.Units}
	}
	c.bias, err = add("bias", shape, f.Bias, more...)
	return err
}

// dropoutMask draws a mask of dropout for x, which multiplies it.
func dropoutMask(x *tensor.Tensor, state *tensor.Variable, rate float64, shape Shape) *tensor.Tensor {
	ones := tensor.Ones(x.DType()).BroadcastTo(shape...)
	keep := kept(x, state, rate, shape)
	scale := 1.0
	if rate < 1 {
		scale = 1 / (1 - rate)
	}
	return tensor.Where(keep, ones.MulScalar(scale), tensor.Scalar(x.DType(), 0))
}

// drop applies dropout to the input of a step.
func (c *cellCore) drop(p Pass, x *tensor.Tensor) *tensor.Tensor {
	if !p.Training || c.dropout == 0 || x.Symbolic() {
		return x
	}
	if c.inputMask == nil || !c.holds {
		c.inputMask = dropoutMask(x, c.inputState, c.dropout, x.Shape())
	}
	return x.Mul(c.inputMask)
}

// dropSequence applies it to all steps of a sequence [batch steps features] at
// once: one mask for all of them.
func (c *cellCore) dropSequence(p Pass, x *tensor.Tensor) *tensor.Tensor {
	if !p.Training || c.dropout == 0 || x.Symbolic() {
		return x
	}
	return drop(x, c.inputState, c.dropout, Shape{x.Dim(0), 1, x.Dim(2)})
}

// product is h times the recurrent kernel, or times its gates from to to-1, each with
// its own mask if h is dropped out.
func (c *cellCore) product(p Pass, h *tensor.Tensor, from, to int) *tensor.Tensor {
	u := c.recurrent.Value()
	masks := c.gateMasks(p, h, from)
	if masks == nil {
		if to-from < c.gates {
			u = u.Slice(1, from*c.units, to*c.units)
		}
		return h.MatMul(u).Widen()
	}
	var all []*tensor.Tensor
	for g := from; g < to; g++ {
		all = append(all, h.Mul(masks[g]).MatMul(u.Slice(1, g*c.units, (g+1)*c.units)).Widen())
	}
	if len(all) == 1 {
		return all[0]
	}
	return tensor.Concat(1, all...)
}

// gateMasks returns the masks of h's recurrent dropout for each gate, or nil. A step
// must request gate 0 first.
func (c *cellCore) gateMasks(p Pass, h *tensor.Tensor, gate int) []*tensor.Tensor {
	if !p.Training || c.recurrentDropout == 0 || h.Symbolic() {
		return nil
	}
	if c.recurMasks == nil || !c.holds && gate == 0 {
		c.recurMasks = nil
		for range c.gates {
			c.recurMasks = append(c.recurMasks, dropoutMask(h, c.recurState, c.recurrentDropout, h.Shape()))
		}
	}
	return c.recurMasks
}

// cut is a gate's part of x.
func (c *cellCore) cut(x *tensor.Tensor, gate int) *tensor.Tensor {
	return x.Slice(1, gate*c.units, (gate+1)*c.units)
}

// inputSum is x times the kernel plus a bias, of any number of leading axes.
func (c *cellCore) inputSum(x, bias *tensor.Tensor) *tensor.Tensor {
	y := x.MatMul(c.kernel.Value())
	if bias != nil {
		y = y.Add(bias)
	}
	return y
}

// is reports whether the activations are those of the fused cell.
func (c *cellCore) is(activation, gate string) bool {
	return c.activationName == activation && (c.gates == 1 || c.gateName == gate)
}

// biasValue is the bias, or nil.
func (c *cellCore) biasValue() *tensor.Tensor {
	if c.bias == nil {
		return nil
	}
	return c.bias.Value()
}

// fusedCell is a cell for which one operation processes a sequence.
type fusedCell interface {
	Cell
	core() *cellCore
	// fused tells which cell of package op it is, and the biases that are added
	// to the input and within the cell, or nil; false when there is none such.
	fused() (cell op.Cell, bias, inner *tensor.Tensor, ok bool)
}

// unpackCell is x and the states of a step.
func unpackCell(x *tensor.Tensor, states int) (*tensor.Tensor, []*tensor.Tensor) {
	if x.Len() != states+1 {
		tensor.Fail("Call", "got %d inputs, want x and %d states", x.Len(), states)
	}
	support.CheckFloats(x.Unpack()[0])
	return x.Unpack()[0], x.Unpack()[1:]
}

// SimpleRNNCell is a step of [SimpleRNN]: activation(x·kernel + h·recurrent_kernel + bias).
//
// Shapes: ([batch features], [batch Units]) → ([batch Units], [batch Units]).
// Weights: kernel [features Units], recurrent_kernel [Units Units], bias [Units].
type SimpleRNNCell struct {
	Units                int    // size of output and state; required
	Activation           string `default:"tanh"`
	UseBias              *bool  `default:"true"`
	KernelInitializer    string `default:"glorot_uniform"`
	RecurrentInitializer string `default:"orthogonal"`
	BiasInitializer      string `default:"zeros"`
	KernelRegularizer    string
	RecurrentRegularizer string
	BiasRegularizer      string
	KernelConstraint     string
	RecurrentConstraint  string
	BiasConstraint       string
	Dropout              float64 // share of x that is dropped
	RecurrentDropout     float64 // share of h that is dropped before it is multiplied
	Seed                 *int64
	Name, DType          string

	Base
	cellCore
}

// Config returns the fields Name and DType.
func (c *SimpleRNNCell) Config() Config { return Config{c.Name, c.DType} }

// Build makes the weights.
func (c *SimpleRNNCell) Build(in ...Shape) error {
	d := Defaults(*c)
	return c.prepare(&c.Base, cellFields{
		Units: d.Units, Activation: d.Activation, UseBias: d.UseBias,
		Kernel:    [3]string{d.KernelInitializer, d.KernelRegularizer, d.KernelConstraint},
		Recurrent: [3]string{d.RecurrentInitializer, d.RecurrentRegularizer, d.RecurrentConstraint},
		Bias:      [3]string{d.BiasInitializer, d.BiasRegularizer, d.BiasConstraint},
		Dropout:   d.Dropout, RecurrentDropout: d.RecurrentDropout, Seed: d.Seed, gates: 1,
	}, 1, in)
}

// CheckInput returns nil: Call checks its input.
func (c *SimpleRNNCell) CheckInput(...Shape) error { return nil }

// StateShapes implements Cell: h.
func (c *SimpleRNNCell) StateShapes() []Shape { return []Shape{{c.units}} }

func (c *SimpleRNNCell) core() *cellCore { return &c.cellCore }

func (c *SimpleRNNCell) fused() (op.Cell, *tensor.Tensor, *tensor.Tensor, bool) {
	switch {
	case c.is("tanh", ""):
		return op.TanhCell, c.biasValue(), nil, true
	case c.is("relu", ""):
		return op.ReluCell, c.biasValue(), nil, true
	}
	return 0, nil, nil, false
}

// Call computes a step.
func (c *SimpleRNNCell) Call(p Pass, x *tensor.Tensor) *tensor.Tensor {
	in, states := unpackCell(x, 1)
	z := c.inputSum(c.drop(p, in), c.biasValue()).Widen().Add(c.product(p, states[0], 0, 1))
	h := c.activation(z).Cast(in.DType())
	return tensor.Tuple(h, h)
}

// LSTMCell is a step of [LSTM]. States: h and c.
//
// Shapes: ([batch features], [batch Units], [batch Units]) → as many of
// [batch Units]. Weights: kernel [features 4·Units], recurrent_kernel
// [Units 4·Units], bias [4·Units]; gates i, f, c, o.
type LSTMCell struct {
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
	KernelConstraint     string
	RecurrentConstraint  string
	BiasConstraint       string
	Dropout              float64 // share of x that is dropped
	RecurrentDropout     float64 // share of h that is dropped before it is multiplied
	Seed                 *int64
	Name, DType          string

	Base
	cellCore
}

// Config returns the fields Name and DType.
func (c *LSTMCell) Config() Config { return Config{c.Name, c.DType} }

// Build makes the weights.
func (c *LSTMCell) Build(in ...Shape) error {
	d := Defaults(*c)
	f := cellFields{
		Units: d.Units, Activation: d.Activation, RecurrentActivation: d.RecurrentActivation, UseBias: d.UseBias,
		Kernel:    [3]string{d.KernelInitializer, d.KernelRegularizer, d.KernelConstraint},
		Recurrent: [3]string{d.RecurrentInitializer, d.RecurrentRegularizer, d.RecurrentConstraint},
		Bias:      [3]string{d.BiasInitializer, d.BiasRegularizer, d.BiasConstraint},
		Dropout:   d.Dropout, RecurrentDropout: d.RecurrentDropout, Seed: d.Seed, gates: 4,
	}
	if *d.UnitForgetBias {
		f.adjust = forgetOnes(d.Units)
	}
	return c.prepare(&c.Base, f, 2, in)
}

// forgetOnes sets the part of the forget gate of a bias to 1.
func forgetOnes(units int) func(bias []float64) {
	return func(bias []float64) {
		for i := range units {
			bias[units+i] = 1
		}
	}
}

// CheckInput returns nil: Call checks its input.
func (c *LSTMCell) CheckInput(...Shape) error { return nil }

// StateShapes implements Cell: h and c.
func (c *LSTMCell) StateShapes() []Shape { return []Shape{{c.units}, {c.units}} }

func (c *LSTMCell) core() *cellCore { return &c.cellCore }

func (c *LSTMCell) fused() (op.Cell, *tensor.Tensor, *tensor.Tensor, bool) {
	return op.LSTMCell, c.biasValue(), nil, c.is("tanh", "sigmoid")
}

// Call computes a step.
func (c *LSTMCell) Call(p Pass, x *tensor.Tensor) *tensor.Tensor {
	in, states := unpackCell(x, 2)
	z := c.inputSum(c.drop(p, in), c.biasValue()).Widen().Add(c.product(p, states[0], 0, 4))
	h, state := lstmStep(c.cut(z, 0), c.cut(z, 1), c.cut(z, 2), c.cut(z, 3), states[1].Widen(), c.activation, c.gate)
	h = h.Cast(in.DType())
	return tensor.Tuple(h, h, state.Cast(in.DType()))
}

// lstmStep computes h and c from the sums of the gates and the last c.
func lstmStep(i, f, g, o, c *tensor.Tensor, activation, gate activations.Func) (h, state *tensor.Tensor) {
	state = gate(f).Mul(c).Add(gate(i).Mul(activation(g)))
	return gate(o).Mul(activation(state)), state
}

// GRUCell is a step of [GRU].
//
// Shapes: ([batch features], [batch Units]) → ([batch Units], [batch Units]).
// Weights: kernel [features 3·Units], recurrent_kernel [Units 3·Units], bias
// [2 3·Units], of input and recurrence, or with ResetAfter false [3·Units];
// gates z, r, h.
type GRUCell struct {
	Units                int    // size of output and state; required
	Activation           string `default:"tanh"`
	RecurrentActivation  string `default:"sigmoid"`
	UseBias              *bool  `default:"true"`
	KernelInitializer    string `default:"glorot_uniform"`
	RecurrentInitializer string `default:"orthogonal"`
	BiasInitializer      string `default:"zeros"`
	KernelRegularizer    string
	RecurrentRegularizer string
	BiasRegularizer      string
	KernelConstraint     string
	RecurrentConstraint  string
	BiasConstraint       string
	Dropout              float64 // share of x that is dropped
	RecurrentDropout     float64 // share of h that is dropped before it is multiplied
	ResetAfter           *bool   `default:"true"` // the reset gate acts after the product
	Seed                 *int64
	Name, DType          string

	Base
	cellCore
	after bool
}

// Config returns the fields Name and DType.
func (c *GRUCell) Config() Config { return Config{c.Name, c.DType} }

// Build makes the weights.
func (c *GRUCell) Build(in ...Shape) error {
	d := Defaults(*c)
	f := cellFields{
		Units: d.Units, Activation: d.Activation, RecurrentActivation: d.RecurrentActivation, UseBias: d.UseBias,
		Kernel:    [3]string{d.KernelInitializer, d.KernelRegularizer, d.KernelConstraint},
		Recurrent: [3]string{d.RecurrentInitializer, d.RecurrentRegularizer, d.RecurrentConstraint},
		Bias:      [3]string{d.BiasInitializer, d.BiasRegularizer, d.BiasConstraint},
		Dropout:   d.Dropout, RecurrentDropout: d.RecurrentDropout, Seed: d.Seed, gates: 3,
	}
	if c.after = *d.ResetAfter; c.after {
		f.biasShape = Shape{2, 3 * d.Units}
	}
	return c.prepare(&c.Base, f, 1, in)
}

// CheckInput returns nil: Call checks its input.
func (c *GRUCell) CheckInput(...Shape) error { return nil }

// StateShapes implements Cell: h.
func (c *GRUCell) StateShapes() []Shape { return []Shape{{c.units}} }

func (c *GRUCell) core() *cellCore { return &c.cellCore }

// biases returns the biases of the input and of the recurrence, or nil.
func (c *GRUCell) biases() (in, recurrent *tensor.Tensor) {
	switch {
	case c.bias == nil:
		return nil, nil
	case !c.after:
		return c.bias.Value(), nil
	}
	b, n := c.bias.Value(), 3*c.units
	return b.Slice(0, 0, 1).Reshape(n), b.Slice(0, 1, 2).Reshape(n)
}

func (c *GRUCell) fused() (op.Cell, *tensor.Tensor, *tensor.Tensor, bool) {
	in, recurrent := c.biases()
	ok := c.is("tanh", "sigmoid")
	if !c.after {
		return op.GRUBeforeCell, in, nil, ok
	}
	if recurrent == nil {
		return op.GRUCell, nil, nil, ok
	}
	// The parts of the gates z and r are added outside, where it is done once.
	outer := recurrent.Slice(0, 0, 2*c.units).Pad([]int{0}, []int{c.units}, 0)
	return op.GRUCell, in.Add(outer), recurrent.Slice(0, 2*c.units, 3*c.units), ok
}

// Call computes a step.
func (c *GRUCell) Call(p Pass, x *tensor.Tensor) *tensor.Tensor {
	in, states := unpackCell(x, 1)
	h := states[0]
	bias, recurrentBias := c.biases()
	z := c.inputSum(c.drop(p, in), bias).Widen()
	var update, g *tensor.Tensor
	if c.after {
		q := c.product(p, h, 0, 3)
		if recurrentBias != nil {
			q = q.Add(recurrentBias.Widen())
		}
		update = c.gate(c.cut(z, 0).Add(c.cut(q, 0)))
		r := c.gate(c.cut(z, 1).Add(c.cut(q, 1)))
		g = c.activation(c.cut(z, 2).Add(r.Mul(c.cut(q, 2))))
	} else {
		q := c.product(p, h, 0, 2)
		update = c.gate(c.cut(z, 0).Add(c.cut(q, 0)))
		r := c.gate(c.cut(z, 1).Add(c.cut(q, 1)))
		g = c.activation(c.cut(z, 2).Add(c.product(p, r.Mul(h.Widen()).Cast(in.DType()), 2, 3)))
	}
	out := g.Add(update.Mul(h.Widen().Sub(g))).Cast(in.DType())
	return tensor.Tuple(out, out)
}
