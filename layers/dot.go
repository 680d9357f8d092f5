package layers

import (
	"fmt"

	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/layers/internal/support"
)

// Dot multiplies two tensors, sample by sample, and sums over an axis of each.
//
// Shapes: ([batch a… n b…], [batch c… n d…]) → [batch a… b… c… d…];
// ([batch n], [batch n]) → [batch 1].
type Dot struct {
	Axes        []int // the axis of each input that is summed over: one number for both, or 2; required
	Normalize   bool  // whether to divide both by their norms along the axis first: cosine similarity
	Name, DType string

	Base
	axes [2]int
}

// Config returns the fields Name and DType.
func (d *Dot) Config() Config { return Config{d.Name, d.DType} }

// Build checks the fields and the shapes.
func (d *Dot) Build(in ...Shape) error { return d.CheckInput(in...) }

// CheckInput requires two inputs whose axes to be summed have the same size.
func (d *Dot) CheckInput(in ...Shape) error {
	if len(in) != 2 {
		return fmt.Errorf("got %d inputs, want a tuple of 2", len(in))
	}
	if len(d.Axes) != 1 && len(d.Axes) != 2 {
		return fmt.Errorf("Axes is %v, want 1 or 2 numbers", d.Axes)
	}
	for i, s := range in {
		axis := d.Axes[min(i, len(d.Axes)-1)]
		a, err := s.Axis(axis)
		if err != nil || a == 0 {
			return fmt.Errorf("Axes is %v, want an axis after the batch of each of %v", d.Axes, in)
		}
		d.axes[i] = a
	}
	if in[0][d.axes[0]] != in[1][d.axes[1]] {
		return fmt.Errorf("axis %d of %v and axis %d of %v differ, want one size", d.axes[0], in[0], d.axes[1], in[1])
	}
	return nil
}

// Call computes the layer on the tuple x.
func (d *Dot) Call(_ Pass, x *tensor.Tensor) *tensor.Tensor {
	a, b := x.Unpack()[0], x.Unpack()[1]
	support.CheckFloats(a)
	if d.Normalize {
		// In float32, and rounded to be multiplied: norms may exceed float16.
		a = unit(a.Cast(a.DType().Accumulator()), d.axes[0]).Cast(a.DType())
		b = unit(b.Cast(b.DType().Accumulator()), d.axes[1]).Cast(b.DType())
	}
	const letters = "bcdefghijklmnopqrstuvwxy"
	name := func(rank, axis, from int) (all, free string) {
		for i := 1; i < rank; i++ {
			c := letters[from : from+1]
			from++
			if i == axis {
				all += "z"
				continue
			}
			all += c
			free += c
		}
		return "a" + all, free
	}
	as, aFree := name(a.Rank(), d.axes[0], 0)
	bs, bFree := name(b.Rank(), d.axes[1], a.Rank())
	y := tensor.Einsum(as+","+bs+"->a"+aFree+bFree, a, b)
	if y.Rank() == 1 {
		return y.ExpandDims(-1)
	}
	return y
}
