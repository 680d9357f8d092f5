package cpu

import (
	"testing"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/vec"
)

// forEachVectors is forEachISA for what only depends on package vec.
func forEachVectors(t *testing.T, f func(t *testing.T)) {
	seen := map[*vec.Set]bool{}
	forEachISA(t, func(t *testing.T) {
		if !seen[vectors()] {
			seen[vectors()] = true
			f(t)
		}
	})
}
