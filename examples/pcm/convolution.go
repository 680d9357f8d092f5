package main

import (
	"fmt"

	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/ops"
	"github.com/mezzo-ml/mezzo/layers"
)

// Convolution is a convolution on an array of memory cells: each window of the picture
// is a row that goes into the array, which has a column for each filter (im2col). So the
// array is read and its updates are summed once for each position.
//
// Shapes: [batch rows cols channels] → [batch rows-Size+1 cols-Size+1 filters].
type Convolution struct {
	layers.Base
	Name, DType string
	Size        int          // of the square window; required
	Array       layers.Layer // a Crossbar, or a Dense layer to compare with; its Units are the filters
}

// Config implements layers.Layer.
func (c *Convolution) Config() layers.Config { return layers.Config{Name: c.Name, DType: c.DType} }

// Build implements layers.Layer.
func (c *Convolution) Build(in ...layers.Shape) error {
	if len(in) != 1 || len(in[0]) != 4 {
		return fmt.Errorf("got inputs %v, want one [batch rows cols channels]", in)
	}
	if s := in[0]; c.Size < 1 || c.Size > s[1] || c.Size > s[2] {
		return fmt.Errorf("got Size %d for pictures %v, want 1 or more and no more than they have", c.Size, s)
	}
	s := in[0]
	return c.AddBuilt("array", c.Array, layers.Shape{s[0], s[1] - c.Size + 1, s[2] - c.Size + 1, c.Size * c.Size * s[3]})
}

// Call implements layers.Layer.
func (c *Convolution) Call(p layers.Pass, x *keras.Tensor) *keras.Tensor {
	rows, cols := x.Dim(1)-c.Size+1, x.Dim(2)-c.Size+1
	var parts []*keras.Tensor
	for i := range c.Size {
		for j := range c.Size {
			parts = append(parts, x.Slice(1, i, i+rows).Slice(2, j, j+cols))
		}
	}
	return layers.Apply(c.Array, p, ops.Concatenate(3, parts...))
}
