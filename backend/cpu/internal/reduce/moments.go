package reduce

import (
	"math"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/exec"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/lanes"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/tiling"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
)

// moments is the kernel of Moments. A block of rows is read from memory once: its means
// and the deviations from them are computed while it is in the cache. Blocks are joined
// in float64, by their deviations from the first one's means.
type moments struct {
	columnWalk
	x, out           int
	from             dtype.DType
	atSum, atSquares int
	atCenter, atK    int
	atA, atB, atConv int
	join             joinMoments
}

func NewMoments(b *exec.Builder, v *ir.Value) exec.Kernel {
	x := v.Args[0].Type
	k := &moments{
		columnWalk: newColumnWalk(x.Shape[0], x.Shape[1], x.Shape[2], x.DType), x: b.At(v.Args[0]), out: b.At(v), from: x.DType,
	}
	k.join.moments = k
	if k.segments > 1 {
		b.ReserveShared(3 * 8 * k.outer * k.segments * k.width)
	}
	var l tiling.Layout
	k.atSum, k.atSquares, k.atCenter = l.Take(4*k.places), l.Take(4*k.places), l.Take(4*k.places)
	k.atK, k.atA, k.atB = l.Take(8*k.places), l.Take(8*k.places), l.Take(8*k.places)
	k.atConv = l.Take(k.converted())
	b.ReserveScratch(int(l))
	return k
}

func (k *moments) Run(r *exec.Run) {
	if k.rows == 0 {
		out := dtype.View[float32](r.Values[k.out])
		for i := range out {
			out[i] = float32(math.NaN())
		}
		return
	}
	k.parallel(r, k, 3)
	if k.segments > 1 {
		r.Parallel(&k.join, tiling.CeilDiv(k.outer*k.width, lanes.Block), 6*k.outer*k.segments*k.width)
	}
}

// shifted is the sums of the deviations of n numbers from k, and of their squares.
type shifted struct{ n, k, sum, squares float64 }

// add adds b, which must have at least one number.
func (a shifted) add(b shifted) shifted {
	if a.n == 0 {
		return b
	}
	d := b.k - a.k
	return shifted{a.n + b.n, a.k, a.sum + (float64(b.n*d) + b.sum), a.squares + (b.squares + float64(d*(float64(2*b.sum)+float64(b.n*d))))}
}

func (a shifted) moments() (mean, variance float64) {
	mean = a.sum / a.n
	return a.k + mean, math.Max(0, (a.squares-float64(mean*a.sum))/a.n)
}

func (k *moments) Chunk(r *exec.Run, w *exec.Worker, c int) {
	for u := c * k.group; u < min(k.units(), (c+1)*k.group); u++ {
		t := k.tileOf(u)
		k.tileMoments(r, w, &t)
	}
}

func (k *moments) tileMoments(r *exec.Run, w *exec.Worker, t *columnsTile) {
	part := func(at int) []float32 { return lanes.ViewOf[float32](w.Scratch[at:], t.places) }
	wide := func(at int) []float64 { return lanes.ViewOf[float64](w.Scratch[at:], t.places) }
	sum, squares, center := part(k.atSum), part(k.atSquares), part(k.atCenter)
	from, a, b := wide(k.atK), wide(k.atA), wide(k.atB)
	conv := w.Scratch[k.atConv:]
	n := 0 // units done
	for n < t.whole/k.unit {
		rows := min(k.block, t.whole/k.unit-n)
		first := t.first + n*k.unit*k.width
		k.prefetch(t, r.Values[k.x], k.from, first, rows)
		x := k.load(t, r.Values[k.x], k.from, first, rows, conv)
		clear(sum)
		k.strips(t, rows, func(place, n, column, row, rows int) {
			k.loops.sums(sum[place:place+n], k.elements(x, row, column), rows, x.stride)
		})
		for i, s := range sum {
			center[i] = s / float32(rows)
		}
		clear(sum)
		clear(squares)
		k.strips(t, rows, func(place, n, column, row, rows int) {
			k.loops.deviations(sum[place:place+n], squares[place:], center[place:], k.elements(x, row, column), rows, x.stride)
		})
		m := float64(rows)
		for i, s := range sum {
			q, c := float64(squares[i]), float64(center[i])
			if n == 0 {
				from[i], a[i], b[i] = c, float64(s), q
				continue
			}
			d := c - from[i]
			a[i] += float64(m*d) + float64(s)
			b[i] += q + float64(d*(float64(2*float64(s))+float64(m*d)))
		}
		n += rows
	}
	left := t.rows - t.whole
	if left > 0 {
		x := k.leftRows(t, r.Values[k.x], k.from, conv)
		sum, squares, center = sum[:t.width], squares[:t.width], center[:t.width]
		clear(sum)
		plainColumns.sums(sum, x, left, t.width)
		for i, s := range sum {
			center[i] = s / float32(left)
		}
		clear(sum)
		clear(squares)
		plainColumns.deviations(sum, squares, center, x, left, t.width)
	}
	for c := range t.width {
		var all shifted
		if n > 0 {
			t.sameColumn(c, func(p int) { all = all.add(shifted{float64(n), from[p], a[p], b[p]}) })
		}
		if left > 0 {
			all = all.add(shifted{float64(left), float64(center[c]), float64(sum[c]), float64(squares[c])})
		}
		k.store(r, t, t.column+c, all)
	}
}

// store writes the moments of a column, or keeps them for joinMoments.
func (k *moments) store(r *exec.Run, t *columnsTile, column int, all shifted) {
	if k.segments == 1 {
		k.result(r, t.outer*k.width+column, all)
		return
	}
	s := lanes.ViewOf[float64](r.Shared, 3*k.outer*k.segments*k.width)[3*((t.outer*k.segments+t.segment)*k.width+column):]
	s[0], s[1], s[2] = all.k, all.sum, all.squares
}

func (k *moments) result(r *exec.Run, i int, all shifted) {
	out := dtype.View[float32](r.Values[k.out])
	mean, variance := all.moments()
	out[i], out[k.outer*k.width+i] = float32(mean), float32(variance)
}

// joinMoments is the task that joins segments.
type joinMoments struct{ *moments }

func (k *joinMoments) Chunk(r *exec.Run, _ *exec.Worker, c int) {
	s := lanes.ViewOf[float64](r.Shared, 3*k.outer*k.segments*k.width)
	for i := c * lanes.Block; i < min(k.outer*k.width, (c+1)*lanes.Block); i++ {
		var all shifted
		for g := range k.segments {
			at := s[3*((i/k.width*k.segments+g)*k.width+i%k.width):]
			n := min(k.segment, k.rows-g*k.segment)
			all = all.add(shifted{float64(n), at[0], at[1], at[2]})
		}
		k.result(r, i, all)
	}
}

// batchNormReduce is the kernel of BatchNormReduce, one pass over both operands.
type batchNormReduce struct {
	columnWalk
	x, center, grad, out int
	from, gradType       dtype.DType
	atSum, atProducts    int
	atCenter, atA, atB   int
	atConv, atConvGrad   int
	join                 joinBatchNormReduce
}

func NewBatchNormReduce(b *exec.Builder, v *ir.Value) exec.Kernel {
	x, g := v.Args[0].Type, v.Args[2].Type
	k := &batchNormReduce{
		columnWalk: newColumnWalk(x.Shape[0], x.Shape[1], x.Shape[2], x.DType, g.DType),
		x:          b.At(v.Args[0]), center: b.At(v.Args[1]), grad: b.At(v.Args[2]), out: b.At(v), from: x.DType, gradType: g.DType,
	}
	k.join.batchNormReduce = k
	if k.segments > 1 {
		b.ReserveShared(2 * 8 * k.outer * k.segments * k.width)
	}
	var l tiling.Layout
	k.atSum, k.atProducts, k.atCenter = l.Take(4*k.places), l.Take(4*k.places), l.Take(4*k.places)
	k.atA, k.atB = l.Take(8*k.places), l.Take(8*k.places)
	k.atConv, k.atConvGrad = l.Take(k.converted()), l.Take(k.converted())
	b.ReserveScratch(int(l))
	return k
}

func (k *batchNormReduce) Run(r *exec.Run) {
	if k.rows == 0 {
		clear(r.Values[k.out])
		return
	}
	k.parallel(r, k, 3)
	if k.segments > 1 {
		r.Parallel(&k.join, tiling.CeilDiv(k.outer*k.width, lanes.Block), 4*k.outer*k.segments*k.width)
	}
}

func (k *batchNormReduce) Chunk(r *exec.Run, w *exec.Worker, c int) {
	for u := c * k.group; u < min(k.units(), (c+1)*k.group); u++ {
		t := k.tileOf(u)
		k.tileSums(r, w, &t)
	}
}

func (k *batchNormReduce) tileSums(r *exec.Run, w *exec.Worker, t *columnsTile) {
	part := func(at int) []float32 { return lanes.ViewOf[float32](w.Scratch[at:], t.places) }
	wide := func(at int) []float64 { return lanes.ViewOf[float64](w.Scratch[at:], t.places) }
	sum, products, center, a, b := part(k.atSum), part(k.atProducts), part(k.atCenter), wide(k.atA), wide(k.atB)
	convX, convG := w.Scratch[k.atConv:], w.Scratch[k.atConvGrad:]
	centers := dtype.View[float32](r.Values[k.center])[t.outer*k.width:]
	for c := range t.width {
		t.sameColumn(c, func(p int) { center[p] = centers[t.column+c] })
	}
	for p := t.main; p < t.places; p++ { // also those that only fill a vector
		center[p] = centers[t.column+t.overlap()+p-t.main]
	}
	clear(a)
	clear(b)
	for done := 0; done < t.whole; {
		rows := min(k.block, (t.whole-done)/k.unit)
		first := t.first + done*k.width
		k.prefetch(t, r.Values[k.x], k.from, first, rows)
		k.prefetch(t, r.Values[k.grad], k.gradType, first, rows)
		x := k.load(t, r.Values[k.x], k.from, first, rows, convX)
		g := k.load(t, r.Values[k.grad], k.gradType, first, rows, convG)
		clear(sum)
		clear(products)
		k.strips(t, rows, func(place, n, column, row, rows int) {
			k.loops.products(sum[place:place+n], products[place:], center[place:], k.elements(x, row, column), k.elements(g, row, column), rows, x.stride)
		})
		for i, s := range sum {
			a[i] += float64(s)
			b[i] += float64(products[i])
		}
		done += rows * k.unit
	}
	left := t.rows - t.whole
	if left > 0 {
		sum, products = sum[:t.width], products[:t.width]
		clear(sum)
		clear(products)
		x, g := k.leftRows(t, r.Values[k.x], k.from, convX), k.leftRows(t, r.Values[k.grad], k.gradType, convG)
		plainColumns.products(sum, products, center, x, g, left, t.width)
	}
	for c := range t.width {
		var s, p float64
		t.sameColumn(c, func(i int) { s, p = s+a[i], p+b[i] })
		if left > 0 {
			s, p = s+float64(sum[c]), p+float64(products[c])
		}
		if k.segments == 1 {
			k.result(r, t.outer*k.width+t.column+c, s, p)
			continue
		}
		to := lanes.ViewOf[float64](r.Shared, 2*k.outer*k.segments*k.width)[2*((t.outer*k.segments+t.segment)*k.width+t.column+c):]
		to[0], to[1] = s, p
	}
}

func (k *batchNormReduce) result(r *exec.Run, i int, sum, products float64) {
	out := dtype.View[float32](r.Values[k.out])
	out[i], out[k.outer*k.width+i] = float32(sum), float32(products)
}

// joinBatchNormReduce is the task that adds up segments.
type joinBatchNormReduce struct{ *batchNormReduce }

func (k *joinBatchNormReduce) Chunk(r *exec.Run, _ *exec.Worker, c int) {
	s := lanes.ViewOf[float64](r.Shared, 2*k.outer*k.segments*k.width)
	for i := c * lanes.Block; i < min(k.outer*k.width, (c+1)*lanes.Block); i++ {
		var sum, products float64
		for g := range k.segments {
			at := s[2*((i/k.width*k.segments+g)*k.width+i%k.width):]
			sum, products = sum+at[0], products+at[1]
		}
		k.result(r, i, sum, products)
	}
}
