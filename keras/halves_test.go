package keras

import (
	"bytes"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/mezzo-ml/mezzo/backend"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/op"
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/losses"
	"github.com/mezzo-ml/mezzo/optimizers"
)

// halvesModel has a layer that is used twice, and blocks that are computed again
// in the backward pass.
func halvesModel(t *testing.T) *Model {
	const units = 16
	x := Input(units)
	shared := &layers.Dense{Units: units, Activation: "gelu", KernelConstraint: "max_norm(max_value=2)"}
	y := Apply(shared, Apply(&layers.LayerNormalization{}, Apply(shared, x)))
	for range 2 {
		in := Input(units)
		h := Apply(&layers.Dense{Units: 2 * units, Activation: "relu"}, in)
		h = Apply(&layers.Dense{Units: units}, Apply(&layers.Dropout{Rate: 0.1}, h))
		m, err := NewModel(in, Apply(&layers.Add{}, Tuple(in, h)))
		check(t, err)
		y = Apply(layers.Remat(m.Layer()), y)
	}
	m, err := NewModel(x, Apply(&layers.Dense{Units: 3}, y))
	check(t, err)
	return m
}

// TestHalves: with copies of the weights in the compute type a training has the
// bits that it has when it casts them in each step: with every option of an
// optimizer, skipped steps, weights set in between, and averages exchanged.
func TestHalves(t *testing.T) {
	const rows = 8
	batch := func(first float32) Batch {
		x, y := numbers(rows*16), numbers(rows*3)
		x[0] = first
		return Batch{X: NewTensor(x, rows, 16), Y: NewTensor(y, rows, 3)}
	}
	good, bad := batch(0.5), batch(float32(math.Inf(1)))
	for _, name := range []string{"mixed_bfloat16", "mixed_float16"} {
		underPolicy(t, name)
		for what, make := range map[string]func() optimizers.Optimizer{
			"Adam":     func() optimizers.Optimizer { return &optimizers.Adam{} },
			"SGD":      func() optimizers.Optimizer { return &optimizers.SGD{GlobalClipNorm: 0.1} },
			"momentum": func() optimizers.Optimizer { return &optimizers.SGD{Momentum: 0.9, Nesterov: true} },
			"Lamb":     func() optimizers.Optimizer { return &optimizers.Lamb{} },
			"average": func() optimizers.Optimizer {
				return &optimizers.AdamW{UseEMA: true, EMAOverwriteFrequency: 2, ClipNorm: 1}
			},
			"accumulate": func() optimizers.Optimizer {
				return &optimizers.RMSprop{GradientAccumulationSteps: 2, ClipValue: 0.1, WeightDecay: new(0.01)}
			},
		} {
			what = fmt.Sprintf("%s, %s", name, what)
			var states [2][]byte
			for i := range states {
				m, optimizer := halvesModel(t), make()
				check(t, m.Compile(CompileConfig{Optimizer: optimizer, Loss: &losses.MeanSquaredError{}}))
				check(t, m.ready(good))
				if i == 1 {
					m.training.train.KeepCasts(false)
				}
				snapshot := func() {
					for _, v := range append(m.Variables(), m.training.optimizer.Variables()...) {
						b, err := v.Bytes()
						check(t, err)
						states[i] = append(states[i], b...)
					}
				}
				batches := []Batch{good, good, bad, good}
				if name == "mixed_bfloat16" { // nothing is skipped there
					batches = []Batch{good, good, good}
				}
				for _, b := range batches {
					check(t, m.TrainStep(background, b))
					snapshot()
				}
				w := m.TrainableVariables()[0]
				check(t, w.Set(fractions(w.Shape().Size())))
				check(t, m.TrainStep(background, good))
				snapshot()
				for range 2 {
					check(t, optimizers.SwapEMA(optimizer))
					out, err := m.Predict(background, good.X)
					check(t, err)
					data, err := out.Bytes()
					check(t, err)
					states[i] = append(states[i], data...)
				}
				check(t, m.TrainStep(background, good))
				check(t, optimizers.FinalizeVariables(optimizer))
				check(t, m.TrainStep(background, good))
				snapshot()
				if i == 1 || backend.Skipping() {
					continue
				}
				if n := testing.AllocsPerRun(5, func() { check(t, m.TrainStep(background, good)) }); n != 0 {
					t.Errorf("%s: %v allocations a step, want 0", what, n)
				}
				plan, err := m.training.train.Plan(good)
				check(t, err)
				inPlace := 0
				for o, v := range plan.Outputs {
					if v.Type.DType.Is16() && plan.Donated[o] >= 0 && v.Op != op.Identity {
						inPlace++
					}
				}
				// All but gain and shift of the normalization, and what Remat computes again.
				again := func(name string) bool { return strings.HasPrefix(name, "functional") }
				want := 0
				for _, v := range m.TrainableVariables() {
					if !again(v.Name()) && !strings.HasPrefix(v.Name(), "layer_normalization") {
						want++
					}
				}
				if want != 4 || inPlace != want {
					t.Errorf("%s: %d weights have copies that are written with them, want %d", what, inPlace, want)
				}
				for _, v := range plan.Values {
					if v.Op == op.Cast && v.Type.DType.Is16() && v.Args[0].Op == op.Param && v.Args[0].Type.DType == dtype.Float32 && v.Args[0].Path != "argument 0" && !again(v.Args[0].Path) {
						t.Errorf("%s: %v casts %s in each step", what, v, v.Args[0].Path)
					}
				}
			}
			if !bytes.Equal(states[0], states[1]) {
				t.Errorf("%s: copies of the weights change the training", what)
			}
		}
	}
}

// fractions is n numbers that float32 holds and 16 bits do not.
func fractions(n int) []float64 {
	x := make([]float64, n)
	for i := range x {
		x[i] = float64(float32(0.1 + float64(i%13)/97))
	}
	return x
}
