package metrics

import (
	"cmp"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/backend/tensor/lossmath"
	"github.com/mezzo-ml/mezzo/backend/tensor/lossshape"
)

// IoU is the mean of intersection over union, TP/(TP+FP+FN), of the classes
// TargetClassIDs, but for those that are neither in targets nor in predictions.
// Sample weights keep their fractions; Keras truncates them unless told
// otherwise. Default name: io_u.
//
// Shapes: yTrue and yPred equal, up to a last axis of 1, without the axis of the
// classes where they have one; every element is a sample.
type IoU struct {
	NumClasses     int   // required
	TargetClassIDs []int // default: all
	IgnoreClass    *int  // targets of this class do not count; default: none
	SparseYTrue    *bool // targets are class indices, not one-hot or probabilities; default: true
	SparseYPred    *bool // predictions are class indices, not probabilities; default: true
	Axis           *int  // of the classes, where they are not sparse; default: -1
	Name           string

	matrix
}

// MetricName implements Accumulator.
func (m *IoU) MetricName() string { return cmp.Or(m.Name, "io_u") }

// Variables implements Accumulator.
func (m *IoU) Variables() []*tensor.Variable { return m.variables(m, m.NumClasses) }

// Update implements Metric.
func (m *IoU) Update(yTrue, yPred *tensor.Tensor) { m.UpdateWeighted(yTrue, yPred, nil) }

// UpdateWeighted implements Metric.
func (m *IoU) UpdateWeighted(yTrue, yPred, sampleWeight *tensor.Tensor) {
	m.update(m, "IoU", classes{n: m.NumClasses, targets: m.TargetClassIDs, ignore: m.IgnoreClass, sparseTrue: *cmp.Or(m.SparseYTrue, new(true)), sparsePred: *cmp.Or(m.SparseYPred, new(true)), axis: m.Axis}, yTrue, yPred, sampleWeight)
}

// Result implements Accumulator.
func (m *IoU) Result() (float64, error) {
	return m.iou(m.TargetClassIDs)
}

// MeanIoU is IoU of all classes. Default name: mean_io_u.
//
// Shapes: yTrue and yPred equal, up to a last axis of 1, without the axis of the
// classes where they have one; every element is a sample.
type MeanIoU struct {
	NumClasses  int   // required
	IgnoreClass *int  // targets of this class do not count; default: none
	SparseYTrue *bool // targets are class indices, not one-hot or probabilities; default: true
	SparseYPred *bool // predictions are class indices, not probabilities; default: true
	Axis        *int  // of the classes, where they are not sparse; default: -1
	Name        string

	matrix
}

// MetricName implements Accumulator.
func (m *MeanIoU) MetricName() string { return cmp.Or(m.Name, "mean_io_u") }

// Variables implements Accumulator.
func (m *MeanIoU) Variables() []*tensor.Variable { return m.variables(m, m.NumClasses) }

// Update implements Metric.
func (m *MeanIoU) Update(yTrue, yPred *tensor.Tensor) { m.UpdateWeighted(yTrue, yPred, nil) }

// UpdateWeighted implements Metric.
func (m *MeanIoU) UpdateWeighted(yTrue, yPred, sampleWeight *tensor.Tensor) {
	m.update(m, "MeanIoU", classes{n: m.NumClasses, ignore: m.IgnoreClass, sparseTrue: *cmp.Or(m.SparseYTrue, new(true)), sparsePred: *cmp.Or(m.SparseYPred, new(true)), axis: m.Axis}, yTrue, yPred, sampleWeight)
}

// Result implements Accumulator.
func (m *MeanIoU) Result() (float64, error) {
	return m.iou(nil)
}

// OneHotIoU is IoU for targets that are one-hot. Default name: one_hot_io_u.
//
// Shapes: yTrue and yPred equal, up to a last axis of 1, without the axis of the
// classes where they have one; every element is a sample.
type OneHotIoU struct {
	NumClasses     int   // required
	TargetClassIDs []int // default: all
	IgnoreClass    *int  // targets of this class do not count; default: none
	SparseYPred    *bool // predictions are class indices, not probabilities; default: false
	Axis           *int  // of the classes, where they are not sparse; default: -1
	Name           string

	matrix
}

// MetricName implements Accumulator.
func (m *OneHotIoU) MetricName() string { return cmp.Or(m.Name, "one_hot_io_u") }

// Variables implements Accumulator.
func (m *OneHotIoU) Variables() []*tensor.Variable { return m.variables(m, m.NumClasses) }

// Update implements Metric.
func (m *OneHotIoU) Update(yTrue, yPred *tensor.Tensor) { m.UpdateWeighted(yTrue, yPred, nil) }

// UpdateWeighted implements Metric.
func (m *OneHotIoU) UpdateWeighted(yTrue, yPred, sampleWeight *tensor.Tensor) {
	m.update(m, "OneHotIoU", classes{n: m.NumClasses, targets: m.TargetClassIDs, ignore: m.IgnoreClass, sparsePred: *cmp.Or(m.SparseYPred, new(false)), axis: m.Axis}, yTrue, yPred, sampleWeight)
}

// Result implements Accumulator.
func (m *OneHotIoU) Result() (float64, error) {
	return m.iou(m.TargetClassIDs)
}

// OneHotMeanIoU is IoU of all classes for targets that are one-hot. Default
// name: one_hot_mean_io_u.
//
// Shapes: yTrue and yPred equal, up to a last axis of 1, without the axis of the
// classes where they have one; every element is a sample.
type OneHotMeanIoU struct {
	NumClasses  int   // required
	IgnoreClass *int  // targets of this class do not count; default: none
	SparseYPred *bool // predictions are class indices, not probabilities; default: false
	Axis        *int  // of the classes, where they are not sparse; default: -1
	Name        string

	matrix
}

// MetricName implements Accumulator.
func (m *OneHotMeanIoU) MetricName() string { return cmp.Or(m.Name, "one_hot_mean_io_u") }

// Variables implements Accumulator.
func (m *OneHotMeanIoU) Variables() []*tensor.Variable { return m.variables(m, m.NumClasses) }

// Update implements Metric.
func (m *OneHotMeanIoU) Update(yTrue, yPred *tensor.Tensor) { m.UpdateWeighted(yTrue, yPred, nil) }

// UpdateWeighted implements Metric.
func (m *OneHotMeanIoU) UpdateWeighted(yTrue, yPred, sampleWeight *tensor.Tensor) {
	m.update(m, "OneHotMeanIoU", classes{n: m.NumClasses, ignore: m.IgnoreClass, sparsePred: *cmp.Or(m.SparseYPred, new(false)), axis: m.Axis}, yTrue, yPred, sampleWeight)
}

// Result implements Accumulator.
func (m *OneHotMeanIoU) Result() (float64, error) {
	return m.iou(nil)
}

// BinaryIoU is IoU of the classes 0 and 1, for targets that are these and
// predictions that are class 1 at or above a threshold. Default name:
// binary_io_u.
//
// Shapes: yTrue and yPred equal, up to a last axis of 1, without the axis of the
// classes where they have one; every element is a sample.
type BinaryIoU struct {
	TargetClassIDs []int    // default: 0 and 1
	Threshold      *float64 // default: 0.5
	Name           string

	matrix
}

// MetricName implements Accumulator.
func (m *BinaryIoU) MetricName() string { return cmp.Or(m.Name, "binary_io_u") }

// Variables implements Accumulator.
func (m *BinaryIoU) Variables() []*tensor.Variable { return m.variables(m, 2) }

// Update implements Metric.
func (m *BinaryIoU) Update(yTrue, yPred *tensor.Tensor) { m.UpdateWeighted(yTrue, yPred, nil) }

// UpdateWeighted implements Metric.
func (m *BinaryIoU) UpdateWeighted(yTrue, yPred, sampleWeight *tensor.Tensor) {
	m.update(m, "BinaryIoU", classes{n: 2, targets: m.TargetClassIDs, sparseTrue: true, threshold: cmp.Or(m.Threshold, new(0.5))}, yTrue, yPred, sampleWeight)
}

// Result implements Accumulator.
func (m *BinaryIoU) Result() (float64, error) {
	return m.iou(m.TargetClassIDs)
}

// classes says how targets and predictions become class indices.
type classes struct {
	n                      int
	targets                []int
	ignore                 *int
	sparseTrue, sparsePred bool
	axis                   *int
	threshold              *float64 // predictions at or above are class 1
}

// matrix is a confusion matrix: the weight of samples of each class, by the
// class that was predicted.
//
// The variable is float64 [classes classes], targets first.
type matrix struct{ total *tensor.Variable }

func (c *matrix) variables(m named, n int) []*tensor.Variable {
	if n <= 0 {
		return nil // update reports it
	}
	if c.total == nil {
		c.total = tensor.NewState(m.MetricName()+"/total_confusion_matrix", dtype.Float64, tensor.Shape{n, n}, nil)
	}
	return []*tensor.Variable{c.total}
}

// update records that a batch is counted.
func (c *matrix) update(m named, class string, k classes, yTrue, yPred, weight *tensor.Tensor) {
	if k.n <= 0 {
		tensor.Fail(class, "got NumClasses %d, want a positive number", k.n)
	}
	for _, id := range k.targets {
		if id < 0 || id >= k.n {
			tensor.Fail(class, "got %d in TargetClassIDs, want 0 to %d", id, k.n-1)
		}
	}
	check(class, yTrue, yPred)
	c.variables(m, k.n)
	since := tensor.SequencePoint()
	index := func(x *tensor.Tensor, sparse bool) *tensor.Tensor {
		if !sparse {
			x = lossshape.Float(x).ArgMax(lossmath.Axis(class, k.axis, x))
		}
		return x.Cast(dtype.Int64)
	}
	if k.sparseTrue {
		yTrue = lossshape.Whole(lossshape.Indices(yTrue), yTrue, k.n)
	}
	t, p := index(yTrue, k.sparseTrue), yPred
	if k.threshold != nil {
		p = lossshape.Float(p)
		p = p.GreaterEqual(tensor.Scalar(p.DType(), *k.threshold)).Cast(dtype.Int64)
	} else {
		p = index(p, k.sparsePred)
	}
	t, p = lossshape.Pair(class, t, p)
	limit := func(x float64) *tensor.Tensor { return tensor.Scalar(dtype.Int64, x) }
	inside := func(x *tensor.Tensor) *tensor.Tensor {
		return x.GreaterEqual(limit(0)).And(x.Less(limit(float64(k.n))))
	}
	counted := inside(t).And(inside(p))
	if k.ignore != nil {
		counted = counted.And(t.NotEqual(limit(float64(*k.ignore))))
	}
	w := counted.Cast(dtype.Float64)
	if weight != nil {
		w = tensor.Where(counted, spread(class, weight, t.Shape()), tensor.Scalar(dtype.Float64, 0))
	}
	at := tensor.Where(counted, t.MulScalar(float64(k.n)).Add(p), limit(0))
	size := t.Shape().Size()
	added := w.Reshape(size).ScatterAdd(at.Reshape(size), k.n*k.n).Reshape(k.n, k.n)
	addTo(m, c.total, added)
	tensor.Label("metrics/"+m.MetricName(), since, c.total.Value())
}

// iou is the mean over the classes that occur among ids; none are all.
func (c *matrix) iou(ids []int) (float64, error) {
	if c.total == nil {
		return 0, unread()
	}
	data, err := c.total.Float64s()
	if err != nil {
		return 0, err
	}
	n := c.total.Shape()[0]
	if len(ids) == 0 {
		for i := range n {
			ids = append(ids, i)
		}
	}
	var sum, found float64
	for _, id := range ids {
		var union float64
		for i := range n {
			union += data[id*n+i] + data[i*n+id]
		}
		hit := data[id*n+id]
		if union -= hit; union > 1e-9 {
			sum += hit / (union + lossmath.Epsilon)
			found++
		}
	}
	return sum / (found + lossmath.Epsilon), nil
}

// Reset implements Accumulator.
func (c *matrix) Reset() error {
	if c.total == nil {
		return nil
	}
	return c.total.Reset()
}
