package vec

import "testing"

// TestCountEight is for processors with AVX-512 that lack GFNI: with GFNI nothing else
// runs these loops.
func TestCountEight(t *testing.T) {
	if sets()["AVX512"] != nil {
		checkCountFields(t, loopsAVX512.countEight)
	}
}
