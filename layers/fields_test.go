package layers_test

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/mezzo-ml/mezzo/layers"
)

// TestPerAxisJSON: numbers, lists and pairs as Keras writes them.
func TestPerAxisJSON(t *testing.T) {
	for text, want := range map[string]layers.PerAxis{
		"2": {2}, "[1,2]": {1, 2}, "[1,2,3]": {1, 2, 3}, "[[1,2],[3,4]]": {1, 2, 3, 4},
		"[[1,2],[3,4],[5,6]]": {1, 2, 3, 4, 5, 6}, "[null,3]": {-1, 3}, "null": nil,
	} {
		var got layers.PerAxis
		if err := json.Unmarshal([]byte(text), &got); err != nil {
			t.Fatal(err)
		}
		if text != "null" && !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %v, want %v", text, got, want)
		}
		back, err := json.Marshal(want)
		if err != nil || string(back) != text {
			t.Errorf("%v: got %s, %v, want %s", want, back, err, text)
		}
	}
	if _, err := layers.UnmarshalConfig([]byte(`{"class_name":"ZeroPadding2D","config":{"padding":[1.5,2]}}`)); err == nil ||
		err.Error() != `layers: ZeroPadding2D: field "padding": got [1.5,2], want integers` {
		t.Errorf("got error %v, want one of the field", err)
	}
}

// TestNestedConfig: a layer in a field is written as a layer, and errors in it
// name both.
func TestNestedConfig(t *testing.T) {
	data, err := layers.MarshalConfig(&layers.SpectralNormalization{Layer: &layers.Identity{}})
	want := `{"class_name":"SpectralNormalization","config":{"dtype":null,"layer":{"class_name":"Identity","config":{"dtype":null,"name":null,"trainable":true}},"name":null,"power_iterations":1,"trainable":true}}`
	if err != nil || string(data) != want {
		t.Errorf("got %s, %v\nwant %s", data, err, want)
	}
	_, err = layers.UnmarshalConfig([]byte(`{"class_name":"SpectralNormalization","config":{"layer":{"class_name":"Identity","config":{"x":1}}}}`))
	if want := `layers: SpectralNormalization: field "layer": layers: Identity: unknown field "x"; have dtype, name, trainable`; err == nil || err.Error() != want {
		t.Errorf("got error %v, want %s", err, want)
	}
}

func TestDefaults(t *testing.T) {
	type own struct {
		Gain  string   `default:"ones"`
		Rate  *float64 `default:"0.5"`
		Sizes []int    `default:"2"`
		Plain int
	}
	got := layers.Defaults(own{Gain: "zeros"})
	if got.Gain != "zeros" || *got.Rate != 0.5 || !reflect.DeepEqual(got.Sizes, []int{2}) || got.Plain != 0 {
		t.Errorf("got %+v, want the field that is set and the defaults of the others", got)
	}
}
