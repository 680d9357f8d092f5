package data

import (
	"context"
	"fmt"
	"iter"
	"math"

	"github.com/mezzo-ml/mezzo/backend/philox"
	"github.com/mezzo-ml/mezzo/keras/internal/pipeline"
)

// Pair is an element of Zip or Enumerate.
type Pair[A, B any] struct {
	First  A
	Second B
}

// Zip yields pairs of the elements of two datasets (tf.data: zip), as many as
// the shorter one has.
func Zip[A, B any](a *Dataset[A], b *Dataset[B]) *Dataset[Pair[A, B]] {
	n := min(a.n, b.n) // Unknown is below all others
	if n == Unknown && (a.n == 0 || b.n == 0) {
		n = 0
	}
	return from(n, func(at pipeline.Start, hold pipeline.Hold) iter.Seq2[Pair[A, B], error] {
		return func(yield func(Pair[A, B], error) bool) {
			next, stop := iter.Pull2(b.open(at, hold))
			defer stop()
			for x, err := range a.open(at, hold) {
				p := Pair[A, B]{First: x}
				if err == nil {
					var ok bool
					if p.Second, err, ok = next(); !ok {
						return
					}
				}
				if !yield(p, err) || err != nil {
					return
				}
			}
		}
	}).of(max(a.form, b.form).Likely())
}

// Enumerate yields the elements with their numbers, from 0.
func Enumerate[T any](d *Dataset[T]) *Dataset[Pair[int, T]] { return Zip(Range(0, math.MaxInt), d) }

// Random yields random numbers without end, others in each epoch (tf.data:
// random with rerandomize_each_iteration). Zip them with samples so that Map
// can augment the samples in the same way on every run:
//
//	data.ParallelMap(data.Zip(samples, data.Random(seed)), 0, func(ctx context.Context, p data.Pair[Sample, uint64]) (keras.Batch, error) {
//		rng := rand.New(rand.NewPCG(p.Second, 0))
//		…
//	})
func Random(seed uint64) *Dataset[uint64] {
	return from(Infinite, func(at pipeline.Start, _ pipeline.Hold) iter.Seq2[uint64, error] {
		return func(yield func(uint64, error) bool) {
			var words [4]uint32
			for i := uint64(at.Skip); ; i++ {
				philox.Words(seed, uint64(at.Epoch), randomStream, 4*i, words[:])
				if !yield(uint64(words[0])<<32|uint64(words[1]), nil) {
					return
				}
			}
		}
	})
}

// randomStream keeps these numbers apart from those of layers and shuffles.
const randomStream = 0x646174612e726e64

// Chunk yields slices of n elements (tf.data: batch of elements that are not
// tensors). The last slice may be shorter; with drop it is left out. To make a
// batch from a slice at once is faster than Dataset.Batch:
//
//	data.ParallelMap(data.Chunk(rows, 128, false), 0, toBatch)
func Chunk[T any](d *Dataset[T], n int, drop bool) *Dataset[[]T] {
	if n < 1 {
		return from(Unknown, pipeline.Failing[[]T](fmt.Errorf("Chunk: size is %d, want a positive number", n)))
	}
	return from(groups(d.n, n, drop), pipeline.Group(d.held(), d.n, n, drop, func(pipeline.Hold) func([]T) ([]T, error) {
		return func(group []T) ([]T, error) { return append(make([]T, 0, len(group)), group...), nil }
	})).of(pipeline.LikelyBatches)
}

// groups is how many groups of n there are.
func groups(size, n int, drop bool) int {
	switch {
	case size == Unknown || size == Infinite:
		return size
	case drop:
		return size / n
	}
	return (size + n - 1) / n
}

// FlatMap calls f for each element of d and yields the elements of the
// datasets that f returns, one dataset after the other (tf.data: flat_map).
func FlatMap[T, U any](d *Dataset[T], f func(context.Context, T) (*Dataset[U], error)) *Dataset[U] {
	return Interleave(d, 1, 1, f)
}

// Interleave yields elements of the datasets that f returns for the elements of
// d. cycle datasets are open at a time, and each yields block elements in turn
// (tf.data: interleave with these arguments). Both must be positive. The order
// depends on cycle and block alone. To read in parallel, let f return a dataset
// that ends with Prefetch.
func Interleave[T, U any](d *Dataset[T], cycle, block int, f func(context.Context, T) (*Dataset[U], error)) *Dataset[U] {
	n := Unknown
	if d.n == 0 {
		n = 0
	}
	if cycle < 1 || block < 1 {
		return from(n, pipeline.Failing[U](fmt.Errorf("Interleave: cycle is %d and block %d, want positive numbers", cycle, block)))
	}
	return from(n, func(at pipeline.Start, hold pipeline.Hold) iter.Seq2[U, error] {
		from := at
		from.Skip = 0
		return pipeline.Past(func(yield func(U, error) bool) {
			in := &interleaving[T, U]{at: from, hold: hold, f: f, slots: make([]pulled[U], cycle)}
			in.next, in.stop = iter.Pull2(d.open(from, pipeline.Forever))
			defer in.close()
			in.run(block, yield)
		}, at.Skip)
	})
}

// interleaving is one reading of an Interleave.
type interleaving[T, U any] struct {
	at    pipeline.Start
	hold  pipeline.Hold
	f     func(context.Context, T) (*Dataset[U], error)
	next  func() (T, error, bool) // the input, nil after its end
	stop  func()
	made  int // datasets so far
	slots []pulled[U]
	open  int // slots in use
}

// pulled is a dataset that is open, or an empty slot.
type pulled[U any] struct {
	next func() (U, error, bool)
	stop func()
}

func (in *interleaving[T, U]) close() {
	in.stop()
	for _, s := range in.slots {
		if s.stop != nil {
			s.stop()
		}
	}
}

// run goes around the slots. An empty one gets a dataset when it is its turn,
// as in TensorFlow.
func (in *interleaving[T, U]) run(block int, yield func(U, error) bool) {
	var none U
	for at := 0; in.next != nil || in.open > 0; at = (at + 1) % len(in.slots) {
		s := &in.slots[at]
		if s.next == nil && in.next != nil {
			if err := in.fill(s); err != nil {
				yield(none, err)
				return
			}
		}
		if s.next == nil {
			continue
		}
		for range block {
			x, err, ok := s.next()
			if !ok {
				*s = pulled[U]{}
				in.open--
				break
			}
			if !yield(x, err) || err != nil {
				return
			}
		}
	}
}

// fill puts the next dataset of the input into a slot, if there is one.
func (in *interleaving[T, U]) fill(s *pulled[U]) error {
	x, err, ok := in.next()
	if !ok {
		in.next = nil
		return nil
	}
	if err != nil {
		return err
	}
	d, err := in.f(in.at.Context, x)
	if err != nil {
		return pipeline.InMap(in.made, err)
	}
	in.made++
	in.open++
	s.next, s.stop = iter.Pull2(d.open(in.at, in.hold))
	return nil
}
