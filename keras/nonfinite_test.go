package keras

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/losses"
	"github.com/mezzo-ml/mezzo/optimizers"
)

var guardedPolicies = []string{"float32", "mixed_float16", "mixed_bfloat16", "float16"}

// guarded is a model with what a step can change besides weights: moving
// statistics, random states, averages, accumulated gradients.
func guarded(t testing.TB, what string, action NonFinite) *Model {
	t.Helper()
	ls := []layers.Layer{&layers.Dense{Units: 6, Activation: "relu"}, &layers.BatchNormalization{}, &layers.Dropout{Rate: 0.25, Seed: new(int64(3))}, &layers.Dense{Units: 1}}
	m := Sequential(ls...)
	o := &optimizers.Adam{LearningRate: 0.02}
	switch what {
	case "accumulated":
		o.GradientAccumulationSteps = 2
	case "averaged":
		o.UseEMA, o.EMAMomentum = true, 0.9
	case "clipped":
		o.GlobalClipNorm = 0.5
	}
	check(t, m.Compile(CompileConfig{Optimizer: o, Loss: &losses.MeanSquaredError{}, NonFinite: action}))
	return m
}

// spoilt are batches that are not finite, by what is not.
func spoilt() map[string]Batch {
	x, y, w := numbers(12), numbers(4), filled(4, 1)
	with := func(v []float32, i int, bad float64) []float32 {
		v = slices.Clone(v)
		v[i] = float32(bad)
		return v
	}
	batch := func(x, y, w []float32) Batch { return Batch{NewTensor(x, 4, 3), NewTensor(y, 4, 1), NewTensor(w, 4)} }
	nan, inf := math.NaN(), math.Inf(1)
	return map[string]Batch{
		"NaN in X": batch(with(x, 5, nan), y, w), "infinity in X": batch(with(x, 5, -inf), y, w),
		"NaN in Y": batch(x, with(y, 2, nan), w), "infinity in Y": batch(x, with(y, 2, inf), w),
		"NaN in Weight": batch(x, y, with(w, 3, nan)), "infinity in Weight": batch(x, y, with(w, 3, inf)),
	}
}

func goodBatch(i int) Batch {
	x := numbers(12 * (i + 1))[12*i:]
	y := make([]float32, 4)
	for k := range y {
		y[k] = x[3*k] - x[3*k+1]
	}
	return Batch{NewTensor(x, 4, 3), NewTensor(y, 4, 1), NewTensor(filled(4, 1), 4)}
}

// all is everything that a training step of m can change, but for the counters
// of what was skipped.
func all(t testing.TB, m *Model) [][]byte { return bits(t, m, m.Optimizer(), m.training) }

// TestNonFinite: a batch that is not finite changes nothing under every policy,
// is counted as skipped or an error, and what is trained afterwards are the bits
// of a training that never saw it.
func TestNonFinite(t *testing.T) {
	for _, policy := range guardedPolicies {
		for _, what := range []string{"plain", "accumulated", "averaged", "clipped"} {
			t.Run(policy+"/"+what, func(t *testing.T) {
				underPolicy(t, policy)
				whole, skips, fails := guarded(t, what, NonFiniteApply), guarded(t, what, NonFiniteSkip), guarded(t, what, NonFiniteError)
				for i := range 3 {
					for _, m := range []*Model{whole, skips, fails} {
						check(t, m.TrainStep(background, goodBatch(i)))
					}
				}
				n := int64(0)
				for name, b := range spoilt() {
					before, earlier := all(t, skips), all(t, fails)
					check(t, skips.TrainStep(background, b))
					n++
					if !same(all(t, skips), before) {
						t.Errorf("%s: a skipped step has changed something", name)
					}
					r, err := skips.StepResult()
					check(t, err)
					if r.Applied || r.ConsecutiveSkips < n || r.SkippedSteps < n {
						t.Errorf("%s: got %+v, want %d steps skipped", name, r, n)
					}
					err = fails.TrainStep(background, b)
					var first *tensor.NonFinite
					part := name[strings.LastIndex(name, " ")+1:] + " of the batch"
					if !errors.As(err, &first) || !first.Given || first.Path != part || first.NaN != strings.HasPrefix(name, "NaN") {
						t.Errorf("%s: got error %v, want one that names %s", name, err, part)
					}
					if !same(all(t, fails), earlier) || !same(bits(t, fails.training.guard), [][]byte{make([]byte, 8), make([]byte, 8)}) {
						t.Errorf("%s: a refused step has changed something", name)
					}
				}
				for i := range 3 {
					for _, m := range []*Model{whole, skips, fails} {
						check(t, m.TrainStep(background, goodBatch(3+i)))
					}
				}
				want := all(t, whole)
				if !same(all(t, skips), want) || !same(all(t, fails), want) {
					t.Error("the bits are not those of a training that never saw the batches")
				}
				if r, err := skips.StepResult(); err != nil || r.SkippedSteps < n || r.ConsecutiveSkips != 0 {
					t.Errorf("got %+v, %v", r, err)
				}
			})
		}
	}
}

// TestNonFiniteStatistics: an output without a loss moves statistics, too.
func TestNonFiniteStatistics(t *testing.T) {
	a, b := Input(3), Input(3)
	m, err := NewModel(Tuple(a, b), Tuple(Apply(&layers.Dense{Units: 1}, a), Apply(&layers.BatchNormalization{}, b)))
	check(t, err)
	check(t, m.Compile(CompileConfig{Optimizer: &optimizers.SGD{}, Losses: []losses.Loss{&losses.MeanSquaredError{}, nil}, NonFinite: NonFiniteSkip}))
	good, bad := goodBatch(0), spoilt()["NaN in X"]
	before := all(t, m)
	check(t, m.TrainStep(background, Batch{X: Tuple(good.X, bad.X), Y: Tuple(good.Y, good.X)}))
	if !same(all(t, m), before) {
		t.Error("a skipped step has changed something")
	}
}

// TestNonFiniteFit: Fit leaves such batches out of the logs too, counts and logs
// them, and gives up after MaxSkipsAtFloor of them in a row.
func TestNonFiniteFit(t *testing.T) {
	dataset := func(bad ...int) *Pipeline {
		var x, y []float32
		for i := range 6 {
			b := goodBatch(i)
			if slices.Contains(bad, i) {
				b = spoilt()["NaN in X"]
			}
			for dst, t := range map[*[]float32]*Tensor{&x: b.X, &y: b.Y} {
				for _, v := range numbersOf(t) {
					*dst = append(*dst, float32(v))
				}
			}
		}
		return FromTensors(NewTensor(x, 24, 3), NewTensor(y, 24, 1), nil)
	}
	config := silent(FitConfig{BatchSize: 4, Epochs: 2, Shuffle: new(false)})
	for _, policy := range guardedPolicies[:3] {
		underPolicy(t, policy)
		var log bytes.Buffer
		c := config
		c.Logger = slog.New(slog.NewTextHandler(&log, nil))
		skips, whole := guarded(t, "plain", NonFiniteSkip), guarded(t, "plain", NonFiniteApply)
		h, err := skips.Fit(background, dataset(5), c)
		check(t, err)
		want, err := whole.Fit(background, dataset().Take(20), config)
		check(t, err)
		if !same(all(t, skips), all(t, whole)) {
			t.Errorf("%s: the bits are not those of a training without the batch", policy)
		}
		for _, name := range []string{"loss", "gradient_norm"} {
			if fmt.Sprint(h.Get(name)) != fmt.Sprint(want.Get(name)) {
				t.Errorf("%s: got %s %v, want %v", policy, name, h.Get(name), want.Get(name))
			}
		}
		more := []float64{1, 2}
		if policy == "mixed_float16" { // what its loss scale skips, too
			for i, n := range want.Get("skipped_steps") {
				more[i] += n
			}
		}
		if got := h.Get("skipped_steps"); !slices.Equal(got, more) {
			t.Errorf("%s: got skipped_steps %v, want %v", policy, got, more)
		}
		for epoch := 1; epoch <= 2; epoch++ {
			if line := fmt.Sprintf(`level=WARN msg="step skipped" epoch=%d step=6 `, epoch); !strings.Contains(log.String(), line) {
				t.Errorf("%s: got log %s, want %s", policy, &log, line)
			}
		}
	}
	underPolicy(t, "float32")
	m := guarded(t, "plain", NonFiniteSkip)
	c := config
	c.MaxSkipsAtFloor = 3
	_, err := m.Fit(background, dataset(2, 3, 4), c)
	wantError(t, err, "Fit: 3 steps in a row were not finite: X of the batch: a NaN was there before the step, in float32[4 3]")
	h, err := guarded(t, "plain", NonFiniteSkip).Fit(background, dataset(0, 1, 2, 3, 4, 5), silent(FitConfig{BatchSize: 4, MaxSkipsAtFloor: -1, Shuffle: new(false)}))
	check(t, err)
	if got := h.Get("loss"); !math.IsNaN(got[0]) {
		t.Errorf("all batches skipped: got loss %v, want NaN", got)
	}

	m = guarded(t, "plain", NonFiniteError)
	_, err = m.Fit(background, dataset(4), config)
	wantError(t, err, "Fit: batch 5 of epoch 1: the step is not finite: X of the batch: a NaN was there before the step, in float32[4 3]")
	_, err = m.TrainOnBatch(background, spoilt()["NaN in Y"])
	wantError(t, err, "model sequential: the step is not finite: Y of the batch: a NaN was there before the step, in float32[4 1]")
	err = m.Trace(background, spoilt()["NaN in Weight"], new(bytes.Buffer))
	wantError(t, err, "model sequential: the step is not finite: Weight of the batch: a NaN was there before the step, in float32[4]")
}

func numbersOf(x *Tensor) []float64 {
	v, err := x.Float64s()
	if err != nil {
		panic(err)
	}
	return v
}

// TestNonFiniteOverflow: what a layer made is named.
func TestNonFiniteOverflow(t *testing.T) {
	m := Sequential(&layers.Dense{Units: 1, Name: "big", KernelInitializer: "constant(1e38)"})
	check(t, m.Compile(CompileConfig{Loss: &losses.MeanSquaredError{}, NonFinite: NonFiniteError}))
	err := m.TrainStep(background, Batch{X: NewTensor(filled(6, 100), 2, 3), Y: NewTensor(filled(2, 1), 2, 1)})
	wantError(t, err, "model sequential: the step is not finite: layer big: MatMul made an infinity in float32[2 1] (overflow; its inputs were finite)")
	wantError(t, m.Compile(CompileConfig{Loss: &losses.MeanSquaredError{}, NonFinite: 7}),
		"model sequential: Compile: NonFinite is 7, want NonFiniteApply, NonFiniteSkip or NonFiniteError")
}
