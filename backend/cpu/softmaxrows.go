package cpu

import (
	"math"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/exec"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/lanes"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/tiling"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/vec"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// softmaxPasses are the softmax of a row or its logarithm in assembly: powers
// of two, which a common factor of all takes to those of e.
type softmaxPasses struct {
	lanes.Rows
	log     bool
	max     func(x []byte) float64 // NaN if there is one
	extreme func(e, x, t []float32)
}

func newSoftmaxPasses(result op.Type, width int, log bool, from dtype.DType) *softmaxPasses {
	p := &softmaxPasses{Rows: lanes.NewRows(result, width, from), log: log, extreme: softRow[float32](log)}
	p.max = maxOf(p.In)
	return p
}

// maxOf is the largest element of a row, NaN if there is one, in assembly.
func maxOf(d dtype.DType) func(x []byte) float64 {
	v := vec.Current()
	switch d {
	case dtype.Float16:
		return func(x []byte) float64 { return v.F16.RowMax(dtype.View[uint16](x)) }
	case dtype.BFloat16:
		return func(x []byte) float64 { return v.BF16.RowMax(dtype.View[uint16](x)) }
	}
	return func(x []byte) float64 { return v.Max(dtype.View[float32](x)) }
}

// rowScratch is the elements that come between, for a row of n.
func rowScratch(n int) int { return lanes.PassNumbers + 3*n }

// softmaxRow is dst from x, with t of rowScratch elements, and ahead, which is
// read next.
func (p *softmaxPasses) softmaxRow(dst, x []byte, t []float32, ahead []byte) {
	n := p.Length(x)
	s, e := t[:lanes.PassNumbers], t[lanes.PassNumbers:][:n]
	top := p.max(x)
	if !ordinary(top) {
		p.far(dst, x, e, t[lanes.PassNumbers+n:])
		return
	}
	shift := float32(-top * math.Log2E)
	sum := p.Exp2Sum(e, x, math.Log2E, shift, s, ahead)
	if !p.log {
		p.ScaleRow(dst, e, float32(1/sum), s)
		return
	}
	const scale = float32(math.Log2E)
	s[0] = float32(top)
	s[1] = float32(math.Log(sum) - math.Ln2*(float64(shift)+top*float64(scale)))
	p.LessRow(dst, x, s)
}

// ordinary reports whether the errors of a row's numbers times log₂e are a small
// factor of its exponentials, which divides out; no NaN is.
func ordinary(top float64) bool { return math.Abs(top) < 1<<24 }

// far is softmaxRow for rows with elements of any size.
func (p *softmaxPasses) far(dst, x []byte, e, t []float32) {
	if p.In == dtype.Float32 {
		p.extreme(dtype.View[float32](dst), dtype.View[float32](x), t)
		return
	}
	n := len(e)
	lanes.ToF32(t[:n], x, p.In)
	p.extreme(e, t[:n], t[n:])
	lanes.FromF32(dst, e, p.In)
}

// strided is softmaxRow for a row that was brought together.
func (p *softmaxPasses) strided(e, x, t []float32) {
	p.softmaxRow(lanes.BytesOf(e), lanes.BytesOf(x), t, nil)
}

// softmaxRows is Softmax and LogSoftmax of rows side by side, in assembly.
type softmaxRows struct {
	*softmaxPasses
	src, out          int
	from              dtype.DType
	n, rows           int
	group             int // rows of a chunk
	atX, atOut, atRaw int
	atE               [2]int // of rows whose stores go along with the next row's powers
}

func newSoftmaxRows(b *exec.Builder, v *ir.Value) exec.Kernel {
	x := v.Args[0].Type
	n := x.Shape[v.Attr.Axes[0]]
	k := &softmaxRows{
		softmaxPasses: newSoftmaxPasses(v.Type, n, v.Op == op.LogSoftmax, x.DType),
		src:           b.At(v.Args[0]), out: b.At(v), from: x.DType, n: n, rows: x.Shape.Size() / n,
	}
	k.group = max(1, 4*lanes.Block/n)
	var l tiling.Layout
	l.Take(4 * rowScratch(n))
	k.atX, k.atOut, k.atRaw = l.Take(4*n), l.Take(4*n), l.Take(2*n)
	if k.Stores.Exp2SumScale != nil && !k.log && !k.Staged && x.DType == k.In && k.Whole(n) == n && n <= 4*lanes.Block {
		k.group = max(k.group, min(16*k.group, k.rows/32))
		k.atE = [2]int{l.TakeApart(4 * n), l.TakeApart(4 * n)}
	}
	b.ReserveScratch(int(l))
	return k
}

func (k *softmaxRows) Run(r *exec.Run) {
	r.Parallel(k, tiling.CeilDiv(k.rows, k.group), k.rows*k.n*8)
}

func (k *softmaxRows) Chunk(r *exec.Run, w *exec.Worker, c int) {
	src, dst, size := r.Values[k.src], r.Values[k.out], k.n*k.To.Size()
	t := lanes.ViewOf[float32](w.Scratch, rowScratch(k.n))
	if k.atE[0] > 0 {
		e := [2][]float32{lanes.ViewOf[float32](w.Scratch[k.atE[0]:], k.n), lanes.ViewOf[float32](w.Scratch[k.atE[1]:], k.n)}
		k.inTurns(src, dst, c*k.group, min(k.rows, (c+1)*k.group), t, e)
		return
	}
	for i := c * k.group; i < min(k.rows, (c+1)*k.group); i++ {
		x := k.Row(src, i, k.n, k.from, w.Scratch[k.atX:])
		to := dst[i*size : (i+1)*size]
		out := to
		if k.Staged {
			out = w.Scratch[k.atOut:][:4*k.n]
		}
		k.softmaxRow(out, x, t, k.Next(src, i, k.n, k.from))
		if k.Staged {
			k.Store(to, out, w.Scratch[k.atRaw:])
		}
	}
	k.Fence()
}

// inTurns is softmaxRow for rows from first to end of 16 bits: the powers of a row
// are computed while the row before, in the other of e, is stored, and the largest
// of the next one is looked for. Where there is none before, the row itself is
// stored, and then once more.
func (k *softmaxRows) inTurns(src, dst []byte, first, end int, t []float32, e [2][]float32) {
	size, s := k.n*k.In.Size(), t[:lanes.PassNumbers]
	open := -1 // the row whose powers are not yet stored
	finish := func() {
		if open >= 0 {
			k.ScaleRow(dst[open*size:(open+1)*size], e[open%2], 1/s[3], s)
		}
		open = -1
	}
	row := func(i int) []byte { return src[i*size : (i+1)*size] }
	top := k.max(row(first))
	for i := first; i < end; i++ {
		x, next := row(i), row(min(i+1, end-1))
		if !ordinary(top) {
			finish()
			k.far(dst[i*size:(i+1)*size], x, e[i%2], t[lanes.PassNumbers+k.n:])
			top = k.max(next)
			continue
		}
		to := open
		if s[2] = 1 / s[3]; open < 0 {
			to, s[2] = i, 0
		}
		s[0], s[1] = math.Log2E, float32(-top*math.Log2E)
		top = k.Stores.Exp2SumScale(dst[to*size:(to+1)*size], e[(i+1)%2], e[i%2], x, s, next, src[min(i+2, k.rows)*size:])
		open = i
	}
	finish()
	k.Fence()
}
