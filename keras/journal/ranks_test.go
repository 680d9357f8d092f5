package journal

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/distribution"
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/losses"
	"github.com/mezzo-ml/mezzo/optimizers"
)

// TestRanks: the journal of several ranks has the weights and inputs of one.
func TestRanks(t *testing.T) {
	for _, divided := range []bool{false, true} { // ZeRO
		t.Run(fmt.Sprint("slots divided ", divided), func(t *testing.T) {
			var logs []*Log
			for _, ranks := range []int{1, 2} {
				path := filepath.Join(t.TempDir(), "j")
				check(t, distribution.Local(t.Context(), ranks, func(ctx context.Context, g *distribution.Group) error {
					d := &distribution.DataParallel{Group: g, Shards: 4, ZeroRedundancy: divided}
					m := keras.Sequential(&layers.Dense{Units: 40, Activation: "relu"}, &layers.Dropout{Rate: 0.2}, &layers.Dense{Units: 3})
					if err := m.Compile(keras.CompileConfig{Optimizer: &optimizers.Adam{LearningRate: 0.01}, Loss: &losses.SparseCategoricalCrossentropy{FromLogits: true}, Distribution: d}); err != nil {
						return err
					}
					_, err := m.Fit(ctx, samplesOf(false, 0), keras.FitConfig{BatchSize: 8, Epochs: 2, Verbose: keras.VerbositySilent, Journal: &File{Path: path}})
					return err
				}))
				l, err := Load(path)
				check(t, err)
				logs = append(logs, l)
			}
			a, b := logs[0], logs[1]
			if len(a.Steps) != 2*stepsOfEpoch || len(b.Steps) != len(a.Steps) || a.last().Ranks != 1 || b.last().Ranks != 2 {
				t.Fatalf("got %d and %d steps of %d and %d ranks", len(a.Steps), len(b.Steps), a.last().Ranks, b.last().Ranks)
			}
			if a.last().Model != b.last().Model {
				t.Error("the model is another one")
			}
			for i := range a.Steps {
				if d := differs(a.Steps[i], b.Steps[i], false); len(d) > 0 {
					t.Fatalf("step %d: %v", i+1, d)
				}
			}
		})
	}
}
