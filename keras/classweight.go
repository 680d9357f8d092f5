package keras

import (
	"context"
	"fmt"

	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/keras/internal/pipeline"
)

// weighted gives the samples of a dataset of batches the weights of their
// classes.
func weighted(d Dataset, byClass map[int]float64) Dataset {
	p, ok := d.(*Pipeline)
	if !ok {
		source := epochsOf(context.Background(), d, FitConfig{})
		p = FromGenerator(d.Batches, true)
		p.n = source.steps
		p.open = source.at
	}
	q := p.derive()
	q.open = pipeline.MapAt("ClassWeight", p.elements(), func(_ context.Context, _, _ int, b Batch) (_ Batch, err error) {
		b.Weight, err = classWeights(b, byClass)
		return b, err
	})
	return q
}

// weighArrays weights samples in memory once rather than in each epoch.
func (p *Pipeline) weighArrays(byClass map[int]float64) (*Pipeline, error) {
	a := p.arrays.cut(0, p.arrays.n)
	if a.y.count != 1 || a.weight.count > 0 {
		_, err := classWeights(a.pickWhole(), byClass)
		return nil, err
	}
	w, err := classWeights(a.pickWhole(), byClass)
	if err != nil {
		return nil, err
	}
	if a.lo != 0 { // all columns start at the same row
		padded := make([]float32, a.lo+a.n)
		v, err := w.Values()
		if err != nil {
			return nil, err
		}
		copy(padded[a.lo:], v)
		w = tensor.New(padded, len(padded))
	}
	b := &arrays{n: -1, lo: a.lo, columns: append([]column(nil), a.columns...), x: a.x, y: a.y}
	b.weight = b.add("Weight", w)
	b.n = a.n
	q := p.derive()
	q.arrays, q.shuffle = b, p.shuffle
	return q, nil
}

// pickWhole returns all rows as one batch.
func (a *arrays) pickWhole() Batch {
	columns := make([]*Tensor, len(a.columns))
	for i, c := range a.columns {
		t := c.row
		t.Shape = append(Shape{a.n}, t.Shape...)
		size := c.row.Bytes()
		if i == a.y.first && a.y.count > 0 || i >= a.weight.first {
			columns[i] = tensor.FromBytes(t, c.data[a.lo*size:][:a.n*size])
		} else {
			columns[i] = tensor.Placeholder(t.DType, t.Shape...) // not read
		}
	}
	return a.pick(columns)
}

// classWeights looks up the weight of each sample's class.
func classWeights(b Batch, byClass map[int]float64) (*Tensor, error) {
	switch {
	case b.Weight != nil:
		return nil, fmt.Errorf("both ClassWeight and sample weights are given; use one")
	case b.Y == nil || b.Y.IsTuple():
		return nil, fmt.Errorf("ClassWeight wants one target, got %v", typeText(b.Y))
	}
	y := b.Y
	if y.Rank() > 2 || y.Rank() == 0 {
		return nil, fmt.Errorf("ClassWeight wants targets of one class per sample, got %v", y.Type())
	}
	if y.Rank() == 2 {
		if y.Dim(1) == 1 {
			y = y.Squeeze(1)
		} else {
			y = y.ArgMax(1)
		}
	}
	classes, err := y.Int64s()
	if err != nil {
		return nil, err
	}
	w := make([]float32, len(classes))
	for i, c := range classes {
		w[i] = 1
		if v, ok := byClass[int(c)]; ok {
			w[i] = float32(v)
		}
	}
	return tensor.New(w, len(w)), nil
}
