package attention

import (
	"slices"
	"unsafe"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/exec"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/gemm"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/isa"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/lanes"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/tiling"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/vec"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// gradient is the kernel of AttentionGrad. With weights W, result Y = W·V and Y's
// gradient G it computes
//
//	dV = Wᵀ·G    dS = W∘(G·Vᵀ - rowsum(G∘Y))·scale    dQ = dS·K    dK = dSᵀ·Q
//
// Dropout multiplies W in the first formula and G·Vᵀ in the second by its scaled mask.
// dK and dV are accumulated transposed, [features keys]: weights are then always the
// second operand of a product and need no transpose.
//
// If there are enough heads, one pass suffices: a chunk is a head of keys and values
// with all its queries. Otherwise one pass over queries computes dQ and one over keys
// dK and dV. Both compute the weights, but no two workers add to the same sum.
type gradient struct {
	attention
	y, statistics, g int
	dq, dk, dv       headResult
	passes           []gradPass
	means            lanes.Rows // rows of the means: Y and G

	ldQ, ldG, ldS, ldT                                      int
	atQ, atG, atTransposedQ, atTransposedG, atPairs, atMean int
	atKey, atRow, atValue, atWeights, atSlopes              int
	atPacked                                                int // packed weights or slopes, if pairs
	atDQ, atDK, atDV                                        int
}

// gradPass computes some of the gradients; a chunk is a range of queries and a range of
// keys of one head of keys.
type gradPass struct {
	*gradient
	queries, keys        int  // per chunk
	ofQueries, ofKeys    bool // whether the pass computes dQ; dK and dV
	queryParts, keyParts int  // chunks of a head
}

const (
	enoughChunks  = 16
	gradientBytes = 8 << 20 // limit for the dQ sums of a chunk
)

// newGradient returns the kernel of AttentionGrad.
func newGradient(p problem) exec.Kernel {
	b, v := p.b, p.v
	k := &gradient{y: b.At(v.Args[3]), statistics: b.At(v.Args[4]), g: b.At(v.Args[5])}
	k.init(p, 6)
	parts := b.Results(v)
	k.dq, k.dk, k.dv = newHeadResult(parts[0], k.Features), newHeadResult(parts[1], k.Features), newHeadResult(parts[2], k.ValueFeatures)
	of := k.from
	if isa.PortableBits() {
		of = dtype.Float32 // for lanes.DotRow
	}
	k.means = lanes.NewRows(op.Type{DType: of, Shape: op.Shape{k.ValueFeatures}}, k.ValueFeatures, k.from)
	k.blockRows = 64
	if !k.pairs && !k.set.Ordered {
		k.blockRows = tiling.Even(64, 64, k.tiles.MR)
	}
	share := k.Heads / k.KeyHeads
	all := k.rowsOf(share, k.Queries) * k.sumLD(k.Features)
	if k.Batch*k.KeyHeads >= enoughChunks && all <= gradientBytes {
		k.passes = []gradPass{{k, k.Queries, k.Keys, true, true, 1, 1}}
	} else {
		queries := min(k.Queries, 4*k.blockRows)
		k.passes = []gradPass{
			{k, queries, k.Keys, true, false, tiling.CeilDiv(k.Queries, max(1, queries)), 1},
			{k, k.Queries, k.blockKeys, false, true, 1, tiling.CeilDiv(k.Keys, k.blockKeys)},
		}
	}
	rows, most := k.depthRows(k.blockRows), k.passes[0].queries
	k.ldQ, k.ldG, k.ldS = k.rowLD(k.Features), k.rowLD(k.ValueFeatures), k.sumLD(k.blockKeys)
	var l tiling.Layout
	k.atQ, k.atG = l.Take(rows*k.ldQ+4*k.Features), l.Take(rows*k.ldG)
	k.atMean = l.Take(4 * k.blockRows)
	k.atKey, k.atValue = l.Take(k.size(k.Features, k.blockKeys)), l.Take(k.size(k.ValueFeatures, k.blockKeys))
	k.atRow = l.Take(k.size(k.blockKeys, k.Features))
	// Both hold packed Y or squares before weights, and transposed sums after.
	block := max(rows*k.ldS, k.size(k.ValueFeatures, k.blockRows), k.transposedLD(max(k.Features, k.ValueFeatures)))
	k.atWeights, k.atSlopes = l.Take(block), l.Take(block)
	if k.pairs {
		k.ldT = paddedLD(4 * k.cells(k.blockRows))
		k.atPacked = l.Take(k.size(k.blockRows, k.blockKeys))
		k.atTransposedQ, k.atTransposedG = l.Take(k.rows(k.Features)*k.ldT), l.Take(k.rows(k.ValueFeatures)*k.ldT)
		k.atPairs = l.Take(64 * k.cells(k.blockRows))
	}
	k.atDQ = l.Take(k.rowsOf(share, most) * k.sumLD(k.Features))
	k.atDK, k.atDV = l.Take(k.sumRows(k.Features)*k.ldS), l.Take(k.sumRows(k.ValueFeatures)*k.ldS)
	k.takeRows(&l, k.blockRows)
	b.ReserveScratch(int(l))
	return k
}

// rowsOf returns the rows of scratch memory for the dQ sums of so many heads and
// queries.
func (k *gradient) rowsOf(heads, queries int) int {
	return heads * tiling.RoundUp(queries, k.blockRows)
}

// depthRows returns n padded for rows that are also an inner dimension.
func (k *gradient) depthRows(n int) int { return k.rows(k.depth(n)) }

// sumRows returns n padded for the rows of transposed sums, which are transposed back
// 16 at a time.
func (k *gradient) sumRows(n int) int { return tiling.RoundUp(n, max(16, k.tiles.Unit)) }

func (k *gradient) Run(r *exec.Run) {
	work := k.Batch * k.Heads * k.Queries * max(k.Keys, 1)
	for i := range k.passes {
		p := &k.passes[i]
		r.Parallel(p, k.Batch*k.KeyHeads*p.queryParts*p.keyParts, work*(k.Features+k.ValueFeatures)/8+16*work)
	}
}

// place returns the batch element, head of keys, first query and first key of chunk i.
func (p *gradPass) place(i int) (batch, head, q0, s0 int) {
	q0, s0 = i%p.queryParts*p.queries, i/p.queryParts%p.keyParts*p.keys
	head = i / (p.queryParts * p.keyParts) % p.KeyHeads
	return i / (p.queryParts * p.keyParts * p.KeyHeads), head, q0, s0
}

func (p *gradPass) Chunk(r *exec.Run, w *exec.Worker, i int) {
	k := p.gradient
	batch, head, q0, s0 := p.place(i)
	n, end := min(p.queries, k.Queries-q0), min(s0+p.keys, k.Keys)
	share := k.Heads / k.KeyHeads
	base := unsafe.Pointer(&w.Scratch[0])
	ldDQ := k.sumLD(k.Features)
	if p.ofQueries {
		clear(w.Scratch[k.atDQ : k.atDQ+k.rowsOf(share, n)*ldDQ])
	}
	k.begin()
	for s := s0; s < end; s += k.blockKeys {
		keys := min(k.blockKeys, end-s)
		c := gradBlock{gradient: k, r: r, w: w, batch: batch, s: s, keys: keys}
		src, step := k.operand(r.Values[k.k], batch, k.Keys, k.KeyHeads, head, s, k.Features)
		c.key = k.transposed(unsafe.Add(base, k.atKey), src, step, keys, k.Features)
		if p.ofQueries {
			c.row = k.straight(unsafe.Add(base, k.atRow), src, step, k.Features, keys)
		}
		src, step = k.operand(r.Values[k.v], batch, k.Keys, k.KeyHeads, head, s, k.ValueFeatures)
		c.value = k.transposed(unsafe.Add(base, k.atValue), src, step, keys, k.ValueFeatures)
		if p.ofKeys {
			clear(w.Scratch[k.atDK : k.atDK+k.sumRows(k.Features)*k.ldS])
			clear(w.Scratch[k.atDV : k.atDV+k.sumRows(k.ValueFeatures)*k.ldS])
		}
		for j := range share {
			c.head = head*share + j
			for t := 0; t < n; t += k.blockRows {
				c.t, c.n = q0+t, min(k.blockRows, n-t)
				next := p.prefetches(&c, i, j, t, n, s+keys == end)
				var sums unsafe.Pointer // nil in the pass over keys, whose scratch memory has no room for dQ
				if p.ofQueries {
					sums = unsafe.Add(base, k.atDQ+(k.rowsOf(j, n)+t)*ldDQ)
				}
				c.compute(sums, ldDQ, p.ofKeys, &next)
			}
		}
		if p.ofKeys {
			first := (batch*k.Keys+s)*k.KeyHeads + head
			k.storeTransposed(r, w, &k.dk, k.atDK, first, keys, k.after)
			k.storeTransposed(r, w, &k.dv, k.atDV, first, keys, k.keepScale())
		}
	}
	k.blocks.end()
	if p.ofQueries && k.dq.Pos >= 0 {
		for j := range share {
			k.dq.storeAll(r, (batch*k.Queries+q0)*k.Heads+head*share+j, k.Heads, unsafe.Add(base, k.atDQ+k.rowsOf(j, n)*ldDQ), ldDQ, n, float32(k.attr.Scale), k.numbers(w))
		}
	}
	k.dq.scaled.Fence()
	k.dk.scaled.Fence()
	k.dv.scaled.Fence()
}

// prefetches lists the rows to prefetch while chunk i computes the block of queries
// from t on (of n) of the j-th head that shares the keys: the next block of queries,
// the next chunk's keys and values, and the rows that gradients are stored to.
func (p *gradPass) prefetches(c *gradBlock, i, j, t, n int, last bool) (a prefetchList) {
	k := p.gradient
	share, size := k.Heads/k.KeyHeads, k.from.Size()
	blocks := share * tiling.CeilDiv(n, k.blockRows)
	// part returns this block's share of the rows of keys.
	part := func(keys int) (step, rows int) {
		from, to := tiling.Cut(j*tiling.CeilDiv(n, k.blockRows)+t/k.blockRows, blocks, keys)
		return from, to - from
	}
	queries := func(batch, head, t int) {
		a.add(c.r.Values[k.q], size, batch, k.Queries, k.Heads, head, t, k.blockRows, k.Features)
		a.add(c.r.Values[k.g], size, batch, k.Queries, k.Heads, head, t, k.blockRows, k.ValueFeatures)
		a.add(c.r.Values[k.y], size, batch, k.Queries, k.Heads, head, t, k.blockRows, k.ValueFeatures)
	}
	switch ends := t+c.n == n; {
	case !ends:
		queries(c.batch, c.head, c.t+c.n)
	case j+1 < share:
		queries(c.batch, c.head+1, c.t+c.n-n)
	}
	if last && i+1 < k.Batch*k.KeyHeads*p.queryParts*p.keyParts {
		batch, head, q0, s0 := p.place(i + 1)
		if t+c.n == n && j+1 == share {
			queries(batch, head*share, q0)
		}
		step, rows := part(k.blockKeys)
		a.add(c.r.Values[k.k], size, batch, k.Keys, k.KeyHeads, head, s0+step, rows, k.Features)
		a.add(c.r.Values[k.v], size, batch, k.Keys, k.KeyHeads, head, s0+step, rows, k.ValueFeatures)
	}
	if last && p.ofQueries {
		k.dq.prefetch(c.r, &a, c.batch, k.Queries, k.Heads, c.head, c.t, c.n)
	}
	if p.ofKeys {
		step, rows := part(c.keys)
		k.dk.prefetch(c.r, &a, c.batch, k.Keys, k.KeyHeads, c.head/share, c.s+step, rows)
		k.dv.prefetch(c.r, &a, c.batch, k.Keys, k.KeyHeads, c.head/share, c.s+step, rows)
	}
	kernels := 2 * k.within(c.n, c.keys)
	if p.ofQueries {
		kernels += k.within(c.n, k.Features)
	}
	if p.ofKeys {
		kernels += k.within(k.Features, c.keys) + k.within(k.ValueFeatures, c.keys)
	}
	a.most = tiling.CeilDiv(a.all, max(1, kernels))
	return a
}

// keepScale returns the factor of the weights that dropout keeps, or 1.
func (k *gradient) keepScale() float32 {
	if k.dropout == nil {
		return 1
	}
	return k.dropout.scale
}

// storeTransposed transposes sums back, multiplies them by scale and writes them as
// rows of a gradient, from row first on.
func (k *gradient) storeTransposed(r *exec.Run, w *exec.Worker, p *headResult, sums, first, keys int, scale float32) {
	if p.Pos < 0 {
		return
	}
	base := unsafe.Pointer(&w.Scratch[0])
	to, ld := unsafe.Add(base, k.atWeights), k.transposedLD(p.features)
	// There is room for as many rows as atWeights holds.
	most := max(1, k.depthRows(k.blockRows)*k.ldS/ld)
	for s := 0; s < keys; s += most {
		n := min(most, keys-s)
		for f := 0; f < p.features; f += 16 {
			k.set.Transpose[gemm.F32](unsafe.Add(to, 4*f), ld, unsafe.Add(base, sums+f*k.ldS+4*s), k.ldS, n, 1<<16-1, 1<<16-1)
		}
		p.storeAll(r, first+s*k.KeyHeads, k.KeyHeads, to, ld, n, scale, k.numbers(w))
	}
}

// transposedLD returns the leading dimension, in bytes, of sums that are transposed
// back.
func (k *gradient) transposedLD(features int) int { return 4 * tiling.RoundUp(features, 16) }

// gradBlock is a block of queries and keys of one head.
type gradBlock struct {
	*gradient
	r               *exec.Run
	w               *exec.Worker
	batch, head     int
	t, n            int // queries
	s, keys         int // keys
	key, row, value panels
}

// compute adds the block's terms to the dQ sums, unless sums is nil, and to those of dK
// and dV if ofKeys.
func (c *gradBlock) compute(sums unsafe.Pointer, ldDQ int, ofKeys bool, next *prefetchList) {
	k, w := c.gradient, c.w
	first, last := k.seen(c.t, c.t+c.n, c.s, c.keys)
	if first == last {
		return
	}
	from := first * k.tiles.NR
	cols := min(last*k.tiles.NR, c.keys) - from
	rows := k.depthRows(c.n) // the inner dimension of the gradients of keys
	base := unsafe.Pointer(&w.Scratch[0])
	q, g := unsafe.Add(base, k.atQ), unsafe.Add(base, k.atG)
	src, step := k.operand(c.r.Values[k.q], c.batch, k.Queries, k.Heads, c.head, c.t, k.Features)
	k.load(q, k.ldQ, src, step, c.n, k.Features, k.before)
	src, step = k.operand(c.r.Values[k.g], c.batch, k.Queries, k.Heads, c.head, c.t, k.ValueFeatures)
	k.load(g, k.ldG, src, step, c.n, k.ValueFeatures, 1)
	clear(w.Scratch[k.atQ+c.n*k.ldQ : k.atQ+rows*k.ldQ])
	clear(w.Scratch[k.atG+c.n*k.ldG : k.atG+rows*k.ldG])
	c.setMeans()
	if _, inverse := c.statistics(); slices.Contains(inverse, 1) {
		c.setMeansRowwise(g)
	}

	weights, slopes := unsafe.Add(base, k.atWeights), unsafe.Add(base, k.atSlopes)
	k.multiply(weights, k.ldS, c.n, cols, k.cells(k.Features), q, k.ldQ, false, c.key.from(0, first), false, next)
	k.multiply(slopes, k.ldS, c.n, cols, k.cells(k.ValueFeatures), g, k.ldG, false, c.value.from(0, first), false, next)
	for i := 0; i < c.n; {
		same, lo, hi := k.alike(c.t+i, c.n-i, c.s+from, cols)
		b := scoreRows{x: unsafe.Add(weights, i*k.ldS), ld: k.ldS, rows: same, lo: lo, n: hi, all: k.depth(cols), batch: c.batch, head: c.head, t: c.t + i, s: c.s + from}
		c.slope(b, unsafe.Add(slopes, i*k.ldS), i)
		i += same
	}
	clear(w.Scratch[k.atWeights+c.n*k.ldS : k.atWeights+rows*k.ldS])
	clear(w.Scratch[k.atSlopes+c.n*k.ldS : k.atSlopes+rows*k.ldS])

	if sums != nil {
		k.multiply(sums, ldDQ, c.n, k.Features, k.cells(cols), slopes, k.ldS, false, c.row.from(from/k.tiles.Step, 0), true, next)
	}
	if !ofKeys {
		return
	}
	dk, dv := unsafe.Add(base, k.atDK+4*from), unsafe.Add(base, k.atDV+4*from)
	if !k.pairs {
		k.multiply(dk, k.ldS, k.Features, cols, k.cells(c.n), q, k.ldQ, true, k.inPlace(slopes, k.ldS), true, next)
		k.multiply(dv, k.ldS, k.ValueFeatures, cols, k.cells(c.n), g, k.ldG, true, k.inPlace(weights, k.ldS), true, next)
		return
	}
	transposedQ := k.transpose(w, k.atTransposedQ, q, k.ldQ, rows, k.Features)
	transposedG := k.transpose(w, k.atTransposedG, g, k.ldG, rows, k.ValueFeatures)
	packed, depth := unsafe.Add(base, k.atPacked), k.depth(cols)
	k.multiply(dk, k.ldS, k.Features, cols, k.cells(rows), transposedQ, k.ldT, false, k.straight(packed, slopes, k.ldS, depth, rows), true, next)
	k.multiply(dv, k.ldS, k.ValueFeatures, cols, k.cells(rows), transposedG, k.ldT, false, k.straight(packed, weights, k.ldS, depth, rows), true, next)
}

// statistics returns the largest score of each query and the reciprocal of its sum of
// exponentials.
func (c *gradBlock) statistics() (top, inverse []float32) {
	first := (c.batch*c.Heads+c.head)*c.Queries + c.t
	top, inverse = c.split(c.r.Values[c.gradient.statistics])
	return top[first : first+c.n], inverse[first : first+c.n]
}

// setMeans sets the mean of each query: the dot product of its rows of Y and G.
func (c *gradBlock) setMeans() {
	k := c.gradient
	mean, numbers := lanes.ViewOf[float32](c.w.Scratch[k.atMean:], c.n), k.numbers(c.w)
	if v := vec.Native(); v != nil && v.Scores != nil && k.ValueFeatures > 0 {
		f := map[dtype.DType]func(dst, x, y unsafe.Pointer, ld, n, rows int){dtype.Float32: v.DotRows, dtype.Float16: v.DotRowsF16, dtype.BFloat16: v.DotRowsBF16}[k.from]
		g, step := k.operand(c.r.Values[k.g], c.batch, k.Queries, k.Heads, c.head, c.t, k.ValueFeatures)
		y, _ := k.operand(c.r.Values[k.y], c.batch, k.Queries, k.Heads, c.head, c.t, k.ValueFeatures)
		f(unsafe.Pointer(&mean[0]), g, y, step, k.ValueFeatures, c.n)
		return
	}
	for i := range mean {
		at := (c.batch*k.Queries+c.t+i)*k.Heads + c.head
		g := k.means.Row(c.r.Values[k.g], at, k.ValueFeatures, k.from, c.w.Scratch[k.atWeights:])
		y := k.means.Row(c.r.Values[k.y], at, k.ValueFeatures, k.from, c.w.Scratch[k.atSlopes:])
		if isa.PortableBits() {
			mean[i] = lanes.DotRow(dtype.View[float32](g), dtype.View[float32](y), numbers)
		} else {
			mean[i] = float32(k.means.Products(g, y, numbers, nil))
		}
	}
}

// setMeansRowwise is setMeans by the micro-kernels that compute G·Vᵀ. Where all of a
// query's weight is on one key, mean and product then have the same bits, and the slope
// is exactly 0 whatever keys it is multiplied by. It computes square tiles of G·Yᵀ and
// takes their diagonals.
func (c *gradBlock) setMeansRowwise(g unsafe.Pointer) {
	k := c.gradient
	base := unsafe.Pointer(&c.w.Scratch[0])
	src, step := k.operand(c.r.Values[k.y], c.batch, k.Queries, k.Heads, c.head, c.t, k.ValueFeatures)
	y := k.transposed(unsafe.Add(base, k.atWeights), src, step, c.n, k.ValueFeatures)
	squares := unsafe.Add(base, k.atSlopes)
	side := k.tiles.NR
	if k.tiles.NarrowNR > 0 {
		side = k.tiles.NarrowNR
	}
	var none prefetchList
	mean := lanes.ViewOf[float32](c.w.Scratch[k.atMean:], c.n)
	for t := 0; t < c.n; t += side {
		n := min(side, c.n-t)
		at := y.from(0, t/k.tiles.NR)
		at.data = unsafe.Add(at.data, 4*(t%k.tiles.NR))
		k.multiply(squares, k.ldS, n, n, k.cells(k.ValueFeatures), unsafe.Add(g, t*k.ldG), k.ldG, false, at, false, &none)
		for i := range n {
			mean[t+i] = *(*float32)(unsafe.Add(squares, i*(k.ldS+4)))
		}
	}
}

// slope converts scores in b, of the block's queries from i on, into weights, and dx,
// the gradient of the weights, into the gradient of the scores.
func (c *gradBlock) slope(b scoreRows, dx unsafe.Pointer, i int) {
	k := c.gradient
	d := b
	d.x = dx
	if b.lo == b.n {
		b.clear(k.pairs)
		d.clear(k.pairs)
		return
	}
	b.cut()
	for j := range b.rows {
		clear(d.row(j)[:b.lo])
	}
	k.hide(c.r, b, dx)
	var flags []byte
	var step int
	if k.dropout != nil {
		flags, step = k.dropoutFlags(c.r, c.w, b)
		d.choose(flags, step, false, lanes.Zeros[:])
	}
	top, inverse := c.statistics()
	b.slopes(dx, k.pairs, k.after, k.keepScale(), top[i:i+b.rows], inverse[i:i+b.rows], lanes.ViewOf[float32](c.w.Scratch[k.atMean+4*i:], b.rows), k.numbers(c.w))
	if k.dropout != nil {
		b.choose(flags, step, k.pairs, lanes.Zeros[:])
	}
}

// transpose transposes rows of n bfloat16 into n rows of pairs and returns them.
func (k *gradient) transpose(w *exec.Worker, to int, src unsafe.Pointer, lds, rows, n int) unsafe.Pointer {
	d, pairs := unsafe.Pointer(&w.Scratch[to]), unsafe.Pointer(&w.Scratch[k.atPairs])
	cells := rows / k.tiles.Step
	for f := 0; f < n; f += 16 {
		lanes := min(16, n-f)
		k.set.Lanes[gemm.Pairs](pairs, 64, unsafe.Add(src, 2*f), lds, rows, 1<<lanes-1, 1<<16-1)
		for p := 0; p < cells; p += 16 {
			k.set.Transpose[gemm.F32](unsafe.Add(d, f*k.ldT+4*p), k.ldT, unsafe.Add(pairs, 64*p), 64, 16, 1<<16-1, 1<<16-1)
		}
	}
	return d
}
