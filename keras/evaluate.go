package keras

import (
	"context"
	"fmt"
	"slices"

	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/keras/internal/pipeline"
	"github.com/mezzo-ml/mezzo/layers"
)

// Evaluate returns the loss and the metrics of the model on a dataset (Keras:
// Model.evaluate). The model must be compiled. A Pipeline that is not batched
// is batched by 1024 samples, a dataset of package keras/data by 32.
func (m *Model) Evaluate(ctx context.Context, d Dataset) (logs Logs, err error) {
	defer tensor.Catch(&err)
	if m.training == nil {
		return nil, m.errorf("%w; call Compile before Evaluate", ErrNotCompiled)
	}
	if err := needs(ctx, "Evaluate"); err != nil {
		return nil, err
	}
	if isNil(d) {
		return nil, fmt.Errorf("Evaluate: no dataset given")
	}
	source, err := batchedSource(ctx, m, d, FitConfig{BatchSize: readRows(d)}, 0, "use Take")
	if err != nil {
		return nil, fmt.Errorf("Evaluate: %w", err)
	}
	logs, err = m.evaluate(ctx, source, 0, nil)
	return logs, pipeline.WithCause(ctx, err)
}

// evaluate judges the model on a dataset. Ranks share the rows of each batch.
func (m *Model) evaluate(ctx context.Context, source epochs, steps int, ranks *ranks) (Logs, error) {
	t := m.training
	judge := func(b Batch) (*tensor.Func[Batch, none], error) {
		if err := m.readyToTest(b); err != nil {
			return nil, err
		}
		if ranks != nil && t.share != nil {
			return t.share, nil
		}
		return t.test, nil
	}
	if ranks != nil {
		source.at = ranks.inStep(ctx, source.at)
	}
	n := 0
	for b, err := range source.open(0, 0) {
		if err != nil {
			return nil, fmt.Errorf("Evaluate: batch %d: %w", n+1, err)
		}
		f, err := judge(b)
		if err != nil {
			return nil, err
		}
		if n == 0 {
			if err := t.restart(t.ownTest, t.test, b); err != nil {
				return nil, err
			}
		}
		if err := f.Run(ctx, b); err != nil {
			return nil, err
		}
		b.Release()
		if n++; n == steps {
			break
		}
	}
	if n == 0 {
		return nil, fmt.Errorf("Evaluate: %w", ErrEmptyDataset)
	}
	if t.share == nil { // every rank has judged everything
		ranks = nil
	}
	return ranks.read(t, t.ownTest)
}

// predictRows is how many samples Predict takes at a time.
const predictRows = 1024

// readRows is how many samples of a dataset without batches Evaluate and
// PredictDataset take at a time.
func readRows(d Dataset) int {
	if _, ok := d.(*Pipeline); ok {
		return predictRows
	}
	return 32 // Keras's default
}

// Predict returns the model's outputs for x, computed for inference (Keras:
// Model.predict). Axis 0 of x counts samples; more than 1024 are computed in
// several runs. Any number of goroutines may call Predict, also while one
// trains the model: they compute with the weights between two steps.
// Predictions of a model with layers that keep a state between calls, such as
// a Stateful RNN, run one after the other. Release of the result makes its
// memory available to the next call. Batch normalization is folded into the
// kernels before it, which changes the last bits of what Evaluate computes.
func (m *Model) Predict(ctx context.Context, x *Tensor) (y *Tensor, err error) {
	defer tensor.Catch(&err)
	if err := needs(ctx, "Predict"); err != nil {
		return nil, err
	}
	if err := m.predictable(x); err != nil {
		return nil, err
	}
	n := -1
	for _, t := range x.Unpack() {
		if t.Rank() == 0 {
			return nil, m.errorf("Predict: the input is the scalar %v; axis 0 counts samples", t.Type())
		}
		n = max(n, t.Dim(0))
	}
	if n <= predictRows {
		y, err := m.prediction.Call(ctx, x)
		return y, pipeline.WithCause(ctx, err)
	}
	return m.PredictDataset(ctx, FromTensors(x, nil, nil).Batch(predictRows))
}

// predictable builds the model for x, and its prediction.
func (m *Model) predictable(x *Tensor) error {
	if x == nil {
		return m.errorf("Predict: no input given")
	}
	if err := x.Err(); err != nil {
		return err
	}
	m.predicting.Lock()
	defer m.predicting.Unlock()
	if err := m.buildFor(x); err != nil {
		return err
	}
	if m.prediction == nil {
		m.prediction = Function(func(x *Tensor) *Tensor { return m.call(layers.Pass{}, x, true) }, m)
		m.prediction.FoldNormalization(true)
		if m.plans > 0 {
			m.prediction.KeepPlans(m.plans)
		}
	}
	return nil
}

// PredictDataset returns the model's outputs for X of all batches of a
// dataset, computed for inference (Keras: Model.predict of a dataset), as one
// tensor or tuple. A dataset that is not batched is batched as by Evaluate.
func (m *Model) PredictDataset(ctx context.Context, d Dataset) (y *Tensor, err error) {
	defer tensor.Catch(&err)
	if err := needs(ctx, "PredictDataset"); err != nil {
		return nil, err
	}
	defer func() { err = pipeline.WithCause(ctx, err) }()
	if isNil(d) {
		return nil, m.errorf("PredictDataset: no dataset given")
	}
	source, err := batchedSource(ctx, m, d, FitConfig{BatchSize: readRows(d)}, 0, "use Take")
	if err != nil {
		return nil, fmt.Errorf("PredictDataset: %w", err)
	}
	var parts [][]*Tensor
	tuple := false
	for b, err := range source.open(0, 0) {
		if err != nil {
			return nil, fmt.Errorf("PredictDataset: batch %d: %w", len(parts)+1, err)
		}
		if err := m.predictable(b.X); err != nil {
			return nil, err
		}
		y, err := m.prediction.Call(ctx, b.X)
		if err != nil {
			return nil, err
		}
		b.Release()
		tuple = y.IsTuple()
		parts = append(parts, y.Unpack())
	}
	if parts == nil {
		return nil, fmt.Errorf("PredictDataset: %w", ErrEmptyDataset)
	}
	out := make([]*Tensor, len(parts[0]))
	for i := range out {
		var column []*Tensor
		for _, p := range parts {
			column = append(column, p[i])
		}
		out[i] = tensor.Concat(0, column...)
	}
	if err := tensor.Eval(ctx, out...); err != nil {
		return nil, err
	}
	if !tuple {
		return out[0], nil
	}
	return tensor.Tuple(slices.Clone(out)...), nil
}
