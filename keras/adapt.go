package keras

import (
	"context"
	"fmt"

	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/keras/internal/pipeline"
	"github.com/mezzo-ml/mezzo/layers"
)

// Adapter is a layer whose state comes from data before training:
// Normalization, Discretization and IntegerLookup of package preprocessing.
type Adapter interface {
	layers.Layer
	Adapt(batches ...*Tensor) error
}

// Adapt fits the state of a layer to the X of a dataset (Keras: layer.adapt).
// The X of all batches are in memory together. When ctx ends the layer keeps its
// old state.
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
