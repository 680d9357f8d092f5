// Package move has the kernels that rearrange elements: copies, transposes, broadcasts,
// slices, concatenation and padding; gathers and scatters by indices.
//
// Where to look: move.go copies rectangles of strided memory, transpose.go is the case
// of two swapped axes; gather.go and gather_along.go read by indices, scatter.go and
// rows.go write by them. Indices are data, so they are checked here.
package move

import (
	"slices"
	"unsafe"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/exec"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/lanes"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/tiling"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/vec"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// mover copies elements between two layouts of the same axes. It implements Reshape,
// Barrier, Transpose, BroadcastTo and Slice, and most of Concat and Pad. Axes are
// collapsed as far as both layouts allow.
type mover struct {
	src, dst           int
	size               int   // bytes of an element
	dims               []int // outermost first; at least one
	from, to           []int // strides in elements
	fromStart, toStart int

	rows  int // product of all axes but the last
	group int // rows per chunk
	part  int // elements of the last axis per chunk
	parts int // per row
	n     int

	nonTemporal bool // the result is stored non-temporally
	inOrder     bool // and a chunk reads contiguous memory
	transposition
}

func newMover(b *exec.Builder, src, dst, size int, dims, from, to []int, fromStart, toStart int) *mover {
	m := &mover{src: src, dst: dst, size: size, fromStart: fromStart, toStart: toStart, n: 1}
	for i, d := range dims {
		m.n *= d
		last := len(m.dims) - 1
		switch {
		case d == 1:
		case last >= 0 && m.from[last] == from[i]*d && m.to[last] == to[i]*d:
			m.dims[last] *= d
			m.from[last], m.to[last] = from[i], to[i]
		default:
			m.dims, m.from, m.to = append(m.dims, d), append(m.from, from[i]), append(m.to, to[i])
		}
	}
	if len(m.dims) == 0 {
		m.dims, m.from, m.to = []int{1}, []int{1}, []int{1}
	}
	inner := m.dims[len(m.dims)-1]
	if m.n > 0 {
		m.rows = m.n / inner
	}
	m.part = min(max(1, inner), tiling.Grain)
	m.group = max(1, tiling.Grain/m.part)
	if last := len(m.dims) - 1; m.from[last] != 1 || m.to[last] != 1 {
		m.part = min(m.part, tiling.Grain/64) // square, so that cache lines of both sides are used completely
		m.group = max(1, tiling.Grain/m.part)
	}
	m.nonTemporal = vec.Native() != nil && m.n*size >= lanes.NonTemporalBytes
	if last := len(m.dims) - 1; m.nonTemporal && m.part == inner {
		m.inOrder = m.to[last] == 1 && slices.Equal(m.from, tiling.RowMajor(m.dims))
	}
	m.setTransposition()
	m.parts = (inner + m.part - 1) / m.part
	b.ReserveScratch(m.stage)
	return m
}

// NewCopy returns the kernel of a movement that reads one operand and writes all of the
// result in order.
func NewCopy(b *exec.Builder, v *ir.Value) exec.Kernel {
	x, out := v.Args[0].Type.Shape, v.Type.Shape
	strides := tiling.RowMajor(x)
	from, start := make([]int, len(out)), 0
	switch v.Op {
	case op.Reshape, op.Barrier:
		from = tiling.RowMajor(out)
	case op.Result:
		from, start = tiling.RowMajor(out), v.Attr.Start[0]
	case op.Transpose:
		for i, p := range v.Attr.Perm {
			from[i] = strides[p]
		}
	case op.BroadcastTo:
		for i, d := range x {
			if d != 1 {
				from[len(out)-len(x)+i] = strides[i]
			}
		}
	case op.Slice:
		for i, s := range strides {
			from[i] = s * v.Attr.Stride[i]
			start += s * v.Attr.Start[i]
		}
	}
	return newMover(b, b.At(v.Args[0]), b.At(v), v.Type.DType.Size(), out, from, tiling.RowMajor(out), start, 0)
}

func (m *mover) Run(r *exec.Run) {
	groups := (m.rows + m.group - 1) / m.group
	r.Parallel(m, groups*m.parts, m.n)
}

func (m *mover) Chunk(r *exec.Run, w *exec.Worker, i int) {
	src, dst := r.Values[m.src], r.Values[m.dst]
	lo := i / m.parts * m.group
	hi := min(m.rows, lo+m.group)
	col := i % m.parts * m.part
	last := len(m.dims) - 1
	cols := min(m.part, m.dims[last]-col)
	outer := m.dims[:last]
	if s := m.size; m.inOrder {
		// In one long run.
		vec.Native().PrefetchLoad(src[(m.fromStart+lo*cols)*s : (m.fromStart+hi*cols)*s])
	}
	for lo < hi {
		// Only rows along one axis can be copied together.
		f := m.fromStart + tiling.OffsetAt(lo, outer, m.from) + col*m.from[last]
		t := m.toStart + tiling.OffsetAt(lo, outer, m.to) + col*m.to[last]
		rows, fs, ts := 1, 0, 0
		if last > 0 {
			rows = min(hi-lo, m.dims[last-1]-lo%m.dims[last-1])
			fs, ts = m.from[last-1], m.to[last-1]
		}
		m.rectangle(w.Scratch[:m.stage], src, dst, f, t, rows, cols, fs, ts)
		lo += rows
	}
}

// rectangle copies rows × cols elements from element f of src to element t of
// dst, where rows are fs and ts elements apart.
func (m *mover) rectangle(scratch, src, dst []byte, f, t, rows, cols, fs, ts int) {
	last := len(m.dims) - 1
	fc, tc := m.from[last], m.to[last]
	switch s := m.size; {
	case fc == 1 && tc == 1 && m.nonTemporal && wholeLines(unsafe.Pointer(&dst[t*s]), cols*s, ts*s):
		v := vec.Native()
		v.CopyRowsNT(dst[t*s:], src[f*s:], cols*s, rows, ts*s, fs*s)
		v.Fence()
	case fc == 1 && tc == 1:
		for range rows {
			copy(dst[t*s:(t+cols)*s], src[f*s:(f+cols)*s])
			f += fs
			t += ts
		}
	case fc == 0 && tc == 1 && cols >= MaxRepeats:
		for range rows {
			row := dst[t*s : (t+cols)*s]
			exec.Repeat(row, copy(row, src[f*s:(f+1)*s]))
			f += fs
			t += ts
		}
	case m.words != nil && fs == 1:
		transpose(m, m.words, dtype.View[uint32](scratch), dtype.View[uint32](dst), dtype.View[uint32](src), f, t, rows, cols, ts, fc)
	case m.words16 != nil && fs == 1:
		transpose(m, m.words16, dtype.View[uint16](scratch), dtype.View[uint16](dst), dtype.View[uint16](src), f, t, rows, cols, ts, fc)
	default:
		Scatter(dst, src, s, f, t, rows, cols, fs, ts, fc, tc)
	}
}

// wholeLines reports whether rows of n bytes from dst on, to bytes apart, are whole
// cache lines.
func wholeLines(dst unsafe.Pointer, n, to int) bool {
	return n%vec.Line == 0 && to%vec.Line == 0 && uintptr(dst)%vec.Line == 0
}

// Scatter is rectangle for strided elements, by their size.
func Scatter(dst, src []byte, size, f, t, rows, cols, fs, ts, fc, tc int) {
	switch size {
	case 1:
		scatterOf(dst, src, f, t, rows, cols, fs, ts, fc, tc)
	case 2:
		scatterOf(dtype.View[uint16](dst), dtype.View[uint16](src), f, t, rows, cols, fs, ts, fc, tc)
	case 4:
		scatterOf(dtype.View[uint32](dst), dtype.View[uint32](src), f, t, rows, cols, fs, ts, fc, tc)
	case 8:
		scatterOf(dtype.View[uint64](dst), dtype.View[uint64](src), f, t, rows, cols, fs, ts, fc, tc)
	}
}

// scatterOf copies square tiles, so that a cache line that holds elements of several
// rows is used completely while it is in L1.
func scatterOf[T any](dst, src []T, f, t, rows, cols, fs, ts, fc, tc int) {
	const tile = 16
	for r0 := 0; r0 < rows; r0 += tile {
		for c0 := 0; c0 < cols; c0 += tile {
			for r := r0; r < min(r0+tile, rows); r++ {
				i, j := f+r*fs+c0*fc, t+r*ts+c0*tc
				for range min(tile, cols-c0) {
					dst[j] = src[i]
					i += fc
					j += tc
				}
			}
		}
	}
}

// several runs kernels one after the other.
type several []exec.Kernel

func (k several) Run(r *exec.Run) {
	for _, one := range k {
		one.Run(r)
	}
}

func NewConcat(b *exec.Builder, v *ir.Value) exec.Kernel {
	axis := v.Attr.Axes[0]
	to := tiling.RowMajor(v.Type.Shape)
	var k several
	at := 0
	for _, a := range v.Args {
		s := a.Type.Shape
		k = append(k, newMover(b, b.At(a), b.At(v), v.Type.DType.Size(), s, tiling.RowMajor(s), to, 0, at*to[axis]))
		at += s[axis]
	}
	return k
}
