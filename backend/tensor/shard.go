package tensor

import (
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// ShardUpdate is a value that a shard's recording has assigned to a variable.
type ShardUpdate struct {
	Variable *Variable
	Value    *Tensor
}

// PendingMean is a call of ShardMean in a shard's recording.
type PendingMean struct {
	Value *Tensor // of the shard: its argument
	mean  *Tensor // its result, which is not known yet
}

// Resolve makes mean, the mean of the values of all shards, what ShardMean has returned.
func (m PendingMean) Resolve(mean *Tensor) {
	if !mean.typ.Equal(m.mean.typ) {
		Fail("ShardMean", "the mean is %v, want %v", mean.typ, m.mean.typ)
	}
	m.mean.args = []*Tensor{mean}
	mean.path = m.mean.path
}

// ShardRecording is what Shard has recorded apart from the results of its function.
type ShardRecording struct {
	Updates []ShardUpdate // assignments, which are taken back, in the order of the first ones
	Means   []PendingMean // calls of ShardMean, in order
}

// Shard records f as the computation of one of several shards of a batch: index, from 0,
// of of. Random states that layers advance in it differ from shard to shard
// ([ShardIndex]). All shards begin with the same variables: assignments of f are taken
// back and returned. The caller assigns what follows from those of all shards, and
// resolves the means.
//
// The loss of the batch is the mean over the shards of their losses times weight: the
// rows of the shard by those of an average one.
func Shard(index, of int, weight float64, f func()) (r ShardRecording) {
	tr := current()
	if tr == nil {
		Fail("Shard", "it is called outside a Function")
	}
	if tr.shards != 0 {
		Fail("Shard", "it is called in another one")
	}
	outer := tr.assigned
	before := map[*Variable]*Tensor{}
	for _, v := range outer {
		before[v] = v.bound
	}
	tr.assigned, tr.means = nil, nil
	tr.shard, tr.shards, tr.weight = index, of, weight
	defer func() {
		tr.shard, tr.shards = 0, 0
		inner := tr.assigned
		r.Means = tr.means
		tr.assigned, tr.means = outer, nil
		for _, v := range inner {
			r.Updates = append(r.Updates, ShardUpdate{v, v.bound})
			old, known := before[v]
			if !known { // it stays in the list of variables that the recording knows
				old = v.leaf
				tr.assigned = append(tr.assigned, v)
			}
			v.bound, v.latest = old, nil
		}
	}()
	f()
	return r
}

// ShardIndex returns which shard of a batch the calling goroutine is recording, and how
// many there are: 0 and 1 outside of [Shard].
func ShardIndex() (index, of int) {
	if tr := current(); tr != nil && tr.shards > 0 {
		return tr.shard, tr.shards
	}
	return 0, 1
}

// ShardMean returns the mean of t over the shards of a batch, which all call it in the
// same order: a statistic of the whole batch in the forward pass of a shard. Shards
// without rows count as 0. Outside of [Shard] the batch is the only shard, and ShardMean
// returns t. Its gradient is a ShardMean too: the loss of each shard depends on the
// values of all.
//
// Shapes: t → the same, in float32 or float64.
func (t *Tensor) ShardMean() *Tensor {
	const where = "ShardMean"
	if t.err != nil {
		return t
	}
	if t.parts != nil || t.typ.DType != dtype.Float32 && t.typ.DType != dtype.Float64 {
		Fail(where, "got %v, want float32 or float64", t.describe())
	}
	tr := current()
	if tr == nil || tr.shards < 2 {
		return t
	}
	if eager() {
		Fail(where, "MEZZO_DEBUG=eager computes the shards of a batch one after the other, so that none can use a mean over all")
	}
	// An Identity without its operand, which Resolve sets when all shards are recorded:
	// until then passes on the recording take it for an input.
	mean := t.record(op.Identity, op.Attr{}, t)
	mean.args = nil
	tr.means = append(tr.means, PendingMean{t, mean})
	weight := tr.weight
	if weight == 0 { // the gradients of the shard count 0, whatever they are
		weight = 1
	}
	return mean.WithGradient(func(g *Tensor) []*Tensor {
		// Of the batch's loss, a mean of weighted ones, to that of this shard alone.
		return []*Tensor{g.MulScalar(weight).ShardMean().MulScalar(1 / weight)}
	}, t)
}

// UnsharedStatistics notes that the layer with a path has computed statistics of a whole
// batch outside of Shard: a recording in which ranks then add up gradients is refused.
func UnsharedStatistics(path string) {
	if tr := current(); tr != nil && tr.shards < 2 {
		tr.unshared = path
	}
}
