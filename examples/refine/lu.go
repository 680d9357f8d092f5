package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"

	blas "gonum.org/v1/gonum/blas/gonum"

	"github.com/mezzo-ml/mezzo/keras"
)

// panelWidth is the number of columns that are factorized without products of
// matrices, and of rows that are solved for without them.
const panelWidth = 64

// Factors is the decomposition P·S·R·A·C = L·U of a square matrix, with partial
// pivoting. R and C are diagonal and S is a number: the scaling, which float16
// needs. L and U are numbers of Type, each rounded once; what is added up to
// them is float32, as in a product on Tensor Cores (Haidar, Tomov, Dongarra and
// Higham 2018, Harnessing GPU Tensor Cores for Fast FP16 Arithmetic to Speed up
// Mixed-Precision Iterative Refinement Solvers).
type Factors struct {
	Type keras.DType

	n      int
	lu     []float32 // row-major: U, and below its diagonal L, whose diagonal is 1
	pivots []int     // row i was exchanged with row pivots[i], in this order
	row    []float64 // S·R, powers of 2
	col    []float64 // C, powers of 2
}

// ErrNoFactors says that a pivot is 0, or a number of L or U not finite.
var ErrNoFactors = errors.New("there are no factors in this type")

// errOverflow is the ErrNoFactors of numbers that are too large for the type.
var errOverflow = fmt.Errorf("%w: overflow", ErrNoFactors)

// Factorize returns the factors of a, which is n by n, row-major and stays as it
// is. Type is float32, bfloat16 or float16.
func Factorize(ctx context.Context, a []float64, n int, t keras.DType) (*Factors, error) {
	f := &Factors{Type: t, n: n, lu: make([]float32, n*n), pivots: make([]int, n), row: ones(n), col: ones(n)}
	if t == keras.Float16 {
		f.scale(a)
	}
	for room := 4; ; room-- {
		parallel(n, func(i int) {
			for j, x := range a[i*n : (i+1)*n] {
				f.lu[i*n+j] = t.Round(float32(f.row[i] * x * f.col[j]))
			}
		})
		err := f.factorize(ctx, 0, n)
		if err == nil && !f.finite() {
			err = errOverflow
		}
		if t != keras.Float16 || room == 0 || !errors.Is(err, errOverflow) {
			return f, err
		}
		for i := range f.row { // U has overflowed: as a loss scale does, S decreases
			f.row[i] /= 16
		}
	}
}

func (f *Factors) finite() bool {
	for _, x := range f.lu {
		if x-x != 0 {
			return false
		}
	}
	return true
}

func ones(n int) []float64 {
	x := make([]float64, n)
	for i := range x {
		x[i] = 1
	}
	return x
}

// scale makes the largest number of each row and column between 1/2 and 1, and
// then multiplies by 1/256 of the largest float16: Higham, Pranesh and Zounon 2019,
// Squeezing a Matrix into Half Precision, with an Application to Solving Linear
// Systems. What is left up to the largest float16 is room for the growth of U,
// which is about n/(4·log n) for matrices that are far from singular (Higham,
// Higham and Pranesh 2021, Random Matrices Generating Large Growth in LU
// Factorization with Pivoting). Powers of 2 round nothing.
func (f *Factors) scale(a []float64) {
	n := f.n
	largest := make([]float64, n)
	for i := range n {
		m := 0.0
		for _, x := range a[i*n : (i+1)*n] {
			m = max(m, math.Abs(x))
		}
		f.row[i] = inversePower(m)
	}
	for i := range n {
		for j, x := range a[i*n : (i+1)*n] {
			largest[j] = max(largest[j], math.Abs(x)*f.row[i])
		}
	}
	const room = 1 << 8
	for i := range n {
		f.col[i] = inversePower(largest[i])
		f.row[i] *= room
	}
}

// inversePower returns the power of 2 that brings x to [1/2, 1); 1 for 0.
func inversePower(x float64) float64 {
	if x == 0 || math.IsInf(x, 0) || math.IsNaN(x) {
		return 1
	}
	_, e := math.Frexp(x)
	return math.Ldexp(1, -e)
}

// factorize factorizes columns c to c+w, from row c on: recursively by halves
// (Toledo 1997, Locality of Reference in LU Decomposition with Partial
// Pivoting), which gives the largest products and moves the least memory in and
// out of them. Columns to the left and to the right are not touched.
func (f *Factors) factorize(ctx context.Context, c, w int) error {
	if w <= panelWidth {
		return f.panel(c, w)
	}
	left := half(w)
	if err := f.factorize(ctx, c, left); err != nil {
		return err
	}
	right := c + left
	f.exchange(c, left, right, c+w)
	if err := f.solveUpper(ctx, c, left, right, c+w); err != nil {
		return err
	}
	f.round(c, left, right, c+w)
	if err := f.update(ctx, right, f.n, c, left, right, c+w); err != nil {
		return err
	}
	if err := f.factorize(ctx, right, w-left); err != nil {
		return err
	}
	f.exchange(right, w-left, c, right)
	return nil
}

// half splits w at a multiple of panelWidth.
func half(w int) int { return (w/2 + panelWidth - 1) / panelWidth * panelWidth }

// panel factorizes w columns with vectors of gonum's BLAS, in a copy of them
// that is stored by columns.
func (f *Factors) panel(c, w int) error {
	var b blas.Implementation
	m := f.n - c
	columns := make([]float32, m*w)
	for i := range m {
		for j, x := range f.lu[(c+i)*f.n+c : (c+i)*f.n+c+w] {
			columns[j*m+i] = x
		}
	}
	for j := range w {
		col := columns[j*m : (j+1)*m]
		p := j + b.Isamax(m-j, col[j:], 1)
		f.pivots[c+j] = c + p
		pivot := col[p]
		switch {
		case pivot == 0:
			return fmt.Errorf("%w: pivot %d of %d is 0", ErrNoFactors, c+j+1, f.n)
		case pivot-pivot != 0:
			return fmt.Errorf("%w: pivot %d of %d is %v", errOverflow, c+j+1, f.n, pivot)
		}
		if p != j {
			b.Sswap(w, columns[j:], m, columns[p:], m)
		}
		for i := j + 1; i < m; i++ {
			col[i] /= pivot
		}
		for k := j + 1; k < w; k++ {
			other := columns[k*m : (k+1)*m]
			b.Saxpy(m-j-1, -other[j], col[j+1:], 1, other[j+1:], 1)
		}
	}
	for i := range m {
		row := f.lu[(c+i)*f.n+c : (c+i)*f.n+c+w]
		for j := range row {
			row[j] = f.Type.Round(columns[j*m+i])
		}
	}
	return nil
}

// exchange exchanges rows as the pivots of columns c to c+w say, in columns from
// to to.
func (f *Factors) exchange(c, w, from, to int) {
	for i := c; i < c+w; i++ {
		if p := f.pivots[i]; p != i {
			x, y := f.lu[i*f.n+from:i*f.n+to], f.lu[p*f.n+from:p*f.n+to]
			for j := range x {
				x[j], y[j] = y[j], x[j]
			}
		}
	}
}

// solveUpper multiplies rows c to c+h, columns from to to, by the inverse of L's
// block at c: they become those of U.
func (f *Factors) solveUpper(ctx context.Context, c, h, from, to int) error {
	if h > panelWidth {
		upper := half(h)
		if err := f.solveUpper(ctx, c, upper, from, to); err != nil {
			return err
		}
		f.round(c, upper, from, to) // operands of the product are of the type
		if err := f.update(ctx, c+upper, c+h, c, upper, from, to); err != nil {
			return err
		}
		return f.solveUpper(ctx, c+upper, h-upper, from, to)
	}
	const columns = 256 // of a stripe, which stays in L1 and L2
	parallel((to-from+columns-1)/columns, func(s int) {
		var b blas.Implementation
		first := from + s*columns
		m := min(columns, to-first)
		for i := c + 1; i < c+h; i++ {
			row := f.lu[i*f.n+first : i*f.n+first+m]
			for k := c; k < i; k++ {
				b.Saxpy(m, -f.lu[i*f.n+k], f.lu[k*f.n+first:k*f.n+first+m], 1, row, 1)
			}
		}
	})
	return nil
}

// round rounds rows c to c+h, columns from to to, to the type.
func (f *Factors) round(c, h, from, to int) {
	if f.Type == keras.Float32 {
		return
	}
	parallel(h, func(i int) {
		row := f.lu[(c+i)*f.n+from : (c+i)*f.n+to]
		for j, x := range row {
			row[j] = f.Type.Round(x)
		}
	})
}

// operands are those of a product: A - L·U.
type operands struct{ A, L, U *keras.Tensor }

// products are Mezzo's, by type: operands are cast to it, sums are float32. Each
// shape is compiled once and kept.
var products = map[keras.DType]*keras.Func[operands, *keras.Tensor]{}

func product(t keras.DType) *keras.Func[operands, *keras.Tensor] {
	f := products[t]
	if f == nil {
		f = keras.Function(func(in operands) *keras.Tensor {
			return in.A.Sub(in.L.Cast(t).MatMul(in.U.Cast(t)).Widen())
		})
		f.KeepPlans(256) // there are about n/panelWidth shapes
		products[t] = f
	}
	return f
}

// update subtracts L·U from rows top to bottom, columns from to to: L is columns
// c to c+k of these rows, U rows c to c+k of these columns. It is where the time
// of a factorization goes: 2/3·n³ operations, but for a share of panelWidth/n.
func (f *Factors) update(ctx context.Context, top, bottom, c, k, from, to int) error {
	y, err := product(f.Type).Call(ctx, operands{
		A: f.block(top, bottom, from, to), L: f.block(top, bottom, c, c+k), U: f.block(c, c+k, from, to),
	})
	if err != nil {
		return err
	}
	values, err := y.Values()
	if err != nil {
		return err
	}
	y.Release()
	w := to - from
	for i := range bottom - top {
		copy(f.lu[(top+i)*f.n+from:(top+i)*f.n+to], values[i*w:(i+1)*w])
	}
	return nil
}

// block copies rows top to bottom, columns from to to.
func (f *Factors) block(top, bottom, from, to int) *keras.Tensor {
	x := make([]float32, 0, (bottom-top)*(to-from))
	for i := top; i < bottom; i++ {
		x = append(x, f.lu[i*f.n+from:i*f.n+to]...)
	}
	return keras.NewTensor(x, bottom-top, to-from)
}

// Solve solves A·x = b with the factors, for one right-hand side, in place.
// Sums are float64, elements those of the factors.
func (f *Factors) Solve(b []float64) {
	n := f.n
	for i, s := range f.row {
		b[i] *= s
	}
	for i, p := range f.pivots {
		b[i], b[p] = b[p], b[i]
	}
	for i := range n {
		b[i] -= dot(f.lu[i*n:i*n+i], b)
	}
	for i := n - 1; i >= 0; i-- {
		b[i] = (b[i] - dot(f.lu[i*n+i+1:(i+1)*n], b[i+1:])) / float64(f.lu[i*n+i])
	}
	for i, s := range f.col {
		b[i] *= s
	}
}

// dot returns the sum of x[i]·y[i], in float64.
func dot(x []float32, y []float64) float64 {
	y = y[:len(x)]
	var s0, s1, s2, s3 float64
	for len(x) >= 4 {
		s0 += float64(x[0]) * y[0]
		s1 += float64(x[1]) * y[1]
		s2 += float64(x[2]) * y[2]
		s3 += float64(x[3]) * y[3]
		x, y = x[4:], y[4:]
	}
	for i := range x {
		s0 += float64(x[i]) * y[i]
	}
	return (s0 + s1) + (s2 + s3)
}

// parallel calls f for 0 to n-1 on two goroutines and more, and waits. What it is
// called for must be independent: the results have the same bits on any number.
func parallel(n int, f func(i int)) {
	var wg sync.WaitGroup
	const stripes = 8
	for s := range stripes {
		wg.Go(func() {
			for i := n * s / stripes; i < n*(s+1)/stripes; i++ {
				f(i)
			}
		})
	}
	wg.Wait()
}
