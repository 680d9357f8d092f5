package keras

import (
	"slices"
	"testing"

	"github.com/mezzo-ml/mezzo/keras/exponents"
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/losses"
	"github.com/mezzo-ml/mezzo/optimizers"
)

// TestExponents: the counts are those of the numbers that a layer makes, and a
// loss scale moves gradients by its binades, and nothing else.
func TestExponents(t *testing.T) {
	batch := Batch{X: NewTensor(slices.Repeat([]float32{1}, 8*4), 8, 4), Y: NewTensor(make([]float32, 8), 8, 1)}
	counted := func(policyName string, scale float64) []LayerExponents {
		underPolicy(t, policyName)
		m := Sequential(
			&layers.Dense{Units: 16, Name: "inner", KernelInitializer: "constant(0.5)", UseBias: new(false)}, // 4·½ = 2
			&layers.Dropout{Rate: 0},
			&layers.Dense{Units: 1, Name: "head", KernelInitializer: "constant(0.25)", UseBias: new(false)}, // 16·2/4 = 8
		)
		var o optimizers.Optimizer = &optimizers.SGD{}
		if scale > 0 {
			o = &optimizers.LossScaleOptimizer{Inner: o, InitialScale: scale}
		}
		check(t, m.Compile(CompileConfig{Optimizer: o, Loss: &losses.MeanSquaredError{}}))
		check(t, m.buildFor(batch.X))
		before := bits(t, m)
		all, err := m.Exponents(background, batch)
		check(t, err)
		if !same(before, bits(t, m)) {
			t.Errorf("%s: a weight has changed", policyName)
		}
		return all
	}
	only := func(name string, h exponents.Histogram, binades ...int) {
		t.Helper()
		n := h.Zeros + h.NonFinite
		for _, e := range binades {
			if h.Binade(e) == 0 {
				t.Errorf("%s: nothing in binade %d", name, e)
			}
			n += h.Binade(e)
		}
		if first, last, _ := h.Range(); n != h.Count {
			t.Errorf("%s: got binades %d to %d, want %v alone", name, first, last, binades)
		}
	}
	// The gradient of the loss by the output of the head is 2·8/8 = 2; by its
	// kernel 8·2·2 = 32, and by its input 2/4.
	for _, name := range []string{"float32", "mixed_bfloat16", "mixed_float16"} {
		scale := 0.0
		if name == "mixed_float16" {
			scale = 256
		}
		all := counted(name, scale)
		if len(all) != 2 || all[0].Layer != "inner" || all[1].Layer != "head" {
			t.Fatalf("%s: got %+v", name, all)
		}
		shift := 0
		if scale > 0 {
			shift = 8
		}
		only(name+": inner weights", all[0].Weights, -1)
		only(name+": inner activations", all[0].Activations, 1)
		only(name+": head weights", all[1].Weights, -2)
		only(name+": head activations", all[1].Activations, 3)
		expected := []int{5 + shift, -1 + shift}
		if name != "float32" {
			expected = append(expected, 1+shift) // the first one, which the layer rounds to its type
		}
		only(name+": head gradients", all[1].Gradients, expected...)
		if all[0].Gradients.Binade(2+shift) == 0 { // 8·½·1 by the kernel
			t.Errorf("%s: got gradients %+v of the inner kernel", name, all[0].Gradients)
		}
		if all[0].Weights.Count != 64 || all[0].Activations.Count != 8*16 {
			t.Errorf("%s: got %d weights and %d activations, want 64 and 128", name, all[0].Weights.Count, all[0].Activations.Count)
		}
	}
}
