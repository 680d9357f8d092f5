package onnx

import (
	"slices"

	"github.com/mezzo-ml/mezzo/backend/op"
	"github.com/mezzo-ml/mezzo/backend/tensor"
)

// opRNN records RNN, LSTM and GRU, one recurrence for each direction.
func opRNN(c *call) []*value {
	x := c.x(0)
	if c.int("layout", 0) != 0 || x.Rank() != 3 || c.rank(1) != 3 || c.rank(2) != 3 {
		c.fail("got %v with kernels %v and %v, want [steps batch features] and three axes each", x.Type(), c.shape(1), c.shape(2))
	}
	for i, what := range map[int]string{4: "lengths of sequences", 7: "peepholes"} {
		if c.has(i) && !c.fullLengths(i, x.Dim(0)) {
			c.fail("%s are not supported", what)
		}
	}
	if c.n.attr("clip") != nil || c.int("input_forget", 0) != 0 {
		c.fail("clip and input_forget are not supported")
	}
	var reverse []bool
	switch d := c.text("direction", "forward"); d {
	case "forward":
		reverse = []bool{false}
	case "reverse":
		reverse = []bool{true}
	case "bidirectional":
		reverse = []bool{false, true}
	default:
		c.fail("direction %q is not supported", d)
	}
	units := c.shape(2)[2]
	var all, last, state []*tensor.Tensor
	for i, back := range reverse {
		y := c.direction(x, i, len(reverse), units, back)
		all = append(all, y.Outputs.ExpandDims(1))
		last = append(last, y.Last.ExpandDims(0))
		if y.State != nil {
			state = append(state, y.State.ExpandDims(0))
		}
	}
	join := func(axis int, all []*tensor.Tensor) []*value {
		if len(all) == 1 {
			return c.one(all[0])
		}
		return c.one(tensor.Concat(axis, all...))
	}
	out := append(join(1, all), join(0, last)...)
	if state != nil {
		out = append(out, join(0, state)...)
	}
	return out
}

// fullLengths reports whether operand i says that all sequences have all steps.
func (c *call) fullLengths(i, steps int) bool {
	if i != 4 || c.in[i].c == nil {
		return false
	}
	return !slices.ContainsFunc(c.in[i].c.ints(), func(n int64) bool { return n != int64(steps) }) && c.in[i].c.ints() != nil
}

// activation fails unless the activations of direction i, of count, are these.
func (c *call) activation(i int, want []string) bool {
	a := c.n.attr("activations")
	if a == nil {
		return true
	}
	n := len(want)
	return a.kind == kindStrings && len(a.strings) >= (i+1)*n && slices.Equal(a.strings[i*n:(i+1)*n], want)
}

// direction records one direction: i of count.
func (c *call) direction(x *tensor.Tensor, i, count, units int, reverse bool) tensor.RNNResult {
	o := tensor.RNNOptions{Reverse: reverse}
	order := []int{0, 1, 2}
	ok := true
	switch c.n.op {
	case "LSTM":
		o.Cell, order = op.LSTMCell, []int{0, 2, 3, 1} // ONNX: i o f c
		ok = c.activation(i, []string{"Sigmoid", "Tanh", "Tanh"})
	case "GRU":
		o.Cell = op.GRUBeforeCell
		if c.int("linear_before_reset", 0) != 0 {
			o.Cell = op.GRUCell
		}
		ok = c.activation(i, []string{"Sigmoid", "Tanh"})
	default:
		order = []int{0}
		if o.Cell = op.TanhCell; !c.activation(i, []string{"Tanh"}) {
			o.Cell = op.ReluCell
			ok = c.activation(i, []string{"Relu"})
		}
	}
	if !ok {
		c.fail("activations %q are not supported", c.n.attr("activations").strings)
	}
	d, gates := x.DType(), o.Cell.Gates()
	for k, want := range []op.Shape{{count, gates * units, x.Dim(2)}, {count, gates * units, units}} {
		if !c.shape(1 + k).Equal(want) {
			c.fail("input %d has shape %v, want %v", 1+k, c.shape(1+k), want)
		}
	}
	part := func(k int) *tensor.Tensor { return c.x(k).Slice(0, i, i+1).Squeeze(0).Cast(d) }
	w, u := byGate(part(1).Transpose(), order), byGate(part(2).Transpose(), order)
	var bias *tensor.Tensor
	if c.has(3) {
		if want := (op.Shape{count, 2 * gates * units}); !c.shape(3).Equal(want) {
			c.fail("the bias has shape %v, want %v", c.shape(3), want)
		}
		b := part(3)
		n := gates * units
		input, recurrent := b.Slice(0, 0, n), b.Slice(0, n, 2*n)
		if o.Cell == op.GRUCell { // that of the last gate is inside of the cell
			o.Bias = recurrent.Slice(0, 2*units, 3*units)
			recurrent = recurrent.Slice(0, 0, 2*units).Pad([]int{0}, []int{units}, 0)
		}
		bias = byGate(input.Add(recurrent), order)
	}
	state := func(k int) *tensor.Tensor {
		if !c.has(k) {
			return nil
		}
		if want := (op.Shape{count, x.Dim(1), units}); !c.shape(k).Equal(want) {
			c.fail("input %d has shape %v, want %v", k, c.shape(k), want)
		}
		return part(k)
	}
	o.H = state(5)
	if o.Cell.HasState() {
		o.C = state(6)
	}
	if x.Dim(2) <= 2*units { // as package layers does
		o.Kernel, o.Input = w, bias
		return tensor.RNN(x, u, o)
	}
	z := x.Reshape(x.Dim(0)*x.Dim(1), x.Dim(2)).MatMul(w)
	if bias != nil {
		z = z.Add(bias)
	}
	return tensor.RNN(z.Reshape(x.Dim(0), x.Dim(1), gates*units), u, o)
}
