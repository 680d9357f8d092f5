// Package reduce has the kernels that fold axes: sums and extrema, moments,
// normalization and softmax.
//
// A reduction has a fixed tree: the result has the same bits for every number of
// workers. Where to look: reduce.go is the general reduction with the folds of fold.go;
// arg.go finds positions of extrema; moments.go has means and variances, by columns as
// cut in columns.go; normalize.go and softmax.go process rows; finite.go reuses a sum
// of squares for the check of finite numbers; stats.go compares a value with its
// reference.
package reduce

import (
	"math"
	"math/bits"
	"slices"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/exec"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/lanes"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/tiling"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/vec"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

const (
	reduceScratch = downRows * columnTile * 4 // bytes: downRows rows of float32
	segmentSize   = 1 << 13                   // elements of a segment, roughly
	runSize       = 4 * segmentSize           // of a segment that assembly folds, one page at a time
	multiRow      = 1024                      // most elements of a row that is folded together with others
	columnTile    = lanes.Block               // columns reduced together
	mostSegments  = 64                        // most segments of rows, as the results of each take memory
	downRows      = 8                         // rows reduced together: the streams that the hardware prefetcher follows
)

// reduce folds some of the axes. After collapsing, kept and reduced axes alternate. The
// last one decides how elements are read: runs of a row are folded to one number, or
// rows are folded into accumulators by column.
//
// The elements of one result are cut into segments whose length depends on the shape
// alone. Any worker folds a segment; segments are joined in order. That is the fixed
// tree.
type reduce[T lanes.Number, A accumulator] struct {
	folds    folds[T, A]
	src, out int
	from, to dtype.DType
	mean     bool
	wraps    bool

	keptDims, keptStrides []int // without the last axis if columns > 1
	redDims, redStrides   []int // without the last axis if it is a run
	outputs, count        int   // results; elements of each
	length                int   // of a run; 1 when by columns
	columns               int   // width of a row; 1 when by runs
	byColumn              bool
	segment, segments     int // elements of a run, or rows; number of segments
	images                int // segments are cut between so many images, or 0
	base                  int // offset of the segments' results in the shared memory
	tiles, group, units   int
	period                int  // rows folded as one wide row, or 0
	short                 bool // several rows are folded at a time
	near                  bool // operand is large: prefetch it in long runs
	sum                   int  // index in Run.Sums that also gets the result, or -1
	finish                finishReduce[T, A]
}

func New(b *exec.Builder, v *ir.Value) exec.Kernel {
	d := v.Args[0].Type.DType
	if k := newReusedSum(b, v); k != nil {
		return k
	}
	switch lanes.TypeOf(d) {
	case lanes.F32:
		c := v.Op
		if alsoRead(b, v) {
			c = op.SumSquares // it also tells whether all elements are finite
		}
		return makeReduce(b, v, vectorFolds(c, d))
	case lanes.F64:
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

func makeReduce[T lanes.Number, A accumulator](b *exec.Builder, v *ir.Value, f folds[T, A]) exec.Kernel {
	x := v.Args[0].Type
	k := &reduce[T, A]{
		folds: f, src: b.At(v.Args[0]), out: b.At(v), from: x.DType, to: v.Type.DType,
		mean: v.Op == op.Mean, wraps: v.Op == op.Sum || v.Op == op.Prod,
		outputs: v.Type.Shape.Size(), count: 1, length: 1, columns: 1,
	}
	all := v.Op == op.SumSquares || v.Op == op.AllFinite
	k.collapse(x.Shape, v.Attr.Axes, all)
	k.cutImages(x.Shape)
	k.settle()
	k.near = vec.Native() != nil && x.Bytes() >= lanes.NonTemporalBytes
	k.finish.reduce, k.sum = k, -1
	if alsoRead(b, v) {
		k.sum = b.ReserveSum()
		b.SquareSums[v.Args[0]] = k.sum
	}
	b.ReserveShared(8 * k.outputs * k.segments)
	b.ReserveScratch(reduceScratch)
	return k
}

// collapse sets the sizes.
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
	strides := tiling.RowMajor(dims)
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
		k.segment = max(min(256, max(16, segmentSize/max(1, k.columns))), tiling.CeilDiv(k.count, mostSegments))
		if all || slices.Contains(axes, 0) {
			k.setPeriod()
		}
	} else {
		k.tiles = 1
		k.segment = segmentSize
		if k.folds.rows != nil || k.folds.run16 != nil {
			k.segment = runSize
		}
	}
	k.segments = max(1, (k.count+k.segment-1)/k.segment)
	if !k.byColumn && k.segments > 1 {
		// An even number of equal segments: if a core has just written the first half,
		// as of a gradient, the same core reads it.
		k.segment = tiling.RoundUp(tiling.CeilDiv(k.count, tiling.RoundUp(k.segments, 2)), vec.Line/4)
		k.segments = tiling.CeilDiv(k.count, k.segment)
	}
}

// cutImages cuts the sums of a bias gradient between images if that gives segments of
// about the same length. Their number is a power of two, as exec.BatchTiled requires.
func (k *reduce[T, A]) cutImages(s op.Shape) {
	if !k.byColumn || len(k.keptDims) > 0 || len(k.redDims) != 1 || len(s) < 3 || k.columns != s[len(s)-1] || s[0] < 2*tiling.MinChunks || k.count/s[0] > 2*k.segment {
		return
	}
	n := min(mostSegments, s[0], max(2*tiling.MinChunks, k.segments))
	k.images, k.segments = s[0], 1<<(bits.Len(uint(n))-1)
	k.segment = tiling.CeilDiv(k.images, k.segments) * (k.count / k.images)
}

// bounds returns the range of a segment.
func (k *reduce[T, A]) bounds(segment int) (lo, hi int) {
	if k.images > 0 {
		lo, hi = tiling.Cut(segment, k.segments, k.images)
		plane := k.count / k.images
		return lo * plane, hi * plane
	}
	return segment * k.segment, min(k.count, (segment+1)*k.segment)
}

// settle groups the segments into chunks.
func (k *reduce[T, A]) settle() {
	k.units = k.outputs / max(1, k.columns) * k.segments * k.tiles
	k.group = max(1, 2*segmentSize/max(1, min(k.segment, k.count)*min(k.columns, columnTile)))
	most := multiRow
	if k.folds.run16 != nil { // longer ones are folded in memory
		most = multiRow / 8
	}
	if k.folds.rows != nil && k.sideBySide() && len(k.keptDims) == 1 && k.length <= most {
		k.short = true
		k.group = tiling.RoundUp(k.group, rowGroup)
	}
}

// setPeriod folds consecutive rows as one row of about columnTile columns and whole
// vectors, whose parts are joined at the end. The first axis must be reduced: of a single
// sample sums have the order that they have in a batch.
func (k *reduce[T, A]) setPeriod() {
	if k.folds.down == nil || len(k.keptDims) > 0 || len(k.redDims) != 1 || k.columns == 0 || k.columns > columnTile/2 {
		return
	}
	const vector = 16
	unit := 1
	for unit*k.columns%vector != 0 {
		unit *= 2
	}
	segment := max(k.segment, runSize/k.columns)
	if fit := min(columnTile/k.columns, segment/downRows) / unit; fit > 0 && k.count >= downRows*unit*fit {
		k.period, k.segment = unit*fit, segment
	}
}

func (k *reduce[T, A]) Run(r *exec.Run) {
	if k.outputs == 0 {
		return
	}
	if k.count > 0 {
		r.Parallel(k, (k.units+k.group-1)/k.group, k.outputs*k.count)
	} else {
		acc := lanes.ViewOf[A](r.Shared[k.base:], k.outputs)
		for i := range acc {
			acc[i] = k.folds.empty
		}
	}
	k.End(r)
}

// End joins segments.
func (k *reduce[T, A]) End(r *exec.Run) {
	r.Parallel(&k.finish, (k.outputs+lanes.Block-1)/lanes.Block, k.outputs*(k.segments+1))
}

func (k *reduce[T, A]) Chunk(r *exec.Run, w *exec.Worker, c int) {
	if k.short {
		k.shortRows(r, w, lanes.ViewOf[A](r.Shared[k.base:], k.outputs*k.segments), c*k.group, min(k.units, (c+1)*k.group))
		return
	}
	if k.near && k.sideBySide() {
		k.touch(r, c*k.group*k.length, min(k.units, (c+1)*k.group)*k.length)
	}
	for u := c * k.group; u < min(k.units, (c+1)*k.group); u++ {
		k.unit(r, w, u, 0)
	}
}

// unit folds a segment, or a tile of its columns, which lies earlier elements before
// its usual place.
func (k *reduce[T, A]) unit(r *exec.Run, w *exec.Worker, u, earlier int) {
	acc := lanes.ViewOf[A](r.Shared[k.base:], k.outputs*k.segments)
	tile := u % k.tiles
	seg := u / k.tiles % k.segments
	o := u / k.tiles / k.segments
	start := tiling.OffsetAt(o, k.keptDims, k.keptStrides) - earlier
	lo, hi := k.bounds(seg)
	if !k.byColumn {
		acc[o*k.segments+seg] = k.runs(r, w, start, lo, hi)
		return
	}
	col := tile * columnTile
	cols := min(columnTile, k.columns-col)
	at := (o*k.segments+seg)*k.columns + col
	k.rows(r, w, acc[at:at+cols], start+col, lo, hi)
}

// sideBySide reports whether units are consecutive rows.
func (k *reduce[T, A]) sideBySide() bool {
	return !k.byColumn && len(k.redDims) == 0 && len(k.keptDims) <= 1 && k.segments == 1
}

// touch prefetches elements lo to hi-1 in one long run.
func (k *reduce[T, A]) touch(r *exec.Run, lo, hi int) {
	s := k.from.Size()
	vec.Native().PrefetchLoad(r.Values[k.src][lo*s : hi*s])
}

// direct reports whether elements in memory are of type T.
func (k *reduce[T, A]) direct() bool { return k.from != dtype.Bool && lanes.Native(k.from) }

// load returns n elements from element at on as T, converted in scratch if necessary.
func (k *reduce[T, A]) load(r *exec.Run, scratch []byte, at, n int) []T {
	s := k.from.Size()
	data := r.Values[k.src][at*s : (at+n)*s]
	if k.direct() {
		return dtype.View[T](data)
	}
	x := lanes.ViewOf[T](scratch, n)
	if k.from == dtype.Bool {
		dtype.ToI64(any(x).([]int64), data, dtype.Bool)
	} else {
		lanes.Load(scratch[:n*lanes.SizeOf[T]()], data, k.from, lanes.TypeOf(k.from))
	}
	return x
}

// words16 returns n elements of a 16-bit type from element at on.
func (k *reduce[T, A]) words16(r *exec.Run, at, n int) []uint16 {
	return dtype.View[uint16](r.Values[k.src][2*at : 2*(at+n)])
}

// runs folds elements lo to hi-1 of a result.
func (k *reduce[T, A]) runs(r *exec.Run, w *exec.Worker, start, lo, hi int) A {
	total := k.folds.empty
	most := lanes.Block
	if k.direct() || k.folds.run16 != nil {
		most = k.segment
	}
	for lo < hi {
		from := lo % k.length
		n := min(k.length-from, hi-lo, most)
		at := start + from
		if len(k.redDims) > 0 {
			at += tiling.OffsetAt(lo/k.length, k.redDims, k.redStrides)
		}
		lo += n
		if k.folds.run16 != nil {
			total = k.folds.join(total, k.folds.run16(k.words16(r, at, n)))
		} else {
			total = k.folds.join(total, k.folds.run(k.load(r, w.Scratch, at, n)))
		}
	}
	return total
}

// rows folds rows lo to hi-1 of a result into acc.
func (k *reduce[T, A]) rows(r *exec.Run, w *exec.Worker, acc []A, start, lo, hi int) {
	for i := range acc {
		acc[i] = k.folds.empty
	}
	last, stride := 1, k.columns
	if n := len(k.redDims); n > 0 {
		last, stride = k.redDims[n-1], k.redStrides[n-1]
	}
	cols := len(acc)
	if k.period > 0 {
		lo += k.wideRows(r, w, acc, start, lo, hi)
	}
	for lo < hi {
		// Rows of the last reduced axis are stride apart.
		at := start + tiling.OffsetAt(lo, k.redDims, k.redStrides)
		n := min(hi-lo, last-lo%last)
		switch {
		case k.folds.down16 != nil:
			n = min(n, max(downRows, lanes.Block/cols))
			k.folds.down16(acc, k.words16(r, at, (n-1)*stride+cols), n, stride)
		case k.direct():
			n = min(n, max(downRows, lanes.Block/cols))
			k.down(acc, k.load(r, nil, at, (n-1)*stride+cols), n, stride)
		case cols == stride: // contiguous
			n = min(n, max(1, reduceScratch/(cols*lanes.SizeOf[T]())))
			k.down(acc, k.load(r, w.Scratch, at, n*cols), n, cols)
		default:
			n = min(n, max(1, reduceScratch/(cols*lanes.SizeOf[T]())))
			for i := range n {
				k.load(r, w.Scratch[i*cols*lanes.SizeOf[T]():], at+i*stride, cols)
			}
			k.down(acc, lanes.ViewOf[T](w.Scratch, n*cols), n, cols)
		}
		lo += n
	}
}

// wideRows folds as many rows from lo on as make up whole wide rows, and returns how
// many.
func (k *reduce[T, A]) wideRows(r *exec.Run, w *exec.Worker, acc []A, start, lo, hi int) int {
	wide := lanes.ViewOf[A](w.Scratch, k.period*k.columns)
	for i := range wide {
		wide[i] = k.folds.empty
	}
	n, step := (hi-lo)/k.period, downRows
	for i := 0; i < n; i += step {
		rows := min(step, n-i)
		at := start + (lo+i*k.period)*k.columns
		if k.folds.down16 != nil {
			k.folds.down16(wide, k.words16(r, at, rows*len(wide)), rows, len(wide))
		} else {
			k.folds.down(wide, k.load(r, nil, at, rows*len(wide)), rows, len(wide))
		}
	}
	for ; len(wide) > 0; wide = wide[len(acc):] {
		k.folds.joinEach(acc, wide)
	}
	return n * k.period
}

// shortRows folds rows lo to hi-1, each to one result, rowGroup and more at a time.
func (k *reduce[T, A]) shortRows(r *exec.Run, w *exec.Worker, acc []A, lo, hi int) {
	most := reduceScratch / lanes.SizeOf[T]() / k.length / rowGroup * rowGroup
	if k.near {
		k.touch(r, lo*k.length, hi*k.length)
	}
	for lo < hi {
		n := min(most, hi-lo)
		if n > rowGroup {
			n = n / rowGroup * rowGroup
		}
		if n%rowGroup != 0 || !k.folds.rows(acc[lo:lo+n], k.load(r, w.Scratch, lo*k.length, n*k.length), k.length) {
			for i := range n {
				acc[lo+i] = k.runs(r, w, (lo+i)*k.length, 0, k.length)
			}
		}
		lo += n
	}
}

// Cuts implements exec.BatchTiled.
func (k *reduce[T, A]) Cuts() (images, pieces, chunks int) {
	if k.images == 0 || k.count == 0 {
		return 0, 0, 0
	}
	return k.images, k.segments, k.segments
}

// Share implements exec.BatchTiled.
func (k *reduce[T, A]) Share(base int) int {
	k.base = base
	return base + tiling.RoundUp(8*k.outputs*k.segments, 64)
}

// Begin implements exec.BatchTiled.
func (k *reduce[T, A]) Begin(*exec.Run) {}

// Piece implements exec.BatchTiled.
func (k *reduce[T, A]) Piece(r *exec.Run, w *exec.Worker, i, pieces, shift int) {
	n := k.segments / pieces * k.tiles
	for u := i * n; u < (i+1)*n; u++ {
		k.unit(r, w, u, shift*(k.count/k.images)*k.columns)
	}
}

// down folds rows into acc.
func (k *reduce[T, A]) down(acc []A, x []T, rows, stride int) {
	if k.folds.down != nil {
		k.folds.down(acc, x, rows, stride)
		return
	}
	for i := range rows {
		k.folds.each(acc, x[i*stride:][:len(acc)])
	}
}

// finishReduce joins segments and stores results.
type finishReduce[T lanes.Number, A accumulator] struct{ reduce *reduce[T, A] }

func (f *finishReduce[T, A]) Chunk(r *exec.Run, w *exec.Worker, c int) {
	k := f.reduce
	acc := lanes.ViewOf[A](r.Shared[k.base:], k.outputs*max(1, k.segments))
	lo, hi := c*lanes.Block, min(k.outputs, (c+1)*lanes.Block)
	x := lanes.ViewOf[A](w.Scratch, hi-lo)
	if k.segments == 1 {
		copy(x, acc[lo:hi])
	} else {
		for i := 0; i < len(x); { // results that differ only in the column
			row, col := (lo+i)/k.columns, (lo+i)%k.columns
			n := min(len(x)-i, k.columns-col)
			at := row*k.segments*k.columns + col
			copy(x[i:i+n], acc[at:])
			for range k.segments - 1 {
				at += k.columns
				k.folds.joinEach(x[i:i+n], acc[at:])
			}
			i += n
		}
	}
	if k.folds.canonical {
		for i, v := range x {
			if v != v {
				v = A(math.NaN())
			}
			x[i] = v + 0 // -0 becomes +0
		}
	}
	if k.sum >= 0 {
		r.Sums[k.sum] = float64(x[0])
		if k.to == dtype.Bool {
			r.Values[k.out][0] = finiteSquares(float64(x[0]))
			return
		}
	}
	out := r.Values[k.out][lo*k.to.Size() : hi*k.to.Size()]
	if k.mean {
		m := lanes.ViewOf[float64](w.Scratch[8*lanes.Block:], len(x))
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
			lanes.Wrap(x, k.to)
		}
		dtype.FromI64(out, x, k.to)
	}
}
