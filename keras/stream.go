package keras

import (
	"fmt"
	"iter"
)

// epochs opens the epochs of a dataset for training.
type epochs struct {
	open  func(epoch int) iter.Seq2[Batch, error]
	steps int // of an epoch, -1: unknown
}

// batchedSource makes batches of a dataset where it has none, with the
// shuffling that Fit's arguments ask for.
func batchedSource(d Dataset, c FitConfig, shuffle bool) (epochs, error) {
	p, ok := d.(*Pipeline)
	if !ok {
		return epochs{open: func(int) iter.Seq2[Batch, error] { return d.Batches() }, steps: -1}, nil
	}
	if p.n == 0 {
		return epochs{}, fmt.Errorf("the dataset is empty")
	}
	if !p.batched {
		if shuffle && p.arrays != nil && p.shuffle == nil {
			p = p.Shuffle(p.n, c.Seed)
		}
		p = p.Batch(c.BatchSize)
		if p.n != 1 {
			p = p.Prefetch(1)
		}
	}
	return epochs{open: p.at, steps: p.n}, nil
}

// stream reads batches from one epoch after the other.
type stream struct {
	source epochs
	epoch  int
	skip   int // batches to pass over
	pull   func() (Batch, error, bool)
	stop   func()
}

// newStream returns the reader of a training that begins with the given epoch.
// With stepsPerEpoch it begins where the epochs before it would have ended, if
// the length of the dataset is known.
func newStream(s epochs, epoch, stepsPerEpoch int) *stream {
	r := &stream{source: s, epoch: epoch}
	if stepsPerEpoch > 0 && s.steps > 0 {
		done := epoch * stepsPerEpoch
		r.epoch, r.skip = done/s.steps, done%s.steps
	}
	return r
}

func (s *stream) close() {
	if s.stop != nil {
		s.stop()
	}
	s.pull, s.stop = nil, nil
}

// restart opens an epoch from its beginning.
func (s *stream) restart(epoch int) {
	s.close()
	s.epoch = epoch
	s.pull, s.stop = iter.Pull2(s.source.open(epoch))
}

// next returns the next batch; with wrap, that of the next epoch after the
// last one.
func (s *stream) next(wrap bool) (b Batch, ok bool, err error) {
	for ; wrap && s.skip > 0; s.skip-- {
		if b, ok, err = s.read(wrap); !ok || err != nil {
			return b, ok, err
		}
	}
	return s.read(wrap)
}

func (s *stream) read(wrap bool) (b Batch, ok bool, err error) {
	for attempt := range 2 {
		if s.pull == nil {
			s.restart(s.epoch)
		}
		if b, err, ok = s.pull(); ok || !wrap || attempt == 1 {
			return b, ok, err
		}
		s.restart(s.epoch + 1)
	}
	return b, false, nil
}
