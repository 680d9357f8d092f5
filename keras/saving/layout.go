package saving

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/layers"
)

// place is a group of variables in Keras's weight files.
type place struct {
	path    string // "layers/dense_1"; "" for the model
	name    string // of its owner; Keras reads it nowhere
	weights []*layers.Weight

	frequencies []float64 // of a lookup in mode tf_idf
}

// places lists what Keras writes for a model, in its order. Paths have the
// classes of layers, counted, and not their names; each layer is written once.
func places(m *keras.Model) ([]place, error) {
	w := &walk{seen: map[layers.Layer]bool{}}
	err := w.model("", m)
	return w.found, err
}

type walk struct {
	found  []place
	seen   map[layers.Layer]bool
	shared layers.Layer // the first one that was met in a second place
}

// shared is an error for a layer that two models within m have, or m and a
// model within it: a `.keras` file describes it, with other weights, in each of
// them, and Keras 3 does not load its own files of such models.
func shared(m *keras.Model) error {
	w := &walk{seen: map[layers.Layer]bool{}}
	if err := w.model("", m); err != nil || w.shared == nil {
		return err
	}
	return fmt.Errorf("layer %s: two models have it, which .keras files cannot say; save weights with SaveWeights and make the model in Go", layers.BaseOf(w.shared).LayerName())
}

// quantizedWithin is an error for a model with quantized layers that other layers make
// themselves, as MultiHeadAttention does: config.json has the policy of the outer layer
// alone. Keras 3.15 writes such files and does not load them.
func quantizedWithin(all []layers.Layer) error {
	for _, l := range all {
		if inner := keras.ModelOf(l); inner != nil {
			if err := quantizedWithin(inner.Layers()); err != nil {
				return err
			}
			continue
		}
		fields := layers.InFields(l)
		for _, s := range layers.BaseOf(l).Sublayers() {
			if b := layers.BaseOf(s); b.Policy().HasInt8() && !slices.Contains(fields, s) {
				return fmt.Errorf("layer %s is quantized, which .keras files cannot say of a layer within a %s; save weights with SaveWeights, and quantize the model before LoadWeights", b.Path(), layers.Class(l))
			}
			if err := quantizedWithin([]layers.Layer{s}); err != nil {
				return err
			}
		}
	}
	return nil
}

func (w *walk) model(path string, m *keras.Model) error {
	w.found = append(w.found, place{path: path, name: m.Name()})
	if path != "" {
		path += "/"
	}
	all, err := members(m)
	if err != nil {
		return err
	}
	counts := map[string]int{}
	for _, l := range all {
		if _, ok := l.layer.(*operation); ok {
			continue // no layer in Keras
		}
		class := l.class()
		name := class
		if k := counts[class]; k > 0 {
			name += "_" + strconv.Itoa(k)
		}
		counts[class]++
		if l.layer == nil {
			w.found = append(w.found, place{path: path + "layers/" + name, name: l.name})
		} else if err := w.layer(path+"layers/"+name, l.layer); err != nil {
			return err
		}
	}
	return nil
}

// attributes are where Keras's layers keep the layers within them, by the
// names that these have here. Groups for what has no counterpart here are
// empty.
var attributes = map[string]map[string]string{
	"MultiHeadAttention": {"query": "query_dense", "key": "key_dense", "value": "value_dense",
		"gate": "_gate_dense", "attention_output": "output_dense", "dropout": "_dropout_layer"},
	"GroupQueryAttention": {"query": "_query_dense", "key": "_key_dense", "value": "_value_dense",
		"gate": "_gate_dense", "attention_output": "_output_dense", "dropout": "_dropout_layer"},
}

// lists are the classes with a list of layers, and the names that Keras has for it.
var lists = map[string]string{"StackedRNNCells": "cells", "Pipeline": "layers"}

// recurrent are the classes whose only layer within is their cell.
var recurrent = []string{"RNN", "SimpleRNN", "LSTM", "GRU", "ConvLSTM1D", "ConvLSTM2D", "ConvLSTM3D"}

func (w *walk) layer(path string, l layers.Layer) error {
	if w.seen[l] {
		if w.shared == nil {
			w.shared = l
		}
		return nil
	}
	w.seen[l] = true
	if m := keras.ModelOf(l); m != nil {
		return w.model(path, m)
	}
	b := layers.BaseOf(l)
	inner := b.Sublayers()
	own := b.WeightsInFile()
	class := layers.Class(l)
	if class == "SpectralNormalization" {
		// Keras tracks the kernel twice: as its layer's, and as its own.
		own = append(layers.BaseOf(inner[0]).Weights()[:1:1], own...)
	}
	p := place{path: path, name: b.LayerName(), weights: own}
	if f, ok := l.(frequent); ok {
		var err error
		if p.frequencies, err = f.Frequencies(); err != nil {
			return err
		}
	}
	w.found = append(w.found, p)
	if class == "TextVectorization" && p.frequencies != nil {
		p.path += "/_lookup_layer" // as with the vocabulary, Keras writes them twice
		w.found = append(w.found, p)
	}
	used := map[string]int{} // classes in a list
	for i, s := range inner {
		name, known := attributes[class][layers.BaseOf(s).LayerName()]
		switch {
		case class == "SpectralNormalization" || class == "TimeDistributed":
			name = "layer"
		case class == "Bidirectional":
			name = [...]string{"forward_layer", "backward_layer"}[i]
		case lists[class] != "":
			inner := member{layer: s}.class()
			name = inner
			if k := used[inner]; k > 0 {
				name += "_" + strconv.Itoa(k)
			}
			used[inner]++
			name = lists[class] + "/" + name
		case slices.Contains(recurrent, class):
			name = "cell"
		case !known && len(layers.BaseOf(s).Weights()) == 0:
			continue // no layer in Keras
		case !known:
			name = layers.BaseOf(s).LayerName()
		}
		if err := w.layer(path+"/"+name, s); err != nil {
			return err
		}
	}
	return nil
}

// member is a layer of a model as Keras counts them: inputs are layers too.
type member struct {
	layer layers.Layer // nil for an input
	input int
	name  string
}

func (m member) class() string {
	switch inner := keras.ModelOf(m.layer); {
	case m.layer == nil:
		return "input_layer"
	case inner == nil && layers.Class(m.layer) == "GroupQueryAttention":
		return "grouped_query_attention" // Keras's own name of the class
	case inner == nil:
		return layers.SnakeClass(m.layer)
	case sequential(inner):
		return "sequential"
	}
	return "functional"
}

// sequential reports whether Keras would have the model as a Sequential, which
// has one input. One that has a layer twice is written as a functional model:
// of the Sequential Keras would make two layers.
func sequential(m *keras.Model) bool {
	if !m.Stacked() || len(m.InputTypes()) != 1 {
		return false
	}
	g, err := m.Graph()
	return err != nil || len(g.Calls) == len(m.Layers())
}

// members lists the layers of a model in Keras's order, in which weights are
// counted.
func members(m *keras.Model) ([]member, error) {
	if err := built(m); err != nil {
		return nil, err
	}
	if sequential(m) {
		var all []member
		for _, l := range m.Layers() {
			all = append(all, member{layer: l, name: layers.BaseOf(l).LayerName()})
		}
		return all, nil
	}
	inputs := m.InputNames()
	var all []member
	for _, x := range m.Nodes() {
		if x.Layer == nil {
			all = append(all, member{input: x.Input, name: inputs[x.Input]})
		} else {
			all = append(all, member{layer: x.Layer, name: layers.BaseOf(x.Layer).LayerName()})
		}
	}
	return all, nil
}
