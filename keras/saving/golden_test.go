package saving_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/internal/hdf5"
	"github.com/mezzo-ml/mezzo/keras/saving"
	"github.com/mezzo-ml/mezzo/losses"
	"github.com/mezzo-ml/mezzo/optimizers"
	"github.com/mezzo-ml/mezzo/policy"
)

// goldenCase is what Keras computes with a model; see testdata/golden.py.
type goldenCase struct {
	Shapes [][]int
	Inputs [][]float32
	Output []float32
}

// golden writes a file of Keras to a directory and returns its path.
func golden(t testing.TB, name string) (path string, c goldenCase) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &c); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(filepath.Join("testdata", name+".keras.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(t.TempDir(), name+".keras")
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return path, c
}

func (c goldenCase) input(name string) *keras.Tensor {
	var all []*keras.Tensor
	for i, x := range c.Inputs {
		t := keras.NewTensor(x, c.Shapes[i]...)
		if name == "sequential" {
			t = t.Cast(keras.Int32)
		}
		all = append(all, t)
	}
	if len(all) == 1 {
		return all[0]
	}
	return keras.Tuple(all...)
}

// check compares what a model computes with what Keras does. Both round in d,
// in a few layers one after the other: 16 times the tolerance of one operation.
func (c goldenCase) check(t *testing.T, name string, m *keras.Model, d keras.DType) {
	t.Helper()
	got, err := m.Call(c.input(name)).Values()
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != len(c.Output) {
		t.Fatalf("got %d elements, want %d", len(got), len(c.Output))
	}
	rel, abs := d.Tolerance()
	for i, want := range c.Output {
		diff := float64(got[i]) - float64(want)
		if !(max(diff, -diff) <= 16*(abs+rel*float64(max(want, -want, 1)))) {
			t.Errorf("element %d: got %v, want %v", i, got[i], want)
		}
	}
}

var goldenModels = []string{"functional", "attention", "sequential", "recurrent", "arguments"}

// TestGoldenModels loads what Keras has saved, and what Save makes of it.
func TestGoldenModels(t *testing.T) {
	for _, name := range goldenModels {
		t.Run(name, func(t *testing.T) {
			path, c := golden(t, name)
			m, err := saving.Load(path)
			if err != nil {
				t.Fatal(err)
			}
			c.check(t, name, m, keras.Float32)
			again := filepath.Join(t.TempDir(), "again.keras")
			if err := saving.Save(again, m); err != nil {
				t.Fatal(err)
			}
			if m, err = saving.Load(again); err != nil {
				t.Fatal(err)
			}
			c.check(t, name, m, keras.Float32)
		})
	}
}

// TestGoldenPolicy loads a float32 model of Keras to compute in 16 bits.
func TestGoldenPolicy(t *testing.T) {
	p, err := policy.Parse("mixed_bfloat16")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range goldenModels {
		path, c := golden(t, name)
		m, err := saving.Load(path, saving.WithPolicy(p))
		if err != nil {
			t.Fatal(err)
		}
		c.check(t, name, m, keras.BFloat16)
		for _, w := range m.Weights() {
			if w.DType() != keras.Float32 {
				t.Errorf("%s: weight %s is %v, want float32", name, w.Name(), w.DType())
			}
		}
	}
}

// TestGoldenOptimizer loads the state of Keras's Adam. Keras has the layers of
// the model in the order first, third, second, which is not the order here.
func TestGoldenOptimizer(t *testing.T) {
	path, c := golden(t, "functional")
	m, err := saving.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Compile(keras.CompileConfig{Loss: &losses.MeanSquaredError{}, Optimizer: &optimizers.Adam{}}); err != nil {
		t.Fatal(err)
	}
	err = saving.LoadWeights(path, m, saving.WithOptimizer(m.Optimizer()))
	if err == nil || !strings.Contains(err.Error(), "exist after its first step") {
		t.Errorf("got error %v before the first step, want one about the slots", err)
	}
	ds := keras.FromTensors(c.input("functional"), keras.NewTensor(c.Output, 8, 3), nil)
	if _, err := m.Fit(context.Background(), ds, keras.FitConfig{Epochs: 1, Verbose: keras.VerbositySilent}); err != nil {
		t.Fatal(err)
	}
	if err := saving.LoadWeights(path, m, saving.WithOptimizer(m.Optimizer())); err != nil {
		t.Fatal(err)
	}
	c.check(t, "functional", m, keras.Float32)
	weights := filepath.Join(t.TempDir(), "m.weights.h5")
	if err := saving.SaveWeights(weights, m, saving.WithOptimizer(m.Optimizer())); err != nil {
		t.Fatal(err)
	}
	root, closeFile, err := hdf5.Open(weights)
	if err != nil {
		t.Fatal(err)
	}
	defer closeFile()
	saved := root.Group("optimizer/vars").Datasets
	for name, i := range map[string]string{
		"iteration": "0", "learning_rate": "1", "first_kernel_momentum": "2", "first_kernel_velocity": "3",
		"third_kernel_momentum": "6", "third_bias_velocity": "9", "second_kernel_momentum": "10", "second_kernel_velocity": "11",
	} {
		for _, v := range m.Optimizer().Variables() {
			if v.Name() != "adam/"+name {
				continue
			}
			got, err := v.Bytes()
			if err != nil {
				t.Fatal(err)
			}
			want, err := saved[i].Bytes()
			if err != nil || !bytes.Equal(got, want) {
				t.Errorf("%s is not variable %s of the file, error %v", name, i, err)
			}
			delete(saved, i)
		}
		if saved[i] != nil {
			t.Errorf("the optimizer has no variable %s", name)
		}
	}
	if n, err := optimizers.Iterations(m.Optimizer()); err != nil || n != 3 {
		t.Errorf("got %d iterations, want Keras's 3, error %v", n, err)
	}
}
