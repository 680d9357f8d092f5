package cpu_test

import (
	"testing"

	"github.com/mezzo-ml/mezzo/backend"
	"github.com/mezzo-ml/mezzo/backend/backendtest"
	_ "github.com/mezzo-ml/mezzo/backend/cpu"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/isa/isatest"
	"github.com/mezzo-ml/mezzo/backend/driver"
	"github.com/mezzo-ml/mezzo/backend/dtype"
)

func open(tb testing.TB) driver.Device {
	d, err := backend.Open("cpu")
	if err != nil {
		tb.Fatal(err)
	}
	return d
}

func TestConformance(t *testing.T) {
	isatest.SkipRace(t)
	backendtest.RunSome(t, open(t), func(c backendtest.Case) bool {
		if c.Large && c.DType != dtype.BFloat16 && !isatest.Every() {
			return false // the reference takes most of the time
		}
		// Assembly computes on floats of up to 32 bits. All other code is Go, which the
		// native run tests. TestAlgorithms and TestMatMulBlocks have large shapes.
		return !(isatest.Emulated() && testing.Short()) || c.DType.IsFloat() && c.DType != dtype.Float64 && !c.Large
	})
}

// TestSupportsAll: the processor is the device that every program can fall back to, so
// it has a kernel for each operation and type of the suite, or for its expansion.
func TestSupportsAll(t *testing.T) {
	for c := range backendtest.Cases() {
		if d := open(t); !c.SupportedBy(d) && c.Op.Info().Expand == nil {
			t.Errorf("no kernel for %s", c.Name())
		}
	}
}

func BenchmarkConformance(b *testing.B) { backendtest.Bench(b, open(b)) }
