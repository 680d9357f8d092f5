package distribution_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/distribution"
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/losses"
	"github.com/mezzo-ml/mezzo/optimizers"
)

// normalized is a network with batch normalization for inputs [rows 6 4].
type normalized struct {
	name   string
	layers func(policy string, remat bool) []layers.Layer
}

// networks have batch normalization over the last axis, over another one, and of steps
// that a mask hides, some of whole samples.
var networks = []normalized{
	{"features", func(policy string, remat bool) []layers.Layer {
		return []layers.Layer{
			&layers.Dense{Units: 5, DType: policy},
			again(&layers.BatchNormalization{Synchronized: true, DType: policy}, remat),
			&layers.Activation{Activation: "tanh", DType: policy},
			again(&layers.BatchNormalization{Synchronized: true, DType: policy}, remat),
		}
	}},
	{"axis", func(policy string, remat bool) []layers.Layer {
		return []layers.Layer{again(&layers.BatchNormalization{Axis: new(1), Synchronized: true, DType: policy}, remat), &layers.Dense{Units: 3, DType: policy}}
	}},
	{"mask", func(policy string, remat bool) []layers.Layer {
		return []layers.Layer{&layers.Masking{DType: policy}, &layers.Dense{Units: 5, DType: policy}, again(&layers.BatchNormalization{Synchronized: true, DType: policy}, remat)}
	}},
}

func again(l layers.Layer, remat bool) layers.Layer {
	if remat {
		return layers.Remat(l)
	}
	return l
}

const (
	normalizedRows  = 22
	normalizedWidth = 6 * 4
)

// inputs are the samples of networks: of the features some have means far from 0, and some
// steps are 0, which a Masking hides: all steps of the first samples.
func inputs() []float64 {
	r := rand.New(rand.NewPCG(3, 5))
	x := make([]float64, normalizedRows*normalizedWidth)
	for i := range x {
		x[i] = float64(float32(r.NormFloat64() + float64(i%4)))
		if step := i / 4; step < 6 || step%5 == 0 {
			x[i] = 0
		}
	}
	return x
}

// gradientsOf returns the gradients of a network's weights, its moving averages after a
// step, and its outputs' loss, in float64. The loss of a batch is a mean over its rows.
func (n normalized) gradientsOf(ctx context.Context, policy string, d *distribution.DataParallel, remat bool) (out [][]float64, err error) {
	m := keras.Sequential(n.layers(policy, remat)...)
	if err := m.SetSeed(7); err != nil {
		return nil, err
	}
	type T = *tensor.Tensor
	loss := func(x, y T) T {
		p := m.Call(x, keras.Training)
		if p.DType().Is16() {
			p = p.Widen()
		}
		return p.Sub(y.CastLike(p).Slice(2, 0, p.Dim(2))).Square().Mean()
	}
	f := tensor.Function(func(in []T) []T {
		if d == nil {
			l := loss(in[0], in[1])
			return append(tensor.Gradients(l, m.TrainableVariables()), l)
		}
		g, l := d.Replicas(normalizedRows, func(s distribution.Shard) (gradients, others []T) {
			l := loss(in[0].Slice(0, s.First, s.End), in[1].Slice(0, s.First, s.End))
			return tensor.Gradients(l, m.TrainableVariables()), []T{l}
		})
		return append(g, l...)
	}, m)
	x := inputs()
	y := make([]float64, len(x)/4*5)
	r := rand.New(rand.NewPCG(7, 11))
	for i := range y {
		y[i] = float64(float32(r.NormFloat64()))
	}
	in := []T{tensor.New(x, normalizedRows, 6, 4), tensor.New(y, normalizedRows, 6, 5)}
	if policy != "float64" {
		in = []T{tensor.New(narrow(x), normalizedRows, 6, 4), tensor.New(narrow(y), normalizedRows, 6, 5)}
	}
	results, err := f.Call(ctx, in)
	if err != nil {
		return nil, err
	}
	for _, r := range results {
		v, err := r.Float64s()
		if err != nil {
			return nil, err
		}
		out = append(out, v)
	}
	for _, v := range m.NonTrainableVariables() {
		x, err := v.Float64s()
		if err != nil {
			return nil, err
		}
		out = append(out, x)
	}
	return out, nil
}

func narrow(x []float64) []float32 {
	out := make([]float32, len(x))
	for i, v := range x {
		out[i] = float32(v)
	}
	return out
}

// TestSynchronized: with Synchronized, gradients and moving averages of a batch that is
// cut into shards are those of the plain layer on the whole batch, in float64 but for
// the order of sums, under each policy as exactly as its type computes; and they have
// the same bits for any number of ranks, also where a layer is computed again in the
// backward pass, and where there are more shards than rows.
func TestSynchronized(t *testing.T) {
	for _, n := range networks {
		exact, err := n.gradientsOf(t.Context(), "float64", nil, false)
		if err != nil {
			t.Fatalf("%s: %v", n.name, err)
		}
		for _, c := range []struct {
			policy string
			shards int
			// Of the sum of the absolute values: roundings of some hundred numbers, of values
			// in 16 bits that are rounded in each of four layers, forwards and backwards.
			tolerance float64
		}{
			{"float64", 4, 1e-12}, {"float64", 25, 1e-12}, {"float32", 4, 16 * dtype.Float32.Epsilon()},
			{"mixed_bfloat16", 4, 4 * dtype.BFloat16.Epsilon()}, {"mixed_float16", 4, 4 * dtype.Float16.Epsilon()},
		} {
			var first [][]float64
			for _, ranks := range []int{1, 2, 3, 4} {
				if testing.Short() && (n.name == "axis" || c.policy != "mixed_float16" || ranks != 3) { // under the race detector
					continue
				}
				if c.policy == "float64" && ranks%2 == 0 || n.name != "features" && ranks != 1 && ranks != 3 {
					continue
				}
				for _, remat := range []bool{false, true} {
					if remat && (ranks != 3 || c.policy == "float64") {
						continue
					}
					err := distribution.Local(t.Context(), ranks, func(ctx context.Context, g *distribution.Group) error {
						got, err := n.gradientsOf(ctx, c.policy, &distribution.DataParallel{Group: g, Shards: c.shards}, remat)
						if err != nil || g.Rank() != 0 {
							return err
						}
						if first == nil {
							first = got
						}
						for i := range got {
							scale := 0.25 // about the absolute values of what adds up to a gradient
							for _, x := range exact[i] {
								scale = max(scale, math.Abs(x))
							}
							for j, x := range got[i] {
								if x != first[i][j] {
									return fmt.Errorf("result %d, element %d is %v; on one rank %v", i, j, x, first[i][j])
								}
								if !(math.Abs(x-exact[i][j]) <= c.tolerance*scale) {
									return fmt.Errorf("result %d, element %d is %v, want %v", i, j, x, exact[i][j])
								}
							}
						}
						return nil
					})
					if err != nil {
						t.Errorf("%s, %s, %d ranks, %d shards, remat %v: %v", n.name, c.policy, ranks, c.shards, remat, err)
					}
				}
			}
		}
	}
}

// TestSynchronizedFit: Fit of a network with Synchronized ends with the same bits on any
// number of ranks, with a short last batch, and its file says so.
func TestSynchronizedFit(t *testing.T) {
	x, y := samples(t, 70)
	for _, policy := range []string{"float32", "mixed_bfloat16", "mixed_float16"} {
		if testing.Short() && policy != "float32" {
			continue
		}
		want := ""
		for _, ranks := range []int{1, 3, 4} {
			err := distribution.Local(t.Context(), ranks, func(ctx context.Context, g *distribution.Group) error {
				m := keras.Sequential(
					&layers.Reshape{TargetShape: []int{28, 28, 1}},
					&layers.Conv2D{Filters: 4, KernelSize: layers.PerAxis{3}, Strides: layers.PerAxis{3}, DType: policy},
					&layers.BatchNormalization{Synchronized: true, DType: policy},
					&layers.Activation{Activation: "relu", DType: policy},
					&layers.Flatten{},
					&layers.Dense{Units: 10, DType: policy},
				)
				err := m.Compile(keras.CompileConfig{Optimizer: &optimizers.Adam{LearningRate: 0.01}, Loss: &losses.SparseCategoricalCrossentropy{FromLogits: true},
					Distribution: &distribution.DataParallel{Group: g, Shards: 4}})
				if err != nil {
					return err
				}
				if err := m.SetSeed(3); err != nil {
					return err
				}
				if _, err := m.Fit(ctx, dataset(x, y), keras.FitConfig{BatchSize: 32, Epochs: 1, Output: io.Discard}); err != nil {
					return err
				}
				if err := g.Same(m, m.Optimizer()); err != nil || g.Rank() != 0 {
					return err
				}
				got, err := hash(m)
				if want == "" {
					want = got
				}
				if err != nil || got != want {
					return fmt.Errorf("weights %s, on one rank %s, %v", got, want, err)
				}
				config, err := layers.MarshalConfig(m.Layers()[2])
				if !bytes.Contains(config, []byte(`"synchronized":true`)) {
					return fmt.Errorf("the layer's config is %s, %v", config, err)
				}
				return err
			})
			if err != nil {
				t.Errorf("%s, %d ranks: %v", policy, ranks, err)
			}
		}
	}
}

// TestSynchronizedAlone: without other shards the layer is the plain one; in a loop whose
// ranks add up gradients it would be, and is refused.
func TestSynchronizedAlone(t *testing.T) {
	n := normalized{"plain", func(policy string, _ bool) []layers.Layer {
		return []layers.Layer{&layers.Dense{Units: 5}, &layers.BatchNormalization{}}
	}}
	synchronized := normalized{"synchronized", func(policy string, _ bool) []layers.Layer {
		return []layers.Layer{&layers.Dense{Units: 5}, &layers.BatchNormalization{Synchronized: true}}
	}}
	want, err := n.gradientsOf(t.Context(), "float32", nil, false)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range []*distribution.DataParallel{nil, {}} {
		got, err := synchronized.gradientsOf(t.Context(), "float32", d, false)
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("Distribution %v: got %v, %v; want the results of the plain layer, %v", d, got, err, want)
		}
	}
	err = distribution.Local(t.Context(), 2, func(ctx context.Context, g *distribution.Group) error {
		m := keras.Sequential(&layers.BatchNormalization{Synchronized: true, Name: "norm"})
		dp := &distribution.DataParallel{Group: g}
		f := tensor.Function(func(x *tensor.Tensor) []*tensor.Tensor {
			return dp.AllReduce(tensor.Gradients(m.Call(x, keras.Training).Mean(), m.TrainableVariables()))
		}, m)
		_, err := f.Call(ctx, tensor.Zeros(dtype.Float32, 2, 3))
		return err
	})
	const text = "norm: AllReduce: its statistics are those of one rank, but Synchronized is set; compute the gradients in DataParallel.Replicas, as Fit does"
	if err == nil || !strings.Contains(err.Error(), text) {
		t.Errorf("got %v, want %q", err, text)
	}
}
