// Package metrics has Keras's metrics: numbers that are accumulated over batches
// on the device, such as accuracies and mean errors.
//
//	model.Compile(keras.CompileConfig{Metrics: []metrics.Metric{&metrics.AUC{}}})
//
// A [Metric] compares predictions with targets; a [Vector] has several results;
// [Mean] and [Sum] take numbers. A metric is a struct. Its exported fields are
// the arguments of Keras's constructor, and the zero value of a field is Keras's
// default, unless the field is required. [Get] returns a metric by its Keras
// name; [Direction] says whether more of a metric is better.
//
// # Rules
//
//   - Totals and counts are float64 variables, so that a long epoch loses no
//     digits. Summands are computed in float32 under every policy.
//   - Update and Add record operations: call them in a keras.Function that lists
//     the metric. Nothing is read back before Result.
//   - Results are means over samples and not over batches. A sample weight
//     multiplies a sample and counts as that many samples.
//   - Masked steps do not count in means. Counts, scores and confusion matrices
//     ignore masks, as in Keras: use sample weights.
//   - Shapes do not broadcast, except those of sample weights. Update panics with
//     *keras.Error if something does not fit.
package metrics

import (
	"errors"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/op"
	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/backend/tensor/lossshape"
)

// Accumulator is a number accumulated on the device.
type Accumulator interface {
	// Result reads the number back. It is 0 before the first update, and an
	// error inside a Function.
	Result() (float64, error)
	// Reset starts over: at the beginning of an epoch. Like Result it belongs
	// outside of Functions.
	Reset() error
	// Variables lists the state, for Functions and checkpoints.
	Variables() []*tensor.Variable
	// MetricName is the Name field, or Keras's default for the class.
	MetricName() string
}

// Metric is an Accumulator that compares predictions with targets.
type Metric interface {
	Accumulator
	// Update adds a batch, the first axis of which is the samples.
	Update(yTrue, yPred *tensor.Tensor)
	// UpdateWeighted is Update with a weight for each sample, or for each of
	// its steps; nil weighs all alike.
	UpdateWeighted(yTrue, yPred, sampleWeight *tensor.Tensor)
}

// ResolveAccuracy returns the metric that Keras's compile chooses for
// "accuracy", given the types of the targets and predictions of a batch:
// BinaryAccuracy for one prediction per sample, SparseCategoricalAccuracy for
// targets that are class indices, else CategoricalAccuracy.
func ResolveAccuracy(yTrue, yPred op.Type) Metric {
	last := func(t op.Type) int {
		if n := len(t.Shape); n > 0 {
			return t.Shape[n-1]
		}
		return 1
	}
	switch {
	case last(yPred) == 1:
		return &BinaryAccuracy{}
	case len(yTrue.Shape) < len(yPred.Shape) || last(yTrue) == 1:
		return &SparseCategoricalAccuracy{}
	}
	return &CategoricalAccuracy{}
}

// Vector is a Metric with several results: one for each threshold or class.
type Vector interface {
	Metric
	// Results reads them back. Result is their mean. There are none before the
	// first update where that tells how many there are.
	Results() ([]float64, error)
}

// named is what state asks its owner for the name of variables.
type named interface{ MetricName() string }

// ratio is the state of a mean: Σ(value·weight) and Σweight. Its owner embeds
// it.
type ratio struct{ total, count *tensor.Variable }

func (r *ratio) variables(m named) []*tensor.Variable {
	if r.total == nil {
		r.total, r.count = newTotal(m, "total"), newTotal(m, "count")
	}
	return []*tensor.Variable{r.total, r.count}
}

func newTotal(m named, name string) *tensor.Variable {
	return tensor.NewState(m.MetricName()+"/"+name, dtype.Float64, nil, nil)
}

// addTo records that x is added to v, which belongs to m.
func addTo(m named, v *tensor.Variable, x *tensor.Tensor) {
	inFunction(m, "Update")
	v.Assign(v.Value().Add(x))
}

// inFunction fails where a method of m that records is called outside of
// Functions.
func inFunction(m named, method string) {
	if tensor.Recording() == 0 {
		tensor.Fail("metric "+m.MetricName(), "%s belongs in a keras.Function that lists it", method)
	}
}

// add records that the values of a batch are added; class is for messages.
func (r *ratio) add(m named, class string, values, weight *tensor.Tensor) {
	r.variables(m)
	since := tensor.SequencePoint()
	sum, samples, elements := weigh(class, values, weight)
	addTo(m, r.total, sum.DivScalar(float64(elements)))
	addTo(m, r.count, samples)
	tensor.Label("metrics/"+m.MetricName(), since, r.total.Value(), r.count.Value())
}

// compare adds what f makes of targets and predictions: a value for each
// sample, or several along further axes.
func (r *ratio) compare(m named, class string, yTrue, yPred, weight *tensor.Tensor, f func(class string, t, p *tensor.Tensor) *tensor.Tensor) {
	r.compareSome(m, class, yTrue, yPred, weight, func(class string, t, p *tensor.Tensor) (*tensor.Tensor, *tensor.Tensor) {
		return f(class, t, p), nil
	})
}

// compareSome is compare where f may say, for each value, whether it counts.
func (r *ratio) compareSome(m named, class string, yTrue, yPred, weight *tensor.Tensor, f func(class string, t, p *tensor.Tensor) (values, counts *tensor.Tensor)) {
	check(class, yTrue, yPred)
	since := tensor.SequencePoint()
	values, counts := f(class, yTrue, yPred)
	if m := lossshape.Mask(class, yPred, values); m != nil {
		// What padding made must not do harm, even if it is not finite.
		values = tensor.Where(m, values, tensor.Scalar(values.DType(), 0))
		if counts != nil {
			m = m.And(counts)
		}
		counts = m
	}
	if counts != nil {
		counts = counts.Cast(dtype.Float64)
		if weight != nil {
			counts = counts.Mul(spread(class, weight, counts.Shape()))
		}
		weight = counts
	}
	tensor.Label("metrics/"+m.MetricName(), since, values, weight)
	r.add(m, class, values, weight)
}

// check panics unless both are whole tensors.
func check(class string, yTrue, yPred *tensor.Tensor) {
	if broken := lossshape.Check(class, yTrue, yPred); broken != nil {
		panic(&tensor.Error{Op: class, Err: broken.Err()})
	}
}

// spread gives each element of shape its weight, as float64.
func spread(class string, weight *tensor.Tensor, shape tensor.Shape) *tensor.Tensor {
	w := weight
	if w.Rank() == len(shape)+1 && w.Dim(-1) == 1 {
		w = w.Squeeze(-1)
	}
	for w.Rank() < len(shape) {
		w = w.ExpandDims(-1)
	}
	s, err := op.Broadcast(w.Shape(), shape)
	if err != nil || !s.Equal(shape) {
		failWeights(class, weight, shape)
	}
	return w.Cast(dtype.Float64).BroadcastTo(shape...)
}

func failWeights(class string, weight *tensor.Tensor, shape tensor.Shape) {
	tensor.Fail(class, "got sample weights %v for values of shape %v, want that shape, the start of it, or one that broadcasts to it", weight.Type(), shape)
}

// unread is the error of reading a metric that has no variables yet: none but
// inside a Function, where those that have some are errors too.
func unread() error { return tensor.Readable("a metric") }

// Result implements Accumulator.
func (r *ratio) Result() (float64, error) {
	if r.total == nil {
		return 0, unread()
	}
	total, err := r.total.Item()
	if err != nil {
		return 0, err
	}
	count, err := r.count.Item()
	if err != nil || count == 0 {
		return 0, err
	}
	return total / count, nil
}

// Reset implements Accumulator.
func (r *ratio) Reset() error {
	if r.total == nil {
		return nil
	}
	return errors.Join(r.total.Reset(), r.count.Reset())
}

// weigh gives Σ(x·weight) over all elements of x and the weight of all samples
// together, as float64 scalars, and how many elements a sample has. The first
// axis of x is the samples; a scalar weight makes one sample of all of x.
// Weights may lack axes at the end; those of a sample's steps are averaged to
// that of the sample (Keras reduce_to_samplewise_values).
func weigh(class string, x, weight *tensor.Tensor) (sum, samples *tensor.Tensor, elements int) {
	const f64 = dtype.Float64
	if x.Err() != nil {
		return x, x, 1
	}
	if weight != nil {
		x, weight = lossshape.SameRank(x, weight)
	}
	rows, size := 1, x.Shape().Size()
	if x.Rank() > 0 && (weight == nil || weight.Rank() > 0) {
		rows = x.Dim(0)
	}
	switch {
	case size == 0:
		return tensor.Scalar(f64, 0), tensor.Scalar(f64, 0), 1
	case weight == nil:
		return tensor.SumAs(x, f64), tensor.Scalar(f64, float64(rows)), size / rows
	}
	perWeight := x.Cast(f64) // the elements that have one weight, added up
	if n := weight.Rank(); n < x.Rank() {
		var rest []int
		for a := n; a < x.Rank(); a++ {
			rest = append(rest, a)
		}
		perWeight = tensor.SumAs(x, f64, rest...)
	}
	s, err := op.Broadcast(perWeight.Shape(), weight.Shape())
	if err != nil || !s.Equal(perWeight.Shape()) {
		failWeights(class, weight, x.Shape())
	}
	w := weight.Cast(f64).BroadcastTo(s...)
	return perWeight.Mul(w).Sum(), w.Sum().DivScalar(float64(s.Size() / rows)), size / rows
}
