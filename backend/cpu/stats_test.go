package cpu

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/exec"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/isa/isatest"
	"github.com/mezzo-ml/mezzo/backend/driver"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// statsOf decodes Stats of x and y.
func statsOf(t *testing.T, x, y array) *op.Statistics {
	t.Helper()
	s, err := op.DecodeStatistics(eval(t, op.Stats, op.Attr{}, x, y).values())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestStatsWorkers: the result has the same bits for every number of workers, also
// where blocks have elements that are not finite.
func TestStatsWorkers(t *testing.T) {
	isatest.SkipEmulated(t, "how work is shared does not depend on the processor")
	rng := rand.New(rand.NewPCG(31, 32))
	for _, n := range []int{0, 1, 257, 32_768, 100_003, 2_200_001} {
		x := arrayOf(dtype.BFloat16, op.Shape{n}, func(i int) float64 {
			if i%70_001 == 5 {
				return math.NaN()
			}
			return rng.NormFloat64()
		})
		y := randomArray(rng, dtype.Float32, n)
		isatest.ForEach(t, func(t *testing.T) {
			var first []byte
			for _, procs := range []int{1, 2, 3, 8} {
				before := runtime.GOMAXPROCS(procs)
				got := eval(t, op.Stats, op.Attr{}, x, y).data
				runtime.GOMAXPROCS(before)
				if first == nil {
					first = got
				} else if !bytes.Equal(got, first) {
					t.Errorf("statistics of %d elements have other bits with %d workers", n, procs)
				}
			}
		})
	}
}

// TestStatsLevels: all levels give the same counts, bins and extremes, at all lengths
// and with each special value in each place of a vector; sums differ in their order.
func TestStatsLevels(t *testing.T) {
	rng := rand.New(rand.NewPCG(33, 34))
	special := []float64{0, math.Copysign(0, -1), math.NaN(), math.Inf(1), math.Inf(-1), 0x1p-149, -0x1p-127, 0x1p-126, math.MaxFloat32, -math.MaxFloat32, 0x1p-24, 65504}
	for _, d := range []dtype.DType{dtype.Float32, dtype.BFloat16, dtype.Float16} {
		for at := range 70 {
			n := 257 + at // more than are taken one at a time
			if at%3 == 0 {
				n += 2 << 10
			}
			fill := func(int) float64 { return rng.NormFloat64() * math.Ldexp(1, rng.IntN(30)-20) }
			u, v := arrayOf(d, op.Shape{n}, fill).values(), arrayOf(dtype.Float32, op.Shape{n}, fill).values()
			for i := range 3 { // one of x, one of y, and both
				k := n - 1 - at
				if i != 1 {
					u[k-3*i] = special[at%len(special)]
				}
				if i != 0 {
					v[k-3*i] = special[(at+i)%len(special)]
				}
			}
			x, y := arrayFrom(d, op.Shape{n}, u), arrayFrom(dtype.Float32, op.Shape{n}, v)
			var first *op.Statistics
			isatest.ForEach(t, func(t *testing.T) {
				got := statsOf(t, x, y)
				if first == nil {
					first = got
				}
				rounded := *got
				for _, s := range []struct{ got, want *float64 }{
					{&rounded.SquaredError, &first.SquaredError}, {&rounded.Products, &first.Products},
					{&rounded.X.Squares, &first.X.Squares}, {&rounded.Y.Squares, &first.Y.Squares},
				} {
					if math.Abs(*s.got-*s.want) <= 1e-12*(math.Abs(*s.want)+first.X.Squares+first.Y.Squares) {
						*s.got = *s.want
					}
				}
				if rounded != *first {
					t.Errorf("%v of %d elements: got %+v, want %+v", d, n, rounded, *first)
				}
			})
		}
	}
}

// BenchmarkStats reports nanoseconds per element with one worker.
func BenchmarkStats(b *testing.B) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	defer func(on bool) { exec.Checking = on }(exec.Checking)
	exec.Checking = false
	rng := rand.New(rand.NewPCG(35, 36))
	for _, n := range []int{1 << 12, 1 << 17, 1 << 23} {
		for _, types := range [][2]dtype.DType{{dtype.Float32, dtype.Float32}, {dtype.BFloat16, dtype.Float32}, {dtype.Float16, dtype.Float32}, {dtype.Float32, dtype.Float64}} {
			for _, zeros := range []bool{false, true} {
				b.Run(fmt.Sprintf("%v/%v/%d/zeros=%v", types[0], types[1], n, zeros), func(b *testing.B) {
					fill := func(int) float64 {
						if v := rng.NormFloat64(); !zeros || v > 0 {
							return v
						}
						return 0
					}
					g := ir.New(2)
					x, y := arrayOf(types[0], op.Shape{n}, fill), arrayOf(types[1], op.Shape{n}, fill)
					g.Output(record(b, g, op.Stats, op.Attr{}, param(b, g, 0, x.Type), param(b, g, 1, y.Type)), -1)
					p := plan(b, g)
					out, _ := guarded(g.Outputs[0].Type.Bytes())
					in := []driver.Buffer{&Buffer{storage: x.data}, &Buffer{storage: y.data}}
					for b.Loop() {
						if err := p.Run(context.Background(), in, []driver.Buffer{out}); err != nil {
							b.Fatal(err)
						}
					}
					b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/element")
				})
			}
		}
	}
}
