package saving

import (
	"encoding/json"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/layers/callspec"
)

// fixed are arguments of Keras's layers that have no field, with the only
// value that layers here know.
var fixed = map[string]any{
	"renorm": false, "renorm_momentum": 0.99, "renorm_clipping": nil, "rms_scaling": false, "sparse": false, "ragged": false,
	"data_format": "channels_last", "oov_method": "floormod", "quantization_config": nil, "salt": nil,
}

// unsaid are arguments that Keras takes and does not write, or writes though
// they follow from others.
var unsaid = map[string]bool{
	"Dense activity_regularizer": true, "SimpleRNN seed": true, "RandomGrayscale seed": true, "MaxNumBoundingBoxes fill_value": true,
	"Bidirectional backward_layer": true, "MelSpectrogram sequence_length": true, "MelSpectrogram max_freq": true,
	"MultiHeadAttention value_dim": true, "RandomCrop seed": true, "AveragePooling1D strides": true, "AveragePooling2D strides": true,
	"AveragePooling3D strides": true, "MaxPooling1D strides": true, "MaxPooling2D strides": true, "MaxPooling3D strides": true,
}

// TestKerasDefaults makes every class from what it requires alone, and
// compares its config with Keras's: the same arguments with the same values.
func TestKerasDefaults(t *testing.T) {
	data, err := os.ReadFile("testdata/defaults.json")
	if err != nil {
		t.Fatal(err)
	}
	var kinds map[string]json.RawMessage
	if err := json.Unmarshal(data, &kinds); err != nil {
		t.Fatal(err)
	}
	var rows []struct {
		Class  string          `json:"class_name"`
		Args   json.RawMessage `json:"args"`
		Config map[string]any  `json:"config"`
	}
	if err := json.Unmarshal(kinds["layers"], &rows); err != nil {
		t.Fatal(err)
	}
	for _, r := range rows {
		l, err := layers.UnmarshalConfig([]byte(`{"class_name":"` + r.Class + `","config":` + string(r.Args) + `}`))
		if err != nil {
			t.Errorf("%s: %v", r.Class, err)
			continue
		}
		o, err := layerObject(l)
		if err != nil {
			t.Fatal(err)
		}
		got, want := plainConfig(t, o), r.Config
		for name := range got {
			if _, ok := want[name]; !ok && name != "trainable" && !unsaid[r.Class+" "+name] {
				t.Errorf("%s: field %q is %v, Keras has no such argument", r.Class, name, got[name])
			}
		}
		for name, w := range want {
			if name == "name" || name == "dtype" || name == "trainable" || name == "vocabulary_size" {
				continue
			}
			g, ok := got[name]
			if !ok {
				if v, known := fixed[name]; !known || !reflect.DeepEqual(v, w) {
					t.Errorf("%s: no field for Keras's argument %q, %v", r.Class, name, w)
				}
				continue
			}
			if unsaid[r.Class+" "+name] {
				continue
			}
			if g, w := canonical(t, g), canonical(t, w); !reflect.DeepEqual(g, w) && !sameNumbers(g, w) {
				t.Errorf("%s: field %q: got %v, want %v", r.Class, name, g, w)
			}
		}
	}
}

// sameNumbers reports whether one number, or a list of one, stands for a list
// as it does here: for that number along each axis, or on each side of an axis,
// or for the range that ends with it.
func sameNumbers(got, want any) bool {
	var all []float64
	numbersIn(want, &all)
	if list, ok := got.([]any); ok && len(list) == 1 {
		got = list[0]
	}
	f, ok := got.(float64)
	if !ok || len(all) == 0 {
		return false
	}
	for i, w := range all {
		if w != f && (len(all) != 2 || i != 0 || w != -f && w != 0 && w != 1) {
			return false
		}
	}
	return true
}

func numbersIn(v any, into *[]float64) {
	switch v := v.(type) {
	case float64:
		*into = append(*into, v)
	case []any:
		for _, x := range v {
			numbersIn(x, into)
		}
	}
}

// arguments are what some names stand for.
var arguments = map[string]string{"uniform": "random_uniform(maxval=0.05, minval=-0.05)", "orthogonal": "orthogonal(gain=1.0)"}

// canonical brings a value of a config into one form: objects with their
// arguments and without those that are not set.
func canonical(t *testing.T, v any) any {
	switch v := v.(type) {
	case string:
		if long, ok := arguments[v]; ok {
			return long
		}
		return v
	case []any:
		out := make([]any, len(v))
		for i, x := range v {
			out[i] = canonical(t, x)
		}
		return out
	case map[string]any:
		if v["class_name"] == nil {
			return v
		}
		o, err := decode(v)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(o.Module, "keras.layers") {
			return o.Class
		}
		s, err := callspec.Parse(specOf(o))
		if err != nil {
			t.Fatal(err)
		}
		return s.String()
	}
	return v
}
