package keras

import (
	"testing"

	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/losses"
	"github.com/mezzo-ml/mezzo/optimizers"
)

// TestAttentionMemory: a training step of attention over sequences of twice
// the length takes twice the memory, not four times as much.
func TestAttentionMemory(t *testing.T) {
	plan := func(steps int) Bytes {
		in := Input(steps, 8)
		y := Apply(&layers.MultiHeadAttention{NumHeads: 2, KeyDim: 4, UseCausalMask: true, Dropout: 0.1}, in, in)
		m, err := NewModel(in, Apply(&layers.Dense{Units: 1}, y))
		check(t, err)
		check(t, m.Compile(CompileConfig{Optimizer: &optimizers.Adam{}, Loss: &losses.MeanSquaredError{}}))
		p, err := m.PlanMemory(Batch{X: tensor.Zeros(Float32, 2, steps, 8), Y: tensor.Zeros(Float32, 2, steps, 1)})
		check(t, err)
		return p.Peak
	}
	if a, b := plan(512), plan(1024); float64(b) > 2.2*float64(a) {
		t.Errorf("a step over 512 steps takes %d bytes, over 1024 %d", a, b)
	}
}
