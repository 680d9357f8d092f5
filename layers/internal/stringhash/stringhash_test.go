package stringhash_test

import (
	"testing"

	"github.com/mezzo-ml/mezzo/layers/internal/stringhash"
)

// TestSip64 has the vector of the paper, appendix A, and TestKerasText of
// package layers those of TensorFlow for strings of all lengths.
func TestSip64(t *testing.T) {
	var s []byte
	for i := range 15 {
		s = append(s, byte(i))
	}
	if got := stringhash.Sip64([2]uint64{0x0706050403020100, 0x0f0e0d0c0b0a0908}, string(s)); got != 0xa129ca6149be45e5 {
		t.Errorf("got %#x, want 0xa129ca6149be45e5", got)
	}
}

func FuzzFingerprints(f *testing.F) {
	f.Add("")
	f.Add("a string of more than sixty-four bytes, so that there is a block and another one")
	f.Fuzz(func(t *testing.T, s string) {
		if stringhash.Farm64(s) != stringhash.Farm64(string([]byte(s))) || stringhash.Sip64([2]uint64{1, 2}, s) != stringhash.Sip64([2]uint64{1, 2}, string([]byte(s))) {
			t.Errorf("%q: got two hashes of one string", s)
		}
	})
}
