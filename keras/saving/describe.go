package saving

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/mezzo-ml/mezzo/backend/op"
	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/internal/safeio"
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/layers/preprocessing"
)

// object is an instance as Keras writes it down.
type object struct {
	Module         string         `json:"module"`
	Class          string         `json:"class_name"`
	Config         map[string]any `json:"config"`
	RegisteredName any            `json:"registered_name"` // null or a string
	Name           string         `json:"name,omitempty"`  // of a layer of a functional model
	InboundNodes   *[]inbound     `json:"inbound_nodes,omitempty"`
	BuildConfig    any            `json:"build_config,omitempty"`
}

// inbound is one call of a layer.
type inbound struct {
	Args   []any          `json:"args"`
	Kwargs map[string]any `json:"kwargs"`
}

// ToJSON describes the architecture of a built model as Keras 3 does (Keras:
// Model.to_json): the config.json of a .keras file, without weights.
func ToJSON(m *keras.Model) ([]byte, error) {
	o, err := describe(m)
	if err != nil {
		return nil, err
	}
	return json.Marshal(o)
}

// describe is the content of config.json.
func describe(m *keras.Model) (*object, error) {
	if err := built(m); err != nil {
		return nil, err
	}
	if err := quantizedWithin(m.Layers()); err != nil {
		return nil, err
	}
	if err := shared(m); err != nil {
		return nil, err
	}
	return modelObject(m, m.Name())
}

func modelObject(m *keras.Model, name string) (*object, error) {
	if sequential(m) {
		return sequentialObject(m, name)
	}
	return functionalObject(m, name)
}

func sequentialObject(m *keras.Model, name string) (*object, error) {
	g, err := m.Graph()
	if err != nil {
		return nil, err
	}
	for _, c := range g.Calls {
		if c.Args != (layers.Args{}) {
			return nil, fmt.Errorf("layer %s: it is called with arguments in a Sequential model, which Keras cannot; wire it with NewModel", layers.BaseOf(c.Layer).LayerName())
		}
	}
	in := m.InputTypes()[0]
	all := []*object{inputObject(m.InputNames()[0], in, m.Layers()[:1])}
	for _, l := range m.Layers() {
		o, err := layerObject(l)
		if err != nil {
			return nil, err
		}
		all = append(all, o)
	}
	shape := shapeOf(in.Shape)
	return &object{
		Module: "keras", Class: "Sequential",
		Config:      map[string]any{"name": name, "trainable": m.Trainable(), "layers": all, "build_input_shape": shape},
		BuildConfig: map[string]any{"input_shape": shape},
	}, nil
}

func functionalObject(m *keras.Model, name string) (*object, error) {
	g, err := m.Graph()
	if err != nil {
		return nil, err
	}
	ms, err := members(m)
	if err != nil {
		return nil, err
	}
	inputNames := make([]string, len(g.Inputs))
	for _, x := range ms {
		if x.layer == nil {
			inputNames[x.input] = x.name
		}
	}
	index := make([]int, len(g.Calls)) // of a call among those of its layer
	calls := map[layers.Layer]int{}
	for i, c := range g.Calls {
		index[i] = calls[c.Layer]
		calls[c.Layer]++
	}
	history := func(r keras.GraphRef) []any {
		if r.Call < 0 {
			return []any{inputNames[r.Part], 0, 0}
		}
		return []any{layers.BaseOf(g.Calls[r.Call].Layer).LayerName(), index[r.Call], r.Part}
	}
	var all []*object
	for _, x := range ms {
		if x.layer == nil {
			var readers []layers.Layer
			for _, c := range g.Calls {
				if slices.Contains(c.In, keras.GraphRef{Call: -1, Part: x.input}) {
					readers = append(readers, c.Layer)
				}
			}
			o := inputObject(x.name, g.Inputs[x.input], readers)
			o.Name, o.InboundNodes = x.name, &[]inbound{}
			all = append(all, o)
			continue
		}
		o, err := layerObject(x.layer)
		if err != nil {
			return nil, err
		}
		o.Name, o.InboundNodes = x.name, &[]inbound{}
		always := map[string]bool{} // arguments of all calls
		for _, name := range ofCall {
			always[name] = o.Config[name] == true
			delete(o.Config, name)
		}
		for _, c := range g.Calls {
			if c.Layer != x.layer {
				continue
			}
			var ts []any // the inputs
			for _, r := range c.In {
				ts = append(ts, map[string]any{"class_name": "__keras_tensor__", "config": map[string]any{
					"shape": shapeOf(typeOf(g, r).Shape), "dtype": typeOf(g, r).DType.String(), "keras_history": history(r)}})
			}
			*o.InboundNodes = append(*o.InboundNodes, callOf(x.layer, c.Args, always, ts))
		}
		all = append(all, o)
	}
	inNest, outNest := m.Nests()
	var ins, outs []any
	for i := range g.Inputs {
		ins = append(ins, history(keras.GraphRef{Call: -1, Part: i}))
	}
	for _, r := range g.Outputs {
		end := history(r)
		if r.Call >= 0 && isFunctional(g.Calls[r.Call].Layer) {
			end[1] = index[r.Call] + 1 // here, and only here, Keras counts from 1
		}
		outs = append(outs, end)
	}
	return &object{
		Module: "keras.src.models.functional", Class: "Functional", RegisteredName: "Functional",
		Config: map[string]any{"name": name, "trainable": m.Trainable(), "layers": all,
			"input_layers": nested(inNest, ins), "output_layers": nested(outNest, outs)},
		BuildConfig: map[string]any{"input_shape": nil}, // see countFromZero
	}, nil
}

// nested groups tensors as n says.
func nested(n *keras.Nest, all []any) any {
	at := 0
	var group func(n *keras.Nest) any
	group = func(n *keras.Nest) any {
		switch {
		case n.Parts == nil:
			at++
			return all[at-1]
		case n.Keys != nil:
			dict := map[string]any{}
			for i, name := range n.Keys {
				dict[name] = group(n.Parts[i])
			}
			return dict
		}
		var list []any
		for _, p := range n.Parts {
			list = append(list, group(p))
		}
		return list
	}
	return group(n)
}

// callOf is a call of layer l with inputs ts; always are arguments of all of its calls.
func callOf(l layers.Layer, args layers.Args, always map[string]bool, ts []any) inbound {
	if o, ok := l.(*operation); ok {
		return o.inbound(ts)
	}
	kwargs := map[string]any{}
	for _, name := range argumentNames {
		if always[name] || *argumentOf(&args, name) {
			kwargs[name] = true
		}
	}
	of := args.Mask.Numbers()
	ts, masks := ts[:len(ts)-len(of)], ts[len(ts)-len(of):]
	class := layers.Class(l)
	heads := attributes[class] != nil // which take query, value and key one by one
	m := keras.ModelOf(l)
	switch {
	case len(of) == 0:
	case heads:
		for i, k := range of {
			kwargs[maskArguments[min(k, 2)]] = masks[i]
		}
	case len(ts) == 1 || isRecurrent(l):
		kwargs["mask"] = masks[0]
	default:
		list := make([]any, len(ts))
		for i, k := range of {
			list[k] = masks[i]
		}
		kwargs["mask"] = list
		if m != nil {
			in, _ := m.Nests()
			kwargs["mask"] = nested(in, list)
		}
	}
	if always[withMask] {
		kwargs[maskArgument] = ts[len(ts)-1]
		ts = ts[:len(ts)-1]
	}
	switch {
	case m != nil:
		in, _ := m.Nests()
		return inbound{[]any{nested(in, ts)}, kwargs}
	case isRecurrent(l) && len(ts) > 1:
		kwargs["initial_state"] = statesOf(l, ts[1:])
		ts = ts[:1]
	case len(ts) > 1 && !heads:
		ts = []any{ts}
	}
	return inbound{ts, kwargs}
}

// isRecurrent reports whether the inputs of l after the first are states.
func isRecurrent(l layers.Layer) bool {
	return slices.Contains(recurrent, layers.Class(l)) || layers.Class(l) == "Bidirectional"
}

// statesOf groups states as Keras does: those of each of several cells by themselves.
func statesOf(l layers.Layer, ts []any) []any {
	r, ok := l.(*layers.RNN)
	if !ok {
		return ts
	}
	stacked, ok := r.Cell.(*layers.StackedRNNCells)
	if !ok {
		return ts
	}
	var all []any
	for _, c := range stacked.Cells {
		n := len(c.(layers.Cell).StateShapes())
		all, ts = append(all, ts[:n:n]), ts[n:]
	}
	return all
}

// typeOf is the type of a tensor of a graph.
func typeOf(g *keras.Graph, r keras.GraphRef) op.Type {
	if r.Call < 0 {
		return g.Inputs[r.Part]
	}
	return g.Calls[r.Call].Out[r.Part]
}

func isFunctional(l layers.Layer) bool {
	m := keras.ModelOf(l)
	return m != nil && !sequential(m)
}

// inputObject is an Input that readers take.
func inputObject(name string, t op.Type, readers []layers.Layer) *object {
	kind, shape := t.DType.String(), shapeOf(t.Shape)
	for _, l := range readers {
		if _, ok := l.(preprocessing.StringEncoder); !ok {
			continue
		}
		kind = stringType // Keras's layers take the strings themselves
		if v, ok := l.(*preprocessing.TextVectorization); ok && v.Split != "none" {
			shape = shape[:1] // and split texts
		}
	}
	return &object{Module: "keras.layers", Class: "InputLayer", Config: map[string]any{
		"batch_shape": shape, "dtype": kind, "sparse": false, "ragged": false, "name": name, "optional": false}}
}

// stringType is Keras's type of texts.
const stringType = "string"

// shapeOf is a shape for JSON, with null where a size is unknown.
func shapeOf(s op.Shape) []any {
	out := make([]any, len(s))
	for i, n := range s {
		if n >= 0 {
			out[i] = n
		}
	}
	return out
}

func layerObject(l layers.Layer) (*object, error) {
	if m := keras.ModelOf(l); m != nil {
		return modelObject(m, layers.BaseOf(l).LayerName())
	}
	if o, ok := l.(*operation); ok {
		return o.object(), nil
	}
	var inner func(l layers.Layer) ([]byte, error)
	inner = func(l layers.Layer) ([]byte, error) {
		m := keras.ModelOf(l)
		if m == nil {
			return layers.MarshalConfigWith(l, inner)
		}
		o, err := modelObject(m, layers.BaseOf(l).LayerName())
		if err != nil {
			return nil, err
		}
		return json.Marshal(o)
	}
	raw, err := inner(l)
	if err != nil {
		return nil, err
	}
	o, err := parseObject(raw)
	if err != nil {
		return nil, err
	}
	if err := toKeras(o); err != nil {
		return nil, fmt.Errorf("layer %s: %w", layers.BaseOf(l).LayerName(), err)
	}
	return o, nil
}

// registered is an error for a class that could not be read back.
func registered(class string) error {
	if !slices.Contains(layers.Classes(), class) {
		return fmt.Errorf("class %s is not registered; make it known with layers.Register", safeio.Text(class))
	}
	return nil
}
