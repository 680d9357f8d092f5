package preprocessing

import (
	"fmt"

	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/layers"
)

// MaxNumBoundingBoxes gives each image the same number of bounding boxes: it
// drops those after the first MaxNumber, and pads with boxes and labels of
// FillValue. Keras's layer takes and returns a dictionary with boxes and
// labels; this one takes and returns a tuple.
//
// Shapes: ([batch n 4], [batch n]) → ([batch MaxNumber 4], [batch MaxNumber]).
// Integer labels stay integers. Floats are cast to the compute type, as in all
// layers; DType "float32" keeps coordinates in float32 under mixed policies.
type MaxNumBoundingBoxes struct {
	MaxNumber   int  // required
	FillValue   *int `default:"-1"`
	Name, DType string

	layers.Base
}

// Config returns the fields Name and DType.
func (m *MaxNumBoundingBoxes) Config() layers.Config {
	return layers.Config{Name: m.Name, DType: m.DType}
}

// Build checks the fields.
func (m *MaxNumBoundingBoxes) Build(in ...layers.Shape) error {
	if m.MaxNumber <= 0 {
		return fmt.Errorf("MaxNumber is %d, want a positive number", m.MaxNumber)
	}
	return m.CheckInput(in...)
}

// CheckInput requires boxes and labels.
func (m *MaxNumBoundingBoxes) CheckInput(in ...layers.Shape) error {
	if len(in) != 2 {
		return fmt.Errorf("got %d inputs, want a tuple of boxes and labels", len(in))
	}
	boxes, labels := in[0], in[1]
	if len(boxes) != 3 || boxes[1] == tensor.Unknown || boxes[2] != 4 {
		return fmt.Errorf("boxes are %v, want [batch n 4] with a number n that is known", boxes)
	}
	if len(labels) != 2 || labels[1] != boxes[1] || labels[0] != boxes[0] && labels[0] != tensor.Unknown && boxes[0] != tensor.Unknown {
		return fmt.Errorf("labels are %v, want one for each of the boxes %v", labels, boxes)
	}
	return nil
}

// Call computes the layer on x.
func (m *MaxNumBoundingBoxes) Call(_ layers.Pass, x *tensor.Tensor) *tensor.Tensor {
	fill := float64(*layers.Defaults(*m).FillValue)
	parts := x.Unpack()
	out := make([]*tensor.Tensor, len(parts))
	for i, p := range parts {
		n := min(p.Dim(1), m.MaxNumber)
		low, high := make([]int, p.Rank()), make([]int, p.Rank())
		high[1] = m.MaxNumber - n
		out[i] = p.Slice(1, 0, n).Pad(low, high, fill)
	}
	return tensor.Tuple(out...)
}
