package lanes

import (
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/isa"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/vec"
	"github.com/mezzo-ml/mezzo/backend/portablemath"
)

// Columns returns the sums down columns of float32. Those of package vec do the same
// operations on every level: a fused multiply-add for each product.
func Columns() *vec.ColumnSums[float32] {
	v := vec.Native()
	switch {
	case v != nil:
		return &v.Columns
	case isa.PortableBits():
		return &fusedColumns
	}
	return &PlainColumns
}

// PlainColumns are sums in Go, with a rounding for each operation; fusedColumns are those of
// package vec in Go. Both take any number of columns.
var PlainColumns, fusedColumns = columnsBy(func(x, y, z float32) float32 { return float32(x*y) + z }), columnsBy(portablemath.FMA32)

func columnsBy(fma func(x, y, z float32) float32) vec.ColumnSums[float32] {
	return vec.ColumnSums[float32]{
		Sums: func(sum, x []float32, rows, stride int) {
			for r := range rows {
				for i, e := range x[r*stride:][:len(sum)] {
					sum[i] += e
				}
			}
		},
		Deviations: func(sum, squares, center, x []float32, rows, stride int) {
			for r := range rows {
				for i, e := range x[r*stride:][:len(sum)] {
					d := e - center[i]
					sum[i] += d
					squares[i] = fma(d, d, squares[i])
				}
			}
		},
		Products: func(sum, products, center, x, grad []float32, rows, stride int) {
			for r := range rows {
				row := x[r*stride:][:len(sum)]
				for i, e := range grad[r*stride:][:len(sum)] {
					sum[i] += e
					products[i] = fma(row[i]-center[i], e, products[i])
				}
			}
		},
	}
}

// Sums of a row with portable bits are those of the loops of vec.Rows, on AVX-512 for
// GradRowSums: there are laneCount sums, each of every laneCount-th element, and laneVector
// elements at a time, of which laneCount do not fill up, are added to the first of these. Without
// these loops they are sums down the columns of a matrix. Elements after the last laneVector are
// added up in Go.
const (
	laneVector = 16
	laneCount  = 4 * laneVector
)

// laneScratch is the elements of scratch memory for sums in lanes: the sums, the centers, and,
// from laneGradsAt on, gradients of a part of a row.
const (
	laneGradsAt = 3 * laneCount
	laneScratch = 4*laneCount + lanePart
	lanePart    = 4 * laneCount
)

// laneSums are the sums of a row in lanes.
type laneSums struct {
	columns               *vec.ColumnSums[float32]
	sum, products, center []float32
	rest                  []float32 // more scratch memory
}

func newLaneSums(center float32, s []float32) laneSums {
	part := func(i int) []float32 { return s[i*laneCount:][:laneCount:laneCount] }
	l := laneSums{Columns(), part(0), part(1), part(2), s[laneGradsAt:]}
	clear(l.sum)
	clear(l.products)
	Fill(l.center, center)
	return l
}

// add adds the deviations of x from the center and their squares, or y and its products with
// these deviations if y is not nil. Parts of a row but the last must fill up the lanes.
func (l *laneSums) add(x, y []float32) {
	whole := len(x) / laneCount
	all, first := whole*laneCount, len(x)%laneCount/laneVector
	if y == nil {
		l.columns.Deviations(l.sum, l.products, l.center, x[:all], whole, laneCount)
		if first > 0 {
			l.columns.Deviations(l.sum[:laneVector], l.products, l.center, x[all:], first, laneVector)
		}
		return
	}
	l.columns.Products(l.sum, l.products, l.center, x[:all], y[:all], whole, laneCount)
	l.columns.Products(l.sum[:laneVector], l.products, l.center, x[all:], y[all:], first, laneVector)
}

// fold adds up the lanes: laneVector at a time, then halves.
func (l *laneSums) fold(sum []float32) float32 {
	l.columns.Sums(sum[:laneVector], sum[laneVector:], laneCount/laneVector-1, laneVector)
	// A loop over halves would wait for memory between them.
	t := (*[laneVector]float32)(sum)
	t0, t1, t2, t3 := t[0]+t[8], t[1]+t[9], t[2]+t[10], t[3]+t[11]
	t0, t1, t2, t3 = t0+(t[4]+t[12]), t1+(t[5]+t[13]), t2+(t[6]+t[14]), t3+(t[7]+t[15])
	return (t0 + t2) + (t1 + t3)
}

// laneSum returns the sum of x, of a multiple of laneVector elements. s is scratch memory of
// PassNumbers elements, here and below.
func laneSum(x, s []float32) float32 {
	l := newLaneSums(0, s[lanesAt:])
	whole := len(x) / laneCount
	l.columns.Sums(l.sum, x, whole, laneCount)
	l.columns.Sums(l.sum[:laneVector], x[whole*laneCount:], len(x)%laneCount/laneVector, laneVector)
	return l.fold(l.sum)
}

// Exp2BelowSum computes x = by·2^(min(0, x-top)·scale) in place with portable bits, for a multiple
// of 16 elements, and returns the sum if by is 1.
func Exp2BelowSum(x []float32, scale, top, by float32, s []float32) float32 {
	if v := vec.Native(); v != nil {
		s[0], s[1], s[2] = scale, top, by
		v.Exp2BelowSum(x, x, s)
		return s[3]
	}
	for i, a := range x {
		x[i] = float32(exp2F32(float32(min(0, a-top)*scale)) * by)
	}
	return laneSum(x, s)
}

// DotRow is DotRows of package vec for one row, with the same bits on every level: each sixteenth
// element goes into the same sum.
func DotRow(x, y, s []float32) float32 {
	l := newLaneSums(0, s[lanesAt:])
	sum, products, n := l.sum[:laneVector], l.products[:laneVector], len(x)/laneVector*laneVector
	l.columns.Products(sum, products, l.center, x[:n], y[:n], n/laneVector, laneVector)
	if n < len(x) {
		l.columns.Products(sum, products, l.center, filled(0, x[n:], 0, s), filled(1, y[n:len(x)], 0, s), 1, laneVector)
	}
	return l.fold(l.products)
}

// laneGradSums returns the sums of GradRowSums.
func (p *Rows) laneGradSums(gained, x, s []float32) (a, b float32) {
	n := len(gained) / laneVector * laneVector
	l := newLaneSums(0, s[lanesAt:])
	for at := 0; at < n; at += lanePart {
		x, y := x[at:min(at+lanePart, n)], gained[at:min(at+lanePart, n)]
		h := l.rest[laneCount:][:len(x)]
		if p.set != nil {
			p.set.SubScalar(h, x, s[0])
			p.set.MulScalar(h, h, s[1])
		} else {
			for i, v := range x {
				h[i] = (v - s[0]) * s[1]
			}
		}
		l.add(h, y)
	}
	a, b = l.fold(l.sum), l.fold(l.products)
	if n < len(gained) {
		restA, restB := p.laneGradSums(filled(0, gained[n:], 0, s), filled(1, x[n:len(gained)], s[0], s), s)
		a += restA
		b += restB
	}
	return a, b
}
