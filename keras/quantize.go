package keras

import (
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/policy"
)

// Quantize replaces the weights of the model's Dense, EinsumDense and Embedding layers,
// also of those in nested models and in other layers, by 8-bit integers with a scale for
// each output (Keras: Model.quantize). Mode must be "int8". The model's weights take about a
// quarter of the memory and of the file. It predicts with products of integers, whose
// inputs are quantized row by row as they come: results have the bits of Keras's.
//
// A layer of policy P has policy int8_from_P afterwards. P must compute in float32 or
// bfloat16, else an error names the layer and nothing changes. Layers of other classes stay
// as they are, as do those in a SpectralNormalization, which normalizes their weights in
// training. It is an error if no layer has a quantized form, and if one is quantized
// already.
//
// The model must be built. It can be saved, cloned, nested, served and evaluated, and not
// trained: training steps return an error. Quantize must not be called while the model is
// in use. Models in which it is nested, and Functions that call it, must be compiled or
// made after it.
func (m *Model) Quantize(mode string) error {
	if mode != "int8" {
		return m.errorf("Quantize: got mode %q, want %q", mode, "int8")
	}
	if !m.built {
		return m.errorf("Quantize: the model is not built; call it on data, or build it with Input")
	}
	all, err := m.quantizable("Quantize", layers.Quantizable)
	if err != nil {
		return err
	}
	if len(all) == 0 {
		return m.errorf("Quantize: no layer has a quantized form; Dense, EinsumDense and Embedding have")
	}
	for _, l := range all {
		if err := layers.Quantize(l); err != nil {
			return m.errorf("Quantize: %w", err)
		}
	}
	return m.forget()
}

// quantizable returns the layers of the model, also those in other layers, that have a
// quantized form. It is an error if the policy of one has none.
func (m *Model) quantizable(name string, has func(layers.Layer) bool) (all []layers.Layer, err error) {
	seen := map[layers.Layer]bool{} // a layer may be used twice
	var visit func(l layers.Layer)
	visit = func(l layers.Layer) {
		l, _ = layers.Unwrap(l)
		switch {
		case has(l):
			if !seen[l] {
				seen[l] = true
				all = append(all, l)
			}
		case layers.Class(l) != "SpectralNormalization":
			for _, inner := range layers.BaseOf(l).Sublayers() {
				visit(inner)
			}
		}
	}
	for _, l := range m.leaves() {
		visit(l)
	}
	for _, l := range all {
		if _, err := layers.BaseOf(l).Policy().Quantized(); err != nil {
			return nil, m.errorf("%s: layer %s: %w", name, layers.BaseOf(l).Path(), err)
		}
	}
	return all, nil
}

// forget drops the programs of a model, and of those in it, whose variables were replaced.
func (m *Model) forget() error {
	for _, l := range m.layers {
		if inner, ok := l.(*modelLayer); ok {
			if err := inner.model.forget(); err != nil {
				return err
			}
		}
	}
	m.predicting.Lock()
	m.prediction = nil
	m.predicting.Unlock()
	if m.training == nil {
		return nil
	}
	c := m.training.config
	m.training = nil
	return m.Compile(c)
}

// quantized returns an error that names a quantized layer, which cannot be trained, or
// nil.
func (m *Model) quantized() error {
	if l := firstQuantized(m.leaves()); l != nil {
		b := layers.BaseOf(l)
		return m.errorf("layer %s has policy %s, which only predicts: 8-bit integers have no gradient. Train the model first, then Quantize it", b.Path(), b.Policy().Name)
	}
	return nil
}

func firstQuantized(all []layers.Layer) layers.Layer {
	for _, l := range all {
		if b := layers.BaseOf(l); b.Policy().HasInt8() {
			return l
		} else if inner := firstQuantized(b.Sublayers()); inner != nil {
			return inner
		}
	}
	return nil
}

// quantizedWithin returns byPath with the policies of the quantized layers in l that l
// makes itself, such as those of MultiHeadAttention. Their fields are not part of l's
// config, so that a clone would have others.
func quantizedWithin(l layers.Layer, byPath policy.Map) policy.Map {
	made := policy.Map{}
	var visit func(l layers.Layer)
	visit = func(l layers.Layer) {
		for _, s := range layers.BaseOf(l).Sublayers() {
			if b := layers.BaseOf(s); b.Policy().HasInt8() {
				made[b.Path()] = b.Policy().Name
			}
			visit(s)
		}
	}
	if visit(l); len(made) == 0 {
		return byPath
	}
	for key, name := range byPath {
		if _, has := made[key]; !has {
			made[key] = name
		}
	}
	return made
}
