package saving_test

import (
	"archive/zip"
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/internal/hdf5"
	"github.com/mezzo-ml/mezzo/keras/saving"
)

var keras2 = flag.String("keras2", "", "a directory in which TestKeras2 leaves its models for testdata/graphs.py check")

// TestKeras2 loads the .h5 files of whole models that Keras 2 has written, and what Save
// makes of them.
func TestKeras2(t *testing.T) {
	refused := map[string]string{
		"refused_lambda":          "class Lambda is not registered",
		"refused_operation":       "class TFOpLambda is not registered",
		"refused_hard_sigmoid":    "activation is hard_sigmoid, which is 0.2·x+0.5 in Keras 2",
		"refused_mask_and_states": "layer gru: it has initial states and a sequence with a mask",
	}
	z, err := zip.OpenReader("testdata/keras2.zip")
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	for _, f := range z.File {
		name, ok := strings.CutSuffix(f.Name, ".h5")
		if !ok {
			continue
		}
		t.Run(name, func(t *testing.T) {
			dir := *keras2
			if dir == "" {
				dir = t.TempDir()
			}
			path, again := filepath.Join(t.TempDir(), f.Name), filepath.Join(dir, name+".saved.keras")
			if err := os.WriteFile(path, memberOf(t, &z.Reader, f.Name), 0o600); err != nil {
				t.Fatal(err)
			}
			m, err := saving.Load(path)
			if err != nil && strings.Contains(err.Error(), path+": "+path) {
				t.Errorf("the error names the file twice: %v", err)
			}
			if want := refused[name]; want != "" {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("got error %v, want one with %s", err, want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			limit := 2e-6
			if name == "mixed_float16" {
				limit, _ = keras.Float16.Tolerance()
			}
			c := graphCaseOf(t, z, name)
			c.within(t, m, limit)
			if err := saving.Save(again, m); err != nil {
				t.Fatal(err)
			}
			if m, err = saving.Load(again); err != nil {
				t.Fatal(err)
			}
			c.within(t, m, limit)
			if *keras2 != "" {
				if err := os.WriteFile(filepath.Join(dir, name+".json"), memberOf(t, &z.Reader, name+".json"), 0o600); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// FuzzKeras2 rebuilds models from anything as model_config: it ends without a panic.
func FuzzKeras2(f *testing.F) {
	z, err := zip.OpenReader("testdata/keras2.zip")
	if err != nil {
		f.Fatal(err)
	}
	defer z.Close()
	for _, member := range z.File {
		if !strings.HasSuffix(member.Name, ".h5") {
			continue
		}
		b := memberOf(f, &z.Reader, member.Name)
		root, err := hdf5.Read(member.Name, bytes.NewReader(b), int64(len(b)))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(root.Attrs["model_config"].Strings[0])
	}
	f.Fuzz(func(t *testing.T, config string) {
		if !json.Valid([]byte(config)) {
			return
		}
		_, err := load2(t, config)
		if err == nil {
			t.Fatal("got no error for a file without weights")
		}
	})
}

// load2 loads a file of Keras 2 with a config and no weights.
func load2(t testing.TB, config string) (*keras.Model, error) {
	t.Helper()
	root := hdf5.NewGroup()
	root.Attrs["model_config"] = hdf5.StringAttr(config)
	file, err := os.Create(filepath.Join(t.TempDir(), "m.h5"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := hdf5.Write(file, root); err != nil {
		t.Fatal(err)
	}
	return saving.Load(file.Name())
}

// TestKeras2Configs: the forms of older releases reach the weights, and others are errors
// that name the layer.
func TestKeras2Configs(t *testing.T) {
	const reached = "model_weights: there is no such group"
	dense := func(more string) string {
		return `{"class_name":"Sequential","config":[{"class_name":"Dense","config":{"name":"d","units":2,"batch_input_shape":[null,3],"dtype":"float32"` + more + `}}]}`
	}
	model := func(nodes string) string {
		return `{"class_name":"Model","config":{"name":"m","layers":[{"class_name":"InputLayer","name":"x","config":{"batch_input_shape":[null,3],"dtype":"float32","name":"x"},"inbound_nodes":[]},` +
			`{"class_name":"Dense","name":"d","config":{"units":2},"inbound_nodes":` + nodes + `}],"input_layers":[["x",0,0]],"output_layers":[["d",0,0]]}}`
	}
	for _, c := range []struct{ config, want string }{
		{dense(""), reached},
		{dense(`,"kernel_initializer":{"class_name":"VarianceScaling","config":{"scale":1.0,"mode":"fan_avg","distribution":"uniform","seed":null,"dtype":"float32"}}`), reached},
		{dense(`,"activation":"hard_sigmoid"`), "layer d: Dense: activation is hard_sigmoid"},
		{dense(`,"other":1`), `unknown field "other"`},
		{model(`[[["x",0,0,{}]]]`), reached},
		{model(`[[["x",0,0]]]`), reached},
		{model(`[[["y",0,0,{}]]]`), "its input {y 0 0} comes from nowhere"},
		{model(`[[["x",-1,0,{}]]]`), "layer d: inbound_nodes: entry 0: got"},
		{model(`[["x",0,0,{}]]`), "layer d: inbound_nodes: entry 0: got x"},
		{model(`null`), "layer d: it has no inbound_nodes"},
		{`{"class_name":"Sequential","config":{"name":"s","layers":[{"class_name":"BatchNormalizationV1","config":{"name":"b","axis":[1,2],"batch_input_shape":[null,3,3]}}]}}`, "axis is [1 2], want one"},
		{`{"class_name":"Sequential","config":{"name":"s","layers":[{"class_name":"GRU","config":{"name":"g","units":2,"time_major":true,"batch_input_shape":[null,3,3]}}]}}`, "time_major is true, which is not supported"},
		{`[]`, "want an object with a class_name"},
		{`{"class_name":"Mine","config":{}}`, `layers: got <nil>, want a list of objects`},
	} {
		if _, err := load2(t, c.config); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got error %v, want one with %s", c.config, err, c.want)
		}
	}
}
