package tensor

import (
	"cmp"
	"errors"
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
	Scatter     bool        // the sums are this rank's parts of the tensors, vectors of op.PartOf elements, but of those that are Alone
	Alone       []bool      // tensors that others wait for: each is exchanged by itself, as soon as it is computed; default: none
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
			if o.Scatter && (len(o.Alone) == 0 || !o.Alone[i]) {
				t = t.Reshape(t.typ.Shape.Size())
			}
			sums[i] = t.StopGradient()
		}
		return sums
	}
	tr := current()
	if tr == nil {
		Fail(where, "gradients are exchanged with other ranks outside a Function; record it in a keras.Function")
	}
	if tr.unshared != "" {
		panic(&Error{Path: tr.unshared, Op: where, Err: errors.New("its statistics are those of one rank, but Synchronized is set; compute the gradients in DataParallel.Replicas, as Fit does")})
	}
	var bucket []int
	bytes, most := 0, firstBucket
	exchange := func(at ...int) {
		for i, t := range tr.exchange(wide, at, o) {
			sums[at[i]] = t
		}
	}
	for i, t := range wide[0] {
		if len(o.Alone) > 0 && o.Alone[i] {
			exchange(i)
			continue
		}
		if len(bucket) > 0 && (t.DType() != wide[0][bucket[0]].DType() || bytes+t.typ.Bytes() > most) {
			exchange(bucket...)
			bucket, bytes, most = nil, 0, max(o.BucketBytes, firstBucket)
		}
		bucket = append(bucket, i)
		bytes += t.typ.Bytes()
	}
	if len(bucket) > 0 {
		exchange(bucket...)
	}
	return sums
}

// exchange records the sums of the tensors at some indices.
func (tr *trace) exchange(partials [][]*Tensor, at []int, o AllReduceOptions) (sums []*Tensor) {
	a := &op.AllReduce{Group: o.Group, Rank: o.Rank, Ranks: o.Ranks, Shards: o.Shards, Bucket: tr.exchanges,
		Wire: partials[0][at[0]].DType(), Scale: o.Scale, Scatter: o.Scatter && (len(o.Alone) == 0 || !o.Alone[at[0]])}
	if a.Wire == dtype.Float32 && o.Wire != dtype.Invalid {
		a.Wire = o.Wire
	}
	a.Native = o.Native && a.Wire == dtype.Float32 // statistics of the whole batch are float64
	tr.exchanges++
	var args []*Tensor
	for _, p := range partials {
		for _, i := range at {
			args = append(args, p[i])
		}
	}
	for _, i := range at {
		a.Shapes = append(a.Shapes, partials[0][i].Shape())
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
