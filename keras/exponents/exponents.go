// Package exponents counts numbers by their binary exponents: what 16 bits do
// to weights, activations and gradients (Micikevicius et al., Mixed Precision
// Training, figure 3). keras.Model.Exponents makes such counts of a training
// step, package plot draws them and package tensorboard writes them.
package exponents

import (
	"fmt"
	"math"

	"github.com/mezzo-ml/mezzo/backend/dtype"
)

// Lowest and Highest are the exponents of the least number of float32 and of
// the largest: binade e holds the numbers from 2^e to below 2^(e+1), of either
// sign.
const (
	Lowest  = -149
	Highest = 127
)

// Histogram counts numbers by their binades. The zero value has none.
type Histogram struct {
	Count     int64 // of all
	Zeros     int64
	NonFinite int64

	// Float16Zeros are the numbers other than 0 that round to 0 in float16, and
	// Float16Infinities the finite ones that round to an infinity.
	Float16Zeros, Float16Infinities int64

	binades [Highest - Lowest + 1]int64
}

// Add counts some numbers.
func (h *Histogram) Add(values ...float32) {
	for _, v := range values {
		h.Count++
		x := math.Abs(float64(v))
		switch {
		case x == 0:
			h.Zeros++
			continue
		case math.IsInf(x, 0) || math.IsNaN(x):
			h.NonFinite++
			continue
		case x <= 0x1p-25: // half of the least number, and rounds to even
			h.Float16Zeros++
		case x >= 65520: // half way from the largest to the next
			h.Float16Infinities++
		}
		h.binades[math.Ilogb(x)-Lowest]++
	}
}

// AddBytes counts the elements of memory of a float type; float64 is rounded
// to float32.
func (h *Histogram) AddBytes(data []byte, d dtype.DType) {
	var chunk [1024]float32
	for size := d.Size(); len(data) > 0; {
		n := min(len(data)/size, len(chunk))
		dtype.ToF32(chunk[:n], data[:n*size], d)
		h.Add(chunk[:n]...)
		data = data[n*size:]
	}
}

// Merge adds the counts of another histogram.
func (h *Histogram) Merge(o *Histogram) {
	h.Count += o.Count
	h.Zeros += o.Zeros
	h.NonFinite += o.NonFinite
	h.Float16Zeros += o.Float16Zeros
	h.Float16Infinities += o.Float16Infinities
	for i, n := range o.binades {
		h.binades[i] += n
	}
}

// Binade is the count of the numbers from 2^e to below 2^(e+1).
func (h *Histogram) Binade(e int) int64 {
	if e < Lowest || e > Highest {
		return 0
	}
	return h.binades[e-Lowest]
}

// Range is the first and the last binade that has numbers; ok is false when
// there is none.
func (h *Histogram) Range() (first, last int, ok bool) {
	for e := Lowest; e <= Highest; e++ {
		if h.Binade(e) > 0 {
			if !ok {
				first, ok = e, true
			}
			last = e
		}
	}
	return first, last, ok
}

// Percent prints the share that part has of all as "25 %": in two digits, or
// three where two would say that it is all. It is "0 %" of none.
func Percent(part, all int64) string {
	if all == 0 {
		return "0 %"
	}
	x := 100 * float64(part) / float64(all)
	if x >= 99.5 {
		return fmt.Sprintf("%.3g %%", x)
	}
	return fmt.Sprintf("%.2g %%", x)
}

// Limits of a 16-bit type, as exponents: its least number above 0, the least
// that has all its digits, and the first power of two beyond the largest.
type Limits struct{ Subnormal, Normal, Overflow int }

// LimitsOf returns those of a float type.
func LimitsOf(d dtype.DType) Limits {
	return Limits{math.Ilogb(d.SmallestSubnormal()), math.Ilogb(d.SmallestNormal()), math.Ilogb(d.Max()) + 1}
}
