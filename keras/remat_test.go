package keras

import (
	"bytes"
	"testing"

	"github.com/mezzo-ml/mezzo/backend"
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/losses"
	"github.com/mezzo-ml/mezzo/optimizers"
)

// TestRemat: a residual network of nested models trains to the same bits when
// they are computed again in the backward pass, and in less memory.
func TestRemat(t *testing.T) {
	const blocks, rows, units = 8, 256, 32
	for _, name := range []string{"float32", "mixed_bfloat16", "mixed_float16"} {
		underPolicy(t, name)
		var state [2][]byte
		var plan [2]MemoryPlan
		for i := range 2 {
			x := Input(units)
			y := x
			for range blocks {
				in := Input(units)
				h := Apply(&layers.LayerNormalization{}, in)
				h = Apply(&layers.Dense{Units: 4 * units, Activation: "gelu"}, h)
				h = Apply(&layers.Dropout{Rate: 0.1}, h)
				h = Apply(&layers.BatchNormalization{}, h)
				h = Apply(&layers.Dense{Units: units}, h)
				h = Apply(&layers.Add{}, Tuple(in, h))
				m, err := NewModel(in, h)
				check(t, err)
				block := m.Layer()
				if i == 1 {
					block = layers.Remat(block)
				}
				y = Apply(block, y)
			}
			m, err := NewModel(x, y)
			check(t, err)
			check(t, m.Compile(CompileConfig{Optimizer: &optimizers.Adam{}, Loss: &losses.MeanSquaredError{}}))
			b := Batch{X: NewTensor(numbers(rows*units), rows, units), Y: NewTensor(numbers(rows*units), rows, units)}
			for range 3 {
				check(t, m.TrainStep(background, b))
			}
			for _, v := range m.Variables() {
				data, err := v.Bytes()
				check(t, err)
				state[i] = append(state[i], data...)
			}
			plan[i], err = m.PlanMemory(b)
			check(t, err)
		}
		if !bytes.Equal(state[0], state[1]) {
			t.Errorf("%s: the models differ", name)
		}
		// The input of each block is left, in the compute type, and while one is
		// computed again not more than 12 float32 values of its widest layer.
		size := 4
		if name != "float32" {
			size = 2
		}
		bound := Bytes(rows * units * (blocks*size + 12*4*4))
		if backend.Skipping() {
			continue
		}
		if plan[1].Activation >= plan[0].Activation || plan[1].Activation > bound {
			t.Errorf("%s: %d bytes of activations with Remat, %d without; want less, and at most %d", name, plan[1].Activation, plan[0].Activation, bound)
		}
		t.Logf("%s: %d bytes of activations with Remat, %d without", name, plan[1].Activation, plan[0].Activation)
	}
}
