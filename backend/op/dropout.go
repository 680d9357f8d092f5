package op

import "math"

// DropDraw says which numbers a dropout of a rate draws: an element is kept where
// its number of RandomUniform, of so many bits (Attr.Bits), is at least bound.
//
// Numbers of 16 bits take half the work, and round the share that is dropped to a
// multiple of 2⁻¹⁶. What is kept is multiplied by 1/(1-rate) all the same, as in
// Keras, so that the expectation is off by up to 2⁻¹⁷/(1-rate), 8.5e-6 for a rate of
// 0.1. Rates for which this, or the share itself, would be off by more than 2⁻⁹, half
// a unit in the last place of bfloat16, have numbers of 24 bits, 0 and 1 among them.
func DropDraw(rate float64) (bits int, bound float64) {
	if least := 0x1p-8; rate >= least && rate <= 1-least {
		return 16, math.RoundToEven(rate*(1<<16)) / (1 << 16)
	}
	return 0, rate
}
