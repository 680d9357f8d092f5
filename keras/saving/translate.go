package saving

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/mezzo-ml/mezzo/backend/op"
	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/internal/safeio"
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/layers/callspec"
	"github.com/mezzo-ml/mezzo/policy"
)

// kinds are the fields that name an object in a config here, "l2(0.01)", and
// hold one in Keras, by how their names end.
var kinds = map[string]string{
	"_initializer": "keras.initializers",
	"_regularizer": "keras.regularizers",
	"_constraint":  "keras.constraints",
}

// ofCall are fields here that are only arguments of the call in Keras, where
// their default is false.
var ofCall = []string{"use_causal_mask", "use_attention_mask", "return_attention_scores"}

// withMask is the one of ofCall that says that the last input is what Keras
// calls by the name maskArgument.
const (
	withMask     = "use_attention_mask"
	maskArgument = "attention_mask"
)

// argumentOf is the field of a that Keras calls by a name, or nil.
func argumentOf(a *layers.Args, name string) *bool {
	switch name {
	case "use_causal_mask":
		return &a.UseCausalMask
	case "return_attention_scores":
		return &a.ReturnAttentionScores
	case "reverse":
		return &a.Reverse
	}
	return nil
}

// argumentNames are those that argumentOf knows.
var argumentNames = []string{"use_causal_mask", "return_attention_scores", "reverse"}

// zeroIsNone are fields whose zero is Keras's None.
var zeroIsNone = []string{"value_dim", "max_tokens", "output_sequence_length", "num_bins", "logit_soft_cap"}

// noneIsNone are fields that are "none" here where they are Keras's None,
// which is not their default.
var noneIsNone = []string{"merge_mode", "standardize", "split", "window", "scaling"}

// noiseShape is the field whose sizes, where they are those of the input, are
// -1 here and null in Keras.
const noiseShape = "noise_shape"

// exchanged is a copy of a list with one value in place of another; what is no
// list stays as it is.
func exchanged(v, from, to any) any {
	all, ok := v.([]any)
	if !ok {
		return v
	}
	out := slices.Clone(all)
	for i, x := range out {
		if x == from {
			out[i] = to
		}
	}
	return out
}

// notTrainable are classes that have no argument of that name.
var notTrainable = []string{"SpatialDropout1D", "SpatialDropout2D", "SpatialDropout3D", "Discretization"}

// kind is the module of a field's value, "" for other fields.
func kind(field string) string {
	for end, module := range kinds {
		if strings.HasSuffix(field, end) {
			return module
		}
	}
	return ""
}

// toKeras turns a layer's config from the form of layers.MarshalConfig into
// Keras's.
func toKeras(o *object) error {
	if err := registered(o.Class); err != nil {
		return err
	}
	o.Module = "keras.layers"
	if module, ok := applications[o.Class]; ok {
		o.Module, o.RegisteredName = module, o.Class
	}
	if o.Class == "Pipeline" { // has a name alone; its layers have the rest
		delete(o.Config, "trainable")
		delete(o.Config, "dtype")
	}
	if axes, ok := o.Config["axes"].([]any); ok && o.Class == "Dot" && len(axes) == 1 {
		o.Config["axes"] = axes[0] // Keras has two, or a number
	}
	if slices.Contains(notTrainable, o.Class) && (o.Config["trainable"] == true || strings.HasPrefix(o.Class, "Spatial")) {
		delete(o.Config, "trainable")
	}
	if strings.HasPrefix(o.Class, "Hash") && o.Config["output_mode"] == "int" {
		o.Config["dtype"] = "int64" // in Keras the type of the result
	}
	dtype, _ := o.Config["dtype"].(string)
	if p, err := policy.Parse(dtype); err == nil && p.HasInt8() {
		if p.Int8 {
			o.Config["quantization_config"] = quantization()
		}
		dtype = p.Source() // of an activation that is a layer
	}
	for name, value := range o.Config {
		text, isText := value.(string)
		switch {
		case isActivation(name) && isText && text != "":
			made, err := activationObject(text, dtype)
			if err != nil {
				return fmt.Errorf("field %q: %w", name, err)
			}
			o.Config[name] = made
		case name == noiseShape:
			o.Config[name] = exchanged(value, json.Number("-1"), nil)
		case name == "dtype" && isText:
			o.Config[name] = policyObject(text)
		case kind(name) != "" && isText:
			made, err := namedObject(kind(name), text)
			if err != nil {
				return fmt.Errorf("field %q: %w", name, err)
			}
			o.Config[name] = made
		case slices.Contains(zeroIsNone, name) && value == json.Number("0"):
			o.Config[name] = nil
		case slices.Contains(noneIsNone, name) && value == "none":
			o.Config[name] = nil
		case isList(value):
			all := value.([]any)
			for i, one := range all {
				if isModel(one.(map[string]any)["class_name"]) {
					continue
				}
				inner, err := layerIn(one)
				if err != nil {
					return fmt.Errorf("field %q: %w", name, err)
				}
				all[i] = inner
			}
		case slices.Contains(ofCall, name) && value == false:
			delete(o.Config, name)
		case isObject(value) && isModel(value.(map[string]any)["class_name"]):
			// It is in Keras's form already.
		case isObject(value):
			inner, err := layerIn(value)
			if err != nil {
				return fmt.Errorf("field %q: %w", name, err)
			}
			o.Config[name] = inner
		}
	}
	return nil
}

// layerIn is toKeras for a layer within the config of another.
func layerIn(value any) (*object, error) {
	inner, err := decode(value)
	if err != nil {
		return nil, err
	}
	return inner, toKeras(inner)
}

// isModel reports whether a class is one of models.
func isModel(class any) bool { return class == "Sequential" || class == "Functional" }

// applications are classes of layers that Keras has for keras.applications alone, by
// their modules.
var applications = map[string]string{"LayerScale": "keras.src.applications.convnext", "StochasticDepth": "keras.src.applications.convnext",
	"CustomScaleLayer": "keras.src.applications.inception_resnet_v2"}

// isList reports whether v is a list of objects.
func isList(v any) bool {
	list, ok := v.([]any)
	return ok && len(list) > 0 && !slices.ContainsFunc(list, func(x any) bool { return !isObject(x) })
}

// parameters are the names of positional arguments, in order: Keras's configs
// have names for all.
var parameters = map[string][]string{
	"constant": {"value"}, "identity": {"gain"}, "orthogonal": {"gain", "seed"},
	"random_uniform": {"minval", "maxval", "seed"}, "random_normal": {"mean", "stddev", "seed"},
	"truncated_normal": {"mean", "stddev", "seed"}, "variance_scaling": {"scale", "mode", "distribution", "seed"},
	"glorot_uniform": {"seed"}, "glorot_normal": {"seed"}, "he_uniform": {"seed"}, "he_normal": {"seed"},
	"lecun_uniform": {"seed"}, "lecun_normal": {"seed"},
	"l1": {"l1"}, "l2": {"l2"}, "l1_l2": {"l1", "l2"}, "orthogonal_regularizer": {"factor", "mode"},
	"gelu": {"approximate"}, "celu": {"alpha"}, "glu": {"axis"}, "log_softmax": {"axis"}, "sparsemax": {"axis"}, "squareplus": {"b"},
	"hard_shrink": {"threshold"}, "soft_shrink": {"threshold"}, "threshold": {"threshold", "default_value"},
	"relu": {"negative_slope", "max_value", "threshold"}, "leaky_relu": {"negative_slope"}, "elu": {"alpha"}, "softmax": {"axis"},
	"max_norm": {"max_value", "axis"}, "unit_norm": {"axis"}, "min_max_norm": {"min_value", "max_value", "rate", "axis"},
}

// synonyms are other names of what has parameters.
var synonyms = map[string]string{
	"normal": "random_normal", "uniform": "random_uniform", "orthogonal_initializer": "orthogonal", "l1l2": "l1_l2",
}

// namedObject turns "l2(0.01)" into Keras's object. A name without arguments
// stays one, which Keras reads as well.
func namedObject(module, text string) (any, error) {
	s, err := callspec.Parse(text)
	if err != nil {
		return nil, err
	}
	if len(s.Args) == 0 {
		return s.Name, nil
	}
	if other, ok := synonyms[s.Name]; ok {
		s.Name = other
	}
	return objectOf(module, className(s.Name), s)
}

// objectOf is Keras's object of a class with the arguments of s.
func objectOf(module, class string, s callspec.Spec) (*object, error) {
	o := &object{Module: module, Class: class, Config: map[string]any{}}
	for i, a := range s.Args {
		if a.Name == "" {
			if i >= len(parameters[s.Name]) {
				return nil, fmt.Errorf("argument %d of %s has no name that Keras knows; give it one", i, s)
			}
			a.Name = parameters[s.Name][i]
		}
		o.Config[a.Name] = a.Value
	}
	return o, nil
}

// className turns "glorot_uniform" into "GlorotUniform", and "l1_l2" into
// "L1L2".
func className(snake string) string {
	var b strings.Builder
	for word := range strings.SplitSeq(snake, "_") {
		if word != "" {
			b.WriteString(strings.ToUpper(word[:1]) + word[1:])
		}
	}
	return b.String()
}

func isObject(v any) bool {
	m, ok := v.(map[string]any)
	return ok && m["class_name"] != nil
}

// decode reads an object from decoded JSON, which it refers to.
func decode(v any) (*object, error) {
	m, ok := v.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("got %s, want an object", safeio.Text(v))
	}
	o := &object{RegisteredName: m["registered_name"], BuildConfig: m["build_config"]}
	for name, to := range map[string]*string{"module": &o.Module, "class_name": &o.Class, "name": &o.Name} {
		if err := field(m, name, to); err != nil {
			return nil, err
		}
	}
	if err := field(m, "config", &o.Config); err != nil {
		return nil, err
	}
	if m["inbound_nodes"] == nil {
		return o, nil
	}
	var nodes []any
	if err := field(m, "inbound_nodes", &nodes); err != nil {
		return nil, err
	}
	calls := make([]inbound, len(nodes))
	for i, n := range nodes {
		call, ok := n.(map[string]any)
		if !ok && n != nil {
			return nil, fmt.Errorf("inbound_nodes: entry %d: got %s, want an object", i, safeio.Text(n))
		}
		err := field(call, "args", &calls[i].Args)
		if err == nil {
			err = field(call, "kwargs", &calls[i].Kwargs)
		}
		if err != nil {
			return nil, fmt.Errorf("inbound_nodes: entry %d: %w", i, err)
		}
	}
	o.InboundNodes = &calls
	return o, nil
}

// field sets to to a field of an object, which may be absent or null.
func field[T any](m map[string]any, name string, to *T) error {
	v := m[name]
	if v == nil {
		return nil
	}
	x, ok := v.(T)
	if !ok {
		want := "a string"
		switch any(to).(type) {
		case *[]any:
			want = "a list"
		case *map[string]any:
			want = "an object"
		}
		return fmt.Errorf("%s: got %s, want %s", name, safeio.Text(v), want)
	}
	*to = x
	return nil
}

// parseObject reads an object, and numbers in it as they are written.
func parseObject(raw []byte) (*object, error) {
	o := &object{}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	if err := d.Decode(o); err != nil {
		return nil, err
	}
	return o, nil
}

// unused are arguments of Keras's layers that change nothing with these
// values. Others that layers here do not have are errors.
var unused = map[string][]any{
	"renorm": {false}, "renorm_momentum": {json.Number("0.99")}, "rms_scaling": {false}, "sparse": {false},
	"data_format": {"channels_last"}, "autocast": {true}, "ragged": {false}, "oov_method": {"floormod", "farmhash"},
}

// fromKeras turns a layer's config from Keras's form into that of
// layers.UnmarshalConfig, and makes the layer. repolicy says which policy a
// layer has instead of that of its config.
func fromKeras(o *object, repolicy func(string) string) (layers.Layer, error) {
	return (&builder{repolicy: repolicy}).translated(o, 0)
}

// translated is fromKeras for a layer within depth models.
func (b *builder) translated(o *object, depth int) (layers.Layer, error) {
	t := translation{builder: b, within: depth}
	raw, err := t.ours(o, 0)
	if err != nil {
		return nil, err
	}
	var made func(raw []byte) (layers.Layer, error)
	made = func(raw []byte) (layers.Layer, error) {
		var ref struct {
			Model *int `json:"model"`
		}
		if err := json.Unmarshal(raw, &ref); err == nil && ref.Model != nil {
			return t.models[*ref.Model].Layer(), nil
		}
		return layers.UnmarshalConfigWith(raw, made)
	}
	return made(raw)
}

// translation turns the config of one layer into the form that layers reads.
type translation struct {
	*builder
	within int            // models
	models []*keras.Model // in the fields of the layer
}

// inner is ours for a layer or a model in a field: a model is the index of one of
// t.models.
func (t *translation) inner(o *object, depth int) ([]byte, error) {
	if !isModel(o.Class) {
		return t.ours(o, depth+1)
	}
	m, err := t.model(o, t.within+depth+1)
	if err != nil {
		return nil, err
	}
	t.models = append(t.models, m)
	return json.Marshal(map[string]int{"model": len(t.models) - 1})
}

func (t *translation) ours(o *object, depth int) ([]byte, error) {
	repolicy := t.repolicy
	if depth > maxModels {
		return nil, fmt.Errorf("layers: %s: layers are nested more than %d deep", o.Class, maxModels)
	}
	if o.Class == "GroupedQueryAttention" { // the type of what Keras exports as GroupQueryAttention
		o.Class = "GroupQueryAttention"
	}
	if err := registered(o.Class); err != nil {
		return nil, fmt.Errorf("%w; it has %q", err, layers.Classes())
	}
	known, err := fieldsOf(o.Class)
	if err != nil {
		return nil, err
	}
	out := map[string]any{}
	for _, name := range slices.Sorted(maps.Keys(o.Config)) {
		value := o.Config[name]
		if name == "quantization_config" && value != nil {
			if err := checkQuantization(value); err != nil {
				return nil, fmt.Errorf("layers: %s: field %q: %w", o.Class, name, err)
			}
			continue
		}
		if !known[name] && (value == nil || name == "vocabulary_size" || slices.Contains(unused[name], value)) {
			continue
		}
		if name == "dtype" {
			p, err := policyOf(value)
			if err != nil {
				return nil, fmt.Errorf("layers: %s: field %q: %w", o.Class, name, err)
			}
			if p == "string" || strings.HasPrefix(p, "int") && !isQuantized(p) {
				continue // of the result of a lookup or hash
			}
			if p = repolicy(p); p != "" {
				out[name] = p
			}
			continue
		}
		if slices.Contains(noneIsNone, name) && value == nil {
			out[name] = "none"
			continue
		}
		if isList(value) {
			var all []json.RawMessage
			for _, one := range value.([]any) {
				inner, err := decode(one)
				if err != nil {
					return nil, fmt.Errorf("layers: %s: field %q: %w", o.Class, name, err)
				}
				raw, err := t.inner(inner, depth)
				if err != nil {
					return nil, err
				}
				all = append(all, raw)
			}
			out[name] = all
			continue
		}
		if name == noiseShape || name == "target_shape" {
			value = exchanged(value, nil, json.Number("-1"))
		}
		if !isObject(value) {
			out[name] = value
			continue
		}
		if m := value.(map[string]any); m["class_name"] == "function" {
			out[name] = m["config"] // its name
			continue
		}
		inner, err := decode(value)
		if err != nil {
			return nil, fmt.Errorf("layers: %s: field %q: %w", o.Class, name, err)
		}
		if isActivation(name) && isOperation(inner) {
			out[name] = operationText(inner)
			continue
		}
		if isActivation(name) && strings.HasPrefix(inner.Module, "keras.layers") {
			if out[name], err = activationText(inner, o.Config["dtype"]); err != nil {
				return nil, fmt.Errorf("layers: %s: field %q: %w", o.Class, name, err)
			}
			continue
		}
		if kind(name) != "" || !strings.HasPrefix(inner.Module, "keras.layers") && applications[inner.Class] == "" && !isModel(inner.Class) {
			out[name] = specOf(inner)
			continue
		}
		raw, err := t.inner(inner, depth)
		if err != nil {
			return nil, err
		}
		out[name] = json.RawMessage(raw)
	}
	return json.Marshal(map[string]any{"class_name": o.Class, "config": out})
}

// fields are what fieldsOf has found, by class.
var fields sync.Map

// fieldsOf returns the fields of a class. Do not change the map.
func fieldsOf(class string) (map[string]bool, error) {
	if known, ok := fields.Load(class); ok {
		return known.(map[string]bool), nil
	}
	l, err := layers.UnmarshalConfig([]byte(`{"class_name":"` + class + `","config":{}}`))
	if err != nil {
		return nil, err
	}
	raw, err := layers.MarshalConfig(l)
	if err != nil {
		return nil, err
	}
	o, err := parseObject(raw)
	if err != nil {
		return nil, err
	}
	known := map[string]bool{"name": true, "dtype": true, "trainable": true}
	for name := range o.Config {
		known[name] = true
	}
	fields.Store(class, known)
	return known, nil
}

// amaxHistory is the only length of a float8 policy's history that layers
// have, Keras's default.
const amaxHistory = 1024

// quantizedForms are what the names of policies of quantized layers begin with, by their
// modes in files. Keras does not know the mode of static ones, and refuses the file.
var quantizedForms = map[string]string{"int8": "int8_from_", "int8_static": "int8_static_from_"}

// isQuantized reports whether p is the name of a policy of quantized layers.
func isQuantized(p string) bool { return source(p) != p }

// source is the policy that p, of quantized layers, is made from; p for other policies.
func source(p string) string {
	for _, form := range quantizedForms {
		p = strings.TrimPrefix(p, form)
	}
	return p
}

// quantization is the quantization_config of quantized layers, Keras's default.
func quantization() object {
	return object{Module: "keras.quantizers", Class: "Int8QuantizationConfig", Config: map[string]any{
		"weight_quantizer": nil,
		"activation_quantizer": object{Module: "keras.quantizers", Class: "AbsMaxQuantizer", Config: map[string]any{
			"value_range": []any{-op.QuantizeLimit, op.QuantizeLimit}, "epsilon": op.QuantizeEpsilon, "output_dtype": "int8"}},
	}}
}

// checkQuantization is an error for a quantization_config other than Keras's default.
// How the weights were quantized does not matter any more, as the file has the result.
func checkQuantization(v any) error {
	config := func(v any, class string) (map[string]any, error) {
		o, err := decode(v)
		if err != nil {
			return nil, err
		}
		if o.Class != class {
			return nil, fmt.Errorf("got %s, want %s", safeio.Text(o.Class), class)
		}
		return o.Config, nil
	}
	c, err := config(v, "Int8QuantizationConfig")
	if err != nil {
		return err
	}
	if c["activation_quantizer"] == nil {
		return fmt.Errorf("activation_quantizer is null: its inputs are not quantized, which Mezzo does not have")
	}
	if c, err = config(c["activation_quantizer"], "AbsMaxQuantizer"); err != nil {
		return err
	}
	for name, want := range quantization().Config["activation_quantizer"].(object).Config {
		if got, _ := json.Marshal(c[name]); !sameJSON(string(got), asJSON(want)) {
			return fmt.Errorf("%s of the activation_quantizer is %s, want %s", name, safeio.Text(string(got)), asJSON(want))
		}
	}
	return nil
}

// sameJSON compares two values as JSON, of which numbers have several forms.
func sameJSON(a, b string) bool {
	x, err := strconv.ParseFloat(a, 64)
	y, err2 := strconv.ParseFloat(b, 64)
	return a == b || err == nil && err2 == nil && x == y
}

// asJSON is v as JSON.
func asJSON(v any) string {
	b, _ := json.Marshal(v)
	return string(b)
}

// policyObject is a policy as Keras writes it.
func policyObject(name string) object {
	if p, err := policy.Parse(name); err == nil && p.Float8 && !p.Adaptive {
		return object{Module: "keras.dtype_policies", Class: "QuantizedFloat8DTypePolicy", Config: map[string]any{
			"mode": "float8", "source_name": p.Source(), "amax_history_length": amaxHistory}}
	}
	if p, err := policy.Parse(name); err == nil && p.HasInt8() {
		mode := "int8"
		if p.Int8Static {
			mode = "int8_static"
		}
		return object{Module: "keras.dtype_policies", Class: "QuantizedDTypePolicy", Config: map[string]any{
			"mode": mode, "source_name": p.Source()}}
	}
	if p, err := policy.Parse(name); err == nil && !p.Adaptive { // which Keras does not have
		name = p.Source()
	}
	return object{Module: "keras", Class: "DTypePolicy", Config: map[string]any{"name": name}}
}

// policyOf reads a layer's dtype: a name or a DTypePolicy; "" for none.
func policyOf(v any) (string, error) {
	switch v := v.(type) {
	case nil:
		return "", nil
	case string:
		return v, nil
	case map[string]any:
		if c, ok := v["config"].(map[string]any); ok && v["class_name"] == "DTypePolicy" {
			if name, ok := c["name"].(string); ok {
				return name, nil
			}
		}
		if c, ok := v["config"].(map[string]any); ok && v["class_name"] == "QuantizedFloat8DTypePolicy" {
			source, _ := c["source_name"].(string)
			if n := c["amax_history_length"]; n != json.Number(strconv.Itoa(amaxHistory)) {
				return "", fmt.Errorf("amax_history_length is %s, want %d", safeio.Text(n), amaxHistory)
			}
			return "float8_from_" + source, nil
		}
	}
	if v, ok := v.(map[string]any); ok && v["class_name"] == "QuantizedDTypePolicy" {
		if c, ok := v["config"].(map[string]any); ok {
			source, _ := c["source_name"].(string)
			mode, _ := c["mode"].(string)
			form, ok := quantizedForms[mode]
			if !ok {
				return "", fmt.Errorf("quantization mode is %s, want int8 or int8_static", safeio.Text(c["mode"]))
			}
			return form + source, nil
		}
	}
	return "", fmt.Errorf("got %s, want a DTypePolicy", safeio.Text(v))
}

// specOf writes an object of Keras as "random_normal(mean=0.0, stddev=0.05)".
func specOf(o *object) string {
	s := callspec.Spec{Name: callspec.SnakeCase(o.Class)}
	for _, name := range slices.Sorted(maps.Keys(o.Config)) {
		if v := o.Config[name]; v != nil {
			s.Args = append(s.Args, callspec.Arg{Name: name, Value: argument(v)})
		}
	}
	return s.String()
}

// argument turns decoded JSON into a value of a spec.
func argument(v any) any {
	switch v := v.(type) {
	case json.Number:
		if i, err := v.Int64(); err == nil {
			return i
		}
		f, err := v.Float64()
		if err != nil {
			return v.String() // which no number fits; the parameter refuses it
		}
		return f
	case []any:
		out := make([]any, len(v))
		for i, x := range v {
			out[i] = argument(x)
		}
		return out
	}
	return v
}
