package keras

import (
	"github.com/mezzo-ml/mezzo/backend/op"
	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/keras/internal/flow"
)

// Stack joins samples, which have no batch axis, to a batch. They must agree in
// types, shapes and in what is nil. The memory of into is used again if it is
// a batch of the same shapes; it may be the zero value.
func Stack(into Batch, samples []Batch) (b Batch, err error) {
	defer tensor.Catch(&err)
	if len(samples) == 0 {
		tensor.Fail("Batch", "there are no samples")
	}
	return Batch{
		stack(into.X, samples, func(b Batch) *Tensor { return b.X }),
		stack(into.Y, samples, func(b Batch) *Tensor { return b.Y }),
		stack(into.Weight, samples, func(b Batch) *Tensor { return b.Weight }),
	}, nil
}

func stack(into *Tensor, samples []Batch, get func(Batch) *Tensor) *Tensor {
	first := get(samples[0])
	for k, s := range samples {
		u := get(s)
		fits := (u == nil) == (first == nil)
		if fits && u != nil {
			fits = u.IsTuple() == first.IsTuple() && u.Len() == first.Len()
			for i := 0; fits && i < u.Len(); i++ {
				fits = u.Parts()[i].Type().Equal(first.Parts()[i].Type())
			}
		}
		if !fits {
			tensor.Fail("Batch", "sample %d of the batch is %v, the first is %v", k, typeText(u), typeText(first))
		}
	}
	if first == nil {
		return nil
	}
	parts := make([]*Tensor, first.Len())
	for i, p := range first.Parts() {
		t := op.Type{DType: p.DType(), Shape: append(Shape{len(samples)}, p.Shape()...)}
		if into != nil && into.Len() == len(parts) && into.Parts()[i].Type().Equal(t) {
			parts[i] = into.Parts()[i]
		} else {
			var err error
			if parts[i], err = tensor.Uninitialized(t.DType, t.Shape...); err != nil {
				tensor.Fail("Batch", "%w", err)
			}
		}
		size := p.Type().Bytes()
		err := parts[i].Overwrite(func(dst []byte) error {
			for k, s := range samples {
				u := get(s).Parts()[i]
				src, err := u.Host()
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
	if first.IsTuple() {
		return tensor.Tuple(parts...)
	}
	return parts[0]
}

// Stacker returns a Stack into the memory of batches that the reader, who holds
// the ring newest, has done with; 0 if he holds all.
func Stacker(ring int) func([]Batch) (Batch, error) {
	var kept []Batch
	next := 0
	return func(samples []Batch) (b Batch, err error) {
		if ring == flow.Forever {
			return Stack(b, samples)
		}
		if len(kept) < ring {
			b, err = Stack(b, samples)
			kept = append(kept, b)
			return b, err
		}
		b, err = Stack(kept[next], samples)
		kept[next], next = b, (next+1)%ring
		return b, err
	}
}
