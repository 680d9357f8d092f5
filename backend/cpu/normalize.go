package cpu

import (
	"math"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
)

// normalize is LayerNorm. A row is read from memory once; its statistics and
// the result are computed in the first cache.
type normalize struct {
	passes
	x, gain, shift, out int
	from                dtype.DType
	rows, features      int
	group               int // rows of a chunk
	epsilon             float64
	uncentered          bool
	batch               int // rows that are stored together
	atX, atOut, atRaw   int
	atKept              [2]int // rows of 16 bits in float32
	turns               bool   // see rowTurn
}

const (
	normalizeBlock = 1 << 15 // elements of a chunk
	normalizeBatch = 1 << 11 // elements that are stored together
)

func makeLayerNorm(b *builder, v *ir.Value) normalize {
	x := v.Args[0].Type
	k := normalize{
		x: b.at(v.Args[0]), gain: b.at(v.Args[1]), out: b.at(v), from: x.DType,
		rows: x.Shape[0], features: x.Shape[1], epsilon: v.Attr.Epsilon, uncentered: v.Attr.Uncentered,
	}
	k.group = max(1, normalizeBlock/max(1, k.features))
	k.batch = max(1, normalizeBatch/max(1, k.features))
	return k
}

func newLayerNorm(b *builder, v *ir.Value) kernel {
	k := makeLayerNorm(b, v)
	k.passes = newPasses(v.Type, k.features, k.from)
	k.shift = b.at(v.Args[2])
	n := k.batch * k.features
	var l layout
	l.take(4 * passNumbers)
	k.atX, k.atOut, k.atRaw = l.take(4*k.features), l.take(4*n), l.take(2*n)
	k.keepRows(&l)
	b.wantScratch(int(l))
	return &k
}

func (k *normalize) run(r *run) {
	if n := k.rows * k.features; n > 0 {
		r.parallel(k, ceilDiv(k.rows, k.group), 2*n)
	}
}

// statistics are the mean of a row and 1/√(variance+epsilon).
func (k *normalize) statistics(kept []float32, x []byte, s []float32) (mean, scale float32) {
	m, v := k.momentsOf(kept, x, k.uncentered, s)
	return float32(m), float32(1 / math.Sqrt(v+k.epsilon))
}

// rowTurn is what the rows of a chunk leave each other: while one is written, the
// next one is kept and summed up, so that the processor has arithmetic to do
// while it waits for memory.
type rowTurn struct {
	kept        [2][]float32 // of even rows and of odd ones
	row         int          // whose statistics are known, or -1
	mean, scale float32
}

// keepRows places kept rows of 16 bits, and settles whether they take turns.
func (k *normalize) keepRows(l *layout) {
	if k.in == dtype.Float32 {
		return
	}
	n := 4 * k.features
	k.atKept = [2]int{l.apart(n), l.apart(n)}
	k.turns = k.stores.NormalizeKeep != nil && !k.staged && k.whole(k.features) == k.features && k.features <= sumPart
}

func (k *normalize) turn(w *worker) rowTurn {
	t := rowTurn{row: -1}
	if k.in != dtype.Float32 {
		for i, at := range k.atKept {
			t.kept[i] = viewOf[float32](w.scratch[at:], k.features)
		}
	}
	return t
}

// settled makes statistics of the sums of a row that was kept, in deviations from
// a number.
func (k *normalize) settled(t *rowTurn, row int, from, a, b float32, s []float32) {
	m, v := k.settle(t.kept[row%2], from, float64(a), float64(b), k.uncentered, s)
	t.row, t.mean, t.scale = row, float32(m), float32(1/math.Sqrt(v+k.epsilon))
}

func (k *normalize) chunk(r *run, w *worker, c int) {
	s, conv, t := viewOf[float32](w.scratch, passNumbers), w.scratch[k.atX:], k.turn(w)
	gain, shift := dtype.View[float32](r.values[k.gain]), dtype.View[float32](r.values[k.shift])
	end := min(k.rows, (c+1)*k.group)
	for i := c * k.group; i < end; i += k.batch {
		last := min(end, i+k.batch)
		to := r.values[k.out][i*k.features*k.to.Size() : last*k.features*k.to.Size()]
		out, size := to, k.features*k.in.Size()
		if k.staged {
			out = w.scratch[k.atOut:][:4*(last-i)*k.features]
		}
		for j := i; j < last; j++ {
			x := k.row(r.values[k.x], j, k.features, k.from, conv)
			kept := k.kept(x, t.kept[j%2])
			if t.row != j {
				t.mean, t.scale = k.statistics(kept, x, s)
			}
			s[0], s[1] = t.mean, t.scale
			row, ahead := out[(j-i)*size:(j-i+1)*size], k.next(r.values[k.x], j, k.features, k.from)
			if !k.turns || j+1 == end {
				k.normalizeRow(row, kept, gain, shift, s, ahead)
				continue
			}
			next := t.kept[(j+1)%2]
			from := k.centerOf(next, ahead, k.uncentered)
			s[2] = from
			k.stores.NormalizeKeep(row, kept, gain, shift, next, ahead, s, ahead[min(size, len(ahead)-size):])
			k.settled(&t, j+1, from, s[3], s[4], s)
		}
		if k.staged {
			k.store(to, out, w.scratch[k.atRaw:])
		}
	}
	k.done()
}

// normalizeGrad is LayerNormGrad: rows as normalize, and sums over rows for
// gains and shifts, of chunks in float64 (of blocks of rows in float32), which
// are joined in the end.
type normalizeGrad struct {
	normalize
	grad                    int
	gradType                dtype.DType
	dx, dgain, dshift       resultPart
	chunks                  int
	atGrad, atGain, atShift int
	atGained, atQuiet       int
	join                    joinLayerNormGrad
}

const normalizeRows = 128 // that are added up in float32

func newLayerNormGrad(b *builder, v *ir.Value) kernel {
	k := &normalizeGrad{normalize: makeLayerNorm(b, v), grad: b.at(v.Args[2]), gradType: v.Args[2].Type.DType}
	parts := b.parts(v)
	k.dx, k.dgain, k.dshift = parts[0], parts[1], parts[2]
	k.passes = newPasses(k.dx.Type, k.features, k.from, k.gradType)
	k.join.normalizeGrad = k
	// Each chunk has sums of its own: 64 at most, and as little as x takes.
	k.chunks = max(1, min(64, ceilDiv(k.rows, k.group), k.rows/8))
	k.group = max(1, ceilDiv(k.rows, k.chunks))
	k.chunks = max(1, ceilDiv(k.rows, k.group))
	b.wantShared(16 * k.chunks * k.features)
	n := 4 * k.features
	var l layout
	l.take(4 * passNumbers)
	k.atGain, k.atShift, k.atGained = l.apart(n), l.apart(n), l.apart(n)
	k.atX, k.atQuiet, k.atGrad = l.apart(n), l.apart(n), l.take(n)
	k.atOut, k.atRaw = l.take(k.batch*n), l.take(k.batch*n/2)
	b.wantScratch(max(int(l), 16*block)) // also of the join
	return k
}

func (k *normalizeGrad) run(r *run) {
	if k.features == 0 {
		return
	}
	n := k.rows * k.features
	r.parallel(k, k.chunks, 4*n)
	r.parallel(&k.join, ceilDiv(k.features, block), 2*k.chunks*k.features)
}

// sums are those of a chunk, for gains and for shifts.
func (k *normalizeGrad) sums(r *run, c int) (gain, shift []float64) {
	s := viewOf[float64](r.shared[16*c*k.features:], 2*k.features)
	return s[:k.features], s[k.features:]
}

func (k *normalizeGrad) chunk(r *run, w *worker, c int) {
	s := viewOf[float32](w.scratch, passNumbers)
	part := func(at int) []float32 { return viewOf[float32](w.scratch[at:], k.features) }
	convX, convG, dgain, dshift, gained := w.scratch[k.atX:], w.scratch[k.atGrad:], part(k.atGain), part(k.atShift), part(k.atGained)
	gain, dx := k.quiet(dtype.View[float32](r.values[k.gain]), part(k.atQuiet)), k.dx.in(r)
	allGain, allShift := k.sums(r, c)
	clear(allGain)
	clear(allShift)
	end := min(k.rows, (c+1)*k.group)
	for first := c * k.group; first < end; first += normalizeRows {
		clear(dgain)
		clear(dshift)
		for i := first; i < min(end, first+normalizeRows); i += k.batch {
			last := min(end, first+normalizeRows, i+k.batch)
			out, size := w.scratch[k.atOut:], k.features*k.in.Size()
			if dx != nil && !k.staged {
				out = dx[i*size:]
			}
			for j := i; j < last; j++ {
				x := k.row(r.values[k.x], j, k.features, k.from, convX)
				g := k.row(r.values[k.grad], j, k.features, k.gradType, convG)
				kept := k.kept(x, part(k.atX))
				mean, scale := k.statistics(kept, x, s)
				s[0], s[1] = mean, scale
				k.gradRowSums(dgain, dshift, gained, kept, g, gain, s, k.next(r.values[k.x], j, k.features, k.from))
				if dx == nil {
					continue
				}
				n := float32(k.features)
				s[2], s[3] = -scale*scale*(s[3]/n), -scale*(s[2]/n)
				if k.uncentered {
					s[3] = 0
				}
				k.gradRow(out[(j-i)*size:(j-i+1)*size], kept, gained, s, k.next(r.values[k.grad], j, k.features, k.gradType))
			}
			if dx != nil && k.staged {
				to := k.features * k.to.Size()
				k.store(dx[i*to:last*to], out[:(last-i)*size], w.scratch[k.atRaw:])
			}
		}
		sumEach(allGain, dgain)
		sumEach(allShift, dshift)
	}
	k.done()
}

// quiet is gains whose NaNs have no more bits than bfloat16: what is computed of
// them is rounded without a look at NaNs.
func (k *normalizeGrad) quiet(gain, t []float32) []float32 {
	if k.in != dtype.BFloat16 {
		return gain
	}
	for i, g := range gain {
		if g != g {
			g = float32(math.NaN())
		}
		t[i] = g
	}
	return t
}

// joinLayerNormGrad is the task that adds up the chunks' sums.
type joinLayerNormGrad struct{ *normalizeGrad }

func (k *joinLayerNormGrad) chunk(r *run, w *worker, i int) {
	lo, hi := i*block, min(k.features, (i+1)*block)
	gain, shift := viewOf[float64](w.scratch, hi-lo), viewOf[float64](w.scratch[8*block:], hi-lo)
	clear(gain)
	clear(shift)
	for c := range k.chunks {
		a, b := k.sums(r, c)
		sumEach(gain, a[lo:hi])
		sumEach(shift, b[lo:hi])
	}
	if to := k.dgain.in(r); to != nil {
		dtype.FromF64(to[4*lo:4*hi], gain, dtype.Float32)
	}
	if to := k.dshift.in(r); to != nil {
		dtype.FromF64(to[4*lo:4*hi], shift, dtype.Float32)
	}
}
