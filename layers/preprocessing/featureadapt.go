package preprocessing

import (
	"errors"
	"fmt"
	"iter"

	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/layers"
)

// rowsOfAdapt is the number of rows that Keras's adapt takes at once of columns
// that are not in batches. Boundaries of Discretization depend on it.
const rowsOfAdapt = 32

// Adapt computes what the features learn from data: vocabularies, bin boundaries,
// means and variances (Keras: adapt). Features whose state is given keep it. The
// columns have all rows of the data; AdaptSeq takes batches, and data.AdaptColumns
// a dataset. Adapt builds the layer if it has weights. Call it outside Functions
// and before the layer is used.
func (s *FeatureSpace) Adapt(in Columns) error {
	return s.AdaptSeq(func(yield func(Columns, error) bool) {
		p, err := s.prepare()
		var columns []column
		if err == nil {
			columns, err = p.read(in)
		}
		if err != nil {
			yield(nil, err)
			return
		}
		n := columns[0].len()
		for from := 0; from < n; from += rowsOfAdapt {
			to := min(n, from+rowsOfAdapt)
			batch := Columns{}
			for i, f := range p.features {
				switch c := columns[i]; f.column {
				case stringColumn:
					batch[f.name] = c.strings[from:to]
				case integerColumn:
					batch[f.name] = c.integers[from:to]
				default:
					batch[f.name] = c.floats[from:to]
				}
			}
			if !yield(batch, nil) {
				return
			}
		}
	})
}

// AdaptSeq is Adapt of batches that come one after the other and need not be in
// memory together. When one is an error, the layer is as it was.
func (s *FeatureSpace) AdaptSeq(batches iter.Seq2[Columns, error]) (err error) {
	defer tensor.Catch(&err)
	if err := s.adaptSeq(batches); err != nil {
		return fmt.Errorf("layer %s: Adapt: %w", layerLabel(s), err)
	}
	return nil
}

func (s *FeatureSpace) adaptSeq(batches iter.Seq2[Columns, error]) error {
	p, err := s.prepare()
	if err != nil {
		return err
	}
	if s.Built() {
		return errors.New("the layer is in use, want Adapt before that")
	}
	learners := make([]*learner, len(p.features))
	for i, f := range p.features {
		if learners[i], err = learnerOf(f.layer); err != nil {
			return fmt.Errorf("feature %q: %w", f.name, err)
		}
	}
	rows := 0
	for batch, err := range batches {
		if err != nil {
			return err
		}
		columns, err := p.read(batch)
		if err != nil {
			return err
		}
		for i, l := range learners {
			if l == nil {
				continue
			}
			if err := l.add(columns[i], rows); err != nil {
				return fmt.Errorf("feature %q: %w", p.features[i].name, err)
			}
		}
		rows += columns[0].len()
	}
	if rows == 0 {
		return errors.New("got no rows, want some")
	}
	var sets, weights []func() error
	for i, l := range learners {
		if l == nil {
			continue
		}
		set, err := l.finish()
		if err != nil {
			return fmt.Errorf("feature %q: %w", p.features[i].name, err)
		}
		if _, ok := p.features[i].layer.(*Normalization); ok {
			weights = append(weights, set)
		} else {
			sets = append(sets, set)
		}
	}
	if err := each(sets); err != nil || len(weights) == 0 {
		return err
	}
	if err := s.EnsureBuilt(); err != nil {
		return err
	}
	if err := each(weights); err != nil {
		return err
	}
	return s.Adapted() // remembers it: Encode may run while a model trains
}

func each(all []func() error) error {
	for _, f := range all {
		if err := f(); err != nil {
			return err
		}
	}
	return nil
}

// EnsureBuilt builds the layer for batches of any size if it is not built. Adapt
// and models do so themselves.
func (s *FeatureSpace) EnsureBuilt() (err error) {
	if s.Built() {
		return nil
	}
	defer tensor.Catch(&err)
	types, err := s.InputTypes()
	if err != nil {
		return err
	}
	if s.LayerName() == "" {
		defer layers.ClearName(s)
	}
	in := make([]*tensor.Tensor, len(types))
	for i, t := range types {
		in[i] = tensor.Placeholder(t.DType, t.Shape...)
	}
	x := in[0]
	if len(in) > 1 {
		x = tensor.Tuple(in...)
	}
	return layers.Apply(s, layers.Pass{}, x).Err()
}

// learner computes the state of one layer from a column. add takes rows of it,
// from row number first on, and finish returns a function that sets the state.
type learner struct {
	add    func(c column, first int) error
	finish func() (set func() error, err error)
}

// learnerOf returns the learner of a layer, or nil if it learns nothing.
func learnerOf(l layers.Layer) (*learner, error) {
	switch l := l.(type) {
	case *Normalization:
		if l.Mean == nil && l.Variance == nil {
			return learnMoments(l), nil
		}
	case *Discretization:
		if l.NumBins > 0 {
			return learnBins(l)
		}
	case *StringLookup:
		if len(l.Vocabulary) == 0 || l.adapted {
			return learnTokens(l.lookup(), func(c column) [][]string { return tokensOf(c.strings) }, l.set)
		}
	case *IntegerLookup:
		if len(l.Vocabulary) == 0 || l.adapted {
			return learnTokens(l.lookup(), func(c column) [][]int64 { return tokensOf(c.integers) }, l.set)
		}
	case *TextVectorization:
		inner, err := l.lookup()
		if err != nil {
			return nil, err
		}
		if len(l.Vocabulary) == 0 || inner.adapted {
			return learnTexts(l, inner)
		}
	}
	return nil, nil
}

// checkNumbers refuses NaN.
func checkNumbers(c column, first int) error {
	for i, v := range c.floats {
		if v != v {
			return fmt.Errorf("row %d is NaN, want numbers; give missing values one, or leave such rows out", first+i)
		}
	}
	return nil
}

func learnMoments(l *Normalization) *learner {
	var m momentsOf
	return &learner{
		add: func(c column, first int) error {
			m.add(converted[float64](c.floats), layers.Shape{c.len(), 1}, []int{1})
			return checkNumbers(c, first)
		},
		finish: func() (func() error, error) { return func() error { return l.setMoments(m) }, nil },
	}
}

func learnBins(l *Discretization) (*learner, error) {
	q, err := l.quantiles()
	if err != nil {
		return nil, err
	}
	return &learner{
		add: func(c column, first int) error {
			if err := checkNumbers(c, first); err != nil {
				return err
			}
			q.add(converted[float64](c.floats), *layers.Defaults(*l).Epsilon)
			return nil
		},
		finish: func() (func() error, error) {
			return func() error { return l.setBins(q) }, q.check()
		},
	}, nil
}

// tokensOf makes a document of each token, as Adapt does of one axis.
func tokensOf[K any](tokens []K) [][]K {
	all := make([][]K, len(tokens))
	for i := range tokens {
		all[i] = tokens[i : i+1]
	}
	return all
}

// learnTokens learns the vocabulary of a lookup.
func learnTokens[K string | int64](l lookup[K], documents func(column) [][]K, set func(words []K, idf []float64)) (*learner, error) {
	if err := l.check(); err != nil {
		return nil, err
	}
	counted := newCounts[K]()
	return &learner{
		add: func(c column, _ int) error {
			for _, d := range documents(c) {
				counted.add(d)
			}
			return nil
		},
		finish: func() (func() error, error) {
			words, idf, err := counted.vocabulary(l)
			return func() error { set(words, idf); return nil }, err
		},
	}, nil
}

func learnTexts(t *TextVectorization, inner *StringLookup) (*learner, error) {
	var wrong error
	l, err := learnTokens(inner.lookup(), func(c column) [][]string {
		rows, err := t.split(StringsOf(c.strings...))
		if err != nil && wrong == nil {
			wrong = err
		}
		return rows
	}, func(words []string, idf []float64) {
		inner.set(words, idf)
		t.Vocabulary, t.IDFWeights = words, idf
	})
	if err != nil {
		return nil, err
	}
	finish := l.finish
	l.finish = func() (func() error, error) {
		set, err := finish()
		return set, errors.Join(wrong, err)
	}
	return l, nil
}

// Adapted returns an error if features need Adapt and neither Adapt nor a file has
// set their state.
func (s *FeatureSpace) Adapted() error {
	p, err := s.prepare()
	if err != nil {
		return err
	}
	spaces.Lock()
	defer spaces.Unlock()
	if s.learned {
		return nil
	}
	for _, f := range p.features {
		if err := adapted(f.layer); err != nil {
			return fmt.Errorf("feature %q: %w", f.name, err)
		}
	}
	s.learned = true
	return nil
}

// adapted is an error if a layer needs Adapt.
func adapted(l layers.Layer) error {
	done := true
	switch l := l.(type) {
	case *Normalization:
		done = l.Mean != nil
		if !done && l.Built() {
			var err error
			if done, err = l.hasMoments(); err != nil {
				return err
			}
		}
	case *Discretization:
		done = len(l.BinBoundaries) > 0
	case *StringLookup:
		done = len(l.Vocabulary) > 0
	case *IntegerLookup:
		done = len(l.Vocabulary) > 0
	case *TextVectorization:
		done = len(l.Vocabulary) > 0
	}
	if !done {
		return fmt.Errorf("the layer %s has learned nothing, want Adapt before the space is used", layers.Class(l))
	}
	return nil
}
