package layers

import (
	"fmt"
	"slices"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/tensor"
)

// Merging layers take a tuple of at least two tensors (tensor.Tuple) and
// combine them element by element. Axes of size 1 repeat; where the numbers of
// axes differ, axes of size 1 are inserted after the batch.
//
// Where all inputs have masks the result has one, true where any of them is.
// Multiply, Maximum and Minimum leave out what a mask leaves out; where all do, the
// product is 0, and the largest and smallest is the first input. The others do not.
//
// Shapes: ([batch …], [batch …] …) → [batch …].

// Add is the sum of its inputs.
type Add struct {
	Name, DType string
	Base
	SetsMask
}

// Config returns the fields Name and DType.
func (l *Add) Config() Config { return Config{l.Name, l.DType} }

// Build checks the number of inputs and their shapes.
func (l *Add) Build(in ...Shape) error { return mergeable(in) }

// CheckInput requires inputs that broadcast.
func (l *Add) CheckInput(in ...Shape) error { return mergeable(in) }

// Call computes the layer on the tuple x.
func (l *Add) Call(_ Pass, x *tensor.Tensor) *tensor.Tensor { return merge(x, (*tensor.Tensor).Add, 1) }

// Subtract is its first input less its second; it takes two.
type Subtract struct {
	Name, DType string
	Base
	SetsMask
}

// Config returns the fields Name and DType.
func (l *Subtract) Config() Config { return Config{l.Name, l.DType} }

// Build checks the number of inputs and their shapes.
func (l *Subtract) Build(in ...Shape) error { return l.CheckInput(in...) }

// CheckInput requires two inputs that broadcast.
func (l *Subtract) CheckInput(in ...Shape) error {
	if len(in) != 2 {
		return fmt.Errorf("got %d inputs, want a tuple of 2", len(in))
	}
	return mergeable(in)
}

// Call computes the layer on the tuple x.
func (l *Subtract) Call(_ Pass, x *tensor.Tensor) *tensor.Tensor {
	return merge(x, (*tensor.Tensor).Sub, 1)
}

// Multiply is the product of its inputs.
type Multiply struct {
	Name, DType string
	Base
	SetsMask
}

// Config returns the fields Name and DType.
func (l *Multiply) Config() Config { return Config{l.Name, l.DType} }

// Build checks the number of inputs and their shapes.
func (l *Multiply) Build(in ...Shape) error { return mergeable(in) }

// CheckInput requires inputs that broadcast.
func (l *Multiply) CheckInput(in ...Shape) error { return mergeable(in) }

// Call computes the layer on the tuple x.
func (l *Multiply) Call(_ Pass, x *tensor.Tensor) *tensor.Tensor {
	return mergeMasked(x, func(dtype.DType) float64 { return 1 }, (*tensor.Tensor).Mul)
}

// Average is the mean of its inputs.
type Average struct {
	Name, DType string
	Base
	SetsMask
}

// Config returns the fields Name and DType.
func (l *Average) Config() Config { return Config{l.Name, l.DType} }

// Build checks the number of inputs and their shapes.
func (l *Average) Build(in ...Shape) error { return mergeable(in) }

// CheckInput requires inputs that broadcast.
func (l *Average) CheckInput(in ...Shape) error { return mergeable(in) }

// Call computes the layer on the tuple x.
func (l *Average) Call(_ Pass, x *tensor.Tensor) *tensor.Tensor {
	return merge(x, (*tensor.Tensor).Add, x.Len())
}

// Maximum is the largest of its inputs, element by element.
type Maximum struct {
	Name, DType string
	Base
	SetsMask
}

// Config returns the fields Name and DType.
func (l *Maximum) Config() Config { return Config{l.Name, l.DType} }

// Build checks the number of inputs and their shapes.
func (l *Maximum) Build(in ...Shape) error { return mergeable(in) }

// CheckInput requires inputs that broadcast.
func (l *Maximum) CheckInput(in ...Shape) error { return mergeable(in) }

// Call computes the layer on the tuple x.
func (l *Maximum) Call(_ Pass, x *tensor.Tensor) *tensor.Tensor {
	return mergeMasked(x, func(d dtype.DType) float64 { return -d.Max() }, (*tensor.Tensor).Maximum)
}

// Minimum is the smallest of its inputs, element by element.
type Minimum struct {
	Name, DType string
	Base
	SetsMask
}

// Config returns the fields Name and DType.
func (l *Minimum) Config() Config { return Config{l.Name, l.DType} }

// Build checks the number of inputs and their shapes.
func (l *Minimum) Build(in ...Shape) error { return mergeable(in) }

// CheckInput requires inputs that broadcast.
func (l *Minimum) CheckInput(in ...Shape) error { return mergeable(in) }

// Call computes the layer on the tuple x.
func (l *Minimum) Call(_ Pass, x *tensor.Tensor) *tensor.Tensor {
	return mergeMasked(x, dtype.DType.Max, (*tensor.Tensor).Minimum)
}

// mergeable checks that the inputs broadcast.
func mergeable(in []Shape) error {
	if len(in) < 2 {
		return fmt.Errorf("got %d input, want a tuple of at least 2 tensors", len(in))
	}
	for _, s := range in {
		if len(s) == 0 {
			return fmt.Errorf("got inputs %v, want a batch axis in each", in)
		}
	}
	merged := in[0]
	for _, s := range in[1:] {
		short, long := s, merged
		if len(short) > len(long) {
			short, long = long, short
		}
		fits := short[0] == long[0]
		for i := 1; i < len(short) && fits; i++ {
			a, b := short[i], long[len(long)-len(short)+i]
			fits = a == b || a == 1 || b == 1
		}
		if !fits {
			return fmt.Errorf("inputs %v do not broadcast, want equal sizes or 1 in each axis after the batch", in)
		}
		out := long.Clone()
		for i := 1; i < len(short); i++ {
			if at := len(long) - len(short) + i; long[at] == 1 {
				out[at] = short[i]
			}
		}
		merged = out
	}
	return nil
}

// merge folds the tensors of a tuple with f, and divides by n unless it is 1. With more
// than one operation, 16-bit types are computed in float32 and the result is rounded
// once: a sum may exceed the range of float16 before it is divided.
func merge(x *tensor.Tensor, f func(a, b *tensor.Tensor) *tensor.Tensor, n int) *tensor.Tensor {
	parts, rank := x.Unpack(), 0
	for _, p := range parts {
		rank = max(rank, p.Rank())
	}
	narrow := parts[0].DType()
	wide := narrow
	if narrow.Is16() && (n > 1 || len(parts) > 2) {
		wide = dtype.Float32
	}
	var y *tensor.Tensor
	for _, p := range parts {
		for p.Rank() < rank {
			p = p.ExpandDims(1)
		}
		if p.DType() == narrow {
			p = p.Cast(wide)
		}
		if y == nil {
			y = p
		} else {
			y = f(y, p)
		}
	}
	if n > 1 {
		y = y.DivScalar(float64(n))
	}
	return y.Cast(narrow).WithMask(anyMask(parts))
}

// mergeMasked is merge that leaves out what masks leave out: there the neutral number,
// with which f changes nothing, stands for an input. Where all masks are false the
// result is the first input, or 0 if f is a product, as in Keras.
func mergeMasked(x *tensor.Tensor, neutral func(dtype.DType) float64, f func(a, b *tensor.Tensor) *tensor.Tensor) *tensor.Tensor {
	parts := slices.Clone(x.Unpack())
	all, first := anyMask(parts), parts[0]
	for i, p := range parts {
		if m := p.Mask(); m != nil {
			parts[i] = tensor.Where(spreadMask(m, p), p, tensor.Scalar(p.DType(), neutral(p.DType()))).WithMask(m)
		}
	}
	y := merge(tensor.Tuple(parts...), f, 1)
	if all == nil {
		return y
	}
	otherwise := tensor.Scalar(y.DType(), 0)
	if neutral(y.DType()) != 1 {
		for otherwise = first; otherwise.Rank() < y.Rank(); {
			otherwise = otherwise.ExpandDims(1)
		}
	}
	return tensor.Where(spreadMask(all, y), y, otherwise).WithMask(y.Mask())
}

// anyMask is true where a mask of parts is, or nil when one has no mask or
// they differ in rank.
func anyMask(parts []*tensor.Tensor) *tensor.Tensor {
	m := parts[0].Mask()
	for _, p := range parts[1:] {
		if m == nil || p.Mask() == nil || p.Mask().Rank() != m.Rank() {
			return nil
		}
		m = m.Or(p.Mask())
	}
	return m
}

// Concatenate joins its inputs along an axis.
//
// Shapes: ([batch … m …], [batch … n …] …) → [batch … m+n… …].
type Concatenate struct {
	Axis        *int `default:"-1"`
	Name, DType string

	Base
	SetsMask
	axis int
}

// Config returns the fields Name and DType.
func (c *Concatenate) Config() Config { return Config{c.Name, c.DType} }

// Build checks the axis and the shapes.
func (c *Concatenate) Build(in ...Shape) error {
	c.axis = *Defaults(*c).Axis
	return c.CheckInput(in...)
}

// CheckInput requires inputs whose shapes differ along Axis only.
func (c *Concatenate) CheckInput(in ...Shape) error {
	if len(in) < 2 {
		return fmt.Errorf("got %d input, want a tuple of at least 2 tensors", len(in))
	}
	axis, err := in[0].Axis(c.axis)
	if err != nil {
		return fmt.Errorf("Axis is %d, want an axis of input %v", c.axis, in[0])
	}
	for _, s := range in[1:] {
		fits := len(s) == len(in[0])
		for i := 0; i < len(s) && fits; i++ {
			fits = i == axis || s[i] == in[0][i]
		}
		if !fits {
			return fmt.Errorf("inputs %v do not fit, want shapes that are equal but for axis %d", in, c.axis)
		}
	}
	return nil
}

// Call computes the layer on the tuple x.
func (c *Concatenate) Call(_ Pass, x *tensor.Tensor) *tensor.Tensor {
	y := tensor.Concat(c.axis, x.Unpack()...)
	return y.WithMask(c.joinedMask(x.Unpack(), y))
}

// joinedMask is the mask of y, the result: the masks of parts joined likewise,
// with true where there is none; nil when there are none at all. Along an axis
// that the masks do not have, one mask that keeps a place is enough.
func (c *Concatenate) joinedMask(parts []*tensor.Tensor, y *tensor.Tensor) *tensor.Tensor {
	rank := 0
	for _, p := range parts {
		if m := p.Mask(); m != nil {
			rank = max(rank, m.Rank())
		}
	}
	if rank == 0 {
		return nil
	}
	axis, _ := y.Shape().Axis(c.axis) // checked by CheckInput
	if axis >= rank {
		return anyMask(parts)
	}
	masks := make([]*tensor.Tensor, len(parts))
	for i, p := range parts {
		shape := p.Shape()[:rank]
		m := p.Mask()
		if m == nil {
			m = tensor.Ones(dtype.Bool, shape...)
		}
		for m.Rank() < rank {
			m = m.ExpandDims(-1)
		}
		masks[i] = m.BroadcastTo(shape...)
	}
	return tensor.Concat(axis, masks...)
}
