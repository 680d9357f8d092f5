package cpu

import (
	"testing"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/isa"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/vec"
)

// forEachISA runs f for every level that the processor supports. Programs
// that f compiles use that level. Tests that use it cannot run in parallel
// with others of the package.
func forEachISA(t *testing.T, f func(t *testing.T)) {
	for _, l := range isa.Levels() {
		t.Run(l.String(), func(t *testing.T) {
			defer isa.Use(isa.Use(l))
			f(t)
		})
	}
}

// forEachVectors is forEachISA for what only depends on package vec.
func forEachVectors(t *testing.T, f func(t *testing.T)) {
	seen := map[*vec.Set]bool{}
	forEachISA(t, func(t *testing.T) {
		if !seen[vec.Current()] {
			seen[vec.Current()] = true
			f(t)
		}
	})
}
