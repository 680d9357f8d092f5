package layers_test

import (
	"math"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/dtype"
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
						got[i] = layers.Apply(make(f), layers.Pass{Training: true}, tensor.Tuple(q, v)).Unpack()[0]
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

// TestFusedAttentionFar: however large scores are, results and gradients of layers
// that do not return them are as exact as those of layers that do.
func TestFusedAttentionFar(t *testing.T) {
	random := func(seed int64, shape ...int) *tensor.Tensor {
		return tensor.RandomUniform(tensor.New([]int64{seed, 0}, 2), 0, shape...).MulScalar(2).AddScalar(-1)
	}
	values := func(x *tensor.Tensor) []float32 {
		v, err := x.Values()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	const steps, features = 50, 8
	for _, size := range []float64{1, 4e2, 4e4, 5e6, 5e8, 5e10, 1e30} {
		var inputs []*tensor.Tensor
		for i := range 3 {
			x := random(int64(i), 2, steps, features)
			if i != 1 { // query and key
				x = x.MulScalar(math.Sqrt(size / 3)) // sums of 8 products reach that
			}
			inputs = append(inputs, x)
		}
		by := random(3, 2, steps, features)
		// compute is the result of a layer, and its gradients by query, value and key.
		compute := func(d dtype.DType, scores bool) (all [4][]float32) {
			var x []*tensor.Tensor
			for _, in := range inputs {
				x = append(x, in.Cast(d))
			}
			layer := &layers.Attention{Name: "a", ReturnAttentionScores: scores, DType: d.String()}
			y := layers.Apply(layer, layers.Pass{}, tensor.Tuple(x...)).Unpack()[0]
			all[0] = values(y)
			for i, g := range tensor.GradientsAt(y.Mul(by.Cast(d)).Sum(), x...) {
				all[i+1] = values(g)
			}
			return all
		}
		want, kept, fused := compute(dtype.Float64, true), compute(dtype.Float32, true), compute(dtype.Float32, false)
		for i, name := range []string{"the result", "the query's gradient", "the value's gradient", "the key's gradient"} {
			var off, offKept, all float64
			for j, w := range want[i] {
				off += math.Pow(float64(fused[i][j]-w), 2)
				offKept += math.Pow(float64(kept[i][j]-w), 2)
				all += math.Pow(float64(w), 2)
			}
			// Roundings that both have, in another order.
			off, offKept, most := math.Sqrt(off), math.Sqrt(offKept), dtype.Float32.Epsilon()*math.Sqrt(all)
			if !(off <= 1.5*offKept+2*most) {
				t.Errorf("scores of %v: %s is off by %.2g of its size, with scores by %.2g", size, name, off/math.Sqrt(all), offKept/math.Sqrt(all))
			}
		}
	}
}
