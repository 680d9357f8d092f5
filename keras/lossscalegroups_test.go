package keras

import (
	"math"
	"strings"
	"testing"

	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/losses"
	"github.com/mezzo-ml/mezzo/optimizers"
)

// inUnits multiplies by a number in float32.
type inUnits struct {
	Unit        float64
	Name, DType string
	layers.Base
}

func (l *inUnits) Config() layers.Config          { return layers.Config{Name: l.Name, DType: "float32"} }
func (l *inUnits) Build(in ...layers.Shape) error { return nil }
func (l *inUnits) Call(_ layers.Pass, x *Tensor) *Tensor {
	return x.MulScalar(l.Unit)
}

// TestLossScaleGroups: of two outputs in other units, the loss scale that fits one makes
// the gradients of the other 0, which does not learn. With a scale of its own it learns as
// in float32, also where each layer is computed again in the backward pass.
func TestLossScaleGroups(t *testing.T) {
	const n = 256
	x := numbers(4 * n)
	large, small := make([]float32, n), make([]float32, n)
	for i := range n {
		large[i], small[i] = 300*(x[4*i]+x[4*i+1]), 1e-4*(x[4*i+2]-x[4*i])
	}
	data := FromTensors(NewTensor(x, n, 4), Tuple(NewTensor(large, n, 1), NewTensor(small, n, 1)), nil)
	scale := func(y []float32) (s float64) {
		for _, v := range y {
			s += float64(v) * float64(v) / n
		}
		return math.Sqrt(s)
	}
	groups := []optimizers.LossScaleGroup{{Layers: "small", InitialScale: 1 << 24}}
	for _, c := range []struct {
		policy string
		groups []optimizers.LossScaleGroup
		remat  bool
		fails  bool
	}{
		{"float32", nil, false, false},
		{"mixed_float16", nil, false, true},
		{"mixed_float16", groups, false, false},
		{"mixed_float16", groups, true, false},
		{"mixed_bfloat16", groups, false, false},
		{"auto_float16", groups, false, false},
	} {
		underPolicy(t, c.policy)
		in := Input(4)
		tower := func(name string, unit float64) *Tensor {
			l := Sequential(&layers.Dense{Units: 16, Activation: "tanh"}, &layers.Dense{Units: 1}).Named(name).Layer()
			if c.remat {
				l = layers.Remat(l)
			}
			return Apply(&inUnits{Unit: unit}, Apply(l, in))
		}
		m, err := NewModel(in, Tuple(tower("large", 300), tower("small", 1e-4)))
		check(t, err)
		o := &optimizers.LossScaleOptimizer{Inner: &optimizers.Adam{LearningRate: 0.02, Epsilon: 1e-15}, Groups: c.groups}
		check(t, m.Compile(CompileConfig{Loss: &losses.MeanSquaredError{}, Optimizer: o}))
		fit(t, m, data, FitConfig{BatchSize: 32, Epochs: 15})
		scores, err := m.Evaluate(background, data.Batch(64))
		check(t, err)
		ofLarge, ofSmall := math.Sqrt(scores.Get("in_units_loss"))/scale(large), math.Sqrt(scores.Get("in_units_1_loss"))/scale(small)
		if ofLarge > 0.3 || (ofSmall > 0.3) != c.fails {
			t.Errorf("%s, groups %v, remat %v: relative errors %.2f and %.2f", c.policy, c.groups, c.remat, ofLarge, ofSmall)
		}
		if has := strings.Contains(m.summary(100, false), "Layers small have a loss scale of their own"); has != (c.groups != nil) {
			t.Errorf("%s, groups %v: got the summary\n%s", c.policy, c.groups, m.summary(100, false))
		}
	}
}
