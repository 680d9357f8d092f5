package main

import (
	"fmt"

	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/ops"
	"github.com/mezzo-ml/mezzo/layers"
)

// LSTM is a step of a long short-term memory (Hochreiter and Schmidhuber 1997), for
// layers.RNN, with one product for all gates: x and the last output are a row that goes
// into the array. So the array is read once for each step of a sequence. Gates and the
// cell's state are digital, in float32. The forget gate has a constant bias of 1 besides
// the array's.
//
// Inputs must lie between -1 and 1, as outputs do.
type LSTM struct {
	layers.Base
	Name, DType string
	Units       int          // required
	Array       layers.Layer // a Crossbar, or a Dense layer to compare with, of 4·Units units: gates i, f and o, and the candidate
}

// Config implements layers.Layer.
func (l *LSTM) Config() layers.Config { return layers.Config{Name: l.Name, DType: l.DType} }

// Build implements layers.Layer.
func (l *LSTM) Build(in ...layers.Shape) error {
	if l.Units < 1 {
		return fmt.Errorf("got Units %d, want 1 or more", l.Units)
	}
	if len(in[0]) != 2 {
		return fmt.Errorf("got x %v, want [batch features]", in[0])
	}
	return l.AddBuilt("array", l.Array, layers.Shape{in[0][0], in[0][1] + l.Units})
}

// StateShapes implements layers.Cell: the last output, and the cell's state.
func (l *LSTM) StateShapes() []layers.Shape { return []layers.Shape{{l.Units}, {l.Units}} }

// Call implements layers.Layer.
func (l *LSTM) Call(p layers.Pass, in *keras.Tensor) *keras.Tensor {
	u := in.Unpack()
	x, h, state := u[0], u[1], u[2]
	z := layers.Apply(l.Array, p, ops.Concatenate(1, x, h))
	part := func(i int) *keras.Tensor { return z.Slice(1, i*l.Units, (i+1)*l.Units) }
	state = part(1).AddScalar(1).Sigmoid().Mul(state).Add(part(0).Sigmoid().Mul(part(3).Tanh()))
	h = part(2).Sigmoid().Mul(state.Tanh())
	return keras.Tuple(h, h, state)
}

var _ layers.Cell = (*LSTM)(nil)
