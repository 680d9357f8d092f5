package keras

import "github.com/mezzo-ml/mezzo/backend/ir"

// TrainOptions changes how the training steps of a compiled model are
// compiled; b is a batch to build it for.
func TrainOptions(m *Model, b Batch, o ir.Options) error {
	if err := m.ready(b); err != nil {
		return err
	}
	m.training.train.Options(o)
	return nil
}
