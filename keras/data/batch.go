package data

import (
	"context"
	"fmt"
	"reflect"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/op"
	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/internal/pipeline"
)

// Batch groups n samples into a batch; the last one may be smaller (tf.data:
// batch). Elements must be keras.Batch without a batch axis; reading any
// others returns an error. Map them first, or use Chunk. The memory of a batch
// is reused after Release; see keras.Dataset.
func (d *Dataset[T]) Batch(n int) *Dataset[T] {
	return samples(d, "Batch", func(d *Dataset[keras.Batch]) *Dataset[keras.Batch] { return batched("Batch", d, n, false, nil) })
}

// samples applies f to d, whose elements must be samples.
func samples[T any](d *Dataset[T], operation string, f func(*Dataset[keras.Batch]) *Dataset[keras.Batch]) *Dataset[T] {
	b, ok := any(d).(*Dataset[keras.Batch])
	if !ok {
		return from(Unknown, pipeline.Failing[T](fmt.Errorf("%s: the elements are %v, want keras.Batch; Map makes them", operation, reflect.TypeFor[T]())))
	}
	return any(f(b)).(*Dataset[T])
}

// BatchDropRemainder is Batch without a smaller last batch, which would compile
// a second program.
func (d *Dataset[T]) BatchDropRemainder(n int) *Dataset[T] {
	return samples(d, "BatchDropRemainder", func(d *Dataset[keras.Batch]) *Dataset[keras.Batch] {
		return batched("BatchDropRemainder", d, n, true, nil)
	})
}

// Padding has the settings of PaddedBatch.
type Padding struct {
	// X and Y are the sizes of the axes of a sample; -1 stands for the largest
	// size in the batch, and nil for -1 on all axes. Each combination of sizes
	// compiles a program. In a tuple all tensors have these sizes.
	X, Y keras.Shape

	XValue, YValue float64 // what is put behind the elements of a sample; default: 0

	DropRemainder bool
}

// PaddedBatch groups n samples of different sizes into a batch (tf.data:
// padded_batch): they are padded at the ends of their axes to one size.
func (d *Dataset[T]) PaddedBatch(n int, p Padding) *Dataset[T] {
	return samples(d, "PaddedBatch", func(d *Dataset[keras.Batch]) *Dataset[keras.Batch] {
		return batched("PaddedBatch", d, n, p.DropRemainder, &p)
	})
}

func batched(name string, d *Dataset[keras.Batch], n int, drop bool, pad *Padding) *Dataset[keras.Batch] {
	if n < 1 {
		return from(Unknown, pipeline.Failing[keras.Batch](fmt.Errorf("%s: size is %d, want a positive number", name, n)))
	}
	join := hooks.Stacker
	if pad != nil {
		join = func(hold pipeline.Hold) func([]keras.Batch) (keras.Batch, error) {
			stack := hooks.Stacker(hold)
			return func(samples []keras.Batch) (keras.Batch, error) {
				if err := pad.samples(samples); err != nil {
					return keras.Batch{}, err
				}
				return stack(samples)
			}
		}
	}
	out := from(groups(d.n, n, drop), pipeline.Group(d.open, d.n, n, drop, join)).of(pipeline.Batches)
	if d.some != nil && d.n != Unknown && pad == nil {
		out.own = func(own func(int) (int, int)) pipeline.Opener[keras.Batch] { return ownRows(d, n, drop, own) }
	}
	return out
}

// ownRows opens batches of n samples for a reader that uses the rows of own alone. The
// others are copies of its first row.
func ownRows(d *Dataset[keras.Batch], n int, drop bool, own func(rows int) (first, end int)) pipeline.Opener[keras.Batch] {
	// rowsOf returns the rows of a batch that are used: all if they are none, since a batch
	// has the shape of a sample.
	rowsOf := func(rows int) (first, end int) {
		if first, end = own(rows); first == end {
			return 0, rows
		}
		return first, end
	}
	used := func(i int) bool {
		rows := n
		if d.n != Infinite {
			rows = min(n, d.n-i/n*n)
		}
		first, end := rowsOf(rows)
		return first <= i%n && i%n < end
	}
	return pipeline.Group(d.opens(used), d.n, n, drop, func(hold pipeline.Hold) func([]keras.Batch) (keras.Batch, error) {
		stack := hooks.Stacker(hold)
		return func(samples []keras.Batch) (keras.Batch, error) {
			first, end := rowsOf(len(samples))
			for i := range samples {
				if i < first || i >= end {
					samples[i] = samples[first]
				}
			}
			return stack(samples)
		}
	})
}

// samples fills up the samples of a batch.
func (p *Padding) samples(samples []keras.Batch) (err error) {
	defer tensor.Catch(&err)
	for _, part := range []struct {
		name  string
		want  keras.Shape
		value float64
		of    func(*keras.Batch) **keras.Tensor
	}{
		{"X", p.X, p.XValue, func(b *keras.Batch) **keras.Tensor { return &b.X }},
		{"Y", p.Y, p.YValue, func(b *keras.Batch) **keras.Tensor { return &b.Y }},
	} {
		first := *part.of(&samples[0])
		if first == nil {
			continue
		}
		sizes := make([]keras.Shape, first.Len())
		for i, t := range first.Unpack() {
			sizes[i] = t.Shape().Clone()
			if part.want != nil {
				sizes[i] = part.want.Clone()
			}
		}
		for k := range samples {
			t := *part.of(&samples[k])
			if t == nil || t.Len() != len(sizes) {
				return fmt.Errorf("PaddedBatch: sample %d of the batch has another number of tensors in %s than the first", k, part.name)
			}
			for i, u := range t.Unpack() {
				if err := grow(sizes[i], part.want, u.Shape()); err != nil {
					return fmt.Errorf("PaddedBatch: %s of sample %d of the batch: %w", part.name, k, err)
				}
			}
		}
		for k := range samples {
			t := part.of(&samples[k])
			parts := make([]*keras.Tensor, len(sizes))
			for i, u := range (*t).Unpack() {
				if parts[i], err = padded(u, sizes[i], part.value); err != nil {
					return fmt.Errorf("PaddedBatch: %w", err)
				}
			}
			if (*t).IsTuple() {
				*t = keras.Tuple(parts...)
			} else {
				*t = parts[0]
			}
		}
	}
	return nil
}

// grow makes size hold a sample of another shape.
func grow(size, want, got keras.Shape) error {
	if len(got) != len(size) {
		return fmt.Errorf("got shape %v, want %d axes", got, len(size))
	}
	for i, n := range got {
		if want != nil && want[i] >= 0 && n > want[i] {
			return fmt.Errorf("got shape %v, want at most %v", got, want)
		}
		size[i] = max(size[i], n)
	}
	return nil
}

// padded returns t with more elements at the ends of its axes.
func padded(t *keras.Tensor, size keras.Shape, value float64) (*keras.Tensor, error) {
	if t.Shape().Equal(size) {
		return t, nil
	}
	src, err := t.Bytes()
	if err != nil {
		return nil, err
	}
	to := op.Type{DType: t.DType(), Shape: size}
	dst := make([]byte, to.Bytes())
	width := t.DType().Size()
	if value != 0 {
		one := make([]byte, width)
		dtype.FromF64(one, []float64{value}, t.DType())
		for i := range size.Size() {
			copy(dst[i*width:], one)
		}
	}
	place(dst, src, size, t.Shape(), width)
	return tensor.FromBytes(to, dst), nil
}

// place copies an array into the beginning of the axes of a larger one.
func place(dst, src []byte, to, of keras.Shape, width int) {
	if len(of) <= 1 {
		copy(dst, src)
		return
	}
	a, b := to[1:].Size()*width, of[1:].Size()*width
	for i := range of[0] {
		place(dst[i*a:(i+1)*a], src[i*b:(i+1)*b], to[1:], of[1:], width)
	}
}

// Unbatch yields the rows of batches as samples (tf.data: unbatch).
func (d *Dataset[T]) Unbatch() *Dataset[T] {
	return samples(d, "Unbatch", func(d *Dataset[keras.Batch]) *Dataset[keras.Batch] {
		return FlatMap(d, func(_ context.Context, b keras.Batch) (rows *Dataset[keras.Batch], err error) {
			defer tensor.Catch(&err)
			return FromDataset(keras.FromTensors(b.X, b.Y, b.Weight)), nil
		}).of(pipeline.Samples)
	})
}
