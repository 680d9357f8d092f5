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

// TestOperationsWithNumbers: what Keras 3.15.1 writes for h + 3.0 and 1.0 - h has
// an error that says so; h - x, which it writes alike, is the layer Subtract.
func TestOperationsWithNumbers(t *testing.T) {
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	in := keras.Input(3)
	h := keras.Apply(&layers.Dense{Units: 3, Name: "dense"}, in)
	m, err := keras.NewModel(in, keras.Apply(&layers.Subtract{Name: "subtract"}, h, in))
	check(err)
	path := filepath.Join(t.TempDir(), "m.keras")
	check(saving.Save(path, m))
	z, err := zip.OpenReader(path)
	check(err)
	weights, err := fs.ReadFile(z, "model.weights.h5")
	check(err)
	check(z.Close())
	config, err := saving.ToJSON(m)
	check(err)
	var model map[string]any
	check(json.Unmarshal(config, &model))
	list := model["config"].(map[string]any)["layers"].([]any)
	operation := list[2].(map[string]any)
	args := operation["inbound_nodes"].([]any)[0].(map[string]any)
	both := args["args"].([]any)
	if inner, ok := both[0].([]any); ok { // the layer's way: a list of tensors
		both = inner
	}
	dense, input := both[0], both[1]
	operation["module"] = "keras.src.ops.numpy"
	operation["config"] = map[string]any{"name": "subtract"}
	for _, c := range []struct {
		args []any
		want string
	}{
		{[]any{dense, input}, ""},
		{[]any{dense, 3.0}, "layer subtract: operation Subtract of keras.ops takes the number 3, and only operations on tensors alone can be read; in Keras use a layer, such as Rescaling"},
		{[]any{1.5, dense}, "layer subtract: operation Subtract of keras.ops takes the number 1.5, and"},
	} {
		args["args"] = c.args
		changed, err := json.Marshal(model)
		check(err)
		check(os.WriteFile(path, archive(t, member{"config.json", changed, zip.Store}, member{"model.weights.h5", weights, zip.Store}), 0o600))
		_, err = saving.Load(path)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: got error %v, want %q", c.args, err, c.want)
		}
	}
}
