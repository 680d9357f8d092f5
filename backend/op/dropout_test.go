package op

import (
	"math"
	"testing"
)

// TestDropDraw: bounds are numbers that are drawn, and the share that they drop, and
// what is kept, are off by no more than DropDraw says.
func TestDropDraw(t *testing.T) {
	for rate := range 1 << 12 {
		rate := float64(rate) / (1<<12 - 1)
		bits, bound := DropDraw(rate)
		if bits == 0 {
			if bound != rate || rate >= 0x1p-8 && rate <= 1-0x1p-8 {
				t.Errorf("rate %v: bound %v of 24 bits", rate, bound)
			}
			continue
		}
		if bits != 16 || bound*(1<<16) != math.Trunc(bound*(1<<16)) || bound <= 0 || bound >= 1 {
			t.Errorf("rate %v: bound %v of %d bits", rate, bound, bits)
		}
		if off := math.Abs(bound - rate); off > 0x1p-17 || off > 0x1p-9*min(rate, 1-rate) {
			t.Errorf("rate %v: bound %v", rate, bound)
		}
	}
}
