package keras

import (
	"slices"

	"github.com/mezzo-ml/mezzo/backend/op"
	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/keras/internal/pipeline"
)

// Stack returns a batch of the samples, which have no batch axis. They must
// agree in types, in shapes, and in which of X, Y and Weight are nil. Stack
// reuses the memory of into, and so overwrites it, if into is a batch of the
// same shapes. into may be the zero value.
func Stack(into Batch, samples []Batch) (b Batch, err error) {
	defer tensor.Catch(&err)
	old := into.tensors(nil)
	return stack(samples, func(types []op.Type, pick func([]*Tensor) Batch) (columns, error) {
		parts := make([]*Tensor, len(types))
		for i, t := range types {
			if i < len(old) && old[i].Type().Equal(t) {
				parts[i] = old[i]
				continue
			}
			var err error
			if parts[i], err = tensor.Uninitialized(t.DType, t.Shape...); err != nil {
				return columns{}, err
			}
		}
		return columns{parts, pick(parts)}, nil
	}), nil
}

// stacker returns a Stack into memory that is used again as hold allows.
func stacker(hold pipeline.Hold) func([]Batch) (Batch, error) {
	memory := &batchMemory{hold: hold}
	return func(samples []Batch) (b Batch, err error) {
		defer tensor.Catch(&err)
		return stack(samples, memory.next), nil
	}
}

// stack copies samples into the tensors that memory returns for their types
// with a batch axis.
func stack(samples []Batch, memory func([]op.Type, func([]*Tensor) Batch) (columns, error)) Batch {
	if len(samples) == 0 {
		tensor.Fail("Batch", "there are no samples")
	}
	first := samples[0]
	parts := make([]*Tensor, 0, 2*len(samples)) // sample by sample
	for k, s := range samples {
		checkSame(k, s.X, first.X)
		checkSame(k, s.Y, first.Y)
		checkSame(k, s.Weight, first.Weight)
		parts = s.tensors(parts)
	}
	n := len(parts) / len(samples)
	types := make([]op.Type, n)
	for i, p := range parts[:n] {
		types[i] = op.Type{DType: p.DType(), Shape: append(Shape{len(samples)}, p.Shape()...)}
	}
	c, err := memory(types, first.like)
	if err != nil {
		tensor.Fail("Batch", "%w", err)
	}
	for i, t := range c.parts {
		size := parts[i].Type().Bytes()
		err := tensor.Overwrite(t, func(dst []byte) error {
			for k := range samples {
				u := parts[k*n+i]
				src, err := tensor.HostBytes(u)
				if err != nil {
					if src, err = u.Bytes(); err != nil {
						return err
					}
				}
				copy(dst[k*size:(k+1)*size], src)
			}
			return nil
		})
		if err != nil {
			tensor.Fail("Batch", "%w", err)
		}
	}
	return c.batch
}

// like returns a batch of these tensors, with tuples where b has them.
func (b Batch) like(parts []*Tensor) Batch {
	pick := func(t *Tensor) *Tensor {
		if t == nil {
			return nil
		}
		mine := parts[:t.Len()]
		parts = parts[t.Len():]
		if t.IsTuple() {
			return tensor.Tuple(slices.Clone(mine)...)
		}
		return mine[0]
	}
	return Batch{pick(b.X), pick(b.Y), pick(b.Weight)}
}

// checkSame panics unless part u of sample k has the type of the first sample's.
func checkSame(k int, u, first *Tensor) {
	fits := (u == nil) == (first == nil)
	if fits && u != nil {
		fits = u.IsTuple() == first.IsTuple() && u.Len() == first.Len()
		for i := 0; fits && i < u.Len(); i++ {
			fits = u.Unpack()[i].Type().Equal(first.Unpack()[i].Type())
		}
	}
	if !fits {
		tensor.Fail("Batch", "sample %d of the batch is %v, the first is %v", k, typeText(u), typeText(first))
	}
}
