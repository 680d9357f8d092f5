// Package exponents counts numbers by their binary exponents: what 16 bits do
// to weights, activations and gradients (Micikevicius et al., Mixed Precision
// Training, figure 3). keras.Model.Exponents makes such counts of a training
// step, package plot draws them and package tensorboard writes them.
package exponents

import (
	"fmt"
	"math"
	"math/bits"

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

// Exponent fields of [dtype.ExponentCounter] in which not all numbers are alike, and
// where they differ. Blocks that have such numbers are read once more.
const (
	block = 1 << 10 // elements
	most  = 1 << 27 // elements that a counter counts

	smallField = 0 // zeros and subnormal numbers of float32

	tieField = 127 - 25   // 2^-25, half of the least number of float16, rounds to even:
	tie      = 0x33000000 // its bits

	overflowField = 127 + 15   // half way from the largest number of float16 to the next is 65520:
	overflow      = 0x477ff000 // its bits

	infiniteField = 255
)

// Add counts some numbers.
func (h *Histogram) Add(values ...float32) {
	for ; len(values) > 0; values = values[min(len(values), most):] {
		part := values[:min(len(values), most)]
		h.count(len(part), func(c *dtype.ExponentCounter, lo, hi int) { c.AddF32(part[lo:hi]) },
			func(lo, hi int) int { return dtype.CountZeros32(part[lo:hi]) },
			func(lo, hi int) []float32 { return part[lo:hi] })
	}
}

// AddBytes counts the elements of memory of a float type; float64 is rounded
// to float32.
func (h *Histogram) AddBytes(data []byte, d dtype.DType) {
	var converted [block]float32
	size := d.Size()
	for ; len(data) > 0; data = data[min(len(data), most*size):] {
		part := data[:min(len(data), most*size)]
		values := func(lo, hi int) []float32 {
			dtype.ToF32(converted[:hi-lo], part[lo*size:hi*size], d)
			return converted[:hi-lo]
		}
		add := func(c *dtype.ExponentCounter, lo, hi int) { c.AddF32(values(lo, hi)) }
		if d != dtype.Float64 {
			add = func(c *dtype.ExponentCounter, lo, hi int) { c.Add(part[lo*size:hi*size], d) }
		}
		zeros := func(lo, hi int) int { return dtype.CountZeros32(values(lo, hi)) }
		if d.Is16() {
			zeros = func(lo, hi int) int { return dtype.CountZeros16(dtype.View[uint16](part[lo*size : hi*size])) }
		}
		h.count(len(part)/size, add, zeros, values)
	}
}

// count counts n numbers, at most those of a counter: add counts the exponents of some,
// zeros their zeros, and values returns them.
func (h *Histogram) count(n int, add func(c *dtype.ExponentCounter, lo, hi int), zeros func(lo, hi int) int, values func(lo, hi int) []float32) {
	var c dtype.ExponentCounter
	var small, ties, large int // so far
	for lo := 0; lo < n; lo += block {
		hi := min(n, lo+block)
		add(&c, lo, hi)
		newSmall, newTies, newLarge := c.Count(smallField)-small, c.Count(tieField)-ties, c.Count(overflowField)-large
		small, ties, large = small+newSmall, ties+newTies, large+newLarge
		if newSmall > 0 {
			n := zeros(lo, hi)
			h.Zeros += int64(n)
			if n < newSmall {
				h.addSubnormal(values(lo, hi))
			}
		}
		if newTies > 0 {
			for _, v := range values(lo, hi) {
				if math.Float32bits(v)&0x7fffffff == tie {
					h.Float16Zeros++
				}
			}
		}
		if newLarge > 0 {
			for _, v := range values(lo, hi) {
				if a := math.Float32bits(v) & 0x7fffffff; a>>23 == overflowField && a >= overflow {
					h.Float16Infinities++
				}
			}
		}
	}
	h.Count += int64(n)
	h.NonFinite += int64(c.Count(infiniteField))
	for f := smallField + 1; f < infiniteField; f++ {
		count := int64(c.Count(uint8(f)))
		h.binades[f-127-Lowest] += count
		switch {
		case f < tieField:
			h.Float16Zeros += count
		case f > overflowField:
			h.Float16Infinities += count
		}
	}
}

// addSubnormal counts the subnormal numbers of float32 in x.
func (h *Histogram) addSubnormal(x []float32) {
	for _, v := range x {
		if a := math.Float32bits(v) & 0x7fffffff; a != 0 && a>>23 == 0 {
			h.binades[bits.Len32(a)-1]++ // a·2^Lowest
			h.Float16Zeros++
		}
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

// LimitsOf returns the limits of a float type.
func LimitsOf(d dtype.DType) Limits {
	return Limits{math.Ilogb(d.SmallestSubnormal()), math.Ilogb(d.SmallestNormal()), math.Ilogb(d.Max()) + 1}
}
