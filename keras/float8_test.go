package keras

import (
	"math"
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

// unitsOf multiplies the last axis by constants in float32.
type unitsOf struct {
	Units       []float32
	Name, DType string
	layers.Base
}

func (l *unitsOf) Config() layers.Config          { return layers.Config{Name: l.Name, DType: "float32"} }
func (l *unitsOf) Build(in ...layers.Shape) error { return nil }
func (l *unitsOf) Call(_ layers.Pass, x *Tensor) *Tensor {
	return x.Mul(NewTensor(l.Units, 1, len(l.Units)))
}

// TestFloat8Adaptive: the gradients of one layer span more than 8 bits hold, because its
// results have other units; what belongs to the small ones does not learn under
// mixed_float8. mixed_float8_adaptive leaves 8 bits there, and nowhere else.
func TestFloat8Adaptive(t *testing.T) {
	const n = 256
	x, y := numbers(4*n), make([]float32, 2*n)
	units := []float32{1e3, 1e-4}
	for i := range n {
		y[2*i], y[2*i+1] = units[0]*(x[4*i]+x[4*i+1]), units[1]*(x[4*i+2]-x[4*i])
	}
	data := FromTensors(NewTensor(x, n, 4), NewTensor(y, n, 2), nil)
	for _, c := range []struct {
		policy, note string
		fails        bool
	}{
		{"mixed_bfloat16", "", false},
		{"mixed_float8", "", true},
		{"mixed_float8_adaptive", "Formats of 8-bit products: 5 tensors in E4M3, 0 in E5M2, 1 in bfloat16: head gradients", false},
	} {
		underPolicy(t, c.policy)
		m := Sequential(&layers.Dense{Units: 32, Activation: "tanh"}, &layers.Dense{Units: 2, Name: "head"}, &unitsOf{Units: units})
		check(t, m.Compile(CompileConfig{Loss: &losses.MeanSquaredError{}, Optimizer: &optimizers.Adam{LearningRate: 0.02, Epsilon: 1e-15}}))
		fit(t, m, data, FitConfig{BatchSize: 32, Epochs: 20})
		p, err := m.Predict(background, NewTensor(x, n, 4))
		check(t, err)
		got, err := p.Values()
		check(t, err)
		var wrong, all [2]float64
		for i, v := range got {
			wrong[i%2] += math.Pow(float64(v-y[i]), 2)
			all[i%2] += math.Pow(float64(y[i]), 2)
		}
		large, small := math.Sqrt(wrong[0]/all[0]), math.Sqrt(wrong[1]/all[1])
		if large > 0.3 || (small > 0.5) != c.fails {
			t.Errorf("%s: relative errors %.2f and %.2f", c.policy, large, small)
		}
		if s := m.summary(200, false); strings.Contains(s, "Formats of 8-bit products") != (c.note != "") || !strings.Contains(s, c.note) {
			t.Errorf("%s: got the summary\n%s\nwant %q in it", c.policy, s, c.note)
		}
	}
}
