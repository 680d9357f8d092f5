package keras

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"sync/atomic"

	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/keras/internal/pipeline"
)

// Dataset yields the batches of one epoch and can be opened again for the
// next. The caller stops by leaving the loop.
//
// Fit, Evaluate, PredictDataset, Adapt and Func.Each return the memory of a
// batch to its dataset after the step, as Batch.Release does. Code that keeps
// such a batch, such as a callback, must Clone it: reading it after the next
// batch was requested is an error. In a plain loop over Batches a batch stays
// valid. See docs/data.md, "The memory of a batch".
type Dataset interface {
	Batches() iter.Seq2[Batch, error]
}

// EpochDataset is a Dataset that opens an epoch by its number, from 0. Fit
// uses EpochBatches instead of Batches if it can. A dataset whose epochs
// differ needs it so that a training can be resumed. A Pipeline of tensors
// numbers its epochs itself.
type EpochDataset interface {
	Dataset
	EpochBatches(epoch int) iter.Seq2[Batch, error]
}

// SeekableDataset is a Dataset that can start in the middle of an epoch: Epoch
// yields the batches of an epoch without the first skip ones, until ctx ends.
// Len is the number of batches of an epoch, -1 if unknown, Infinite if there
// is no end. Fit uses Epoch instead of Batches if it can, so that a resumed
// training need not read what it has already seen. Pipelines and the datasets
// of package keras/data are seekable.
type SeekableDataset interface {
	Dataset
	Len() int
	Epoch(ctx context.Context, epoch, skip int) iter.Seq2[Batch, error]
}

// Infinite is the Len of datasets whose epochs do not end.
const Infinite = math.MaxInt

// Pipeline is a Dataset of tensors in memory or of a generator, with the
// operations of tf.data. Each operation returns a new Pipeline and leaves the
// old one unchanged.
type Pipeline struct {
	n       int // elements of an epoch: samples, or batches once batched; -1: unknown
	batched bool
	arrays  *arrays // samples in memory, not batched yet
	shuffle *shuffle
	open    pipeline.Opener[Batch]
	epoch   *atomic.Int64 // how often Batches was called

	samples func() *Pipeline // see numbered
}

// shuffle is a pending Shuffle of samples in memory.
type shuffle struct {
	buffer int
	seed   uint64
}

// FromTensors returns a dataset of the rows of x, y and weight: axis 0 counts
// samples. y and weight may be nil; x and y may be Tuples. The tensors are not
// copied and must not be changed. It panics with *Error if the numbers of
// samples differ.
func FromTensors(x, y, weight *Tensor) *Pipeline {
	a := newArrays(x, y, weight)
	return &Pipeline{n: a.n, arrays: a, epoch: new(atomic.Int64)}
}

// FromGenerator returns a dataset of the elements that a Go iterator yields.
// open is called for each epoch. batched says whether the elements are batches
// or single samples, which have no batch axis and need Batch. The iterator
// must not change an element after yielding it, because Batch, Shuffle and
// Prefetch hold several at once.
//
// When the context of Fit ends, Fit does not wait for an iterator that blocks;
// its goroutine ends when it yields or returns. To stop such an iterator at
// once, use FromGenerator of package keras/data, which passes it the context.
func FromGenerator(open func() iter.Seq2[Batch, error], batched bool) *Pipeline {
	return &Pipeline{n: -1, batched: batched, epoch: new(atomic.Int64),
		open: pipeline.Interruptible(func(context.Context, int) iter.Seq2[Batch, error] { return open() })}
}

// Len returns the number of samples, or of batches if they are batched; -1 if
// it is unknown.
func (p *Pipeline) Len() int { return p.n }

// Batched reports whether the elements are batches.
func (p *Pipeline) Batched() bool { return p.batched }

// Shuffle yields the elements in random order: each is drawn from a buffer of
// the next buffer elements. With a buffer of at least Len every order is
// equally likely. The order differs from epoch to epoch and depends on seed
// alone.
func (p *Pipeline) Shuffle(buffer int, seed ...uint64) *Pipeline {
	s := &shuffle{buffer: max(buffer, 1)}
	if len(seed) > 0 {
		s.seed = seed[0]
	}
	q := p.derive()
	if p.arrays != nil && p.shuffle == nil {
		q.arrays, q.shuffle = p.arrays, s
		return q
	}
	q.open = pipeline.Shuffle(p.elements(), s.buffer, s.seed)
	q.follow(p, func(p *Pipeline) *Pipeline { return p.Shuffle(s.buffer, s.seed) })
	return q
}

// Batch groups n samples into a batch; the last one may be smaller.
func (p *Pipeline) Batch(n int) *Pipeline { return p.batch(n, false, nil) }

// BatchDropRemainder is Batch without a smaller last batch, which would
// compile a second program.
func (p *Pipeline) BatchDropRemainder(n int) *Pipeline { return p.batch(n, true, nil) }

// batch is Batch or BatchDropRemainder. own is what arrays.batches reads of a batch of
// samples in memory; others are read whole.
func (p *Pipeline) batch(n int, drop bool, own func(rows int) (first, end int)) *Pipeline {
	q := p.derive()
	q.batched = true
	q.follow(p, func(p *Pipeline) *Pipeline { return p.batch(n, drop, nil) })
	if q.n >= 0 && q.n != Infinite {
		q.n = (p.n + n - 1) / max(n, 1)
		if drop {
			q.n = p.n / max(n, 1)
		}
	}
	switch {
	case n < 1:
		q.n = -1
		q.open = pipeline.Failing[Batch](fmt.Errorf("Batch: size is %d, want a positive number", n))
	case p.batched:
		q.n = -1
		q.open = pipeline.Failing[Batch](errors.New("Batch: the dataset is batched already"))
	case p.arrays != nil:
		a, s := p.arrays, p.shuffle
		q.open = func(at pipeline.Start, hold pipeline.Hold) iter.Seq2[Batch, error] {
			return a.batches(n, drop, s.order(a.n, at.Epoch), at.Skip, hold, own)
		}
	default:
		q.open = pipeline.Group(p.elements(), p.n, n, drop, stacker)
	}
	return q
}

// Take yields only the first n elements of each epoch. For tensors in memory
// these are the first rows before any Shuffle.
func (p *Pipeline) Take(n int) *Pipeline { return p.part(0, max(n, 0)) }

// Skip leaves out the first n elements of each epoch. For tensors in memory
// these are the first rows before any Shuffle.
func (p *Pipeline) Skip(n int) *Pipeline { return p.part(max(n, 0), math.MaxInt) }

// part keeps the elements lo … hi-1.
func (p *Pipeline) part(lo, hi int) *Pipeline {
	q := p.derive()
	if q.n >= 0 {
		lo, hi = min(lo, p.n), min(hi, p.n)
		q.n = hi - lo
	}
	if p.arrays != nil && !p.batched {
		q.arrays, q.shuffle = p.arrays.cut(lo, hi), p.shuffle
		return q
	}
	q.open = pipeline.Part(p.elements(), p.n, lo, hi)
	q.follow(p, func(p *Pipeline) *Pipeline { return p.part(lo, hi) })
	return q
}

// Tensors returns all samples of an epoch as tensors, in the order before any
// Shuffle: the rows given to FromTensors after Take, Skip and Map. y and
// weight are nil if the dataset has none. The dataset of a generator is read
// to its end.
func (p *Pipeline) Tensors() (x, y, weight *Tensor, err error) {
	defer tensor.Catch(&err)
	if p.arrays != nil && !p.batched {
		b := p.arrays.all()
		return b.X, b.Y, b.Weight, nil
	}
	if p.n == Infinite {
		return nil, nil, nil, errors.New("Tensors: the dataset has no end; Take some of it")
	}
	d := p
	if !d.batched {
		d = d.Batch(1024)
	}
	var all []Batch
	for b, err := range d.Epoch(context.Background(), 0, 0) {
		if err == nil {
			b, err = b.Clone()
		}
		if err != nil {
			return nil, nil, nil, fmt.Errorf("Tensors: batch %d: %w", len(all)+1, err)
		}
		all = append(all, b)
	}
	if len(all) == 0 {
		return nil, nil, nil, fmt.Errorf("Tensors: %w", ErrEmptyDataset)
	}
	join := func(part func(Batch) *Tensor) *Tensor {
		first := part(all[0])
		if first == nil {
			return nil
		}
		i := -1
		return eachPart(first, func(*Tensor) *Tensor {
			i++
			rows := make([]*Tensor, len(all))
			for j, b := range all {
				rows[j] = part(b).Unpack()[i]
			}
			return tensor.Concat(0, rows...)
		})
	}
	x = join(func(b Batch) *Tensor { return b.X })
	y = join(func(b Batch) *Tensor { return b.Y })
	weight = join(func(b Batch) *Tensor { return b.Weight })
	for _, t := range []*Tensor{x, y, weight} {
		if t != nil && err == nil {
			err = tensor.Eval(context.Background(), t)
		}
	}
	return x, y, weight, err
}

// Map applies f to every element. f may return its argument or keep it, and
// must not change the memory of an element that it has returned.
func (p *Pipeline) Map(f func(Batch) (Batch, error)) *Pipeline {
	q := p.derive()
	q.open = pipeline.Map(p.elements(), func(_ context.Context, b Batch) (Batch, error) { return f(b) })
	q.follow(p, func(p *Pipeline) *Pipeline { return p.Map(func(b Batch) (Batch, error) { return b, nil }) })
	return q
}

// Prefetch prepares up to n elements in advance, in its own goroutine.
func (p *Pipeline) Prefetch(n int) *Pipeline {
	q := p.derive()
	q.open = pipeline.Ahead(p.elements(), n)
	q.follow(p, func(p *Pipeline) *Pipeline { return p.Prefetch(n) })
	return q
}

// Batches yields the elements of the next epoch. An element that the loop
// keeps stays valid unless it is released with Batch.Release; see Dataset.
func (p *Pipeline) Batches() iter.Seq2[Batch, error] {
	return func(yield func(Batch, error) bool) {
		p.Epoch(context.Background(), int(p.epoch.Add(1)-1), 0)(yield)
	}
}

// Epoch yields the elements of the given epoch, without the first skip ones.
func (p *Pipeline) Epoch(ctx context.Context, epoch, skip int) iter.Seq2[Batch, error] {
	if err := needs(ctx, "Epoch"); err != nil {
		return func(yield func(Batch, error) bool) { yield(Batch{}, err) }
	}
	return inTurn(p.elements()(pipeline.Start{Context: ctx, Epoch: epoch, Skip: skip}, pipeline.Returning))
}

// source is p for readers that say how they hold its elements.
func (p *Pipeline) source() pipeline.Source[Batch] {
	s := pipeline.Source[Batch]{Len: p.n, Form: pipeline.Samples, Open: p.elements()}
	if p.batched {
		s.Form = pipeline.Batches
	}
	return s
}

// hooks are shared with package keras/data.
var hooks = pipeline.Shared[Batch]()

func init() {
	hooks.Stacker, hooks.InTurn = stacker, inTurn
	hooks.Pipeline = func(d any) (s pipeline.Source[Batch], ok bool) {
		p, ok := d.(*Pipeline)
		if ok {
			s = p.source()
		}
		return s, ok
	}
}

// sourceOf returns the source of a dataset of this module. A type that embeds
// one may yield something else, and has none.
func sourceOf(d Dataset) (s pipeline.Source[Batch], ok bool) {
	if p, ok := d.(*Pipeline); ok {
		return p.source(), true
	}
	if hooks.Dataset == nil {
		return s, false
	}
	return hooks.Dataset(d)
}

func (p *Pipeline) derive() *Pipeline {
	return &Pipeline{n: p.n, batched: p.batched, epoch: new(atomic.Int64)}
}

// elements opens the dataset as it stands: samples in memory one by one when
// nothing has batched them.
func (p *Pipeline) elements() pipeline.Opener[Batch] {
	if p.open != nil {
		return p.open
	}
	a, s := p.arrays, p.shuffle
	return func(at pipeline.Start, _ pipeline.Hold) iter.Seq2[Batch, error] {
		return a.samples(s.order(a.n, at.Epoch), at.Skip)
	}
}

// order is the sequence of sample numbers of an epoch, or nil for 0, 1, 2 ….
func (s *shuffle) order(n, epoch int) []int32 {
	if s == nil {
		return nil
	}
	return pipeline.Order(n, s.buffer, s.seed, epoch)
}

// split cuts the last share of the samples off, before any shuffling: Keras's
// validation_split.
func (p *Pipeline) split(share float64) (train, validation *Pipeline, err error) {
	if p.arrays == nil || p.batched {
		return nil, nil, fmt.Errorf("ValidationSplit works on samples in memory that are not batched; give ValidationData instead")
	}
	at := int(math.Floor(float64(p.n) * (1 - share)))
	if at <= 0 || at >= p.n {
		return nil, nil, fmt.Errorf("ValidationSplit %v of %d samples leaves one side empty", share, p.n)
	}
	a, b := p.arrays.cut(0, at), p.arrays.cut(at, p.n)
	train = &Pipeline{n: a.n, arrays: a, shuffle: p.shuffle, epoch: new(atomic.Int64)}
	validation = &Pipeline{n: b.n, arrays: b, epoch: new(atomic.Int64)}
	return train, validation, nil
}
