package op

import (
	"fmt"
	"strconv"

	"github.com/mezzo-ml/mezzo/backend/dtype"
)

// Cell is the recurrence of a step. z is the input times its kernel, plus bias; h is
// the last output, u the recurrent kernel, σ the logistic function, ⊙ the element-wise
// product.
type Cell uint8

// The cells. Gates lie along the last axis of z and u in the order given,
// which is Keras's.
const (
	TanhCell Cell = iota // h ← tanh(z + h·u)
	ReluCell             // h ← relu(z + h·u)

	// LSTMCell has the gates i, f, g, o: all z + h·u, through σ, σ, tanh, σ;
	// c ← f⊙c + i⊙g, h ← o⊙tanh(c). Hochreiter and Schmidhuber, "Long
	// Short-Term Memory" (1997), with the forget gate of Gers et al. (2000).
	LSTMCell

	// GRUCell has the gates z, r, g: σ(z_z + h·u_z), σ(z_r + h·u_r) and
	// tanh(z_g + r⊙q) with q = h·u_g + b; h ← z⊙h + (1-z)⊙g. It is the variant
	// whose reset gate acts after the product, reset_after=True in Keras.
	GRUCell

	// GRUBeforeCell is GRUCell with g = tanh(z_g + q·u_g), q = r⊙h: the variant
	// of Cho et al. (2014).
	GRUBeforeCell
)

// cell is the properties of a Cell.
type cell struct {
	name         string
	gates, saved int  // parts of z and u; values that RNN saves per step besides h and c
	state, bias  bool // c exists; b exists
}

var cells = [...]cell{
	TanhCell:      {name: "tanh", gates: 1},
	ReluCell:      {name: "relu", gates: 1},
	LSTMCell:      {name: "lstm", gates: 4, saved: 4, state: true},
	GRUCell:       {name: "gru", gates: 3, saved: 4, bias: true},
	GRUBeforeCell: {name: "gru_before", gates: 3, saved: 4},
}

// properties returns the properties of c, zeros if it is none of the constants.
func (c Cell) properties() cell {
	if int(c) >= len(cells) {
		return cell{}
	}
	return cells[c]
}

// String returns the name of the cell.
func (c Cell) String() string { return c.properties().name }

// Gates returns the number of parts of z and of the recurrent kernel.
func (c Cell) Gates() int { return c.properties().gates }

// Saved returns the values that RNN saves per step for its gradient, in units, besides
// the states: the gates after their functions and, for GRU cells, q.
func (c Cell) Saved() int { return c.properties().saved }

// HasState reports whether there is a cell state c besides the output.
func (c Cell) HasState() bool { return c.properties().state }

// HasBias reports whether the cell adds a bias inside.
func (c Cell) HasBias() bool { return c.properties().bias }

// Scan describes the recurrence of RNN and RNNGrad along the first axis of z.
type Scan struct {
	Cell    Cell
	Reverse bool // from the last step to the first
	Masked  bool // the last argument is the mask
	Product bool // RNN: z is not an argument, but x·w+v of x, w and v

	// RNNGrad: which gradients are among the arguments.
	Steps, Last, State bool

	// RNNGrad of an RNN with Product: the gradients of the weights, summed over all
	// steps, are results in place of the gradients of z and h·u, and x is an argument.
	// Features: w is an argument too, and the gradient of x a result.
	Weights, Features bool
}

// String prints the fields that are set.
func (s *Scan) String() string {
	out := s.Cell.String()
	for i, on := range s.flags() {
		if on {
			out += " " + [...]string{"reverse", "masked", "steps", "last", "state", "product", "weights", "features"}[i]
		}
	}
	return out
}

func (s *Scan) flags() [8]bool {
	return [8]bool{s.Reverse, s.Masked, s.Steps, s.Last, s.State, s.Product, s.Weights, s.Features}
}

// Section is a tensor within the flat result of an operation with several results: see
// Result.
type Section struct {
	Start int // first element
	Shape Shape
}

// section returns the section of the given shape that begins at *at, and advances at
// past it. Unknown sizes give unknown positions.
func section(at *int, s ...int) Section {
	out := Section{*at, s}
	if n := out.Shape.Size(); n == Unknown || *at == Unknown {
		*at = Unknown
	} else {
		*at += n
	}
	return out
}

// RNNSections are the parts of RNN's result.
type RNNSections struct {
	Outputs  Section // [T+1 N U]: h before the first step and after each
	States   Section // [T+1 N U]: c likewise, if the cell has it
	Saved    Section // [T Saved N U]
	Elements int     // total
}

// Sections places the parts of RNN's result. h and c after step t are at t+1, the
// initial ones at 0. With Reverse they are at t and at the end.
func (s *Scan) Sections(steps, batch, units int) (p RNNSections) {
	all := steps
	if all != Unknown {
		all++
	}
	at := 0
	p.Outputs = section(&at, all, batch, units)
	if s.Cell.HasState() {
		p.States = section(&at, all, batch, units)
	}
	p.Saved = section(&at, steps, s.Cell.Saved(), batch, units)
	p.Elements = at
	return p
}

// RNNGradSections are the parts of RNNGrad's result; absent parts have no shape.
type RNNGradSections struct {
	Input     Section // [T N Gates·U]: gradient of z
	Recurrent Section // [T N Gates·U]: gradient of h·u; differs from Input for GRUCell only
	W, U      Section // with Weights, [F Gates·U] and [U Gates·U]: gradients of the kernels
	V, B      Section // [Gates·U] and, if the cell has it, [U]: gradients of the biases
	X         Section // with Features, [T N F]: gradient of x
	Output    Section // [N U]: gradient of the initial h
	State     Section // [N U]: gradient of the initial c, if the cell has it
	Elements  int
}

// GradSections places the parts of RNNGrad's result for the sizes in its
// Attr.Dims: steps, batch, units and, with Weights, features.
func (s *Scan) GradSections(dims Shape) (p RNNGradSections) {
	steps, batch, units := dims[0], dims[1], dims[2]
	at, wide := 0, s.Cell.Gates()*units
	if s.Weights {
		p.W = section(&at, dims[3], wide)
		p.U = section(&at, units, wide)
		p.V = section(&at, wide)
		if s.Cell.HasBias() {
			p.B = section(&at, units)
		}
		if s.Features {
			p.X = section(&at, steps, batch, dims[3])
		}
	} else {
		p.Input = section(&at, steps, batch, wide)
		p.Recurrent = p.Input
		if s.Cell == GRUCell {
			p.Recurrent = section(&at, steps, batch, wide)
		}
	}
	p.Output = section(&at, batch, units)
	if s.Cell.HasState() {
		p.State = section(&at, batch, units)
	}
	p.Elements = at
	return p
}

// RNNOperands are the indices of RNN's arguments; -1 is none. With Product X is x; else
// it is z.
type RNNOperands struct{ X, U, H, C, B, W, V, Mask, Count int }

// Operands returns the indices of RNN's arguments.
func (s *Scan) Operands() RNNOperands {
	o := RNNOperands{X: 0, U: 1, H: 2, C: -1, B: -1, W: -1, V: -1, Mask: -1, Count: 3}
	take := func(i *int, on bool) {
		if on {
			*i = o.Count
			o.Count++
		}
	}
	take(&o.C, s.Cell.HasState())
	take(&o.B, s.Cell.HasBias())
	take(&o.W, s.Product)
	take(&o.V, s.Product)
	take(&o.Mask, s.Masked)
	return o
}

// RNNGradOperands are the indices of RNNGrad's arguments; -1 is none.
type RNNGradOperands struct{ S, U, Steps, Last, State, X, W, Mask, Count int }

// GradOperands returns the indices of RNNGrad's arguments.
func (s *Scan) GradOperands() RNNGradOperands {
	o := RNNGradOperands{S: 0, U: 1, Steps: -1, Last: -1, State: -1, X: -1, W: -1, Mask: -1, Count: 2}
	take := func(i *int, on bool) {
		if on {
			*i = o.Count
			o.Count++
		}
	}
	take(&o.Steps, s.Steps)
	take(&o.Last, s.Last)
	take(&o.State, s.State)
	take(&o.X, s.Weights)
	take(&o.W, s.Features)
	take(&o.Mask, s.Masked)
	return o
}

// fits reports whether s is the wanted shape, where both are known.
func fits(s Shape, want ...int) bool {
	if len(s) != len(want) {
		return false
	}
	for i, d := range s {
		if d != want[i] && d != Unknown && want[i] != Unknown {
			return false
		}
	}
	return true
}

// wantOperand checks an argument of a recurrent operation.
func wantOperand(name string, t, like Type, shape ...int) error {
	if t.DType != like.DType || !fits(t.Shape, shape...) {
		return fmt.Errorf("%s is %v, want %v", name, t, Type{like.DType, shape})
	}
	return nil
}

func inferRNN(a Attr, t []Type) (Type, error) {
	if a.Scan == nil || a.Scan.Cell.Gates() == 0 {
		return Type{}, fmt.Errorf("no cell given")
	}
	s, o := a.Scan, a.Scan.Operands()
	if len(t) != o.Count {
		return Type{}, fmt.Errorf("takes %d arguments, got %d", o.Count, len(t))
	}
	z, wide := t[o.X], strconv.Itoa(s.Cell.Gates())+"·units"
	if s.Product {
		wide = "features"
	}
	if !z.DType.IsFloat() || len(z.Shape) != 3 {
		return Type{}, fmt.Errorf("got %v, want floats of shape [steps batch %s]", z, wide)
	}
	if len(t[o.U].Shape) != 2 {
		return Type{}, fmt.Errorf("the recurrent kernel is %v, want [units %d·units]", t[o.U], s.Cell.Gates())
	}
	steps, batch, units := z.Shape[0], z.Shape[1], t[o.U].Shape[0]
	var err error
	check := func(at int, name string, shape ...int) {
		if at >= 0 && err == nil {
			err = wantOperand(name, t[at], z, shape...)
		}
	}
	if !s.Product {
		check(o.X, "the input", steps, batch, s.Cell.Gates()*units)
	}
	check(o.U, "the recurrent kernel", units, s.Cell.Gates()*units)
	check(o.W, "the kernel", z.Shape[2], s.Cell.Gates()*units)
	check(o.V, "the bias", s.Cell.Gates()*units)
	check(o.H, "the first output", batch, units)
	check(o.C, "the first cell state", batch, units)
	check(o.B, "the recurrent bias", units)
	if err == nil && s.Masked {
		err = wantMask(t[o.Mask], steps, batch)
	}
	return Type{z.DType, Shape{s.Sections(steps, batch, units).Elements}}, err
}

func inferRNNGrad(a Attr, t []Type) (Type, error) {
	sizes := 3
	if a.Scan != nil && a.Scan.Weights {
		sizes = 4
	}
	if a.Scan == nil || a.Scan.Cell.Gates() == 0 || len(a.Dims) != sizes || a.Scan.Features && !a.Scan.Weights {
		return Type{}, fmt.Errorf("no cell or no sizes given")
	}
	s, o := a.Scan, a.Scan.GradOperands()
	if len(t) != o.Count {
		return Type{}, fmt.Errorf("takes %d arguments, got %d", o.Count, len(t))
	}
	if err := checkDims(a.Dims); err != nil {
		return Type{}, err
	}
	x := t[o.S]
	if !x.DType.IsFloat() {
		return Type{}, fmt.Errorf("wants floats, got %v", x)
	}
	steps, batch, units := a.Dims[0], a.Dims[1], a.Dims[2]
	err := wantOperand("the result of RNN", x, x, s.Sections(steps, batch, units).Elements)
	check := func(at int, name string, shape ...int) {
		if at >= 0 && err == nil {
			err = wantOperand(name, t[at], x, shape...)
		}
	}
	check(o.U, "the recurrent kernel", units, s.Cell.Gates()*units)
	check(o.Steps, "the gradient of the outputs", steps, batch, units)
	check(o.Last, "the gradient of the last output", batch, units)
	check(o.State, "the gradient of the last cell state", batch, units)
	d := x.DType
	if s.Weights {
		check(o.X, "the input", steps, batch, a.Dims[3])
		check(o.W, "the kernel", a.Dims[3], s.Cell.Gates()*units)
		d = d.Accumulator()
	}
	if err == nil && s.Masked {
		err = wantMask(t[o.Mask], steps, batch)
	}
	return Type{d, Shape{s.GradSections(a.Dims).Elements}}, err
}

func wantMask(t Type, steps, batch int) error {
	if err := inferBoolShape(t, steps, batch); err != nil {
		return fmt.Errorf("the mask: %w", err)
	}
	return nil
}

func inferBoolShape(t Type, shape ...int) error {
	if _, err := inferBool(Attr{}, []Type{t}); err != nil {
		return err
	}
	if !fits(t.Shape, shape...) {
		return fmt.Errorf("got %v, want shape %v", t, Shape(shape))
	}
	return nil
}

func inferResult(a Attr, t []Type) (Type, error) {
	x := t[0]
	if len(x.Shape) != 1 || len(a.Start) != 1 {
		return Type{}, fmt.Errorf("got %v, want a flat tensor and where the part begins", x)
	}
	if err := checkDims(a.Dims); err != nil {
		return Type{}, err
	}
	start, n := a.Start[0], a.Dims.Size()
	if x.Shape[0] != Unknown && (start < 0 || n == Unknown || start+n > x.Shape[0]) {
		return Type{}, fmt.Errorf("elements %d to %d are not within %v", start, start+n, x)
	}
	switch {
	case a.DType == dtype.Invalid:
		a.DType = x.DType
	case !a.DType.Is16() || x.DType != dtype.Float32:
		return Type{}, fmt.Errorf("a part of %v would be %v, want its type, or 16 bits of float32", x, a.DType)
	}
	return Type{a.DType, a.Dims}, nil
}

// Rows returns elements lo to hi of the first axis of s.
func (s Section) Rows(lo, hi int) Section {
	out := Section{Unknown, s.Shape.Clone()}
	if n := s.Shape[1:].Size(); n != Unknown && s.Start != Unknown && lo != Unknown {
		out.Start = s.Start + lo*n
	}
	out.Shape[0] = Unknown
	if hi != Unknown && lo != Unknown {
		out.Shape[0] = hi - lo
	}
	return out
}

// Row returns element i of the first axis of s.
func (s Section) Row(i int) Section {
	out := s.Rows(i, i)
	out.Shape = out.Shape[1:]
	return out
}
