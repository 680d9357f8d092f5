package saving_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/saving"
	"github.com/mezzo-ml/mezzo/layers"
)

// TestActivationArguments: those that a layer of Keras has are written as this
// layer, Keras's defaults are left out, and others are operations of keras.ops; all
// compute the same when they are read back.
func TestActivationArguments(t *testing.T) {
	model := func(activation, dtype string) *keras.Model {
		t.Helper()
		m := keras.Sequential(&layers.Dense{Units: 2, Activation: activation, Name: "first", DType: dtype}, &layers.Activation{Activation: activation})
		if err := m.Build(3); err != nil {
			t.Fatal(err)
		}
		return m
	}
	x := keras.NewTensor([]float32{1, -2, 3, -4, 5, -6}, 2, 3)
	for text, want := range map[string]string{
		"leaky_relu(negative_slope=0.4)": `"class_name":"LeakyReLU","config":{"dtype":POLICY,"negative_slope":0.4}`,
		"leaky_relu(0.4)":                `"class_name":"LeakyReLU","config":{"dtype":POLICY,"negative_slope":0.4}`,
		"relu(0.25, max_value=6)":        `"class_name":"ReLU","config":{"dtype":POLICY,"max_value":6,"negative_slope":0.25}`,
		"elu(alpha=2)":                   `"class_name":"ELU","config":{"alpha":2,"dtype":POLICY}`,
		"softmax(axis=1)":                `"class_name":"Softmax","config":{"axis":1,"dtype":POLICY}`,
		"Tanh":                           `"activation":"tanh"`,
		"gelu(approximate=false)":        `"activation":"gelu"`,
		"celu(1)":                        `"activation":"celu"`,
		"soft_shrink(threshold=0.5)":     `"activation":"soft_shrink"`,
		"gelu(approximate=true)":         `"activation":{"module":"keras.src.ops.nn","class_name":"Gelu","config":{"approximate":true},"registered_name":"Gelu"}`,
		"celu(alpha=2)":                  `"activation":{"module":"keras.src.ops.nn","class_name":"Celu","config":{"alpha":2},"registered_name":"Celu"}`,
		"soft_shrink(0.25)":              `"activation":{"module":"keras.src.ops.nn","class_name":"SoftShrink","config":{"threshold":0.25},"registered_name":"SoftShrink"}`,
		"threshold(1, 2)":                `"activation":{"module":"keras.src.ops.nn","class_name":"Threshold","config":{"default_value":2,"threshold":1},"registered_name":"Threshold"}`,
		"leaky_relu(negative_slope=-1)":  `"activation":{"module":"keras.src.ops.nn","class_name":"LeakyRelu","config":{"negative_slope":-1},"registered_name":"LeakyRelu"}`,
	} {
		const policy = "mixed_bfloat16"
		want = strings.ReplaceAll(want, "POLICY", `{"module":"keras","class_name":"DTypePolicy","config":{"name":"`+policy+`"},"registered_name":null}`)
		m := model(text, policy)
		config, err := saving.ToJSON(m)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if !strings.Contains(string(config), want) {
			t.Errorf("%s: got %s, want %s in it", text, config, want)
		}
		path := filepath.Join(t.TempDir(), "m.keras")
		if err := saving.Save(path, m); err != nil {
			t.Fatal(err)
		}
		again, err := saving.Load(path)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if got, want := outputs(t, again, x), outputs(t, m, x); !slices.Equal(got, want) {
			t.Errorf("%s: got %v, want %v", text, got, want)
		}
	}
}

// TestActivationLayers loads activations that are layers, and refuses those
// that would compute something else here.
func TestActivationLayers(t *testing.T) {
	config, weights := saved(t)
	for object, want := range map[string]string{
		`{"module":"keras.layers","class_name":"LeakyReLU","config":{"name":"leaky_re_lu","trainable":true,"dtype":"float32","negative_slope":0.5},"registered_name":null}`: ``,
		`{"module":"keras.layers","class_name":"ReLU","config":{"max_value":null,"negative_slope":0.5}}`:                                                                    ``,
		`{"module":"keras.layers","class_name":"Activation","config":{"name":"a","trainable":true,"activation":"relu(negative_slope=0.5)"}}`:                                ``,
		`{"module":"keras.layers","class_name":"ReLU","config":{"max_value":-1}}`:                                                                                           `max_value`,
		`{"module":"keras.layers","class_name":"PReLU","config":{}}`:                                                                                                        `field "activation": got a layer PReLU, want the name of an activation, one of the layers ["ELU" "LeakyReLU" "ReLU" "Softmax"], an Activation of a name or an Identity`,
		`{"module":"keras.layers","class_name":"ReLU","config":{"dtype":"float16"}}`:                                                                                        `got a layer ReLU of policy float16 in one of float32, want one policy`,
	} {
		if !json.Valid([]byte(object)) {
			t.Fatal(object)
		}
		path := filepath.Join(t.TempDir(), "m.keras")
		changed := []byte(strings.Replace(string(config), `"activation":"linear"`, `"activation":`+object, 1))
		if err := os.WriteFile(path, archive(t, member{"config.json", changed, 0}, member{"model.weights.h5", weights, 0}), 0o600); err != nil {
			t.Fatal(err)
		}
		m, err := saving.Load(path)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got error %v, want one with %q", object, err, want)
		}
		if err == nil {
			if a := m.Layers()[0].(*layers.Dense).Activation; !strings.Contains(a, "relu(negative_slope=0.5)") {
				t.Errorf("%s: got %s", object, a)
			}
		}
	}
}

// TestNoiseShape: a size that is the input's is null in Keras.
func TestNoiseShape(t *testing.T) {
	m := keras.Sequential(&layers.Dropout{Rate: 0.5, NoiseShape: []int{-1, 1, 4}})
	if err := m.Build(3, 4); err != nil {
		t.Fatal(err)
	}
	text, err := saving.ToJSON(m)
	if err != nil || !strings.Contains(string(text), `"noise_shape":[null,1,4]`) {
		t.Errorf("got %s, want noise_shape [null,1,4], error %v", text, err)
	}
	path := filepath.Join(t.TempDir(), "m.keras")
	if err := saving.Save(path, m); err != nil {
		t.Fatal(err)
	}
	again, err := saving.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	if got := again.Layers()[0].(*layers.Dropout).NoiseShape; !slices.Equal(got, []int{-1, 1, 4}) {
		t.Errorf("got %v, want [-1 1 4]", got)
	}
}
