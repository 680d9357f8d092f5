package backendtest

import (
	"math"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// statsReference is Stats with a bin for each exponent or, as its expansion has it,
// with bins that end at op.StatsBorders.
func statsReference(t op.Type, x, y array) result {
	r := blank(t)
	v, w := x.floats(), y.floats()
	finite := func(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }
	var squaresX, squaresY, errors, products accumulator
	r.f[op.StatsCount], r.f[op.StatsResolution] = float64(len(v)), 1
	for i, a := range v {
		b := w[i]
		if a == 0 && finite(b) && b != 0 {
			r.f[op.StatsFlushed]++
		}
		if a != 0 && math.Abs(a) < x.DType.SmallestNormal() {
			r.f[op.StatsSubnormal]++
		}
		if finite(a) && finite(b) {
			r.f[op.StatsFinite]++
			squaresX.add(a * a)
			squaresY.add(b * b)
			errors.add((a - b) * (a - b))
			products.add(a * b)
			r.f[op.StatsLargestError] = max(r.f[op.StatsLargestError], math.Abs(a-b))
		}
	}
	for i, s := range map[int]*accumulator{
		op.StatsX + op.StatsSquares: &squaresX, op.StatsY + op.StatsSquares: &squaresY,
		op.StatsSquaredError: &errors, op.StatsProducts: &products,
	} {
		r.f[i], r.tol[i] = s.value(), sumTolerance(dtype.Float64, dtype.Float64, s.value(), s.magnitude)
		if math.IsInf(s.magnitude, 0) { // beyond float64: it depends on the order
			r.f[i], r.tol[i] = 0, math.Inf(1)
		}
	}
	magnitudesReference(r.f[op.StatsX:], v)
	magnitudesReference(r.f[op.StatsY:], w)

	coarse := result{Type: t, f: append([]float64(nil), r.f...), tol: r.tol}
	coarse.f[op.StatsResolution] = 0
	for _, at := range []int{op.StatsX, op.StatsY} {
		bins := coarse.f[at+op.StatsBin0:][:op.StatsBins]
		first := 0
		for i, n := range bins {
			for _, e := range op.StatsBorders {
				if i == op.StatsBin(e) {
					first = i
				}
			}
			if i != first {
				bins[first] += n
				bins[i] = 0
			}
		}
	}
	r.or = &coarse
	return r
}

func magnitudesReference(m, v []float64) {
	smallest := math.Inf(1)
	for _, x := range v {
		switch size := math.Abs(x); {
		case math.IsNaN(x):
			m[op.StatsNaNs]++
		case math.IsInf(x, 0):
			m[op.StatsInfinities]++
		case x == 0:
			m[op.StatsZeros]++
		default:
			m[op.StatsLargest] = max(m[op.StatsLargest], size)
			smallest = min(smallest, size)
			m[op.StatsSmallest] = smallest
			_, e := math.Frexp(size) // of ½ ≤ fraction < 1
			m[op.StatsBin0+op.StatsBin(e-1)]++
		}
	}
}
