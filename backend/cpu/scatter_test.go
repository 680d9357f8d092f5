package cpu

import (
	"bytes"
	"math"
	"runtime"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/lanes"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/move"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// TestScatterAddSorted: long rows, each summed at once, have the bits of the portable
// path, which adds in the same order: rows without terms, zeros of either sign, results
// stored non-temporally or not.
func TestScatterAddSorted(t *testing.T) {
	for _, d := range []dtype.DType{dtype.Float32, dtype.Float16, dtype.BFloat16} {
		for _, c := range []struct{ limit, n, inner int }{
			{1, 5, move.LongRow},
			{7, 20, 131},
			{300, 41, move.SortedPart + 67},
			{lanes.NonTemporalBytes/d.Size()/1024 + 3, 301, 1024},
		} {
			x := scattered(d, c.n, c.inner)
			values := x.values()
			for i := range values {
				if i%5 == 0 {
					values[i] = math.Copysign(0, float64(i%2)-1)
				}
			}
			dtype.FromF64(x.data, values, d)
			idx := arrayOf(dtype.Int32, op.Shape{c.n}, func(i int) float64 { return float64(i * i * 7919 % c.limit) })
			var want array
			forEachVectors(t, func(t *testing.T) {
				for _, procs := range []int{1, 3} {
					func() {
						defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(procs))
						got := eval(t, op.ScatterAdd, op.Attr{Size: c.limit}, x, idx)
						if want.data == nil {
							want = got
						}
						if !bytes.Equal(got.data, want.data) {
							t.Fatalf("%v into %d rows: other bits than before", x.Type, c.limit)
						}
					}()
				}
			})
		}
	}
}
