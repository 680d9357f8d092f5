package cpu

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// BenchmarkMatMulPeak measures products as a share of what the processor's
// multipliers can do at the same moment: other programs and the clock change
// both. Use -benchtime 1x; each result is the median of repetitions, each
// between two measurements of the peak, and those in which the process did not
// have its processors are dropped.
func BenchmarkMatMulPeak(b *testing.B) {
	for _, s := range []struct {
		m, n, k int
		trans   string
	}{
		{32, 32, 32, ""}, {64, 64, 64, ""}, {128, 128, 128, ""}, {256, 256, 256, ""}, {512, 512, 512, ""},
		{1024, 1024, 1024, ""}, {2048, 2048, 2048, ""}, {4096, 4096, 4096, ""},
		{32, 3072, 768, ""}, {8192, 64, 784, ""}, {128, 128, 784, ""}, {128, 512, 784, ""}, {25088, 64, 288, ""},
		{784, 64, 8192, "A"}, {8192, 784, 64, "B"}, {512, 512, 128, "A"}, {128, 512, 512, "B"},
		{1024, 1024, 1024, "A"}, {1024, 1024, 1024, "B"},
		{1024, 4096, 784, ""}, {1024, 4096, 4096, ""}, {1024, 4096, 4096, "B"}, {4096, 4096, 1024, "A"}, {784, 4096, 1024, "A"}, {1024, 4096, 10, "B"}, {4096, 10, 1024, "A"},
		{1, 4096, 4096, ""}, {1, 4096, 4096, "B"}, {4096, 1, 4096, ""},
		{128, 512, 784, "+"}, {128, 512, 512, "+"}, {128, 512, 512, "B>"}, {1024, 4096, 10, "B>"}, {784, 512, 128, "A"},
	} {
		for _, d := range []dtype.DType{dtype.Float32, dtype.BFloat16, dtype.Float16} {
			for _, threads := range []int{1, 2} {
				b.Run(fmt.Sprintf("%dx%dx%d%s/%v/%dT", s.m, s.n, s.k, s.trans, d, threads), func(b *testing.B) {
					a := op.Attr{TransA: strings.Contains(s.trans, "A"), TransB: strings.Contains(s.trans, "B")}
					benchMatMul(b, a, s.trans, d, s.m, s.n, s.k, threads)
				})
			}
		}
	}
}

// benchMatMul measures a product; with + a bias and a relu follow, with > the
// gradient of one.
func benchMatMul(b *testing.B, a op.Attr, what string, d dtype.DType, m, n, k, threads int) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(threads))
	more := 0
	if strings.ContainsAny(what, "+>") {
		more = 1
	}
	p := followedProgram(b, a, d, m, n, k, more, func(g *ir.Graph, v *ir.Value) *ir.Value {
		switch {
		case strings.Contains(what, "+"):
			v = record(b, g, op.Relu, op.Attr{}, record(b, g, op.Add, op.Attr{}, v, param(b, g, 2, op.Type{DType: d, Shape: op.Shape{n}})))
		case strings.Contains(what, ">"):
			zero := record(b, g, op.Const, op.Attr{DType: d})
			mask := record(b, g, op.Greater, op.Attr{}, param(b, g, 2, v.Type), zero)
			v = record(b, g, op.Where, op.Attr{}, mask, v, zero)
		}
		return v
	})
	in, out := buffers(p, someOperands(p))
	r, err := p.get()
	if err != nil {
		b.Fatal(err)
	}
	if err := p.bind(r, in, out); err != nil {
		b.Fatal(err)
	}
	r.Procs = threads
	work := p.steps[len(p.steps)-1].kernel
	if Peak(d) == 0 {
		b.Skip("this instruction set has no measure of its peak")
	}
	// Of as many cores as the product has: fewer may have a higher clock.
	probe := func() float64 { return Peak(d) / 1e9 }
	work.Run(&r.Run)
	start := time.Now()
	work.Run(&r.Run)
	calls := max(1, int(5*time.Millisecond/max(1, time.Since(start))))
	for b.Loop() {
		var rates, shares []float64
		var top float64 // of all measurements of the peak
		for tries := 0; len(rates) < 15 && tries < 60; tries++ {
			before := max(probe(), probe())
			cpu, start := processTime(), time.Now()
			for range calls {
				work.Run(&r.Run)
			}
			wall, used := time.Since(start), processTime()-cpu
			after := max(probe(), probe())
			top = max(top, before, after)
			if float64(used) < 0.975*float64(wall)*float64(threads) && tries < 45 {
				continue
			}
			rate := float64(2*m*n*k*calls) / float64(wall)
			rates = append(rates, rate)
			shares = append(shares, 100*rate/((before+after)/2))
		}
		slices.Sort(rates)
		slices.Sort(shares)
		b.ReportMetric(rates[len(rates)/2], "GFLOP/s")
		b.ReportMetric(shares[len(shares)/2], "%peak")
		// The best of both is what a quiet machine would show.
		b.ReportMetric(100*slices.Max(rates)/top, "%best")
	}
	b.ReportMetric(0, "ns/op")
}
