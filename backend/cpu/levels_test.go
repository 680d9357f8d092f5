package cpu

import (
	"testing"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/isa/isatest"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/vec"
)

// forEachVectors is [isatest.ForEach] for code that depends on package vec only.
func forEachVectors(t *testing.T, f func(t *testing.T)) {
	seen := map[*vec.Set]bool{}
	isatest.ForEach(t, func(t *testing.T) {
		if !seen[vec.Current()] {
			seen[vec.Current()] = true
			f(t)
		}
	})
}
