// Package isatest runs tests under every level of instructions.
package isatest

import (
	"testing"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/isa"
)

// ForEach runs f for every level that the processor supports. Programs that f
// compiles use that level. Tests that call it must not run in parallel with others
// of their package.
func ForEach(t *testing.T, f func(t *testing.T)) {
	for _, l := range isa.Levels() {
		t.Run(l.String(), func(t *testing.T) {
			defer isa.Use(isa.Use(l))
			f(t)
		})
	}
}
