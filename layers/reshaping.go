package layers

import (
	"fmt"
	"slices"

	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/layers/internal/support"
)

// Flatten makes one axis of all axes but the batch.
//
// Shapes: [batch …] → [batch n]; [batch] → [batch 1].
type Flatten struct {
	DataFormat  string `default:"channels_last"` // or channels_first: axis 1 is moved to the end first
	Name, DType string

	Base
	channelsFirst bool
}

// Config returns the fields Name and DType.
func (f *Flatten) Config() Config { return Config{f.Name, f.DType} }

// Build checks the fields.
func (f *Flatten) Build(in ...Shape) error {
	s, err := support.Single(in, 1)
	if err != nil {
		return err
	}
	if !s[1:].Known() {
		return fmt.Errorf("input %v has axes without a size, want sizes for all but the batch", s)
	}
	f.channelsFirst, err = support.IsChannelsFirst(Defaults(*f).DataFormat)
	return err
}

// Call computes the layer on x.
func (f *Flatten) Call(_ Pass, x *tensor.Tensor) *tensor.Tensor {
	if f.channelsFirst && x.Rank() > 2 {
		perm := []int{0}
		for i := 2; i < x.Rank(); i++ {
			perm = append(perm, i)
		}
		x = x.Transpose(append(perm, 1)...)
	}
	return x.Reshape(x.Dim(0), x.Shape()[1:].Size())
}

// Reshape gives the axes after the batch another shape.
//
// Shapes: [batch …] → [batch TargetShape…].
type Reshape struct {
	TargetShape []int // without the batch; one axis may be -1: it gets what is left
	Name, DType string

	Base
}

// Config returns the fields Name and DType.
func (r *Reshape) Config() Config { return Config{r.Name, r.DType} }

// Build checks the fields.
func (r *Reshape) Build(in ...Shape) error {
	s, err := support.Single(in, 1)
	if err == nil {
		_, err = r.target(s)
	}
	return err
}

// CheckInput requires inputs with as many elements as TargetShape.
func (r *Reshape) CheckInput(in ...Shape) error { return r.Build(in...) }

// target is the shape of the output for inputs of shape s.
func (r *Reshape) target(s Shape) (Shape, error) {
	out := append(Shape{s[0]}, r.TargetShape...)
	n, known, hole := s[1:].Size(), 1, 0
	for i, d := range r.TargetShape {
		switch {
		case d == -1 && hole == 0:
			hole = i + 1
		case d < 0:
			return nil, fmt.Errorf("TargetShape is %v, want sizes, and -1 at most once", r.TargetShape)
		default:
			known *= d
		}
	}
	switch {
	case n == tensor.Unknown && hole > 0:
		out[hole] = tensor.Unknown
	case n == tensor.Unknown:
	case hole > 0 && known > 0 && n%known == 0:
		out[hole] = n / known
	case hole > 0 || n != known:
		return nil, fmt.Errorf("TargetShape is %v, want a shape of %d elements as input %v has", r.TargetShape, n, s)
	}
	return out, nil
}

// Call computes the layer on x.
func (r *Reshape) Call(_ Pass, x *tensor.Tensor) *tensor.Tensor {
	shape, err := r.target(x.Shape())
	if err != nil {
		tensor.Fail("Call", "%w", err)
	}
	if x.Symbolic() {
		return tensor.Placeholder(x.DType(), shape...)
	}
	return x.Reshape(shape...)
}

// Permute reorders the axes after the batch.
//
// Shapes: [batch d1 d2 …] → [batch d(Dims[0]) d(Dims[1]) …].
type Permute struct {
	Dims        []int // axes in their new order, counted from 1
	Name, DType string

	Base
}

// Config returns the fields Name and DType.
func (p *Permute) Config() Config { return Config{p.Name, p.DType} }

// Build checks the fields.
func (p *Permute) Build(in ...Shape) error {
	s, err := support.Single(in, 1)
	if err != nil {
		return err
	}
	for i, d := range slices.Sorted(slices.Values(p.Dims)) {
		if d != i+1 {
			return fmt.Errorf("Dims is %v, want each of 1 to %d once", p.Dims, len(p.Dims))
		}
	}
	if len(s) != len(p.Dims)+1 {
		return fmt.Errorf("input %v has %d axes after the batch, want %d as Dims %v has", s, len(s)-1, len(p.Dims), p.Dims)
	}
	return nil
}

// CheckInput requires as many axes after the batch as Dims has.
func (p *Permute) CheckInput(in ...Shape) error { return p.Build(in...) }

// Call computes the layer on x.
func (p *Permute) Call(_ Pass, x *tensor.Tensor) *tensor.Tensor {
	return x.Transpose(append([]int{0}, p.Dims...)...)
}

// RepeatVector repeats its input along a new axis.
//
// Shapes: [batch features] → [batch N features].
type RepeatVector struct {
	N           int // how often; required
	Name, DType string

	Base
}

// Config returns the fields Name and DType.
func (r *RepeatVector) Config() Config { return Config{r.Name, r.DType} }

// Build checks the fields.
func (r *RepeatVector) Build(in ...Shape) error {
	if r.N <= 0 {
		return fmt.Errorf("N is %d, want a positive number", r.N)
	}
	return r.CheckInput(in...)
}

// CheckInput requires rank 2.
func (r *RepeatVector) CheckInput(in ...Shape) error {
	s, err := support.Single(in, 2)
	if err == nil && len(s) != 2 {
		return fmt.Errorf("input %v has %d axes, want 2", s, len(s))
	}
	return err
}

// Call computes the layer on x.
func (r *RepeatVector) Call(_ Pass, x *tensor.Tensor) *tensor.Tensor {
	return x.ExpandDims(1).BroadcastTo(x.Dim(0), r.N, x.Dim(1))
}
