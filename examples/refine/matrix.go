package main

import (
	"math"
	"math/bits"
	"math/rand/v2"
)

// Matrix returns a random n-by-n matrix with singular values from 1 to
// 1/condition, a geometric sequence: mode 3 of Higham's randsvd and of LAPACK's
// dlatms, the usual test matrix. Its singular vectors are the columns of random
// products of Givens rotations in the pattern of the fast Fourier transform:
// dense, and orthogonal up to rounding. With cluster all singular values but the
// smallest are 1 (mode 2), which GMRES likes better.
func Matrix(rng *rand.Rand, n int, condition float64, cluster bool) []float64 {
	a := make([]float64, n*n)
	for i := range n {
		switch {
		case cluster:
			a[i*n+i] = 1
		case n > 1:
			a[i*n+i] = math.Pow(condition, -float64(i)/float64(n-1))
		}
	}
	a[n*n-1] = 1 / condition
	rotate(rng, a, n)
	transpose(a, n)
	rotate(rng, a, n)
	return a
}

// rotate multiplies a by a random orthogonal matrix from the left.
func rotate(rng *rand.Rand, a []float64, n int) {
	for range bits.Len(uint(n)) + 2 {
		order := rng.Perm(n)
		angles := make([]float64, n/2)
		for k := range angles {
			angles[k] = 2 * math.Pi * rng.Float64()
		}
		parallel(n/2, func(k int) {
			sin, cos := math.Sincos(angles[k])
			x := a[order[2*k]*n : (order[2*k]+1)*n]
			y := a[order[2*k+1]*n : (order[2*k+1]+1)*n]
			for j, v := range x {
				w := y[j]
				x[j], y[j] = cos*v+sin*w, cos*w-sin*v
			}
		})
	}
}

func transpose(a []float64, n int) {
	for i := range n {
		for j := range i {
			a[i*n+j], a[j*n+i] = a[j*n+i], a[i*n+j]
		}
	}
}
