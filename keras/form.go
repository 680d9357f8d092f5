package keras

import (
	"context"
	"fmt"
	"iter"
	"reflect"
	"slices"
	"strings"

	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/keras/internal/pipeline"
	"github.com/mezzo-ml/mezzo/layers"
)

// looked is a dataset whose first element was read to see whether it has a batch axis.
// The next reader of the same epoch continues that reading.
type looked struct {
	source pipeline.Source[Batch]
	epoch  int
	first  Batch
	err    error
	some   bool // there is a first element, or an error
	next   func() (Batch, error, bool)
	stop   func() // nil after another has taken the reading over
}

// look opens an epoch. close must be called.
func look(ctx context.Context, s pipeline.Source[Batch], epoch int) *looked {
	l := &looked{source: s, epoch: epoch}
	l.next, l.stop = iter.Pull2(s.Open(pipeline.Start{Context: ctx, Epoch: epoch}, pipeline.Returning))
	l.first, l.err, l.some = l.next()
	return l
}

// close ends the reading unless another has taken it over.
func (l *looked) close() {
	if l.stop != nil {
		l.stop()
	}
	l.stop = nil
}

// open opens the dataset. Elements of the reading that goes on may be held in
// any way.
func (l *looked) open(at pipeline.Start, hold pipeline.Hold) iter.Seq2[Batch, error] {
	return func(yield func(Batch, error) bool) {
		if l.stop == nil || at.Epoch != l.epoch || at.Skip != 0 {
			l.close()
			l.source.Open(at, hold)(yield)
			return
		}
		first, err, some, stop := l.first, l.err, l.some, l.stop
		l.first, l.stop = Batch{}, nil
		defer stop()
		for b := first; some; b, err, some = l.next() {
			if !yield(b, err) || err != nil {
				return
			}
		}
	}
}

// isSample reports whether b, an element of a dataset of unknown form, is a sample
// rather than a batch, for a model (nil: for none). An unreadable element counts as a
// batch: the error is reported when training reads it.
func isSample(m *Model, b Batch, form pipeline.Form) (bool, error) {
	rows, differ := -1, false
	for _, t := range []*Tensor{b.X, b.Y, b.Weight} {
		if t == nil {
			continue
		}
		for _, p := range t.Unpack() {
			if p.Err() != nil {
				return false, nil
			}
			if p.Rank() == 0 {
				return true, nil
			}
			differ = differ || rows >= 0 && p.Dim(0) != rows
			rows = p.Dim(0)
		}
	}
	switch {
	case m == nil || b.X == nil || differ:
		return differ, nil
	case m.in == nil:
		return m.buildsFor(b, form)
	case m.training != nil && (m.training.ownTrain != nil || m.training.ownTest != nil):
		// A step of the user's need not call the model with X, so only X of exactly the
		// shape of the model's inputs tells.
		if asSample := m.takes(b.X, 0); asSample || m.takes(b.X, 1) {
			return asSample, nil
		}
		return m.decidedBy(form, b, "or give data of the model's inputs, "+typeText(m.in))
	}
	for i, in := range m.in.Unpack() {
		if b.X.Len() != m.in.Len() || b.X.Unpack()[i].Rank() != in.Rank()-1 {
			return false, nil
		}
	}
	return true, nil
}

// takes reports whether the model's inputs without the axis of the batch have the shapes
// of x without its first axes.
func (m *Model) takes(x *Tensor, axes int) bool {
	if x.Len() != m.in.Len() {
		return false
	}
	for i, in := range m.in.Unpack() {
		want, got := in.Shape()[1:], x.Unpack()[i].Shape()[axes:]
		if !slices.EqualFunc(want, got, func(w, g int) bool { return w == g || w == tensor.Unknown }) {
			return false
		}
	}
	return true
}

// decidedBy is isSample for elements that do not tell themselves: what the dataset says,
// or an error with advice.
func (m *Model) decidedBy(form pipeline.Form, b Batch, advice string) (sample bool, err error) {
	if form == pipeline.LikelySamples || form == pipeline.LikelyBatches {
		return form == pipeline.LikelySamples, nil
	}
	what := "X is " + typeText(b.X)
	if b.Y != nil {
		what += ", Y " + typeText(b.Y)
	}
	return false, m.errorf("the elements of the dataset may be samples or batches of %d: %s; make batches of samples with Batch, %s",
		b.X.Unpack()[0].Dim(0), what, advice)
}

// buildsFor is isSample for a model that is not built. It depends on the inputs that
// the layers can be built for, else on whether the output would fit Y, else on the
// dataset.
func (m *Model) buildsFor(b Batch, form pipeline.Form) (sample bool, err error) {
	asSample, outSample := m.try(b.X, 0)
	asBatch, outBatch := m.try(b.X, 1)
	if asSample && asBatch && outSample != nil && b.Y != nil && !b.Y.IsTuple() {
		if s, t := judges(outSample, b.Y.Shape()), judges(outBatch, b.Y.Shape()[1:]); s != t {
			return s, nil
		}
	}
	switch {
	case asSample != asBatch:
		return asSample, nil
	case !asSample: // building it says why
		return false, nil
	}
	return m.decidedBy(form, b, "or for batches Build the model first, or begin it with keras.Input")
}

// try reports whether the model can be built for inputs like x without its first axes,
// and returns the shape of its output; nil if it has several. It returns true if the
// model has layers from outside this module, whose clone might differ.
func (m *Model) try(x *Tensor, axes int) (can bool, out Shape) {
	if !cloneable(m.stack) {
		return true, nil
	}
	c, err := m.Clone("")
	if err != nil {
		return true, nil
	}
	ins := make([]*Tensor, x.Len())
	for i, t := range x.Unpack() {
		ins[i] = inputFor(t.DType(), t.Shape()[axes:]...)
	}
	in := ins[0]
	if x.IsTuple() {
		in = tensor.Tuple(ins...)
	}
	if err := c.build(in); err != nil {
		return false, nil
	}
	if c.out.IsTuple() {
		return true, nil
	}
	return true, c.out.Shape()[1:]
}

// cloneable reports whether all layers, and those in their fields, are of
// package layers or one within it, or models of such.
func cloneable(ls []layers.Layer) bool {
	return !slices.ContainsFunc(ls, func(l layers.Layer) bool {
		if l == nil {
			return true
		}
		l, _ = layers.Unwrap(l)
		if inner, ok := l.(*modelLayer); ok {
			return !cloneable(inner.model.Layers())
		}
		if !ofLayers(reflect.TypeOf(l).Elem().PkgPath()) {
			return true
		}
		_, err := layers.CloneWith(l, func(in layers.Layer) (layers.Layer, error) {
			if !cloneable([]layers.Layer{in}) {
				return nil, fmt.Errorf("%T is of another package", in)
			}
			return in, nil
		})
		return err != nil
	})
}

// ofLayers reports whether a package is layers or within it.
func ofLayers(path string) bool {
	own := reflect.TypeFor[layers.Dense]().PkgPath()
	return path == own || strings.HasPrefix(path, own+"/")
}

// judges reports whether losses compare outputs of a shape with such targets:
// of the same shape, or of a class for each vector.
func judges(out, y Shape) bool {
	if y.Equal(out) || len(out) == 0 {
		return y.Equal(out)
	}
	vectors := out[:len(out)-1]
	return y.Equal(vectors) || y.Equal(append(slices.Clone(vectors), 1))
}
