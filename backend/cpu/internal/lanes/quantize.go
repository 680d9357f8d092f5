package lanes

import (
	"math"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/vec"
)

// Quantize has the low byte of z plus x·s, between lo and hi, as the nearest integer, even
// if there are two. NaN counts as lo. Lo and hi are integers of magnitude 2²⁴ at most.
func Quantize(dst []byte, x []float32, s, lo, hi float32, z int32) {
	if v := vec.Native(); v != nil {
		v.Quantize(dst, x, s, lo, hi, z)
		return
	}
	quantize(dst, x, s, lo, hi, z)
}

// quantize is Quantize in Go.
func quantize(dst []byte, x []float32, s, lo, hi float32, z int32) {
	dst = dst[:len(x)]
	for i, f := range x {
		f *= s
		if !(f > lo) {
			f = lo
		}
		dst[i] = byte(int32(math.RoundToEven(float64(min(f, hi)))) + z)
	}
}

// AddScalar adds s to the elements of x.
func AddScalar(x []float32, s float32) {
	if v := vec.Native(); v != nil {
		v.AddScalar(x, x, s)
		return
	}
	for i := range x {
		x[i] += s
	}
}

// MulScalar multiplies the elements of x by s.
func MulScalar(x []float32, s float32) {
	if v := vec.Native(); v != nil {
		v.MulScalar(x, x, s)
		return
	}
	for i := range x {
		x[i] *= s
	}
}
