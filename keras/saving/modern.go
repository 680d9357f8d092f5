package saving

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/mezzo-ml/mezzo/keras/internal/safeio"
	"github.com/mezzo-ml/mezzo/layers"
)

// modernConfig turns the model_config of Keras 2 into the config.json that Keras 3 would
// write. The differences are in comments below; what means something else in Keras 2 and
// has no counterpart is an error.
func modernConfig(text []byte) (*object, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, err
	}
	m := &modernizer{shared: map[string]bool{}}
	raw, ok := v.(map[string]any)
	if !ok || !isObject(v) {
		return nil, fmt.Errorf("got %s, want an object with a class_name", safeio.Text(v))
	}
	if err := m.object(raw, 0); err != nil {
		return nil, err
	}
	return decode(raw)
}

type modernizer struct {
	shared map[string]bool // shared_object_id of layers
}

// value changes the objects in v.
func (m *modernizer) value(v any, depth int) error {
	switch v := v.(type) {
	case []any:
		for _, x := range v {
			if err := m.value(x, depth); err != nil {
				return err
			}
		}
	case map[string]any:
		if isObject(v) {
			return m.object(v, depth+1)
		}
		for _, x := range v {
			if err := m.value(x, depth); err != nil {
				return err
			}
		}
	}
	return nil
}

// object changes an object: a layer, a model, or a value in the config of one.
func (m *modernizer) object(o map[string]any, depth int) error {
	if depth > maxNested {
		return fmt.Errorf("objects are nested more than %d deep", maxNested)
	}
	class, _ := o["class_name"].(string)
	if all, ok := o["config"].([]any); ok && class == "Sequential" { // before Keras 2.2
		o["config"] = map[string]any{"name": "sequential", "layers": all}
	}
	switch class {
	case "Model":
		class = "Functional"
	case "Policy", "PolicyV1":
		class = "DTypePolicy"
	case "BatchNormalizationV1", "BatchNormalizationV2":
		class = "BatchNormalization"
	}
	o["class_name"] = class
	c, ok := o["config"].(map[string]any)
	if !ok {
		return nil // a function, by name
	}
	if class == "Sequential" {
		if err := m.sequential(c); err != nil {
			return err
		}
	}
	if err := m.value(o["config"], depth); err != nil {
		return err
	}
	isLayer := slices.Contains(layers.Classes(), class) || isModel(class) || class == "InputLayer"
	if !isLayer {
		if module, _ := o["module"].(string); module != "" || class == "DTypePolicy" {
			return nil
		}
		delete(c, "dtype") // of initializers
		return nil
	}
	if o["module"] == nil {
		o["module"] = "keras.layers"
	}
	if err := modernLayer(class, c); err != nil {
		return fmt.Errorf("layer %s: %s: %w", safeio.Text(c["name"]), class, err)
	}
	if class == "Functional" {
		o["build_config"] = map[string]any{} // calls of nested models are counted as in Keras 3
		return m.functional(c)
	}
	return nil
}

// unusedInKeras2 are arguments without a counterpart that change no result with these
// values.
var unusedInKeras2 = map[string][]any{
	"implementation": {json.Number("0"), json.Number("1"), json.Number("2")}, "time_major": {false}, "fused": {nil, true, false},
	"virtual_batch_size": {nil}, "adjustment": {nil}, "renorm_clipping": {nil}, "force_generator": {false, true}, "rng_type": {nil}, "softmax_robust_masking": {false},
	"query_shape": nil, "key_shape": nil, "value_shape": nil, "input_length": nil, "batch_input_shape": nil, "shared_object_id": nil, // nil: all
}

// modernLayer changes the config of a layer.
func modernLayer(class string, c map[string]any) error {
	for name, values := range unusedInKeras2 {
		v, has := c[name]
		if !has || class == "InputLayer" {
			continue
		}
		if values != nil && !slices.Contains(values, v) {
			return fmt.Errorf("%s is %s, which is not supported", name, safeio.Text(v))
		}
		delete(c, name)
	}
	for name, v := range c {
		if isActivation(name) && v == "hard_sigmoid" {
			return fmt.Errorf("%s is hard_sigmoid, which is 0.2·x+0.5 in Keras 2 and x/6+0.5 in Keras 3", name)
		}
	}
	switch class {
	case "BatchNormalization":
		if axis, ok := c["axis"].([]any); ok {
			if len(axis) != 1 {
				return fmt.Errorf("axis is %s, want one", safeio.Text(axis))
			}
			c["axis"] = axis[0]
		}
	case "LeakyReLU":
		if alpha, ok := c["alpha"]; ok {
			c["negative_slope"] = alpha
			delete(c, "alpha")
		}
	case "SeparableConv1D", "SeparableConv2D", "DepthwiseConv1D", "DepthwiseConv2D": // have those of Conv, too
		for _, name := range []string{"kernel_initializer", "kernel_regularizer", "kernel_constraint"} {
			delete(c, name)
		}
		delete(c, "groups") // always 1
	case "Conv1DTranspose", "Conv2DTranspose", "Conv3DTranspose":
		delete(c, "groups")
	case "GRU", "GRUCell":
		if c["reset_after"] == nil {
			c["reset_after"] = false // before TensorFlow 2
		}
	}
	return nil
}

// sequential adds the Input that older files have as an argument of the first layer.
func (m *modernizer) sequential(c map[string]any) error {
	all, ok := c["layers"].([]any)
	if !ok {
		return fmt.Errorf("layers: got %s, want a list", safeio.Text(c["layers"]))
	}
	if len(all) > 0 {
		l, _ := all[0].(map[string]any)
		first, _ := l["config"].(map[string]any)
		if shape := first["batch_input_shape"]; shape != nil && l["class_name"] != "InputLayer" {
			dtype := first["dtype"]
			if l["class_name"] == "Embedding" {
				dtype = "int32"
			}
			in := map[string]any{"class_name": "InputLayer", "config": map[string]any{"batch_input_shape": shape, "dtype": dtype, "name": ""}}
			c["layers"] = append([]any{in}, all...)
		}
	}
	return m.sharing(all)
}

// sharing is an error for a layer that two models have, by its number. Where only the
// second one has a number, Keras 2 itself loads two layers.
func (m *modernizer) sharing(all []any) error {
	for _, v := range all {
		l, ok := v.(map[string]any)
		if !ok {
			continue
		}
		id, ok := l["shared_object_id"].(json.Number)
		if ok && m.shared[id.String()] {
			c, _ := l["config"].(map[string]any)
			return fmt.Errorf("layer %s: two models have it, which is not supported", safeio.Text(c["name"]))
		}
		if ok {
			m.shared[id.String()] = true
		}
	}
	return nil
}

// functional changes the calls of a functional model: Keras 2 has lists where Keras 3 has
// objects, and counts the calls of nested models from 1.
func (m *modernizer) functional(c map[string]any) error {
	all, ok := c["layers"].([]any)
	if !ok {
		return fmt.Errorf("layers: got %s, want a list", safeio.Text(c["layers"]))
	}
	if err := m.sharing(all); err != nil {
		return err
	}
	first := map[string]int64{} // number of a layer's first call, by name
	functional := map[string]bool{}
	for _, v := range all {
		l, ok := v.(map[string]any)
		if !ok || !isObject(v) {
			return errors.New("layers: an entry is no object with a class_name")
		}
		name, _ := l["name"].(string)
		inner, _ := l["config"].(map[string]any)
		if inner["name"] == nil && inner != nil {
			inner["name"] = name
		}
		within, _ := inner["layers"].([]any)
		if len(within) == 0 || !isModel(l["class_name"]) {
			continue
		}
		if start, ok := within[0].(map[string]any); ok && start["class_name"] == "InputLayer" {
			first[name] = 1
		}
		functional[name] = l["class_name"] == "Functional"
	}
	t := calls2{first, functional}
	for _, v := range all {
		l := v.(map[string]any)
		nodes, ok := l["inbound_nodes"].([]any)
		if !ok {
			return fmt.Errorf("layer %s: it has no inbound_nodes", safeio.Text(l["name"]))
		}
		if class, _ := l["class_name"].(string); class != "InputLayer" && !isModel(class) {
			if err := registered(class); err != nil { // such as TFOpLambda, whose calls have other arguments
				return fmt.Errorf("layer %s: %w", safeio.Text(l["name"]), err)
			}
		}
		for i, n := range nodes {
			call, err := t.call(n)
			if err != nil {
				return fmt.Errorf("layer %s: inbound_nodes: entry %d: %w", safeio.Text(l["name"]), i, err)
			}
			nodes[i] = call
		}
	}
	for _, end := range []string{"input_layers", "output_layers"} {
		if err := t.ends(c, end); err != nil {
			return fmt.Errorf("%s: %w", end, err)
		}
	}
	return nil
}

// calls2 knows the layers of a functional model of Keras 2.
type calls2 struct {
	first      map[string]int64
	functional map[string]bool
}

// isTensor reports whether v is ["dense", 0, 0], a tensor, perhaps with arguments.
func isTensor(v any) bool {
	all, ok := v.([]any)
	return ok && (len(all) == 3 || len(all) == 4) && isText(all[0]) && !isText(all[1])
}

// history is a tensor with calls counted from 0.
func (t calls2) history(v any) ([]any, error) {
	all := slices.Clone(v.([]any)[:3])
	n, ok := all[1].(json.Number)
	name, _ := all[0].(string)
	i, err := n.Int64()
	if !ok || err != nil || i < t.first[name] || name == "_CONSTANT_VALUE" {
		return nil, fmt.Errorf("got %s, want a tensor of the model", safeio.Text(v))
	}
	all[1] = json.Number(fmt.Sprint(i - t.first[name]))
	return all, nil
}

// argument turns the tensors in v into objects.
func (t calls2) argument(v any) (any, error) {
	if isTensor(v) {
		history, err := t.history(v)
		return map[string]any{"class_name": "__keras_tensor__", "config": map[string]any{"keras_history": history}}, err
	}
	var err error
	switch v := v.(type) {
	case []any:
		out := make([]any, len(v))
		for i, x := range v {
			if out[i], err = t.argument(x); err != nil {
				return nil, err
			}
		}
		return out, nil
	case map[string]any:
		out := map[string]any{}
		for name, x := range v {
			if out[name], err = t.argument(x); err != nil {
				return nil, err
			}
		}
		return out, nil
	}
	return v, nil
}

// call turns a list of tensors, each with the arguments of the call, into an object. A
// model with a dict of inputs has a dict of tensors.
func (t calls2) call(v any) (any, error) {
	kwargs := map[string]any{}
	if all, ok := v.([]any); ok {
		for _, x := range all {
			if !isTensor(x) {
				return nil, fmt.Errorf("got %s, want tensors of the model", safeio.Text(x))
			}
			if x := x.([]any); len(x) == 4 {
				given, _ := x[3].(map[string]any)
				for name, value := range given {
					kwargs[name] = value
				}
			}
		}
	} else if _, ok := v.(map[string]any); !ok {
		return nil, fmt.Errorf("got %s, want tensors of the model", safeio.Text(v))
	}
	args, err := t.argument(v)
	if err != nil {
		return nil, err
	}
	list, ok := args.([]any)
	if !ok || len(list) > 1 {
		list = []any{args}
	}
	given, err := t.argument(kwargs)
	return map[string]any{"args": list, "kwargs": given}, err
}

// ends changes input_layers or output_layers, where Keras 3 counts the calls of nested
// functional models, and only those, from 1. A list of one is one.
func (t calls2) ends(c map[string]any, end string) error {
	var change func(v any) (any, error)
	change = func(v any) (any, error) {
		var err error
		switch v := v.(type) {
		case []any:
			if isTensor(v) {
				all, err := t.history(v)
				if err != nil {
					return nil, err
				}
				if name, _ := all[0].(string); t.functional[name] {
					i, _ := all[1].(json.Number).Int64()
					all[1] = json.Number(fmt.Sprint(i + 1))
				}
				return all, nil
			}
			for i, x := range v {
				if v[i], err = change(x); err != nil {
					return nil, err
				}
			}
			return v, nil
		case map[string]any:
			for name, x := range v {
				if v[name], err = change(x); err != nil {
					return nil, err
				}
			}
			return v, nil
		}
		return nil, fmt.Errorf("got %s, want tensors of the model", safeio.Text(v))
	}
	v, err := change(c[end])
	if all, ok := v.([]any); ok && len(all) == 1 && err == nil {
		v = all[0]
	}
	c[end] = v
	return err
}
