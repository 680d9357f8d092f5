package journal

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/datasets/digits"
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/losses"
	"github.com/mezzo-ml/mezzo/optimizers"
	"github.com/mezzo-ml/mezzo/policy"
)

// BenchmarkJournal times steps of Fit with a journal. Compare the time of journalStep in its
// profile with that of a step: the difference to Fit without a journal is less than the
// noise of most machines.
//
//	go test ./keras/journal -run '^$' -bench Journal/cnn -cpuprofile cpu.out
//	go tool pprof -peek journalStep cpu.out
func BenchmarkJournal(b *testing.B) {
	old := policy.Global().Name
	defer policy.SetGlobal(old)
	for _, m := range []struct {
		name   string
		batch  int
		layers func() []layers.Layer
	}{
		{"guide", 512, func() []layers.Layer { return dense(64, 64, 10) }},
		{"quickstart", 128, func() []layers.Layer { return dense(512, 10) }},
		{"cnn", 64, func() []layers.Layer {
			return []layers.Layer{
				&layers.Reshape{TargetShape: []int{28, 28, 1}},
				&layers.Conv2D{Filters: 32, KernelSize: layers.PerAxis{3}, Activation: "relu"},
				&layers.Conv2D{Filters: 64, KernelSize: layers.PerAxis{3}, Activation: "relu"},
				&layers.MaxPooling2D{}, &layers.Dropout{Rate: 0.25}, &layers.Flatten{},
				&layers.Dense{Units: 128, Activation: "relu"}, &layers.Dropout{Rate: 0.5}, &layers.Dense{Units: 10},
			}
		}},
		{"784-4096-4096-10", 32, func() []layers.Layer { return dense(4096, 4096, 10) }},
	} {
		for _, p := range []string{"float32", "mixed_float16"} {
			b.Run(fmt.Sprintf("%s/%s", m.name, p), func(b *testing.B) {
				policy.SetGlobal(p)
				model := keras.Sequential(m.layers()...)
				check(b, model.Compile(keras.CompileConfig{Optimizer: &optimizers.Adam{}, Loss: &losses.SparseCategoricalCrossentropy{FromLogits: true}}))
				c := keras.FitConfig{BatchSize: m.batch, StepsPerEpoch: b.N + 2, Verbose: keras.VerbositySilent, Journal: &File{Path: filepath.Join(b.TempDir(), "j")}}
				steps := 0
				c.Callbacks = []keras.Callback{{BatchEnd: func(context.Context, *keras.Run) error {
					if steps++; steps == 2 { // the first begins the journal, and compiles
						b.ResetTimer()
					}
					return nil
				}}}
				_, err := model.Fit(background, digits.Dataset(2048, 1), c)
				check(b, err)
			})
		}
	}
}

func dense(units ...int) (all []layers.Layer) {
	for i, n := range units {
		d := &layers.Dense{Units: n, Activation: "relu"}
		if i == len(units)-1 {
			d.Activation = ""
		}
		all = append(all, d)
	}
	return all
}
