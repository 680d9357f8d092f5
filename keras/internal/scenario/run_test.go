package scenario

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/metrics"
	"github.com/mezzo-ml/mezzo/losses"
	"github.com/mezzo-ml/mezzo/optimizers"
	"github.com/mezzo-ml/mezzo/policy"
)

var background = context.Background()

// run is a program while it runs in a worker. Its methods are what programs are
// written with; what they compute becomes records. An error ends the program.
type run struct {
	policy  string
	fault   string
	halves  bool
	noise   *rand.Rand // nil: none
	size    float64    // of a perturbation
	records []record
	broken  []string
	phase   int
	folder  string

	previous map[*keras.Model][][]byte // weights before the last step, for fault "stale"
}

// failure is the error that ends a program.
type failure struct{ err error }

func (f failure) Error() string { return f.err.Error() }

func check(err error) {
	if err != nil {
		panic(failure{err})
	}
}

func must[T any](x T, err error) T {
	check(err)
	return x
}

func newNoise(seed uint64) *rand.Rand {
	if seed == 0 {
		return nil
	}
	return rand.New(rand.NewPCG(seed, 77))
}

// perturb changes numbers by a relative error of up to r.size, if that is asked
// for.
func (r *run) perturb(x []float32) []float32 {
	if r.noise != nil {
		for i := range x {
			x[i] *= float32(1 + r.size*(2*r.noise.Float64()-1))
		}
	}
	return x
}

// dir is a folder for files of the program.
func (r *run) dir() string {
	if r.folder == "" {
		r.folder = must(os.MkdirTemp("", "scenario"))
	}
	return r.folder
}

func (r *run) file(name string) string { return filepath.Join(r.dir(), name) }

func (r *run) close() {
	if r.folder != "" {
		_ = os.RemoveAll(r.folder)
	}
}

// next begins another phase: names of records have its number.
func (r *run) next() { r.phase++ }

func (r *run) add(series string, exact bool, wide bool, data []byte) {
	name := fmt.Sprintf("%d %s", r.phase, series)
	r.records = append(r.records, record{Name: name, Series: series, Exact: exact, Wide: wide, Data: data})
}

// value records numbers.
func (r *run) value(series string, values ...float64) { r.numbers(series, false, values) }

// exact records numbers that only the same instruction set gives exactly.
func (r *run) exact(series string, values ...float64) { r.numbers(series, true, values) }

func (r *run) numbers(series string, exact bool, values []float64) {
	var data []byte
	for _, v := range values {
		data = binary.LittleEndian.AppendUint64(data, math.Float64bits(v))
	}
	r.add(series, exact, true, data)
}

// same records whether an absolute truth holds: two values are the same bits.
func (r *run) same(what string, x, y []byte) {
	if !bytes.Equal(x, y) {
		r.broken = append(r.broken, fmt.Sprintf("phase %d: %s: %s and %s", r.phase, what, shortBytes(x), shortBytes(y)))
	}
}

// shortBytes prints the beginning of float32s.
func shortBytes(b []byte) string {
	if len(b)%4 != 0 || len(b) == 0 {
		return fmt.Sprintf("%d bytes", len(b))
	}
	return short(record{Data: b}.values())
}

func (r *run) sameNumbers(what string, x, y []float64) {
	if !slices.EqualFunc(x, y, func(a, b float64) bool { return math.Float64bits(a) == math.Float64bits(b) }) {
		r.broken = append(r.broken, fmt.Sprintf("phase %d: %s: %s and %s", r.phase, what, short(x), short(y)))
	}
}

// truth records whether something holds.
func (r *run) truth(what string, holds bool) {
	if !holds {
		r.broken = append(r.broken, fmt.Sprintf("phase %d: %s", r.phase, what))
	}
}

// random returns n numbers of N(0, 1), the same in each process.
func random(seed uint64, n int) []float32 {
	g := rand.New(rand.NewPCG(seed, 1))
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(g.NormFloat64())
	}
	return x
}

func volume(shape []int) int {
	n := 1
	for _, d := range shape {
		n *= d
	}
	return n
}

// points returns n samples of a shape and their classes. Each class has a mean
// of its own, so that training lowers the loss at once; a quarter of the labels
// is wrong, so that it does not lower it to rounding errors.
func (r *run) points(seed uint64, n, classes int, shape ...int) *keras.Pipeline {
	x, y := r.arrays(seed, n, classes, shape...)
	return keras.FromTensors(x, y, nil)
}

func (r *run) arrays(seed uint64, n, classes int, shape ...int) (x, y *keras.Tensor) {
	size := volume(shape)
	data, labels := random(seed, n*size), make([]int32, n)
	means := random(1000+uint64(classes), classes*size)
	for i := range labels {
		c := (i*7 + int(seed)) % classes
		for j := range size {
			data[i*size+j] = 0.6*data[i*size+j] + 0.3*means[c*size+j]
		}
		if i%4 == 3 {
			c = (c + 1 + i/4) % classes
		}
		labels[i] = int32(c)
	}
	return keras.NewTensor(r.perturb(data), append([]int{n}, shape...)...), keras.NewTensor(labels, n)
}

// input returns n samples of a shape.
func (r *run) input(seed uint64, n int, shape ...int) *keras.Tensor {
	x, _ := r.arrays(seed, n, 4, shape...)
	return x
}

// curve returns n samples of so many features and targets that depend on them.
func (r *run) curve(seed uint64, n, features, targets int) *keras.Pipeline {
	x := random(seed, n*features)
	w := random(99, features*targets)
	y := make([]float32, n*targets)
	for i := range n {
		for j := range targets {
			var s float32
			for k := range features {
				s += x[i*features+k] * w[k*targets+j]
			}
			y[i*targets+j] = s/float32(math.Sqrt(float64(features))) + 0.25
		}
	}
	return keras.FromTensors(keras.NewTensor(r.perturb(x), n, features), keras.NewTensor(y, n, targets), nil)
}

// texts returns n sequences of indices below words and their classes. 0 is
// padding at the end.
func texts(seed uint64, n, steps, words, classes int) *keras.Pipeline {
	g := rand.New(rand.NewPCG(seed, 2))
	x, y := make([]int32, n*steps), make([]int32, n)
	for i := range n {
		y[i] = int32(i % classes)
		if i%4 == 3 {
			y[i] = int32((i + 1 + i/4) % classes)
		}
		for j := range 1 + steps/2 + g.IntN(steps-steps/2) {
			x[i*steps+j] = 1 + int32((g.IntN((words-1)/2)*classes+i%classes)%(words-1))
		}
	}
	return keras.FromTensors(keras.NewTensor(x, n, steps), keras.NewTensor(y, n), nil)
}

// built draws the first weights of a model, which are drawn when they are first
// read and depend on the model's place in another one, and perturbs them, if that
// is asked for. Call it once the model is built.
func (r *run) built(m *keras.Model) {
	for _, w := range m.Weights() {
		x := must(w.Float64s())
		if r.noise == nil || w.DType() != keras.Float32 {
			continue
		}
		for i := range x {
			x[i] *= 1 + r.size*(2*r.noise.Float64()-1)
		}
		check(w.Set(x))
	}
}

// build builds a Sequential model.
func (r *run) build(m *keras.Model, shape ...int) *keras.Model {
	check(m.Build(shape...))
	r.built(m)
	return m
}

// buildOn builds a Sequential model for inputs of any type.
func (r *run) buildOn(m *keras.Model, in *keras.Tensor) *keras.Model {
	check(m.BuildOn(in))
	r.built(m)
	return m
}

// model makes a functional model.
func (r *run) model(in, out *keras.Tensor) *keras.Model {
	m := must(keras.NewModel(in, out))
	r.built(m)
	return m
}

// compile compiles a classifier.
func compile(m *keras.Model, o optimizers.Optimizer) *keras.Model {
	check(m.Compile(keras.CompileConfig{
		Optimizer: o,
		Loss:      &losses.SparseCategoricalCrossentropy{FromLogits: true},
		Metrics:   []metrics.Metric{&metrics.SparseCategoricalAccuracy{Name: "accuracy"}},
	}))
	return m
}

// compileMSE compiles a model of numbers.
func compileMSE(m *keras.Model, o optimizers.Optimizer) *keras.Model {
	check(m.Compile(keras.CompileConfig{Optimizer: o, Loss: &losses.MeanSquaredError{}}))
	return m
}

// logs records the numbers of a report.
func (r *run) logs(logs keras.Logs) {
	for _, l := range logs {
		r.log(l)
	}
}

func (r *run) log(l keras.Log) {
	switch {
	case strings.Contains(l.Name, "accuracy"), l.Name == "loss_scale", l.Name == "skipped_steps":
		r.exact(l.Name, l.Value)
	default:
		r.value(l.Name, l.Value)
	}
}

// fit trains without a word and records the history, the weights and the
// optimizer's state.
func (r *run) fit(m *keras.Model, d keras.Dataset, c keras.FitConfig) *keras.History {
	r.next()
	c.Verbose, c.Output = keras.VerbositySilent, io.Discard
	if r.halves {
		c.BatchSize /= 2
	}
	if r.fault == "stale" {
		c.Callbacks = append(slices.Clone(c.Callbacks), keras.Callback{BatchBegin: func(_ context.Context, k *keras.Run) error { r.remember(k.Model); return nil }})
	}
	h := must(m.Fit(background, d, c))
	for _, logs := range h.Logs {
		r.logs(logs)
	}
	r.weights(m)
	r.state(m.Optimizer())
	return h
}

// train trains on one batch and records its logs.
func (r *run) train(m *keras.Model, b keras.Batch) {
	r.next()
	if r.fault == "stale" {
		r.remember(m)
	}
	if r.halves {
		r.update(m, b)
		return
	}
	r.logs(must(m.TrainOnBatch(background, b)))
	if s := must(m.StepResult()); !math.IsNaN(s.GradientNorm) {
		r.value(gradientNorm, s.GradientNorm)
	}
}

// update is a training step, or two of half the batch each that accumulate
// gradients.
func (r *run) update(m *keras.Model, b keras.Batch) {
	if !r.halves {
		check(m.TrainStep(background, b))
		return
	}
	for _, h := range batches(keras.FromTensors(b.X, b.Y, nil).Batch(b.X.Dim(0) / 2)) {
		check(m.TrainStep(background, h))
	}
}

// batches lists copies of the batches of an epoch, whose memory is used again.
func batches(d keras.Dataset) []keras.Batch {
	var list []keras.Batch
	for b, err := range d.Batches() {
		check(err)
		list = append(list, keras.Batch{X: copied(b.X), Y: copied(b.Y), Weight: copied(b.Weight)})
	}
	return list
}

// copied returns a tensor of the same float32 or int32 numbers.
func copied(t *keras.Tensor) *keras.Tensor {
	switch {
	case t == nil:
		return nil
	case t.IsTuple():
		var parts []*keras.Tensor
		for _, p := range t.Unpack() {
			parts = append(parts, copied(p))
		}
		return keras.Tuple(parts...)
	case t.DType() == keras.Float32:
		return keras.NewTensor(must(t.Values()), t.Shape()...)
	}
	var x []int32
	for _, v := range must(t.Int64s()) {
		x = append(x, int32(v))
	}
	return keras.NewTensor(x, t.Shape()...)
}

// cut returns the first n samples as a batch.
func cut(p *keras.Pipeline, n int) keras.Batch {
	return batches(p.Take(n).Batch(n))[0]
}

// remember keeps the weights as they are before a step.
func (r *run) remember(m *keras.Model) {
	var all [][]byte
	for _, w := range m.Weights() {
		all = append(all, must(w.Bytes()))
	}
	if r.previous == nil {
		r.previous = map[*keras.Model][][]byte{}
	}
	r.previous[m] = all
}

// faulty calls f, for fault "stale" with the weights of one step before.
func (r *run) faulty(m *keras.Model, f func()) {
	old := r.previous[m]
	if r.fault != "stale" || old == nil {
		f()
		return
	}
	var now [][]byte
	for i, w := range m.Weights() {
		now = append(now, must(w.Bytes()))
		check(w.SetBytes(old[i]))
	}
	f()
	for i, w := range m.Weights() {
		check(w.SetBytes(now[i]))
	}
}

// evaluate judges a model and records the logs.
func (r *run) evaluate(m *keras.Model, d keras.Dataset) keras.Logs {
	r.next()
	var logs keras.Logs
	r.faulty(m, func() { logs = must(m.Evaluate(background, d)) })
	for _, l := range logs {
		l.Name = "evaluate " + l.Name
		r.log(l)
	}
	return logs
}

// predict computes a model and records the results.
func (r *run) predict(m *keras.Model, x *keras.Tensor) []byte {
	r.next()
	var all []byte
	r.faulty(m, func() {
		y := must(m.Predict(background, x))
		for _, p := range y.Unpack() {
			data := r.tensor("predict", p)
			all = append(all, data...)
		}
	})
	return all
}

// tensor records a tensor, which is float32 or float64.
func (r *run) tensor(series string, t *keras.Tensor) []byte {
	data := must(t.Bytes())
	if t.DType() == keras.Float32 || t.DType() == keras.Float64 {
		r.add(series, false, t.DType() == keras.Float64, data)
	} else {
		r.value(series, must(t.Float64s())...)
	}
	return data
}

// weights records all weights.
func (r *run) weights(m *keras.Model) {
	for _, w := range m.Weights() {
		r.variable(w.Variable)
	}
}

// state records what an optimizer remembers.
func (r *run) state(o optimizers.Optimizer) {
	for _, v := range o.Variables() {
		r.variable(v)
	}
}

func (r *run) variable(v *keras.Variable) {
	switch v.DType() {
	case keras.Float32:
		r.add(v.Name(), false, false, must(v.Bytes()))
	case keras.Float64, keras.Float16, keras.BFloat16:
		r.value(v.Name(), must(v.Float64s())...)
	default:
		r.exact(v.Name(), must(v.Float64s())...)
	}
}

// rewrite writes every variable's own bytes back: nothing may change.
func rewrite(owners ...keras.Stateful) {
	for _, o := range owners {
		for _, v := range o.Variables() {
			check(v.SetBytes(must(v.Bytes())))
		}
	}
}

// bytesOf copies all variables.
func bytesOf(owners ...keras.Stateful) []byte {
	var all []byte
	for _, o := range owners {
		for _, v := range o.Variables() {
			all = append(all, must(v.Bytes())...)
		}
	}
	return all
}

// fresh checks that a model predicts what a new copy of it predicts, which has
// nothing kept from before, and that its own bytes written back do not change it.
func (r *run) fresh(m *keras.Model, x *keras.Tensor) {
	y := r.predict(m, x)
	c := must(m.Clone(""))
	check(c.SetWeights(must(m.GetWeights())))
	r.same("prediction and that of a fresh copy", y, allBytes(must(c.Predict(background, x))))
}

// honest checks that writing the model's own bytes back does not change what it
// predicts and how it is judged.
func (r *run) honest(m *keras.Model, d keras.Dataset, x *keras.Tensor) {
	logs, y := numbers(r.evaluate(m, d)), r.predict(m, x)
	rewrite(m)
	r.sameNumbers("evaluation before and after the weights' own bytes were set", logs, numbers(must(m.Evaluate(background, d))))
	r.same("prediction before and after the weights' own bytes were set", y, allBytes(must(m.Predict(background, x))))
}

func allBytes(t *keras.Tensor) []byte {
	var all []byte
	for _, p := range t.Unpack() {
		all = append(all, must(p.Bytes())...)
	}
	return all
}

func numbers(logs keras.Logs) []float64 {
	var x []float64
	for _, l := range logs {
		x = append(x, l.Value)
	}
	return x
}

// scaled wraps an optimizer for a custom loop, where the policy needs it.
func (r *run) scaled(o optimizers.Optimizer) optimizers.Optimizer {
	if policy.Global().Compute == keras.Float16 {
		return &optimizers.LossScaleOptimizer{Inner: o}
	}
	return o
}

// update records a step of a custom loop.
func update(o optimizers.Optimizer, loss *keras.Tensor, vars []*keras.Variable) {
	if s, ok := o.(*optimizers.LossScaleOptimizer); ok {
		s.ApplyGradients(s.GetUnscaledGradients(keras.Gradients(s.GetScaledLoss(loss), vars)), vars)
		return
	}
	o.ApplyGradients(keras.Gradients(loss, vars), vars)
}
