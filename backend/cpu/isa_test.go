package cpu

import (
	"strings"
	"testing"
)

// forEachISA runs f for every level that the processor supports. Programs
// that f compiles use that level. Tests that use it cannot run in parallel
// with others of the package.
func forEachISA(t *testing.T, f func(t *testing.T)) {
	for _, l := range isaLevels() {
		t.Run(l.String(), func(t *testing.T) {
			before := isaLevel.Swap(uint32(l))
			defer isaLevel.Store(before)
			f(t)
		})
	}
}

func TestChooseISA(t *testing.T) {
	levels := []isa{isaPortable, isaAVX2, isaAVX512}
	for word, want := range map[string]isa{"": isaAVX512, "portable": isaPortable, "avx2": isaAVX2, "avx512": isaAVX512} {
		if got, err := chooseISA(word, levels); got != want || err != nil {
			t.Errorf("chooseISA(%q) is %v, %v, want %v", word, got, err, want)
		}
	}
	for _, word := range []string{"fast", "neon", "AVX2"} {
		got, err := chooseISA(word, levels)
		if got != isaAVX512 || err == nil || !strings.Contains(err.Error(), "want one of avx512, avx2, portable") {
			t.Errorf("chooseISA(%q) is %v, %v, want the best level and a list of the words", word, got, err)
		}
	}
}

func TestISALevels(t *testing.T) {
	levels := isaLevels()
	if levels[0] != isaPortable {
		t.Errorf("the lowest level is %v, want portable", levels[0])
	}
	for i, l := range levels {
		if l.String() == "" || i > 0 && l <= levels[i-1] {
			t.Errorf("levels are %v, want named ones in rising order", levels)
		}
	}
}
