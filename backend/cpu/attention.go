package cpu

import (
	"math"
	"unsafe"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/gemm"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// attention is what AttentionForward and AttentionGrad have in common. Scores
// exist for a block of queries and keys at a time, after Dao et al.,
// "FlashAttention" (2022): the forward pass keeps the largest score and the
// sum of exponentials of each query so far, the backward pass computes the
// weights again from the logarithm of the sum.
type attention struct {
	op.AttentionSizes
	blocks
	attr op.Attr
	drop *dropout // or nil

	q, k, v, mask, state int // values
	maskStep             [4]int

	before, after float32 // the scale, as a factor of queries and of scores
	blockKeys     int     // keys of a block
	blockRows     int     // queries of a block
}

func (k *attention) init(b *builder, v *ir.Value, operands int) {
	types := make([]op.Type, len(v.Args))
	for i, a := range v.Args {
		types[i] = a.Type
	}
	k.AttentionSizes, _ = op.SizesOfAttention(operands, v.Attr, types)
	k.attr, k.blocks = v.Attr, newBlocks(types[0].DType)
	k.q, k.k, k.v = b.at(v.Args[0]), b.at(v.Args[1]), b.at(v.Args[2])
	if k.Mask >= 0 {
		k.mask = b.at(v.Args[k.Mask])
		s := types[k.Mask].Shape
		for i, d := range rowMajor(s) {
			if s[i] != 1 {
				k.maskStep[i] = d
			}
		}
	}
	if k.State >= 0 {
		k.state, k.drop = b.at(v.Args[k.State]), newDropout(v.Attr)
	}
	// Scores take the scale on their way to exponentials, where it costs nothing:
	// multiplied by a positive number, the largest score stays the largest.
	k.before, k.after = 1, float32(v.Attr.Value)
	if !(k.after > 0) {
		k.before, k.after = k.after, 1
	}
	// A packed block of keys and one of values, and the accumulators of as many
	// gradients, are to stay in the second cache.
	most := 512
	for most > 64 && most*max(k.Features, k.ValueFeatures) > 512*64 {
		most /= 2
	}
	k.blockKeys = even(k.Keys, most, k.tiles.NR)
}

// layout places parts of scratch memory.
type layout int

func (l *layout) take(bytes int) int {
	at := int(*l)
	*l += layout(roundUp(bytes, 64))
	return at
}

// operand is where the features of a head begin, and the bytes from a step to
// the next.
func (k *attention) operand(data []byte, batch, steps, heads, head, step, features int) (unsafe.Pointer, int) {
	size := k.from.Size()
	at := (((batch*steps+step)*heads + head) * features) * size
	if at >= len(data) { // no elements
		return unsafe.Pointer(unsafe.SliceData(data)), 0
	}
	return unsafe.Pointer(&data[at]), heads * features * size
}

// span is the keys that queries from lo to hi see of the block from s on, as
// panels: those from first to last, not included.
func (k *attention) seen(lo, hi, s, n int) (first, last int) {
	from, _ := k.Seen(k.attr, lo)
	_, to := k.Seen(k.attr, hi-1)
	from, to = max(from-s, 0), min(to-s, n)
	if from >= to {
		return 0, 0
	}
	return from / k.tiles.NR, ceilDiv(to, k.tiles.NR)
}

// seenRow is the keys that query t sees of the columns from s to s+n.
func (k *attention) seenRow(t, s, n int) (lo, hi int) {
	lo, hi = k.Seen(k.attr, t)
	lo, hi = min(max(lo-s, 0), n), max(min(hi-s, n), 0)
	return lo, max(lo, hi)
}

// random returns the words of the draw, 0 without one.
func (k *attention) random(r *run) (seed, counter uint64) {
	if k.drop == nil {
		return
	}
	state := dtype.View[int64](r.values[k.state])
	return uint64(state[0]), uint64(state[1])
}

// attentionForward is AttentionForward. A chunk is some queries of a head,
// which go through the keys block by block.
type attentionForward struct {
	attention
	out     int
	queries int // of a chunk
	chunks  int // of a head

	leadQ, leadS, leadP, leadO                                              int
	atQ, atO, atTop, atSum, atK, atV, atS, atP, atRandom, atKeep, atNumbers int
}

func newAttention(b *builder, v *ir.Value) kernel {
	k := &attentionForward{out: b.at(v)}
	k.init(b, v, 3)
	k.blockRows = 4 * k.tiles.MR
	if k.pairs {
		k.blockRows = 2 * k.tiles.MR
	}
	// Chunks pack all keys and values, so there are no more than keep some
	// dozens of cores busy.
	k.queries = k.Queries
	for k.queries >= 4*k.blockRows && k.Batch*k.Heads*ceilDiv(k.Queries, k.queries) < 64 {
		k.queries = even(k.Queries, ceilDiv(k.queries, 2), k.blockRows)
	}
	k.queries = max(1, min(even(k.Queries, 1024, k.blockRows), k.queries))
	k.chunks = ceilDiv(k.Queries, k.queries)
	rows := min(k.blockRows, k.queries)
	k.leadQ, k.leadS, k.leadO = k.rowLead(k.Features), k.sumLead(k.blockKeys), k.sumLead(k.ValueFeatures)
	var l layout
	k.atQ = l.take(k.rows(k.queries)*k.leadQ + 4*k.Features)
	k.atO = l.take(k.rows(k.queries) * k.leadO)
	k.atNumbers = l.take(64)
	k.atTop, k.atSum = l.take(4*k.queries), l.take(8*k.queries)
	k.atK, k.atV = l.take(k.size(k.Features, k.blockKeys)), l.take(k.size(k.blockKeys, k.ValueFeatures))
	k.atS = l.take(k.rows(rows) * k.leadS)
	if k.pairs {
		k.leadP = k.rowLead(k.blockKeys)
		k.atP = l.take(k.rows(rows) * k.leadP)
	}
	if k.drop != nil {
		k.atRandom, k.atKeep = l.take(4*(k.blockKeys+192)), l.take(k.blockKeys)
	}
	b.wantScratch(int(l))
	return k
}

func (k *attentionForward) run(r *run) {
	work := k.Batch * k.Heads * k.Queries * max(k.Keys, 1)
	r.parallel(k, k.Batch*k.Heads*k.chunks, work*(k.Features+k.ValueFeatures)/16+8*work)
}

func (k *attentionForward) chunk(r *run, w *worker, i int) {
	head, t0 := i/k.chunks%k.Heads, i%k.chunks*k.queries
	batch := i / (k.chunks * k.Heads)
	n := min(k.queries, k.Queries-t0)
	if n <= 0 {
		return
	}
	share := k.Heads / k.KeyHeads
	base := unsafe.Pointer(&w.scratch[0])
	k.begin()
	src, step := k.operand(r.values[k.q], batch, k.Queries, k.Heads, head, t0, k.Features)
	k.load(unsafe.Add(base, k.atQ), k.leadQ, src, step, n, k.Features, k.before)
	top, sum := viewOf[float32](w.scratch[k.atTop:], n), viewOf[float64](w.scratch[k.atSum:], n)
	fillRow(top, float32(math.Inf(-1)))
	clear(sum)
	clear(w.scratch[k.atO : k.atO+n*k.leadO])
	for s := 0; s < k.Keys; s += k.blockKeys {
		keys := min(k.blockKeys, k.Keys-s)
		if first, last := k.seen(t0, t0+n, s, keys); first == last {
			continue
		}
		src, step = k.operand(r.values[k.k], batch, k.Keys, k.KeyHeads, head/share, s, k.Features)
		key := k.transposed(unsafe.Add(base, k.atK), src, step, keys, k.Features)
		src, step = k.operand(r.values[k.v], batch, k.Keys, k.KeyHeads, head/share, s, k.ValueFeatures)
		value := k.straight(unsafe.Add(base, k.atV), src, step, k.ValueFeatures, keys)
		for t := 0; t < n; t += k.blockRows {
			k.block(r, w, batch, head, t0, t, min(k.blockRows, n-t), s, keys, key, value)
		}
	}
	k.blocks.end()
	k.store(r, w, batch, head, t0, n)
}

// block takes rows queries of a chunk, from t on, through a block of keys.
func (k *attentionForward) block(r *run, w *worker, batch, head, t0, t, rows, s, keys int, key, value panels) {
	first, last := k.seen(t0+t, t0+t+rows, s, keys)
	if first == last {
		return
	}
	base := unsafe.Pointer(&w.scratch[0])
	scores := unsafe.Add(base, k.atS)
	from := first * k.tiles.NR
	cols := min(last*k.tiles.NR, keys) - from
	k.multiply(scores, k.leadS, rows, cols, k.cells(k.Features), unsafe.Add(base, k.atQ+t*k.leadQ), k.leadQ, false, key.from(0, first), false)
	depth := k.depth(cols)
	weights, lead := scores, k.leadS
	if k.pairs {
		weights, lead = unsafe.Add(base, k.atP), k.leadP
	}
	for i := range rows {
		x := floatsAt(unsafe.Add(scores, i*k.leadS), depth+rowPad/4)[:depth]
		if !k.pairs {
			k.weigh(r, w, batch, head, t0+t+i, t+i, s+from, x, cols, nil)
			continue
		}
		narrow := unsafe.Slice((*uint16)(unsafe.Add(weights, i*lead)), depth+rowPad/4)[:depth]
		if !k.weigh(r, w, batch, head, t0+t+i, t+i, s+from, x, cols, narrow) {
			k.set.Narrow[gemm.BF16](unsafe.Pointer(&narrow[0]), unsafe.Pointer(&x[0]), depth)
		}
	}
	row := from / k.tiles.Step
	k.multiply(unsafe.Add(base, k.atO+t*k.leadO), k.leadO, rows, k.ValueFeatures, k.cells(cols), weights, lead, false, value.from(row, 0), true)
}

// weigh turns scores of query t, number i of the chunk, for keys from s on
// into weights that are not yet divided by their sum; what pads them is 0. Where
// it can, it writes them to narrow alone, and reports that it has.
func (k *attentionForward) weigh(r *run, w *worker, batch, head, t, i, s int, x []float32, cols int, narrow []uint16) bool {
	top, sum := &viewOf[float32](w.scratch[k.atTop:], i+1)[i], &viewOf[float64](w.scratch[k.atSum:], i+1)[i]
	lo, hi := k.seenRow(t, s, cols)
	clear(x[:lo])
	clear(x[hi:])
	x = x[lo:hi]
	s += lo
	if k.hide(r, batch, head, t, s, x) {
		clear(x)
		return false
	}
	most := maxRow(x) * k.after
	if math.IsInf(float64(most), -1) && k.nothing(r, batch, head, t, s, len(x)) {
		clear(x)
		return false
	}
	if most > *top || most != most {
		if *sum != 0 {
			fade := float32(math.Exp(float64(*top - most)))
			*sum *= float64(fade)
			scaleRow(floatsAt(unsafe.Pointer(&w.scratch[k.atO+i*k.leadO]), k.ValueFeatures), fade)
		}
		*top = most
	}
	numbers := viewOf[float32](w.scratch[k.atNumbers:], 4)
	if narrow != nil && k.drop == nil {
		*sum += expRowBF16(narrow[lo:hi], x, k.after, -*top, numbers)
		clear(narrow[:lo])
		clear(narrow[hi:])
		return true
	}
	*sum += expRow(x, k.after, -*top, numbers)
	if k.drop != nil {
		keep := w.scratch[k.atKeep : k.atKeep+len(x)]
		seed, counter := k.random(r)
		k.drop.keep(keep, viewOf[float32](w.scratch[k.atRandom:], len(x)+192), seed, counter, ((batch*k.Heads+head)*k.Queries+t)*k.Keys+s)
		whereRow(x, keep, zeros[:])
	}
	return false
}

// store divides the sums of a chunk and writes them.
func (k *attentionForward) store(r *run, w *worker, batch, head, t0, n int) {
	out := dtype.View[float32](r.values[k.out])
	logs := out[k.Result().Size()+(batch*k.Heads+head)*k.Queries+t0:][:n]
	top, sum := viewOf[float32](w.scratch[k.atTop:], n), viewOf[float64](w.scratch[k.atSum:], n)
	for i, v := range sum {
		logs[i] = float32(v)
	}
	logRow(logs)
	for i := range n {
		at := ((batch*k.Queries+t0+i)*k.Heads + head) * k.ValueFeatures
		to := out[at : at+k.ValueFeatures]
		if sum[i] == 0 {
			clear(to)
			logs[i] = math.MaxFloat32
			continue
		}
		scale := 1 / sum[i]
		if k.drop != nil {
			scale *= float64(k.drop.scale)
		}
		x := viewOf[float32](w.scratch[k.atO+i*k.leadO:], k.ValueFeatures)
		if v := vectors(); v != nil {
			v.MulScalar(to, x, float32(scale))
		} else {
			copy(to, x)
			scaleRow(to, float32(scale))
		}
		logs[i] += top[i]
	}
}
