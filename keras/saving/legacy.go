package saving

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/internal/hdf5"
	"github.com/mezzo-ml/mezzo/keras/internal/safeio"
	"github.com/mezzo-ml/mezzo/layers"
)

// What `.h5` files of whole models have, which Keras 2 writes (model.save("m.h5")).
const (
	legacyConfig  = "model_config"  // attribute: the architecture, as JSON
	legacyWeights = "model_weights" // group: a group for each layer
)

// readLegacy makes the model of an `.h5` file of Keras 2. Its config is turned into the
// form of Keras 3 first. training_config and optimizer_weights are not read.
func readLegacy(path string, r io.ReaderAt, size int64, c config) (*keras.Model, error) {
	root, err := hdf5.Read(path, r, size)
	if err != nil {
		return nil, err
	}
	text := root.Attrs[legacyConfig].Strings
	if len(text) != 1 {
		return nil, fmt.Errorf("it has no attribute %s, so it is no model of Keras 2; LoadWeights reads .weights.h5", legacyConfig)
	}
	most := c.maxConfig
	if most == 0 {
		most = maxConfig
	}
	if int64(len(text[0])) > most {
		return nil, fmt.Errorf("%s: got %d bytes, want at most %d; see WithMaxConfig", legacyConfig, len(text[0]), most)
	}
	if err := safeio.JSON([]byte(text[0]), max(maxValues, most/maxConfig*maxValues), maxNested); err != nil {
		return nil, fmt.Errorf("%s: %w", legacyConfig, err)
	}
	o, err := modernConfig([]byte(text[0]))
	var m *keras.Model
	if err == nil {
		m, err = rebuildWith(&builder{masksWithStates: true}, o, c)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", legacyConfig, err)
	}
	if err := loadLegacy(root, m, o); err != nil {
		return nil, fmt.Errorf("%s: %w", legacyWeights, err)
	}
	if c.byPath != nil {
		return m.CloneUnder("", c.byPath, true)
	}
	return m, nil
}

// texts reads an attribute that is a list of texts. Keras splits long ones into several
// attributes, NAME0, NAME1 …
func texts(g *hdf5.Group, name string) ([]string, bool) {
	if a, ok := g.Attrs[name]; ok {
		return a.Strings, true
	}
	var all []string
	for i := 0; ; i++ {
		a, ok := g.Attrs[name+strconv.Itoa(i)]
		if !ok {
			return all, i > 0
		}
		all = append(all, a.Strings...)
	}
}

// loadLegacy sets the weights of m, which o describes. Like Keras 2 it matches the
// outermost layers by name, and the weights within each by their order.
func loadLegacy(root *hdf5.Group, m *keras.Model, o *object) error {
	all := root.Group(legacyWeights)
	if all == nil {
		return errors.New("there is no such group")
	}
	names, ok := texts(all, "layer_names")
	if !ok {
		return errors.New("it has no attribute layer_names")
	}
	saved := map[*layers.Weight]array{}
	inner, err := list(o.Config["layers"])
	if err != nil {
		return err
	}
	byName := layersByName(m)
	for _, l := range inner {
		name := nameIn(l)
		layer := byName[name]
		if layer == nil {
			continue // an Input
		}
		known := safeio.Text(name)
		ws, err := legacyOrder(layer, l)
		if err != nil {
			return err
		}
		var paths []string
		g := all.Group(name)
		if g != nil {
			paths, _ = texts(g, "weight_names")
		}
		if len(paths) != len(ws) || len(ws) > 0 && !slices.Contains(names, name) {
			return fmt.Errorf("layer %s: got the variables %s, want %d", known, safeio.Text(fmt.Sprintf("%q", paths)), len(ws))
		}
		for i, w := range ws {
			at, last := g, paths[i]
			if slash := strings.LastIndexByte(last, '/'); slash >= 0 {
				at, last = g.Group(last[:slash]), last[slash+1:]
			}
			var d *hdf5.Dataset
			if at != nil {
				d = at.Datasets[last]
			}
			if d == nil {
				return fmt.Errorf("layer %s: there is no variable %s", known, safeio.Quote(paths[i]))
			}
			if saved[w], err = arrayOf(d); err != nil {
				return fmt.Errorf("layer %s: %s: %w", known, safeio.Text(paths[i]), err)
			}
		}
	}
	for _, name := range names {
		if g := all.Group(name); g != nil && byName[name] == nil {
			if paths, _ := texts(g, "weight_names"); len(paths) > 0 {
				return fmt.Errorf("model %s has no layer %s, which has %d variables in the file", m.Name(), safeio.Quote(name), len(paths))
			}
		}
	}
	if g := all.Group("top_level_model_weights"); g != nil {
		if paths, _ := texts(g, "weight_names"); len(paths) > 0 {
			return fmt.Errorf("the model has variables of its own, %s, which is not supported", safeio.Text(fmt.Sprintf("%q", paths)))
		}
	}
	return setWeights(m, saved)
}

func layersByName(m *keras.Model) map[string]layers.Layer {
	all := map[string]layers.Layer{}
	for _, l := range m.Layers() {
		all[layers.BaseOf(l).LayerName()] = l
	}
	return all
}

// nameIn is the name of a layer in a config.
func nameIn(o *object) string {
	name, _ := o.Config["name"].(string)
	return name
}

// legacyOrder lists the weights of a layer, or of a model as a layer, as Keras 2 writes
// them: those that are trained first.
func legacyOrder(l layers.Layer, o *object) ([]*layers.Weight, error) {
	trainable, all, err := weightsIn(l, o)
	if err != nil {
		return nil, err
	}
	frozen := slices.DeleteFunc(slices.Clone(all), func(w *layers.Weight) bool { return trainable[w] })
	return append(slices.DeleteFunc(all, func(w *layers.Weight) bool { return !trainable[w] }), frozen...), nil
}

// weightsIn lists the weights of a layer or model in the order of the config.
func weightsIn(l layers.Layer, o *object) (trainable map[*layers.Weight]bool, all []*layers.Weight, err error) {
	trainable = map[*layers.Weight]bool{}
	m := keras.ModelOf(l)
	if m == nil {
		for _, w := range layers.BaseOf(l).TrainableWeights() {
			trainable[w] = true
		}
		return trainable, layers.BaseOf(l).Weights(), nil
	}
	inner, err := list(o.Config["layers"])
	if err != nil {
		return nil, nil, err
	}
	byName := layersByName(m)
	for _, x := range inner {
		layer := byName[nameIn(x)]
		if layer == nil {
			continue
		}
		t, more, err := weightsIn(layer, x)
		if err != nil {
			return nil, nil, err
		}
		for w := range t {
			trainable[w] = true
		}
		all = append(all, more...)
	}
	return trainable, all, nil
}
