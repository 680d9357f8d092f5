package optimizers

import (
	"testing"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/op"
	"github.com/mezzo-ml/mezzo/backend/tensor"
)

// TestOnePass: an update is one value of the plan for each variable, with the
// slots, the clipped gradient, the decayed weight and its average in it.
func TestOnePass(t *testing.T) {
	all := Options{GlobalClipNorm: 1, WeightDecay: new(0.01), UseEMA: true}
	for name, make := range map[string]func(o Options) Optimizer{
		"SGD":      func(o Options) Optimizer { return &SGD{Options: o} },
		"momentum": func(o Options) Optimizer { return &SGD{Momentum: 0.9, Nesterov: true, Options: o} },
		"RMSprop":  func(o Options) Optimizer { return &RMSprop{Momentum: 0.9, Centered: true, Options: o} },
		"Adam":     func(o Options) Optimizer { return &Adam{AMSGrad: true, Options: o} },
		"AdamW":    func(o Options) Optimizer { return &AdamW{Options: o} },
		"Adamax":   func(o Options) Optimizer { return &Adamax{Options: o} },
		"Nadam":    func(o Options) Optimizer { return &Nadam{Options: o} },
		"Adagrad":  func(o Options) Optimizer { return &Adagrad{Options: o} },
		"Adadelta": func(o Options) Optimizer { return &Adadelta{Options: o} },
		"Ftrl":     func(o Options) Optimizer { return &Ftrl{Options: o} },
		"Lion":     func(o Options) Optimizer { return &Lion{Options: o} },
	} {
		for kind, o := range map[string]Options{"plain": {}, "all options": all} {
			for _, scaled := range []bool{false, true} {
				v := variable("v", dtype.Float32, []float64{1, 2, 3, 4, 5, 6}, 2, 3)
				opt := make(o)
				fn := applier(opt, v)
				if scaled {
					fn = scaledApplier(&LossScaleOptimizer{Inner: opt}, v)
				}
				g, err := fn.Plan([]*tensor.Tensor{tensor.New([]float32{1, -2, 3, -4, 5, -6}, 2, 3)})
				if err != nil {
					t.Fatal(err)
				}
				n := 0
				for _, x := range g.Values[g.Commit:] {
					if x.Type.Shape.Equal(v.Shape()) && x.Op != op.Extra && !x.View() {
						n++
					}
				}
				if n != 1 {
					t.Errorf("%s, %s, scaled %v: the update is %d values, want 1\n%v", name, kind, scaled, n, g)
				}
			}
		}
	}
}
