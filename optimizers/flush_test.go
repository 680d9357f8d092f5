package optimizers

import (
	"math"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/tensor"
)

// TestSlotsDecayToZero: slots of a weight whose gradient has become 0 end at 0
// and not among the subnormal numbers.
func TestSlotsDecayToZero(t *testing.T) {
	for name, o := range map[string]Optimizer{
		"adam":     &Adam{Beta2: 0.9},
		"nadam":    &Nadam{Beta2: 0.9},
		"sgd":      &SGD{Momentum: 0.9},
		"nesterov": &SGD{Momentum: 0.9, Nesterov: true},
		"rmsprop":  &RMSprop{Momentum: 0.9},
		"adadelta": &Adadelta{Rho: 0.9},
	} {
		t.Run(name, func(t *testing.T) {
			fn := applier(o, variable("w", dtype.Float32, []float64{1, -2, 3}, 3))
			gradient := tensor.New([]float32{1e-2, -1e-3, 1e-4}, 3)
			for range 2 {
				run(t, fn, gradient)
			}
			for range 1000 {
				run(t, fn, tensor.Zeros(dtype.Float32, 3))
			}
			for _, v := range o.Variables() {
				if v.DType() != dtype.Float32 || len(v.Shape()) == 0 {
					continue
				}
				for _, x := range floats(t, v) {
					if x != 0 && math.Abs(x) < 0x1p-103 {
						t.Errorf("%s has %g after 1000 steps without a gradient", v.Name(), x)
					}
				}
			}
		})
	}
}

// TestFlush: numbers that matter keep their bits, those that are almost 0
// become 0.
func TestFlush(t *testing.T) {
	x := []float32{1, -3.3e-3, 7e-12, -0x1.fffffep-55, 0x1p-55, math.MaxFloat32, float32(math.Inf(-1)), 0}
	small := []float32{0x1p-105, -0x1p-140, math.SmallestNonzeroFloat32}
	got, err := flush(tensor.New(append(append([]float32(nil), x...), small...), len(x)+len(small))).Float64s()
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range x {
		if got[i] != float64(want) {
			t.Errorf("flush of %g is %g", want, got[i])
		}
	}
	for i, y := range small {
		if got[len(x)+i] != 0 {
			t.Errorf("flush of %g is %g, want 0", y, got[len(x)+i])
		}
	}
}
