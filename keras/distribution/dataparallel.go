package distribution

import (
	"fmt"
	"slices"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/op"
	"github.com/mezzo-ml/mezzo/backend/tensor"
)

// DefaultBucketBytes is about how many bytes of gradients ranks exchange at a time,
// unless DataParallel says another number.
const DefaultBucketBytes = 25 << 20

// DataParallel trains replicas of a model, each on its rows of every batch (Keras:
// keras.distribution.DataParallel). Give it to CompileConfig.Distribution; or call
// AllReduce in a training loop of your own.
//
// A batch is cut into Shards parts. Each rank computes the gradients of its shards, one
// after the other. The gradient of the batch is the sum of theirs, each weighted by its
// share of the rows, in float32 in a fixed tree over the shards. So with Shards fixed
// and Wire left out, weights have the same bits for any number of ranks up to Shards,
// with any engine.
type DataParallel struct {
	Group       *Group      // default: World()
	Shards      int         // parts of a batch; default: the number of ranks
	Wire        dtype.DType // 16-bit type in which ranks send float32 gradients: half the bytes, other bits for each number of ranks; default: float32
	BucketBytes int         // gradients that are exchanged at a time; default: DefaultBucketBytes
	Engine      bool        // the engine adds up, in its own order: other bits; Shards and Wire must be left out

	// ZeroRedundancy divides the slots of the optimizer among the ranks (ZeRO, stage 1;
	// PyTorch: ZeroRedundancyOptimizer). Each rank computes the update of its part of each
	// weight, and the ranks exchange the new weights. Weights have the same bits as
	// without. The optimizer must be element-wise: see optimizers.SetPartition.
	ZeroRedundancy bool
}

// Partition divides the state of an optimizer among the ranks, for
// optimizers.SetPartition in a training loop of your own; Compile calls it for
// ZeroRedundancy.
func (d *DataParallel) Partition() *tensor.Partition { return tensor.NewPartition(d.options()) }

// group returns the group, which is checked.
func (d *DataParallel) group() *Group {
	if d.Group != nil {
		return d.Group
	}
	return World()
}

// Ranks returns the group that trains.
func (d *DataParallel) Ranks() *Group { return d.group() }

// Check returns an error if a field makes no sense.
func (d *DataParallel) Check() error {
	size := d.group().Size()
	_, sums := d.group().engine.(Summer)
	switch {
	case d.Shards < 0 || d.Shards > 0 && d.Shards < size:
		return fmt.Errorf("DataParallel: Shards is %d, want at least the number of ranks, %d", d.Shards, size)
	case d.Wire != dtype.Invalid && d.Wire != dtype.Float32 && !d.Wire.Is16():
		return fmt.Errorf("DataParallel: Wire is %v, want float32, bfloat16 or float16", d.Wire)
	case d.BucketBytes < 0:
		return fmt.Errorf("DataParallel: BucketBytes is %d, want a positive number", d.BucketBytes)
	case d.Engine && (d.Shards > 0 && d.Shards != size || d.Wire.Is16()):
		return fmt.Errorf("DataParallel: Engine is set, and Shards or Wire, which an engine's own sum has not")
	case d.Engine && size > 1 && !sums:
		return fmt.Errorf("DataParallel: Engine is set, but engine %s has no sum of its own", d.group().engine.Name())
	}
	return nil
}

// ShardsOfBatch returns the number of shards of a batch: the field, or its default.
func (d *DataParallel) ShardsOfBatch() int {
	if d.Shards == 0 {
		return d.group().Size()
	}
	return d.Shards
}

func (d *DataParallel) options() tensor.AllReduceOptions {
	g := d.group()
	o := tensor.AllReduceOptions{Group: g.number, Rank: g.Rank(), Ranks: g.Size(), Shards: d.ShardsOfBatch(), BucketBytes: d.BucketBytes, Native: d.Engine && g.Size() > 1}
	if o.BucketBytes == 0 {
		o.BucketBytes = DefaultBucketBytes
	}
	if d.Wire.Is16() {
		o.Wire = d.Wire
	}
	o.Scale = 1 / float64(o.Shards)
	return o
}

// AllReduce records the mean of gradients over all ranks. On each rank, gradients are the
// gradients of the mean loss of its batch. Batches of all ranks should have the same size.
// It belongs between two lines of a training loop, in a Function:
//
//	grads := dp.AllReduce(keras.Gradients(optimizer.GetScaledLoss(loss), vars))
//	optimizer.ApplyGradients(optimizer.GetUnscaledGradients(grads), vars)
//
// so that all ranks find the same gradients finite, or not. A nil gradient stays nil.
// The ranks are the shards: Shards must be left out, or be the number of ranks.
func (d *DataParallel) AllReduce(gradients []*tensor.Tensor) []*tensor.Tensor {
	const where = "AllReduce"
	if err := d.Check(); err != nil {
		tensor.Fail(where, "%w", err)
	}
	if d.ShardsOfBatch() != d.group().Size() {
		tensor.Fail(where, "Shards is %d, but each of the %d ranks has the gradients of one batch; use Replicas", d.ShardsOfBatch(), d.group().Size())
	}
	blocks, overflows := overflowsOf(gradients)
	all := slices.Concat(gradients, overflows)
	sums := d.sum([][]*tensor.Tensor{all}, all, d.options(), len(overflows))
	for i, b := range blocks {
		b.SetOverflows(sums[len(gradients)+i])
	}
	return sums[:len(gradients)]
}

// overflowsOf returns the parts of the losses of gradients that have loss scales of their
// own (optimizers.LossScaleGroup), and what is to be added up of them, so that all ranks
// lower the same scales.
func overflowsOf(gradients []*tensor.Tensor) (blocks []tensor.Blocks, overflows []*tensor.Tensor) {
	for _, b := range tensor.BlocksOf(gradients...) {
		if o := b.Overflows(); o != nil {
			blocks, overflows = append(blocks, b), append(overflows, o)
		}
	}
	return blocks, overflows
}

// sum records the sums of partial sums, in the order of the tensors by. Each of the last
// alone tensors, which the others may depend on, is exchanged by itself.
func (d *DataParallel) sum(partials [][]*tensor.Tensor, by []*tensor.Tensor, o tensor.AllReduceOptions, alone int) []*tensor.Tensor {
	since := tensor.SequencePoint()
	var at []int // of those that are not nil
	var given []*tensor.Tensor
	for i, t := range by {
		if t != nil {
			at, given = append(at, i), append(given, t)
		}
	}
	out := make([]*tensor.Tensor, len(by))
	if len(at) == 0 {
		return out
	}
	order := tensor.RecordedOrder(given)
	sorted := make([][]*tensor.Tensor, len(partials))
	for p, ts := range partials {
		for _, i := range order {
			sorted[p] = append(sorted[p], ts[at[i]])
		}
	}
	for _, i := range order {
		o.Alone = append(o.Alone, at[i] >= len(by)-alone)
	}
	for i, t := range tensor.AllReduce(sorted, o) {
		out[at[order[i]]] = t
	}
	tensor.Label("data_parallel", since, out...)
	return out
}

// Shard is the part of a batch that a replica computes.
type Shard struct {
	First, End int  // rows of the batch: First to End-1
	Empty      bool // the batch has fewer rows than shards: what is computed counts 0
}

// replica is what f of Replicas has returned for a shard, with the floats that it has
// assigned among the others, and behind the gradients the values of its calls of
// ShardMean, and what overflowsOf returns.
type replica struct{ gradients, others []*tensor.Tensor }

// RowsOfRank returns the range of rows of a batch of some rows that Replicas uses on this
// rank.
func (d *DataParallel) RowsOfRank(rows int) (first, end int) {
	g, n := d.group(), d.ShardsOfBatch()
	if rows < n { // some shards are empty
		return 0, rows
	}
	from, to := op.ShardsOf(g.Rank(), g.Size(), n)
	first, _ = op.ShardsOf(from, n, rows)
	_, end = op.ShardsOf(to-1, n, rows)
	return first, end
}

// Replicas records f once for each shard of this rank of a batch with some rows, and
// returns the means of what it returns over all shards of all ranks, weighted by their
// rows: gradients, nil where they are nil, and other floats such as losses.
//
// Variables that f assigns, such as moving averages, start in each shard with the value
// before; they become the weighted mean of what the shards have assigned. Integers,
// such as random states, become what the first shard has assigned. Variables that count
// what a rank sees, such as metrics, are to be updated outside.
func (d *DataParallel) Replicas(rows int, f func(s Shard) (gradients, others []*tensor.Tensor)) (gradients, others []*tensor.Tensor) {
	return d.replicas(rows, f, false)
}

// ScatteredReplicas is Replicas, but of each gradient a rank gets its part alone, as an
// optimizer with a tensor.Partition takes it that is Scattered.
func (d *DataParallel) ScatteredReplicas(rows int, f func(s Shard) (gradients, others []*tensor.Tensor)) (gradients, others []*tensor.Tensor) {
	return d.replicas(rows, f, true)
}

func (d *DataParallel) replicas(rows int, f func(s Shard) (gradients, others []*tensor.Tensor), scatter bool) (gradients, others []*tensor.Tensor) {
	const where = "Replicas"
	if err := d.Check(); err != nil {
		tensor.Fail(where, "%w", err)
	}
	if rows < 1 {
		tensor.Fail(where, "got a batch of %d rows", rows)
	}
	g, n := d.group(), d.ShardsOfBatch()
	var first *replica // of the first shard
	given := 0         // floats that f returns
	var assigned []tensor.ShardUpdate
	var means [][]tensor.PendingMean // of each shard
	var blocks [][]tensor.Blocks     // of each shard
	compute := func(shard int) replica {
		var r replica
		s := Shard{}
		s.First, s.End = op.ShardsOf(shard, n, rows)
		weight := float64(s.End-s.First) * float64(n) / float64(rows)
		if s.Empty = s.First == s.End; s.Empty {
			s.First, s.End = 0, 1 // so that all ranks record the same exchanges
		}
		recorded := tensor.Shard(shard, n, weight, func() { r.gradients, r.others = f(s) })
		r.gradients, r.others = slices.Clone(r.gradients), slices.Clone(r.others)
		if first == nil {
			first, assigned, given = &r, recorded.Updates, len(r.others)
		}
		if len(recorded.Updates) != len(assigned) {
			tensor.Fail(where, "a shard assigns %d variables, another one %d", len(recorded.Updates), len(assigned))
		}
		for i, u := range recorded.Updates {
			if u.Variable != assigned[i].Variable {
				tensor.Fail(where, "a shard assigns %s where another one assigns %s", u.Variable.Name(), assigned[i].Variable.Name())
			}
			if u.Variable.DType().IsFloat() {
				r.others = append(r.others, u.Value)
			}
		}
		means = append(means, recorded.Means)
		if len(recorded.Means) != len(means[0]) {
			tensor.Fail(where, "a shard computes %d means over the shards, another one %d", len(recorded.Means), len(means[0]))
		}
		parts, overflows := overflowsOf(r.gradients)
		if blocks = append(blocks, parts); len(parts) != len(blocks[0]) {
			tensor.Fail(where, "a shard has %d losses with Groups of a LossScaleOptimizer, another one %d", len(blocks[0]), len(parts))
		}
		out := replica{weighted(r.gradients, weight), weighted(r.others, weight)}
		for _, m := range recorded.Means {
			value := m.Value
			if s.Empty {
				value = weighted([]*tensor.Tensor{value}, 0)[0]
			}
			r.gradients, out.gradients = append(r.gradients, m.Value), append(out.gradients, value)
		}
		r.gradients = append(r.gradients, overflows...)
		if s.Empty {
			overflows = weighted(overflows, 0)
		}
		out.gradients = append(out.gradients, overflows...)
		return out
	}
	var tree func(lo, hi int) replica
	tree = func(lo, hi int) replica {
		if hi-lo == 1 {
			return compute(lo)
		}
		half := 1
		for 2*half < hi-lo {
			half *= 2
		}
		a := tree(lo, lo+half)
		b := tree(lo+half, hi)
		return replica{added(a.gradients, b.gradients), added(a.others, b.others)}
	}
	var gs, os [][]*tensor.Tensor
	for _, b := range op.Partials(g.Rank(), g.Size(), n) {
		r := tree(b[0], b[1])
		gs, os = append(gs, r.gradients), append(os, r.others)
	}
	since := tensor.SequencePoint()
	o := d.options()
	o.Scatter = scatter
	alone := len(means[0]) + len(blocks[0])
	gradients = d.sum(gs, first.gradients, o, alone)
	of := len(gradients) - alone
	for shard := range means {
		for i, m := range means[shard] {
			m.Resolve(gradients[of+i])
		}
		for i, b := range blocks[shard] {
			b.SetOverflows(gradients[of+len(means[shard])+i])
		}
	}
	gradients = gradients[:of]
	others = d.sum(os, first.others, d.options(), 0)
	at := given
	for _, u := range assigned {
		value := u.Value
		if u.Variable.DType().IsFloat() {
			value = others[at].Cast(u.Variable.DType())
			at++
		}
		u.Variable.Assign(value)
		tensor.Label("data_parallel", since, value)
	}
	return gradients, others[:given]
}

// weighted returns floats times a weight, in the type of sums.
func weighted(ts []*tensor.Tensor, weight float64) []*tensor.Tensor {
	out := make([]*tensor.Tensor, len(ts))
	for i, t := range ts {
		if t == nil {
			continue
		}
		t = t.Widen()
		t = t.Cast(t.DType().Accumulator())
		switch weight {
		case 1:
		case 0: // also of what is not finite
			t = tensor.Where(tensor.Scalar(dtype.Bool, 0), t, tensor.Scalar(t.DType(), 0))
		default:
			t = t.MulScalar(weight)
		}
		out[i] = t
	}
	return out
}

func added(a, b []*tensor.Tensor) []*tensor.Tensor {
	out := make([]*tensor.Tensor, len(a))
	for i, t := range a {
		if t != nil {
			out[i] = t.Add(b[i])
		}
	}
	return out
}
