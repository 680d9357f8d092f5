package lanes

import (
	"math"

	"github.com/mezzo-ml/mezzo/backend/op"
)

// These functions dominate the time of chains: exp and functions based on it. For
// float32 they compute in float64, with polynomials that are short enough to keep up
// with memory and so precise that only the final rounding matters. For float64 they are
// the standard library's.

// by64 returns the loop of a function of a float64; the second argument is unused.
func by64[T Real](f func(x, y float64) float64) func(dst, a []T) {
	return func(dst, a []T) {
		a = a[:len(dst)]
		for i := range dst {
			x := float64(a[i])
			dst[i] = T(f(x, x))
		}
	}
}

// by64x2 is by64 for functions of two arguments.
func by64x2[T Real](f func(x, y float64) float64) func(dst, a, b []T) {
	return func(dst, a, b []T) {
		a, b = a[:len(dst)], b[:len(dst)]
		for i := range dst {
			dst[i] = T(f(float64(a[i]), float64(b[i])))
		}
	}
}

// scalar returns the formula of a unary operation.
func scalar(c op.Code) func(x, y float64) float64 { return c.Info().Scalar.Float }

const (
	log2e = math.Log2E
	// ln 2 in two parts: n·ln2High is exact for |n| < 2^20.
	ln2High = 6.93147180369123816490e-01
	ln2Low  = 1.90821492927058770002e-10
	shift   = 3 << 51 // adding it rounds to an integer, in the low bits
)

// exp32 is eˣ for |x| < 700, with a relative error below 1e-12; NaN stays.
func exp32(x float64) float64 {
	t := float64(x*log2e) + shift
	n := t - shift
	r := x - float64(n*ln2High) - float64(n*ln2Low)
	// Taylor to r¹⁰: |r| ≤ ln(2)/2, so the rest is below 0.347¹¹/11! = 2.2e-13.
	p := 1.0 / 3628800
	p = float64(p*r) + 1.0/362880
	p = float64(p*r) + 1.0/40320
	p = float64(p*r) + 1.0/5040
	p = float64(p*r) + 1.0/720
	p = float64(p*r) + 1.0/120
	p = float64(p*r) + 1.0/24
	p = float64(p*r) + 1.0/6
	p = float64(p*r) + 0.5
	p = float64(p*r) + 1
	p = float64(p*r) + 1
	return p * math.Float64frombits((math.Float64bits(t)+1023)<<52)
}

// short32 is exp32 with a relative error below 6e-9, a tenth of the rounding to
// float32, in few enough operations to be inlined.
func short32(x float64) float64 {
	t := float64(x*log2e) + shift
	r := x - float64((t-shift)*math.Ln2)
	s := r * r
	// Taylor to r⁷: the rest is below 0.347⁸/8! = 5.2e-9.
	p := 1 + r + float64(s*(0.5+float64(r*(1.0/6))+float64(s*(1.0/24+float64(r*(1.0/120))+float64(s*(1.0/720+float64(r*(1.0/5040))))))))
	return p * math.Float64frombits((math.Float64bits(t)+1023)<<52)
}

// within keeps x between ±limit; NaN stays.
func within(x float32, limit float64) float64 {
	v := float64(x)
	if v > limit { // branches that are never taken are faster than min and max
		return limit
	}
	if v < -limit {
		return -limit
	}
	return v
}

func ExpAll[T Real](dst, a []T) {
	if d, ok := any(dst).([]float32); ok {
		for i, x := range any(a).([]float32)[:len(d)] {
			d[i] = float32(short32(within(x, 120))) // beyond ±104 it is 0 or +Inf
		}
		return
	}
	by64[T](scalar(op.Exp))(dst, a)
}

func sigmoidAll[T Real](dst, a []T) {
	if d, ok := any(dst).([]float32); ok {
		for i, x := range any(a).([]float32)[:len(d)] {
			d[i] = float32(1 / (1 + short32(-within(x, 120))))
		}
		return
	}
	by64[T](scalar(op.Sigmoid))(dst, a)
}

func tanhAll[T Real](dst, a []T) {
	if d, ok := any(dst).([]float32); ok {
		for i, x := range any(a).([]float32)[:len(d)] {
			d[i] = float32(tanh32(within(x, 20)))
		}
		return
	}
	by64[T](scalar(op.Tanh))(dst, a)
}

// tanh32 is tanh x for |x| ≤ 20, with a relative error below 1e-10.
func tanh32(x float64) float64 {
	if x > -0.02 && x < 0.02 {
		// Where 1 - 2/(e²ˣ+1) cancels; the next term is 17x⁷/315.
		s := x * x
		return x * (1 + float64(s*(-1.0/3+float64(s*(2.0/15)))))
	}
	return 1 - 2/(exp32(2*x)+1)
}
