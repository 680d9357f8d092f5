package keras

import (
	"context"
	"fmt"

	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/keras/internal/pipeline"
	"github.com/mezzo-ml/mezzo/layers"
)

// Adapter is a layer whose state is computed from data before training:
// Normalization, Discretization and IntegerLookup of package
// layers/preprocessing. See Adapt.
type Adapter interface {
	layers.Layer
	Adapt(batches ...*Tensor) error
}

// Adapt computes the state of a preprocessing layer from X of all batches of a
// dataset (Keras: layer.adapt). All of X is in memory at once. If ctx ends,
// Adapt returns its error and the layer keeps its old state.
func Adapt(ctx context.Context, l Adapter, d Dataset) (err error) {
	defer tensor.Catch(&err)
	if err := needs(ctx, "Adapt"); err != nil {
		return err
	}
	defer func() { err = pipeline.WithCause(ctx, err) }()
	if isNil(d) {
		return fmt.Errorf("Adapt: no dataset given")
	}
	source, err := batchedSource(ctx, nil, d, FitConfig{BatchSize: readRows(d)}, 0, "give one that ends")
	if err != nil {
		return fmt.Errorf("Adapt: %w", err)
	}
	var all []*Tensor
	for b, err := range source.open(0, 0) {
		switch {
		case err != nil:
			return fmt.Errorf("Adapt: batch %d: %w", len(all)+1, err)
		case ctx.Err() != nil:
			return ctx.Err()
		case b.X == nil || b.X.IsTuple():
			return fmt.Errorf("Adapt: batch %d: X is %s, want one tensor", len(all)+1, typeText(b.X))
		}
		x, err := b.X.Clone()
		if err != nil {
			return err
		}
		b.Release()
		all = append(all, x)
	}
	if len(all) == 0 {
		return fmt.Errorf("Adapt: %w", ErrEmptyDataset)
	}
	return l.Adapt(all...)
}
