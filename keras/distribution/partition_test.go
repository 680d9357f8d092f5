package distribution_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/mezzo-ml/mezzo/backend"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/checkpoint"
	"github.com/mezzo-ml/mezzo/keras/distribution"
	"github.com/mezzo-ml/mezzo/keras/saving"
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/losses"
	"github.com/mezzo-ml/mezzo/optimizers"
)

// elementwise are optimizers whose slots ranks divide, with clipping, weight decay,
// moving averages of weights and accumulated gradients.
var elementwise = map[string]func() optimizers.Optimizer{
	"sgd":   func() optimizers.Optimizer { return &optimizers.SGD{Momentum: 0.9, Nesterov: true} },
	"plain": func() optimizers.Optimizer { return &optimizers.SGD{LearningRate: 0.1, GlobalClipNorm: 0.1} },
	"rmsprop": func() optimizers.Optimizer {
		return &optimizers.RMSprop{Momentum: 0.9, Centered: true, ClipValue: 0.01}
	},
	"adam":  func() optimizers.Optimizer { return &optimizers.Adam{AMSGrad: true, GlobalClipNorm: 0.1} },
	"parts": func() optimizers.Optimizer { return &optimizers.Adam{} }, // of gradients, which adam clips by their norm
	"sums":  func() optimizers.Optimizer { return &optimizers.Adam{GradientAccumulationSteps: 2} },
	"adamw": func() optimizers.Optimizer {
		return &optimizers.AdamW{ClipNorm: 0.1, UseEMA: true, EMAOverwriteFrequency: 2}
	},
	"accumulate": func() optimizers.Optimizer {
		return &optimizers.AdamW{GradientAccumulationSteps: 2, GlobalClipNorm: 0.1}
	},
	"adamax":   func() optimizers.Optimizer { return &optimizers.Adamax{} },
	"nadam":    func() optimizers.Optimizer { return &optimizers.Nadam{} },
	"adagrad":  func() optimizers.Optimizer { return &optimizers.Adagrad{} },
	"adadelta": func() optimizers.Optimizer { return &optimizers.Adadelta{LearningRate: 1} },
	"ftrl":     func() optimizers.Optimizer { return &optimizers.Ftrl{L1RegularizationStrength: 1e-3} },
	"lion":     func() optimizers.Optimizer { return &optimizers.Lion{} },
	"multi": func() optimizers.Optimizer {
		return &optimizers.MultiOptimizer{OptimizerMap: optimizers.OptimizerMap{Default: &optimizers.Adam{},
			Entries: []optimizers.OptimizerEntry{{Variables: ".*bias", Optimizer: &optimizers.SGD{Momentum: 0.9}}}}}
	},
	"rounded": func() optimizers.Optimizer { return &optimizers.Adam{StochasticRounding: new(int64(3))} },
}

// divided is a model on a rank with constraints, and a bias of fewer elements than there
// are ranks.
// Steps that are not finite are skipped.
func divided(policy string, o optimizers.Optimizer, d *distribution.DataParallel) (*keras.Model, error) {
	m := keras.Sequential(
		&layers.Dense{Units: 9, Activation: "tanh", KernelConstraint: "max_norm", DType: policy},
		&layers.Dense{Units: 1, DType: policy},
		&layers.Dense{Units: 10, DType: policy},
	)
	if err := m.SetSeed(5); err != nil {
		return nil, err
	}
	return m, m.Compile(keras.CompileConfig{Optimizer: o, Loss: &losses.SparseCategoricalCrossentropy{FromLogits: true}, Distribution: d, NonFinite: keras.NonFiniteSkip})
}

// weights is the hash of a model's variables.
func weights(m *keras.Model) (string, error) {
	h := sha256.New()
	for _, v := range m.Variables() {
		b, err := v.Bytes()
		if err != nil {
			return "", err
		}
		h.Write(b)
	}
	return fmt.Sprintf("%x", h.Sum(nil)[:8]), nil
}

// TestZeroRedundancy: with the slots divided among ranks, weights have the same bits as
// without, for each element-wise optimizer, under three policies and with 16-bit weights;
// and Model.PlanMemory tells of a rank its share of the slots and no more.
func TestZeroRedundancy(t *testing.T) {
	x, y := samples(t, 48)
	bad := slices.Clone(x)
	bad[14*pixels] = float32(math.Inf(1)) // in the second batch of all ranks, in rows of one
	train := func(ranks int, name, policy string, zero bool) (sum string, bytes int) {
		x := x
		if name == "parts" {
			x = bad
		}
		err := distribution.Local(t.Context(), ranks, func(ctx context.Context, g *distribution.Group) error {
			m, err := divided(policy, elementwise[name](), &distribution.DataParallel{Group: g, Shards: 4, ZeroRedundancy: zero})
			if err != nil {
				return err
			}
			if _, err := m.Fit(ctx, dataset(x, y), keras.FitConfig{BatchSize: 12, Shuffle: new(bool), Output: io.Discard}); err != nil {
				return err
			}
			if w, err := m.TrainableVariables()[0].Values(); err != nil || w[0] != w[0] {
				return fmt.Errorf("a weight is %v, %v; the step with infinities was applied", w[0], err)
			}
			if err := g.Same(m, m.Optimizer()); err != nil || g.Rank() != 0 {
				return err
			}
			plan, err := m.PlanMemory(keras.Batch{X: tensor.New(x[:12*pixels], 12, pixels), Y: tensor.New(y[:12], 12)})
			if err != nil {
				return err
			}
			bytes = int(plan.Slots)
			sum, err = weights(m)
			return err
		})
		if err != nil {
			t.Fatalf("%s, %s, %d ranks: %v", name, policy, ranks, err)
		}
		return sum, bytes
	}
	for name := range elementwise {
		policies := []string{"float32"}
		switch name {
		case "adam", "parts", "sums", "adamw", "accumulate":
			policies = []string{"float32", "mixed_bfloat16", "mixed_float16"}
		case "rounded":
			policies = []string{"bfloat16"}
		}
		if testing.Short() { // under the race detector
			if name != "parts" && name != "accumulate" {
				continue
			}
			policies = policies[:1]
		}
		for _, policy := range policies {
			want, whole := train(1, name, policy, false)
			for _, ranks := range []int{1, 3, 4} {
				if ranks == 4 && name != "adam" && name != "parts" {
					continue
				}
				got, part := train(ranks, name, policy, true)
				if got != want {
					t.Errorf("%s, %s, %d ranks: weights %s, without ZeroRedundancy %s", name, policy, ranks, got, want)
				}
				// Three slots, of four kernels and biases that are filled up, and some scalars.
				if most := whole/ranks + 3*6*4 + 150; (name == "adam" || name == "sums") && policy == "float32" && part > most && !backend.Skipping() {
					t.Errorf("%s, %s, %d ranks: slots of %d bytes on a rank, of %d; want at most %d", name, policy, ranks, part, whole, most)
				}
			}
		}
	}
}

// TestScattered: the parts of gradients are those of the sums that Replicas returns, to the
// bit, of tensors smaller than the number of ranks and larger than what is packed at a
// time, in float32, float64 and on a 16-bit wire, in one exchange and in many.
func TestScattered(t *testing.T) {
	shapes := []tensor.Shape{{}, {2}, {3, 5}, {263, 401}, {1}, {70001}}
	for _, ranks := range []int{1, 2, 3, 5} {
		if testing.Short() && ranks != 3 {
			continue
		}
		for _, d := range []distribution.DataParallel{{Shards: 6}, {Shards: 5, Wire: dtype.BFloat16, BucketBytes: 1}, {BucketBytes: 1}} {
			err := distribution.Local(t.Context(), ranks, func(ctx context.Context, g *distribution.Group) error {
				d := d
				d.Group = g
				var in []*tensor.Tensor
				for i, s := range shapes {
					x := make([]float32, s.Size())
					for j := range x {
						x[j] = float32((j*(7+g.Rank())+i)%1009) / 31
					}
					in = append(in, tensor.New(x, s...))
				}
				in[2] = in[2].Cast(dtype.Float64)
				p := d.Partition()
				f := tensor.Function(func(in []*tensor.Tensor) []*tensor.Tensor {
					of := func(s distribution.Shard) (gradients, others []*tensor.Tensor) {
						for _, x := range in {
							gradients = append(gradients, x.MulScalar(float64(s.First+1)))
						}
						return gradients, nil
					}
					whole, _ := d.Replicas(12, of)
					parts, _ := d.ScatteredReplicas(12, of)
					for i := range whole {
						whole[i] = p.Own(whole[i])
					}
					return append(whole, parts...)
				})
				out, err := f.Call(ctx, in)
				if err != nil {
					return err
				}
				for i := range shapes {
					want, err := out[i].Float64s()
					if err != nil {
						return err
					}
					got, err := out[len(shapes)+i].Float64s()
					if err != nil {
						return err
					}
					// A part of a sum on a 16-bit wire is rounded once; on the way back to
					// all it is the same number.
					if !slices.Equal(got, want) {
						return fmt.Errorf("rank %d: the part of %v is not that of the sum", g.Rank(), shapes[i])
					}
				}
				return nil
			})
			if err != nil {
				t.Errorf("%d ranks, %+v: %v", ranks, d, err)
			}
		}
	}
}

// TestZeroRedundancyResume: checkpoints have all slots, so that a training resumes on
// another number of ranks, and without ZeroRedundancy, to the same bits.
func TestZeroRedundancyResume(t *testing.T) {
	x, y := samples(t, 120)
	path := filepath.Join(t.TempDir(), "checkpoint")
	run := func(ranks int, zero, keep bool, stop int) (sum string) {
		t.Helper()
		err := distribution.Local(t.Context(), ranks, func(ctx context.Context, g *distribution.Group) error {
			m, err := divided("mixed_float16", &optimizers.Adam{}, &distribution.DataParallel{Group: g, Shards: 4, ZeroRedundancy: zero})
			if err != nil {
				return err
			}
			c := keras.FitConfig{BatchSize: 16, Epochs: 3, Output: io.Discard, SaveEvery: 2}
			if keep {
				c.Checkpoint = &checkpoint.Directory{Path: path, Keep: 1}
			}
			steps := 0
			inner, cancel := context.WithCancel(ctx)
			defer cancel()
			c.Callbacks = []keras.Callback{{BatchEnd: func(context.Context, *keras.Run) error {
				if steps++; steps == stop {
					cancel()
				}
				return nil
			}}}
			_, err = m.Fit(inner, dataset(x, y), c)
			var stopped *keras.Interrupted
			if errors.As(err, &stopped) && stop > 0 && stopped.Saved {
				return nil
			}
			if err != nil || g.Rank() != 0 {
				return err
			}
			sum, err = hash(m)
			return err
		})
		if err != nil {
			t.Fatalf("%d ranks: %v", ranks, err)
		}
		return sum
	}
	want := run(1, false, false, 0)
	run(3, true, true, 5)
	run(1, false, true, 4)
	run(2, true, true, 6)
	run(4, true, true, 3)
	if got := run(1, true, true, 0); got != want {
		t.Errorf("weights and slots %s after resumptions, %s without", got, want)
	}
}

// TestZeroRedundancyRefused: optimizers whose updates are not element-wise are refused when
// the model is compiled, on one rank too; and a rank cannot write its slots to a file.
func TestZeroRedundancyRefused(t *testing.T) {
	for _, o := range []optimizers.Optimizer{&optimizers.Lamb{}, &optimizers.Adafactor{}, &optimizers.Muon{}, &optimizers.ScheduleFreeAdamW{},
		&optimizers.MultiOptimizer{OptimizerMap: optimizers.OptimizerMap{Default: &optimizers.Lamb{}}}} {
		_, err := divided("mixed_float16", o, &distribution.DataParallel{ZeroRedundancy: true})
		if err == nil || !strings.Contains(err.Error(), "its slots cannot be divided among ranks (ZeroRedundancy): an update depends on other elements") {
			t.Errorf("%T: got %v, want it refused", o, err)
		}
	}
	x, y := samples(t, 12)
	dir := t.TempDir()
	err := distribution.Local(t.Context(), 2, func(ctx context.Context, g *distribution.Group) error {
		m, err := divided("float32", &optimizers.Adam{}, &distribution.DataParallel{Group: g, ZeroRedundancy: true})
		if err == nil {
			_, err = m.Fit(ctx, dataset(x, y), keras.FitConfig{Output: io.Discard})
		}
		if err != nil {
			return err
		}
		if err := saving.Save(filepath.Join(dir, fmt.Sprint(g.Rank(), ".keras")), m, saving.WithOptimizer(m.Optimizer())); err == nil || !strings.Contains(err.Error(), "its slots are divided among 2 ranks") {
			return fmt.Errorf("Save: got %v, want the slots named", err)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
