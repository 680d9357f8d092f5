package keras

import (
	"context"

	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/keras/internal/pipeline"
)

// Beside runs the training step on b beside itself in a wider type and returns
// statistics of each value and its shadow: see tensor.Func.Beside. It changes no
// variable. The model must be compiled.
func (m *Model) Beside(ctx context.Context, b Batch, o tensor.BesideOptions) (taps *tensor.Taps, err error) {
	defer tensor.Catch(&err)
	if err := needs(ctx, "Beside"); err != nil {
		return nil, err
	}
	defer func() { err = pipeline.WithCause(ctx, err) }()
	if err := m.ready(b); err != nil {
		return nil, err
	}
	return m.training.train.Beside(ctx, b, o)
}
