package main

import (
	"context"
	"math"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas64"
	lapack "gonum.org/v1/gonum/lapack/gonum"
)

// unit is the unit roundoff of float64.
const unit = 0x1p-53

// maxSteps is LAPACK's ITERMAX of dsgesv.
const maxSteps = 30

// A System is A·x = b in float64, with one right-hand side. A is row-major.
type System struct {
	n    int
	a, b []float64
	norm float64 // ‖A‖∞
}

// NewSystem returns the system of a and b.
func NewSystem(a, b []float64) *System {
	s := &System{n: len(b), a: a, b: b}
	for i := range s.n {
		s.norm = max(s.norm, blas64.Asum(blas64.Vector{N: s.n, Inc: 1, Data: a[i*s.n : (i+1)*s.n]}))
	}
	return s
}

func vector(x []float64) blas64.Vector { return blas64.Vector{N: len(x), Inc: 1, Data: x} }

// Residual stores b - A·x in r, in float64.
func (s *System) Residual(x, r []float64) {
	copy(r, s.b)
	s.multiply(-1, x, 1, r)
}

// multiply stores alpha·A·x + beta·y in y, a stripe of rows on each goroutine.
func (s *System) multiply(alpha float64, x []float64, beta float64, y []float64) {
	const rows = 64
	parallel((s.n+rows-1)/rows, func(i int) {
		first, last := i*rows, min((i+1)*rows, s.n)
		stripe := blas64.General{Rows: last - first, Cols: s.n, Stride: s.n, Data: s.a[first*s.n : last*s.n]}
		blas64.Gemv(blas.NoTrans, alpha, stripe, vector(x), beta, vector(y[first:last]))
	})
}

// BackwardError returns the normwise backward error ‖r‖/(‖A‖·‖x‖+‖b‖) of the
// residual r of x, with maximum norms: the smallest relative change of A and b
// for which x is the solution (Rigal and Gaches 1967). It is NaN for an x that is
// not finite.
func (s *System) BackwardError(x, r []float64) float64 {
	if size := norm(x); !math.IsNaN(size) && !math.IsInf(size, 0) {
		return norm(r) / (s.norm*size + norm(s.b))
	}
	return math.NaN()
}

// Bound is the largest backward error that LAPACK's dsgesv takes for converged,
// sqrt(n)·unit.
func (s *System) Bound() float64 { return math.Sqrt(float64(s.n)) * unit }

// norm is the maximum norm; NaN if x has one.
func norm(x []float64) float64 {
	m := 0.0
	for _, v := range x {
		m = max(m, math.Abs(v)) // the built-in max keeps NaN
	}
	return m
}

// Dgesv solves the system in float64 with gonum's LAPACK: the referee.
func (s *System) Dgesv() (x []float64, backward float64, ok bool) {
	lu := append([]float64(nil), s.a...)
	x = append([]float64(nil), s.b...)
	ok = lapack.Implementation{}.Dgesv(s.n, 1, lu, s.n, make([]int, s.n), x, 1)
	if !ok {
		return x, math.NaN(), false
	}
	r := make([]float64, s.n)
	s.Residual(x, r)
	return x, s.BackwardError(x, r), true
}

// A Solution is what iterative refinement found.
type Solution struct {
	X         []float64
	Steps     int     // residuals that were corrected for
	Inner     int     // iterations of GMRES in them, 0 without
	Backward  float64 // backward error of X, NaN if it is not finite
	Converged bool    // it is at most Bound
}

// A correction solves A·d = r approximately, in place, and returns the number of
// its inner iterations.
type correction func(ctx context.Context, r []float64) (inner int, err error)

// refine is iterative refinement: x += d with A·d ≈ b - A·x, from x = 0. It goes
// on while a step at least halves the backward error (Demmel et al. 2006, Error
// Bounds from Extra-Precise Iterative Refinement), for at most maxSteps steps,
// and returns the best x.
func (s *System) refine(ctx context.Context, correct correction) (Solution, error) {
	x, r := make([]float64, s.n), make([]float64, s.n)
	copy(r, s.b)
	best := Solution{X: make([]float64, s.n), Backward: math.Inf(1)}
	steps, inner := 0, 0
	for steps < maxSteps {
		n, err := correct(ctx, r)
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return best, err
		}
		steps, inner = steps+1, inner+n
		for i, d := range r {
			x[i] += d
		}
		s.Residual(x, r)
		was, now := best.Backward, s.BackwardError(x, r)
		if now < was {
			copy(best.X, x)
			best.Backward = now
		}
		if !(now <= was/2) { // also for NaN
			break
		}
	}
	if math.IsInf(best.Backward, 1) {
		best.Backward = math.NaN()
	}
	best.Steps, best.Inner, best.Converged = steps, inner, best.Backward <= s.Bound()
	return best, nil
}

// Refine is iterative refinement with corrections from the factors, as in
// LAPACK's dsgesv. It converges if the condition number is well below the
// inverse of the factors' unit roundoff.
func (s *System) Refine(ctx context.Context, f *Factors) (Solution, error) {
	return s.refine(ctx, func(_ context.Context, r []float64) (int, error) {
		size := norm(r) // sums near 1, so that nothing underflows
		if size == 0 {
			return 0, nil
		}
		for i := range r {
			r[i] /= size
		}
		f.Solve(r)
		for i := range r {
			r[i] *= size
		}
		return 0, nil
	})
}

// RefineGMRES is iterative refinement with corrections by GMRES, preconditioned
// with the factors: Carson and Higham 2018, Accelerating the Solution of Linear
// Systems by Iterative Refinement in Three Precisions. The preconditioned matrix
// is applied in float64, not in twice its precision (Amestoy et al. 2024,
// Five-Precision GMRES-Based Iterative Refinement, say what that costs). inner
// limits the iterations of GMRES in a step.
func (s *System) RefineGMRES(ctx context.Context, f *Factors, inner int) (Solution, error) {
	return s.refine(ctx, func(ctx context.Context, r []float64) (int, error) {
		f.Solve(r)
		return gmres(ctx, s.n, inner, gmresTolerance, r, func(v, out []float64) {
			s.multiply(1, v, 0, out)
			f.Solve(out)
		})
	})
}

// gmresTolerance is how far GMRES reduces a residual in one step of refinement.
const gmresTolerance = 1e-6

// gmres solves M·d = r from d = 0 without a restart and stores d in r: Saad and
// Schultz 1986, with modified Gram-Schmidt and Givens rotations. It ends when the
// residual is tolerance·‖r‖, after limit iterations, or when the Krylov space
// contains the solution.
func gmres(ctx context.Context, n, limit int, tolerance float64, r []float64, apply func(v, out []float64)) (iterations int, err error) {
	beta := blas64.Nrm2(vector(r))
	if beta == 0 || math.IsNaN(beta) || math.IsInf(beta, 0) {
		return 0, nil
	}
	limit = min(limit, n)
	blas64.Scal(1/beta, vector(r))
	basis := [][]float64{append([]float64(nil), r...)}
	var h [][]float64 // columns of the Hessenberg matrix, rotated to a triangle
	var cos, sin []float64
	g := []float64{beta}
	for iterations < limit {
		if err := ctx.Err(); err != nil {
			return iterations, err
		}
		k := iterations
		w := make([]float64, n)
		apply(basis[k], w)
		column := make([]float64, k+2)
		for i, v := range basis {
			column[i] = blas64.Dot(vector(v), vector(w))
			blas64.Axpy(-column[i], vector(v), vector(w))
		}
		next := blas64.Nrm2(vector(w))
		if math.IsNaN(next) || math.IsInf(next, 0) {
			break
		}
		for i := range k {
			column[i], column[i+1] = cos[i]*column[i]+sin[i]*column[i+1], cos[i]*column[i+1]-sin[i]*column[i]
		}
		size := math.Hypot(column[k], next)
		if size == 0 {
			break
		}
		cos, sin = append(cos, column[k]/size), append(sin, next/size)
		column[k] = size
		h = append(h, column[:k+1])
		g = append(g, -sin[k]*g[k])
		g[k] *= cos[k]
		iterations++
		if math.Abs(g[k+1]) <= tolerance*beta || next == 0 {
			break
		}
		blas64.Scal(1/next, vector(w))
		basis = append(basis, w)
	}
	clear(r)
	y := make([]float64, iterations)
	for i := iterations - 1; i >= 0; i-- {
		y[i] = g[i]
		for j := i + 1; j < iterations; j++ {
			y[i] -= h[j][i] * y[j]
		}
		y[i] /= h[i][i]
	}
	for i, c := range y {
		blas64.Axpy(c, vector(basis[i]), vector(r))
	}
	return iterations, nil
}
