package metrics

import (
	"cmp"

	"github.com/mezzo-ml/mezzo/backend/tensor"
)

// ConfusionMatrix counts which class was predicted for which
// (tf.math.confusion_matrix). Its result, as of every metric a number, is the share of
// samples that are predicted right; Counts and Weights return the matrix. Default name:
// confusion_matrix.
//
//	matrix := &metrics.ConfusionMatrix{NumClasses: 10}
//	… Metrics: []metrics.Metric{matrix} …
//	scores, err := model.Evaluate(ctx, test)
//	counts, err := matrix.Counts()
//	err = plot.Confusion("confusion.png", counts, nil)
//
// Shapes: yTrue [batch] or [batch 1], yPred [batch classes]; with SparseYPred that of
// yTrue. Further axes count as samples. Classes out of range do not count.
type ConfusionMatrix struct {
	NumClasses  int   // required
	SparseYTrue *bool // targets are class indices, not one-hot or probabilities; default: true
	SparseYPred bool  // predictions are class indices, not probabilities or logits
	Name        string

	matrix
}

// MetricName implements Accumulator.
func (m *ConfusionMatrix) MetricName() string { return cmp.Or(m.Name, "confusion_matrix") }

// Variables implements Accumulator.
func (m *ConfusionMatrix) Variables() []*tensor.Variable { return m.variables(m, m.NumClasses) }

// Update implements Metric.
func (m *ConfusionMatrix) Update(yTrue, yPred *tensor.Tensor) { m.UpdateWeighted(yTrue, yPred, nil) }

// UpdateWeighted implements Metric.
func (m *ConfusionMatrix) UpdateWeighted(yTrue, yPred, sampleWeight *tensor.Tensor) {
	check("ConfusionMatrix", yTrue, yPred)
	if !m.SparseYPred && (yPred.Rank() == 0 || yPred.Dim(-1) != m.NumClasses) {
		tensor.Fail("ConfusionMatrix", "got predictions %v, want %d classes along the last axis, or set SparseYPred", yPred.Type(), m.NumClasses)
	}
	m.update(m, "ConfusionMatrix", classes{n: m.NumClasses, sparseTrue: *cmp.Or(m.SparseYTrue, new(true)), sparsePred: m.SparseYPred}, yTrue, yPred, sampleWeight)
}

// Result implements Accumulator.
func (m *ConfusionMatrix) Result() (float64, error) {
	rows, err := m.Weights()
	var right, all float64
	for i, row := range rows {
		right += row[i]
		for _, w := range row {
			all += w
		}
	}
	return right / max(all, 1e-300), err
}

// Weights is the matrix: row i has, for each class j, the sum of the weights of the
// samples of class i that were predicted as j. It belongs outside of Functions.
func (m *ConfusionMatrix) Weights() ([][]float64, error) {
	if m.total == nil {
		return nil, unread()
	}
	data, err := m.total.Float64s()
	if err != nil {
		return nil, err
	}
	n := m.total.Shape()[0]
	rows := make([][]float64, n)
	for i := range rows {
		rows[i] = data[i*n : (i+1)*n]
	}
	return rows, nil
}

// Counts is Weights rounded to whole numbers: the numbers of samples, where they have no
// weights. plot.Confusion draws them.
func (m *ConfusionMatrix) Counts() ([][]int, error) {
	weights, err := m.Weights()
	var counts [][]int
	for _, row := range weights {
		var of []int
		for _, w := range row {
			of = append(of, int(w+0.5))
		}
		counts = append(counts, of)
	}
	return counts, err
}
