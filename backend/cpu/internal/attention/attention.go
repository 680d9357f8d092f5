// Package attention has scaled dot-product attention and its gradient, without a
// matrix of scores in memory.
//
// Where to look: attention.go is the forward pass over blocks of queries and keys,
// gradient.go the gradient; blocks.go multiplies blocks by the micro-kernels of package
// gemm, scores.go and rows.go process rows of scores (masks, softmax, dropout),
// results.go stores heads, prefetch.go lists what a block prefetches.
//
// Both passes compute the weight of a key as exp(scale·(p - largest))/sum, where p is
// the product of query and key and largest is the query's largest product. The
// difference comes first because it is exact for products near the largest. Both passes
// form products in the same order, so that no product is above the largest, and weights
// are as exact as Softmax's for scores of any size. AttentionForward keeps the largest
// product and 1/sum of each query for the gradient; one logarithm of the sum in place
// of both would carry the rounding of the largest score into every weight. The gradient
// of a score is weight·(dP - mean). Where all of a query's weight is on one key, mean
// is summed in the order of dP, so that the difference is exactly 0.
package attention

import (
	"math"
	"unsafe"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/exec"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/lanes"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/tiling"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/op"
	"github.com/mezzo-ml/mezzo/backend/portablemath"
)

// attention is the common part of AttentionForward and AttentionGrad. Scores exist for
// one block of queries and keys at a time, after Dao et al., "FlashAttention" (2022).
// The forward pass keeps each query's largest score and sum of exponentials; the
// backward pass recomputes the weights from both. It finds the same largest score, to
// the last bit, because micro-kernels add products in one fixed order.
type attention struct {
	op.AttentionSizes
	blocks
	attr    op.Attr
	dropout *dropout // or nil

	q, k, v, mask, state int // positions in Run.Values
	maskStep             [4]int

	before, after float32 // factors of queries (the scale's sign) and of differences of scores
	blockKeys     int     // per block
	blockRows     int     // queries per block
	unit          int     // keys that queries see, or not, together: whole panels

	atNumbers, atKeep, atRandom int
}

func (k *attention) init(p problem, operands int) {
	b, v := p.b, p.v
	types := make([]op.Type, len(v.Args))
	for i, a := range v.Args {
		types[i] = a.Type
	}
	k.AttentionSizes, _ = op.SizesOfAttention(operands, v.Attr, types)
	k.attr, k.blocks = v.Attr, newBlocks(p.set, types[0].DType, p.pairs)
	k.q, k.k, k.v = b.At(v.Args[0]), b.At(v.Args[1]), b.At(v.Args[2])
	if k.Mask >= 0 {
		k.mask = b.At(v.Args[k.Mask])
		s := types[k.Mask].Shape
		for i, d := range tiling.RowMajor(s) {
			if s[i] != 1 {
				k.maskStep[i] = d
			}
		}
	}
	if k.State >= 0 {
		k.state, k.dropout = b.At(v.Args[k.State]), newDropout(v.Attr)
	}
	// The scale is applied after the largest score is subtracted: that is exact for
	// scores near the largest, however large they are.
	sign, factor := v.Attr.ScoreFactors()
	k.before, k.after = float32(sign), float32(factor)
	if k.after == 0 { // underflow
		k.before, k.after = 0, 1
	}
	// A packed block of keys, one of values and the accumulators of their gradients
	// must stay in L2.
	most := 512
	for most > 64 && most*max(k.Features, k.ValueFeatures) > 512*64 {
		most /= 2
	}
	k.unit = k.tiles.NR
	if p.set.Ordered {
		k.unit = orderedUnit
	}
	k.blockKeys = tiling.Even(k.Keys, most, k.unit)
}

// orderedUnit is a multiple of the NR of all ordered sets of package gemm, so that blocks of
// keys are the same on every level.
const orderedUnit = 96

// operand returns the address of a head's features at a step, and the bytes from one
// step to the next.
func (k *attention) operand(data []byte, batch, steps, heads, head, step, features int) (unsafe.Pointer, int) {
	size := k.from.Size()
	at := (((batch*steps+step)*heads + head) * features) * size
	if at >= len(data) { // no elements
		return unsafe.Pointer(unsafe.SliceData(data)), 0
	}
	return unsafe.Pointer(&data[at]), heads * features * size
}

// seen returns the range [first, last) of panels of the block of n keys from s on that
// queries in [lo, hi) see.
func (k *attention) seen(lo, hi, s, n int) (first, last int) {
	from, _ := k.Seen(k.attr, lo)
	_, to := k.Seen(k.attr, hi-1)
	from, to = max(from-s, 0), min(to-s, n)
	if from >= to {
		return 0, 0
	}
	return from / k.unit * k.unit / k.tiles.NR, tiling.CeilDiv(min(tiling.RoundUp(to, k.unit), n), k.tiles.NR)
}

// seenRow returns the range of columns in [s, s+n), relative to s, that query t sees.
func (k *attention) seenRow(t, s, n int) (lo, hi int) {
	lo, hi = k.Seen(k.attr, t)
	lo, hi = min(max(lo-s, 0), n), max(min(hi-s, n), 0)
	return lo, max(lo, hi)
}

// split splits statistics into the largest score of each query and the reciprocal of
// its sum of exponentials, [B H T] each.
func (k *attention) split(statistics []byte) (tops, inverses []float32) {
	all := dtype.View[float32](statistics)
	return all[:len(all)/2], all[len(all)/2:]
}

// partly reports whether the positions of queries decide which keys they see.
func (k *attention) partly() bool { return k.attr.Causal || k.attr.SlidingWindow > 0 }

// alike returns how many of n queries from t on see the same range [lo, hi) of the
// columns from s to s+cols, and that range.
func (k *attention) alike(t, n, s, cols int) (same, lo, hi int) {
	lo, hi = k.seenRow(t, s, cols)
	if !k.partly() {
		return n, lo, hi
	}
	for same = 1; same < n; same++ {
		if a, b := k.seenRow(t+same, s, cols); a != lo || b != hi {
			break
		}
	}
	return same, lo, hi
}

// forward is the kernel of AttentionForward. A chunk is a range of a head's queries,
// which visit the keys block by block.
type forward struct {
	attention
	result     headResult
	statistics exec.Result // the largest scores of all queries, then 1 over the sums
	queries    int         // per chunk
	chunks     int         // per head

	ldQ, ldS, ldO                                                              int
	atQ, atO, atTop, atSum, atBefore, atFresh, atScale, atBlind, atK, atV, atS int
}

// newForward returns the kernel of AttentionForward.
func newForward(p problem) exec.Kernel {
	b, v := p.b, p.v
	k := &forward{}
	k.init(p, 3)
	parts := b.Results(v)
	k.result, k.statistics = newHeadResult(parts[0], k.ValueFeatures), parts[1]
	k.blockRows = 4 * k.tiles.MR
	switch {
	case k.pairs:
		k.blockRows = 2 * k.tiles.MR
	case k.set.Ordered:
		k.blockRows = orderedUnit / 2
	}
	// Each chunk packs all keys and values, so there are only enough chunks to keep a
	// few dozen cores busy.
	k.queries = k.Queries
	for k.queries >= 4*k.blockRows && k.Batch*k.Heads*tiling.CeilDiv(k.Queries, k.queries) < 64 {
		k.queries = tiling.Even(k.Queries, tiling.CeilDiv(k.queries, 2), k.blockRows)
	}
	k.queries = max(1, min(tiling.Even(k.Queries, 1024, k.blockRows), k.queries))
	k.chunks = tiling.CeilDiv(k.Queries, k.queries)
	rows := min(k.blockRows, k.queries)
	k.ldQ, k.ldS, k.ldO = k.rowLD(k.Features), k.sumLD(k.blockKeys), k.sumLD(k.ValueFeatures)
	var l tiling.Layout
	k.atQ = l.Take(k.rows(k.queries)*k.ldQ + 4*k.Features)
	k.atO = l.Take(k.rows(k.queries) * k.ldO)
	k.atTop, k.atSum = l.Take(4*k.queries), l.Take(8*k.queries)
	k.atBefore, k.atFresh, k.atScale = l.Take(4*rows), l.Take(4*rows), l.Take(4*k.queries)
	k.atBlind = l.Take(k.queries)
	k.atK, k.atV = l.Take(k.size(k.Features, k.blockKeys)), l.Take(k.size(k.blockKeys, k.ValueFeatures))
	k.atS = l.Take(k.rows(rows) * k.ldS)
	k.takeRows(&l, rows)
	b.ReserveScratch(int(l))
	return k
}

func (k *forward) Run(r *exec.Run) {
	work := k.Batch * k.Heads * k.Queries * max(k.Keys, 1)
	r.Parallel(k, k.Batch*k.Heads*k.chunks, work*(k.Features+k.ValueFeatures)/16+8*work)
}

func (k *forward) Chunk(r *exec.Run, w *exec.Worker, i int) {
	head, t0 := i/k.chunks%k.Heads, i%k.chunks*k.queries
	batch := i / (k.chunks * k.Heads)
	n := min(k.queries, k.Queries-t0)
	if n <= 0 {
		return
	}
	share := k.Heads / k.KeyHeads
	base := unsafe.Pointer(&w.Scratch[0])
	k.begin()
	src, step := k.operand(r.Values[k.q], batch, k.Queries, k.Heads, head, t0, k.Features)
	k.load(unsafe.Add(base, k.atQ), k.ldQ, src, step, n, k.Features, k.before)
	top, sum := lanes.ViewOf[float32](w.Scratch[k.atTop:], n), lanes.ViewOf[float64](w.Scratch[k.atSum:], n)
	lanes.Fill(top, float32(math.Inf(-1)))
	clear(sum)
	if k.partly() {
		clear(w.Scratch[k.atO : k.atO+n*k.ldO])
	}
	next := k.prefetches(r, i)
	for s := 0; s < k.Keys; s += k.blockKeys {
		keys := min(k.blockKeys, k.Keys-s)
		if first, last := k.seen(t0, t0+n, s, keys); first == last {
			continue
		}
		src, step = k.operand(r.Values[k.k], batch, k.Keys, k.KeyHeads, head/share, s, k.Features)
		key := k.transposed(unsafe.Add(base, k.atK), src, step, keys, k.Features)
		src, step = k.operand(r.Values[k.v], batch, k.Keys, k.KeyHeads, head/share, s, k.ValueFeatures)
		value := k.straight(unsafe.Add(base, k.atV), src, step, k.ValueFeatures, keys)
		for t := 0; t < n; t += k.blockRows {
			k.block(r, w, &next, batch, head, t0, t, min(k.blockRows, n-t), s, keys, key, value)
		}
	}
	k.blocks.end()
	k.store(r, w, batch, head, t0, n)
}

// block computes rows queries of a chunk, from t on, against one block of keys.
func (k *forward) block(r *exec.Run, w *exec.Worker, next *prefetchList, batch, head, t0, t, rows, s, keys int, key, value panels) {
	first, last := k.seen(t0+t, t0+t+rows, s, keys)
	if first == last {
		return
	}
	base := unsafe.Pointer(&w.Scratch[0])
	scores := unsafe.Add(base, k.atS)
	from := first * k.tiles.NR
	cols := min(last*k.tiles.NR, keys) - from
	k.multiply(scores, k.ldS, rows, cols, k.cells(k.Features), unsafe.Add(base, k.atQ+t*k.ldQ), k.ldQ, false, key.from(0, first), false, next)
	for i := 0; i < rows; {
		same, lo, hi := k.alike(t0+t+i, rows-i, s+from, cols)
		b := scoreRows{x: unsafe.Add(scores, i*k.ldS), ld: k.ldS, rows: same, lo: lo, n: hi, all: k.depth(cols), batch: batch, head: head, t: t0 + t + i, s: s + from}
		k.weigh(r, w, b, t+i)
		i += same
	}
	row := from / k.tiles.Step
	k.multiply(unsafe.Add(base, k.atO+t*k.ldO), k.ldO, rows, k.ValueFeatures, k.cells(cols), scores, k.ldS, false, value.from(row, 0), s > 0 || k.partly(), next)
}

// prefetches lists the rows that chunk i writes and the next chunk reads.
func (k *forward) prefetches(r *exec.Run, i int) (a prefetchList) {
	head := func(i int) (batch, head int) { return i / (k.chunks * k.Heads), i / k.chunks % k.Heads }
	batch, h := head(i)
	k.result.prefetch(r, &a, batch, k.Queries, k.Heads, h, i%k.chunks*k.queries, k.queries)
	if i++; i < k.Batch*k.Heads*k.chunks {
		size, share, last := k.from.Size(), k.Heads/k.KeyHeads, h
		batch, h = head(i)
		a.add(r.Values[k.q], size, batch, k.Queries, k.Heads, h, i%k.chunks*k.queries, k.queries, k.Features)
		if h/share != last/share || i%(k.chunks*k.Heads) == 0 {
			a.add(r.Values[k.k], size, batch, k.Keys, k.KeyHeads, h/share, 0, k.blockKeys, k.Features)
			a.add(r.Values[k.v], size, batch, k.Keys, k.KeyHeads, h/share, 0, k.blockKeys, k.ValueFeatures)
		}
	}
	a.most = tiling.CeilDiv(a.all, max(1, k.within(k.queries, k.Keys)+k.within(k.queries, k.ValueFeatures)))
	return a
}

// weigh converts scores of the chunk's queries from i on into weights that are not yet
// divided by their sum.
func (k *forward) weigh(r *exec.Run, w *exec.Worker, b scoreRows, i int) {
	if b.lo == b.n {
		b.clear(k.pairs)
		return
	}
	b.cut()
	k.hide(r, b, nil)
	top, sum := lanes.ViewOf[float32](w.Scratch[k.atTop+4*i:], b.rows), lanes.ViewOf[float64](w.Scratch[k.atSum+8*i:], b.rows)
	before, fresh := lanes.ViewOf[float32](w.Scratch[k.atBefore:], b.rows), lanes.ViewOf[float32](w.Scratch[k.atFresh:], b.rows)
	copy(before, top)
	b.weigh(k.pairs, k.after, top, fresh, k.numbers(w))
	for j, v := range fresh {
		if sum[j] != 0 && before[j] != top[j] {
			fade := float32(portablemath.Exp(float64(k.after) * (float64(before[j]) - float64(top[j]))))
			sum[j] *= float64(fade)
			scaleRow(floatsAt(unsafe.Pointer(&w.Scratch[k.atO+(i+j)*k.ldO]), k.ValueFeatures), fade)
		}
		sum[j] += float64(v)
	}
	if k.dropout != nil {
		flags, step := k.dropoutFlags(r, w, b)
		b.choose(flags, step, k.pairs, lanes.Zeros[:])
	}
}

// store divides a chunk's sums by the sums of weights and writes them.
func (k *forward) store(r *exec.Run, w *exec.Worker, batch, head, t0, n int) {
	top, sum := lanes.ViewOf[float32](w.Scratch[k.atTop:], n), lanes.ViewOf[float64](w.Scratch[k.atSum:], n)
	blind := lanes.ViewOf[byte](w.Scratch[k.atBlind:], n)
	for i, v := range sum {
		if blind[i] = 0; v != 0 {
			continue
		}
		if blind[i] = lanes.Truth(!k.sees(r, batch, head, t0+i)); blind[i] == 0 {
			sum[i] = math.NaN() // as Softmax of infinities
		}
	}
	first := (batch*k.Queries+t0)*k.Heads + head
	if k.result.Pos >= 0 {
		by, keep := lanes.ViewOf[float32](w.Scratch[k.atScale:], n), 1.
		if k.dropout != nil {
			keep = float64(k.dropout.scale)
		}
		for i, v := range sum {
			by[i] = float32(keep / v)
		}
		k.result.store(r, first, k.Heads, unsafe.Pointer(&w.Scratch[k.atO]), k.ldO, n, by, 1, k.numbers(w))
		for i, none := range blind {
			if none != 0 {
				k.result.clear(r, first+i*k.Heads)
			}
		}
		k.result.scaled.Fence()
	}
	all := k.statistics.In(r)
	if all == nil {
		return
	}
	at := (batch*k.Heads+head)*k.Queries + t0
	tops, inverses := k.split(all)
	tops, inverses = tops[at:at+n], inverses[at:at+n]
	for i, v := range sum {
		tops[i], inverses[i] = top[i], float32(1/v)
		if blind[i] != 0 {
			tops[i], inverses[i] = 0, 0
		}
	}
}
