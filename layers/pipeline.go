package layers

import (
	"fmt"

	"github.com/mezzo-ml/mezzo/backend/tensor"
)

// Pipeline applies layers one after the other, usually those that prepare data.
//
// Shapes: the input of the first layer → the output of the last. Weights: the weights
// of Layers.
type Pipeline struct {
	Layers      []Layer // required
	Name, DType string

	Base
	SetsMask
}

// Config returns the fields Name and DType.
func (l *Pipeline) Config() Config { return Config{l.Name, l.DType} }

// Build adds the layers, which are built by the first call.
func (l *Pipeline) Build(...Shape) error {
	if len(l.Layers) == 0 {
		return fmt.Errorf("Layers is empty, want at least one layer")
	}
	l.SetAutocast(false) // the layers cast for themselves
	used := map[string]int{}
	for i, inner := range l.Layers {
		if inner == nil {
			return fmt.Errorf("Layers[%d] is nil, want a layer", i)
		}
		class := SnakeClass(inner)
		name := class
		if n := used[class]; n > 0 {
			name = fmt.Sprintf("%s_%d", class, n)
		}
		used[class]++
		l.AddLayer(name, inner)
	}
	return nil
}

// CheckInput returns nil: the layers check their inputs.
func (l *Pipeline) CheckInput(...Shape) error { return nil }

// Call computes the layers on x.
func (l *Pipeline) Call(p Pass, x *tensor.Tensor) *tensor.Tensor {
	for _, inner := range l.Layers {
		x = Apply(inner, p, x)
	}
	return x
}
