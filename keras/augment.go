package keras

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"sync"

	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/keras/internal/pipeline"
	"github.com/mezzo-ml/mezzo/layers"
)

// Augmenter applies layers to batches as in training, on the device; see
// Pipeline.Augment. Its methods may be called from several goroutines; the
// calls run one after the other.
type Augmenter struct {
	steps  int // batches of an epoch, -1: unknown
	layers []layers.Layer

	mu     sync.Mutex
	f      *tensor.Func[augmented, augmented]
	mixes  bool // whether a layer takes labels too
	states []*augmenterState
}

// augmented are images and, for layers that mix them, labels.
type augmented struct{ X, Y *Tensor }

// augmenterState is a state of random numbers of a layer.
type augmenterState struct {
	*tensor.Variable
	calls int64 // how often it advances in a batch; 0: not known yet
}

// NewAugmenter returns an Augmenter for epochs of the given number of batches,
// -1 if it is unknown. Layers without a name get the names that they would
// have in Sequential.
func NewAugmenter(steps int, ls ...layers.Layer) *Augmenter {
	a := &Augmenter{steps: steps, layers: ls}
	n := newNames()
	owners := make([]tensor.Stateful, len(ls))
	for i, l := range ls {
		n.give("", l)
		owners[i] = layers.BaseOf(l)
		_, mixes := l.(layers.LabelMixer)
		a.mixes = a.mixes || mixes
	}
	a.f = tensor.Function(a.call, owners...)
	return a
}

// call is the work on a batch.
func (a *Augmenter) call(in augmented) augmented {
	for _, l := range a.layers {
		if _, mixes := l.(layers.LabelMixer); mixes && in.Y != nil {
			both := layers.Apply(l, layers.Pass{Training: true}, tensor.Tuple(in.X, in.Y)).Unpack()
			in.X, in.Y = both[0], both[1]
		} else {
			in.X = layers.Apply(l, layers.Pass{Training: true}, in.X)
		}
	}
	return in
}

// Batch returns batch i of an epoch, both counted from 0, after the layers.
func (a *Augmenter) Batch(ctx context.Context, epoch, i int, b Batch) (out Batch, err error) {
	defer tensor.Catch(&err)
	in := augmented{X: b.X}
	if b.X == nil || b.X.IsTuple() {
		return b, fmt.Errorf("X is %s, want images", typeText(b.X))
	}
	if a.mixes && b.Y != nil {
		if b.Y.IsTuple() {
			return b, fmt.Errorf("Y is %s, want one tensor of labels to mix", typeText(b.Y))
		}
		in.Y = b.Y
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.states == nil {
		if _, err := a.f.Plan(in); err != nil { // builds the layers
			return b, err
		}
		a.states = []*augmenterState{}
		for _, l := range a.layers {
			for _, v := range layers.BaseOf(l).RandomStates() {
				a.states = append(a.states, &augmenterState{Variable: v})
			}
		}
	}
	step := int64(epoch)<<32 + int64(i)
	if a.steps >= 0 && a.steps != math.MaxInt {
		step = int64(epoch)*int64(a.steps) + int64(i)
	}
	for {
		for _, s := range a.states {
			if _, err := s.move(max(s.calls, 1) * step); err != nil {
				return b, err
			}
		}
		y, err := a.f.Call(ctx, in)
		if err != nil {
			return b, err
		}
		again := false
		for _, s := range a.states {
			if s.calls == 0 {
				after, err := s.move(0)
				if err != nil {
					return b, err
				}
				s.calls = after - step
				again = again || s.calls != 1 && step != 0
			}
		}
		if !again {
			b.X = y.X
			if in.Y != nil {
				b.Y = y.Y
			}
			return b, nil
		}
	}
}

// move sets the counter and returns its previous value.
func (s *augmenterState) move(to int64) (was int64, err error) {
	state, err := s.Bytes()
	if err != nil {
		return 0, err
	}
	counter := state[8:]
	was = int64(binary.LittleEndian.Uint64(counter))
	binary.LittleEndian.PutUint64(counter, uint64(to))
	return was, s.SetBytes(state)
}

// Augment applies layers to X of every batch as in training (Keras:
// Dataset.map of layers called with training=True). [preprocessing.MixUp] and
// [preprocessing.CutMix] change Y too, which must then have a float type, such
// as one-hot vectors. The elements must be batches. With Prefetch after it,
// batches are computed while the model trains.
//
// Random numbers are functions of the layers' seeds, the epoch and the number
// of the batch, so a resumed training continues with the same bits. They are
// those that the layers would draw as the first layers of a model, with the
// same names and seeds.
func (p *Pipeline) Augment(ls ...layers.Layer) *Pipeline {
	q := p.derive()
	if !p.batched {
		q.open = pipeline.Failing[Batch](errors.New("Augment: the dataset has no batches, want Batch before"))
		return q
	}
	q.open = pipeline.MapAt("Augment", p.elements(), NewAugmenter(p.n, ls...).Batch)
	return q
}
