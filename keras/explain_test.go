package keras

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/mezzo-ml/mezzo/keras/exponents"
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/losses"
	"github.com/mezzo-ml/mezzo/optimizers"
)

// TestExplain: the table of a step whose numbers are known.
func TestExplain(t *testing.T) {
	underPolicy(t, "mixed_float16")
	m := Sequential(&layers.Dense{Units: 1, Name: "head", KernelInitializer: "constant(0.25)", UseBias: new(false)})
	check(t, m.Compile(CompileConfig{Loss: &losses.MeanSquaredError{}, Optimizer: &optimizers.LossScaleOptimizer{Inner: &optimizers.SGD{}, InitialScale: 256}}))
	b := Batch{X: NewTensor(slices.Repeat([]float32{1}, 8*4), 8, 4), Y: NewTensor(make([]float32, 8), 8, 1)}
	var out strings.Builder
	check(t, m.Explain(background, b, &out))
	// 4·¼ = 1; 2·1/8·256 = 64 by the output, 8·64 = 512 by the kernel.
	want := `Model: "sequential"
┏━━━━━━━┳━━━━━━━━━┳━━━━━━━━━━━━━━┳━━━━━━━━━━━━━┳━━━━━━━━━━━━━━━━━┳━━━━━━━━━━━┳━━━━━━━━━━━━━━━━━┓
┃ Layer ┃ Compute ┃ Weights      ┃ Activations ┃ Lost in float16 ┃ Gradients ┃ Lost in float16 ┃
┡━━━━━━━╇━━━━━━━━━╇━━━━━━━━━━━━━━╇━━━━━━━━━━━━━╇━━━━━━━━━━━━━━━━━╇━━━━━━━━━━━╇━━━━━━━━━━━━━━━━━┩
│ head  │ float16 │ 2^-2 … 2^-2  │ 2^0 … 2^0   │ 0 %             │ 2^6 … 2^9 │ 0 %             │
└───────┴─────────┴──────────────┴─────────────┴─────────────────┴───────────┴─────────────────┘
 Loss scale 256: the largest gradients are near 2^9, and fit float16 up to a scale of 2^14; unscaled, 0 % of all would be 0
`
	if got := out.String(); !sameTable(got, want) {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	for _, c := range []struct {
		values []float32
		scale  float64
		scaled bool
		want   string
	}{
		{[]float32{0, 0}, 1, false, " Gradients: none that are finite and not 0\n"},
		{[]float32{0x1p-30, 0x1p-4, 0, 1}, 1, false, " No loss scale: the largest gradients are near 2^0; in float16 25 % of all would be 0, and a scale of up to 2^15 would fit\n"},
		{[]float32{0x1p-20, 0x1p6, 1, 1}, 1024, true, " Loss scale 1024: the largest gradients are near 2^6, and fit float16 up to a scale of 2^19; unscaled, 25 % of all would be 0\n"},
		{[]float32{1, float32(math.Inf(1))}, 8, true, " Loss scale 8: 50 % of the gradients are not finite; a step like this one is skipped\n"},
		{[]float32{0x1p-30, 0x1p-30}, 1, false, " No loss scale: the largest gradients are near 2^-30; in float16 100 % of all would be 0, and a scale of up to 2^45 would fit\n"},
		{slices.Concat(slices.Repeat([]float32{0x1p-30}, 299), []float32{1}), 1, false, " No loss scale: the largest gradients are near 2^0; in float16 99.7 % of all would be 0, and a scale of up to 2^15 would fit\n"},
	} {
		var h exponents.Histogram
		h.Add(c.values...)
		var out strings.Builder
		explainScale(&out, &h, c.scale, c.scaled)
		if out.String() != c.want {
			t.Errorf("got %q, want %q", out.String(), c.want)
		}
	}
}

// sameTable compares without the widths of columns.
func sameTable(a, b string) bool {
	squeeze := func(s string) string {
		return strings.Join(strings.Fields(strings.NewReplacer("━", "", "─", "").Replace(s)), " ")
	}
	return squeeze(a) == squeeze(b)
}
