package gemm

import (
	"math/bits"
	"sync"
	"unsafe"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/vec"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/portablemath"
)

// Reference is the loop that every Kernel equals, except for rounding: pairs
// and inner say what kind it is.
func Reference(rows, cols int, pairs, inner bool) Kernel {
	return func(k int, a unsafe.Pointer, lda int, b unsafe.Pointer, ldb int, s unsafe.Pointer, lds int, d unsafe.Pointer, ldd int, mask uint) {
		for i := range rows {
			for j := range cols {
				if mask>>j&1 == 0 {
					continue
				}
				var sum float32
				for p := range k {
					at := i*lda + 4*p
					if inner {
						at = p*lda + 4*i
					}
					x := unsafe.Add(a, at)
					y := unsafe.Add(b, p*ldb+4*j)
					if pairs {
						u, v := (*[2]uint16)(x), (*[2]uint16)(y)
						sum += dtype.BF16ToF32(u[1]) * dtype.BF16ToF32(v[1])
						sum += dtype.BF16ToF32(u[0]) * dtype.BF16ToF32(v[0])
						continue
					}
					sum += *(*float32)(x) * *(*float32)(y)
				}
				if s != nil {
					sum += *(*float32)(unsafe.Add(s, i*lds+4*j))
				}
				*(*float32)(unsafe.Add(d, i*ldd+4*j)) = sum
			}
		}
	}
}

// RunsReference is the loop that every RunsKernel equals, except for rounding.
func RunsReference(parts, rows, cols, deep int) RunsKernel {
	return func(n int, a unsafe.Pointer, lda, lowA int, at unsafe.Pointer, b unsafe.Pointer, lowB int, s unsafe.Pointer, lds int, d unsafe.Pointer, ldd int, _ unsafe.Pointer) {
		kernel, mask := Reference(rows, cols, true, false), uint(1)<<cols-1
		for q, from := range unsafe.Slice((*int64)(at), n) {
			for i := range parts * parts {
				x, y := unsafe.Add(a, int(from)+i/parts*lowA), unsafe.Add(b, 4*q*deep*cols+i%parts*lowB)
				kernel(deep, x, lda, y, 4*cols, s, lds, d, ldd, mask)
				s, lds = d, ldd
			}
		}
	}
}

// copyLanes is Tiles.Copy in Go.
func copyLanes(d unsafe.Pointer, ldd, drow int, s unsafe.Pointer, lds, srow int, cols, rows int, load, store uint) {
	n, all := bits.Len(load&store), bits.Len(store)
	for y := range rows {
		for x := range cols {
			to := unsafe.Slice((*uint16)(unsafe.Add(d, y*drow+x*ldd)), all)
			clear(to[n:])
			copy(to, unsafe.Slice((*uint16)(unsafe.Add(s, y*srow+x*lds)), n))
		}
	}
}

// copyPatches is Tiles.Patches in Go.
func copyPatches(d unsafe.Pointer, ldd, drow int, s unsafe.Pointer, lds, srow int, cols, rows, runs, next, n int) {
	for y := range rows {
		for x := range cols {
			to := unsafe.Slice((*uint16)(unsafe.Add(d, y*drow+x*ldd)), 32)
			clear(to)
			for i := range runs {
				copy(to[i*n:], unsafe.Slice((*uint16)(unsafe.Add(s, y*srow+x*lds+i*next)), n))
			}
		}
	}
}

// load is element i after p, as float32.
func (e Element) load(p unsafe.Pointer, i int) float32 {
	p = at(p, i, e.Size())
	switch e {
	case F32:
		return *(*float32)(p)
	case F16:
		return dtype.F16ToF32(*(*uint16)(p))
	case RoundF16:
		return dtype.Float16.Round(*(*float32)(p))
	}
	return dtype.BF16ToF32(*(*uint16)(p))
}

// lanes is Set.Lanes in Go.
func lanes(e Element) Pack {
	return func(d unsafe.Pointer, ldd int, s unsafe.Pointer, lds int, k int, load, store uint) {
		n, all := bits.Len(load&store), bits.Len(store)
		if e == F32 && n == 16 && all == 16 {
			for p := range k {
				*(*[16]float32)(unsafe.Add(d, p*ldd)) = *(*[16]float32)(unsafe.Add(s, p*lds))
			}
			return
		}
		for p := range k {
			row, to := unsafe.Add(s, p*lds), unsafe.Slice((*float32)(unsafe.Add(d, p*ldd)), all)
			clear(to[n:])
			if e == F32 {
				copy(to, unsafe.Slice((*float32)(row), n))
				continue
			}
			for j := range to[:n] {
				to[j] = e.load(row, j)
			}
		}
	}
}

// lanesBy is lanes with conversions of rows.
func lanesBy(e Element, widen Convert) Pack {
	return func(d unsafe.Pointer, ldd int, s unsafe.Pointer, lds int, k int, load, store uint) {
		n, all := bits.Len(load&store), bits.Len(store)
		for p := range k {
			to := unsafe.Add(d, p*ldd)
			widen(to, unsafe.Add(s, p*lds), n)
			clear(unsafe.Slice((*float32)(to), all)[n:])
		}
	}
}

// transpose is Set.Transpose in Go.
func transpose(e Element) Pack {
	return func(d unsafe.Pointer, ldd int, s unsafe.Pointer, lds int, k int, load, store uint) {
		n, all := bits.Len(load&store), bits.Len(store)
		for p := range k {
			to := unsafe.Slice((*float32)(unsafe.Add(d, p*ldd)), all)
			for j := range n {
				to[j] = e.load(unsafe.Add(s, j*lds), p)
			}
			clear(to[n:])
		}
	}
}

// pairLanes is Set.Lanes of Pairs in Go: two rows make a row of pairs, and
// what is missing of the last is zero.
func pairLanes(d unsafe.Pointer, ldd int, s unsafe.Pointer, lds int, k int, load, store uint) {
	packPairs(d, ldd, s, 2, lds, k, load, store)
}

// pairTranspose is Set.Transpose of Pairs in Go.
func pairTranspose(d unsafe.Pointer, ldd int, s unsafe.Pointer, lds int, k int, load, store uint) {
	packPairs(d, ldd, s, lds, 2, k, load, store)
}

// packPairs packs elements j*lane + p*inner bytes after s.
func packPairs(d unsafe.Pointer, ldd int, s unsafe.Pointer, lane, inner, k int, load, store uint) {
	for p := 0; p < k; p += 2 {
		for j := range bits.Len(store) {
			var pair [2]uint16
			for h := range min(2, k-p) {
				if load>>j&1 != 0 {
					pair[h] = *(*uint16)(unsafe.Add(s, j*lane+(p+h)*inner))
				}
			}
			*(*[2]uint16)(unsafe.Add(d, p/2*ldd+4*j)) = pair
		}
	}
}

// widen is Set.Widen in Go.
func widen(e Element) Convert {
	return func(d, s unsafe.Pointer, n int) {
		to := unsafe.Slice((*float32)(d), n)
		for i := range to {
			to[i] = e.load(s, i)
		}
	}
}

// narrow is Set.Narrow in Go.
func narrow(e Element) Convert {
	return func(d, s unsafe.Pointer, n int) {
		for i, x := range unsafe.Slice((*float32)(s), n) {
			h := (*uint16)(at(d, i, 2))
			if e == F16 {
				*h = dtype.F16FromF32(x)
			} else {
				*h = dtype.BF16FromF32(x)
			}
		}
	}
}

// portable are the routines in Go: a set takes those for which it has no
// assembly, and tests compare with them.
var portable = Set{
	Name:      "portable",
	Lanes:     [elements]Pack{lanes(F32), lanes(F16), lanes(BF16), pairLanes, lanes(RoundF16)},
	Transpose: [elements]Pack{transpose(F32), transpose(F16), transpose(BF16), pairTranspose, transpose(RoundF16)},
	Widen:     [elements]Convert{F16: widen(F16), BF16: widen(BF16), RoundF16: widen(RoundF16)},
	Narrow:    [elements]Convert{F16: narrow(F16), BF16: narrow(BF16)},
}

// depthwise is Set.Depthwise in Go, or on levels that have loops of package vec alone by sums of
// products down columns.
func depthwise(n, taps int, at, x unsafe.Pointer, xs int, y unsafe.Pointer, _ int, d unsafe.Pointer, ds int, mask uint) {
	channels, whole := bits.Len(mask), 0
	v := vec.Native()
	var unused *columnOperands
	if v != nil {
		whole = channels / v.Lanes * v.Lanes
		unused = columnPool.Get().(*columnOperands)
		defer columnPool.Put(unused)
	}
	places := unsafe.Slice((*[2]int64)(at), taps)
	for i := range n {
		to := unsafe.Slice((*float32)(unsafe.Add(d, i*ds)), channels)
		clear(to)
		for _, p := range places {
			a := unsafe.Slice((*float32)(unsafe.Add(x, int(p[0])+i*xs)), channels)
			b := unsafe.Slice((*float32)(unsafe.Add(y, p[1])), channels)
			if whole > 0 {
				v.Columns.Products(unused.sum[:whole], to, unused.center[:], a, b, 1, whole)
			}
			for j := whole; j < channels; j++ {
				switch b[j] { // most factors of transforms need no rounding
				case 1:
					to[j] += a[j]
				case -1:
					to[j] -= a[j]
				default:
					to[j] = portablemath.FMA32(a[j], b[j], to[j])
				}
			}
		}
	}
}

// columnOperands are what sums of products down columns need besides: sums of y, which nobody
// reads, and zeros that are subtracted from x.
type columnOperands struct{ sum, center [32]float32 }

var columnPool = sync.Pool{New: func() any { return new(columnOperands) }}

// The matrices of Winograd's transforms, see Set.WinogradSource.
var (
	sourceRows = [][]float32{{1, 0, -1, 0}, {0, 1, 1, 0}, {0, -1, 1, 0}, {0, 1, 0, -1}}
	resultRows = [][]float32{{1, 1, 1, 0}, {0, 1, -1, -1}}
	gradRows   = [][]float32{{1, 0}, {1, 1}, {1, -1}, {0, -1}}
)

// transformBy is a Transform in Go: along columns, then along rows. Each sum begins with its first
// positive term, or with zero, as those of all levels do.
func transformBy(m [][]float32) Transform {
	type terms struct{ plus, minus []int }
	var sums []terms
	for _, row := range m {
		var t terms
		for i, f := range row {
			switch {
			case f > 0:
				t.plus = append(t.plus, i)
			case f < 0:
				t.minus = append(t.minus, i)
			}
		}
		sums = append(sums, t)
	}
	size := len(m[0])
	return func(n int, x unsafe.Pointer, row, column, xs int, d unsafe.Pointer, drow, dcolumn, ds int, mask uint) {
		const most = 32 // channels
		var columns [4][4][most]float32
		channels := bits.Len(mask)
		for range n {
			for c := range size {
				for i, t := range sums {
					to := columns[i][c][:channels]
					addTerms(to, t.plus, t.minus, func(r int) []float32 {
						return unsafe.Slice((*float32)(unsafe.Add(x, r*row+c*column)), channels)
					})
				}
			}
			for i := range sums {
				for j, t := range sums {
					to := unsafe.Slice((*float32)(unsafe.Add(d, i*drow+j*dcolumn)), channels)
					addTerms(to, t.plus, t.minus, func(c int) []float32 { return columns[i][c][:channels] })
				}
			}
			x, d = unsafe.Add(x, xs), unsafe.Add(d, ds)
		}
	}
}

// addTerms sums up terms of two signs.
func addTerms(to []float32, plus, minus []int, of func(i int) []float32) {
	if len(plus) == 0 {
		clear(to)
	} else {
		copy(to, of(plus[0]))
		plus = plus[1:]
	}
	for _, i := range plus {
		for j, v := range of(i)[:len(to)] {
			to[j] += v
		}
	}
	for _, i := range minus {
		for j, v := range of(i)[:len(to)] {
			to[j] -= v
		}
	}
}
