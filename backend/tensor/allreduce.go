package tensor

import (
	"cmp"
	"slices"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// AllReduceOptions are the options of [AllReduce].
type AllReduceOptions struct {
	Group       int         // number of the group's driver.Communicator
	Rank, Ranks int         // of this process
	Shards      int         // that the sum is taken over, at least Ranks
	Wire        dtype.DType // 16-bit type to send float32 as; default: float32
	BucketBytes int         // about so many bytes are exchanged at a time; the first exchange is small
	Scale       float64     // factor of the sums
	Native      bool        // the group's engine adds up, in its own order; Shards is Ranks
}

// firstBucket is the most bytes of the first exchange, which is to begin early: that of
// PyTorch's DistributedDataParallel.
const firstBucket = 1 << 20

// AllReduce records the sums of tensors over the shards of all ranks, times Scale.
// partials[i] is one of the partial sums of this rank, of all tensors: of the shards of
// block i of op.Partials. Sums are in float32, or float64 for float64, with the same
// bits for any number of ranks, unless they are sent in 16 bits. The tensors of the
// first partial sum have the order in which they are recorded on all ranks; exchanges
// begin in this order while the rest is computed.
//
// Gradients do not flow through the sums. They have the tags of their arguments.
func AllReduce(partials [][]*Tensor, o AllReduceOptions) []*Tensor {
	const where = "AllReduce"
	if n := len(op.Partials(o.Rank, o.Ranks, o.Shards)); len(partials) != n {
		Fail(where, "got %d partial sums, want %d of rank %d of %d and %d shards", len(partials), n, o.Rank, o.Ranks, o.Shards)
	}
	if eager() && o.Ranks > 1 {
		Fail(where, "MEZZO_DEBUG=eager runs single operations, which cannot exchange gradients with other ranks")
	}
	sums := make([]*Tensor, len(partials[0]))
	wide := make([][]*Tensor, len(partials))
	for p := range partials {
		for i, t := range partials[p] {
			if t == nil || t.IsTuple() || !t.DType().IsFloat() {
				Fail(where, "tensor %d of partial sum %d is no float tensor", i, p)
			}
			wide[p] = append(wide[p], t.Widen().Cast(t.DType().Accumulator()))
		}
	}
	if o.Ranks == 1 {
		for i, t := range wide[0] {
			if o.Scale != 1 {
				t = t.MulScalar(o.Scale)
			}
			sums[i] = t.StopGradient()
		}
		return sums
	}
	tr := current()
	if tr == nil {
		Fail(where, "gradients are exchanged with other ranks outside a Function; record it in a keras.Function")
	}
	most := firstBucket
	for first := 0; first < len(sums); {
		end, bytes, d := first, 0, wide[0][first].DType()
		for end < len(sums) && wide[0][end].DType() == d && (end == first || bytes+wide[0][end].typ.Bytes() <= most) {
			bytes += wide[0][end].typ.Bytes()
			end++
		}
		copy(sums[first:], tr.exchange(wide, first, end, o))
		first, most = end, max(o.BucketBytes, firstBucket)
	}
	return sums
}

// exchange records the sums of tensors first to end-1.
func (tr *trace) exchange(partials [][]*Tensor, first, end int, o AllReduceOptions) (sums []*Tensor) {
	a := &op.AllReduce{Group: o.Group, Rank: o.Rank, Ranks: o.Ranks, Shards: o.Shards, Bucket: tr.exchanges,
		Wire: partials[0][first].DType(), Scale: o.Scale, Native: o.Native}
	if a.Wire == dtype.Float32 && o.Wire != dtype.Invalid {
		a.Wire = o.Wire
	}
	tr.exchanges++
	var args []*Tensor
	for _, p := range partials {
		args = append(args, p[first:end]...)
	}
	for _, t := range partials[0][first:end] {
		a.Shapes = append(a.Shapes, t.Shape())
	}
	if tr.exchanged != nil { // ranks exchange in one order
		args = append(args, tr.exchanged)
	}
	attr := op.Attr{AllReduce: a}
	tr.exchanged = Record(op.AllReduceStart, attr, args...)
	all := Record(op.AllReduceDone, attr, tr.exchanged)
	for _, s := range a.Sections() {
		t := all.part(s)
		t.stop = true
		sums = append(sums, t)
	}
	return sums
}

// RecordedOrder returns the indices of tensors in the order in which they were recorded:
// of gradients, that of the backward pass.
func RecordedOrder(ts []*Tensor) []int {
	order := make([]int, len(ts))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int { return cmp.Compare(ts[i].seq, ts[j].seq) })
	return order
}

// ShardUpdate is a value that a shard's recording has assigned to a variable.
type ShardUpdate struct {
	Variable *Variable
	Value    *Tensor
}

// Shard records f as the computation of one of several shards of a batch: index, from 0,
// of of. Random states that layers advance in it differ from shard to shard
// ([ShardIndex]). All shards begin with the same variables: assignments of f are taken
// back and returned, in the order of the first ones. The caller assigns what follows
// from those of all shards.
func Shard(index, of int, f func()) (updates []ShardUpdate) {
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
	tr.assigned = nil
	tr.shard, tr.shards = index, of
	defer func() {
		tr.shard, tr.shards = 0, 0
		inner := tr.assigned
		tr.assigned = outer
		for _, v := range inner {
			updates = append(updates, ShardUpdate{v, v.bound})
			old, known := before[v]
			if !known { // it stays in the list of variables that the recording knows
				old = v.leaf
				tr.assigned = append(tr.assigned, v)
			}
			v.bound, v.latest = old, nil
		}
	}()
	f()
	return updates
}

// ShardIndex returns which shard of a batch the calling goroutine is recording, and how
// many there are: 0 and 1 outside of [Shard].
func ShardIndex() (index, of int) {
	if tr := current(); tr != nil && tr.shards > 0 {
		return tr.shard, tr.shards
	}
	return 0, 1
}
