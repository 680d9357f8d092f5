package op

import "math"

// DropDraw returns the draws of a dropout: an element is kept if its number of
// RandomUniform, with so many bits (Attr.Bits), is at least bound.
//
// 16-bit draws take half the time, but round the rate to a multiple of 2⁻¹⁶. Kept
// elements are multiplied by 1/(1-rate) all the same, as in Keras, so the expectation
// is off by up to 2⁻¹⁷/(1-rate), 8.5e-6 for a rate of 0.1. Rates for which this or the
// rate itself would be off by more than 2⁻⁹, half a unit in the last place of bfloat16,
// use 24 bits; 0 and 1 are among them.
func DropDraw(rate float64) (bits int, bound float64) {
	if least := 0x1p-8; rate >= least && rate <= 1-least {
		return 16, math.RoundToEven(rate*(1<<16)) / (1 << 16)
	}
	return 0, rate
}
