package serving

import (
	"math"
	"math/bits"
)

// powersOfTen are those that a float64 holds exactly.
var powersOfTen = [...]float64{1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22}

// decimal is a number of JSON: mantissa·10^exponent, negative or not.
type decimal struct {
	mantissa uint64
	exponent int
	negative bool
	integer  bool // it has no fraction and no exponent
}

// decimal reads a number of JSON of at most 19 digits. If there is none it returns
// false and stays where it is: number then says what is wrong, or takes it.
func (s *scanner) decimal() (d decimal, ok bool) {
	text, i := s.text, s.at
	at := func() byte {
		if i < len(text) {
			return text[i]
		}
		return 0
	}
	if at() == '-' {
		d.negative = true
		i++
	}
	begin := i
	for ; i < len(text) && text[i]-'0' <= 9; i++ {
		d.mantissa = d.mantissa*10 + uint64(text[i]-'0')
	}
	digits := i - begin
	if digits == 0 || digits > 1 && text[begin] == '0' {
		return d, false
	}
	d.integer = true
	if at() == '.' {
		i++
		begin = i
		for ; i < len(text) && text[i]-'0' <= 9; i++ {
			d.mantissa = d.mantissa*10 + uint64(text[i]-'0')
		}
		if i == begin {
			return d, false
		}
		digits += i - begin
		d.exponent = begin - i
		d.integer = false
	}
	if digits > 19 { // the mantissa may have overflowed
		return d, false
	}
	if at()|0x20 == 'e' {
		i++
		minus := at() == '-'
		if minus || at() == '+' {
			i++
		}
		begin, e := i, 0
		for ; i < len(text) && text[i]-'0' <= 9 && e < 1000; i++ {
			e = e*10 + int(text[i]-'0')
		}
		if i == begin || e >= 1000 {
			return d, false
		}
		if minus {
			e = -e
		}
		d.exponent += e
		d.integer = false
	}
	s.at = i
	return d, true
}

// float returns the number as a float64, with an error of at most 2 units in the
// last place, and whether it is exact to the half of one. ok is false if the powers
// do not reach.
func (d decimal) float() (v float64, exact, ok bool) {
	v = float64(d.mantissa)
	switch {
	case d.exponent < -22 || d.exponent > 22:
		return 0, false, false
	case d.exponent < 0:
		v /= powersOfTen[-d.exponent]
	default:
		v *= powersOfTen[d.exponent]
	}
	if d.negative {
		v = -v
	}
	return v, bits.Len64(d.mantissa) <= 53, true
}

// float32 returns the float32 that is nearest; false if it may be another one.
func (d decimal) float32() (float32, bool) {
	v, _, ok := d.float()
	if !ok {
		return 0, false
	}
	size := math.Abs(v)
	if size != 0 && (size < 0x1p-126 || size > math.MaxFloat32) {
		return 0, false
	}
	// A float32 has 29 bits less. Rounding twice is right unless v is so near to the
	// middle of two float32 that the number itself may be beyond it.
	const middle = 1 << 28
	if low := math.Float64bits(v) & (1<<29 - 1); low-(middle-4) <= 8 {
		return 0, false
	}
	return float32(v), true
}

// float64 returns the float64 that is nearest; false if it may be another one.
func (d decimal) float64() (float64, bool) {
	v, exact, ok := d.float()
	return v, ok && exact
}

// int returns an integer from low to high; false if it is none.
func (d decimal) int(low, high int64) (int64, bool) {
	if !d.integer || d.mantissa > math.MaxInt64 {
		return 0, false
	}
	v := int64(d.mantissa)
	if d.negative {
		v = -v
	}
	return v, low <= v && v <= high
}
