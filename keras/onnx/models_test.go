package onnx

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/op"
	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/saving"
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/policy"
)

// example is a model as users build them.
type example struct {
	name string
	in   []string // types, with a batch of 3
	make func(in []*keras.Tensor) *keras.Tensor
}

func sequence(ls ...layers.Layer) func(in []*keras.Tensor) *keras.Tensor {
	return func(in []*keras.Tensor) *keras.Tensor {
		x := in[0]
		for _, l := range ls {
			x = keras.Apply(l, x)
		}
		return x
	}
}

// examples are the models of the tests and of the golden files.
func examples() []example {
	return []example{
		{"mlp", []string{"float32[3 6]"}, sequence(
			&layers.Dense{Units: 8, Activation: "relu"}, &layers.Dropout{Rate: 0.5}, &layers.BatchNormalization{}, &layers.Dense{Units: 4, Activation: "softmax", DType: "float32"})},
		{"cnn", []string{"float32[3 13 12 3]"}, sequence(
			&layers.Conv2D{Filters: 4, KernelSize: []int{3}, Padding: "same", Strides: []int{2}}, &layers.BatchNormalization{}, &layers.Activation{Activation: "relu"},
			&layers.DepthwiseConv2D{KernelSize: []int{3}}, &layers.MaxPooling2D{}, &layers.Conv2D{Filters: 5, KernelSize: []int{2}, Activation: "elu"},
			&layers.AveragePooling2D{PoolSize: []int{2}, Padding: "same", Strides: []int{1}}, &layers.Flatten{}, &layers.Dense{Units: 4, DType: "float32"})},
		{"transformer", []string{"float32[3 6 8]"}, func(in []*keras.Tensor) *keras.Tensor {
			x := keras.Apply(&layers.Dense{Units: 8, Activation: "gelu"}, in[0])
			a := keras.Apply(&layers.MultiHeadAttention{NumHeads: 2, KeyDim: 4, UseCausalMask: true}, x, x)
			x = keras.Apply(&layers.LayerNormalization{}, keras.Apply(&layers.Add{}, x, a))
			f := keras.Apply(&layers.Dense{Units: 8}, keras.Apply(&layers.Dense{Units: 16, Activation: "silu"}, x))
			x = keras.Apply(&layers.RMSNormalization{}, keras.Apply(&layers.Add{}, x, f))
			x = keras.Apply(&layers.GlobalAveragePooling1D{}, x)
			return keras.Apply(&layers.Dense{Units: 5, Activation: "softmax", DType: "float32"}, x)
		}},
		{"recurrent", []string{"float32[3 7 5]"}, sequence(
			&layers.Bidirectional{Layer: &layers.LSTM{Units: 4, ReturnSequences: true}}, &layers.GRU{Units: 3, ReturnSequences: true, GoBackwards: true},
			&layers.SimpleRNN{Units: 3, ReturnSequences: true}, &layers.LSTM{Units: 2}, &layers.Dense{Units: 3, DType: "float32"})},
		{"masked", []string{"int32[3 6]"}, sequence(
			&layers.Embedding{InputDim: 4, OutputDim: 5, MaskZero: true}, &layers.Bidirectional{Layer: &layers.GRU{Units: 4, ReturnSequences: true}}, &layers.LSTM{Units: 3},
			&layers.Dense{Units: 2, DType: "float32"})},
		{"two inputs", []string{"float32[3 4]", "int32[3 2]"}, func(in []*keras.Tensor) *keras.Tensor {
			e := keras.Apply(&layers.Flatten{}, keras.Apply(&layers.Embedding{InputDim: 4, OutputDim: 3}, in[1]))
			x := keras.Apply(&layers.Concatenate{}, keras.Apply(&layers.Dense{Units: 5, Activation: "tanh"}, in[0]), e)
			return tensor.Tuple(keras.Apply(&layers.Dense{Units: 2, Name: "class", DType: "float32"}, x), keras.Apply(&layers.Dense{Units: 1, Name: "value", DType: "float32"}, x))
		}},
		{"residual", []string{"float32[3 8 8 4]"}, func(in []*keras.Tensor) *keras.Tensor {
			x := in[0]
			for range 2 {
				y := keras.Apply(&layers.Conv2D{Filters: 4, KernelSize: []int{3}, Padding: "same", UseBias: new(false)}, x)
				y = keras.Apply(&layers.ReLU{}, keras.Apply(&layers.BatchNormalization{}, y))
				y = keras.Apply(&layers.GroupNormalization{Groups: new(2)}, y)
				x = keras.Apply(&layers.Add{}, x, y)
			}
			x = keras.Apply(&layers.UpSampling2D{Interpolation: "bilinear"}, x)
			x = keras.Apply(&layers.Conv2DTranspose{Filters: 3, KernelSize: []int{3}, Strides: []int{2}, Padding: "same"}, x)
			return keras.Apply(&layers.GlobalMaxPooling2D{DType: "float32"}, x)
		}},
	}
}

func (e example) types() (all []op.Type) {
	for _, s := range e.in {
		all = append(all, parseType(s))
	}
	return all
}

// model builds the example under a policy.
func (e example) model(t testing.TB, under string) *keras.Model {
	t.Helper()
	defer policy.SetGlobal(policy.SetGlobal(under))
	var in []*keras.Tensor
	for _, ty := range e.types() {
		if ty.DType == dtype.Float32 {
			in = append(in, keras.Input(ty.Shape[1:]...))
		} else {
			in = append(in, keras.InputOf(ty.DType, ty.Shape[1:]...))
		}
	}
	m, err := keras.NewModel(group(in), e.make(in))
	if err != nil {
		t.Fatalf("%s: %v", e.name, err)
	}
	m.SetSeed(3)
	if err := randomize(m); err != nil {
		t.Fatal(err)
	}
	return m
}

// TestExportModels writes the examples under each precision with -export: what
// testdata/check.py compares.
func TestExportModels(t *testing.T) {
	dir := exportFolder(t)
	var all []dump
	for _, c := range []struct{ policy, precision string }{{"float32", ""}, {"mixed_float16", "float16"}, {"mixed_bfloat16", ""}, {"float32", "float16"}} {
		for _, e := range examples() {
			m := e.model(t, c.policy)
			name := c.policy + " " + c.precision + " " + e.name
			o := ExportOptions{Precision: c.precision}
			d, err := exports(t, dir, name, m, o, e.types())
			if err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			if c.policy != "float32" || c.precision != "" {
				d.Tolerance = 0.01 // of 16 bits
			}
			all = append(all, d)
		}
	}
	writeManifest(t, dir, all)
}

// TestPrecision: the file of a mixed model is that of its clone under float32.
func TestPrecision(t *testing.T) {
	for _, under := range []string{"mixed_bfloat16", "mixed_float16", "float64"} {
		for _, e := range examples() {
			m := e.model(t, under)
			c, err := m.CloneUnder("float32", policy.Map{".*": "float32"}, true)
			if err != nil {
				t.Fatal(err)
			}
			var b, want bytes.Buffer
			if err := Write(&b, m, ExportOptions{}); err != nil {
				t.Errorf("%s, %s: %v", e.name, under, err)
				continue
			}
			if err := Write(&want, c, ExportOptions{}); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(b.Bytes(), want.Bytes()) {
				t.Errorf("%s: the file of a model under %s is not that of its clone", e.name, under)
			}
		}
	}
}

// TestImportModels: an exported model predicts the same bits when it is imported. Only
// recurrent layers with a mask do not: they are written step by step.
func TestImportModels(t *testing.T) {
	for _, c := range []struct{ policy, precision string }{{"float32", ""}, {"mixed_float16", "float16"}} {
		for _, e := range examples() { // layers belong to one model
			within := 0.0
			if e.name == "masked" {
				within = 4 * dtype.Float32.Epsilon()
				if c.precision != "" {
					within = 4 * dtype.Float16.Epsilon()
				}
			}
			roundTrip(t, e.name+", "+c.policy, e.model(t, c.policy), ExportOptions{Precision: c.precision}, sample(e.types(), 3), within)
		}
	}
}

var kerasDir = flag.String("keras", "", "directory with models that testdata/fromkeras.py wrote")

// TestExportKeras exports Keras's files; testdata/check.py then compares ONNX Runtime
// with Keras.
func TestExportKeras(t *testing.T) {
	if *kerasDir == "" {
		t.Skip("no -keras")
	}
	b, err := os.ReadFile(filepath.Join(*kerasDir, "manifest.json"))
	var all []dump
	if err == nil {
		err = json.Unmarshal(b, &all)
	}
	if err != nil {
		t.Fatal(err)
	}
	for i, d := range all {
		path := filepath.Join(*kerasDir, d.File)
		m, err := saving.Load(strings.TrimSuffix(path, ".onnx") + ".keras")
		if err == nil {
			err = Export(path, m, ExportOptions{})
		}
		if err != nil {
			t.Errorf("%s: %v", d.Name, err)
			continue
		}
		for k := range d.Runs {
			all[i].Runs[k].In[0].Name = m.InputNames()[0]
		}
	}
	writeManifest(t, *kerasDir, all)
}
