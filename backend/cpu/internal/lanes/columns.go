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

// laneCount is the virtual lanes in which portable bits have the elements of a row added up:
// element i is added in lane i modulo laneCount, one after the other. Sums of a row are thus
// sums of columns of a matrix with rows of laneCount elements, which every level has.
const laneCount = 64

// laneSums is scratch memory for sums in lanes.
type laneSums struct{ sum, products, center, rest, first []float32 }

const laneScratch = 4*laneCount + foldedLanes

// foldedLanes is the lanes to which all are added before the rest is in Go.
const foldedLanes = 16

func lanesIn(s []float32, center float32) laneSums {
	part := func(i int) []float32 { return s[i*laneCount:][:laneCount:laneCount] }
	l := laneSums{part(0), part(1), part(2), part(3), s[4*laneCount:][:foldedLanes]}
	clear(l.sum)
	clear(l.products)
	Fill(l.center, center)
	return l
}

// last returns the elements of x beyond whole rows of lanes, and before them their number
// rounded up to a multiple of the lanes of every level, with fill behind them.
func (l *laneSums) last(to, x []float32, fill float32) []float32 {
	x = x[len(x)/laneCount*laneCount:]
	to = to[:(len(x)+foldedLanes-1)/foldedLanes*foldedLanes]
	Fill(to[copy(to, x):], fill)
	return to
}

// fold adds up the lanes.
func (l *laneSums) fold(c *vec.ColumnSums[float32], sum []float32) float64 {
	clear(l.first)
	c.Sums(l.first, sum, laneCount/foldedLanes, foldedLanes)
	var t [4]float64
	for i := 0; i < foldedLanes; i += 4 {
		x := l.first[i : i+4 : i+4]
		t[0] += float64(x[0])
		t[1] += float64(x[1])
		t[2] += float64(x[2])
		t[3] += float64(x[3])
	}
	return (t[0] + t[1]) + (t[2] + t[3])
}

// laneSum returns the sum of x; s is scratch memory of laneScratch elements.
func laneSum(x, s []float32) float64 {
	c, l := Columns(), lanesIn(s, 0)
	c.Sums(l.sum, x, len(x)/laneCount, laneCount)
	if rest := l.last(l.rest, x, 0); len(rest) > 0 {
		c.Sums(l.sum[:len(rest)], rest, 1, len(rest))
	}
	return l.fold(c, l.sum)
}

// laneDeviations returns the sums of the deviations of x from a number, and of their squares.
func laneDeviations(x []float32, from float32, s []float32) (a, b float64) {
	c, l := Columns(), lanesIn(s, from)
	c.Deviations(l.sum, l.products, l.center, x, len(x)/laneCount, laneCount)
	if rest := l.last(l.rest, x, from); len(rest) > 0 {
		n := len(rest)
		c.Deviations(l.sum[:n], l.products[:n], l.center[:n], rest, 1, n)
	}
	return l.fold(c, l.sum), l.fold(c, l.products)
}

// laneProducts returns Σ y and Σ (x-from)·y.
func laneProducts(x, y []float32, from float32, s []float32) (a, b float64) {
	c, l := Columns(), lanesIn(s, from)
	c.Products(l.sum, l.products, l.center, x, y, len(y)/laneCount, laneCount)
	if rest := l.last(l.rest, y, 0); len(rest) > 0 {
		n := len(rest)
		c.Products(l.sum[:n], l.products[:n], l.center[:n], l.last(s[laneScratch:][:laneCount], x, from), rest, 1, n)
	}
	return l.fold(c, l.sum), l.fold(c, l.products)
}
