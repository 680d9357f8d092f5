package metrics

import (
	"math"
	"slices"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/backend/tensor/lossshape"
)

// cutoffs are thresholds in ascending order. A prediction is positive at those
// that it exceeds.
type cutoffs struct {
	at   []float64
	even bool // i/(n-1): found by arithmetic, after limiting predictions to 0 … 1
	open bool // the first is below 0: predictions of 0 exceed it
}

// thresholds are what a field Thresholds holds, or else the one default.
func thresholds(field []float64, other float64) []float64 {
	if len(field) == 0 {
		return []float64{other}
	}
	return field
}

// newCutoffs sorts thresholds.
func newCutoffs(given []float64) cutoffs {
	at := slices.Sorted(slices.Values(given))
	return cutoffs{at: at, even: isEven(at)}
}

// isEven tells whether thresholds are 0 … 1 in even steps, within the
// tolerance of Keras, which then rounds the same way.
func isEven(at []float64) bool {
	for i, v := range at {
		want := float64(i) / float64(len(at)-1)
		if math.Abs(v-want) > 1e-7+float64(1e-5*want) {
			return false
		}
	}
	return len(at) >= 3
}

// checkRange panics unless thresholds are from 0 to 1.
func checkRange(class string, given []float64) {
	for _, t := range given {
		if !(t >= 0 && t <= 1) {
			tensor.Fail(class, "got threshold %v, want numbers from 0 to 1", t)
		}
	}
}

// exceeded counts the thresholds below each prediction, as int32; none for NaN.
func (c cutoffs) exceeded(p *tensor.Tensor) *tensor.Tensor {
	if !c.even {
		return tensor.SumAs(p.ExpandDims(-1).Greater(tensor.New(c.at, len(c.at)).Cast(p.DType())), dtype.Int32, -1)
	}
	n := p.Clip(0, 1).MulScalar(float64(len(c.at) - 1)).Ceil()
	if c.open {
		n = n.MaximumScalar(1)
	}
	return tensor.Where(p.Equal(p), n, tensor.Scalar(p.DType(), 0)).Cast(dtype.Int32)
}

// decision says what of targets and predictions is counted, and where
// predictions become positive.
type decision struct {
	cutoffs
	topK         int       // if not 0: the others of the last axis are negative
	classID      *int      // of the last axis; nil for all
	perLabel     bool      // count each element of the last axis for itself
	labelWeights []float64 // of the last axis
}

// notInTop replaces predictions that are not among the best; it is the default
// threshold for those that are.
const notInTop = -1e10

// confusion is the state of metrics that count right and wrong answers at
// thresholds: the weight of true and of false targets, by how many thresholds
// their predictions exceed. From that follow the counts at all of them.
//
// The variable is float64 [2 thresholds+1], true targets first, or
// [labels 2 thresholds+1].
type confusion struct{ histogram *tensor.Variable }

func (c *confusion) variables(m named, thresholds int, labels ...int) []*tensor.Variable {
	if c.histogram == nil {
		shape := append(slices.Clone(labels), 2, thresholds+1)
		c.histogram = tensor.NewState(m.MetricName()+"/confusion", dtype.Float64, shape, nil)
	}
	return []*tensor.Variable{c.histogram}
}

// update records that a batch is counted.
func (c *confusion) update(m named, class string, d decision, yTrue, yPred, weight *tensor.Tensor) {
	check(class, yTrue, yPred)
	since := tensor.SequencePoint()
	t, p := lossshape.Floats(class, yTrue, yPred)
	if weight != nil {
		weight = spread(class, weight, p.Shape())
	}
	if d.labelWeights != nil {
		if p.Rank() == 0 || p.Dim(-1) != len(d.labelWeights) {
			tensor.Fail(class, "got %d LabelWeights for predictions %v, want one for each label", len(d.labelWeights), yPred.Type())
		}
		w := tensor.New(d.labelWeights, len(d.labelWeights)).BroadcastTo(p.Shape()...)
		if weight != nil {
			w = w.Mul(weight)
		}
		weight = w
	}
	if d.topK != 0 {
		p = best(class, p, d.topK)
	}
	if id := d.classID; id != nil {
		if p.Rank() < 2 || *id < 0 || *id >= p.Dim(-1) {
			tensor.Fail(class, "got ClassID %d for predictions %v, want one of their classes", *id, yPred.Type())
		}
		t, p = t.Slice(-1, *id, *id+1), p.Slice(-1, *id, *id+1)
		if weight != nil {
			weight = weight.Slice(-1, *id, *id+1)
		}
	}
	row := len(d.at) + 1
	index := tensor.Where(t.NotEqual(tensor.Scalar(t.DType(), 0)), tensor.Scalar(dtype.Int32, 0), tensor.Scalar(dtype.Int32, float64(row)))
	index = index.Add(d.exceeded(p))
	if d.perLabel {
		if p.Rank() != 2 {
			tensor.Fail(class, "got predictions %v, want [batch labels] for MultiLabel", yPred.Type())
		}
		index = index.Add(tensor.Iota(dtype.Int32, p.Dim(1)).MulScalar(float64(2 * row)))
		c.variables(m, len(d.at), p.Dim(1))
	} else {
		c.variables(m, len(d.at))
	}
	want := c.histogram.Shape()
	if d.perLabel && want[0] != p.Dim(1) {
		tensor.Fail(class, "got predictions %v, want %d labels as before", yPred.Type(), want[0])
	}
	if weight == nil {
		weight = tensor.Ones(dtype.Float64, p.Shape()...)
	}
	n := p.Shape().Size()
	added := weight.Reshape(n).ScatterAdd(index.Reshape(n), want.Size()).Reshape(want...)
	addTo(m, c.histogram, added)
	tensor.Label("metrics/"+m.MetricName(), since, c.histogram.Value())
}

// best replaces all but the k largest predictions of the last axis; the first
// ones where several are equal.
func best(class string, p *tensor.Tensor, k int) *tensor.Tensor {
	if p.Rank() == 0 || k < 0 || k > p.Dim(-1) {
		tensor.Fail(class, "got TopK %d for predictions %v, want at most as many as they are", k, p.Type())
	}
	at := tensor.Iota(dtype.Int32, p.Dim(-1))
	rest, out := p, tensor.Full(p.DType(), notInTop, p.Shape()...)
	for range k {
		next := rest.ArgMax(-1).ExpandDims(-1).Equal(at)
		out = tensor.Where(next, p, out)
		rest = tensor.Where(next, tensor.Scalar(p.DType(), math.Inf(-1)), rest)
	}
	return out
}

// counts are the four numbers of a decision at a threshold.
type counts struct{ tp, fp, tn, fn float64 }

func (c counts) precision() float64   { return ratioOf(c.tp, c.tp+c.fp) }
func (c counts) recall() float64      { return ratioOf(c.tp, c.tp+c.fn) }
func (c counts) specificity() float64 { return ratioOf(c.tn, c.tn+c.fp) }

// ratioOf is a/b, 0 where b is 0.
func ratioOf(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}

// at reads the counts at each of n thresholds in ascending order, for each
// label.
func (c *confusion) at(n int) ([][]counts, error) {
	if c.histogram == nil {
		return [][]counts{make([]counts, n)}, unread()
	}
	data, err := c.histogram.Float64s()
	if err != nil {
		return nil, err
	}
	var all [][]counts
	for row := range slices.Chunk(data, 2*(n+1)) {
		var right, wrong float64 // of the positives
		at := make([]counts, n)
		for i := n - 1; i >= 0; i-- {
			right += row[i+1]
			wrong += row[n+1+i+1]
			at[i].tp, at[i].fp = right, wrong
		}
		right, wrong = 0, 0 // of the negatives
		for i := range n {
			wrong += row[i]
			right += row[n+1+i]
			at[i].fn, at[i].tn = wrong, right
		}
		all = append(all, at)
	}
	return all, nil
}

// each reads f of the counts at thresholds, in the order that they are given.
func (c *confusion) each(given []float64, f func(counts) float64) ([]float64, error) {
	sorted := newCutoffs(given).at
	all, err := c.at(len(given))
	if err != nil {
		return nil, err
	}
	out := make([]float64, len(given))
	for i, t := range given {
		rank, _ := slices.BinarySearch(sorted, t)
		out[i] = f(all[0][rank])
	}
	return out, nil
}

// Reset implements Accumulator.
func (c *confusion) Reset() error {
	if c.histogram == nil {
		return nil
	}
	return c.histogram.Reset()
}

// mean is Result for the Results of a Vector; 0 for none.
func mean(results []float64, err error) (float64, error) {
	var sum float64
	for _, r := range results {
		sum += r
	}
	return ratioOf(sum, float64(len(results))), err
}
