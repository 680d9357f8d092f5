package saving

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/mezzo-ml/mezzo/layers"
)

// TestEveryClass turns the config of each class into Keras's form and back.
func TestEveryClass(t *testing.T) {
	for _, class := range layers.Classes() {
		config := `{"name":"x","dtype":"mixed_float16"}`
		if class == "SpectralNormalization" {
			config = `{"name":"x","layer":{"class_name":"Dense","config":{"units":2,"kernel_constraint":"max_norm(max_value=2)","bias_initializer":"constant(value=0.5)"}}}`
		}
		if strings.HasPrefix(class, "Hash") || class == "Pipeline" { // a Pipeline has no dtype in Keras
			config = `{"name":"x"}` // dtype is that of the result in Keras
		}
		l, err := layers.UnmarshalConfig([]byte(`{"class_name":"` + class + `","config":` + config + `}`))
		if err != nil {
			t.Fatal(err)
		}
		want, err := layers.MarshalConfig(l)
		if err != nil {
			t.Fatal(err)
		}
		o, err := layerObject(l)
		if err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		if o, err = parseObject(text); err != nil {
			t.Fatal(err)
		}
		again, err := fromKeras(o, func(name string) string { return name })
		if err != nil {
			t.Fatalf("%s: %v\n%s", class, err, text)
		}
		if got, err := layers.MarshalConfig(again); err != nil || string(got) != string(want) {
			t.Errorf("%s: got %s, want %s, error %v", class, got, want, err)
		}
	}
}

// TestKerasForm compares objects in a config with what Keras 3 writes.
func TestKerasForm(t *testing.T) {
	l := &layers.Dense{Units: 2, KernelInitializer: "random_normal(stddev=0.5)", KernelRegularizer: "l2(0.01)",
		KernelConstraint: "max_norm(2, axis=0)", DType: "mixed_float16"}
	o, err := layerObject(l)
	if err != nil {
		t.Fatal(err)
	}
	got, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`"module":"keras.layers","class_name":"Dense"`,
		`"dtype":{"module":"keras","class_name":"DTypePolicy","config":{"name":"mixed_float16"},"registered_name":null}`,
		`"kernel_initializer":{"module":"keras.initializers","class_name":"RandomNormal","config":{"stddev":0.5},"registered_name":null}`,
		`"kernel_regularizer":{"module":"keras.regularizers","class_name":"L2","config":{"l2":0.01},"registered_name":null}`,
		`"kernel_constraint":{"module":"keras.constraints","class_name":"MaxNorm","config":{"axis":0,"max_value":2},"registered_name":null}`,
		`"bias_regularizer":null`,
	} {
		if !strings.Contains(string(got), want) {
			t.Errorf("got %s, want it to have %s", got, want)
		}
	}
}

// TestFloat8Policy: the policy of 8-bit floats is written and read as Keras 3
// does.
func TestFloat8Policy(t *testing.T) {
	for _, c := range []struct{ name, source, read string }{
		{"mixed_float8", "mixed_bfloat16", "float8_from_mixed_bfloat16"},
		{"float8_from_float32", "float32", "float8_from_float32"},
	} {
		o, err := layerObject(&layers.Dense{Units: 2, DType: c.name})
		if err != nil {
			t.Fatal(err)
		}
		got, err := json.Marshal(o)
		want := `"dtype":{"module":"keras.dtype_policies","class_name":"QuantizedFloat8DTypePolicy","config":{"amax_history_length":1024,"mode":"float8","source_name":"` + c.source + `"},"registered_name":null}`
		if err != nil || !strings.Contains(string(got), want) {
			t.Errorf("got %s, error %v, want it to have %s", got, err, want)
		}
		if o, err = parseObject(got); err != nil {
			t.Fatal(err)
		}
		read, err := fromKeras(o, func(name string) string { return name })
		if err != nil {
			t.Fatal(err)
		}
		if d := read.Config().DType; d != c.read {
			t.Errorf("got policy %q, want %q", d, c.read)
		}
	}
	// Keras has no such policy: it keeps its name, with which Mezzo reads it.
	const adaptive = "mixed_float8_adaptive"
	o := policyObject(adaptive)
	if read, err := policyOf(map[string]any{"class_name": o.Class, "config": o.Config}); read != adaptive || err != nil {
		t.Errorf("got policy %q, %v, want %q", read, err, adaptive)
	}
	_, err := policyOf(map[string]any{"class_name": "QuantizedFloat8DTypePolicy",
		"config": map[string]any{"source_name": "float32", "amax_history_length": json.Number("16")}})
	if want := "amax_history_length is 16, want 1024"; err == nil || err.Error() != want {
		t.Errorf("got error %v, want %s", err, want)
	}
}

// TestPositional reads what every name with positional arguments becomes.
func TestPositional(t *testing.T) {
	for name, want := range map[string]string{
		"l2(0.02)": "l2(l2=0.02)", "l1l2(0.1, 0.2)": "l1l2(l1=0.1, l2=0.2)", "uniform(-1, 1)": "random_uniform(maxval=1, minval=-1)",
		"min_max_norm(0.5, 2)": "min_max_norm(max_value=2, min_value=0.5)", "he_normal(3)": "he_normal(seed=3)", "ones": "ones",
	} {
		v, err := namedObject("keras.x", name)
		if err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		got := strings.Trim(string(text), `"`)
		if o, err := parseObject(text); err == nil {
			got = specOf(o)
		}
		if got != want {
			t.Errorf("%s: got %s, want %s", name, got, want)
		}
	}
	if _, err := namedObject("keras.x", "ones(1)"); err == nil {
		t.Error("ones(1): no error")
	}
}

// TestGroupedQueryAttention: Keras exports the class as GroupQueryAttention and
// calls it so in files; its type, and so a custom registration, has a d more.
func TestGroupedQueryAttention(t *testing.T) {
	for _, class := range []string{"GroupQueryAttention", "GroupedQueryAttention"} {
		o := &object{Module: "keras.layers", Class: class, Config: map[string]any{"head_dim": json.Number("2"), "num_query_heads": json.Number("4"), "num_key_value_heads": json.Number("2")}}
		l, err := fromKeras(o, func(name string) string { return name })
		if err != nil {
			t.Fatal(err)
		}
		back, err := layerObject(l)
		if err != nil || back.Class != "GroupQueryAttention" {
			t.Errorf("%s: got class %v, %v, want GroupQueryAttention", class, back.Class, err)
		}
	}
}
