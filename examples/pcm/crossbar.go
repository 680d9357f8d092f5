package main

import (
	"fmt"

	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/ops"
	"github.com/mezzo-ml/mezzo/layers"
)

// Transfer is what becomes of updates that are smaller than a pulse.
type Transfer string

const (
	Accumulate Transfer = "accumulate" // they are added up digitally until a pulse is due: mixed precision
	Discard    Transfer = "discard"    // they are lost
	Stochastic Transfer = "stochastic" // a pulse is given with the probability of their share of one
)

// Crossbar is a Dense layer without an activation whose kernel and bias are the
// conductances of an array of phase-change memory: two cells for each weight, which is
// their difference. It has the architecture of Nandakumar et al. 2020, Mixed-Precision
// Deep Learning Based on Computational Memory:
//
//   - the array multiplies, forward and backward, with noise and drift; what goes in
//     and out of it is converted with 8 bits;
//   - the digital part multiplies activations and errors to updates, in float32, and
//     an optimizer adds them to the accumulator, the layer's trainable weight;
//   - Program transfers whole quanta of the accumulator to the array, each by one SET
//     pulse, blindly: what the pulse has done is not read.
//
// Inputs must lie between 0 and 1, or -1 and 1 if Signed; what is beyond is clipped, and
// so are outputs beyond Range. Gradients pass as if it were not.
//
// Shapes: [batch … in] → [batch … Units]. Each row of the input is a read of the array.
type Crossbar struct {
	layers.Base
	Name, DType string
	Units       int      // size of the output; required
	Device      *Device  // default: PCM
	Transfer    Transfer // default: Accumulate
	Scale       float64  // difference of conductances that is a weight of 1, in µS; default: 8
	Range       float64  // of the converters behind the array, forward: -Range to Range; default: 16
	Signed      bool     // inputs lie between -1 and 1
	Glorot      bool     // the accumulator begins as a kernel of Dense does, and goes to the array in the first step; default: with zeros, and weights are those of cells that have had half a pulse or less
	Seconds     float64  // between two steps of training; default: 1

	accumulator                      *layers.Weight // [in+1, Units], of weights
	plus, minus, plusTime, minusTime *layers.Weight // conductances as programmed, and when
	clock                            *layers.Weight
	random                           *keras.Variable
	pulses                           *layers.Weight // that were given, in millions
}

// What is refreshed: cells that conduct more than saturated although their difference
// is less than unsaturated, in µS.
const saturated, unsaturated = 8.0, 6.0

// In the backward pass rows go in with a largest magnitude of 1, and the converters
// behind the array have the range -errors to errors.
const errors = 4.0

// Config implements layers.Layer.
func (c *Crossbar) Config() layers.Config { return layers.Config{Name: c.Name, DType: c.DType} }

// Build implements layers.Layer.
func (c *Crossbar) Build(in ...layers.Shape) error {
	if c.Device == nil {
		c.Device = &PCM
	}
	if c.Transfer == "" {
		c.Transfer = Accumulate
	}
	if c.Scale == 0 {
		c.Scale = 8
	}
	if c.Range == 0 {
		c.Range = 16
	}
	if c.Seconds == 0 {
		c.Seconds = 1
	}
	switch {
	case c.Units < 1:
		return fmt.Errorf("got Units %d, want 1 or more", c.Units)
	case c.Transfer != Accumulate && c.Transfer != Discard && c.Transfer != Stochastic:
		return fmt.Errorf("got Transfer %q, want %q, %q or %q", c.Transfer, Accumulate, Discard, Stochastic)
	case c.Scale < 0 || c.Range < 0 || c.Seconds < 0:
		return fmt.Errorf("got Scale %v, Range %v and Seconds %v, want positive numbers", c.Scale, c.Range, c.Seconds)
	case len(in) != 1 || len(in[0]) < 2:
		return fmt.Errorf("got inputs %v, want one of rank 2 or more", in)
	case c.ComputeDType() != keras.Float32:
		return fmt.Errorf("got compute type %v, want float32", c.ComputeDType())
	}
	size := layers.Shape{in[0][len(in[0])-1] + 1, c.Units} // the last row is the bias
	var err error
	add := func(name string, s layers.Shape, initializer string, options ...layers.WeightOption) *layers.Weight {
		if err != nil {
			return nil
		}
		var w *layers.Weight
		w, err = c.AddWeight(name, s, initializer, options...)
		return w
	}
	initializer := "zeros"
	if c.Glorot {
		initializer = "glorot_uniform"
	}
	c.accumulator = add("accumulator", size, initializer)
	// A random part of the cells has had pulses.
	first := fmt.Sprintf("random_uniform(minval=%g, maxval=%g)", c.Device.Low, c.Device.Low+0.5*c.Device.Step)
	c.plus = add("plus", size, first, layers.NonTrainable())
	c.minus = add("minus", size, first, layers.NonTrainable())
	c.plusTime = add("plus_time", size, "zeros", layers.NonTrainable())
	c.minusTime = add("minus_time", size, "zeros", layers.NonTrainable())
	c.clock = add("clock", layers.Shape{}, "zeros", layers.NonTrainable())
	c.pulses = add("pulses", layers.Shape{}, "zeros", layers.NonTrainable())
	c.random = c.AddRandomState(nil)
	return err
}

// conductances returns those of both cells of each weight now.
func (c *Crossbar) conductances() (plus, minus *keras.Tensor) {
	now := c.clock.Value()
	return c.Device.Drifted(c.plus.Value(), now.Sub(c.plusTime.Value())), c.Device.Drifted(c.minus.Value(), now.Sub(c.minusTime.Value()))
}

// Call implements layers.Layer.
func (c *Crossbar) Call(_ layers.Pass, x *keras.Tensor) *keras.Tensor {
	if shape := x.Shape(); len(shape) > 2 {
		last := len(shape) - 1
		return c.multiplied(x.Reshape(shape[:last].Size(), shape[last])).Reshape(append(shape[:last].Clone(), c.Units)...)
	}
	return c.multiplied(x)
}

// multiplied returns the products of the rows of x, [rows in], with the array.
func (c *Crossbar) multiplied(x *keras.Tensor) *keras.Tensor {
	state := layers.NextState(c.random, x)
	plus, minus := c.conductances()
	kernel := plus.Sub(minus).MulScalar(1 / c.Scale)
	variance := c.Device.Variance(plus).Add(c.Device.Variance(minus)).MulScalar(1 / (c.Scale * c.Scale))
	inputs := quantized(ops.Concatenate(1, x, x.Slice(1, 0, 1).MulScalar(0).AddScalar(1)), 1, c.Signed)
	y := quantized(c.product(inputs, kernel, variance, false, state, 0), c.Range, true)
	return y.WithGradient(func(g *keras.Tensor) []*keras.Tensor {
		// The digital part takes the sums of what the array has seen.
		update := inputs.MatMulT(g, true, false)
		rows, scale := scaled(g)
		back := quantized(c.product(rows, kernel, variance, true, state, 2), errors, true).Mul(scale)
		return []*keras.Tensor{back.Slice(1, 0, back.Dim(1)-1), update}
	}, x, c.accumulator.Value())
}

// product multiplies rows by the array, which is read for each row anew: the noise of
// all cells on a line adds up to normal noise, whose variance is a product, too.
func (c *Crossbar) product(rows, kernel, variance *keras.Tensor, transposed bool, state *keras.Tensor, stream uint64) *keras.Tensor {
	y := rows.MatMulT(kernel, false, transposed)
	if c.Device.Noise == 0 && c.Device.NoiseFloor == 0 || rows.Symbolic() {
		return y
	}
	deviation := rows.Square().MatMulT(variance, false, transposed).Sqrt()
	return y.Add(deviation.Mul(ops.RandomNormal(state, stream, y.Shape()...)))
}

// Program transfers the accumulator to the array, and refreshes pairs of cells that
// conduct too much. Call it in a step of training, after the optimizer.
func (c *Crossbar) Program() {
	state := layers.NextState(c.random, c.accumulator.Value())
	plus, minus := c.conductances() // those of Call, which are computed once
	now := c.clock.Value().AddScalar(c.Seconds)
	c.clock.Assign(now)
	noise := func(stream uint64) *keras.Tensor { return ops.RandomNormal(state, stream, plus.Shape()...) }
	quantum := c.Device.Step / c.Scale
	updates := c.accumulator.Value()

	// Refresh: both cells are reset, and their difference goes through the accumulator.
	difference := plus.Sub(minus)
	full := plus.Maximum(minus).GreaterScalar(saturated).And(difference.Abs().LessScalar(unsaturated))
	zero := ops.Scalar(keras.Float32, 0)
	lost := ops.Where(full, difference.MulScalar(1/c.Scale), zero)
	plus = ops.Where(full, c.Device.Reset(noise(16)), plus)
	minus = ops.Where(full, c.Device.Reset(noise(18)), minus)

	var quanta, rest *keras.Tensor
	switch share := updates.MulScalar(1 / quantum); c.Transfer {
	case Accumulate:
		total := share.Add(lost.MulScalar(1 / quantum))
		quanta = truncated(total)
		rest = total.Sub(quanta).MulScalar(quantum)
	case Discard:
		quanta = truncated(share).Add(lost.MulScalar(1 / quantum).Round())
		rest = updates.MulScalar(0)
	case Stochastic:
		uniform := ops.RandomUniform(state, 14, share.Shape()...)
		quanta = share.Add(uniform).Floor().Add(lost.MulScalar(1 / quantum).Round())
		rest = updates.MulScalar(0)
	}
	c.accumulator.Assign(rest)
	up, down := quanta.MaximumScalar(0), quanta.Neg().MaximumScalar(0)
	program := func(cell, time *layers.Weight, before, n *keras.Tensor, stream uint64) {
		pulsed := n.GreaterScalar(0)
		touched := pulsed.Or(full)
		after := ops.Where(pulsed, c.Device.Set(before, n, noise(stream)), before)
		cell.Assign(ops.Where(touched, after, cell.Value()))
		time.Assign(ops.Where(touched, now, time.Value()))
	}
	program(c.plus, c.plusTime, plus, up, 16)
	program(c.minus, c.minusTime, minus, down, 18)
	c.pulses.Assign(c.pulses.Value().Add(quanta.Abs().Sum().MulScalar(1e-6)))
}

// truncated rounds towards 0.
func truncated(x *keras.Tensor) *keras.Tensor { return x.Abs().Floor().Mul(x.Sign()) }

// Cells is the number of cells of the array.
func (c *Crossbar) Cells() int { return 2 * c.accumulator.Shape().Size() }

// Pulses returns the number of SET pulses that the array was given in training.
func (c *Crossbar) Pulses() (float64, error) {
	n, err := c.pulses.Item()
	return 1e6 * n, err
}

// Wait lets the cells drift for some seconds.
func (c *Crossbar) Wait(seconds float64) error {
	now, err := c.clock.Item()
	if err != nil {
		return err
	}
	return c.clock.Set([]float64{now + seconds})
}
