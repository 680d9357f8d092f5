package keras

import (
	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/layers"
)

// trained is which weights and layers are trainable when the training step is
// made. It is recorded with them (BatchNormalization uses its averages while it
// is frozen), so that to freeze a layer later would change some steps, or none.
type trained struct {
	m       *Model
	weights []*layers.Weight
	layers  []*layers.Base // also those in others
	on      []bool         // of the weights, then of the layers
}

func (m *Model) trained() *trained {
	t := &trained{m: m, weights: m.Weights()}
	for _, w := range t.weights {
		t.on = append(t.on, w.Trainable())
	}
	var add func(ls []layers.Layer)
	add = func(ls []layers.Layer) {
		for _, l := range ls {
			b := layers.BaseOf(l)
			t.layers = append(t.layers, b)
			t.on = append(t.on, b.Trainable())
			add(b.Sublayers())
		}
	}
	add(m.layers)
	return t
}

// Variables returns nil: trained is listed in a Function for its precondition.
func (t *trained) Variables() []*Variable { return nil }

func init() {
	tensor.RegisterPrecondition(func(o Stateful) func() error {
		if t, ok := o.(*trained); ok {
			return t.unchanged
		}
		return nil
	})
}

// unchanged returns an error when weights or layers were frozen or unfrozen after
// the training step was made.
func (t *trained) unchanged() error {
	for i, w := range t.weights {
		if w.Trainable() != t.on[i] {
			return t.changed(w.Name(), w.Trainable())
		}
	}
	for i, b := range t.layers {
		if b.Trainable() != t.on[len(t.weights)+i] {
			return t.changed("layer "+b.Path(), b.Trainable())
		}
	}
	return nil
}

func (t *trained) changed(what string, on bool) error {
	now, was := "frozen", "trainable"
	if on {
		now, was = was, now
	}
	return t.m.errorf("%s is %s now, but the training step was made with it %s; Compile again", what, now, was)
}
