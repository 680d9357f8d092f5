package saving_test

import (
	"archive/zip"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/saving"
	"github.com/mezzo-ml/mezzo/layers"
)

// TestOperationErrors: operations of keras.ops that cannot be computed, or whose
// arguments make no sense, have errors that name the layer and what is wrong.
// TestGraphs has those that can be.
func TestOperationErrors(t *testing.T) {
	in := keras.Input(3)
	h := keras.Apply(&layers.Dense{Units: 3, Name: "dense"}, in)
	m, err := keras.NewModel(in, keras.Apply(&layers.Subtract{Name: "o"}, h, in))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "m.keras")
	if err := saving.Save(path, m); err != nil {
		t.Fatal(err)
	}
	z, err := zip.OpenReader(path)
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	weights, err := fs.ReadFile(z, "model.weights.h5")
	if err != nil {
		t.Fatal(err)
	}
	text, err := saving.ToJSON(m)
	if err != nil {
		t.Fatal(err)
	}
	const x = `{"class_name": "__keras_tensor__", "config": {"shape": [null, 3], "dtype": "float32", "keras_history": ["dense", 0, 0]}}`
	for _, c := range []struct{ class, config, args, kwargs, want string }{
		{"Subtract", `{}`, `[1, X]`, `{}`, ""},
		{"Subtract", `{}`, `[X, X]`, `{}`, ""},
		{"Fft", `{}`, `[X]`, `{}`, `layer o: operation "Fft" of keras.ops is not supported`},
		{"Lambda", `{}`, `[X]`, `{}`, `operation "Lambda" of keras.ops is not supported`},
		{"Subtract", `{}`, `[1, 2]`, `{}`, `the call has no tensors of the model`},
		{"Subtract", `{}`, `[X, X, X]`, `{}`, `got 3 arguments, want at most ["x1" "x2"]`},
		{"Subtract", `{}`, `[X]`, `{}`, `got <nil>, want a tensor or a number`},
		{"Subtract", `{}`, `[X, "1"]`, `{}`, `got 1, want a tensor or a number`},
		{"Subtract", `{}`, `[X, [1, [2]]]`, `{}`, `want a number`},
		{"Subtract", `{}`, `[X, [1, 2]]`, `{}`, `do not broadcast`},
		{"Subtract", `{"axis": X}`, `[X, 1]`, `{}`, `got a tensor where none can be`},
		{"Relu", `{}`, `[X]`, `{"slope": 2}`, `argument "slope" is not supported, want one of ["x"]`},
		{"Relu", `{}`, `[{"class_name": "Dense", "config": {}}]`, `{}`, `got an argument of class Dense`},
		{"Mean", `{"axis": 2}`, `[X]`, `{}`, `axis 2`},
		{"Mean", `{"axis": [0.5]}`, `[X]`, `{}`, `got 0.5, want an integer`},
		{"Reshape", `{"newshape": [-1, -1]}`, `[X]`, `{}`, `want sizes, and -1 at most once`},
		{"Reshape", `{"newshape": [4611686018427387904, 8]}`, `[X]`, `{}`, `want an integer`},
		{"GetItem", `{}`, `[X, [0, 0, 0]]`, `{}`, `got 3 indices, want at most 2`},
		{"GetItem", `{}`, `[X, [0, 7]]`, `{}`, `index 7 is outside axis`},
		{"GetItem", `{}`, `[X, [{"class_name": "__ellipsis__"}, {"class_name": "__slice__", "config": {"step": -1}}]]`, `{}`, `a slice has the step -1, want a positive one`},
		{"Split", `{"indices_or_sections": 1000000000, "axis": 1}`, `[X]`, `{}`, `cannot be cut into 1000000000 equal parts`},
		{"Split", `{"indices_or_sections": [2, 1], "axis": 1}`, `[X]`, `{}`, `want increasing indices`},
		{"Unstack", `{"axis": 1, "num": 2}`, `[X]`, `{}`, `cannot be taken apart into 2 tensors`},
		{"Einsum", `{"subscripts": "ab->ba"}`, `[X]`, `{}`, `got 1 operands, want 2`},
		{"Average", `{"axis": 1}`, `[X]`, `{"weights": X}`, `weights are given, want none`},
		{"Pad", `{"pad_width": [[1, 1]], "mode": "reflect"}`, `[X]`, `{}`, `mode is "reflect", want constant`},
		{"Cast", `{"dtype": "complex64"}`, `[X]`, `{}`, `dtype`},
		{"Add", `{}`, `[X, {"class_name": "__numpy__", "config": {"dtype": "float32", "value": [[1, 2], [3]]}}]`, `{}`, `lists of unequal lengths`},
		{"Tile", `{"repeats": [1, 0]}`, `[X]`, `{}`, `want positive numbers`},
	} {
		var model map[string]any
		if err := json.Unmarshal(text, &model); err != nil {
			t.Fatal(err)
		}
		list := model["config"].(map[string]any)["layers"].([]any)
		node := strings.ReplaceAll(`{"module": "keras.src.ops.numpy", "name": "o", "class_name": "`+c.class+`", "config": `+c.config+`, "inbound_nodes": [{"args": `+c.args+`, "kwargs": `+c.kwargs+`}]}`, "X", x)
		if err := json.Unmarshal([]byte(node), &list[2]); err != nil {
			t.Fatalf("%s: %v", node, err)
		}
		changed, err := json.Marshal(model)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, archive(t, member{"config.json", changed, zip.Store}, member{"model.weights.h5", weights, zip.Store}), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err = saving.Load(path)
		if (err == nil) != (c.want == "") || err != nil && (!strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "layer o: ")) {
			t.Errorf("%s %s: got error %v, want %q", c.class, c.args, err, c.want)
		}
	}
}
