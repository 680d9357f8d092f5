package cpu

import (
	"math"
	"slices"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// accumulator is the type that reductions add up in: float64 for floats, so
// that the one rounding that shows is that of the result, and int64 for the
// rest.
type accumulator interface{ float64 | int64 }

// folds is what a reduction does to elements of type T.
type folds[T number, A accumulator] struct {
	empty A
	run   func(x []T) A        // of elements side by side; at most foldBlock
	each  func(acc []A, x []T) // acc[i] with x[i]
	join  func(a, b A) A
}

const (
	foldBlock   = 256
	segmentSize = 1 << 13 // elements of a segment, roughly
	columnTile  = block   // columns that are reduced together
)

// reduce folds some of the axes. Collapsed, axes alternate between kept and
// reduced; the last one decides how the elements are read: runs of a row are
// folded to one number, or rows are folded into accumulators by column.
//
// The elements that belong to one result are cut into segments of a length
// that depends on the shape; segments are folded by any worker and joined in
// order. That is the fixed tree.
type reduce[T number, A accumulator] struct {
	folds    folds[T, A]
	src, out int
	from, to dtype.DType
	mean     bool
	wraps    bool

	keptDims, keptStrides []int // but the last axis if columns > 1
	redDims, redStrides   []int // but the last axis if it is a run
	outputs, count        int   // results; elements of each
	length                int   // of a run; 1 when by columns
	columns               int   // width of a row; 1 when by runs
	byColumn              bool
	segment, segments     int // length in elements of a run, or in rows; how many
	tiles, group, units   int
	finish                finishReduce[T, A]
}

func newReduce(b *builder, v *ir.Value) kernel {
	switch d := v.Args[0].Type.DType; domainOf(d) {
	case inF32:
		return makeReduce(b, v, floatFolds[float32](v.Op))
	case inF64:
		return makeReduce(b, v, floatFolds[float64](v.Op))
	default:
		f := intFolds(v.Op)
		if d == dtype.Bool && f.empty > 1 { // of Min
			f.empty = 1
		}
		if d == dtype.Bool && f.empty < 0 { // of Max
			f.empty = 0
		}
		return makeReduce(b, v, f)
	}
}

func makeReduce[T number, A accumulator](b *builder, v *ir.Value, f folds[T, A]) kernel {
	x := v.Args[0].Type
	k := &reduce[T, A]{
		folds: f, src: b.at(v.Args[0]), out: b.at(v), from: x.DType, to: v.Type.DType,
		mean: v.Op == op.Mean, wraps: v.Op == op.Sum || v.Op == op.Prod,
		outputs: v.Type.Shape.Size(), count: 1, length: 1, columns: 1,
	}
	all := v.Op == op.SumSquares || v.Op == op.AllFinite
	k.collapse(x.Shape, v.Attr.Axes, all)
	k.finish.reduce = k
	b.wantShared(8 * k.outputs * k.segments)
	b.wantScratch(8 * 2 * block)
	return k
}

// collapse settles the geometry.
func (k *reduce[T, A]) collapse(s op.Shape, axes []int, all bool) {
	var dims []int
	var reduced []bool
	for i, d := range s {
		r := all
		for _, a := range axes {
			r = r || a == i
		}
		if r {
			k.count *= d
		}
		if d == 1 {
			continue
		}
		if n := len(dims) - 1; n >= 0 && reduced[n] == r {
			dims[n] *= d
			continue
		}
		dims, reduced = append(dims, d), append(reduced, r)
	}
	strides := rowMajor(dims)
	n := len(dims)
	if n > 0 {
		n--
		if reduced[n] {
			k.length = dims[n]
		} else {
			k.columns, k.byColumn = dims[n], true
		}
	}
	for i := range n {
		if reduced[i] {
			k.redDims, k.redStrides = append(k.redDims, dims[i]), append(k.redStrides, strides[i])
		} else {
			k.keptDims, k.keptStrides = append(k.keptDims, dims[i]), append(k.keptStrides, strides[i])
		}
	}
	if k.byColumn {
		k.tiles = max(1, (k.columns+columnTile-1)/columnTile)
		k.segment = min(foldBlock, max(16, segmentSize/max(1, k.columns)))
	} else {
		k.tiles = 1
		k.segment = segmentSize
	}
	k.segments = max(1, (k.count+k.segment-1)/k.segment)
	k.units = k.outputs / max(1, k.columns) * k.segments * k.tiles
	k.group = max(1, 2*segmentSize/max(1, min(k.segment, k.count)*min(k.columns, columnTile)))
}

func (k *reduce[T, A]) run(r *run) {
	if k.outputs == 0 {
		return
	}
	if k.count > 0 {
		r.parallel(k, (k.units+k.group-1)/k.group, k.outputs*k.count)
	} else {
		acc := viewOf[A](r.shared, k.outputs)
		for i := range acc {
			acc[i] = k.folds.empty
		}
	}
	r.parallel(&k.finish, (k.outputs+block-1)/block, k.outputs*(k.segments+1))
}

func (k *reduce[T, A]) chunk(r *run, w *worker, c int) {
	acc := viewOf[A](r.shared, k.outputs*k.segments)
	for u := c * k.group; u < min(k.units, (c+1)*k.group); u++ {
		tile := u % k.tiles
		seg := u / k.tiles % k.segments
		o := u / k.tiles / k.segments
		start := offsetAt(o, k.keptDims, k.keptStrides)
		lo, hi := seg*k.segment, min(k.count, (seg+1)*k.segment)
		if !k.byColumn {
			acc[o*k.segments+seg] = k.runs(r, w, start, lo, hi)
			continue
		}
		col := tile * columnTile
		cols := min(columnTile, k.columns-col)
		at := (o*k.segments+seg)*k.columns + col
		k.rows(r, w, acc[at:at+cols], start+col, lo, hi)
	}
}

// load returns n elements from element at on as T.
func (k *reduce[T, A]) load(r *run, w *worker, at, n int) []T {
	s := k.from.Size()
	data := r.values[k.src][at*s : (at+n)*s]
	if k.from != dtype.Bool && native(k.from) {
		return dtype.View[T](data)
	}
	x := viewOf[T](w.scratch, n)
	if k.from == dtype.Bool {
		dtype.ToI64(any(x).([]int64), data, dtype.Bool)
	} else {
		load(w.scratch[:n*sizeOf[T]()], data, k.from)
	}
	return x
}

// runs folds elements lo to hi-1 of those that belong to a result.
func (k *reduce[T, A]) runs(r *run, w *worker, start, lo, hi int) A {
	total := k.folds.empty
	for lo < hi {
		from := lo % k.length
		n := min(k.length-from, hi-lo, block)
		at := start + from
		if len(k.redDims) > 0 {
			at += offsetAt(lo/k.length, k.redDims, k.redStrides)
		}
		lo += n
		for x := k.load(r, w, at, n); len(x) > 0; {
			m := min(len(x), foldBlock)
			total = k.folds.join(total, k.folds.run(x[:m]))
			x = x[m:]
		}
	}
	return total
}

// rows folds rows lo to hi-1 of those that belong to a result into acc.
func (k *reduce[T, A]) rows(r *run, w *worker, acc []A, start, lo, hi int) {
	for i := range acc {
		acc[i] = k.folds.empty
	}
	last := 1
	if n := len(k.redDims); n > 0 {
		last = k.redDims[n-1]
	}
	for lo < hi {
		at := start + offsetAt(lo, k.redDims, k.redStrides)
		n := 1
		if len(acc) == k.columns { // rows of the last reduced axis lie side by side
			n = min(hi-lo, last-lo%last, max(1, block/k.columns))
		}
		for x := k.load(r, w, at, n*len(acc)); len(x) > 0; x = x[len(acc):] {
			k.folds.each(acc, x[:len(acc)])
		}
		lo += n
	}
}

// finishReduce joins segments and stores results.
type finishReduce[T number, A accumulator] struct{ reduce *reduce[T, A] }

func (f *finishReduce[T, A]) chunk(r *run, w *worker, c int) {
	k := f.reduce
	acc := viewOf[A](r.shared, k.outputs*max(1, k.segments))
	lo, hi := c*block, min(k.outputs, (c+1)*block)
	x := viewOf[A](w.scratch, hi-lo)
	if k.segments == 1 {
		copy(x, acc[lo:hi])
	} else {
		for i := range x {
			at := (lo+i)/k.columns*k.segments*k.columns + (lo+i)%k.columns
			total := acc[at]
			for range k.segments - 1 {
				at += k.columns
				total = k.folds.join(total, acc[at])
			}
			x[i] = total
		}
	}
	out := r.values[k.out][lo*k.to.Size() : hi*k.to.Size()]
	if k.mean {
		m := viewOf[float64](w.scratch[8*block:], len(x))
		for i, v := range x {
			m[i] = float64(v) / float64(k.count)
		}
		dtype.FromF64(out, m, k.to)
		return
	}
	switch x := any(x).(type) {
	case []float64:
		dtype.FromF64(out, x, k.to)
	case []int64:
		if k.wraps && k.to.IsInt() {
			wrap(x, k.to)
		}
		dtype.FromI64(out, x, k.to)
	}
}

func floatFolds[T real](c op.Code) folds[T, float64] {
	switch c {
	case op.Max:
		return folds[T, float64]{math.Inf(-1), maxRun[T], maxEach[T, float64], func(a, b float64) float64 { return max(a, b) }}
	case op.Min:
		return folds[T, float64]{math.Inf(1), minRun[T], minEach[T, float64], func(a, b float64) float64 { return min(a, b) }}
	case op.AllFinite:
		return folds[T, float64]{1, finiteRun[T], nil, func(a, b float64) float64 { return min(a, b) }}
	}
	return sumFolds[T, float64](c)
}

func intFolds(c op.Code) folds[int64, int64] {
	switch c {
	case op.Max:
		return folds[int64, int64]{math.MinInt64, slices.Max[[]int64], maxEach[int64, int64], func(a, b int64) int64 { return max(a, b) }}
	case op.Min:
		return folds[int64, int64]{math.MaxInt64, slices.Min[[]int64], minEach[int64, int64], func(a, b int64) int64 { return min(a, b) }}
	case op.AllFinite:
		one := func([]int64) int64 { return 1 }
		return folds[int64, int64]{1, one, nil, func(a, b int64) int64 { return min(a, b) }}
	}
	return sumFolds[int64, int64](c)
}

func sumFolds[T number, A accumulator](c op.Code) folds[T, A] {
	plus := func(a, b A) A { return a + b }
	switch c {
	case op.SumSquares:
		return folds[T, A]{0, squaresRun[T, A], nil, plus}
	case op.Prod:
		return folds[T, A]{1, prodRun[T, A], prodEach[T, A], func(a, b A) A { return a * b }}
	}
	return folds[T, A]{0, sumRun[T, A], sumEach[T, A], plus}
}

func sumRun[T number, A accumulator](x []T) A {
	var a, b, c, d A
	for ; len(x) >= 4; x = x[4:] {
		a += A(x[0])
		b += A(x[1])
		c += A(x[2])
		d += A(x[3])
	}
	for _, v := range x {
		a += A(v)
	}
	return (a + b) + (c + d)
}

func squaresRun[T number, A accumulator](x []T) A {
	var a, b, c, d A
	for ; len(x) >= 4; x = x[4:] {
		a += A(x[0]) * A(x[0])
		b += A(x[1]) * A(x[1])
		c += A(x[2]) * A(x[2])
		d += A(x[3]) * A(x[3])
	}
	for _, v := range x {
		a += A(v) * A(v)
	}
	return (a + b) + (c + d)
}

func prodRun[T number, A accumulator](x []T) A {
	p := A(1)
	for _, v := range x {
		p *= A(v)
	}
	return p
}

func maxRun[T real](x []T) float64 {
	m := x[0]
	for _, v := range x {
		if v > m || v != v { // faster than the built-in; a NaN stays
			m = v
		}
	}
	return float64(m)
}

func minRun[T real](x []T) float64 {
	m := x[0]
	for _, v := range x {
		if v < m || v != v { // faster than the built-in; a NaN stays
			m = v
		}
	}
	return float64(m)
}

// finiteRun is 1 if all elements are finite, else 0: x-x is NaN for the others
// and a NaN stays in a sum.
func finiteRun[T real](x []T) float64 {
	var a, b T
	for ; len(x) >= 2; x = x[2:] {
		a += x[0] - x[0]
		b += x[1] - x[1]
	}
	for _, v := range x {
		a += v - v
	}
	if a+b == 0 {
		return 1
	}
	return 0
}

func sumEach[T number, A accumulator](acc []A, x []T) {
	x = x[:len(acc)]
	for i := range acc {
		acc[i] += A(x[i])
	}
}

func prodEach[T number, A accumulator](acc []A, x []T) {
	x = x[:len(acc)]
	for i := range acc {
		acc[i] *= A(x[i])
	}
}

func maxEach[T number, A accumulator](acc []A, x []T) {
	x = x[:len(acc)]
	for i := range acc {
		if v := A(x[i]); v > acc[i] || v != v {
			acc[i] = v
		}
	}
}

func minEach[T number, A accumulator](acc []A, x []T) {
	x = x[:len(acc)]
	for i := range acc {
		if v := A(x[i]); v < acc[i] || v != v {
			acc[i] = v
		}
	}
}
