// Package data feeds models from files and from programs, as tf.data does:
//
//	files, classes, err := data.FilesFromDirectory("photos", []string{".png"}, data.DirectoryOptions{})
//	samples := data.ParallelMap(files, 0, decode)
//	train := samples.Batch(32).Prefetch(2)
//	history, err := model.Fit(ctx, train, keras.FitConfig{Epochs: 5})
//
// Main types: [Dataset], a sequence of elements of any Go type that can be
// opened again for each epoch; a Dataset of [keras.Batch] is what Fit and
// Evaluate take. Sources: [FromSlice], [FromGenerator], [FromDataset], [CSV],
// [TFRecord], [LoadNPY] and [LoadNPZ], [FilesFromDirectory] and
// [TextFromDirectory], package images. What changes the type of the elements is
// a function ([Map], [Zip]), all else a method.
//
// Rules:
//   - An epoch is a function of its number and of seeds: the same elements in
//     the same order on every run, for any number of goroutines, also when it
//     is opened in its middle, which is how a resumed Fit goes on to the bit.
//     Functions given to Map and others must be functions of their arguments.
//   - A reader may leave its loop at any time; all goroutines have ended when
//     the loop has. When the context ends, the last element of the sequence is
//     an error in which errors.Is finds ctx.Err() and its cause. A
//     [FromGenerator] that blocks at that moment is not waited for.
//   - An element stays valid, except a batch whose memory was returned to its
//     dataset: see [keras.Dataset].
//   - Files are not trusted: sizes in them are checked before memory is
//     allocated. Errors name the file and the record.
package data

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync/atomic"

	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/internal/pipeline"
)

// Values of Len for a dataset of unknown length, and for one without end.
const (
	Unknown  = pipeline.Unknown
	Infinite = keras.Infinite
)

// Dataset is a sequence of elements that can be opened again for each epoch
// (tf.data.Dataset). Operations return a new Dataset and leave the old one as
// it was.
type Dataset[T any] struct {
	n     int
	open  pipeline.Opener[T]
	epoch *atomic.Int64 // how often All was called
	form  pipeline.Form // of the elements of a Dataset of keras.Batch

	// some opens the elements for a reader that uses those alone for which used is true; the
	// others may be anything. nil: all must be read.
	some func(used func(i int) bool) pipeline.Opener[T]
	// own is pipeline.Source.Own of a Dataset of batches.
	own func(own func(rows int) (first, end int)) pipeline.Opener[T]
}

var _ keras.SeekableDataset = (*Dataset[keras.Batch])(nil)

// hooks are shared with package keras.
var hooks = pipeline.Shared[keras.Batch]()

func init() {
	hooks.Dataset = func(dataset any) (s pipeline.Source[keras.Batch], ok bool) {
		d, ok := dataset.(*Dataset[keras.Batch])
		if ok {
			s = pipeline.Source[keras.Batch]{Len: d.n, Form: d.form, Open: d.until}
			if d.own != nil {
				s.Own = func(own func(int) (int, int)) pipeline.Opener[keras.Batch] { return from(d.n, d.own(own)).until }
			}
		}
		return s, ok
	}
}

func from[T any](n int, open pipeline.Opener[T]) *Dataset[T] {
	return &Dataset[T]{n: n, open: open, epoch: new(atomic.Int64)}
}

// of says of which form the elements are.
func (d *Dataset[T]) of(f pipeline.Form) *Dataset[T] {
	d.form = f
	return d
}

// opens opens the elements for which used is true; others may be anything.
func (d *Dataset[T]) opens(used func(i int) bool) pipeline.Opener[T] {
	if d.some == nil {
		return d.open
	}
	return d.some(used)
}

// owns has out, which operation has made of d, read a rank's own rows of batches alone if d
// can. The operation does not look into batches.
func (d *Dataset[T]) owns(out *Dataset[T], operation func(*Dataset[T]) *Dataset[T]) *Dataset[T] {
	if d.own != nil {
		out.own = func(own func(int) (int, int)) pipeline.Opener[T] {
			return operation(from(d.n, d.own(own)).of(d.form)).open
		}
	}
	return out
}

// FromSlice returns the dataset of the elements of s (tf.data:
// from_tensor_slices), which must not change afterwards. For the rows of
// tensors see [keras.FromTensors].
func FromSlice[T any](s []T) *Dataset[T] {
	return from(len(s), func(at pipeline.Start, _ pipeline.Hold) iter.Seq2[T, error] {
		return func(yield func(T, error) bool) {
			for _, x := range s[min(at.Skip, len(s)):] {
				if !yield(x, nil) {
					return
				}
			}
		}
	})
}

// FromGenerator returns a dataset of the elements that a Go iterator yields
// (tf.data: from_generator). open is called for each epoch. The elements must
// depend on the number of the epoch alone, and the iterator must not change an
// element after yielding it.
//
// open gets the context of the reader and should return when it ends. The
// reader does not wait for an iterator that blocks; its goroutine ends when it
// yields or returns.
func FromGenerator[T any](open func(ctx context.Context, epoch int) iter.Seq2[T, error]) *Dataset[T] {
	return from(Unknown, pipeline.Interruptible(open))
}

// generated is FromGenerator for generators of this package, which do not block.
func generated[T any](open func(ctx context.Context, epoch int) iter.Seq2[T, error]) *Dataset[T] {
	return from(Unknown, pipeline.Generated(open))
}

// FromDataset returns a dataset of package keras with the operations of this
// package. Its elements are batches if d is batched, else samples.
func FromDataset(d keras.SeekableDataset) *Dataset[keras.Batch] {
	if own, ok := d.(*Dataset[keras.Batch]); ok {
		return own
	}
	if s, ok := hooks.Pipeline(d); ok {
		return from(s.Len, s.Open).of(s.Form)
	}
	return from(d.Len(), func(at pipeline.Start, _ pipeline.Hold) iter.Seq2[keras.Batch, error] {
		return d.Epoch(at.Context, at.Epoch, at.Skip)
	}).of(pipeline.Batches)
}

// Range returns the numbers from start to below stop (tf.data: range).
func Range(start, stop int) *Dataset[int] {
	n := max(stop-start, 0)
	return from(n, func(at pipeline.Start, _ pipeline.Hold) iter.Seq2[int, error] {
		return func(yield func(int, error) bool) {
			for i := start + min(at.Skip, n); i < stop && yield(i, nil); i++ {
			}
		}
	})
}

// Len returns the number of elements of an epoch (tf.data: cardinality),
// Unknown or Infinite.
func (d *Dataset[T]) Len() int { return d.n }

// All yields the elements of the next epoch. The first call yields epoch 0.
func (d *Dataset[T]) All(ctx context.Context) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		d.Epoch(ctx, int(d.epoch.Add(1)-1), 0)(yield)
	}
}

// Epoch yields the elements of an epoch, counted from 0, without the first
// skip ones. The epoch must have so many. If ctx ends, the last element is its
// error.
func (d *Dataset[T]) Epoch(ctx context.Context, epoch, skip int) iter.Seq2[T, error] {
	at := pipeline.Start{Context: ctx, Epoch: epoch, Skip: skip}
	if d, ok := any(d).(*Dataset[keras.Batch]); ok {
		return any(hooks.InTurn(d.until(at, pipeline.Returning))).(iter.Seq2[T, error])
	}
	return d.until(at, pipeline.Forever)
}

// until opens the elements until the context ends.
func (d *Dataset[T]) until(at pipeline.Start, hold pipeline.Hold) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var none T
		if at.Context == nil {
			yield(none, errors.New("Epoch: the context is nil; use context.Background()"))
			return
		}
		if at.Context.Err() != nil {
			yield(none, pipeline.Ended(at.Context))
			return
		}
		for x, err := range d.open(at, hold) {
			if at.Context.Err() != nil {
				yield(none, pipeline.Ended(at.Context))
				return
			}
			if !yield(x, err) || err != nil {
				return
			}
		}
	}
}

// Batches is All without a context. With it and Epoch a Dataset of keras.Batch
// is a [keras.SeekableDataset].
func (d *Dataset[T]) Batches() iter.Seq2[T, error] { return d.All(context.Background()) }

// Collect returns the elements of the next epoch.
func (d *Dataset[T]) Collect(ctx context.Context) ([]T, error) {
	if d.n == Infinite {
		return nil, fmt.Errorf("Collect: the dataset has no end; use Take")
	}
	var all []T
	for x, err := range from(d.n, d.held()).Epoch(ctx, int(d.epoch.Add(1)-1), 0) {
		if err != nil {
			return nil, err
		}
		all = append(all, x)
	}
	return all, nil
}

// held opens the dataset for a reader that holds all elements.
func (d *Dataset[T]) held() pipeline.Opener[T] {
	return func(at pipeline.Start, _ pipeline.Hold) iter.Seq2[T, error] { return d.open(at, pipeline.Forever) }
}

// Shuffle yields the elements in random order: each is drawn from a buffer of
// the next buffer elements. With a buffer of at least Len every order is
// equally likely. The order differs from epoch to epoch and depends on seed
// (default: 0) alone. A resumed training reads earlier elements again to fill
// the buffer, so shuffle file names rather than their contents.
func (d *Dataset[T]) Shuffle(buffer int, seed ...uint64) *Dataset[T] {
	var s uint64
	if len(seed) > 0 {
		s = seed[0]
	}
	return from(d.n, pipeline.Shuffle(d.open, buffer, s)).of(d.form)
}

// Take yields only the first n elements of each epoch.
func (d *Dataset[T]) Take(n int) *Dataset[T] { return d.part(0, max(n, 0)) }

// Skip leaves out the first n elements of each epoch.
func (d *Dataset[T]) Skip(n int) *Dataset[T] { return d.part(max(n, 0), Infinite) }

func (d *Dataset[T]) part(lo, hi int) *Dataset[T] {
	n := d.n
	switch n {
	case Unknown, Infinite:
		if n == Infinite && hi != Infinite {
			n = hi - lo
		}
	default:
		n = min(hi, n) - min(lo, n)
	}
	return d.owns(from(n, pipeline.Part(d.open, d.n, lo, hi)).of(d.form), func(d *Dataset[T]) *Dataset[T] { return d.part(lo, hi) })
}

// Shard yields the elements index, index+num, index+2·num … (tf.data: shard):
// the part of one of num programs.
func (d *Dataset[T]) Shard(num, index int) *Dataset[T] {
	if num < 1 || index < 0 || index >= num {
		return from(Unknown, pipeline.Failing[T](fmt.Errorf("Shard: part %d of %d, want a number from 0 to below that of the parts", index, num)))
	}
	n := d.n
	if n != Unknown && n != Infinite {
		n = (n - index + num - 1) / num
	}
	return from(n, func(at pipeline.Start, hold pipeline.Hold) iter.Seq2[T, error] {
		from := at
		from.Skip = 0
		if d.n != Unknown {
			from.Skip = min(at.Skip*num, d.n)
		}
		return func(yield func(T, error) bool) {
			i := from.Skip
			for x, err := range d.open(from, hold.InAnyOrder()) {
				if (i%num == index && i/num >= at.Skip || err != nil) && !yield(x, err) || err != nil {
					return
				}
				i++
			}
		}
	}).of(d.form)
}

// Repeat yields n epochs as one; without n, or with a negative n, it has no
// end. Each of them has another order after Shuffle: epoch e consists of the
// epochs e·n … e·n+n-1, or without end starts with epoch e.
func (d *Dataset[T]) Repeat(n ...int) *Dataset[T] {
	times := Infinite
	if len(n) > 0 && n[0] >= 0 {
		times = n[0]
	}
	total := Infinite
	switch {
	case times == 0 || d.n == 0:
		total = 0
	case d.n == Unknown && times != Infinite:
		total = Unknown
	case d.n != Infinite && times < Infinite/max(d.n, 1):
		total = d.n * times
	}
	out := from(total, func(at pipeline.Start, hold pipeline.Hold) iter.Seq2[T, error] {
		return func(yield func(T, error) bool) {
			first, i, skip := at.Epoch, 0, at.Skip
			if times != Infinite {
				first *= times
			}
			if d.n > 0 && d.n != Infinite {
				i, skip = skip/d.n, skip%d.n
			}
			for ; i < times; i++ {
				some := false
				for x, err := range d.open(pipeline.Start{Context: at.Context, Epoch: first + i, Skip: 0}, hold) {
					if some = true; skip > 0 && err == nil {
						skip--
						continue
					}
					if !yield(x, err) || err != nil {
						return
					}
				}
				if !some { // or it would search for ever
					break
				}
			}
			if skip > 0 {
				var none T
				yield(none, pipeline.Short(at.Skip-skip, at.Skip))
			}
		}
	}).of(d.form)
	return d.owns(out, func(d *Dataset[T]) *Dataset[T] { return d.Repeat(n...) })
}

// Concatenate yields the elements of d, then the elements of the others in turn.
func (d *Dataset[T]) Concatenate(others ...*Dataset[T]) *Dataset[T] {
	all := slices.Concat([]*Dataset[T]{d}, others)
	n := 0
	for _, o := range all {
		n = plus(n, o.n)
	}
	return from(n, func(at pipeline.Start, hold pipeline.Hold) iter.Seq2[T, error] {
		return func(yield func(T, error) bool) {
			skip := at.Skip
			for i, o := range all {
				from := at
				from.Skip = 0
				switch {
				case o.n != Unknown && skip >= o.n && i < len(all)-1:
					skip -= o.n
					continue
				case o.n != Unknown:
					from.Skip, skip = skip, 0
				}
				for x, err := range o.open(from, hold) {
					if skip > 0 && err == nil {
						skip--
						continue
					}
					if !yield(x, err) || err != nil {
						return
					}
				}
			}
			if skip > 0 {
				var none T
				yield(none, pipeline.Short(at.Skip-skip, at.Skip))
			}
		}
	}).of(d.form)
}

// plus adds lengths.
func plus(a, b int) int {
	switch {
	case a == Infinite || b == Infinite:
		return Infinite
	case a == Unknown || b == Unknown:
		return Unknown
	}
	return a + b
}

// Filter keeps the elements for which keep is true.
func (d *Dataset[T]) Filter(keep func(T) bool) *Dataset[T] {
	n := Unknown
	if d.n == 0 {
		n = 0
	}
	return from(n, func(at pipeline.Start, _ pipeline.Hold) iter.Seq2[T, error] {
		from := at
		from.Skip = 0
		return pipeline.Past(func(yield func(T, error) bool) {
			// keep may hold its argument.
			for x, err := range d.open(from, pipeline.Forever) {
				if (err != nil || keep(x)) && !yield(x, err) || err != nil {
					return
				}
				if at.Context.Err() != nil {
					var none T
					yield(none, pipeline.Ended(at.Context))
					return
				}
			}
		}, at.Skip)
	}).of(d.form)
}

// Prefetch prepares up to n elements in advance, in its own goroutine.
func (d *Dataset[T]) Prefetch(n int) *Dataset[T] {
	out := from(d.n, pipeline.Ahead(d.open, n)).of(d.form)
	if d.some != nil {
		out.some = func(used func(int) bool) pipeline.Opener[T] { return pipeline.Ahead(d.some(used), n) }
	}
	return d.owns(out, func(d *Dataset[T]) *Dataset[T] { return d.Prefetch(n) })
}

// Progress calls report after each element that is read, with the number of
// elements read in this epoch and Len; see keras.Progbar.
func (d *Dataset[T]) Progress(report func(done, total int)) *Dataset[T] {
	return from(d.n, func(at pipeline.Start, hold pipeline.Hold) iter.Seq2[T, error] {
		return func(yield func(T, error) bool) {
			i := at.Skip
			for x, err := range d.open(at, hold) {
				if err == nil {
					i++
					report(i, d.n)
				}
				if !yield(x, err) || err != nil {
					return
				}
			}
		}
	}).of(d.form)
}
