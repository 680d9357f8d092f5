package move

import (
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/exec"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/lanes"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/tiling"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/vec"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// pad is the kernel of Pad. It writes the result row by row: fill, or fill, a row of
// the operand, and fill. Axes after the last padded one are part of a row.
type pad struct {
	src, dst    int
	size        int // bytes of an element
	fill        []byte
	dims, low   []int // sizes of the result and the operand's first index, without the rows' axis
	inside      []int // of the operand
	row         int   // bytes of a row of the result
	head        int   // bytes of fill before the row of the operand
	body        int   // bytes of the row of the operand
	rows        int
	group       int  // rows per chunk
	border      bool // the rows of the operand are copied by another kernel
	nonTemporal bool
}

func NewPad(b *exec.Builder, v *ir.Value) exec.Kernel {
	x, out := v.Args[0].Type.Shape, v.Type.Shape
	k := &pad{src: b.At(v.Args[0]), dst: b.At(v), size: v.Type.DType.Size()}
	last := len(out) - 1
	for last > 0 && x[last] == out[last] {
		last--
	}
	inner := out[min(len(out), last+1):].Size() * k.size
	k.row, k.body, k.rows = inner, inner, 1
	if last >= 0 {
		k.row, k.head, k.body = out[last]*inner, v.Attr.Low[last]*inner, x[last]*inner
		k.dims, k.low, k.inside = out[:last], v.Attr.Low[:last], x[:last]
		k.rows = op.Shape(k.dims).Size()
	}
	k.group = max(1, 2*tiling.Grain/max(1, k.row))
	k.fill = make([]byte, min(k.row, 4096))
	exec.Fill(k.fill, v.Type.DType, v.Attr.Value)
	if k.row > 4*tiling.Grain { // long rows are copied by several workers
		k.border = true
		to, start := tiling.RowMajor(out), 0
		for i, low := range v.Attr.Low {
			start += low * to[i]
		}
		return several{k, newMover(b, k.src, k.dst, k.size, x, tiling.RowMajor(x), to, 0, start)}
	}
	k.nonTemporal = vec.Native() != nil && k.rows*k.row >= lanes.NonTemporalBytes
	if k.nonTemporal {
		b.ReserveScratch(k.group * k.row)
	}
	return k
}

func (k *pad) Run(r *exec.Run) {
	if k.row > 0 {
		r.Parallel(k, (k.rows+k.group-1)/k.group, k.rows*k.row/k.size)
	}
}

func (k *pad) Chunk(r *exec.Run, w *exec.Worker, c int) {
	lo, hi := c*k.group, min(k.rows, (c+1)*k.group)
	out := r.Values[k.dst][lo*k.row : hi*k.row]
	to := out
	if k.nonTemporal {
		to = w.Scratch[:len(out)]
		k.prefetch(r.Values[k.src], lo, hi)
	}
	for i := range hi - lo {
		row := to[i*k.row:][:k.row]
		at, ok := k.operandRow(lo + i)
		if !ok {
			k.set(row)
			continue
		}
		k.set(row[:k.head])
		if !k.border {
			copy(row[k.head:], r.Values[k.src][at*k.body:(at+1)*k.body])
		}
		k.set(row[k.head+k.body:])
	}
	if k.nonTemporal {
		v := vec.Native()
		v.CopyNT(out, to)
		v.Fence()
	}
}

func (k *pad) set(dst []byte) {
	for len(dst) > 0 {
		dst = dst[copy(dst, k.fill):]
	}
}

// prefetch prefetches the operand's rows for rows lo to hi-1 in one long run.
func (k *pad) prefetch(src []byte, lo, hi int) {
	first, last := -1, -1
	for i := lo; i < hi; i++ {
		if at, ok := k.operandRow(i); ok {
			if first < 0 {
				first = at
			}
			last = at
		}
	}
	if first >= 0 {
		vec.Native().PrefetchLoad(src[first*k.body : (last+1)*k.body])
	}
}

// operandRow returns the operand's row that row i of the result contains, if there is
// one.
func (k *pad) operandRow(i int) (int, bool) {
	at, stride := 0, 1
	for a := len(k.dims) - 1; a >= 0; a-- {
		j := i%k.dims[a] - k.low[a]
		i /= k.dims[a]
		if j < 0 || j >= k.inside[a] {
			return 0, false
		}
		at += j * stride
		stride *= k.inside[a]
	}
	return at, true
}
