package cpu

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/exec"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/gemm"
	"github.com/mezzo-ml/mezzo/backend/dtype"
)

// Peak measures the current peak rate of the processor's multipliers, in floating-point
// operations per second: products of element type d in registers, one thread on each
// core that Go may use. It takes a few milliseconds. Clock frequency and other
// processes change it, so a share of the peak is meaningful only next to the
// measurement. Peak returns 0 if the instruction set in use has no such measurement.
func Peak(d dtype.DType) float64 {
	set := gemm.Native()
	if set == nil || set.Peak == nil {
		return 0
	}
	peak, flops := set.Peak, set.PeakFlops
	if d == dtype.BFloat16 && set.PeakPairs != nil {
		peak, flops = set.PeakPairs, set.PeakPairsFlops
	}
	const n = 50000
	rates := make([]float64, runtime.GOMAXPROCS(0))
	var ready atomic.Int32
	var wg sync.WaitGroup
	for i := range rates {
		wg.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			peak(n) // wakes the core and its vector units
			// All start together: two logical cores may be one physical core, which
			// serves both in turn.
			for ready.Add(1); int(ready.Load()) < len(rates); {
				exec.Yield()
			}
			start := time.Now()
			peak(n)
			rates[i] = float64(n*flops) / time.Since(start).Seconds()
		})
	}
	wg.Wait()
	sum := 0.
	for _, r := range rates {
		sum += r
	}
	return sum
}
