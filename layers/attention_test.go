package layers_test

import (
	"math"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/policy"
)

// TestFusedAttention: layers that do not return their scores compute the same
// as those that do, with all masks and the same weights dropped.
func TestFusedAttention(t *testing.T) {
	type fields struct {
		causal, scores bool
		dropout        float64
		window         *int
	}
	makers := map[string]func(f fields) layers.Layer{
		"attention": func(f fields) layers.Layer {
			return &layers.Attention{Name: "a", UseScale: true, UseCausalMask: f.causal, ReturnAttentionScores: f.scores, Dropout: f.dropout}
		},
		"multi-head": func(f fields) layers.Layer {
			return &layers.MultiHeadAttention{Name: "a", NumHeads: 3, KeyDim: 4, ValueDim: 5, SlidingWindow: f.window,
				UseCausalMask: f.causal, ReturnAttentionScores: f.scores, Dropout: f.dropout}
		},
		"group query": func(f fields) layers.Layer {
			return &layers.GroupQueryAttention{Name: "a", NumQueryHeads: 4, NumKeyValueHeads: 2, HeadDim: 4, SlidingWindow: f.window,
				UseCausalMask: f.causal, ReturnAttentionScores: f.scores, Dropout: f.dropout}
		},
	}
	random := func(shape ...int) *tensor.Tensor {
		return tensor.RandomUniform(tensor.New([]int64{int64(len(shape)), int64(shape[1])}, 2), 0, shape...).MulScalar(2).AddScalar(-1)
	}
	q := random(2, 6, 8).WithMask(tensor.New([]bool{true, true, true, false, true, true, false, false, true, true, true, true}, 2, 6))
	v := random(2, 7, 8).WithMask(tensor.New([]bool{true, true, false, true, true, true, false, true, true, true, true, true, false, false}, 2, 7))
	for name, make := range makers {
		for _, f := range []fields{{}, {causal: true}, {dropout: 0.3}, {causal: true, dropout: 0.2, window: new(3)}} {
			for _, p := range []string{"float32", "mixed_bfloat16", "mixed_float16"} {
				func() {
					defer policy.SetGlobal(policy.SetGlobal(p))
					var got [2]*tensor.Tensor
					for i, scores := range []bool{true, false} {
						f.scores = scores
						got[i] = layers.Apply(make(f), layers.Pass{Training: true}, tensor.Tuple(q, v)).Parts()[0]
					}
					want, err := got[0].Values()
					if err != nil {
						t.Fatal(err)
					}
					have, err := got[1].Values()
					if err != nil {
						t.Fatal(err)
					}
					// Weights are rounded to the compute type, or not, and
					// results of magnitude 1 are.
					rel, _ := got[0].DType().Tolerance()
					for i, w := range want {
						if diff := math.Abs(float64(have[i] - w)); !(diff <= 2*rel) {
							t.Fatalf("%s %+v under %s: element %d is %v, with scores %v", name, f, p, i, have[i], w)
						}
					}
				}()
			}
		}
	}
}
