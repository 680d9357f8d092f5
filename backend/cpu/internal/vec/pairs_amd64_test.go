package vec

import "testing"

// TestCountEight is for processors with AVX-512 that lack GFNI.
func TestCountEight(t *testing.T) {
	if sets()["AVX512"] == nil {
		t.Skip("the processor lacks AVX-512")
	}
	checkCountFields(t, loopsAVX512.countEight)
}
