package keras

import (
	"errors"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/layers"
)

// modelLayer is a model as a layer of another model.
type modelLayer struct {
	layers.Base
	layers.SetsMask // the layers inside decide about masks
	model           *Model
	fill            func(in []DType) error // of a clone: makes the model's layers, for inputs of these types
}

// Layer returns the model as a layer, to nest it in another model: in
// Sequential, or with Apply. It is the same layer at every call, so that a
// model applied twice shares its weights.
func (m *Model) Layer() layers.Layer {
	if m.asLayer == nil {
		m.asLayer = &modelLayer{model: m}
	}
	return m.asLayer
}

// snakeClass is the name that layers of this class are numbered from.
func snakeClass(l layers.Layer) string {
	if n, ok := l.(*modelLayer); ok {
		return n.model.name
	}
	return layers.SnakeClass(l)
}

func isModel(l layers.Layer) bool {
	_, ok := l.(*modelLayer)
	return ok
}

// Config implements layers.Layer.
func (l *modelLayer) Config() layers.Config {
	if !l.model.named {
		return layers.Config{}
	}
	return layers.Config{Name: l.model.name}
}

// Build implements layers.Layer: it builds the model and takes its layers in,
// so that their paths start with the model's name.
func (l *modelLayer) Build(in ...layers.Shape) error {
	m := l.model
	l.SetAutocast(false) // the layers inside cast for themselves
	m.prefix = l.Path() + "/"
	if fill := l.fill; fill != nil {
		l.fill = nil
		if err := fill(l.InputDTypes()); err != nil {
			return inside(err)
		}
	}
	if !m.built {
		ins := make([]*Tensor, len(in))
		for i, s := range in {
			d := dtype.Float32
			if types := l.InputDTypes(); i < len(types) {
				d = types[i]
			}
			ins[i] = inputFor(d, s[1:]...)
		}
		x := ins[0]
		if len(ins) > 1 {
			x = tensor.Tuple(ins...)
		}
		if err := m.build(x); err != nil {
			return inside(err)
		}
	}
	for _, inner := range m.layers {
		l.AddLayer(layers.BaseOf(inner).LayerName(), inner)
	}
	return nil
}

// inside panics with an error that names a layer of the model already, and
// returns others.
func inside(err error) error {
	var inner *tensor.Error
	if errors.As(err, &inner) {
		panic(inner)
	}
	return err
}

// CheckInput implements layers.InputChecker: the model checks for itself.
func (l *modelLayer) CheckInput(...layers.Shape) error { return nil }

// Call implements layers.Layer.
func (l *modelLayer) Call(p layers.Pass, x *Tensor) *Tensor { return l.model.call(p, x, false) }
