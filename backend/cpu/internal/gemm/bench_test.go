package gemm

import (
	"fmt"
	"slices"
	"testing"
	"time"
	"unsafe"
)

// BenchmarkKernels measures micro-kernels on operands in L1 as a
// share of what the processor's multipliers do at the same moment. Use
// -benchtime 1x.
func BenchmarkKernels(b *testing.B) {
	for _, set := range setsHere() {
		if set.Peak == nil {
			continue
		}
		for _, mr := range []int{1, 2, 4, 6, 8, 11, 14} {
			if mr > set.F32.MR {
				continue
			}
			b.Run(fmt.Sprintf("%s/float32/Rows%d", set.Name, mr), func(b *testing.B) {
				benchKernel(b, set.F32.Rows[mr], mr*2*set.F32.NR, set.Peak, set.PeakFlops, false)
			})
			b.Run(fmt.Sprintf("%s/float32/Inner%d", set.Name, mr), func(b *testing.B) {
				benchKernel(b, set.F32.Inner[mr], mr*2*set.F32.NR, set.Peak, set.PeakFlops, true)
			})
			if set.Pairs != nil {
				b.Run(fmt.Sprintf("%s/pairs/Rows%d", set.Name, mr), func(b *testing.B) {
					benchKernel(b, set.Pairs.Rows[mr], mr*4*set.Pairs.NR, set.PeakPairs, set.PeakPairsFlops, false)
				})
			}
		}
	}
}

func benchKernel(b *testing.B, kernel Kernel, stepFlops int, peak func(int), peakFlops int, inner bool) {
	const k = 128
	x, y, z := make([]float32, 16*k), make([]float32, 64*k), make([]float32, 16*64)
	run := func() {
		lda := 4 * k
		if inner {
			lda = 4 * 14
		}
		kernel(k, unsafe.Pointer(&x[0]), lda, unsafe.Pointer(&y[0]), 128, nil, 0, unsafe.Pointer(&z[0]), 128, 1<<32-1)
	}
	rate := func(n, flops int, f func()) float64 {
		start := time.Now()
		f()
		return float64(n*flops) / float64(time.Since(start))
	}
	var shares []float64
	for b.Loop() {
		for range 15 {
			const n = 2000
			top := rate(10000, peakFlops, func() { peak(10000) })
			got := rate(n*k, stepFlops, func() {
				for range n {
					run()
				}
			})
			shares = append(shares, 100*got/top)
		}
	}
	slices.Sort(shares)
	b.ReportMetric(shares[len(shares)/2], "%peak")
	b.ReportMetric(0, "ns/op")
}
