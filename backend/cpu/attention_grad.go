package cpu

import (
	"unsafe"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/gemm"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// attentionGrad is AttentionGrad. With weights W, result Y = W·V and the
// gradient G of Y,
//
//	dV = Wᵀ·G    dS = W∘(G·Vᵀ - rowsum(G∘Y))·scale    dQ = dS·K    dK = dSᵀ·Q
//
// where dropout multiplies W in the first and G·Vᵀ in the second by what is
// kept. The gradients of keys and values are summed up transposed: so weights
// are always the second operand of a product, and need not be transposed.
//
// A head of keys and values is a chunk, with all its queries, if there are
// enough of those. Else there are two passes, one over queries and one over
// keys, which compute the weights twice: nothing is added up by two workers.
type attentionGrad struct {
	attention
	y, log, g, out int
	passes         []gradPass
	means, slopes  passes // over a result and its gradient, and over scores

	leadQ, leadG, leadS, leadW, leadT                          int
	atQ, atG, atTurnQ, atTurnG, atTurn, atMean, atNumbers      int
	atKey, atRow, atValue, atWeights, atSlopes, atKeep, atRand int
	atW, atPacked                                              int // of pairs
	atDQ, atDK, atDV                                           int
}

// gradPass computes gradients in chunks of some queries and some keys.
type gradPass struct {
	*attentionGrad
	queries, keys        int // of a chunk
	ofQueries, ofKeys    bool
	queryParts, keyParts int
}

const (
	enoughChunks  = 16
	gradientBytes = 8 << 20 // of the sums of a head's queries
)

func newAttentionGrad(b *builder, v *ir.Value) kernel {
	k := &attentionGrad{y: b.at(v.Args[3]), log: b.at(v.Args[4]), g: b.at(v.Args[5]), out: b.at(v)}
	k.init(b, v, 6)
	k.means = newPasses(op.Type{DType: k.from, Shape: op.Shape{k.ValueFeatures}}, k.ValueFeatures, k.from)
	k.slopes = newPasses(op.Type{DType: dtype.Float32, Shape: op.Shape{k.blockKeys}}, k.blockKeys, dtype.Float32)
	k.blockRows = 64
	if !k.pairs {
		k.blockRows = even(64, 64, k.tiles.MR)
	}
	share := k.Heads / k.KeyHeads
	all := k.rowsOf(share, k.Queries) * k.sumLead(k.Features)
	if k.Batch*k.KeyHeads >= enoughChunks && all <= gradientBytes {
		k.passes = []gradPass{{k, k.Queries, k.Keys, true, true, 1, 1}}
	} else {
		queries := min(k.Queries, 4*k.blockRows)
		k.passes = []gradPass{
			{k, queries, k.Keys, true, false, ceilDiv(k.Queries, max(1, queries)), 1},
			{k, k.Queries, k.blockKeys, false, true, 1, ceilDiv(k.Keys, k.blockKeys)},
		}
	}
	rows, most := k.depthRows(k.blockRows), k.passes[0].queries
	k.leadQ, k.leadG, k.leadS = k.rowLead(k.Features), k.rowLead(k.ValueFeatures), k.sumLead(k.blockKeys)
	var l layout
	k.atQ, k.atG = l.take(rows*k.leadQ+4*k.Features), l.take(rows*k.leadG)
	k.atMean, k.atNumbers = l.take(4*k.blockRows), l.take(4*passNumbers)
	k.atKey, k.atValue = l.take(k.size(k.Features, k.blockKeys)), l.take(k.size(k.ValueFeatures, k.blockKeys))
	k.atRow = l.take(k.size(k.blockKeys, k.Features))
	// They hold a row of features, too, before weights and after.
	block := max(rows*k.leadS, k.turnedLead(max(k.Features, k.ValueFeatures)))
	k.atWeights, k.atSlopes = l.take(block), l.take(block)
	if k.pairs {
		k.leadW, k.leadT = k.rowLead(k.blockKeys), lead(4*k.cells(k.blockRows))
		k.atW, k.atPacked = l.take(rows*k.leadW), l.take(k.size(k.blockRows, k.blockKeys))
		k.atTurnQ, k.atTurnG = l.take(k.rows(k.Features)*k.leadT), l.take(k.rows(k.ValueFeatures)*k.leadT)
		k.atTurn = l.take(64 * k.cells(k.blockRows))
	}
	k.atDQ = l.take(k.rowsOf(share, most) * k.sumLead(k.Features))
	k.atDK, k.atDV = l.take(k.sumRows(k.Features)*k.leadS), l.take(k.sumRows(k.ValueFeatures)*k.leadS)
	if k.drop != nil {
		k.atRand, k.atKeep = l.take(4*(k.blockKeys+192)), l.take(k.blockKeys)
	}
	b.wantScratch(int(l))
	return k
}

// rowsOf is the rows of sums of some queries of several heads.
func (k *attentionGrad) rowsOf(heads, queries int) int { return heads * roundUp(queries, k.blockRows) }

// depthRows is what n rows are padded to when they are an inner dimension, too.
func (k *attentionGrad) depthRows(n int) int { return k.rows(k.depth(n)) }

// sumRows is what n rows of turned sums are padded to: they are turned back 16
// at a time.
func (k *attentionGrad) sumRows(n int) int { return roundUp(n, max(16, k.tiles.Unit)) }

func (k *attentionGrad) run(r *run) {
	work := k.Batch * k.Heads * k.Queries * max(k.Keys, 1)
	for i := range k.passes {
		p := &k.passes[i]
		r.parallel(p, k.Batch*k.KeyHeads*p.queryParts*p.keyParts, work*(k.Features+k.ValueFeatures)/8+16*work)
	}
}

func (p *gradPass) chunk(r *run, w *worker, i int) {
	k := p.attentionGrad
	q0, s0 := i%p.queryParts*p.queries, i/p.queryParts%p.keyParts*p.keys
	head := i / (p.queryParts * p.keyParts) % k.KeyHeads
	batch := i / (p.queryParts * p.keyParts * k.KeyHeads)
	n, end := min(p.queries, k.Queries-q0), min(s0+p.keys, k.Keys)
	share := k.Heads / k.KeyHeads
	base := unsafe.Pointer(&w.scratch[0])
	leadDQ := k.sumLead(k.Features)
	if p.ofQueries {
		clear(w.scratch[k.atDQ : k.atDQ+k.rowsOf(share, n)*leadDQ])
	}
	k.begin()
	for s := s0; s < end; s += k.blockKeys {
		keys := min(k.blockKeys, end-s)
		c := gradBlock{attentionGrad: k, r: r, w: w, batch: batch, s: s, keys: keys}
		src, step := k.operand(r.values[k.k], batch, k.Keys, k.KeyHeads, head, s, k.Features)
		c.key = k.transposed(unsafe.Add(base, k.atKey), src, step, keys, k.Features)
		if p.ofQueries {
			c.row = k.straight(unsafe.Add(base, k.atRow), src, step, k.Features, keys)
		}
		src, step = k.operand(r.values[k.v], batch, k.Keys, k.KeyHeads, head, s, k.ValueFeatures)
		c.value = k.transposed(unsafe.Add(base, k.atValue), src, step, keys, k.ValueFeatures)
		if p.ofKeys {
			clear(w.scratch[k.atDK : k.atDK+k.sumRows(k.Features)*k.leadS])
			clear(w.scratch[k.atDV : k.atDV+k.sumRows(k.ValueFeatures)*k.leadS])
		}
		for j := range share {
			c.head = head*share + j
			for t := 0; t < n; t += k.blockRows {
				c.t, c.n = q0+t, min(k.blockRows, n-t)
				var sums unsafe.Pointer // scratch has no room for them in the pass of the keys
				if p.ofQueries {
					sums = unsafe.Add(base, k.atDQ+(k.rowsOf(j, n)+t)*leadDQ)
				}
				c.compute(sums, leadDQ, p.ofKeys)
			}
		}
		if p.ofKeys {
			k.storeTurned(r, w, k.atDK, k.q0()+k.place(batch, s, head, k.Features), k.Features, keys, k.after)
			scale := float32(1)
			if k.drop != nil {
				scale = k.drop.scale
			}
			k.storeTurned(r, w, k.atDV, k.q0()+k.Batch*k.Keys*k.KeyHeads*k.Features+k.place(batch, s, head, k.ValueFeatures), k.ValueFeatures, keys, scale)
		}
	}
	k.blocks.end()
	if !p.ofQueries {
		return
	}
	for j := range share {
		for t := range n {
			x := floatsAt(unsafe.Add(base, k.atDQ+(k.rowsOf(j, n)+t)*leadDQ), k.Features)
			scaleRow(x, float32(k.attr.Value))
			at := ((batch*k.Queries+q0+t)*k.Heads + head*share + j) * k.Features
			k.storeRow(r, at, x)
		}
	}
}

// q0 is where the gradient of the keys begins in the result.
func (k *attentionGrad) q0() int { return k.Batch * k.Queries * k.Heads * k.Features }

// place is where key s of a head begins.
func (k *attentionGrad) place(batch, s, head, features int) int {
	return ((batch*k.Keys+s)*k.KeyHeads + head) * features
}

// storeRow rounds x to the result from element at on.
func (k *attentionGrad) storeRow(r *run, at int, x []float32) {
	size := k.from.Size()
	if k.pairs {
		if len(x) > 0 {
			k.set.Narrow[gemm.BF16](unsafe.Pointer(&r.values[k.out][at*size]), unsafe.Pointer(&x[0]), len(x))
		}
		return
	}
	storeReal(r.values[k.out][at*size:(at+len(x))*size], x, k.from)
}

// storeTurned writes sums, turned back, times scale, from element at on.
func (k *attentionGrad) storeTurned(r *run, w *worker, sums, at, features, keys int, scale float32) {
	base := unsafe.Pointer(&w.scratch[0])
	to, lead := unsafe.Add(base, k.atWeights), k.turnedLead(features)
	// A block of weights has room for some rows of features.
	most := max(1, k.depthRows(k.blockRows)*k.leadS/lead)
	for s := 0; s < keys; s += most {
		n := min(most, keys-s)
		for f := 0; f < features; f += 16 {
			k.set.Transpose[gemm.F32](unsafe.Add(to, 4*f), lead, unsafe.Add(base, sums+f*k.leadS+4*s), k.leadS, n, 1<<16-1, 1<<16-1)
		}
		for i := range n {
			x := floatsAt(unsafe.Add(to, i*lead), features)
			if scale != 1 {
				scaleRow(x, scale)
			}
			k.storeRow(r, at+(s+i)*k.KeyHeads*features, x)
		}
	}
}

// turnedLead is the bytes from a row of features to the next when sums are
// turned back.
func (k *attentionGrad) turnedLead(features int) int { return 4 * roundUp(features, 16) }

// gradBlock is a block of queries and keys.
type gradBlock struct {
	*attentionGrad
	r               *run
	w               *worker
	batch, head     int
	t, n            int // queries
	s, keys         int // keys
	key, row, value panels
}

// compute adds what a block gives to the gradient of its queries, unless sums
// is nil, and to those of its keys.
func (c *gradBlock) compute(sums unsafe.Pointer, leadDQ int, ofKeys bool) {
	k, w := c.attentionGrad, c.w
	first, last := k.seen(c.t, c.t+c.n, c.s, c.keys)
	if first == last {
		return
	}
	from := first * k.tiles.NR
	cols := min(last*k.tiles.NR, c.keys) - from
	rows := k.depthRows(c.n) // the inner dimension of the gradients of keys
	base := unsafe.Pointer(&w.scratch[0])
	q, g := unsafe.Add(base, k.atQ), unsafe.Add(base, k.atG)
	src, step := k.operand(c.r.values[k.q], c.batch, k.Queries, k.Heads, c.head, c.t, k.Features)
	k.load(q, k.leadQ, src, step, c.n, k.Features, k.before)
	src, step = k.operand(c.r.values[k.g], c.batch, k.Queries, k.Heads, c.head, c.t, k.ValueFeatures)
	k.load(g, k.leadG, src, step, c.n, k.ValueFeatures, 1)
	clear(w.scratch[k.atQ+c.n*k.leadQ : k.atQ+rows*k.leadQ])
	clear(w.scratch[k.atG+c.n*k.leadG : k.atG+rows*k.leadG])
	c.setMeans()

	weights, slopes := unsafe.Add(base, k.atWeights), unsafe.Add(base, k.atSlopes)
	k.multiply(weights, k.leadS, c.n, cols, k.cells(k.Features), q, k.leadQ, false, c.key.from(0, first), false)
	k.multiply(slopes, k.leadS, c.n, cols, k.cells(k.ValueFeatures), g, k.leadG, false, c.value.from(0, first), false)
	depth := k.depth(cols)
	for i := range c.n {
		c.slope(i, c.s+from, floatsAt(unsafe.Add(weights, i*k.leadS), depth+rowPad/4)[:depth], floatsAt(unsafe.Add(slopes, i*k.leadS), depth), cols)
	}
	clear(w.scratch[k.atWeights+c.n*k.leadS : k.atWeights+rows*k.leadS])
	clear(w.scratch[k.atSlopes+c.n*k.leadS : k.atSlopes+rows*k.leadS])

	if k.pairs {
		c.narrow(slopes, rows, depth)
	}
	if sums != nil {
		a, lda := slopes, k.leadS
		if k.pairs {
			a, lda = unsafe.Add(base, k.atW), k.leadW
		}
		k.multiply(sums, leadDQ, c.n, k.Features, k.cells(cols), a, lda, false, c.row.from(from/k.tiles.Step, 0), true)
	}
	if !ofKeys {
		return
	}
	dk, dv := unsafe.Add(base, k.atDK+4*from), unsafe.Add(base, k.atDV+4*from)
	if !k.pairs {
		k.multiply(dk, k.leadS, k.Features, cols, k.cells(c.n), q, k.leadQ, true, k.inPlace(slopes, k.leadS), true)
		k.multiply(dv, k.leadS, k.ValueFeatures, cols, k.cells(c.n), g, k.leadG, true, k.inPlace(weights, k.leadS), true)
		return
	}
	turnQ := k.turn(w, k.atTurnQ, q, k.leadQ, rows, k.Features)
	turnG := k.turn(w, k.atTurnG, g, k.leadG, rows, k.ValueFeatures)
	narrowed, packed := unsafe.Add(base, k.atW), unsafe.Add(base, k.atPacked)
	k.multiply(dk, k.leadS, k.Features, cols, k.cells(rows), turnQ, k.leadT, false, k.straight(packed, narrowed, k.leadW, depth, rows), true)
	c.narrow(weights, rows, depth)
	k.multiply(dv, k.leadS, k.ValueFeatures, cols, k.cells(rows), turnG, k.leadT, false, k.straight(packed, narrowed, k.leadW, depth, rows), true)
}

// setMeans is, for each query, the sum of the products of its result and the
// gradient of that.
func (c *gradBlock) setMeans() {
	k := c.attentionGrad
	numbers := viewOf[float32](c.w.scratch[k.atNumbers:], passNumbers)
	mean := viewOf[float32](c.w.scratch[k.atMean:], c.n)
	for i := range mean {
		at := (c.batch*k.Queries+c.t+i)*k.Heads + c.head
		g := k.means.row(c.r.values[k.g], at, k.ValueFeatures, k.from, c.w.scratch[k.atWeights:])
		y := k.means.row(c.r.values[k.y], at, k.ValueFeatures, k.from, c.w.scratch[k.atSlopes:])
		mean[i] = float32(k.means.products(g, y, numbers, nil))
	}
}

// slope turns scores of query i of the block for keys from s on into weights,
// and what weights get from the result into what scores get.
func (c *gradBlock) slope(i, s int, x, dx []float32, cols int) {
	k, t := c.attentionGrad, c.t+i
	lo, hi := k.seenRow(t, s, cols)
	clear(x[:lo])
	clear(x[hi:])
	clear(dx[:lo])
	clear(dx[hi:])
	x, dx, s = x[lo:hi], dx[lo:hi], s+lo
	if k.hide(c.r, c.batch, c.head, t, s, x) {
		clear(x)
		clear(dx)
		return
	}
	row := (c.batch*k.Heads+c.head)*k.Queries + t
	numbers := viewOf[float32](c.w.scratch[k.atNumbers:], passNumbers)
	expRow(x, k.after, -dtype.View[float32](c.r.values[k.log])[row], numbers)
	mean := viewOf[float32](c.w.scratch[k.atMean:], i+1)[i]
	if k.drop == nil {
		k.slopes.softmaxGradRow(bytesOf(dx), bytesOf(x), bytesOf(dx), mean, numbers, nil)
		return
	}
	keep := c.w.scratch[k.atKeep : k.atKeep+len(x)]
	seed, counter := k.random(c.r)
	k.drop.keep(keep, viewOf[float32](c.w.scratch[k.atRand:], len(x)+192), seed, counter, row*k.Keys+s)
	whereRow(dx, keep, zeros[:])
	scaleRow(dx, k.drop.scale)
	k.slopes.softmaxGradRow(bytesOf(dx), bytesOf(x), bytesOf(dx), mean, numbers, nil)
	whereRow(x, keep, zeros[:])
}

// narrow rounds rows of sums to bfloat16.
func (c *gradBlock) narrow(from unsafe.Pointer, rows, n int) {
	k := c.attentionGrad
	for i := range rows {
		k.set.Narrow[gemm.BF16](unsafe.Add(unsafe.Pointer(&c.w.scratch[k.atW]), i*k.leadW), unsafe.Add(from, i*k.leadS), n)
	}
}

// turn transposes rows of n bfloat16 to n rows of pairs.
func (k *attentionGrad) turn(w *worker, to int, src unsafe.Pointer, lds, rows, n int) unsafe.Pointer {
	d, turned := unsafe.Pointer(&w.scratch[to]), unsafe.Pointer(&w.scratch[k.atTurn])
	cells := rows / k.tiles.Step
	for f := 0; f < n; f += 16 {
		lanes := min(16, n-f)
		k.set.Lanes[gemm.Pairs](turned, 64, unsafe.Add(src, 2*f), lds, rows, 1<<lanes-1, 1<<16-1)
		for p := 0; p < cells; p += 16 {
			k.set.Transpose[gemm.F32](unsafe.Add(d, f*k.leadT+4*p), k.leadT, unsafe.Add(turned, 64*p), 64, 16, 1<<16-1, 1<<16-1)
		}
	}
	return d
}
