package keras

import (
	"github.com/mezzo-ml/mezzo/backend/op"
	"github.com/mezzo-ml/mezzo/layers"
)

// Graph describes the calls of a model. Package saving writes it to files.
type Graph struct {
	Inputs  []op.Type   // of samples with an unknown batch axis
	Calls   []GraphCall // in an order in which they can run
	Outputs []GraphRef
}

// GraphCall is one call of a layer in a Graph. A layer may have several.
type GraphCall struct {
	Layer layers.Layer
	Args  layers.Args
	In    []GraphRef // more than one for a tuple
	Out   []op.Type
}

// GraphRef refers to a tensor of a Graph: result Part of Calls[Call], or
// Inputs[Part] if Call is -1.
type GraphRef struct{ Call, Part int }

// Graph describes a model, which must be built. It is an error when the model
// computes with tensors that are neither inputs nor results of layers.
func (m *Model) Graph() (*Graph, error) {
	if !m.built {
		return nil, m.errorf("%w; call it on data or Build it first", ErrNotBuilt)
	}
	g := &Graph{Inputs: m.InputTypes()}
	at := map[*Tensor]GraphRef{}
	for i, t := range m.in.Unpack() {
		at[t] = GraphRef{-1, i}
	}
	refs := func(what string, t *Tensor) ([]GraphRef, error) {
		var out []GraphRef
		for i, p := range t.Unpack() {
			r, ok := at[p]
			if !ok {
				return nil, m.errorf("%s: tensor %d, %v, comes from no layer; it cannot be described", what, i, p.Type())
			}
			out = append(out, r)
		}
		return out, nil
	}
	for i, n := range m.nodes {
		in, err := refs("layer "+layers.BaseOf(n.layer).LayerName(), n.in)
		if err != nil {
			return nil, err
		}
		call := GraphCall{Layer: n.layer, Args: n.args, In: in}
		for _, t := range n.out {
			call.Out = append(call.Out, t.Type())
		}
		g.Calls = append(g.Calls, call)
		for k, t := range n.out {
			at[t] = GraphRef{i, k}
		}
	}
	var err error
	g.Outputs, err = refs("outputs", m.out)
	return g, err
}

// Stacked reports whether Sequential made the model.
func (m *Model) Stacked() bool { return len(m.stack) > 0 }

// Built reports whether the model has weights.
func (m *Model) Built() bool { return m.built }

// BuildOn builds a Sequential model for an Input of any element type, or a
// Tuple of Inputs.
func (m *Model) BuildOn(in *Tensor) error { return m.build(in) }

// ModelOf returns the model of a layer that Model.Layer returned, nil for
// other layers.
func ModelOf(l layers.Layer) *Model {
	if n, ok := l.(*modelLayer); ok {
		return n.model
	}
	return nil
}
