package keras

import (
	"strings"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/losses"
	"github.com/mezzo-ml/mezzo/optimizers"
)

// TestFloat8Scaling: what a step writes into a history of gradients is what it
// saw, the loss scale in it (Keras: overwrite_with_gradient, which is not
// unscaled), and a step that is skipped writes nothing.
func TestFloat8Scaling(t *testing.T) {
	for _, scale := range []float64{1, 1024, 1 << 40} {
		underPolicy(t, "float32")
		l := &layers.Dense{Units: 1, UseBias: new(false), KernelInitializer: "zeros", DType: "float8_from_mixed_float16"}
		m := Sequential(l)
		o := &optimizers.LossScaleOptimizer{Inner: &optimizers.SGD{}, InitialScale: scale, MaxScale: scale}
		check(t, m.Compile(CompileConfig{Optimizer: o, Loss: &losses.MeanSquaredError{}}))
		x, y := tensor.Ones(Float32, 4, 3), tensor.Ones(Float32, 4, 1)
		check(t, m.TrainStep(background, Batch{X: x, Y: y}))
		for _, w := range l.Weights() {
			if !strings.HasSuffix(w.Name(), "outputs_grad_amax_history") {
				continue
			}
			h, err := w.Float64s()
			check(t, err)
			want := scale * 2 * 1 / 4 // the derivative of (0-1)²/4
			if scale == 1<<40 {
				want = 0 // it is no number of float16
			}
			if h[0] != want || h[1] != 0 {
				t.Errorf("scale %v: got history %v …, want %v and zeros", scale, h[:3], want)
			}
		}
		r, err := o.Result()
		check(t, err)
		if r.Applied != (scale < 1<<40) {
			t.Errorf("scale %v: got %+v", scale, r)
		}
	}
}
