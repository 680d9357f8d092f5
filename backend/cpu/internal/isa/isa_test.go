package isa

import (
	"strings"
	"testing"
)

func TestChoose(t *testing.T) {
	levels := []Level{Portable, AVX2, AVX512}
	for word, want := range map[string]Level{"": AVX512, "portable": Portable, "avx2": AVX2, "avx512": AVX512} {
		if got, err := choose(word, levels); got != want || err != nil {
			t.Errorf("choose(%q) is %v, %v, want %v", word, got, err, want)
		}
	}
	for _, word := range []string{"fast", "neon", "AVX2"} {
		got, err := choose(word, levels)
		if got != AVX512 || err == nil || !strings.Contains(err.Error(), "want one of avx512, avx2, portable") {
			t.Errorf("choose(%q) is %v, %v, want the best level and a list of the words", word, got, err)
		}
	}
}

func TestLevels(t *testing.T) {
	levels := Levels()
	if levels[0] != Portable {
		t.Errorf("the lowest level is %v, want portable", levels[0])
	}
	for i, l := range levels {
		if l.String() == "" || l.Name() == "" || i > 0 && l <= levels[i-1] {
			t.Errorf("levels are %v, want named ones in rising order", levels)
		}
	}
}
