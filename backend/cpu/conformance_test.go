package cpu_test

import (
	"fmt"
	"testing"

	"github.com/mezzo-ml/mezzo/backend"
	"github.com/mezzo-ml/mezzo/backend/backendtest"
	_ "github.com/mezzo-ml/mezzo/backend/cpu"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/isa/isatest"
	"github.com/mezzo-ml/mezzo/backend/driver"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/op"
)

func open(tb testing.TB) driver.Device {
	d, err := backend.Open("cpu")
	if err != nil {
		tb.Fatal(err)
	}
	return d
}

func TestConformance(t *testing.T) {
	d := open(t)
	small := func(c backendtest.Case) bool { return !c.Large }
	switch {
	case isatest.Race() && testing.Short():
		// What programs promise of runs at the same time, and of workers.
		backendtest.RunSome(t, d, func(backendtest.Case) bool { return false })
	case isatest.Emulated() && testing.Short():
		// Assembly computes on floats of up to 32 bits. All other code is Go, which the
		// native run tests. TestAlgorithms and TestMatMulBlocks have large shapes. What is not
		// elementwise has each class of shapes in one type of three.
		places, classes := map[string]int{}, map[op.Code]int{}
		backendtest.RunSome(t, d, func(c backendtest.Case) bool {
			class := fmt.Sprint(c.Op, c.Class)
			if _, ok := places[class]; !ok {
				places[class] = classes[c.Op]
				classes[c.Op]++
			}
			return small(c) && c.DType.IsFloat() && c.DType != dtype.Float64 &&
				(c.Op.Info().Class == op.Elementwise || isatest.InTurn(places[class]+int(c.DType)))
		})
	case testing.Short():
		backendtest.RunSome(t, d, small)
	default:
		backendtest.RunSome(t, d, func(c backendtest.Case) bool {
			// The reference takes most of the time. The kernels for float64 are loops in Go,
			// whatever the size.
			return small(c) || c.DType == dtype.BFloat16 || isatest.Every() && c.DType != dtype.Float64
		})
	}
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
