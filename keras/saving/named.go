package saving

import (
	"fmt"
	"maps"
	"slices"

	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/internal/safeio"
	"github.com/mezzo-ml/mezzo/layers"
)

// byName finds the weights of a model in a file that names them, such as
// "dense/kernel". Both must have the same names.
func byName(m *keras.Model, saved map[string]array) error {
	if err := built(m); err != nil {
		return err
	}
	of := map[*layers.Weight]array{}
	extra := maps.Clone(saved)
	for _, w := range m.Weights() {
		if a, ok := saved[w.Name()]; ok {
			of[w] = a
			delete(extra, w.Name())
		}
	}
	if len(of) == len(m.Weights()) && len(extra) > 0 {
		return fmt.Errorf("model %s has no weight %s", m.Name(), safeio.Quote(slices.Sorted(maps.Keys(extra))[0]))
	}
	return setWeights(m, of)
}

// named lists the weights of a model, which must be built. Files hold them by
// name, so no two may share one.
func named(m *keras.Model) ([]*layers.Weight, error) {
	if err := built(m); err != nil {
		return nil, err
	}
	taken := map[string]bool{}
	for _, w := range m.Weights() {
		if taken[w.Name()] {
			return nil, fmt.Errorf("two weights of model %s are named %s; give their layers names", m.Name(), w.Name())
		}
		taken[w.Name()] = true
	}
	return m.Weights(), nil
}
