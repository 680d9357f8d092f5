package saving

import (
	"encoding/json"
	"os"
	"reflect"
	"testing"
)

// absent are arguments of Keras's preprocessing layers that are not written:
// their defaults are the only values.
var absent = map[string]bool{
	"sparse": true, "ragged": true, "vocabulary_size": true, "oov_method": true, "data_format": true, "trainable": true, "dtype": true,
}

// TestPreprocessingForm reads preprocessing layers as Keras wrote them, writes
// them, and compares what both wrote.
func TestPreprocessingForm(t *testing.T) {
	data, err := os.ReadFile("testdata/preprocessing.json")
	if err != nil {
		t.Fatal(err)
	}
	var all []json.RawMessage
	if err := json.Unmarshal(data, &all); err != nil {
		t.Fatal(err)
	}
	for _, raw := range all {
		o, err := parseObject(raw)
		if err != nil {
			t.Fatal(err)
		}
		l, err := fromKeras(o, func(name string) string { return name })
		if err != nil {
			t.Errorf("%s: %v", raw, err)
			continue
		}
		back, err := layerObject(l)
		if err != nil {
			t.Fatal(err)
		}
		got, want := plainConfig(t, back), plainConfig(t, o)
		for name, w := range want {
			g, ok := got[name]
			if ok && !reflect.DeepEqual(g, w) && name != "dtype" && name != "oov_method" || !ok && !absent[name] && w != nil {
				t.Errorf("%s: field %q: got %v, want %v", o.Class, name, g, w)
			}
		}
		for name, g := range got {
			if _, ok := want[name]; !ok && !absent[name] && g != nil {
				t.Errorf("%s: field %q: got %v, Keras has no such argument", o.Class, name, g)
			}
		}
	}
}

// plainConfig is the config with numbers as float64.
func plainConfig(t *testing.T, o *object) (m map[string]any) {
	t.Helper()
	raw, err := json.Marshal(o.Config)
	if err == nil {
		err = json.Unmarshal(raw, &m)
	}
	if err != nil {
		t.Fatal(err)
	}
	return m
}
