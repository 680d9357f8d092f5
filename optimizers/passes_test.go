package optimizers

import (
	"testing"

	"github.com/mezzo-ml/mezzo/backend"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/op"
	"github.com/mezzo-ml/mezzo/backend/tensor"
)

// withHalf applies gradients, the loss's if o scales it, to a variable that is
// also read in 16 bits.
func withHalf(o Optimizer, v *tensor.Variable) *tensor.Func[[]*tensor.Tensor, *tensor.Tensor] {
	return tensor.Function(func(gs []*tensor.Tensor) *tensor.Tensor {
		y := v.Value().Cast(dtype.Float16).Sum()
		if scaler, ok := o.(*LossScaleOptimizer); ok {
			scale := scaler.GetScaledLoss(tensor.Scalar(dtype.Float32, 1))
			gs = scaler.GetUnscaledGradients([]*tensor.Tensor{gs[0].Mul(scale)})
		}
		o.ApplyGradients(gs, []*tensor.Variable{v})
		return y
	}, o, owner{v})
}

// TestOnePass: an update is one value of the plan for each variable, with the
// slots, the clipped gradient, the decayed weight, its average and its copy in
// 16 bits in it.
func TestOnePass(t *testing.T) {
	if backend.Skipping() {
		t.Skip("tests what MEZZO_SKIP leaves out")
	}
	all := options{GlobalClipNorm: 1, WeightDecay: new(0.01), UseEMA: true}
	for name, make := range map[string]func(o options) Optimizer{
		"SGD":      func(o options) Optimizer { return with(&SGD{}, o) },
		"momentum": func(o options) Optimizer { return with(&SGD{Momentum: 0.9, Nesterov: true}, o) },
		"RMSprop":  func(o options) Optimizer { return with(&RMSprop{Momentum: 0.9, Centered: true}, o) },
		"Adam":     func(o options) Optimizer { return with(&Adam{AMSGrad: true}, o) },
		"AdamW":    func(o options) Optimizer { return with(&AdamW{}, o) },
		"Adamax":   func(o options) Optimizer { return with(&Adamax{}, o) },
		"Nadam":    func(o options) Optimizer { return with(&Nadam{}, o) },
		"Adagrad":  func(o options) Optimizer { return with(&Adagrad{}, o) },
		"Adadelta": func(o options) Optimizer { return with(&Adadelta{}, o) },
		"Ftrl":     func(o options) Optimizer { return with(&Ftrl{}, o) },
		"Lion":     func(o options) Optimizer { return with(&Lion{}, o) },
		"averaged": func(o options) Optimizer { return with(&ScheduleFreeAdamW{WarmupSteps: 3}, o) },
		"parts": func(o options) Optimizer {
			return &MultiOptimizer{OptimizerMap: OptimizerMap{Default: &SGD{}, Entries: []OptimizerEntry{{Variables: "v", Optimizer: with(&AdamW{}, o)}}}}
		},
		"Muon, excluded": func(o options) Optimizer { return with(&Muon{ExcludeLayers: []string{"v"}}, o) },
		// Their rates follow from norms of the whole update, which is made once
		// to be measured and once to be applied.
		"Lamb":      func(o options) Optimizer { return with(&Lamb{}, o) },
		"Adafactor": func(o options) Optimizer { return with(&Adafactor{}, o) },
	} {
		for kind, o := range map[string]options{"plain": {}, "all options": all} {
			for _, scaled := range []bool{false, true} {
				v := variable("v", dtype.Float32, []float64{1, 2, 3, 4, 5, 6}, 2, 3)
				opt := make(o)
				if scaled {
					opt = &LossScaleOptimizer{Inner: opt}
				}
				g, err := withHalf(opt, v).Plan([]*tensor.Tensor{tensor.New([]float32{1, -2, 3, -4, 5, -6}, 2, 3)})
				if err != nil {
					t.Fatal(err)
				}
				n := 0
				for _, x := range g.Values[g.Commit:] {
					if x.Type.Shape.Equal(v.Shape()) && x.Op != op.ExtraOutput && !x.View() {
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
