package layers_test

import (
	"bytes"
	"context"
	"math"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/layers/layertest"
)

// spread is a matrix whose elements have magnitudes around 1, but for a share of them
// around small.
func spread(rows, cols int, share, small float64) *tensor.Tensor {
	data := make([]float32, rows*cols)
	for i := range data {
		v := math.Sin(float64(i)) + math.Copysign(1, math.Sin(float64(i)))
		if float64(i) < share*float64(len(data)) {
			v *= small
		}
		data[i] = float32(v)
	}
	return tensor.New(data, rows, cols)
}

func buildFloat8(t *testing.T, policy string, x *tensor.Tensor) *layers.Dense {
	t.Helper()
	l := &layers.Dense{Units: 8, DType: policy}
	if err := apply(l, layers.Pass{}, layertest.Symbols(x)); err != nil {
		t.Fatal(err)
	}
	return l
}

func formatsOf(t *testing.T, l layers.Layer) [3]layers.Float8Format {
	t.Helper()
	f, ok, err := layers.Float8Formats(l)
	if err != nil || !ok {
		t.Fatalf("got %v, %v", ok, err)
	}
	return f
}

// TestFloat8Choice: a tensor gets the narrowest format in which at most 1 % of its
// elements are lost, and keeps its format up to 5 %. Gradients of kernels are like those
// of mixed_float8 until then.
func TestFloat8Choice(t *testing.T) {
	const e4, e5, wide = layers.E4M3, layers.E5M2, layers.Wide16
	plain := spread(16, 8, 0, 0)
	l := buildFloat8(t, "mixed_float8_adaptive", plain)
	step := float8Step(l, true)
	if got := formatsOf(t, l); got != [3]layers.Float8Format{e4, e4, e5} {
		t.Errorf("before training: got formats %v", got)
	}
	for i, c := range []struct {
		share, small float64
		want         layers.Float8Format // of inputs and gradients
	}{
		{0, 1, e4},
		{0.5, 0x1p-20, e5},   // beyond E4M3's range of 2¹⁷
		{0.03, 0x1p-20, e5},  // E4M3 loses 3 %: not yet back
		{0.005, 0x1p-20, e4}, // one element of 128
		{0.03, 0x1p-20, e4},  // not yet away
		{0.5, 0x1p-40, wide}, // beyond E5M2's 2³²
		{0.03, 0x1p-40, wide},
		{0, 1, e4},
		{0.5, 0x1p-40, wide},
		{0.5, 0x1p-20, e5},
	} {
		x := spread(16, 8, c.share, c.small)
		for range 96 { // the mean forgets, and three decisions
			if _, err := step.Call(context.Background(), []*tensor.Tensor{x, x}); err != nil {
				t.Fatal(err)
			}
		}
		if got := formatsOf(t, l); got != [3]layers.Float8Format{c.want, e4, c.want} {
			t.Errorf("%d: %v %% of the elements of size %v: got formats %v, want %v", i, 100*c.share, c.small, got, c.want)
		}
		scale, err := float8Of(t, l, "inputs_scale").Item()
		if want := 2 / c.want.Largest(); err != nil || c.want != wide && math.Abs(scale/want-1) > 0.01 || c.want == wide && scale != 1 {
			t.Errorf("%d: got scale %v, %v, want about %v", i, scale, err, want)
		}
	}
}

// TestFloat8ChoiceBits: with the formats of mixed_float8 the products have its bits, in
// bfloat16 those of mixed_bfloat16.
func TestFloat8ChoiceBits(t *testing.T) {
	x, g := spread(16, 8, 0.2, 0x1p-9), spread(16, 8, 0.4, 0x1p-12)
	results := func(policy string, formats []layers.Float8Format, steps int) (out [][]byte) {
		l := buildFloat8(t, policy, x)
		for i, f := range formats {
			if err := float8Of(t, l, scaledTensors[i]+"_format").Set([]float64{float64(f), 0, 0, 0}); err != nil {
				t.Fatal(err)
			}
		}
		step := float8Step(l, true)
		var y []*tensor.Tensor
		for range steps {
			var err error
			if y, err = step.Call(context.Background(), []*tensor.Tensor{x, g}); err != nil {
				t.Fatal(err)
			}
		}
		for _, r := range y {
			b, err := r.Cast(dtype.Float32).Bytes()
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, b)
		}
		return out
	}
	equal := func(what string, a, b [][]byte) {
		for i := range a {
			if !bytes.Equal(a[i], b[i]) {
				t.Errorf("%s: result %d has other bits", what, i)
			}
		}
	}
	equal("mixed_float8", results("mixed_float8_adaptive", nil, 5), results("mixed_float8", nil, 5))
	wide := []layers.Float8Format{layers.Wide16, layers.Wide16, layers.Wide16}
	equal("mixed_bfloat16", results("mixed_float8_adaptive", wide, 5), results("mixed_bfloat16", nil, 5))
}
