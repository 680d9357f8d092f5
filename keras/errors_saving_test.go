package keras_test

import (
	"archive/zip"
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/saving"
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/losses"
	"github.com/mezzo-ml/mezzo/optimizers"
)

func init() {
	whole := func(b []byte) []byte { return b }
	for name, f := range map[string]func(t *testing.T) error{
		"Weight file of another model": func(t *testing.T) error { return savingError(t, 5, whole) },
		"Truncated weight file": func(t *testing.T) error {
			return savingError(t, 3, func(b []byte) []byte { return b[:len(b)/2] })
		},
		"Weight file that is no HDF5": func(t *testing.T) error {
			return savingError(t, 3, func(b []byte) []byte { return []byte(strings.Repeat("weights\n", 20)) })
		},
		"Model file with a config that is too large": func(t *testing.T) error {
			var b bytes.Buffer
			z := zip.NewWriter(&b)
			w, err := z.Create("config.json")
			if err == nil {
				_, err = w.Write(make([]byte, 16<<20+1))
			}
			if err := errors.Join(err, z.Close()); err != nil {
				t.Fatal(err)
			}
			dir, path := fileOf(t, "model.keras", b.Bytes())
			_, err = saving.Load(path)
			return plainError(err, dir)
		},
		"File that is no file": func(t *testing.T) error {
			dir := t.TempDir()
			_, err := saving.Load(dir)
			return plainError(err, dir)
		},
		"Saving a layer that is not registered": func(t *testing.T) error {
			m := keras.Sequential(&layers.Dense{Units: 2}, &unregistered{})
			if err := m.Build(4); err != nil {
				t.Fatal(err)
			}
			return plainError(saving.Save("model.keras", m), "")
		},
		"Saving a layer that two models have": func(t *testing.T) error {
			shared := &layers.Dense{Units: 4, Name: "shared"}
			x, y := keras.Input(4), keras.Input(4)
			encoder, err := keras.NewModel(x, keras.Apply(shared, x))
			if err != nil {
				t.Fatal(err)
			}
			m, err := keras.NewModel(y, keras.Apply(encoder.Layer(), keras.Apply(shared, y)))
			if err != nil {
				t.Fatal(err)
			}
			return saving.Save("model.keras", m)
		},
		"Optimizer state of another window": func(t *testing.T) error {
			model := func(window, calls int) *keras.Model {
				m := keras.Sequential(&layers.Dense{Units: 1})
				o := &optimizers.SGD{GradientAccumulationSteps: window}
				if err := m.Compile(keras.CompileConfig{Loss: &losses.MeanSquaredError{}, Optimizer: o}); err != nil {
					t.Fatal(err)
				}
				for range calls {
					if _, err := m.TrainOnBatch(t.Context(), keras.Batch{X: keras.NewTensor([]float32{1, 2}, 1, 2), Y: keras.NewTensor([]float32{1}, 1, 1)}); err != nil {
						t.Fatal(err)
					}
				}
				return m
			}
			dir := t.TempDir()
			path := filepath.Join(dir, "model.weights.h5")
			from, to := model(4, 2), model(2, 1)
			if err := saving.SaveWeights(path, from, saving.WithOptimizer(from.Optimizer())); err != nil {
				t.Fatal(err)
			}
			return plainError(saving.LoadWeights(path, to, saving.WithOptimizer(to.Optimizer())), dir)
		},
	} {
		errorCases[name] = f
	}
}

// unregistered is a layer of a class that UnmarshalConfig does not know.
type unregistered struct{ layers.Base }

func (*unregistered) Config() layers.Config                             { return layers.Config{} }
func (*unregistered) Build(...layers.Shape) error                       { return nil }
func (*unregistered) Call(_ layers.Pass, x *keras.Tensor) *keras.Tensor { return x }

// savingError saves the weights of a model of 3 classes for Keras, spoils the
// file and loads it into one of so many.
func savingError(t *testing.T, units int, spoil func([]byte) []byte) error {
	model := func(units int) *keras.Model {
		m := keras.Sequential(&layers.Dense{Units: units, Name: "head"})
		if err := m.Build(4); err != nil {
			t.Fatal(err)
		}
		return m
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "model.weights.h5")
	if err := saving.SaveWeights(path, model(3)); err != nil {
		return err
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := os.WriteFile(path, spoil(b), 0o600); err != nil {
		return err
	}
	return plainError(saving.LoadWeights(path, model(units)), dir)
}

// plainError is an error whose text does not depend on where a test runs.
func plainError(err error, dir string) error {
	if err == nil || dir == "" {
		return err
	}
	return errors.New(strings.ReplaceAll(err.Error(), dir, "DIR"))
}
