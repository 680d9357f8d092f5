package keras

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/mezzo-ml/mezzo/keras/metrics"
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/losses"
	"github.com/mezzo-ml/mezzo/optimizers"
	"github.com/mezzo-ml/mezzo/policy"
)

// record is a dataset that notes which samples it gave, by the first number
// of each.
type record struct {
	d    Dataset
	seen []float64
}

func (r *record) Batches() iter.Seq2[Batch, error] {
	return func(yield func(Batch, error) bool) {
		for b, err := range r.d.Batches() {
			if err == nil {
				v, _ := b.X.Float64s()
				for i := 0; i < len(v); i += len(v) / b.X.Dim(0) {
					r.seen = append(r.seen, v[i])
				}
			}
			if !yield(b, err) {
				return
			}
		}
	}
}

func TestFitLearns(t *testing.T) {
	m := line(t)
	h := fit(t, m, regression(64), FitConfig{Epochs: 40, BatchSize: 8})
	if l := h.Get("loss"); !(l[39] < 1e-4 && l[39] < l[0]/100) {
		t.Errorf("got losses %v, want them to fall", l)
	}
	wantClose := []float64{1, -2, 0.5}
	for i, w := range weightsOf(t, m)[0] {
		if math.Abs(w-wantClose[i]) > 0.05 { // the loss is below 1e-4: 0.01 each
			t.Errorf("got kernel %v, want about %v", weightsOf(t, m)[0], wantClose)
		}
	}
	if !slices.Equal(h.Epochs[:3], []int{0, 1, 2}) || len(h.Logs) != 40 || !slices.Equal(h.Names(), []string{"loss", "gradient_norm", "learning_rate"}) {
		t.Errorf("got %d epochs of %v", len(h.Logs), h.Names())
	}
	if n, err := optimizers.Iterations(m.Optimizer()); n != 320 || err != nil {
		t.Errorf("got %d iterations, %v, want 320", n, err)
	}
}

// TestLossIsSampleMean: the loss of an epoch is the mean over its samples, and
// metrics count each sample, also where the last batch is ragged.
func TestLossIsSampleMean(t *testing.T) {
	for _, d := range []Dataset{regression(10), regression(10).Batch(4)} {
		m := Sequential(&layers.Dense{Units: 1})
		mae := &metrics.MeanAbsoluteError{}
		check(t, m.Compile(CompileConfig{Optimizer: &optimizers.SGD{LearningRate: 1e-30}, Loss: &losses.MeanSquaredError{}, Metrics: []metrics.Metric{mae}}))
		h := fit(t, m, d, FitConfig{BatchSize: 4, Epochs: 2})
		whole, err := m.Evaluate(background, regression(10)) // at once: weights have not moved
		check(t, err)
		for _, name := range []string{"loss", "mean_absolute_error"} {
			wantNear(t, name, h.Get(name)[1:], []float64{whole.Get(name)}, 1)
		}
		var counts []float64
		for _, v := range mae.Variables() {
			x, err := v.Item()
			check(t, err)
			counts = append(counts, x)
		}
		if counts[1] != 10 {
			t.Errorf("the metric counted %v samples, want 10", counts[1])
		}
	}
}

func TestEpochs(t *testing.T) {
	batches := func(n, size int) *record { return &record{d: generator(n, true, size, 1)} }
	run := func(d *record, c FitConfig) []float64 {
		m := line(t)
		fit(t, m, mapped(d, func(b Batch) Batch { b.Y = b.X; return b }), c)
		return d.seen
	}
	for name, c := range map[string]struct {
		c    FitConfig
		want []float64
	}{
		"all":                 {FitConfig{Epochs: 2}, []float64{0, 1, 2, 0, 1, 2}},
		"initial epoch":       {FitConfig{Epochs: 3, InitialEpoch: 2}, []float64{0, 1, 2}},
		"nothing left":        {FitConfig{Epochs: 3, InitialEpoch: 3}, nil},
		"steps go on":         {FitConfig{Epochs: 4, StepsPerEpoch: 2}, []float64{0, 1, 2, 0, 1, 2, 0, 1}},
		"more steps than all": {FitConfig{Epochs: 1, StepsPerEpoch: 7}, []float64{0, 1, 2, 0, 1, 2, 0}},
	} {
		if got := run(batches(3, 1), c.c); !slices.Equal(got, c.want) {
			t.Errorf("%s: got batches %v, want %v", name, got, c.want)
		}
	}
}

// mapped is a dataset that is no Pipeline.
type mappedDataset struct {
	d Dataset
	f func(Batch) Batch
}

func mapped(d Dataset, f func(Batch) Batch) Dataset { return mappedDataset{d, f} }

func (m mappedDataset) Batches() iter.Seq2[Batch, error] {
	return func(yield func(Batch, error) bool) {
		for b, err := range m.d.Batches() {
			if !yield(m.f(b), err) {
				return
			}
		}
	}
}

// TestGoesOn: a training that is taken up in the middle sees the same data.
func TestGoesOn(t *testing.T) {
	for name, c := range map[string]FitConfig{
		"whole epochs":    {BatchSize: 4},
		"steps per epoch": {BatchSize: 4, StepsPerEpoch: 5},
	} {
		once, twice := line(t), line(t)
		c.Epochs = 6
		fit(t, once, regression(26), c)
		c.Epochs = 4
		fit(t, twice, regression(26), c)
		c.InitialEpoch, c.Epochs = 4, 6
		h := fit(t, twice, regression(26), c)
		if !same(bits(t, once), bits(t, twice)) {
			t.Errorf("%s: 4 epochs and 2 more give other weights than 6", name)
		}
		if !slices.Equal(h.Epochs, []int{4, 5}) {
			t.Errorf("%s: got epochs %v, want 4 and 5", name, h.Epochs)
		}
	}
}

func TestFitShuffles(t *testing.T) {
	after := func(d Dataset, c FitConfig) [][]byte {
		m := line(t)
		c.BatchSize, c.Epochs = 4, 2
		fit(t, m, d, c)
		return bits(t, m)
	}
	d := regression(20)
	plain, mixed := after(d, FitConfig{Shuffle: new(false)}), after(d, FitConfig{})
	if !same(plain, after(d.Batch(4), FitConfig{})) {
		t.Error("batches of the user's are shuffled, or Shuffle: false does shuffle")
	}
	if same(plain, mixed) || same(mixed, after(d, FitConfig{Seed: 1})) {
		t.Error("Fit does not shuffle, or not by its seed")
	}
	if !same(mixed, after(d.Shuffle(20).Batch(4), FitConfig{})) || !same(mixed, after(d.Shuffle(20), FitConfig{Seed: 9})) {
		t.Error("Fit shuffles in another way than Shuffle, or shuffles what is shuffled")
	}
}

// TestValidation: the split comes off the end, before shuffling, and is judged
// as it lies.
func TestValidation(t *testing.T) {
	x := rising(20)
	y := make([]float32, 20)
	for i := range y[16:] {
		y[16+i] = 100
	}
	d := FromTensors(NewTensor(x, 20, 1), NewTensor(y, 20, 1), nil)
	m := Sequential(&layers.Dense{Units: 1, KernelInitializer: "zeros"})
	check(t, m.Compile(CompileConfig{Optimizer: &optimizers.SGD{}, Loss: &losses.MeanSquaredError{}, Metrics: []metrics.Metric{&metrics.MeanAbsoluteError{}}}))
	h := fit(t, m, d, FitConfig{ValidationSplit: 0.2, BatchSize: 3, Epochs: 5, ValidationFreq: 2})
	for i, l := range h.Logs {
		if validated := i%2 == 1; l.Has("val_loss") != validated || l.Has("val_mean_absolute_error") != validated {
			t.Errorf("epoch %d: got %v, want validation in every second epoch", i+1, l)
		}
		if l.Get("loss") != 0 {
			t.Errorf("epoch %d: got loss %v, want 0 without the samples that are held back", i+1, l.Get("loss"))
		}
	}
	if got := h.Get("val_loss")[1]; got != 10000 {
		t.Errorf("got val_loss %v, want 10000", got)
	}
	if !math.IsNaN(h.Get("val_loss")[0]) {
		t.Errorf("got val_loss %v in an epoch without validation, want NaN", h.Get("val_loss")[0])
	}
	if got, want := fmt.Sprint(h.Logs[1][:4]), "[{loss 0} {mean_absolute_error 0} {val_loss 10000} {val_mean_absolute_error 100}]"; got != want {
		t.Errorf("got logs %s, want %s", got, want)
	}

	// ValidationData, and ValidationSteps of it.
	v := &record{d: FromTensors(NewTensor(x, 20, 1), NewTensor(y, 20, 1), nil).Batch(4)}
	fit(t, m, d, FitConfig{ValidationData: v, ValidationSteps: 2})
	if !slices.Equal(v.seen, []float64{0, 1, 2, 3, 4, 5, 6, 7}) {
		t.Errorf("validated on %v, want two batches", v.seen)
	}
}

func TestCallbacks(t *testing.T) {
	var calls []string
	hook := func(name string) func(context.Context, *Run) error {
		return func(_ context.Context, r *Run) error {
			calls = append(calls, fmt.Sprintf("%s %d/%d/%d", name, r.Epoch, r.Step, r.Steps))
			return nil
		}
	}
	c := FitConfig{BatchSize: 2, Epochs: 2, Callbacks: []Callback{
		{TrainBegin: hook("begin"), EpochBegin: hook("epoch"), BatchEnd: hook("batch"), EpochEnd: hook("end"), TrainEnd: hook("done")}, {}}}
	fit(t, line(t), regression(4), c)
	want := "begin 0/0/2, epoch 0/0/2, batch 0/1/2, batch 0/2/2, end 0/2/2, epoch 1/0/2, batch 1/1/2, batch 1/2/2, end 1/2/2, done 1/2/2"
	if got := strings.Join(calls, ", "); got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
	// A dataset of unknown length: known after its first epoch.
	calls = nil
	fit(t, line(t), mapped(regression(2).Batch(2), func(b Batch) Batch { return b }), c)
	want = "begin 0/0/-1, epoch 0/0/-1, batch 0/1/-1, end 0/1/1, epoch 1/0/1, batch 1/1/1, end 1/1/1, done 1/1/1"
	if got := strings.Join(calls, ", "); got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
}

func TestStop(t *testing.T) {
	stop := func(_ context.Context, r *Run) error { r.Stop = true; return nil }
	for name, c := range map[string]struct {
		hook          Callback
		epochs, steps int64
	}{
		"train begin": {Callback{TrainBegin: stop}, 0, 0},
		"epoch begin": {Callback{EpochBegin: stop}, 0, 0},
		"batch":       {Callback{BatchEnd: stop}, 1, 1},
		"epoch end":   {Callback{EpochEnd: stop}, 1, 4},
	} {
		m := line(t)
		ended := false
		h := fit(t, m, regression(8), FitConfig{BatchSize: 2, Epochs: 9, Callbacks: []Callback{c.hook, {
			TrainEnd: func(context.Context, *Run) error { ended = true; return nil }}}})
		n, err := optimizers.Iterations(m.Optimizer())
		check(t, err)
		if int64(len(h.Logs)) != c.epochs || n != c.steps || !ended {
			t.Errorf("%s: got %d epochs, %d steps, TrainEnd %v, want %d, %d, true", name, len(h.Logs), n, ended, c.epochs, c.steps)
		}
	}
	broken := errors.New("no more paper")
	fails := func(context.Context, *Run) error { return broken }
	for name, hook := range map[string]Callback{
		"TrainBegin": {TrainBegin: fails}, "EpochBegin": {EpochBegin: fails}, "BatchEnd": {BatchEnd: fails},
		"EpochEnd": {EpochEnd: fails}, "TrainEnd": {TrainEnd: fails}} {
		if _, err := line(t).Fit(background, regression(8), silent(FitConfig{Callbacks: []Callback{hook}})); !errors.Is(err, broken) {
			t.Errorf("%s: got %v, want the hook's error", name, err)
		}
	}
	// Hooks add to the logs.
	h := fit(t, line(t), regression(8), FitConfig{Callbacks: []Callback{{EpochEnd: func(_ context.Context, r *Run) error {
		r.Logs.Set("learning_rate", 0.5)
		r.Logs.Set("speed", 2)
		return nil
	}}}})
	if got := h.Get("learning_rate"); !slices.Equal(got, []float64{0.5}) {
		t.Errorf("got learning_rate %v, want 0.5", got)
	}
	if got := h.Get("speed"); !slices.Equal(got, []float64{2}) {
		t.Errorf("got speed %v, want 2", got)
	}
}

func TestCancel(t *testing.T) {
	ctx, cancel := context.WithCancel(background)
	m := line(t)
	var last [][]byte
	steps := 0
	h, err := m.Fit(ctx, regression(64), silent(FitConfig{BatchSize: 4, Epochs: 100, Callbacks: []Callback{{
		BatchEnd: func(context.Context, *Run) error {
			if steps++; steps == 37 {
				last = bits(t, m, m.Optimizer())
				cancel()
			}
			return nil
		}}}}))
	if !errors.Is(err, context.Canceled) || steps != 37 {
		t.Errorf("got %v after %d steps, want context.Canceled after 37", err, steps)
	}
	if !same(last, bits(t, m, m.Optimizer())) {
		t.Error("weights are not those of the last finished step")
	}
	if len(h.Logs) != 2 {
		t.Errorf("got the logs of %d epochs, want the 2 that finished", len(h.Logs))
	}
	for name, f := range map[string]func() error{
		"Evaluate":     func() error { _, err := m.Evaluate(ctx, regression(8)); return err },
		"Predict":      func() error { _, err := m.Predict(ctx, NewTensor(rising(3), 1, 3)); return err },
		"TrainOnBatch": func() error { _, err := m.TrainOnBatch(ctx, one(regression(8).Batch(8))); return err },
	} {
		if err := f(); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: got %v, want context.Canceled", name, err)
		}
	}
	if !same(last, bits(t, m, m.Optimizer())) {
		t.Error("a call with an ended context changed variables")
	}
}

// one returns the first batch of a dataset.
func one(d Dataset) (first Batch) {
	for b := range d.Batches() {
		return b
	}
	return first
}

func TestProgressOutput(t *testing.T) {
	for v, want := range map[Verbosity]string{
		VerbositySilent: "^$",
		VerbosityAuto:   `^Epoch 1/2\n3/3 - 0s - \S+/step - loss: \S+ - val_loss: \S+\nEpoch 2/2\n3/3 - 0s - \S+/step - loss: \S+ - val_loss: \S+\n$`,
		VerbosityLines:  `^Epoch 1/2\n3/3 - 0s - \S+/step - loss: \S+ - val_loss: \S+\nEpoch 2/2\n3/3 - 0s - \S+/step - loss: \S+ - val_loss: \S+\n$`,
	} {
		var b bytes.Buffer
		told(policy.EffectiveText()) // which another test of this process may have had
		_, err := line(t).Fit(background, regression(12), FitConfig{BatchSize: 3, Epochs: 2, ValidationSplit: 0.25, Output: &b, Verbose: v})
		check(t, err)
		if !regexp.MustCompile(want).MatchString(b.String()) {
			t.Errorf("verbosity %d: got\n%s\nwant %s", v, b.String(), want)
		}
	}
	underPolicy(t, "mixed_float16")
	var b bytes.Buffer
	_, err := line(t).Fit(background, regression(4), FitConfig{Output: &b})
	check(t, err)
	if want := `/step - loss: \S+\n$`; !regexp.MustCompile(want).MatchString(b.String()) {
		t.Errorf("got\n%s\nwant %s", b.String(), want)
	}
	b.Reset()
	m := Sequential(&layers.Dense{Units: 1})
	c := lineConfig()
	c.Optimizer = &optimizers.LossScaleOptimizer{Inner: c.Optimizer, InitialScale: 1 << 24}
	check(t, m.Compile(c))
	_, err = m.Fit(background, regression(4), FitConfig{Output: &b})
	check(t, err)
	if want := ` - loss: \S+ - loss_scale: 8388608 - skipped: 1\n$`; !regexp.MustCompile(want).MatchString(b.String()) {
		t.Errorf("a skipped step: got\n%s\nwant %s", b.String(), want)
	}
}

func TestFitErrors(t *testing.T) {
	d := regression(8)
	for want, c := range map[string]FitConfig{
		"Fit: BatchSize is -1, want a positive number":                                 {BatchSize: -1},
		"Fit: Epochs is -1, want a positive number":                                    {Epochs: -1},
		"Fit: InitialEpoch is -1, want 0 or more":                                      {InitialEpoch: -1},
		"Fit: StepsPerEpoch is -1, want a positive number, or 0 for the whole dataset": {StepsPerEpoch: -1},
		"Fit: ValidationSteps is -1, want a positive number, or 0 for all":             {ValidationSteps: -1},
		"Fit: ValidationFreq is -1, want a positive number":                            {ValidationFreq: -1},
		"Fit: ValidationSplit is 1, want a share from 0 to below 1":                    {ValidationSplit: 1},
		"Fit: ValidationSplit is NaN, want a share from 0 to below 1":                  {ValidationSplit: math.NaN()},
		"Fit: Verbose is 9, want a Verbosity such as VerbositySilent":                  {Verbose: 9},
		"Fit: both ValidationSplit and ValidationData are given; use one":              {ValidationSplit: 0.5, ValidationData: d},
		"Fit: validation: the dataset is empty":                                        {ValidationData: counted(0)},
		"Fit: ClassWeight of class 1 is NaN, want a finite number of 0 or more":        {ClassWeight: map[int]float64{0: 1, 1: math.NaN()}},
		"Fit: ClassWeight of class 2 is +Inf, want a finite number of 0 or more":       {ClassWeight: map[int]float64{2: math.Inf(1), 3: -1}},
		"Fit: ClassWeight of class 0 is -0.5, want a finite number of 0 or more":       {ClassWeight: map[int]float64{0: -0.5}},
		"Fit: ClassWeight of class -3 is 1e+39, want a finite number of 0 or more":     {ClassWeight: map[int]float64{-3: 1e39, 4: 0}}, // infinite in float32
	} {
		_, err := line(t).Fit(background, d, silent(c))
		wantError(t, err, want)
	}
	try := func(d Dataset, c FitConfig) error {
		_, err := line(t).Fit(background, d, silent(c))
		return err
	}
	x := NewTensor(rising(12), 4, 3)
	wantError(t, try(nil, FitConfig{}), "Fit: no dataset given")
	wantError(t, try(FromTensors(NewTensor([]float32{}, 0, 3), nil, nil), FitConfig{}), "Fit: the dataset is empty")
	wantError(t, try(generator(0, true), FitConfig{}), "Fit: the dataset is empty in epoch 1")
	wantError(t, try(generator(0, true), FitConfig{StepsPerEpoch: 3}), "Fit: the dataset is empty in epoch 1")
	wantError(t, try(d.Batch(2), FitConfig{ValidationSplit: 0.5}), "Fit: ValidationSplit works on samples in memory that are not batched; give ValidationData instead")
	wantError(t, try(mapped(d, nil), FitConfig{ValidationSplit: 0.5}), "Fit: ValidationSplit works on samples in memory; give ValidationData instead")
	wantError(t, try(d, FitConfig{ValidationSplit: 0.95}), "Fit: ValidationSplit 0.95 of 8 samples leaves one side empty")
	wantError(t, try(d.Batch(-3), FitConfig{}), "Fit: batch 1 of epoch 1: Batch: size is -3, want a positive number")
	wantError(t, try(FromTensors(x, nil, nil), FitConfig{}), "model sequential: the batch has no Y")
	wantError(t, try(mapped(d.Batch(2), func(b Batch) Batch { b.X = nil; return b }), FitConfig{}), "model sequential: the batch has no X")
	wantError(t, try(FromTensors(x, Tuple(x, x), nil), FitConfig{}), "model sequential: the batch has 2 targets, want 1, one for each output")
	wantError(t, try(FromTensors(Tuple(x, x), x, nil), FitConfig{}), "layer dense: Build: got 2 inputs, want one tensor")
	wantError(t, try(mapped(d.Batch(2), func(b Batch) Batch { b.Weight = Tuple(b.Y, b.Y); return b }), FitConfig{}), "model sequential: the batch has 2 sample weights, want 1 or 1, one for each output")

	m := Sequential(dense(1))
	_, err := m.Fit(background, d, silent(FitConfig{}))
	wantError(t, err, "model sequential: it is not compiled; call Compile before Fit")
	_, err = m.Evaluate(background, d)
	wantError(t, err, "model sequential: it is not compiled; call Compile before Evaluate")
	_, err = m.TrainOnBatch(background, Batch{X: x, Y: x})
	wantError(t, err, "model sequential: it is not compiled; call Compile before Fit, Evaluate or TrainOnBatch")
	_, err = m.StepResult()
	wantError(t, err, "model sequential: it is not compiled")
	_, err = line(t).Evaluate(background, nil)
	wantError(t, err, "Evaluate: no dataset given")
	_, err = line(t).Evaluate(background, generator(0, true))
	wantError(t, err, "Evaluate: the dataset is empty")

	// A batch of another width, in the middle.
	i := 0
	widths := mapped(d.Batch(4), func(b Batch) Batch {
		if i++; i == 2 {
			b.X = NewTensor(rising(20), 4, 5)
		}
		return b
	})
	wantError(t, try(widths, FitConfig{}), "model sequential: input 0 is float32[4 5], want float32[? 3]")
}

// TestLabelOutOfRange is an error of the step, which leaves the weights alone.
func TestLabelOutOfRange(t *testing.T) {
	m := Sequential(&layers.Dense{Units: 3, Activation: "softmax"})
	check(t, m.Compile(CompileConfig{Loss: &losses.SparseCategoricalCrossentropy{}}))
	x, y, _ := classData(6, false)
	fit(t, m, FromTensors(x, y, nil), FitConfig{})
	before := bits(t, m, m.Optimizer())
	_, err := m.Fit(background, FromTensors(x, NewTensor([]int32{0, 1, 2, 7, 1, 0}, 6), nil), silent(FitConfig{Shuffle: new(false)}))
	wantError(t, err, "layer loss/sparse_categorical_crossentropy: TakeAlongAxis: index 7 at position 3 is out of range, want 0 to 2")
	if !same(before, bits(t, m, m.Optimizer())) {
		t.Error("the step that failed changed variables")
	}
}

// TestNaNInFloat32: nothing crashes, and the logs show it.
func TestNaNInFloat32(t *testing.T) {
	x := rising(12)
	x[5] = float32(math.NaN())
	h := fit(t, line(t), FromTensors(NewTensor(x, 4, 3), NewTensor(rising(4), 4, 1), nil), FitConfig{Epochs: 2})
	for _, l := range h.Get("loss") {
		if !math.IsNaN(l) {
			t.Errorf("got loss %v, want NaN", l)
		}
	}
}

// TestDeviceLine: the first Fit of a process says on which device it runs, and
// again when that has changed.
func TestDeviceLine(t *testing.T) {
	texts.Delete(policy.EffectiveText())
	for i, want := range []string{`^cpu: .*\n1/1 - `, `^1/1 - `} {
		var b bytes.Buffer
		_, err := line(t).Fit(background, regression(4), FitConfig{Output: &b})
		check(t, err)
		if !regexp.MustCompile(want).MatchString(b.String()) {
			t.Errorf("Fit %d: got\n%s\nwant %s", i+1, b.String(), want)
		}
	}
}
