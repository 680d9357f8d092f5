package saving_test

import (
	"archive/zip"
	"context"
	"encoding/json"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/tensor/tensortest"
	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/saving"
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/layers/preprocessing"
	"github.com/mezzo-ml/mezzo/losses"
	"github.com/mezzo-ml/mezzo/optimizers"
	"github.com/mezzo-ml/mezzo/policy"
)

// spaceFiles writes the files of Keras to a directory and returns their paths by
// the names of cases.
func spaceFiles(t testing.TB) map[string]string {
	t.Helper()
	z, err := zip.OpenReader("testdata/featurespace.zip")
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	dir, all := t.TempDir(), map[string]string{}
	for _, f := range z.File {
		r, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, f.Name)
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		all[strings.TrimSuffix(f.Name, ".keras")] = path
	}
	return all
}

// tableColumn is a column of JSON, in which null is NaN, in the type of a feature.
func tableColumn(t *testing.T, raw json.RawMessage, kind string) any {
	t.Helper()
	one := raw[0] != '['
	if one {
		raw = slices.Concat([]byte("["), raw, []byte("]"))
	}
	fatal := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	switch kind {
	case "string":
		var all []string
		fatal(json.Unmarshal(raw, &all))
		if one {
			return all[0]
		}
		return all
	case "int64":
		var all []int64
		fatal(json.Unmarshal(raw, &all))
		if one {
			return all[0]
		}
		return all
	}
	var all []*float64
	fatal(json.Unmarshal(raw, &all))
	out := make([]float32, len(all))
	for i, v := range all {
		if out[i] = float32(math.NaN()); v != nil {
			out[i] = float32(*v)
		}
	}
	if one {
		return out[0]
	}
	return out
}

// spaceColumns are the columns of a case of featurespace.json.
func spaceColumns(t *testing.T, s *preprocessing.FeatureSpace, c *tensortest.Case) preprocessing.Columns {
	t.Helper()
	var raw map[string]json.RawMessage
	if err := json.Unmarshal(c.Config["columns"], &raw); err != nil {
		t.Fatal(err)
	}
	in := preprocessing.Columns{}
	for name := range s.Features {
		f, err := s.FeatureOf(name)
		if err != nil {
			t.Fatal(err)
		}
		in[name] = tableColumn(t, raw[name], f.DType)
	}
	return in
}

// TestFeatureSpaces reads the files of Keras, writes them, and reads those: all
// encode as Keras does.
func TestFeatureSpaces(t *testing.T) {
	files := spaceFiles(t)
	for _, c := range tensortest.Load(t, "../testdata/golden/featurespace.json").Cases {
		again := filepath.Join(t.TempDir(), "again.keras")
		for _, path := range []string{files[c.Name], again} {
			s, err := saving.LoadFeatureSpace(path)
			if err != nil {
				t.Fatalf("%s: %v", c.Name, err)
			}
			y, err := s.CallColumns(spaceColumns(t, s, &c))
			if err != nil {
				t.Fatalf("%s: %v", c.Name, err)
			}
			names, err := s.Names()
			if err != nil {
				t.Fatal(err)
			}
			if !y.IsTuple() {
				names = []string{"y"}
			}
			for i, part := range y.Unpack() {
				want := c.Outputs[names[i]]
				// Logarithms and their products in float32 there, in float64 here.
				tensortest.Close(t, c.Name+" "+names[i], part, tensortest.Array{DType: part.DType(), Shape: want.Shape, Data: want.Data}, 8)
			}
			if path != again {
				if err := saving.SaveFeatureSpace(again, s); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}

// TestModelOfFeatureSpace trains a model that begins with a FeatureSpace, saves it,
// and loads it: one file serves raw rows.
func TestModelOfFeatureSpace(t *testing.T) {
	n := 64
	ages, thals, sick := make([]float32, n), make([]string, n), make([]float32, n)
	for i := range n {
		ages[i], thals[i] = float32(30+i*37%50), []string{"normal", "fixed", "reversible"}[i%3]
		if ages[i] > 50 && thals[i] != "normal" {
			sick[i] = 1
		}
	}
	table := preprocessing.Columns{"age": ages, "thal": thals}
	s := &preprocessing.FeatureSpace{
		Features: map[string]preprocessing.Feature{"age": {Type: "float_normalized"}, "thal": {Type: "string_categorical"}},
	}
	if err := s.Adapt(table); err != nil {
		t.Fatal(err)
	}
	x, err := s.Encode(table)
	if err != nil {
		t.Fatal(err)
	}
	m := keras.Sequential(s, &layers.Dense{Units: 8, Activation: "relu"}, &layers.Dense{Units: 1, Activation: "sigmoid"})
	if err := m.Compile(keras.CompileConfig{Optimizer: &optimizers.Adam{LearningRate: 0.02}, Loss: &losses.BinaryCrossentropy{}}); err != nil {
		t.Fatal(err)
	}
	history, err := m.Fit(context.Background(), keras.FromTensors(x, keras.NewTensor(sick, n, 1), nil), keras.FitConfig{Epochs: 20, Verbose: keras.VerbositySilent})
	if err != nil {
		t.Fatal(err)
	}
	if loss := history.Get("loss"); !(loss[len(loss)-1] < loss[0]/2) {
		t.Errorf("got losses %v, want the last one below half of the first", loss)
	}
	path := filepath.Join(t.TempDir(), "model.keras")
	if err := saving.Save(path, m); err != nil {
		t.Fatal(err)
	}
	rows := preprocessing.Columns{"age": []float64{63, 35}, "thal": []string{"fixed", "unseen"}}
	predict := func(m *keras.Model) []float64 {
		t.Helper()
		x, err := m.Layers()[0].(*preprocessing.FeatureSpace).Encode(rows)
		if err != nil {
			t.Fatal(err)
		}
		y, err := m.Predict(context.Background(), x)
		if err != nil {
			t.Fatal(err)
		}
		p, err := y.Float64s()
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	want := predict(m)
	if !(want[0] > 0.5 && want[1] < 0.5) {
		t.Errorf("got predictions %v, want the first above a half and the second below", want)
	}
	loaded, err := saving.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	if got := predict(loaded); !slices.Equal(got, want) {
		t.Errorf("loaded: got %v, want %v", got, want)
	}
	// Another policy: the table is encoded in float32, and rounded once.
	p, err := policy.Parse("mixed_bfloat16")
	if err != nil {
		t.Fatal(err)
	}
	mixed, err := saving.Load(path, saving.WithPolicy(p))
	if err != nil {
		t.Fatal(err)
	}
	for i, v := range predict(mixed) {
		if !(math.Abs(v-want[i]) <= 8*keras.BFloat16.Epsilon()) {
			t.Errorf("mixed_bfloat16: got %v, want %v", v, want[i])
		}
	}
}

// TestFeatureSpaceFiles: what a file cannot be, and what no file can hold.
func TestFeatureSpaceFiles(t *testing.T) {
	dir := t.TempDir()
	file := spaceFiles(t)["concat"]
	if _, err := saving.Load(file); err == nil || !strings.Contains(err.Error(), "LoadFeatureSpace") {
		t.Errorf("Load: got error %v, want one that names LoadFeatureSpace", err)
	}
	model, _ := golden(t, "sequential")
	if _, err := saving.LoadFeatureSpace(model); err == nil || !strings.Contains(err.Error(), `got an object of class "Sequential", want FeatureSpace; Load reads models`) {
		t.Errorf("got error %v, want one of the class", err)
	}
	features := map[string]preprocessing.Feature{"a": {Type: "integer_hashed"}, "b": {Type: "integer_hashed"}, "c": {Type: "string_hashed"}}
	for want, s := range map[string]*preprocessing.FeatureSpace{
		`feature "age": the layer Normalization has learned nothing, want Adapt before the space is used`: {Features: map[string]preprocessing.Feature{"age": {Type: "float_normalized"}}},
		`cross "a_X_b_X_c" has 3 features, want 2: Keras has no other crosses`:                            {Features: features, Crosses: []preprocessing.Cross{{Features: []string{"a", "b", "c"}}}},
	} {
		if err := saving.SaveFeatureSpace(filepath.Join(dir, "a.keras"), s); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got error %v, want %s", err, want)
		}
	}
	if err := saving.SaveFeatureSpace(filepath.Join(dir, "a.h5"), &preprocessing.FeatureSpace{Features: features}); err == nil || !strings.Contains(err.Error(), "ends in .keras") {
		t.Errorf("got error %v, want one of the name", err)
	}
	// Changes to a config: none may panic, and these are errors.
	for _, change := range [][2]string{
		{`"one_hot"`, `"hot"`},
		{`"TFDIdentity"`, `"TFDUnknown"`},
		{`"feature_names": ["thal", "slope"]`, `"feature_names": ["thal", "missing"]`},
		{`"num_bins": 9`, `"num_bins": 0`},
		{`"features": {`, `"features": [{`},
		{`"class_name": "Feature"`, `"class_name": 7`},
		{`"dtype": "string"`, `"dtype": "float32"`},
	} {
		path := filepath.Join(dir, "changed.keras")
		if !rewritten(t, file, path, change[0], change[1]) {
			t.Errorf("the config has no %s", change[0])
		} else if _, err := saving.LoadFeatureSpace(path); err == nil {
			t.Errorf("%s instead of %s: got no error", change[1], change[0])
		}
	}
}

// rewritten copies a .keras file and changes its config, and reports whether the
// config has old.
func rewritten(t *testing.T, from, to, old, new string) bool {
	t.Helper()
	z, err := zip.OpenReader(from)
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	f, err := os.Create(to)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	w, found := zip.NewWriter(f), false
	for _, m := range z.File {
		r, err := m.Open()
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		if m.Name == "config.json" {
			found = strings.Contains(string(b), old)
			b = []byte(strings.ReplaceAll(string(b), old, new))
		}
		part, err := w.CreateHeader(&zip.FileHeader{Name: m.Name, Method: zip.Store})
		if err == nil {
			_, err = part.Write(b)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return found
}
