package saving_test

import (
	"archive/zip"
	"encoding/json"
	"flag"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/saving"
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/losses"
	"github.com/mezzo-ml/mezzo/optimizers"
)

var transferDir = flag.String("transfer", "", "a directory in which TestTransfer leaves its models for testdata/transfer.py check")

// transferCase is one transfer learning in Keras; see testdata/transfer.py.
type transferCase struct {
	Images  []float32
	Labels  []int32
	Kernel  []float64 // of the head
	Frozen  int       // layers of the base, with its Input, that stay frozen in the second phase
	Losses  []float64 // of the steps of both phases
	Outputs [2][]float64
}

// near is the largest difference of want and got, relative to the largest number.
func near(got, want []float64) float64 {
	worst, scale := 0.0, 1e-30
	for i := range want {
		scale = max(scale, math.Abs(want[i]))
		if d := math.Abs(got[i] - want[i]); d > worst || math.IsNaN(d) {
			worst = d
		}
	}
	return worst / scale
}

// TestTransfer loads a base of Keras, gives it a head, and trains with the base frozen
// and then, with a lower rate, without: the losses and outputs are Keras's.
func TestTransfer(t *testing.T) {
	z, err := zip.OpenReader("testdata/transfer.zip")
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	dir := *transferDir
	if dir == "" {
		dir = t.TempDir()
	}
	path := filepath.Join(t.TempDir(), "base.keras")
	if err := os.WriteFile(path, memberOf(t, &z.Reader, "base.keras"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, phases := range map[string][2]optimizers.Optimizer{
		"sgd":  {&optimizers.SGD{LearningRate: 0.05, Momentum: 0.9}, &optimizers.SGD{LearningRate: 0.005, Momentum: 0.9}},
		"adam": {&optimizers.Adam{LearningRate: 0.01}, &optimizers.Adam{LearningRate: 0.0005}},
	} {
		t.Run(name, func(t *testing.T) {
			var c transferCase
			if err := json.Unmarshal(memberOf(t, &z.Reader, name+".json"), &c); err != nil {
				t.Fatal(err)
			}
			base, err := saving.Load(path)
			if err != nil {
				t.Fatal(err)
			}
			base.SetTrainable(false)
			x := keras.Input(8, 8, 3)
			head := &layers.Dense{Units: 3, Name: "head"}
			m, err := keras.NewModel(x, keras.Apply(head, keras.Apply(&layers.Dropout{}, keras.Apply(base.Layer(), x))))
			if err != nil {
				t.Fatal(err)
			}
			if err := layers.BaseOf(head).Weights()[0].Set(c.Kernel); err != nil {
				t.Fatal(err)
			}
			batch := keras.Batch{X: keras.NewTensor(c.Images, 16, 8, 8, 3), Y: keras.NewTensor(c.Labels, 16)}
			outputs := func() []float64 {
				y, err := m.Predict(t.Context(), batch.X)
				if err != nil {
					t.Fatal(err)
				}
				all, err := y.Float64s()
				if err != nil {
					t.Fatal(err)
				}
				return all
			}
			// As of a step of TestGoldenTraining, which the steps before have moved.
			rel, _ := keras.Float32.Tolerance()
			steps := len(c.Losses) / 2
			for phase, o := range phases {
				if err := m.Compile(keras.CompileConfig{Optimizer: o, Loss: &losses.SparseCategoricalCrossentropy{FromLogits: true}}); err != nil {
					t.Fatal(err)
				}
				for i := range steps {
					logs, err := m.TrainOnBatch(t.Context(), batch)
					if err != nil {
						t.Fatal(err)
					}
					at := phase*steps + i
					if got, want := logs.Get("loss"), c.Losses[at]; !(math.Abs(got-want) <= 16*float64(at+1)*rel*want) {
						t.Errorf("phase %d, step %d: got a loss of %v, want %v", phase, i, got, want)
					}
				}
				if e := near(outputs(), c.Outputs[phase]); !(e <= 16*float64((phase+1)*steps)*rel) {
					t.Errorf("phase %d: outputs differ by %.2g of the largest", phase, e)
				}
				base.SetTrainable(true)
				for i, l := range base.Layers() {
					layers.BaseOf(l).SetTrainable(i >= c.Frozen-1) // Keras's first layer is the Input
				}
			}
			saved := filepath.Join(dir, name+".keras")
			if err := saving.Save(saved, m); err != nil {
				t.Fatal(err)
			}
			want := outputs()
			if m, err = saving.Load(saved); err != nil {
				t.Fatal(err)
			}
			if e := near(outputs(), want); e != 0 {
				t.Errorf("loaded again, outputs differ by %.2g of the largest", e)
			}
		})
	}
}
