package keras

import (
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/mezzo-ml/mezzo/optimizers"
)

// halving is an optimizer with the two required methods only.
type halving struct{}

func (halving) ApplyGradients(grads []*Tensor, vars []*Variable) {
	for i, v := range vars {
		if grads[i] != nil {
			v.Assign(v.Value().MulScalar(0.5))
		}
	}
}

func (halving) Variables() []*Variable { return nil }

// TestTwoMethods: an optimizer without optional methods trains, alone and with
// loss scaling; the logs leave out what it does not know.
func TestTwoMethods(t *testing.T) {
	for _, scaled := range []bool{false, true} {
		m := line(t)
		var o optimizers.Optimizer = halving{}
		wantLogs := []string{"loss"}
		if scaled {
			o = &optimizers.LossScaleOptimizer{Inner: o}
			wantLogs = []string{"loss", "loss_scale", "skipped_steps", "gradient_norm"}
		}
		c := lineConfig()
		c.Optimizer, c.Metrics = o, nil
		check(t, m.Compile(c))
		check(t, m.Build(3))
		before := weightsOf(t, m)
		h := fit(t, m, regression(8), FitConfig{BatchSize: 4})
		for i, w := range weightsOf(t, m) {
			for j, x := range w {
				if x != before[i][j]/4 {
					t.Errorf("scaled %v: after 2 steps weight %d is %v, want a quarter of %v", scaled, i, w, before[i])
					break
				}
			}
		}
		var names []string
		for _, l := range h.Logs[0] {
			names = append(names, l.Name)
		}
		if !slices.Equal(names, wantLogs) {
			t.Errorf("scaled %v: got logs %q, want %q", scaled, names, wantLogs)
		}
		if err := optimizers.SetLearningRate(o, 1); !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("scaled %v: SetLearningRate: got error %v, want errors.ErrUnsupported", scaled, err)
		}
		r, err := m.StepResult()
		check(t, err)
		n, err := optimizers.Iterations(o)
		if scaled && (n != 2 || r.AppliedSteps != 2 || err != nil) {
			t.Errorf("with loss scaling: got %d iterations, %+v, error %v, want 2", n, r, err)
		}
		if !scaled && (r.AppliedSteps != 0 || !math.IsNaN(r.GradientNorm) || !errors.Is(err, errors.ErrUnsupported)) {
			t.Errorf("alone: got %+v, error %v, want nothing known", r, err)
		}
		check(t, optimizers.SwapEMA(o))
	}
}
