package keras

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"sync/atomic"

	"github.com/mezzo-ml/mezzo/backend"
	"github.com/mezzo-ml/mezzo/keras/internal/pipeline"
)

// epochs opens the epochs of a dataset for training.
type epochs struct {
	ctx   context.Context
	at    pipeline.Opener[Batch]
	hold  pipeline.Hold
	seeks bool // open takes a skip other than 0
	steps int  // of an epoch, -1: unknown
}

// open opens an epoch. The reader must release each batch before the next.
func (e epochs) open(epoch, skip int) iter.Seq2[Batch, error] {
	return inTurn(e.at(pipeline.Start{Context: e.ctx, Epoch: epoch, Skip: skip}, e.hold))
}

// batched makes batches of a dataset of samples, for a model (nil: for none), with the
// shuffling that Fit's arguments request. close must be called after the dataset has
// been read; it ends the reading that found the dataset's form.
func batched(ctx context.Context, m *Model, d Dataset, c FitConfig, shuffle bool) (_ Dataset, close func(), err error) {
	close = func() {}
	if p, ok := d.(*Pipeline); ok {
		if p.n == 0 {
			return nil, close, ErrEmptyDataset
		}
		if p.batched {
			return p, close, nil
		}
		if shuffle && p.arrays != nil && p.shuffle == nil {
			p = p.Shuffle(p.n, c.Seed)
		}
		p = p.batch(c.BatchSize, false, c.own)
		if p.n != 1 {
			p = p.Prefetch(1)
		}
		return p, close, nil
	}
	s, ok := sourceOf(d)
	if ok && s.Form == pipeline.Batches && s.Own != nil && c.own != nil {
		return &Pipeline{n: s.Len, open: s.Own(c.own), batched: true, epoch: new(atomic.Int64)}, close, nil
	}
	if !ok || s.Form == pipeline.Batches {
		return d, close, nil
	}
	all := &Pipeline{n: s.Len, open: s.Open, epoch: new(atomic.Int64)}
	if s.Form != pipeline.Samples {
		l := look(ctx, s, c.InitialEpoch)
		all.open, close = l.open, l.close
		sample := false
		if l.some && l.err == nil {
			sample, err = isSample(m, l.first, s.Form)
		}
		if err != nil || !sample {
			all.batched = true
			return all, close, err
		}
	}
	return all.Batch(c.BatchSize).Prefetch(1), close, nil
}

// epochsOf opens the epochs of a dataset of batches.
func epochsOf(ctx context.Context, d Dataset, c FitConfig) epochs {
	e := epochs{ctx: ctx, hold: 1, steps: -1}
	// Users may keep the batches that they see.
	if backend.DebugFromEnv().Eager || slices.ContainsFunc(c.Callbacks, Callback.seesBatches) {
		e.hold = pipeline.Returning
	}
	switch d := d.(type) {
	case SeekableDataset:
		e.steps, e.seeks = d.Len(), true
		e.at = func(at pipeline.Start, _ pipeline.Hold) iter.Seq2[Batch, error] {
			return d.Epoch(at.Context, at.Epoch, at.Skip)
		}
	case EpochDataset:
		e.at = pipeline.Interruptible(func(_ context.Context, epoch int) iter.Seq2[Batch, error] { return d.EpochBatches(epoch) })
	default:
		e.at = pipeline.Interruptible(func(context.Context, int) iter.Seq2[Batch, error] { return d.Batches() })
	}
	if s, ok := sourceOf(d); ok {
		e.at = s.Open
	}
	return e
}

// batchedSource opens the epochs of a dataset in batches, and nothing yet, for
// readers that say how, where it has no end, it is made to end. m is the model
// when the dataset is opened; see batched.
func batchedSource(ctx context.Context, m *Model, d Dataset, c FitConfig, steps int, advice string) (epochs, error) {
	s, ok := sourceOf(d)
	if !ok || s.Form == pipeline.Batches || s.Form == pipeline.Samples {
		d, _, err := batched(ctx, m, d, c, false)
		if err != nil {
			return epochs{}, err
		}
		return epochsOf(ctx, d, c).bounded(steps, advice)
	}
	e := epochsOf(ctx, d, c)
	e.at = func(at pipeline.Start, hold pipeline.Hold) iter.Seq2[Batch, error] {
		return func(yield func(Batch, error) bool) {
			c := c
			c.InitialEpoch = at.Epoch
			d, close, err := batched(at.Context, m, d, c, false)
			defer close()
			if err != nil {
				yield(Batch{}, err)
				return
			}
			epochsOf(at.Context, d, c).at(at, hold)(yield)
		}
	}
	return e.bounded(steps, advice)
}

// bounded is an error when the epochs do not end and nothing else ends them.
func (e epochs) bounded(steps int, advice string) (epochs, error) {
	if e.steps == Infinite {
		if steps == 0 {
			return e, fmt.Errorf("the dataset has no end; %s", advice)
		}
		e.steps = -1
	}
	return e, nil
}

// stream reads batches from one epoch after the other.
type stream struct {
	source epochs
	at     Position // of the next batch
	skip   int      // batches to pass over
	ahead  *Batch   // a batch that was read to look at it
	pull   func() (Batch, error, bool)
	stop   func()
}

// newStream returns the reader of a training that begins with the given epoch.
// With stepsPerEpoch it begins where the epochs before it would have ended, if
// the length of the dataset is known.
func newStream(s epochs, epoch, stepsPerEpoch int) *stream {
	r := &stream{source: s, at: Position{Epoch: epoch}}
	if stepsPerEpoch > 0 && s.steps > 0 {
		done := epoch * stepsPerEpoch
		r.seek(Position{done / s.steps, done % s.steps})
	}
	return r
}

// seek moves to a place.
func (s *stream) seek(to Position) {
	s.close()
	s.at, s.skip = Position{Epoch: to.Epoch}, to.Batch
}

// place returns the position of the batch that next returns.
func (s *stream) place() Position { return Position{s.at.Epoch, s.at.Batch + s.skip} }

func (s *stream) close() {
	if s.stop != nil {
		s.stop()
	}
	s.pull, s.stop, s.ahead = nil, nil, nil
}

// restart opens an epoch from its beginning, unless that is where the reader
// is.
func (s *stream) restart(epoch int) {
	if s.pull != nil && s.at == (Position{Epoch: epoch}) && s.skip == 0 {
		return
	}
	s.open(epoch, 0)
	s.skip = 0
}

// open opens an epoch without its first skip batches.
func (s *stream) open(epoch, skip int) {
	s.close()
	s.at = Position{epoch, skip}
	s.pull, s.stop = iter.Pull2(s.source.open(epoch, skip))
}

// jump opens the dataset at the place to go on from, where that is possible.
func (s *stream) jump() {
	if s.source.seeks && s.skip > 0 {
		s.open(s.at.Epoch, s.at.Batch+s.skip)
		s.skip = 0
	}
}

// peek returns a batch of the epoch without consuming it: the next one, or the first of
// the epoch if the dataset cannot be opened there or has none. It stays valid until the
// next one is read.
func (s *stream) peek() (b Batch, ok bool, err error) {
	if to := s.at; s.source.seeks && s.skip > 0 {
		to.Batch += s.skip
		s.jump()
		if b, ok, err = s.read(false); ok || err != nil {
			if ok && err == nil {
				s.ahead = &b
				s.at.Batch--
			}
			return b, ok, err
		}
		defer s.open(to.Epoch, to.Batch)
		s.open(to.Epoch, 0)
		return s.read(false)
	}
	if b, ok, err = s.read(false); ok && err == nil {
		s.ahead = &b
		s.at.Batch--
	}
	return b, ok, err
}

// next returns the next batch; with wrap, the first of the next epoch after the last
// one.
func (s *stream) next(wrap bool) (b Batch, ok bool, err error) {
	s.jump()
	for ; s.skip > 0; s.skip-- {
		if b, ok, err = s.read(wrap); err == nil && !ok {
			err = fmt.Errorf("the dataset ends after %d batches; %d were read of it before", s.at.Batch, s.at.Batch+s.skip)
		}
		if err != nil {
			return b, ok, err
		}
	}
	return s.read(wrap)
}

func (s *stream) read(wrap bool) (b Batch, ok bool, err error) {
	if s.ahead != nil {
		b, s.ahead = *s.ahead, nil
		s.at.Batch++
		return b, true, nil
	}
	for attempt := range 2 {
		if s.pull == nil {
			s.open(s.at.Epoch, 0)
		}
		if b, err, ok = s.pull(); ok || !wrap || attempt == 1 {
			if ok {
				s.at.Batch++
			}
			return b, ok, err
		}
		s.open(s.at.Epoch+1, 0)
	}
	return b, false, nil
}
