package metrics

import (
	"cmp"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/tensor"
)

// Mean is the mean of the numbers that are added: Σ(x·weight)/Σweight. Default
// name: mean.
type Mean struct {
	Name string

	ratio
}

// MetricName implements Accumulator.
func (m *Mean) MetricName() string { return cmp.Or(m.Name, "mean") }

// Variables implements Accumulator.
func (m *Mean) Variables() []*tensor.Variable { return m.variables(m) }

// Add adds a scalar, or a value for each sample along the first axis of x;
// further axes are averaged.
func (m *Mean) Add(x *tensor.Tensor) { m.AddWeighted(x, nil) }

// AddWeighted is Add with weights. Their shape is the shape of x or of
// its first axes, or broadcasts to it; nil weights all equally. A scalar weight is the
// weight of all of x, such as the batch size if x is the mean of a batch.
func (m *Mean) AddWeighted(x, weight *tensor.Tensor) {
	inFunction(m, "Add")
	m.add(m, "Mean", number("Mean", x), weight)
}

// Sum is the sum of the numbers that are added: Σ(x·weight). Default name:
// sum.
type Sum struct {
	Name string

	total *tensor.Variable
}

// MetricName implements Accumulator.
func (m *Sum) MetricName() string { return cmp.Or(m.Name, "sum") }

// Variables implements Accumulator.
func (m *Sum) Variables() []*tensor.Variable {
	if m.total == nil {
		m.total = newTotal(m, "total")
	}
	return []*tensor.Variable{m.total}
}

// Add adds all elements of x.
func (m *Sum) Add(x *tensor.Tensor) { m.AddWeighted(x, nil) }

// AddWeighted is Add with weights, of the shape of x, or of the start of it,
// or broadcasting to it; nil weighs all alike.
func (m *Sum) AddWeighted(x, weight *tensor.Tensor) {
	inFunction(m, "Add")
	m.Variables()
	since := tensor.SequencePoint()
	sum, _, _ := weigh("Sum", number("Sum", x), weight)
	addTo(m, m.total, sum)
	tensor.Label("metrics/"+m.MetricName(), since, m.total.Value())
}

// Result implements Accumulator.
func (m *Sum) Result() (float64, error) {
	if m.total == nil {
		return 0, unread()
	}
	return m.total.Item()
}

// Reset implements Accumulator.
func (m *Sum) Reset() error {
	if m.total == nil {
		return nil
	}
	return m.total.Reset()
}

// number returns x for adding up: 16-bit floats widened, others as they are.
func number(class string, x *tensor.Tensor) *tensor.Tensor {
	switch {
	case x == nil:
		tensor.Fail(class, "got nil, want a tensor")
	case x.IsTuple():
		tensor.Fail(class, "got a tuple of %d tensors, want one", x.Len())
	case x.DType() == dtype.Bool:
		return x.Cast(dtype.Int32)
	}
	return x.Widen()
}
