package saving_test

import (
	"archive/zip"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/saving"
	"github.com/mezzo-ml/mezzo/layers"
)

// nestedCase is what Keras computes with a model; see testdata/nested.py.
type nestedCase struct {
	path    string // of the file
	Shapes  [][]int
	Inputs  [][]float32
	Outputs [][]float32
}

// nestedCases unpacks testdata/nested.zip.
func nestedCases(t *testing.T) map[string]nestedCase {
	t.Helper()
	z, err := zip.OpenReader("testdata/nested.zip")
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	out := map[string]nestedCase{}
	for _, f := range z.File {
		name, ok := strings.CutSuffix(f.Name, ".keras")
		if !ok {
			continue
		}
		c := nestedCase{path: filepath.Join(t.TempDir(), f.Name)}
		if err := json.Unmarshal(memberOf(t, &z.Reader, name+".json"), &c); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(c.path, memberOf(t, &z.Reader, f.Name), 0o600); err != nil {
			t.Fatal(err)
		}
		out[name] = c
	}
	return out
}

func memberOf(t testing.TB, z *zip.Reader, name string) []byte {
	t.Helper()
	f, err := z.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(f)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// check compares outputs with Keras's: each rounds in some ten layers, one
// after the other, whose sums have at most 18 products.
func (c nestedCase) check(t *testing.T, m *keras.Model) {
	t.Helper()
	var in []*keras.Tensor
	for i, x := range c.Inputs {
		in = append(in, keras.NewTensor(x, c.Shapes[i]...))
	}
	x := in[0]
	if len(in) > 1 {
		x = keras.Tuple(in...)
	}
	got := m.Call(x).Unpack()
	if len(got) != len(c.Outputs) {
		t.Fatalf("got %d outputs, want %d", len(got), len(c.Outputs))
	}
	rel, abs := keras.Float32.Tolerance()
	for i, want := range c.Outputs {
		y, err := got[i].Values()
		if err != nil || len(y) != len(want) {
			t.Fatalf("output %d: got %d numbers, want %d, error %v", i, len(y), len(want), err)
		}
		for k := range y {
			diff := float64(y[k]) - float64(want[k])
			if !(max(diff, -diff) <= 32*(abs+rel*float64(max(want[k], -want[k], 1)))) {
				t.Errorf("output %d, element %d: got %v, want %v", i, k, y[k], want[k])
			}
		}
	}
}

// configOf is config.json of a file.
func configOf(t *testing.T, path string) (config map[string]any) {
	t.Helper()
	z, err := zip.OpenReader(path)
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	if err := json.Unmarshal(memberOf(t, &z.Reader, "config.json"), &config); err != nil {
		t.Fatal(err)
	}
	return config
}

// wiring says how a model computes its outputs, and those of the models within
// it, reading config.json as Keras 3.15's functional_from_config does: by
// indices from 0 in inbound_nodes and, for functional models, from 1 in
// output_layers. Tensors are numbers from known, in which two models have the
// same number for what they compute in the same way.
func wiring(t *testing.T, model map[string]any, known map[string]int) string {
	t.Helper()
	config := model["config"].(map[string]any)
	var within []string
	at := map[string]int{} // layer, call and part → number
	number := func(v any) (int, bool) {
		n, ok := at[fmt.Sprint(v)]
		return n, ok
	}
	intern := func(s string) int {
		if _, ok := known[s]; !ok {
			known[s] = len(known)
		}
		return known[s]
	}
	all := config["layers"].([]any)
	var names []string
	for _, l := range all {
		l := l.(map[string]any)
		if _, ok := l["config"].(map[string]any)["layers"]; ok {
			within = append(within, wiring(t, l, known))
		}
		if l["class_name"] != "InputLayer" {
			names = append(names, l["config"].(map[string]any)["name"].(string))
		}
	}
	slices.Sort(within)
	if model["class_name"] == "Sequential" {
		return fmt.Sprint("Sequential", names, within)
	}
	ends := func(name string) (out [][]any) {
		v := config[name].([]any)
		if _, alone := v[0].(string); alone {
			v = []any{v}
		}
		for _, x := range v {
			x := slices.Clone(x.([]any))
			for _, l := range all {
				if l := l.(map[string]any); l["name"] == x[0] && l["class_name"] == "Functional" {
					x[1] = x[1].(float64) - 1
				}
			}
			out = append(out, x)
		}
		return out
	}
	for i, x := range ends("input_layers") {
		at[fmt.Sprint(x)] = intern(fmt.Sprint("input ", i))
	}
	for again := true; again; {
		again = false
		for _, l := range all {
			l := l.(map[string]any)
			for node, n := range l["inbound_nodes"].([]any) {
				if _, done := number([]any{l["name"], float64(node), 0.}); done {
					continue
				}
				var in []int
				ready := true
				var read func(v any)
				read = func(v any) {
					switch v := v.(type) {
					case []any:
						for _, x := range v {
							read(x)
						}
					case map[string]any:
						k, ok := number(v["config"].(map[string]any)["keras_history"])
						in, ready = append(in, k), ready && ok
					}
				}
				read(n.(map[string]any)["args"])
				if !ready {
					continue
				}
				again = true
				for part := range 4 { // no model of these has more outputs
					at[fmt.Sprint([]any{l["name"], float64(node), float64(part)})] = intern(fmt.Sprint(l["name"], in, part))
				}
			}
		}
	}
	var out []int
	for _, x := range ends("output_layers") {
		n, ok := number(x)
		if !ok {
			t.Fatalf("model %v: output %v is not connected", config["name"], x)
		}
		out = append(out, n)
	}
	return fmt.Sprint("Functional", out, within)
}

// TestGoldenNested loads models within models that Keras has saved, and what
// Save makes of them, in which Keras finds the same calls.
func TestGoldenNested(t *testing.T) {
	for name, c := range nestedCases(t) {
		t.Run(name, func(t *testing.T) {
			m, err := saving.Load(c.path)
			if err != nil {
				t.Fatal(err)
			}
			c.check(t, m)
			again := filepath.Join(t.TempDir(), "again.keras")
			if err := saving.Save(again, m); err != nil {
				t.Fatal(err)
			}
			known := map[string]int{}
			if got, want := wiring(t, configOf(t, again), known), wiring(t, configOf(t, c.path), known); got != want {
				t.Errorf("Keras would read the wiring %s, want %s", got, want)
			}
			if m, err = saving.Load(again); err != nil {
				t.Fatal(err)
			}
			c.check(t, m)
		})
	}
}

// countedFromOne makes of a file that Save wrote one as it wrote them before it
// counted calls of nested models as Keras does: from 1 everywhere, and without
// their build_config.
func countedFromOne(t *testing.T, path string) {
	t.Helper()
	z, err := zip.OpenReader(path)
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	var change func(model map[string]any)
	change = func(model map[string]any) {
		config := model["config"].(map[string]any)
		if model["class_name"] == "Functional" {
			delete(model, "build_config")
		}
		nested := map[any]bool{}
		for _, l := range config["layers"].([]any) {
			l := l.(map[string]any)
			if _, ok := l["config"].(map[string]any)["layers"]; ok {
				change(l)
			}
			nested[l["name"]] = l["class_name"] == "Functional"
		}
		var count func(v any)
		count = func(v any) {
			switch v := v.(type) {
			case []any:
				for _, x := range v {
					count(x)
				}
			case map[string]any:
				if h, ok := v["keras_history"].([]any); ok && nested[h[0]] {
					h[1] = h[1].(float64) + 1
				}
				for _, x := range v {
					count(x)
				}
			}
		}
		for _, l := range config["layers"].([]any) {
			if nodes := l.(map[string]any)["inbound_nodes"]; nodes != nil {
				count(nodes)
			}
		}
	}
	config := configOf(t, path)
	change(config)
	text, err := json.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	b := archive(t, member{"config.json", text, zip.Store}, member{"model.weights.h5", memberOf(t, &z.Reader, "model.weights.h5"), zip.Store})
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestCountedFromOne: files with the other way of counting load, or are errors;
// no calls are exchanged.
func TestCountedFromOne(t *testing.T) {
	loaded := 0
	for name, c := range nestedCases(t) {
		m, err := saving.Load(c.path)
		if err != nil {
			t.Fatal(err)
		}
		if err := saving.Save(c.path, m); err != nil {
			t.Fatal(err)
		}
		countedFromOne(t, c.path)
		if m, err = saving.Load(c.path); err != nil {
			if !strings.Contains(err.Error(), "may be counted from 0 or from 1") {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		c.check(t, m)
		loaded++
	}
	if loaded < 15 {
		t.Errorf("%d files were loaded, want most", loaded)
	}

	x, y := keras.Input(2), keras.Input(2)
	f, err := keras.NewModel(x, keras.Apply(&layers.Dense{Units: 2}, x))
	if err != nil {
		t.Fatal(err)
	}
	a, b := keras.Input(2), y
	fa, fb := keras.Apply(f.Layer(), a), keras.Apply(f.Layer(), b)
	m, err := keras.NewModel(keras.Tuple(a, b), keras.Tuple(fa, fb, keras.Apply(&layers.Dense{Units: 1}, fa)))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "m.keras")
	if err := saving.Save(path, m); err != nil {
		t.Fatal(err)
	}
	if _, err := saving.Load(path); err != nil {
		t.Fatal(err)
	}
	countedFromOne(t, path)
	if _, err := saving.Load(path); err == nil || !strings.Contains(err.Error(), "layer functional: it has no build_config, so its calls may be counted from 0 or from 1") {
		t.Errorf("got error %v, want one about the calls of the functional model", err)
	}
}

// TestSequentialTwice: a Sequential that has a layer twice is another model
// than one that has it once.
func TestSequentialTwice(t *testing.T) {
	d := &layers.Dense{Units: 2, Activation: "tanh"}
	m := keras.Sequential(d, d, &layers.Dense{Units: 1})
	if err := m.Build(2); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "m.keras")
	if err := saving.Save(path, m); err != nil {
		t.Fatal(err)
	}
	read, err := saving.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	x := keras.NewTensor([]float32{1, 2}, 1, 2)
	if got, want := outputs(t, read, x), outputs(t, m, x); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// TestSharedLayer: what no .keras file can say is an error of Save, and not one
// of Load when the training is over.
func TestSharedLayer(t *testing.T) {
	d := &layers.Dense{Units: 2, Name: "both"}
	x, y := keras.Input(2), keras.Input(2)
	f, err := keras.NewModel(x, keras.Apply(d, x))
	if err != nil {
		t.Fatal(err)
	}
	m, err := keras.NewModel(y, keras.Apply(&layers.Add{}, keras.Apply(f.Layer(), y), keras.Apply(d, y)))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "m.keras")
	if err := saving.Save(path, m); err == nil || !strings.Contains(err.Error(), "layer both: two models have it") {
		t.Errorf("got error %v, want one about the layer", err)
	}
	weights := filepath.Join(t.TempDir(), "m.weights.h5")
	if err := saving.SaveWeights(weights, m); err != nil {
		t.Fatal(err)
	}
	if err := saving.LoadWeights(weights, m); err != nil {
		t.Fatal(err)
	}
}
