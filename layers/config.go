package layers

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/mezzo-ml/mezzo/backend/suggest"
	"github.com/mezzo-ml/mezzo/layers/callspec"
)

// classes holds the constructors for UnmarshalConfig.
var classes = struct {
	sync.RWMutex
	byName map[string]func() Layer
}{byName: map[string]func() Layer{
	"Activation":               func() Layer { return &Activation{} },
	"ActivityRegularization":   func() Layer { return &ActivityRegularization{} },
	"AdaptiveAveragePooling1D": func() Layer { return &AdaptiveAveragePooling1D{} },
	"AdaptiveAveragePooling2D": func() Layer { return &AdaptiveAveragePooling2D{} },
	"AdaptiveAveragePooling3D": func() Layer { return &AdaptiveAveragePooling3D{} },
	"AdaptiveMaxPooling1D":     func() Layer { return &AdaptiveMaxPooling1D{} },
	"AdaptiveMaxPooling2D":     func() Layer { return &AdaptiveMaxPooling2D{} },
	"AdaptiveMaxPooling3D":     func() Layer { return &AdaptiveMaxPooling3D{} },
	"Add":                      func() Layer { return &Add{} },
	"AdditiveAttention":        func() Layer { return &AdditiveAttention{} },
	"AlphaDropout":             func() Layer { return &AlphaDropout{} },
	"Attention":                func() Layer { return &Attention{} },
	"Average":                  func() Layer { return &Average{} },
	"AveragePooling1D":         func() Layer { return &AveragePooling1D{} },
	"AveragePooling2D":         func() Layer { return &AveragePooling2D{} },
	"AveragePooling3D":         func() Layer { return &AveragePooling3D{} },
	"BatchNormalization":       func() Layer { return &BatchNormalization{} },
	"Bidirectional":            func() Layer { return &Bidirectional{} },
	"Concatenate":              func() Layer { return &Concatenate{} },
	"Conv1D":                   func() Layer { return &Conv1D{} },
	"Conv1DTranspose":          func() Layer { return &Conv1DTranspose{} },
	"Conv2D":                   func() Layer { return &Conv2D{} },
	"Conv2DTranspose":          func() Layer { return &Conv2DTranspose{} },
	"Conv3D":                   func() Layer { return &Conv3D{} },
	"Conv3DTranspose":          func() Layer { return &Conv3DTranspose{} },
	"ConvLSTM1D":               func() Layer { return &ConvLSTM1D{} },
	"ConvLSTM2D":               func() Layer { return &ConvLSTM2D{} },
	"ConvLSTM3D":               func() Layer { return &ConvLSTM3D{} },
	"Cropping1D":               func() Layer { return &Cropping1D{} },
	"Cropping2D":               func() Layer { return &Cropping2D{} },
	"Cropping3D":               func() Layer { return &Cropping3D{} },
	"CustomScaleLayer":         func() Layer { return &CustomScaleLayer{} },
	"Dense":                    func() Layer { return &Dense{} },
	"DepthwiseConv1D":          func() Layer { return &DepthwiseConv1D{} },
	"DepthwiseConv2D":          func() Layer { return &DepthwiseConv2D{} },
	"Dot":                      func() Layer { return &Dot{} },
	"Dropout":                  func() Layer { return &Dropout{} },
	"EinsumDense":              func() Layer { return &EinsumDense{} },
	"ELU":                      func() Layer { return &ELU{} },
	"Embedding":                func() Layer { return &Embedding{} },
	"Flatten":                  func() Layer { return &Flatten{} },
	"GaussianDropout":          func() Layer { return &GaussianDropout{} },
	"GaussianNoise":            func() Layer { return &GaussianNoise{} },
	"GlobalAveragePooling1D":   func() Layer { return &GlobalAveragePooling1D{} },
	"GlobalAveragePooling2D":   func() Layer { return &GlobalAveragePooling2D{} },
	"GlobalAveragePooling3D":   func() Layer { return &GlobalAveragePooling3D{} },
	"GlobalMaxPooling1D":       func() Layer { return &GlobalMaxPooling1D{} },
	"GlobalMaxPooling2D":       func() Layer { return &GlobalMaxPooling2D{} },
	"GlobalMaxPooling3D":       func() Layer { return &GlobalMaxPooling3D{} },
	"GroupNormalization":       func() Layer { return &GroupNormalization{} },
	"GroupQueryAttention":      func() Layer { return &GroupQueryAttention{} },
	"GRU":                      func() Layer { return &GRU{} },
	"GRUCell":                  func() Layer { return &GRUCell{} },
	"Identity":                 func() Layer { return &Identity{} },
	"LayerNormalization":       func() Layer { return &LayerNormalization{} },
	"LayerScale":               func() Layer { return &LayerScale{} },
	"LeakyReLU":                func() Layer { return &LeakyReLU{} },
	"LSTM":                     func() Layer { return &LSTM{} },
	"LSTMCell":                 func() Layer { return &LSTMCell{} },
	"Masking":                  func() Layer { return &Masking{} },
	"Maximum":                  func() Layer { return &Maximum{} },
	"MaxPooling1D":             func() Layer { return &MaxPooling1D{} },
	"MaxPooling2D":             func() Layer { return &MaxPooling2D{} },
	"MaxPooling3D":             func() Layer { return &MaxPooling3D{} },
	"Minimum":                  func() Layer { return &Minimum{} },
	"MultiHeadAttention":       func() Layer { return &MultiHeadAttention{} },
	"Multiply":                 func() Layer { return &Multiply{} },
	"Permute":                  func() Layer { return &Permute{} },
	"Pipeline":                 func() Layer { return &Pipeline{} },
	"PReLU":                    func() Layer { return &PReLU{} },
	"ReLU":                     func() Layer { return &ReLU{} },
	"RepeatVector":             func() Layer { return &RepeatVector{} },
	"Reshape":                  func() Layer { return &Reshape{} },
	"ReversibleEmbedding":      func() Layer { return &ReversibleEmbedding{} },
	"RMSNormalization":         func() Layer { return &RMSNormalization{} },
	"RNN":                      func() Layer { return &RNN{} },
	"SeparableConv1D":          func() Layer { return &SeparableConv1D{} },
	"SeparableConv2D":          func() Layer { return &SeparableConv2D{} },
	"SimpleRNN":                func() Layer { return &SimpleRNN{} },
	"SimpleRNNCell":            func() Layer { return &SimpleRNNCell{} },
	"Softmax":                  func() Layer { return &Softmax{} },
	"SpatialDropout1D":         func() Layer { return &SpatialDropout1D{} },
	"SpatialDropout2D":         func() Layer { return &SpatialDropout2D{} },
	"SpatialDropout3D":         func() Layer { return &SpatialDropout3D{} },
	"SpectralNormalization":    func() Layer { return &SpectralNormalization{} },
	"StackedRNNCells":          func() Layer { return &StackedRNNCells{} },
	"StochasticDepth":          func() Layer { return &StochasticDepth{} },
	"Subtract":                 func() Layer { return &Subtract{} },
	"TimeDistributed":          func() Layer { return &TimeDistributed{} },
	"UnitNormalization":        func() Layer { return &UnitNormalization{} },
	"UpSampling1D":             func() Layer { return &UpSampling1D{} },
	"UpSampling2D":             func() Layer { return &UpSampling2D{} },
	"UpSampling3D":             func() Layer { return &UpSampling3D{} },
	"ZeroPadding1D":            func() Layer { return &ZeroPadding1D{} },
	"ZeroPadding2D":            func() Layer { return &ZeroPadding2D{} },
	"ZeroPadding3D":            func() Layer { return &ZeroPadding3D{} },
}}

// Register registers a class of layers for UnmarshalConfig; class is the name
// of its type. Call it in an init function. It panics if the class is already
// registered.
func Register(class string, make func() Layer) {
	classes.Lock()
	defer classes.Unlock()
	if _, dup := classes.byName[class]; dup {
		panic("layers: Register called twice for class " + class)
	}
	classes.byName[class] = make
}

// Classes returns the registered classes, sorted.
func Classes() []string {
	classes.RLock()
	defer classes.RUnlock()
	return slices.Sorted(maps.Keys(classes.byName))
}

// MarshalConfig describes a layer as JSON, without its weights:
//
//	{"class_name": "Dense", "config": {"name": "dense_1", "units": 64, …}}
//
// config holds the layer's exported fields under Keras's names, defaults
// spelled out, with name, dtype (the policy's name; null for a layer that is
// not built and names none) and trainable.
func MarshalConfig(l Layer) ([]byte, error) { return MarshalConfigWith(l, MarshalConfig) }

// MarshalConfigWith is MarshalConfig where inner describes the layers in the fields
// of l.
func MarshalConfigWith(l Layer, inner func(Layer) ([]byte, error)) ([]byte, error) {
	l, _ = Unwrap(l)
	v := reflect.New(reflect.TypeOf(l).Elem()).Elem()
	v.Set(reflect.ValueOf(l).Elem())
	fillDefaults(v)
	config := map[string]any{}
	for _, f := range configFields(v.Type()) {
		value, err := configValue(v.FieldByIndex(f.Index), inner)
		if err != nil {
			return nil, err
		}
		config[configName(f)] = value
	}
	b := l.base()
	if config["name"] == nil && b.name != "" {
		config["name"] = b.name
	}
	if b.built {
		config["dtype"] = b.policy.Name
	}
	config["trainable"] = b.Trainable()
	out, err := json.Marshal(map[string]any{"class_name": Class(l), "config": config})
	if err != nil {
		return nil, fmt.Errorf("layers: %s: %w", Class(l), err)
	}
	return out, nil
}

// UnmarshalConfig makes the layer that MarshalConfig described, not built. The
// classes of package preprocessing are known when it is imported. A class that
// is not registered, a name that is no field of it and a value that
// does not fit are errors. Fields may be missing: they keep their defaults.
func UnmarshalConfig(data []byte) (Layer, error) { return UnmarshalConfigWith(data, UnmarshalConfig) }

// UnmarshalConfigWith is UnmarshalConfig where inner makes the layers in the fields of
// the layer.
func UnmarshalConfigWith(data []byte, inner func([]byte) (Layer, error)) (Layer, error) {
	var object struct {
		ClassName string `json:"class_name"`
		Config    map[string]json.RawMessage
	}
	if err := json.Unmarshal(data, &object); err != nil {
		return nil, fmt.Errorf("layers: config: %w", err)
	}
	classes.RLock()
	make := classes.byName[object.ClassName]
	if object.ClassName == "GroupedQueryAttention" { // Keras's class name for the type that it exports as GroupQueryAttention
		make = classes.byName["GroupQueryAttention"]
	}
	classes.RUnlock()
	if make == nil {
		return nil, fmt.Errorf("layers: %w", suggest.Unknown("class", object.ClassName, Classes()))
	}
	l := make()
	v := reflect.ValueOf(l).Elem()
	fields := map[string]reflect.Value{}
	for _, f := range configFields(v.Type()) {
		fields[configName(f)] = v.FieldByIndex(f.Index)
	}
	trainable := true
	fields["trainable"] = reflect.ValueOf(&trainable).Elem()
	for _, name := range slices.Sorted(maps.Keys(object.Config)) {
		raw := object.Config[name]
		field, ok := fields[name]
		if !ok {
			return nil, fmt.Errorf("layers: %s: %w", object.ClassName, suggest.Unknown("field", name, slices.Sorted(maps.Keys(fields))))
		}
		if err := setField(field, raw, inner); err != nil {
			var wrong *json.UnmarshalTypeError
			if errors.As(err, &wrong) {
				return nil, fmt.Errorf("layers: %s: field %q: got %s, want %v", object.ClassName, name, raw, wrong.Type)
			}
			return nil, fmt.Errorf("layers: %s: field %q: %w", object.ClassName, name, err)
		}
	}
	l.base().SetTrainable(trainable)
	return l, nil
}

// unmarshalWith is UnmarshalConfig with some fields set otherwise.
func unmarshalWith(data []byte, fields map[string]any) (Layer, error) {
	var object struct {
		ClassName string         `json:"class_name"`
		Config    map[string]any `json:"config"`
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber() // seeds have more digits than a float64
	if err := d.Decode(&object); err != nil {
		return nil, fmt.Errorf("layers: config: %w", err)
	}
	maps.Copy(object.Config, fields)
	out, err := json.Marshal(object)
	if err != nil {
		return nil, fmt.Errorf("layers: config: %w", err)
	}
	return UnmarshalConfig(out)
}

// configFields lists the exported fields of a layer, Base excepted.
func configFields(t reflect.Type) []reflect.StructField {
	var out []reflect.StructField
	for i := range t.NumField() {
		if f := t.Field(i); f.IsExported() && !f.Anonymous {
			out = append(out, f)
		}
	}
	return out
}

// configName is Keras's name of a field.
func configName(f reflect.StructField) string {
	if f.Name == "DType" {
		return "dtype"
	}
	return callspec.SnakeCase(f.Name)
}

// configValue returns the value of a field for JSON. Keras writes null for a missing
// value, which is "" or nil here. Layers within layers are written as layers.
func configValue(v reflect.Value, inner func(Layer) ([]byte, error)) (any, error) {
	switch x := v.Interface().(type) {
	case Layer:
		out, err := inner(x)
		return json.RawMessage(out), err
	case []Layer:
		all := make([]json.RawMessage, len(x))
		for i, l := range x {
			var err error
			if all[i], err = inner(l); err != nil {
				return nil, err
			}
		}
		return all, nil
	case string:
		if x == "" {
			return nil, nil
		}
	}
	return v.Interface(), nil
}

// setField sets a field from JSON. null leaves it as it is, and a list takes a
// single value too, as Keras's axis does.
func setField(v reflect.Value, raw []byte, inner func([]byte) (Layer, error)) (err error) {
	if string(raw) == "null" {
		return nil
	}
	switch to := v.Addr().Interface().(type) {
	case *Layer:
		*to, err = inner(raw)
		return err
	case *[]Layer:
		var all []json.RawMessage
		if err := json.Unmarshal(raw, &all); err != nil {
			return err
		}
		*to = make([]Layer, len(all))
		for i, one := range all {
			if (*to)[i], err = inner(one); err != nil {
				return err
			}
		}
		return nil
	}
	if _, own := v.Addr().Interface().(json.Unmarshaler); !own && v.Kind() == reflect.Slice && !bytes.HasPrefix(raw, []byte("[")) {
		raw = slices.Concat([]byte("["), raw, []byte("]"))
	}
	return json.Unmarshal(raw, v.Addr().Interface())
}

// Defaults returns a copy of a layer in which each zero field has the value of
// its tag. Values are written as in JSON, strings without quotes:
// `default:"glorot_uniform"`, `default:"0.99"`, `default:"true"`. A field
// whose default is not Go's zero must be a string, a slice or a pointer, so
// that a zero can be told from an absent value. Build uses it to read such
// fields:
//
//	c := layers.Defaults(*l)
//
// It panics if a tag does not fit its field.
func Defaults[T any](l T) T {
	fillDefaults(reflect.ValueOf(&l).Elem())
	return l
}

func fillDefaults(v reflect.Value) {
	for _, f := range configFields(v.Type()) {
		value, ok := f.Tag.Lookup("default")
		field := v.FieldByIndex(f.Index)
		if !ok || !field.IsZero() {
			continue
		}
		if field.Kind() == reflect.String {
			field.SetString(value)
		} else if err := setField(field, []byte(value), UnmarshalConfig); err != nil {
			panic(fmt.Sprintf("layers: the default %s of field %s of %v: %v", strings.TrimSpace(value), f.Name, v.Type(), err))
		}
	}
}
