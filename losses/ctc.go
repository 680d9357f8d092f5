package losses

import (
	"cmp"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/portablemath"
	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/backend/tensor/lossshape"
)

// CTC is connectionist temporal classification: -ln of the probability that
// the predictions, a distribution over the classes for each step, spell the
// labels, over all alignments of labels and steps (Graves et al. 2006). Class
// 0 is the blank between labels. Default name: ctc.
//
// Labels are padded with 0 at the end. A sample whose labels do not fit into
// its steps has a loss above 700 instead of infinity, as in Keras. Steps that
// the mask of the predictions hides are skipped, so sequences may have
// different lengths; in Keras all have the length of the batch.
//
// The recursion over the steps is a loop of the graph, so the graph's size
// does not depend on their number.
//
// Shapes: yTrue [batch labels], integers from 0 to classes-1; yPred [batch
// steps classes], logits.
type CTC struct {
	Reduction string // one of Reductions; default: sum_over_batch_size
	Name      string
}

// LossName implements Weighted.
func (l *CTC) LossName() string { return cmp.Or(l.Name, "ctc") }

// Call implements Loss.
func (l *CTC) Call(yTrue, yPred *tensor.Tensor) *tensor.Tensor {
	return l.CallWeighted(yTrue, yPred, nil)
}

// CallWeighted implements Weighted.
func (l *CTC) CallWeighted(yTrue, yPred, sampleWeight *tensor.Tensor) *tensor.Tensor {
	c := plain("CTC", l.LossName(), l.Reduction, ctc)
	c.readsMask = true
	return c.call(yTrue, yPred, sampleWeight)
}

const (
	// never is the logarithm of the probability of what cannot be. It is
	// finite so that sums and differences are, and so low that no sum of
	// logarithms of float32 probabilities comes near.
	never = -1e30
	// tiny is TensorFlow's probability of spelling what does not fit.
	tiny = 1e-307
)

// ctc computes the forward variables α of the labels with blanks around them,
// in logarithms. State 2i+1 is label i, the even ones are blanks.
func ctc(class string, yTrue, yPred *tensor.Tensor) *tensor.Tensor {
	switch {
	case yPred.Rank() != 3 || yPred.Dim(1) == 0:
		tensor.Fail(class, "got predictions %v, want logits [batch steps classes]", yPred.Type())
	case yTrue.Rank() != 2 || yTrue.Dim(1) == 0 || yTrue.Dim(0) != yPred.Dim(0):
		tensor.Fail(class, "got labels %v for predictions %v, want [batch labels], padded with 0", yTrue.Type(), yPred.Type())
	}
	mask := yPred.Mask()
	if mask != nil && mask.Rank() != 2 {
		tensor.Fail(class, "got a mask %v, want [batch steps]", mask.Type())
	}
	batch, steps, classes := yPred.Dim(0), yPred.Dim(1), yPred.Dim(2)
	count, states := yTrue.Dim(1), 2*yTrue.Dim(1)+1
	labels := lossshape.Indices(yTrue)
	length := tensor.SumAs(labels.NotEqual(tensor.Scalar(labels.DType(), 0)), dtype.Int32, -1)
	labels = tensor.Iota(dtype.Int64, classes).Gather(labels) // the same numbers, or an error if out of range

	blank := tensor.Zeros(dtype.Int64, batch, count)
	symbols := withBlanks(labels, blank)
	// A blank may be skipped between labels that differ.
	differ := tensor.Zeros(dtype.Int64, batch, 1)
	if count > 1 {
		differ = tensor.Concat(1, differ, labels.Slice(1, 1, -1).NotEqual(labels.Slice(1, 0, count-1)).Cast(dtype.Int64))
	}
	mayskip := withBlanks(differ, blank).NotEqual(tensor.Scalar(dtype.Int64, 0))

	logp := lossshape.Float(yPred).LogSoftmax(-1)
	d := logp.DType()
	off := tensor.Scalar(d, never)
	// Logits of all states at all steps, looked up in one long list.
	row := tensor.Iota(dtype.Int64, batch*steps).Reshape(batch, steps, 1).MulScalar(float64(classes))
	emit := logp.Reshape(batch * steps * classes).Gather(row.Add(symbols.ExpandDims(1)))
	before := func(a *tensor.Tensor, n int) *tensor.Tensor {
		return a.Slice(1, 0, states-n).Pad([]int{0, n}, []int{0, 0}, never)
	}

	state := tensor.Iota(dtype.Int32, states)
	alpha := tensor.Where(state.LessScalar(1), tensor.Scalar(d, 0), off).BroadcastTo(batch, states) // before the first step
	total := tensor.Zeros(d, batch)
	sequences := []*tensor.Tensor{emit.Transpose(1, 0, 2)}
	if mask != nil {
		sequences = append(sequences, mask.Transpose(1, 0).ExpandDims(-1))
	}
	_, ends := tensor.Loop(sequences, []*tensor.Tensor{alpha, total}, false, func(x, states []*tensor.Tensor) (y, next []*tensor.Tensor) {
		// The largest is 0 at each step, so that float32 holds the differences.
		alpha, most := shift(states[0])
		one, two := before(alpha, 1), tensor.Where(mayskip, before(alpha, 2), off)
		m := alpha.Maximum(one).Maximum(two).StopGradient()
		sum := alpha.Sub(m).Exp().Add(one.Sub(m).Exp()).Add(two.Sub(m).Exp())
		after := sum.Log().Add(m).Add(x[0])
		if mask != nil {
			after = tensor.Where(x[1], after, alpha)
		}
		return nil, []*tensor.Tensor{after, states[1].Add(most)}
	})
	alpha, total = ends[0], ends[1]
	last := length.MulScalar(2).ExpandDims(-1)
	final := state.Equal(last).Or(state.Equal(last.AddScalar(-1)))
	spelled := tensor.Where(final, alpha, off)
	fits := spelled.Max(-1).GreaterScalar(never / 2)
	alpha = tensor.Where(fits.ExpandDims(-1), spelled, alpha.AddScalar(portablemath.Log(tiny)))
	alpha, most := shift(alpha)
	return alpha.Exp().Sum(-1).Log().Add(total).Add(most).Neg()
}

// shift subtracts the maximum of each row and returns it; its gradients would
// cancel.
func shift(a *tensor.Tensor) (shifted, by *tensor.Tensor) {
	by = a.MaxKeep(-1).StopGradient()
	return a.Sub(by), by.Squeeze(-1)
}

// withBlanks returns blank, x₀, blank, x₁ … blank for each row.
//
// Shapes: [batch n] → [batch 2n+1].
func withBlanks(x, blank *tensor.Tensor) *tensor.Tensor {
	pairs := tensor.Concat(2, x.ExpandDims(-1), blank.ExpandDims(-1)).Reshape(x.Dim(0), 2*x.Dim(1))
	return tensor.Concat(1, blank.Slice(1, 0, 1), pairs)
}
