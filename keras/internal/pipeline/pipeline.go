// Package pipeline has what the datasets of packages keras and keras/data are made
// of: openers of sequences, and the operations that both have on them.
//
// Rules: an epoch of a dataset is a function of its number, so that it can be
// opened again, also in its middle; what a reader leaves early ends with all
// its goroutines before the loop of the reader does, but for a generator that
// blocks when the context ends (Interruptible).
package pipeline

import (
	"context"
	"fmt"
	"iter"
)

// Start says where a dataset is opened.
type Start struct {
	Context context.Context // ends the reading
	Epoch   int             // from 0
	Skip    int             // elements to leave out, which must exist
}

// Opener opens an epoch for a reader that holds elements in some way.
type Opener[T any] func(at Start, hold Hold) iter.Seq2[T, error]

// Hold says how long the reader of a sequence holds its elements, and so when
// their memory may be used again. A number n > 0 means: the n newest elements,
// and nobody but packages of this module sees them, so that the very same
// element may come again with other contents.
type Hold int

const (
	// Forever: for as long as it likes. No memory is used again.
	Forever Hold = 0

	// Returning: for as long as it likes, but the reader may hand elements back
	// (tensor.HandBack, tensor.EndTurn), and the memory of those is used again.
	// It is the Hold of loops of users.
	Returning Hold = -1
)

// More is the Hold of a reader that holds n more elements on the way.
func (h Hold) More(n int) Hold {
	if h > 0 {
		return h + Hold(n)
	}
	return h
}

// InAnyOrder is the Hold of a reader that passes elements on in another order,
// or not all of them, to a reader that holds them as h says.
func (h Hold) InAnyOrder() Hold {
	if h > 0 {
		return Returning
	}
	return h
}

// Unknown is the number of elements of an epoch that cannot be told.
const Unknown = -1

// Failing is the opener of a sequence that is an error.
func Failing[T any](err error) Opener[T] {
	return func(Start, Hold) iter.Seq2[T, error] { return Failure[T](err) }
}

// Failure is a sequence that is an error.
func Failure[T any](err error) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var none T
		yield(none, err)
	}
}

// Generated is the opener of what open yields from the beginning of an epoch.
func Generated[T any](open func(ctx context.Context, epoch int) iter.Seq2[T, error]) Opener[T] {
	return func(at Start, _ Hold) iter.Seq2[T, error] {
		return Past(open(at.Context, at.Epoch), at.Skip)
	}
}

// Past leaves out the first n elements, which must exist.
func Past[T any](in iter.Seq2[T, error], n int) iter.Seq2[T, error] {
	if n == 0 {
		return in
	}
	return func(yield func(T, error) bool) {
		i := 0
		for x, err := range in {
			if (i >= n || err != nil) && !yield(x, err) || err != nil {
				return
			}
			i++
		}
		if i < n {
			var none T
			yield(none, Short(i, n))
		}
	}
}

// Short is the error of a dataset that ends before the element to go on with.
func Short(got, want int) error {
	return fmt.Errorf("the dataset ends after %d elements; %d were read of it before", got, want)
}

// Part opens the elements lo … hi-1, as far as there are so many, of a dataset
// of n.
func Part[T any](inner Opener[T], n, lo, hi int) Opener[T] {
	return func(at Start, hold Hold) iter.Seq2[T, error] {
		from := at
		from.Skip = 0
		if n != Unknown {
			from.Skip = min(lo, n)
			if from.Skip+at.Skip <= min(hi, n) {
				from.Skip += at.Skip
			}
		}
		return func(yield func(T, error) bool) {
			i := from.Skip
			if i < hi {
				for x, err := range inner(from, hold) {
					if (i >= lo+at.Skip || err != nil) && !yield(x, err) || err != nil {
						return
					}
					if i++; i == hi {
						break
					}
				}
			}
			if got := max(i-lo, 0); got < at.Skip {
				var none T
				yield(none, Short(got, at.Skip))
			}
		}
	}
}

// Map puts every element through a function of the user, who may keep its
// argument. An error names the element.
func Map[T, U any](inner Opener[T], f func(context.Context, T) (U, error)) Opener[U] {
	kept := func(at Start, _ Hold) iter.Seq2[T, error] { return inner(at, Forever) }
	return MapAt("Map", kept, func(ctx context.Context, _, _ int, x T) (U, error) { return f(ctx, x) })
}

// MapAt puts every element through a function that also gets the epoch and the
// number of the element, and keeps nothing of it but what it returns. name is
// the operation's, for errors.
func MapAt[T, U any](name string, inner Opener[T], f func(ctx context.Context, epoch, i int, x T) (U, error)) Opener[U] {
	return func(at Start, hold Hold) iter.Seq2[U, error] {
		return func(yield func(U, error) bool) {
			i := at.Skip
			for x, err := range inner(at, hold) {
				var y U
				if err == nil {
					if y, err = f(at.Context, at.Epoch, i, x); err != nil {
						err = At(name, i, err)
					}
				}
				if !yield(y, err) || err != nil {
					return
				}
				i++
			}
		}
	}
}

// MapUsed is Map for a reader that uses those elements alone for which used is true. The
// others are zero values, and f is not called for them.
func MapUsed[T, U any](inner Opener[T], used func(i int) bool, f func(context.Context, T) (U, error)) Opener[U] {
	kept := func(at Start, _ Hold) iter.Seq2[T, error] { return inner(at, Forever) }
	return MapAt("Map", kept, func(ctx context.Context, _, i int, x T) (y U, err error) {
		if !used(i) {
			return y, nil
		}
		return f(ctx, x)
	})
}

// InTurn calls begin before each element is handed to the reader and end when
// the reader asks for the next one or leaves.
func InTurn[T any](in iter.Seq2[T, error], begin, end func(T)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for x, err := range in {
			begin(x)
			more := yield(x, err)
			end(x)
			if !more {
				return
			}
		}
	}
}

// InMap says which element the function of a Map returned an error for.
func InMap(i int, err error) error { return At("Map", i, err) }

// At says which element an operation met an error at.
func At(name string, i int, err error) error { return fmt.Errorf("%s: element %d: %w", name, i, err) }

// Group makes one element of n each, with join, whose argument is used again and
// whose result must have memory of its own; the last one may have fewer, and is
// left out with drop. size is how many elements there are, or Unknown.
func Group[T, U any](inner Opener[T], size, n int, drop bool, join func(Hold) func([]T) (U, error)) Opener[U] {
	return func(at Start, hold Hold) iter.Seq2[U, error] {
		// Of the groups to leave out the last may be smaller than the others.
		from := at
		from.Skip = max(at.Skip-1, 0) * n
		left := at.Skip - from.Skip/n
		if size != Unknown {
			from.Skip, left = min(at.Skip*n, size), 0
		}
		return func(yield func(U, error) bool) {
			var none U
			group := make([]T, 0, min(n, 1<<16))
			made := join(hold)
			pass := func() bool {
				if left > 0 {
					left--
					group = group[:0]
					return true
				}
				y, err := made(group)
				clear(group)
				group = group[:0]
				return yield(y, err) && err == nil
			}
			for x, err := range inner(from, Hold(n)) {
				if err != nil {
					yield(none, err)
					return
				}
				if group = append(group, x); len(group) == n && !pass() {
					return
				}
			}
			if len(group) > 0 && !drop && !pass() {
				return
			}
			if left > 0 {
				yield(none, Short(at.Skip-left, at.Skip))
			}
		}
	}
}

// Ahead runs a sequence in a goroutine, up to n elements before the reader.
func Ahead[T any](inner Opener[T], n int) Opener[T] {
	n = max(n, 1)
	return func(at Start, hold Hold) iter.Seq2[T, error] { return ahead(inner(at, hold.More(n+1)), n) }
}

func ahead[T any](in iter.Seq2[T, error], n int) iter.Seq2[T, error] {
	type item struct {
		x   T
		err error
	}
	return func(yield func(T, error) bool) {
		items := make(chan item, n-1)
		stop, stopped := make(chan struct{}), make(chan struct{})
		var failure any // a panic of the goroutine, passed on to the reader
		go func() {
			defer close(stopped)
			defer close(items)
			defer func() { failure = recover() }()
			for x, err := range in {
				select {
				case items <- item{x, err}:
				case <-stop:
					return
				}
			}
		}()
		defer func() {
			close(stop)
			<-stopped
			if failure != nil {
				panic(failure)
			}
		}()
		for it := range items {
			if !yield(it.x, it.err) || it.err != nil {
				return
			}
		}
	}
}
