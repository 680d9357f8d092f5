package keras

import (
	"iter"
	"slices"

	"github.com/mezzo-ml/mezzo/backend/op"
	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/keras/internal/pipeline"
)

// Batch is what one training step sees. X and Y are tuples for models with
// several inputs or outputs. Weight holds one weight per sample, or is nil.
type Batch struct{ X, Y, Weight *Tensor }

// Release returns the memory of a batch to its dataset, which reuses it for a
// later batch. Call it at the end of the body of a loop over a dataset, so
// that the loop allocates nothing. Neither the batch nor tensors that were
// recorded from it and are not computed yet may be needed afterwards: reading
// the batch after the next one was requested is an error. Release has no
// effect on batches that do not come from a dataset.
func (b Batch) Release() { tensor.HandBack(b.X, b.Y, b.Weight) }

// Clone returns a copy of the batch with its own memory, after computing the
// batch if needed. Use it to keep a batch whose memory will be reused; see
// Dataset.
func (b Batch) Clone() (c Batch, err error) {
	for _, t := range []struct{ to, of **Tensor }{{&c.X, &b.X}, {&c.Y, &b.Y}, {&c.Weight, &b.Weight}} {
		if *t.of == nil {
			continue
		}
		if *t.to, err = (*t.of).Clone(); err != nil {
			return Batch{}, err
		}
	}
	return c, nil
}

// tensors appends the tensors of b, tuples taken apart.
func (b Batch) tensors(dst []*Tensor) []*Tensor {
	for _, t := range [...]*Tensor{b.X, b.Y, b.Weight} {
		if t != nil {
			dst = append(dst, t.Unpack()...)
		}
	}
	return dst
}

// batchMemory makes the tensors of batches for a reader that holds them as hold
// says.
type batchMemory struct {
	hold pipeline.Hold
	pool tensor.Pool // for pipeline.Returning
	ring []columns   // for readers that hold the newest elements
	at   int         // the oldest of a full ring
	free []*Tensor   // parts of the last batch, of readers without a ring
}

// columns is the tensors of a batch, tuples taken apart.
type columns struct {
	parts []*Tensor
	batch Batch
}

// next returns tensors of these types with any contents, and pick's result for them. It
// keeps the shapes, but not types; pick must not keep its argument. The result's parts
// are valid until the next call.
func (m *batchMemory) next(types []op.Type, pick func([]*Tensor) Batch) (c columns, err error) {
	if m.hold > 0 && len(m.ring) == int(m.hold) {
		old := m.ring[m.at]
		if slices.EqualFunc(old.parts, types, func(t *Tensor, u op.Type) bool { return t.Type().Equal(u) }) {
			m.at = (m.at + 1) % len(m.ring)
			return old, nil
		}
	}
	if c.parts = m.free; len(c.parts) != len(types) {
		c.parts = make([]*Tensor, len(types))
	}
	for i, t := range types {
		if m.hold == pipeline.Returning {
			c.parts[i], err = m.pool.Get(t)
		} else {
			c.parts[i], err = tensor.Uninitialized(t.DType, t.Shape...)
		}
		if err != nil {
			return columns{}, err
		}
	}
	c.batch = pick(c.parts)
	switch {
	case m.hold <= 0:
		m.free = c.parts
	case len(m.ring) < int(m.hold):
		m.ring = append(m.ring, c)
	default: // sizes differ, as PaddedBatch's do
		m.ring[m.at] = c
		m.at = (m.at + 1) % len(m.ring)
	}
	return c, nil
}

// inTurn ends the turn of each batch when the next one is requested: memory released by
// then is reused, other memory stays with its tensors.
func inTurn(seq iter.Seq2[Batch, error]) iter.Seq2[Batch, error] {
	return pipeline.InTurn(seq, func(b Batch) { tensor.BeginTurn(b.X, b.Y, b.Weight) }, func(b Batch) { tensor.EndTurn(b.X, b.Y, b.Weight) })
}
