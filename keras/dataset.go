package keras

import (
	"errors"
	"fmt"
	"iter"
	"math"
	"sync/atomic"

	"github.com/mezzo-ml/mezzo/backend/philox"
	"github.com/mezzo-ml/mezzo/backend/tensor"
)

// Batch is what one training step sees. X and Y are tuples for models with
// several inputs or outputs. Weight holds one weight per sample, or is nil.
type Batch struct{ X, Y, Weight *Tensor }

// Dataset yields the batches of one epoch and can be opened again for the
// next. A batch is valid until the next one is asked for: its memory is used
// again. The caller stops by leaving the loop.
type Dataset interface {
	Batches() iter.Seq2[Batch, error]
}

// EpochDataset is a Dataset that opens an epoch by its number, from 0. Fit
// prefers EpochBatches: a dataset whose epochs differ needs it for a training
// that is resumed. A Pipeline of tensors does the like by itself.
type EpochDataset interface {
	Dataset
	EpochBatches(epoch int) iter.Seq2[Batch, error]
}

// Pipeline is a Dataset of samples in memory or from a generator, with the
// usual operations on it (tf.data). Each operation returns a new Pipeline and
// leaves the old one as it was.
type Pipeline struct {
	n       int // elements of an epoch: samples, or batches once batched; -1: unknown
	batched bool
	arrays  *arrays // samples in memory, not batched yet
	shuffle *shuffle
	open    opener
	epoch   *atomic.Int64 // how often Batches was called
}

// opener opens an epoch. ring is how many elements the reader holds at once,
// the newest ones: older ones may be overwritten. forever means that the
// reader holds elements in no order, so that none may be.
type opener func(epoch, ring int) iter.Seq2[Batch, error]

const forever = 0

// more is ring for a reader that holds n more elements on the way.
func more(ring, n int) int {
	if ring == forever {
		return forever
	}
	return ring + n
}

// shuffle is a pending Shuffle of samples in memory.
type shuffle struct {
	buffer int
	seed   uint64
}

// FromTensors returns the dataset of the rows of x, y and weight: axis 0
// counts samples. y and weight may be nil; x and y may be tuples. The tensors
// are not copied and must not be changed. It panics with *tensor.Error when
// the numbers of samples differ.
func FromTensors(x, y, weight *Tensor) *Pipeline {
	a := newArrays(x, y, weight)
	return &Pipeline{n: a.n, arrays: a, epoch: new(atomic.Int64)}
}

// FromGenerator returns the dataset of what open yields, opened anew for each
// epoch. batched says whether it yields batches or single samples, which have
// no batch axis and need Batch. It must not overwrite what it has yielded:
// Batch, Shuffle and Prefetch hold several elements at once.
func FromGenerator(open func() iter.Seq2[Batch, error], batched bool) *Pipeline {
	return &Pipeline{n: -1, batched: batched, epoch: new(atomic.Int64),
		open: func(int, int) iter.Seq2[Batch, error] { return open() }}
}

// Len is the number of samples, or of batches once batched; -1 when unknown.
func (p *Pipeline) Len() int { return p.n }

// Shuffle mixes the elements: each comes at random from a window of buffer
// elements, so that a buffer of at least Len makes every order equally likely.
// The order differs from epoch to epoch and depends on seed alone.
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
	inner := p.elements()
	q.open = func(epoch, ring int) iter.Seq2[Batch, error] {
		return shuffled(inner(epoch, forever), s, epoch)
	}
	return q
}

// Batch groups n samples into a batch; the last one may be smaller.
func (p *Pipeline) Batch(n int) *Pipeline { return p.batch(n, false) }

// BatchDropRemainder is Batch without a smaller last batch, which would
// compile a second program.
func (p *Pipeline) BatchDropRemainder(n int) *Pipeline { return p.batch(n, true) }

func (p *Pipeline) batch(n int, drop bool) *Pipeline {
	q := p.derive()
	q.batched = true
	if q.n >= 0 {
		q.n = (p.n + n - 1) / max(n, 1)
		if drop {
			q.n = p.n / max(n, 1)
		}
	}
	switch {
	case n < 1:
		q.n = -1
		q.open = failing(fmt.Errorf("Batch: size is %d, want a positive number", n))
	case p.batched:
		q.n = -1
		q.open = failing(errors.New("Batch: the dataset is batched already"))
	case p.arrays != nil:
		a, s := p.arrays, p.shuffle
		q.open = func(epoch, ring int) iter.Seq2[Batch, error] { return a.batches(n, drop, s.order(a.n, epoch), ring) }
	default:
		inner := p.elements()
		q.open = func(epoch, ring int) iter.Seq2[Batch, error] { return stacked(inner(epoch, more(ring, n)), n, drop) }
	}
	return q
}

// Take keeps the first n elements of each epoch. Samples in memory are taken
// before any shuffling.
func (p *Pipeline) Take(n int) *Pipeline { return p.part(0, max(n, 0)) }

// Skip leaves out the first n elements of each epoch. Samples in memory are
// left out before any shuffling.
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
	inner := p.elements()
	q.open = func(epoch, ring int) iter.Seq2[Batch, error] {
		return func(yield func(Batch, error) bool) {
			i := 0
			for b, err := range inner(epoch, ring) {
				if i >= hi || i >= lo && !yield(b, err) || err != nil {
					return
				}
				if i++; i == hi {
					return
				}
			}
		}
	}
	return q
}

// Map puts every element through f. What f returns must not share memory with
// its argument unless it is the argument.
func (p *Pipeline) Map(f func(Batch) (Batch, error)) *Pipeline {
	q := p.derive()
	inner := p.elements()
	q.open = func(epoch, ring int) iter.Seq2[Batch, error] {
		return func(yield func(Batch, error) bool) {
			for b, err := range inner(epoch, ring) {
				if err == nil {
					b, err = f(b)
				}
				if !yield(b, err) || err != nil {
					return
				}
			}
		}
	}
	return q
}

// Prefetch prepares up to n elements ahead in a goroutine of its own.
func (p *Pipeline) Prefetch(n int) *Pipeline {
	q := p.derive()
	inner := p.elements()
	n = max(n, 1)
	q.open = func(epoch, ring int) iter.Seq2[Batch, error] { return ahead(inner(epoch, more(ring, n+1)), n) }
	return q
}

// Batches yields the elements of the next epoch.
func (p *Pipeline) Batches() iter.Seq2[Batch, error] {
	return func(yield func(Batch, error) bool) {
		p.at(int(p.epoch.Add(1) - 1))(yield)
	}
}

// at yields the elements of an epoch by number.
func (p *Pipeline) at(epoch int) iter.Seq2[Batch, error] { return p.elements()(epoch, 1) }

func (p *Pipeline) derive() *Pipeline {
	return &Pipeline{n: p.n, batched: p.batched, epoch: new(atomic.Int64)}
}

// elements opens the dataset as it stands: samples in memory one by one when
// nothing has batched them.
func (p *Pipeline) elements() opener {
	if p.open != nil {
		return p.open
	}
	a, s := p.arrays, p.shuffle
	return func(epoch, ring int) iter.Seq2[Batch, error] { return a.samples(s.order(a.n, epoch)) }
}

func failing(err error) opener {
	return func(int, int) iter.Seq2[Batch, error] {
		return func(yield func(Batch, error) bool) { yield(Batch{}, err) }
	}
}

// order is the sequence of sample numbers of an epoch, or nil for 0, 1, 2 ….
func (s *shuffle) order(n, epoch int) []int32 {
	if s == nil {
		return nil
	}
	order := make([]int32, 0, n)
	window := make([]int32, 0, min(n, s.buffer))
	random := &picker{seed: s.seed, epoch: uint64(epoch)}
	for i := range n {
		if len(window) < s.buffer {
			window = append(window, int32(i))
			continue
		}
		j := random.below(len(window))
		order = append(order, window[j])
		window[j] = int32(i)
	}
	for len(window) > 0 {
		j := random.below(len(window))
		last := len(window) - 1
		order = append(order, window[j])
		window[j] = window[last]
		window = window[:last]
	}
	return order
}

// picker draws whole numbers from Philox, keyed by seed and epoch.
type picker struct {
	seed, epoch, next uint64
	words             [64]uint32
	left              int
}

// shuffleStream keeps the numbers of shuffles apart from those of layers.
const shuffleStream = 0x73687566666c65

// below returns a number in 0 … n-1. The bias of the multiplication is below
// n/2³², far under what any number of epochs could show.
func (r *picker) below(n int) int {
	if r.left == 0 {
		philox.Words(r.seed, r.epoch, shuffleStream, r.next, r.words[:])
		r.next += uint64(len(r.words))
		r.left = len(r.words)
	}
	r.left--
	return int(uint64(r.words[r.left]) * uint64(n) >> 32)
}

// shuffled mixes a stream through a window of elements.
func shuffled(in iter.Seq2[Batch, error], s *shuffle, epoch int) iter.Seq2[Batch, error] {
	return func(yield func(Batch, error) bool) {
		random := &picker{seed: s.seed, epoch: uint64(epoch)}
		var window []Batch
		for b, err := range in {
			if err != nil {
				yield(b, err)
				return
			}
			if len(window) < s.buffer {
				window = append(window, b)
				continue
			}
			j := random.below(len(window))
			out := window[j]
			window[j] = b
			if !yield(out, nil) {
				return
			}
		}
		for len(window) > 0 {
			j := random.below(len(window))
			last := len(window) - 1
			out := window[j]
			window[j] = window[last]
			window = window[:last]
			if !yield(out, nil) {
				return
			}
		}
	}
}

// ahead runs in in a goroutine, n elements before the reader.
func ahead(in iter.Seq2[Batch, error], n int) iter.Seq2[Batch, error] {
	type item struct {
		b   Batch
		err error
	}
	return func(yield func(Batch, error) bool) {
		items := make(chan item, n-1)
		stop, stopped := make(chan struct{}), make(chan struct{})
		var failure any // a panic of the goroutine, passed on to the reader
		go func() {
			defer close(stopped)
			defer close(items)
			defer func() { failure = recover() }()
			for b, err := range in {
				select {
				case items <- item{b, err}:
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
			if !yield(it.b, it.err) || it.err != nil {
				return
			}
		}
	}
}

// stacked makes batches of n samples from a stream.
func stacked(in iter.Seq2[Batch, error], n int, drop bool) iter.Seq2[Batch, error] {
	return func(yield func(Batch, error) bool) {
		var group []Batch
		for b, err := range in {
			if err != nil {
				yield(b, err)
				return
			}
			if group = append(group, b); len(group) == n {
				if !yield(stack(group)) {
					return
				}
				group = group[:0]
			}
		}
		if len(group) > 0 && !drop {
			yield(stack(group))
		}
	}
}

func stack(group []Batch) (b Batch, err error) {
	defer tensor.Catch(&err)
	join := func(get func(Batch) *Tensor) *Tensor {
		first := get(group[0])
		if first == nil {
			return nil
		}
		parts := make([]*Tensor, first.Len())
		for i := range parts {
			var data []byte
			t := first.Parts()[i].Type()
			for k, g := range group {
				u := get(g)
				if u == nil || u.Len() != len(parts) || !u.Parts()[i].Type().Equal(t) {
					tensor.Fail("Batch", "sample %d of the batch is %v, the first is %v", k, typeText(u), typeText(first))
				}
				bytes, err := u.Parts()[i].Bytes()
				if err != nil {
					tensor.Fail("Batch", "%w", err)
				}
				data = append(data, bytes...)
			}
			t.Shape = append(Shape{len(group)}, t.Shape...)
			parts[i] = tensor.FromBytes(t, data)
		}
		if !first.IsTuple() {
			return parts[0]
		}
		return tensor.Tuple(parts...)
	}
	b.X = join(func(b Batch) *Tensor { return b.X })
	b.Y = join(func(b Batch) *Tensor { return b.Y })
	b.Weight = join(func(b Batch) *Tensor { return b.Weight })
	return b, nil
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
