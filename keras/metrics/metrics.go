// Package metrics holds numbers that are accumulated over batches on the
// device: the share of right answers, mean errors, means of anything.
//
// Main types: [Metric] compares predictions with targets; [Mean] and [Sum]
// take numbers. The zero value of each struct is Keras's default, and ready
// for use. Names from files become metrics with [Get].
//
// Rules:
//   - Totals and counts are float64 variables, so that a long epoch loses no
//     digits; what is added is computed in float32 whatever the policy.
//   - Update, Add and their like record: they belong into a tensor.Function
//     that has the metric in its list. Nothing is read back before Result.
//   - Results are means over samples, not of batches: a short last batch
//     weighs less. A sample weight multiplies a sample and is counted as so
//     many samples.
//   - Shapes do not broadcast but for sample weights. What does not fit panics
//     with *tensor.Error.
package metrics

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/op"
	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/backend/tensor/align"
)

// Accumulator is a number accumulated on the device.
type Accumulator interface {
	// Result reads the number back. It is 0 before the first update.
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

var byName = map[string]func() Metric{}

func init() {
	for _, e := range []struct {
		make  func() Metric
		names string
	}{
		{func() Metric { return &Accuracy{} }, "Accuracy accuracy"},
		{func() Metric { return &BinaryAccuracy{} }, "BinaryAccuracy binary_accuracy"},
		{func() Metric { return &CategoricalAccuracy{} }, "CategoricalAccuracy categorical_accuracy"},
		{func() Metric { return &SparseCategoricalAccuracy{} }, "SparseCategoricalAccuracy sparse_categorical_accuracy"},
		{func() Metric { return &TopKCategoricalAccuracy{} }, "TopKCategoricalAccuracy top_k_categorical_accuracy"},
		{func() Metric { return &SparseTopKCategoricalAccuracy{} }, "SparseTopKCategoricalAccuracy sparse_top_k_categorical_accuracy"},
		{func() Metric { return &MeanSquaredError{} }, "MeanSquaredError mean_squared_error mse MSE"},
		{func() Metric { return &MeanAbsoluteError{} }, "MeanAbsoluteError mean_absolute_error mae MAE"},
		{func() Metric { return &RootMeanSquaredError{} }, "RootMeanSquaredError root_mean_squared_error"},
	} {
		for _, n := range strings.Fields(e.names) {
			byName[n] = e.make
		}
	}
}

// Names lists what Get knows: class names, snake_case names and Keras's
// aliases.
func Names() []string {
	var all []string
	for n := range byName {
		all = append(all, n)
	}
	slices.Sort(all)
	return all
}

// Get returns a metric with its defaults by one of Names. "accuracy" is the
// class Accuracy; for what Keras's compile makes of that string, see
// ResolveAccuracy.
func Get(name string) (Metric, error) {
	if f := byName[name]; f != nil {
		return f(), nil
	}
	return nil, fmt.Errorf("metrics: got %q, want one of %s", name, strings.Join(Names(), ", "))
}

// ResolveAccuracy returns the metric that Keras's compile takes "accuracy"
// for, given what the targets and predictions of a batch are: BinaryAccuracy
// for one prediction per sample, SparseCategoricalAccuracy for targets that
// are class indices, else CategoricalAccuracy.
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

// add records that the values of a batch are added; class is for messages.
func (r *ratio) add(m named, class string, values, weight *tensor.Tensor) {
	r.variables(m)
	since := tensor.Mark()
	sum, samples, elements := weigh(class, values, weight)
	r.total.Assign(r.total.Value().Add(sum.DivScalar(float64(elements))))
	r.count.Assign(r.count.Value().Add(samples))
	tensor.Label("metrics/"+m.MetricName(), since, r.total.Value(), r.count.Value())
}

// compare adds what f makes of targets and predictions: a value for each
// sample, or several along further axes.
func (r *ratio) compare(m named, class string, yTrue, yPred, weight *tensor.Tensor, f func(t, p *tensor.Tensor) *tensor.Tensor) {
	values := align.Check(class, yTrue, yPred)
	if values == nil {
		since := tensor.Mark()
		values = f(yTrue, yPred)
		tensor.Label("metrics/"+m.MetricName(), since, values)
	}
	r.add(m, class, values, weight)
}

// Result implements Accumulator.
func (r *ratio) Result() (float64, error) {
	if r.total == nil {
		return 0, nil
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
		x, weight = align.SameRank(x, weight)
	}
	rows, size := 1, x.Shape().Size()
	if x.Rank() > 0 && (weight == nil || weight.Rank() > 0) {
		rows = x.Dim(0)
	}
	switch {
	case size == 0:
		return tensor.Scalar(f64, 0), tensor.Scalar(f64, 0), 1
	case weight == nil:
		return x.SumAs(f64), tensor.Scalar(f64, float64(rows)), size / rows
	}
	perWeight := x.Cast(f64) // the elements that have one weight, added up
	if n := weight.Rank(); n < x.Rank() {
		var rest []int
		for a := n; a < x.Rank(); a++ {
			rest = append(rest, a)
		}
		perWeight = x.SumAs(f64, rest...)
	}
	s, err := op.Broadcast(perWeight.Shape(), weight.Shape())
	if err != nil || !s.Equal(perWeight.Shape()) {
		tensor.Fail(class, "got sample weights %v for values of shape %v, want that shape, the start of it, or one that broadcasts to it", weight.Type(), x.Shape())
	}
	w := weight.Cast(f64).BroadcastTo(s...)
	return perWeight.Mul(w).Sum(), w.Sum().DivScalar(float64(s.Size() / rows)), size / rows
}
