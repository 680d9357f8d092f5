package distribution_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/checkpoint"
	"github.com/mezzo-ml/mezzo/keras/data"
	"github.com/mezzo-ml/mezzo/keras/datasets/digits"
	"github.com/mezzo-ml/mezzo/keras/distribution"
	"github.com/mezzo-ml/mezzo/keras/metrics"
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/losses"
	"github.com/mezzo-ml/mezzo/optimizers"
)

// replica is a model on a rank: convolution, batch normalization and dropout, whose
// random numbers and statistics depend on how a batch is cut.
func replica(policy string, d *distribution.DataParallel) (*keras.Model, error) {
	m := keras.Sequential(
		&layers.Reshape{TargetShape: []int{28, 28, 1}},
		&layers.Conv2D{Filters: 4, KernelSize: layers.PerAxis{3}, Strides: layers.PerAxis{3}, Activation: "relu", DType: policy},
		&layers.BatchNormalization{DType: policy},
		&layers.Flatten{},
		&layers.Dense{Units: 16, Activation: "relu", DType: policy},
		&layers.Dropout{Rate: 0.25, DType: policy},
		&layers.Dense{Units: 10, DType: policy},
	)
	if err := m.SetSeed(7); err != nil {
		return nil, err
	}
	return m, m.Compile(keras.CompileConfig{
		Optimizer:    &optimizers.Adam{LearningRate: 0.01},
		Loss:         &losses.SparseCategoricalCrossentropy{FromLogits: true},
		Metrics:      []metrics.Metric{&metrics.SparseCategoricalAccuracy{}},
		Distribution: d,
	})
}

// hash is that of all variables of a model and its optimizer.
func hash(m *keras.Model) (string, error) {
	h := sha256.New()
	for _, o := range []keras.Stateful{m, m.Optimizer()} {
		for _, v := range o.Variables() {
			b, err := v.Bytes()
			if err != nil {
				return "", err
			}
			h.Write(b)
		}
	}
	return fmt.Sprintf("%x", h.Sum(nil)[:8]), nil
}

// onRanks runs train on a number of local ranks and returns the hash of all of them.
func onRanks(t *testing.T, ranks int, policy string, d distribution.DataParallel, train func(ctx context.Context, m *keras.Model) error) string {
	t.Helper()
	hashes := make([]string, ranks)
	err := distribution.Local(t.Context(), ranks, func(ctx context.Context, g *distribution.Group) error {
		d := d
		d.Group = g
		m, err := replica(policy, &d)
		if err == nil {
			err = train(ctx, m)
		}
		if err == nil {
			err = g.Same(m, m.Optimizer())
		}
		if err != nil {
			return err
		}
		hashes[g.Rank()], err = hash(m)
		return err
	})
	if err != nil {
		t.Fatalf("%d ranks, %s: %v", ranks, policy, err)
	}
	return hashes[0]
}

// TestDistributedBits: Fit on 1 to 4 ranks, some of which have more shards than others,
// ends with the same weights, slots, moving averages and random states, to the bit,
// also with short last batches.
func TestDistributedBits(t *testing.T) {
	data, _, err := digits.Load()
	if err != nil {
		t.Fatal(err)
	}
	for _, policy := range []string{"float32", "mixed_bfloat16", "mixed_float16"} {
		want := ""
		for _, ranks := range []int{1, 2, 3, 4} {
			got := onRanks(t, ranks, policy, distribution.DataParallel{Shards: 4}, func(ctx context.Context, m *keras.Model) error {
				_, err := m.Fit(ctx, data.Take(230), keras.FitConfig{BatchSize: 50, Epochs: 2, Output: io.Discard})
				return err
			})
			if want == "" {
				want = got
			}
			if got != want {
				t.Errorf("%s: %d ranks end with the weights %s, one rank with %s", policy, ranks, got, want)
			}
		}
	}
}

const pixels = 28 * 28 // of a digit

// samples are pixels and labels of n digits.
func samples(t testing.TB, n int) (x []float32, y []int64) {
	data, _, err := digits.Load()
	if err != nil {
		t.Fatal(err)
	}
	for b, err := range data.Take(n).Batch(n).Batches() {
		if err != nil {
			t.Fatal(err)
		}
		if x, err = b.X.Values(); err != nil {
			t.Fatal(err)
		}
		labels, err := b.Y.Float64s()
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range labels {
			y = append(y, int64(l))
		}
		x = slices.Clone(x)
	}
	return x, y
}

func dataset(x []float32, y []int64) *keras.Pipeline {
	return keras.FromTensors(tensor.New(x, len(y), len(x)/len(y)), tensor.New(y, len(y)), nil)
}

// TestDistributedShortBatches: shards of different sizes, and more shards than rows,
// give the gradient of the whole batch: after steps of plain gradient descent, weights
// are those of one process, but for the order of sums.
func TestDistributedShortBatches(t *testing.T) {
	x, y := samples(t, 33)
	train := func(d *distribution.DataParallel) ([]float32, error) {
		m := keras.Sequential(&layers.Dense{Units: 8, Activation: "tanh"}, &layers.Dense{Units: 10})
		if err := m.SetSeed(1); err != nil {
			return nil, err
		}
		err := m.Compile(keras.CompileConfig{Optimizer: &optimizers.SGD{LearningRate: 0.1}, Loss: &losses.SparseCategoricalCrossentropy{FromLogits: true}, Distribution: d})
		if err != nil {
			return nil, err
		}
		// Batches of 15, 15 and 3 samples for 6 shards.
		if _, err := m.Fit(t.Context(), dataset(x, y), keras.FitConfig{BatchSize: 15, Epochs: 2, Output: io.Discard}); err != nil {
			return nil, err
		}
		var all []float32
		for _, v := range m.TrainableVariables() {
			w, err := v.Values()
			if err != nil {
				return nil, err
			}
			all = append(all, w...)
		}
		return all, nil
	}
	want, err := train(nil)
	if err != nil {
		t.Fatal(err)
	}
	err = distribution.Local(t.Context(), 4, func(_ context.Context, g *distribution.Group) error {
		got, err := train(&distribution.DataParallel{Group: g, Shards: 6})
		if err != nil {
			return err
		}
		for i, w := range want {
			// Six steps of sums of some hundred float32 numbers of size 1.
			if math.Abs(float64(got[i]-w)) > 1e-5 {
				return fmt.Errorf("weight %d is %v, want %v", i, got[i], w)
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// TestDistributedLosses: over 100 steps the losses of two ranks are those of one process
// with whole batches, and those of two ranks of PyTorch's DistributedDataParallel, which
// docs/benchmarks/peers/torch_ddp.py has written.
func TestDistributedLosses(t *testing.T) {
	text, err := os.ReadFile("testdata/torch_ddp.txt")
	if err != nil {
		t.Fatal(err)
	}
	numbers := func(rows, columns, modulus int, factor, less float32) (out []float64, x []float32) {
		x = make([]float32, rows*columns)
		for i := range x {
			r, c := i/columns, i%columns
			x[i] = float32((r*37+c*101+r*c*3)%modulus)/float32(modulus)*factor - less
			out = append(out, float64(x[i]))
		}
		return out, x
	}
	y := make([]int32, 256)
	for i := range y {
		y[i] = int32(i * 7 % 10)
	}
	_, x := numbers(256, 64, 101, 1, 0)
	data := keras.FromTensors(tensor.New(x, 256, 64), tensor.New(y, 256), nil)
	train := func(d *distribution.DataParallel) ([]float64, error) {
		m := keras.Sequential(&layers.Dense{Units: 32, Activation: "relu"}, &layers.Dense{Units: 10})
		if err := m.Compile(keras.CompileConfig{Optimizer: &optimizers.SGD{LearningRate: 0.1}, Loss: &losses.SparseCategoricalCrossentropy{FromLogits: true}, Distribution: d}); err != nil {
			return nil, err
		}
		if err := m.Build(64); err != nil {
			return nil, err
		}
		w := m.TrainableVariables()
		first, _ := numbers(64, 32, 199, 0.5, 0.25)
		last, _ := numbers(32, 10, 199, 1, 0.5)
		if err := errors.Join(w[0].Set(first), w[2].Set(last)); err != nil {
			return nil, err
		}
		h, err := m.Fit(t.Context(), data, keras.FitConfig{BatchSize: 64, StepsPerEpoch: 1, Epochs: 100, Shuffle: new(bool), Output: io.Discard})
		return h.Get("loss"), err
	}
	alone, err := train(nil)
	if err != nil {
		t.Fatal(err)
	}
	err = distribution.Local(t.Context(), 2, func(_ context.Context, g *distribution.Group) error {
		got, err := train(&distribution.DataParallel{Group: g})
		if err != nil {
			return err
		}
		for i, line := range strings.Fields(string(text)) {
			torch, err := strconv.ParseFloat(line, 64)
			if err != nil {
				return err
			}
			for who, want := range map[string]float64{"one process": alone[i], "PyTorch": torch} {
				if math.Abs(got[i]-want) > 1e-5 {
					return fmt.Errorf("step %d: the loss is %.7f, that of %s %.7f", i+1, got[i], who, want)
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// TestDistributedOverflow: an infinity in the rows of one rank skips the step on all,
// which end with the same scale, whatever their number.
func TestDistributedOverflow(t *testing.T) {
	x, y := samples(t, 64)
	x[len(x)-pixels] = float32(math.Inf(1)) // of the last shard of one of the batches
	want := ""
	for _, ranks := range []int{1, 3, 4} {
		got := onRanks(t, ranks, "mixed_float16", distribution.DataParallel{Shards: 4}, func(ctx context.Context, m *keras.Model) error {
			if _, err := m.Fit(ctx, dataset(x, y), keras.FitConfig{BatchSize: 16, Epochs: 2, Shuffle: new(bool), Output: io.Discard}); err != nil {
				return err
			}
			switch r, err := m.StepResult(); {
			case err != nil:
				return err
			case r.SkippedSteps != 2 || r.AppliedSteps != 6 || r.LossScale != 32768/4:
				return fmt.Errorf("%d steps skipped, %d applied, scale %v; want 2, 6 and 8192", r.SkippedSteps, r.AppliedSteps, r.LossScale)
			}
			return nil
		})
		if want == "" {
			want = got
		}
		if got != want {
			t.Errorf("%d ranks end with %s, one rank with %s", ranks, got, want)
		}
	}
}

// TestDistributedWire: with a 16-bit wire, or the engine's own sum, all ranks have the
// same bits, a 16-bit wire has other ones than float32, and the model learns.
func TestDistributedWire(t *testing.T) {
	x, y := samples(t, 128)
	hashes := map[string]string{}
	for name, d := range map[string]distribution.DataParallel{
		"float32": {}, "bfloat16": {Wire: dtype.BFloat16}, "float16": {Wire: dtype.Float16}, "engine": {Engine: true}, "buckets": {BucketBytes: 1},
	} {
		for range 2 {
			h := onRanks(t, 2, "mixed_bfloat16", d, func(ctx context.Context, m *keras.Model) error {
				h, err := m.Fit(ctx, dataset(x, y), keras.FitConfig{BatchSize: 32, Epochs: 4, Output: io.Discard})
				if err != nil {
					return err
				}
				if first, last := h.Logs[0].Get("loss"), h.Logs[3].Get("loss"); !(last < 0.9*first) {
					return fmt.Errorf("%s: the loss goes from %v to %v", name, first, last)
				}
				return nil
			})
			if before, twice := hashes[name]; twice && before != h {
				t.Errorf("%s: weights %s, and %s in a second run", name, before, h)
			}
			hashes[name] = h
		}
	}
	// Two numbers have one sum, whoever adds them.
	if f := hashes["float32"]; f == hashes["bfloat16"] || f == hashes["float16"] || hashes["bfloat16"] == hashes["float16"] || f != hashes["engine"] || f != hashes["buckets"] {
		t.Errorf("weights %v: want those of 16-bit wires to differ, and no others", hashes)
	}
}

// TestDistributedResume: a training that is stopped in the middle of an epoch on some
// ranks resumes on others, and ends with the same bits and the same logs of metrics.
// Only rank 0 sees files.
func TestDistributedResume(t *testing.T) {
	x, y := samples(t, 120)
	d := distribution.DataParallel{Shards: 4}
	config := func(rank int, path string) keras.FitConfig {
		c := keras.FitConfig{BatchSize: 16, Epochs: 3, ValidationSplit: 0.2, Output: io.Discard, SaveEvery: 2}
		if path != "" {
			c.Checkpoint = &checkpoint.Directory{Path: filepath.Join(path, fmt.Sprint(rank)), Keep: 1}
		}
		return c
	}
	var logs []keras.Logs
	want := onRanks(t, 4, "mixed_float16", d, func(ctx context.Context, m *keras.Model) error {
		h, err := m.Fit(ctx, dataset(x, y), config(0, ""))
		if rank(m) == 0 {
			logs = h.Logs
		}
		return err
	})
	dir := t.TempDir()
	for i, ranks := range []int{3, 1, 2} {
		got := onRanks(t, ranks, "mixed_float16", d, func(ctx context.Context, m *keras.Model) error {
			c := config(rank(m), dir)
			inner, cancel := context.WithCancel(ctx)
			defer cancel()
			steps := 0
			if rank(m) == ranks-1 && i < 2 { // one rank stops all
				c.Callbacks = []keras.Callback{{BatchEnd: func(context.Context, *keras.Run) error {
					if steps++; steps == 7 {
						cancel()
					}
					return nil
				}}}
			}
			h, err := m.Fit(inner, dataset(x, y), c)
			if i < 2 {
				var stopped *keras.Interrupted
				if !errors.As(err, &stopped) || ranks > 1 && !errors.Is(err, distribution.ErrStopped) || !stopped.Saved || stopped.Step != []int{1, 2}[i] || stopped.Epoch != i+1 {
					return fmt.Errorf("rank %d: got %v, want the training stopped and saved", rank(m), err)
				}
				return nil
			}
			if err != nil || rank(m) != 0 {
				return err
			}
			for i, want := range logs {
				for _, l := range want {
					if got := h.Logs[i].Get(l.Name); math.Abs(got-l.Value) > 1e-6*math.Abs(l.Value) { // sums of other parts in float32
						return fmt.Errorf("epoch %d: %s is %v, want %v", i, l.Name, got, l.Value)
					}
				}
			}
			return nil
		})
		if i == 2 && got != want {
			t.Errorf("the resumed training ends with %s, the one without interruption with %s", got, want)
		}
	}
	for r := 1; r < 4; r++ {
		if _, err := os.Stat(filepath.Join(dir, fmt.Sprint(r))); err == nil {
			t.Errorf("rank %d has written a checkpoint", r)
		}
	}
}

// rank is that of the group that trains a model.
func rank(m *keras.Model) int {
	c, _ := m.CompileConfig()
	return c.Distribution.Ranks().Rank()
}

// TestDistributedErrors: mistakes of one rank are errors of all, with its number.
func TestDistributedErrors(t *testing.T) {
	x, y := samples(t, 48)
	bad := errors.New("the disk is gone")
	for name, c := range map[string]struct {
		train func(ctx context.Context, m *keras.Model, one bool) error
		want  string
	}{
		"data": {func(ctx context.Context, m *keras.Model, one bool) error {
			d := keras.FromGenerator(func() iter.Seq2[keras.Batch, error] {
				return func(yield func(keras.Batch, error) bool) {
					for b, err := range dataset(x, y).Batch(12).Batches() {
						if one {
							b, err = keras.Batch{}, bad
						}
						if !yield(b, err) {
							return
						}
					}
				}
			}, true)
			_, err := m.Fit(ctx, d, keras.FitConfig{Output: io.Discard})
			return err
		}, "rank 1: Fit: batch 1 of epoch 1: the disk is gone"},
		"batches": {func(ctx context.Context, m *keras.Model, one bool) error {
			n := 48
			if one {
				n = 24
			}
			_, err := m.Fit(ctx, dataset(x[:n*pixels], y[:n]), keras.FitConfig{BatchSize: 12, Output: io.Discard})
			return err
		}, "ranks have different numbers of batches"},
		"program": {func(ctx context.Context, m *keras.Model, one bool) error {
			if one {
				layers.BaseOf(m.Layers()[4]).SetTrainable(false)
			}
			_, err := m.Fit(ctx, dataset(x, y), keras.FitConfig{BatchSize: 12, Output: io.Discard})
			return err
		}, "rank 1"},
		"index": {func(ctx context.Context, m *keras.Model, one bool) error {
			labels := slices.Clone(y)
			if one {
				labels[len(labels)-1] = 1000
			}
			_, err := m.Fit(ctx, dataset(x, labels), keras.FitConfig{BatchSize: 48, Shuffle: new(bool), Output: io.Discard})
			return err
		}, "1000"},
		"callback": {func(ctx context.Context, m *keras.Model, one bool) error {
			_, err := m.Fit(ctx, dataset(x, y), keras.FitConfig{BatchSize: 12, Output: io.Discard, Callbacks: []keras.Callback{{BatchEnd: func(context.Context, *keras.Run) error {
				if one {
					return bad
				}
				return nil
			}}}})
			return err
		}, "rank 1: the disk is gone"},
	} {
		t.Run(name, func(t *testing.T) {
			err := distribution.Local(t.Context(), 2, func(ctx context.Context, g *distribution.Group) error {
				g.SetTimeout(20 * time.Second)
				m, err := replica("float32", &distribution.DataParallel{Group: g})
				if err != nil {
					return err
				}
				if err = c.train(ctx, m, g.Rank() == 1); err == nil {
					t.Errorf("rank %d trains without an error", g.Rank())
				}
				return err
			})
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q in it", err, c.want)
			}
			if errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("a rank waited for others that had gone: %v", err)
			}
		})
	}
}

// TestDistributedGroups: only the last shard overflows, in the group "first". All ranks
// decrease that group's scale and no other, and end with the same bits for any number of
// them, also where each has a part of the slots, and in a loop of one's own.
func TestDistributedGroups(t *testing.T) {
	const rows, features = 8, 3
	x, y := make([]float32, rows*features), make([]float32, rows)
	for i := range x {
		x[i] = float32(i%5) / 4
	}
	// Errors of about 1 in all rows but the last one: the gradient that enters the group
	// is about 2·4000·2^10/8, behind the largest float16, there alone.
	y[rows-1] = 4000
	for _, c := range []struct {
		name       string
		zero, loop bool
		ranks      []int
	}{
		{"Fit", false, false, []int{1, 2, 4}},
		{"ZeroRedundancy", true, false, []int{1, 2, 4}},
		{"loop", false, true, []int{2}},
	} {
		first := ""
		for _, ranks := range c.ranks {
			hashes := make([]string, ranks)
			err := distribution.Local(t.Context(), ranks, func(ctx context.Context, g *distribution.Group) error {
				m := keras.Sequential(&layers.Dense{Units: 4, DType: "mixed_float16", Name: "first"}, &layers.Dense{Units: 1})
				if err := m.SetSeed(3); err != nil {
					return err
				}
				o := &optimizers.LossScaleOptimizer{Inner: &optimizers.SGD{LearningRate: 1e-7}, InitialScale: 1,
					Groups: []optimizers.LossScaleGroup{{Layers: "first", InitialScale: 1 << 10}}}
				d := &distribution.DataParallel{Group: g, Shards: 4, ZeroRedundancy: c.zero}
				if c.loop {
					d.Shards = 0
				}
				if err := m.Compile(keras.CompileConfig{Optimizer: o, Loss: &losses.MeanSquaredError{}, Distribution: d}); err != nil {
					return err
				}
				var err error
				if c.loop {
					mine := rows / ranks
					at := g.Rank() * mine
					step := keras.Function(func(b keras.Batch) *keras.Tensor {
						loss := (&losses.MeanSquaredError{}).Call(b.Y, m.Call(b.X, keras.Training))
						grads := d.AllReduce(keras.Gradients(o.GetScaledLoss(loss), m.TrainableVariables()))
						o.ApplyGradients(o.GetUnscaledGradients(grads), m.TrainableVariables())
						return loss
					}, m, o)
					for range 10 {
						_, err = step.Call(ctx, keras.Batch{X: keras.NewTensor(x[at*features:(at+mine)*features], mine, features), Y: keras.NewTensor(y[at:at+mine], mine, 1)})
						if err != nil {
							return err
						}
					}
				} else {
					data := keras.FromTensors(keras.NewTensor(x, rows, features), keras.NewTensor(y, rows, 1), nil)
					_, err = m.Fit(ctx, data, keras.FitConfig{BatchSize: rows, Epochs: 10, Output: io.Discard})
				}
				if err != nil {
					return err
				}
				groups, err := o.GroupScales()
				if err != nil {
					return err
				}
				loss, err := o.Result()
				if err != nil {
					return err
				}
				if s := groups[0]; s.Overflows < 1 || s.Overflows > 9 || s.LossScale >= 1<<10 || loss.LossScale != 1 || !loss.Applied {
					return fmt.Errorf("got the group %+v and the loss %+v", s, loss)
				}
				h := sha256.New()
				for _, v := range m.Variables() {
					b, err := v.Bytes()
					if err != nil {
						return err
					}
					h.Write(b)
				}
				hashes[g.Rank()] = fmt.Sprintf("%x %+v", h.Sum(nil)[:8], groups)
				return nil
			})
			if err != nil {
				t.Fatalf("%s, %d ranks: %v", c.name, ranks, err)
			}
			if first == "" {
				first = hashes[0]
			}
			for rank, h := range hashes {
				if h != first {
					t.Errorf("%s, rank %d of %d: got the weights and scales %s, want %s", c.name, rank, ranks, h, first)
				}
			}
		}
	}
}

// TestDistributedPoison: an index out of range in the rows of one rank ends the training of
// all, with an error that names the rank and the layer.
func TestDistributedPoison(t *testing.T) {
	err := distribution.Local(t.Context(), 3, func(ctx context.Context, g *distribution.Group) error {
		g.SetTimeout(20 * time.Second)
		m := keras.Sequential(&layers.Embedding{InputDim: 50, OutputDim: 4, Name: "words"}, &layers.GlobalAveragePooling1D{}, &layers.Dense{Units: 1})
		err := m.Compile(keras.CompileConfig{Optimizer: &optimizers.SGD{}, Loss: &losses.MeanSquaredError{}, Distribution: &distribution.DataParallel{Group: g}})
		if err != nil {
			return err
		}
		x, y := make([]int64, 12*5), make([]float32, 12)
		x[5*5+2] = 50 // of a row of rank 1
		data := keras.FromTensors(tensor.New(x, 12, 5), tensor.New(y, 12, 1), nil)
		_, err = m.Fit(ctx, data, keras.FitConfig{BatchSize: 12, Shuffle: new(bool), Output: io.Discard})
		if err == nil {
			t.Errorf("rank %d trains without an error", g.Rank())
		}
		return err
	})
	for _, want := range []string{"rank 1: ", "layer words: ", "50"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q in it", err, want)
		}
	}
	if errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a rank waited for others that had gone: %v", err)
	}
}

// TestDistributedCallbacks: callbacks for files and output are on rank 0 alone, others on
// all ranks with the logs of all rows; a Stop of one rank stops all.
func TestDistributedCallbacks(t *testing.T) {
	x, y := samples(t, 90)
	var mu sync.Mutex
	var files, output []int
	logs := map[int]string{}
	err := distribution.Local(t.Context(), 3, func(ctx context.Context, g *distribution.Group) error {
		m, err := replica("float32", &distribution.DataParallel{Group: g})
		if err != nil {
			return err
		}
		out := &strings.Builder{}
		h, err := m.Fit(ctx, dataset(x, y), keras.FitConfig{BatchSize: 30, Epochs: 5, Output: out, ValidationData: dataset(x, y).Batch(40), Callbacks: []keras.Callback{
			{FirstRankOnly: true, EpochEnd: func(context.Context, *keras.Run) error {
				mu.Lock()
				defer mu.Unlock()
				files = append(files, g.Rank())
				return nil
			}},
			{EpochEnd: func(_ context.Context, r *keras.Run) error {
				if g.Rank() == 2 && r.Epoch == 1 {
					r.Stop = true
				}
				return nil
			}},
		}})
		if err != nil {
			return err
		}
		// What rank 0 says of the model is what one process says of it.
		alone, err := m.Evaluate(ctx, dataset(x, y).Batch(40))
		if err != nil {
			return err
		}
		last := h.Logs[len(h.Logs)-1]
		for _, l := range alone {
			if got := last.Get("val_" + l.Name); math.Abs(got-l.Value) > 1e-6*math.Abs(l.Value) { // sums in float32
				return fmt.Errorf("val_%s is %v, want %v", l.Name, got, l.Value)
			}
		}
		mu.Lock()
		defer mu.Unlock()
		logs[g.Rank()] = fmt.Sprint(h.Epochs, h.Logs)
		if out.Len() > 0 {
			output = append(output, g.Rank())
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(files, output) != "[0 0] [0]" {
		t.Errorf("files by ranks %v, output by %v; want both by rank 0 alone, of two epochs", files, output)
	}
	if logs[0] != logs[1] || logs[0] != logs[2] || !strings.HasPrefix(logs[0], "[0 1]") {
		t.Errorf("ranks have the histories %v", logs)
	}
}

// TestDistributedLoop: a training loop with AllReduce, loss scaling, clipping and
// gradient accumulation, in which each rank has its own batches, moves all ranks alike,
// and like one process that has all rows.
func TestDistributedLoop(t *testing.T) {
	x, y := samples(t, 64)
	train := func(g *distribution.Group, from, n int) ([]float32, error) {
		m := keras.Sequential(&layers.Dense{Units: 8, Activation: "tanh"}, &layers.Dense{Units: 10})
		if err := m.SetSeed(uint64(1 + g.Rank())); err != nil { // rank 0's weights become everybody's
			return nil, err
		}
		dp := &distribution.DataParallel{Group: g}
		optimizer := &optimizers.LossScaleOptimizer{Inner: &optimizers.SGD{LearningRate: 0.5, GlobalClipNorm: 0.5, GradientAccumulationSteps: 2}}
		loss := &losses.SparseCategoricalCrossentropy{FromLogits: true}
		step := keras.Function(func(b keras.Batch) *keras.Tensor {
			l := loss.Call(b.Y, m.Call(b.X, keras.Training))
			vars := m.TrainableVariables()
			grads := dp.AllReduce(keras.Gradients(optimizer.GetScaledLoss(l), vars))
			optimizer.ApplyGradients(optimizer.GetUnscaledGradients(grads), vars)
			return l
		}, m, optimizer)
		batch := func(i int) keras.Batch {
			at := i*32 + from
			return keras.Batch{X: tensor.New(x[at*pixels:(at+n)*pixels], n, pixels), Y: tensor.New(y[at:at+n], n)}
		}
		if _, err := step.MemoryOf(batch(0)); err != nil {
			return nil, err
		}
		if err := g.Broadcast(m, optimizer); err != nil {
			return nil, err
		}
		for i := range 8 {
			if _, err := step.Call(t.Context(), batch(i%2)); err != nil {
				return nil, err
			}
		}
		if err := g.Same(m, optimizer); err != nil {
			return nil, err
		}
		var all []float32
		for _, v := range m.TrainableVariables() {
			w, err := v.Values()
			if err != nil {
				return nil, err
			}
			all = append(all, w...)
		}
		return all, nil
	}
	want, err := train(distribution.World(), 0, 32)
	if err != nil {
		t.Fatal(err)
	}
	err = distribution.Local(t.Context(), 2, func(_ context.Context, g *distribution.Group) error {
		got, err := train(g, 16*g.Rank(), 16)
		if err != nil {
			return err
		}
		for i, w := range want {
			if math.Abs(float64(got[i]-w)) > 1e-5 { // sums of some hundred float32 numbers of size 1
				return fmt.Errorf("weight %d is %v, want %v", i, got[i], w)
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// TestDistributedOwnSamples: of a dataset that maps samples one by one, a rank maps those of
// its rows alone, in training and in validation. The bits are those of any number of ranks,
// also of a training that is stopped and goes on.
func TestDistributedOwnSamples(t *testing.T) {
	x, y := samples(t, 150)
	d := distribution.DataParallel{Shards: 4}
	open := func(first, end int, mapped func(i int)) *data.Dataset[keras.Batch] {
		numbers := data.Range(first, end).Shuffle(end-first, 3)
		sample := func(_ context.Context, i int) (keras.Batch, error) {
			mapped(i)
			return keras.Batch{X: tensor.New(x[i*pixels:(i+1)*pixels], pixels), Y: tensor.New(y[i : i+1])}, nil
		}
		if first == 0 {
			return data.ParallelMap(numbers, 2, sample).Prefetch(3).Batch(16).Prefetch(2)
		}
		return data.Map(numbers, sample).Batch(16).Repeat().Take(2)
	}
	const train, epochs = 120, 2
	for _, policy := range []string{"float32", "mixed_bfloat16", "mixed_float16"} {
		want := ""
		for _, ranks := range []int{1, 2, 4} {
			var trained, validated [4]atomic.Int64 // by rank
			got := onRanks(t, ranks, policy, d, func(ctx context.Context, m *keras.Model) error {
				r := rank(m)
				_, err := m.Fit(ctx, open(0, train, func(int) { trained[r].Add(1) }),
					keras.FitConfig{Epochs: epochs, ValidationData: open(train, len(y), func(int) { validated[r].Add(1) }), Output: io.Discard})
				return err
			})
			if want == "" {
				want = got
			}
			if got != want {
				t.Errorf("%s: %d ranks end with %s, one with %s", policy, ranks, got, want)
			}
			for r := range ranks { // 4 shards of 16 rows, or of 8 in the last batch
				if got, want := int(trained[r].Load()), epochs*train/ranks; got != want {
					t.Errorf("%s: rank %d of %d has mapped %d samples for training, want %d", policy, r, ranks, got, want)
				}
				if got, most := int(validated[r].Load()), epochs*2*16/ranks; got > most {
					t.Errorf("%s: rank %d of %d has mapped %d samples for validation, want at most %d", policy, r, ranks, got, most)
				}
			}
		}
		if policy != "mixed_float16" {
			continue
		}
		dir := t.TempDir()
		for i, ranks := range []int{4, 1, 2} {
			got := onRanks(t, ranks, policy, d, func(ctx context.Context, m *keras.Model) error {
				inner, cancel := context.WithCancel(ctx)
				defer cancel()
				var n atomic.Int64
				set := open(0, train, func(int) {
					if n.Add(1) == int64(train/ranks/2+10) && rank(m) == ranks-1 && i < 2 {
						cancel()
					}
				})
				c := keras.FitConfig{Epochs: epochs, Output: io.Discard, SaveEvery: 2, Checkpoint: &checkpoint.Directory{Path: filepath.Join(dir, fmt.Sprint(rank(m))), Keep: 1}}
				_, err := m.Fit(inner, set, c)
				var stopped *keras.Interrupted
				if i < 2 && errors.As(err, &stopped) && stopped.Saved {
					return nil
				}
				return err
			})
			if i == 2 && got != want {
				t.Errorf("%s: the resumed training ends with %s, the one without interruption with %s", policy, got, want)
			}
		}
	}
}
