package keras

import (
	"cmp"
	"context"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/keras/distribution"
	"github.com/mezzo-ml/mezzo/keras/internal/pipeline"
	"github.com/mezzo-ml/mezzo/keras/metrics"
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/losses"
	"github.com/mezzo-ml/mezzo/optimizers"
)

// Variables lists the totals of the loss and the metrics.
func (t *training) Variables() []*Variable {
	all := slices.Clone(t.total.Variables())
	add := func(_ string, m metrics.Accumulator) {
		for _, v := range m.Variables() {
			if !slices.Contains(all, v) {
				all = append(all, v)
			}
		}
	}
	t.eachMetric(add)
	if t.ownTrain != nil {
		t.ownTrain.each(add)
	}
	return all
}

// each calls f for everything that a step logs, by name: a built-in one if own is nil.
func (t *training) each(own *ownStep, f func(name string, m metrics.Accumulator)) {
	if own != nil {
		own.each(f)
		return
	}
	f("loss", t.total)
	t.eachMetric(f)
}

// eachMetric calls f for every metric but the total loss, with its log name.
func (t *training) eachMetric(f func(name string, m metrics.Accumulator)) {
	for _, o := range t.outputs {
		prefix := ""
		if o.mean != nil {
			prefix = o.name + "_"
			if o.loss != nil {
				f(o.mean.MetricName(), o.mean)
			}
		}
		taken := map[string]bool{}
		for _, m := range o.metrics {
			taken[m.MetricName()] = true
			f(prefix+m.MetricName(), m)
		}
		for _, m := range o.weighted {
			name := m.MetricName()
			if taken[name] {
				name = "weighted_" + name
			}
			f(prefix+name, m)
		}
	}
}

// judge computes the model and its loss: the losses of the outputs, the losses that
// layers add, and the penalties of trainable weights. It appends updates of totals to
// later, or makes them at once if that is nil.
func (m *Model) judge(p layers.Pass, b Batch, later *[]func()) (predictions, loss *Tensor) {
	var added []*Tensor
	predictions = m.call(p.Collect(&added), b.X, true)
	loss = m.training.loss(b, predictions, later)
	for _, w := range m.Weights() {
		if p := w.Regularization(); p != nil && w.Trainable() {
			added = append(added, p)
		}
	}
	for _, l := range added {
		loss = loss.Add(l.Cast(loss.DType()))
	}
	return predictions, loss
}

// trainStep is one step of training, as a custom loop would write it.
func (m *Model) trainStep(b Batch) none {
	t := m.training
	var gradients []*Tensor
	var loss *Tensor
	var track []func() // of the batch, or of each of its shards on this rank
	if d := t.config.Distribution; d == nil {
		predictions, l := m.judge(layers.Pass{Training: true}, b, nil)
		gradients, loss = m.gradients(l, m.TrainableVariables()), l
		track = append(track, func() { t.track(b, predictions, l) })
	} else {
		var losses []*Tensor
		replicas := d.Replicas
		if t.scattered != nil {
			replicas = d.ScatteredReplicas
		}
		gradients, losses = replicas(rowsOf(b), func(s distribution.Shard) (gradients, others []*Tensor) {
			part := b.rows(s.First, s.End)
			var later []func()
			predictions, l := m.judge(layers.Pass{Training: true}, part, &later)
			if !s.Empty {
				track = append(append(track, later...), func() { t.track(part, predictions, l) })
			}
			return m.gradients(l, m.TrainableVariables()), []*Tensor{l}
		})
		loss = losses[0]
	}
	vars := m.TrainableVariables()
	if t.scaler != nil {
		gradients = t.scaler.GetUnscaledGradients(gradients)
	} else if auto := t.config.AutoScaleLoss; auto != nil && !*auto {
		for _, g := range gradients { // not scaled on purpose
			if g != nil {
				tensor.ClearGradientTag(g)
			}
		}
	}
	update := func() {
		t.optimizer.ApplyGradients(gradients, vars)
		for _, f := range track {
			f()
		}
	}
	switch {
	case t.guard == nil:
		update()
	case t.scaler != nil: // which skips steps with gradients that overflow
		t.guard.update(loss.AllFinite(), nil, []*Model{m}, update)
	case t.scattered != nil:
		t.guard.update(loss.AllFinite().And(t.scattered.All(optimizers.AllFinite(gradients))), nil, []*Model{m}, update)
	default:
		t.guard.update(loss.AllFinite(), gradients, []*Model{m}, update)
	}
	return none{}
}

// gradients returns the gradients of a loss, multiplied by the loss scale if there is
// one.
func (m *Model) gradients(loss *Tensor, vars []*Variable) []*Tensor {
	if s := m.training.scaler; s != nil {
		loss = s.GetScaledLoss(loss)
	}
	if len(vars) == 0 {
		panic(&tensor.Error{Err: m.errorf("it has no trainable weights; unfreeze a layer with SetTrainable and Compile again")})
	}
	return Gradients(loss, vars)
}

// testStep judges one batch and changes nothing but the totals.
func (m *Model) testStep(b Batch) none {
	predictions, loss := m.judge(layers.Pass{}, b, nil)
	m.training.track(b, predictions, loss)
	return none{}
}

// loss is the weighted sum of the outputs' losses. For later see judge.
func (t *training) loss(b Batch, predictions *Tensor, later *[]func()) *Tensor {
	ys, ps, ws := t.judged(b, predictions)
	var sum *Tensor
	for i := range t.outputs {
		o := &t.outputs[i]
		if o.loss == nil {
			continue
		}
		l := callLoss(o.loss, ys[i], ps[i], ws[i])
		if l.Rank() != 0 {
			tensor.Fail("loss", "%T returns %v, want a scalar; use a Reduction other than none", o.loss, l.Type())
		}
		if o.mean != nil {
			mean, of, rows := o.mean, l, tensor.Scalar(l.DType(), float64(ps[i].Dim(0)))
			if add := func() { mean.AddWeighted(of, rows) }; later == nil {
				add()
			} else {
				*later = append(*later, add)
			}
		}
		if o.weight != 1 {
			l = l.MulScalar(o.weight)
		}
		if sum == nil {
			sum = l
		} else {
			sum = sum.Add(l.Cast(sum.DType()))
		}
	}
	if sum == nil {
		tensor.Fail("Compile", "every output has a nil loss")
	}
	return sum
}

func callLoss(l losses.Loss, y, p, w *Tensor) *Tensor {
	if w == nil {
		return l.Call(y, p)
	}
	lw, ok := l.(losses.Weighted)
	if !ok {
		tensor.Fail("loss", "%T takes no sample weights; implement losses.Weighted", l)
	}
	return lw.CallWeighted(y, p, w)
}

// track adds the batch to the totals. The loss of an epoch is the mean over
// its samples, so a batch counts with its size.
func (t *training) track(b Batch, predictions, loss *Tensor) {
	t.total.AddWeighted(loss, tensor.Scalar(loss.DType(), float64(predictions.Unpack()[0].Dim(0))))
	t.trackMetrics(b, predictions)
}

func (t *training) trackMetrics(b Batch, predictions *Tensor) {
	ys, ps, ws := t.judged(b, predictions)
	for i := range t.outputs {
		for _, m := range t.outputs[i].metrics {
			m.Update(ys[i], ps[i])
		}
		for _, m := range t.outputs[i].weighted {
			m.UpdateWeighted(ys[i], ps[i], ws[i])
		}
	}
}

// judged pairs targets, predictions and sample weights by output; see ready.
func (t *training) judged(b Batch, predictions *Tensor) (ys, ps, ws []*Tensor) {
	n := len(t.outputs)
	ws = make([]*Tensor, n)
	if b.Weight != nil {
		for i := range ws {
			ws[i] = b.Weight.Unpack()[min(i, b.Weight.Len()-1)]
		}
	}
	return b.Y.Unpack(), predictions.Unpack(), ws
}

// reset starts the totals of a step again: those of a built-in one if own is nil.
func (t *training) reset(own *ownStep) error {
	if err := t.total.Reset(); err != nil { // which also counts samples, see unseen
		return err
	}
	var first error
	t.each(own, func(_ string, m metrics.Accumulator) { first = cmp.Or(first, m.Reset()) })
	return first
}

// restart is reset of a step that may not be recorded yet for any batch, so that what it
// logs is unknown: metrics among it may have counted before, in the other step.
func (t *training) restart(own *ownStep, f *tensor.Func[Batch, none], b Batch) error {
	if own != nil && len(own.logs) == 0 {
		if _, err := f.MemoryOf(b); err != nil {
			return err
		}
	}
	return t.reset(own)
}

// read appends the totals of a step so far, sorted by name as Keras prints them.
func (t *training) read(own *ownStep, dst Logs) (Logs, error) {
	from := len(dst)
	var err error
	t.each(own, func(name string, m metrics.Accumulator) {
		v, e := m.Result()
		err = cmp.Or(err, e)
		dst = append(dst, Log{name, v})
	})
	if err == nil {
		err = t.unseen(dst[from:])
	}
	slices.SortStableFunc(dst[from:], func(a, b Log) int { return strings.Compare(a.Name, b.Name) })
	return dst, err
}

// TrainOnBatch runs one training step and returns its loss and metrics (Keras:
// Model.train_on_batch).
func (m *Model) TrainOnBatch(ctx context.Context, b Batch) (Logs, error) {
	return m.onBatch(ctx, b, true)
}

// TestOnBatch returns the loss and the metrics of the model on one batch
// (Keras: Model.test_on_batch).
func (m *Model) TestOnBatch(ctx context.Context, b Batch) (Logs, error) {
	return m.onBatch(ctx, b, false)
}

func (m *Model) onBatch(ctx context.Context, b Batch, train bool) (Logs, error) {
	where, ready := "TestOnBatch", m.readyToTest
	if train {
		where, ready = "TrainOnBatch", m.ready
	}
	if err := needs(ctx, where); err != nil {
		return nil, err
	}
	if err := ready(b); err != nil {
		return nil, err
	}
	t := m.training
	own, f := t.ownTest, t.test
	if train {
		own, f = t.ownTrain, t.train
	}
	if err := t.restart(own, f, b); err != nil {
		return nil, err
	}
	var err error
	if train {
		err = m.refusal(m.trainOn(ctx, b))
	} else {
		err = t.test.Run(ctx, b)
	}
	if err != nil {
		return nil, pipeline.WithCause(ctx, err)
	}
	return t.read(own, nil)
}

// StepResult describes the last training step: whether it was applied or
// skipped, the loss scale, the norm of the gradients.
func (m *Model) StepResult() (optimizers.StepResult, error) {
	if m.training == nil {
		return optimizers.StepResult{}, m.errorf("%w", ErrNotCompiled)
	}
	return m.training.result()
}

// TrainStep runs one training step without reading its loss and metrics back:
// what Fit does for each batch. From the second step on it allocates nothing.
func (m *Model) TrainStep(ctx context.Context, b Batch) error {
	if err := needs(ctx, "TrainStep"); err != nil {
		return err
	}
	if err := m.ready(b); err != nil {
		return err
	}
	return pipeline.WithCause(ctx, m.refusal(m.trainOn(ctx, b)))
}

// StepTimes runs one training step as TrainStep does and returns how long the device
// computed the values of each path: see tensor.Func.Times. Layers have their own path in
// the forward pass, and "path/grad" in the backward pass.
func (m *Model) StepTimes(ctx context.Context, b Batch) (map[string]time.Duration, error) {
	if err := needs(ctx, "StepTimes"); err != nil {
		return nil, err
	}
	if err := m.ready(b); err != nil {
		return nil, err
	}
	times, err := m.training.train.Times(ctx, b)
	if err == nil {
		err = m.refusal(m.refused(ctx, b))
	}
	return times, pipeline.WithCause(ctx, err)
}

// Trace runs one training step as TrainStep does and writes a timeline of the
// device's workers to w, in the format that chrome://tracing and Perfetto
// read. See tensor.Func.Trace.
func (m *Model) Trace(ctx context.Context, b Batch, w io.Writer) error {
	if err := needs(ctx, "Trace"); err != nil {
		return err
	}
	if err := m.ready(b); err != nil {
		return err
	}
	err := m.training.train.Trace(ctx, b, w)
	if err == nil {
		err = m.refusal(m.refused(ctx, b))
	}
	return pipeline.WithCause(ctx, err)
}
