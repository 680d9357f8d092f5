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
		t.Skip("tests what KERAS_SKIP leaves out")
	}
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
		"averaged": func(o Options) Optimizer { return &ScheduleFreeAdamW{WarmupSteps: 3, Options: o} },
		"parts": func(o Options) Optimizer {
			return &MultiOptimizer{OptimizerMap: OptimizerMap{Default: &SGD{}, Entries: []OptimizerEntry{{Variables: "v", Optimizer: &AdamW{Options: o}}}}}
		},
		"Muon, excluded": func(o Options) Optimizer { return &Muon{ExcludeLayers: []string{"v"}, Options: o} },
		// Their rates follow from norms of the whole update, which is made once
		// to be measured and once to be applied.
		"Lamb":      func(o Options) Optimizer { return &Lamb{Options: o} },
		"Adafactor": func(o Options) Optimizer { return &Adafactor{Options: o} },
	} {
		for kind, o := range map[string]Options{"plain": {}, "all options": all} {
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
