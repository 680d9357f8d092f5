package layers_test

import (
	"context"
	"math"
	"slices"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/op"
	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/layers/layertest"
	"github.com/mezzo-ml/mezzo/policy"
)

// TestCallArgs: an argument of a call does what the field does for all calls,
// to the bit, and leaves other calls of the layer alone.
func TestCallArgs(t *testing.T) {
	x := tensor.New(slices.Repeat([]float32{0.5, -1, 2, 0.25, 1, -0.5}, 4), 2, 3, 4)
	in := tensor.Tuple(x, x)
	elements := func(y *tensor.Tensor) (all [][]float64) {
		for _, p := range y.Unpack() {
			data, err := p.Float64s()
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, data)
		}
		return all
	}
	equal := func(a, b [][]float64) bool { return slices.EqualFunc(a, b, slices.Equal) }
	for _, c := range []struct {
		plain layers.Layer
		field layers.Layer
		args  layers.Args
	}{
		{&layers.Attention{}, &layers.Attention{UseCausalMask: true}, layers.Args{UseCausalMask: true}},
		{&layers.Attention{}, &layers.Attention{ReturnAttentionScores: true}, layers.Args{ReturnAttentionScores: true}},
		{&layers.AdditiveAttention{}, &layers.AdditiveAttention{UseCausalMask: true, ReturnAttentionScores: true}, layers.Args{UseCausalMask: true, ReturnAttentionScores: true}},
		{&layers.MultiHeadAttention{NumHeads: 2, KeyDim: 3}, &layers.MultiHeadAttention{NumHeads: 2, KeyDim: 3, UseCausalMask: true}, layers.Args{UseCausalMask: true}},
		{&layers.MultiHeadAttention{NumHeads: 2, KeyDim: 3}, &layers.MultiHeadAttention{NumHeads: 2, KeyDim: 3, UseCausalMask: true, ReturnAttentionScores: true}, layers.Args{UseCausalMask: true, ReturnAttentionScores: true}},
		{&layers.GroupQueryAttention{HeadDim: 3, NumQueryHeads: 2, NumKeyValueHeads: 1}, &layers.GroupQueryAttention{HeadDim: 3, NumQueryHeads: 2, NumKeyValueHeads: 1, UseCausalMask: true}, layers.Args{UseCausalMask: true}},
	} {
		before := elements(layers.Apply(c.plain, layers.Pass{}, in))
		got := elements(layers.Apply(layers.With(c.plain, c.args), layers.Pass{}, in))
		want := elements(layers.Apply(c.field, layers.Pass{}, in))
		if !equal(got, want) {
			t.Errorf("%s with %+v: got %v, want %v as with the field", layers.Class(c.plain), c.args, got, want)
		}
		if c.args.UseCausalMask && equal(got[:1], before) {
			t.Errorf("%s with %+v: got what a call without gives", layers.Class(c.plain), c.args)
		}
		if again := elements(layers.Apply(c.plain, layers.Pass{}, in)); !equal(again, before) {
			t.Errorf("%s: a call with arguments changed those without", layers.Class(c.plain))
		}
	}
	causal := layers.With(layers.With(&layers.Dense{Units: 2}, layers.Args{UseCausalMask: true}), layers.Args{})
	layertest.BadField(t, causal, "layer dense: Call: got argument UseCausalMask, which a Dense does not take, want one of []")
	reversed := layers.With(&layers.Attention{}, layers.Args{Reverse: true})
	layertest.BadField(t, reversed, "layer attention: Call: got argument Reverse, which a Attention does not take, want one of [UseCausalMask ReturnAttentionScores]", f32(2, 3, 4), f32(2, 3, 4))
	if l, a := layers.Unwrap(causal); layers.Class(causal) != "Dense" || layers.Class(l) != "Dense" || !a.UseCausalMask {
		t.Errorf("Unwrap: got %s with %+v", layers.Class(l), a)
	}
}

// TestReversibleEmbedding: one matrix both ways, whose gradient is the sum of
// both; results of the way back have ReverseDtype.
func TestReversibleEmbedding(t *testing.T) {
	defer policy.SetGlobal(policy.SetGlobal("mixed_bfloat16"))
	e := &layers.ReversibleEmbedding{InputDim: 3, OutputDim: 2, ReverseDtype: "float32", LogitSoftCap: 3}
	ids := tensor.New([]int32{2, 0}, 2)
	back := layers.With(e, layers.Args{Reverse: true})
	layers.Apply(e, layers.Pass{}, tensor.Placeholder(dtype.Int32, op.Unknown))
	w := layers.BaseOf(e).Weights()[0]
	if err := w.Set([]float64{1, 2, 0.5, -1, 4, 0.25}); err != nil {
		t.Fatal(err)
	}
	type results struct{ Logits, Grad *tensor.Tensor }
	got, err := tensor.Function(func(x *tensor.Tensor) results {
		y := layers.Apply(back, layers.Pass{}, layers.Apply(e, layers.Pass{}, x))
		return results{y, tensor.Gradients(y.Sum(), []*tensor.Variable{w.Variable})[0]}
	}, layers.BaseOf(e)).Call(context.Background(), ids)
	if err != nil {
		t.Fatal(err)
	}
	if got.Logits.DType() != dtype.Float32 {
		t.Errorf("logits: got %v, want float32", got.Logits.Type())
	}
	rows := [][]float64{{1, 2}, {0.5, -1}, {4, 0.25}}
	var logits []float64
	grad := make([]float64, 6)
	for _, i := range []int{2, 0} {
		for j, row := range rows {
			z := math.Tanh((rows[i][0]*row[0] + rows[i][1]*row[1]) / 3)
			logits = append(logits, 3*z)
			for k := range 2 {
				grad[2*i+k] += (1 - z*z) * row[k]
				grad[2*j+k] += (1 - z*z) * rows[i][k]
			}
		}
	}
	compare := func(what string, y *tensor.Tensor, want []float64, tol float64) {
		data, err := y.Float64s()
		if err != nil {
			t.Fatal(err)
		}
		for i, x := range data {
			if !(math.Abs(x-want[i]) <= tol) {
				t.Errorf("%s %d: got %v, want %v", what, i, x, want[i])
			}
		}
	}
	// All elements are exact in 16 bits and results of at most 3; the gradient
	// of the rows passes through bfloat16 once, at up to 5.
	compare("logit", got.Logits, logits, 8*3*dtype.Float32.Epsilon())
	compare("gradient", got.Grad, grad, 5*dtype.BFloat16.Epsilon())
	layertest.BadField(t, back, "layer reversible_embedding: Call: got float32[? 4] in reverse, want vectors of 2 numbers")
	layertest.BadField(t, back, "layer reversible_embedding: Call: got int32[2], want floats; Cast the data, or use keras.Input(…), which is for floats", i32(2))
}
