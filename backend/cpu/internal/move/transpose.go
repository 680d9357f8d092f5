package move

import (
	"unsafe"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/lanes"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/tiling"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/vec"
)

// transposition is the case of a mover whose last axis but one is contiguous in the
// operand and whose last axis is contiguous in the result.
//
// A large result is stored non-temporally, in whole cache lines: tiles directly if its
// rows are whole lines, else by way of scratch memory.
type transposition struct {
	words   tileMover[uint32]
	words16 tileMover[uint16]
	stage   int // bytes of scratch memory
}

// stageBytes is the scratch memory of a transposition: part of L2, so that its rows are
// long.
const stageBytes = 1 << 19

func (m *mover) setTransposition() {
	v, last := vec.Native(), len(m.dims)-1
	if v == nil || last == 0 || m.from[last-1] != 1 || m.to[last] != 1 || m.from[last] == 1 {
		return
	}
	switch m.size {
	case 2:
		m.words16 = newTileMover(v.TileU16, v.TileU16NT, 16, 32, v.Transpose8U16)
	case 4:
		m.words = newTileMover(v.Tile, v.TileNT, 16, 16, v.Transpose8)
	default:
		return
	}
	rows, inner := m.dims[last-1], m.dims[last]
	m.part = min(inner, tiling.Grain/64)
	if !m.nonTemporal {
		m.group = max(1, tiling.Grain/m.part)
		return
	}
	lines := m.toStart*m.size%vec.Line == 0
	for i := range last {
		lines = lines && m.to[i]*m.size%vec.Line == 0
	}
	if lines && inner*m.size%vec.Line == 0 {
		// Two lines of each row of the result, so that few rows of the operand are read
		// at a time.
		m.part = min(inner, 2*vec.Line/m.size)
		m.group = max(rows, 1024)
		if m.from[last] == rows { // all of the operand in order
			m.part = max(m.part, min(inner, 2*tiling.Grain/rows/vec.Line*vec.Line))
			m.group = rows
		}
		return
	}
	m.stage = stageBytes
	m.part = min(inner, 256)
	m.group = stageBytes / m.size / m.part
	if m.group >= rows {
		m.group = m.group / rows * rows
	} else {
		m.group = max(vec.Line/m.size, m.group/vec.Line*vec.Line)
	}
}

// tileMover transposes rectangles: first in the largest tiles, the remaining columns
// and rows in smaller ones, the rest element by element.
type tileMover[T uint16 | uint32] []struct {
	move, nt   func(dst, src []T, to, from int)
	rows, cols int // of the result
}

func newTileMover[T uint16 | uint32](large, nt func(dst, src []T, to, from int), rows, cols int, square func(dst, src []T, to, from int)) tileMover[T] {
	k := tileMover[T]{{large, nt, rows, cols}, {square, square, 8, 8}}
	if large == nil {
		return k[1:]
	}
	return k
}

// transpose is mover.rectangle for columns of src, fc apart, that become rows of dst.
func transpose[T uint16 | uint32](m *mover, k tileMover[T], scratch, dst, src []T, f, t, rows, cols, ts, fc int) {
	v := vec.Native()
	// Two tiles side by side go down the rows, so that few rows of the operand are read
	// at a time, each from end to end. Contiguous short rows are prefetched in one run
	// instead.
	wide := 2 * k[0].cols
	if m.nonTemporal && fc == rows && rows <= 4*vec.Line {
		v.PrefetchLoad(lanes.BytesOf(src[f : f+rows*cols]))
		wide = cols
	}
	if m.stage == 0 {
		k.move(dst, src, f, t, rows, cols, ts, fc, wide, m.nonTemporal)
		if m.nonTemporal {
			v.Fence()
		}
		return
	}
	k.move(scratch, src, f, 0, rows, cols, cols, fc, wide, false)
	if ts == cols {
		v.CopyNT(lanes.BytesOf(dst[t:t+rows*cols]), lanes.BytesOf(scratch))
	} else {
		for i := range rows {
			v.CopyNT(lanes.BytesOf(dst[t+i*ts:][:cols]), lanes.BytesOf(scratch[i*cols:]))
		}
	}
	v.Fence()
}

// move transposes wide columns of the result at a time: a multiple of all tiles'
// columns, or all.
func (k tileMover[T]) move(dst, src []T, f, t, rows, cols, ts, fc, wide int, nt bool) {
	if len(k) == 0 {
		scatterOf(dst, src, f, t, rows, cols, 1, ts, fc, 1)
		return
	}
	one := k[0]
	size := int(unsafe.Sizeof(T(0)))
	r1, c1 := rows/one.rows*one.rows, cols/one.cols*one.cols
	move := one.move
	if r1 > 0 && c1 > 0 && nt && one.cols*size == vec.Line && wholeLines(unsafe.Pointer(&dst[t]), vec.Line, ts*size) {
		move = one.nt
	}
	step := max(one.rows, vec.Line/size) // a line of the operand
	for c0 := 0; c0 < c1; c0 += wide {
		for r := 0; r < r1; r += step {
			for c := c0; c < min(c1, c0+wide); c += one.cols {
				for i := r; i < min(r1, r+step); i += one.rows {
					move(dst[t+i*ts+c:], src[f+i+c*fc:], ts, fc)
				}
			}
		}
	}
	if c1 < cols {
		k[1:].move(dst, src, f+c1*fc, t+c1, r1, cols-c1, ts, fc, wide, false)
	}
	if r1 < rows {
		k[1:].move(dst, src, f+r1, t+r1*ts, rows-r1, cols, ts, fc, wide, false)
	}
}
