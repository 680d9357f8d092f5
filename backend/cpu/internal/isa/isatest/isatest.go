// Package isatest runs tests at every level of instructions, and skips tests that
// special runs need not repeat.
package isatest

import (
	"flag"
	"os"
	"runtime"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/isa"
	"github.com/mezzo-ml/mezzo/backend/dtype"
)

var every = flag.Bool("every", false, "run tests of kernels on every instruction set of the processor, with all cases, as CI does: three times as long")

// Every reports whether -every is set. Without it go test ./... runs part of the cases.
func Every() bool { return *every }

// ForEach runs f for portable Go and for the level in use, with -every for all levels
// that the processor supports. Programs that f compiles use that level. Tests that call
// it must not run in parallel with others of their package. With -short and MEZZO_CPU set
// it skips the test: the run without MEZZO_CPU covers it.
func ForEach(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	SkipLevel(t, "goes through all levels")
	all := isa.Levels() // from portable Go to the best
	if testing.Short() && (Emulated() || raceDetector) {
		all = all[min(1, len(all)-1):] // portable Go is the same everywhere
	}
	// All levels share memory in the same way. On amd64 only the best one is emulated (.ci/amx).
	if testing.Short() && (raceDetector || Emulated() && runtime.GOARCH == "amd64") {
		all = all[len(all)-1:]
	}
	for _, l := range all {
		if !*every && !testing.Short() && l != all[0] && l != isa.Current() {
			continue
		}
		t.Run(l.String(), func(t *testing.T) {
			defer isa.Use(isa.Use(l))
			f(t)
		})
	}
}

// SkipLevel skips a test that does not depend on the instruction set, with -short and
// MEZZO_CPU set, as in .ci/isa: the run without MEZZO_CPU covers it.
func SkipLevel(t *testing.T, why string) {
	t.Helper()
	if testing.Short() && os.Getenv("MEZZO_CPU") != "" {
		t.Skip(why + "; runs without MEZZO_CPU")
	}
}

// Emulated reports whether the tests run on an emulated processor, as in .ci/arm64, or with
// emulated instructions, as in .ci/amx.
func Emulated() bool { return os.Getenv("MEZZO_TEST_EMULATED") != "" }

// InTurn reports whether a test has its case number i: all but under emulation with -short, where
// it has one case in three. Tests with several types add the type to the number, so that
// each type has other cases.
func InTurn(i int) bool { return !(Emulated() && testing.Short()) || i%3 == 0 }

// SkipEmulated skips a test that takes minutes under emulation with -short. why names
// the tests that cover the same code.
func SkipEmulated(t *testing.T, why string) {
	t.Helper()
	if Emulated() && testing.Short() {
		t.Skip("takes minutes under emulation; " + why)
	}
}

// Floats are the float types to test. Under emulation with -short float64 is left out:
// it is portable Go on every processor. Under the race detector with -short float32 and
// bfloat16 stand for all: workers share memory in the same way whatever the type.
func Floats() []dtype.DType {
	if raceDetector && testing.Short() {
		return []dtype.DType{dtype.Float32, dtype.BFloat16}
	}
	if Emulated() && testing.Short() {
		return []dtype.DType{dtype.Float16, dtype.BFloat16, dtype.Float32}
	}
	return dtype.Floats()
}

// Race reports whether the race detector is on.
func Race() bool { return raceDetector }

// SkipRace skips a test that takes minutes under the race detector with -short. It
// computes in assembly, which the race detector does not see; .ci/isa runs it with
// pointers checked.
func SkipRace(t *testing.T) {
	t.Helper()
	if raceDetector && testing.Short() {
		t.Skip("takes minutes under the race detector, which does not see assembly; .ci/isa checks its pointers")
	}
}
