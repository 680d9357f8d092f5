package initializers

import (
	"fmt"
	"math"
	"runtime"
	"sync"

	"gonum.org/v1/gonum/blas/blas64"
	"gonum.org/v1/gonum/lapack/lapack64"

	"github.com/mezzo-ml/mezzo/backend"
	"github.com/mezzo-ml/mezzo/backend/philox"
	"github.com/mezzo-ml/mezzo/backend/portablemath"
	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/layers/callspec"
)

// stream keeps these numbers apart from those of layers such as Dropout that
// are given the same seed.
const stream = 0x696e6974 // "init"

// chunk is how many numbers one goroutine draws at a time. Number i has words
// 2i and 2i+1, and philox.Words starts at multiples of 4, so it is even.
const chunk = 1 << 13

// draw sets dst[i] = f(uᵢ), where uᵢ is number i of the seed, uniform in
// (0, 1) with 52 random bits: (k+½)·2⁻⁵² for k < 2⁵², so that 0 and 1 do not
// occur and u and 1-u are alike.
func draw(dst []float64, seed uint64, f func(u float64) float64) {
	some := func(first int) {
		var words [2 * chunk]uint32
		part := dst[first:min(first+chunk, len(dst))]
		w := words[:2*len(part)]
		philox.Words(seed, 0, stream, 2*uint64(first), w)
		for i := range part {
			k := uint64(w[2*i])<<20 | uint64(w[2*i+1])>>12
			part[i] = f((float64(k) + 0.5) * 0x1p-52)
		}
	}
	workers := min(runtime.GOMAXPROCS(0), len(dst)/chunk)
	if workers < 2 {
		for first := 0; first < len(dst); first += chunk {
			some(first)
		}
		return
	}
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for first := w * chunk; first < len(dst); first += workers * chunk {
				some(first)
			}
		})
	}
	wg.Wait()
}

// drawUniform draws from low to high.
func drawUniform(dst []float64, seed uint64, low, high float64) {
	draw(dst, seed, func(u float64) float64 { return low + float64((high-low)*u) })
}

// drawNormal draws by the inverse of the normal distribution function.
func drawNormal(dst []float64, seed uint64, mean, stddev float64) {
	draw(dst, seed, func(u float64) float64 { return mean + float64(stddev*math.Sqrt2*portablemath.Erfinv(float64(2*u)-1)) })
}

// drawTruncated draws from a normal distribution cut at ±2 stddev: what
// drawing again until a number lies within gives, without drawing again.
func drawTruncated(dst []float64, seed uint64, mean, stddev float64) {
	within := portablemath.Erf(math.Sqrt2) // probability of ±2 stddev
	draw(dst, seed, func(u float64) float64 {
		z := math.Sqrt2 * portablemath.Erfinv(within*(2*u-1))
		return mean + float64(stddev*min(max(z, -2), 2)) // rounding may reach beyond 2
	})
}

// orthogonal is Keras's Orthogonal: the columns, or the rows where there are
// fewer of them, are orthonormal and drawn uniformly among such (Saxe et al.
// 2014; Mezzadri 2007 for the signs).
func orthogonal(s callspec.Spec) (Initializer, error) {
	gain := 1.0
	seed := new(*int64)
	err := s.Bind(callspec.Optional("gain", &gain), callspec.Optional("seed", seed))
	return seeded(seed, func(dst []float64, shape tensor.Shape, seed uint64) error {
		n := len(shape)
		if n < 2 {
			return fmt.Errorf("got shape %v of rank %d, want rank 2 or more", shape, n)
		}
		if len(dst) == 0 {
			return nil
		}
		rows, cols := shape[:n-1].Size(), shape[n-1]
		long, short := max(rows, cols), min(rows, cols)
		q := blas64.General{Rows: long, Cols: short, Stride: short, Data: make([]float64, long*short)}
		drawNormal(q.Data, seed, 0, 1)
		put := func(i, j int, v float64) {
			if rows < cols {
				dst[j*cols+i] = v
			} else {
				dst[i*cols+j] = v
			}
		}
		if backend.CurrentBits() == backend.PortableBits {
			for j, column := range orthonormal(q) {
				for i, v := range column {
					put(i, j, gain*v)
				}
			}
			return nil
		}
		// LAPACK itself: mat.QR would make the square matrix of long columns.
		tau := make([]float64, short)
		var a, b [1]float64 // the sizes of working memory they like best
		lapack64.Geqrf(q, tau, a[:], -1)
		lapack64.Orgqr(q, tau, b[:], -1)
		work := make([]float64, int(max(a[0], b[0])))
		lapack64.Geqrf(q, tau, work, len(work))
		sign := make([]float64, short)
		for j := range sign {
			sign[j] = gain * math.Copysign(1, q.Data[j*short+j]) // the diagonal of R
		}
		lapack64.Orgqr(q, tau, work, len(work))
		for i := range long {
			for j := range short {
				put(i, j, sign[j]*q.Data[i*short+j])
			}
		}
		return nil
	}), err
}

// orthonormal returns the columns of Q of the QR decomposition of a matrix whose R has a
// positive diagonal, by Gram and Schmidt's method, done twice for each column. LAPACK's bits
// depend on the processor; these do not.
func orthonormal(a blas64.General) [][]float64 {
	dot := func(x, y []float64) float64 {
		var sum float64
		for i, v := range x {
			sum += float64(v * y[i])
		}
		return sum
	}
	columns := make([][]float64, a.Cols)
	for j := range columns {
		v := make([]float64, a.Rows)
		for i := range v {
			v[i] = a.Data[i*a.Stride+j]
		}
		for range 2 {
			for _, u := range columns[:j] {
				d := dot(u, v)
				for i, x := range u {
					v[i] -= float64(d * x)
				}
			}
		}
		length := math.Sqrt(dot(v, v))
		for i := range v {
			v[i] /= length
		}
		columns[j] = v
	}
	return columns
}
