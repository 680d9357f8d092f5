package exec

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
)

// counter counts how often each chunk is done.
type counter []atomic.Int32

func (c counter) Chunk(_ *Run, _ *Worker, i int) { c[i].Add(1) }

// TestParallelDoesAllOnce uses the pool from more goroutines than it has places, with
// more workers than a job has ranges.
func TestParallelDoesAllOnce(t *testing.T) {
	const procs = maxRanges + 3
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(procs))
	var wg sync.WaitGroup
	for range len(pool.places) + 2 {
		wg.Go(func() {
			r := &Run{Plan: &Plan{}, Procs: procs}
			defer r.leave()
			for round := range 300 {
				c := make(counter, round%40)
				r.Parallel(c, len(c), 1<<20)
				for i := range c {
					if n := c[i].Load(); n != 1 {
						t.Errorf("chunk %d of %d was done %d times", i, len(c), n)
						return
					}
				}
			}
		})
	}
	wg.Wait()
}

// TestPoolForgetsRuns: the pool does not keep the memory of a finished run.
func TestPoolForgetsRuns(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(4))
	r := &Run{Plan: &Plan{}, Procs: 4}
	r.Parallel(make(counter, 30), 30, 1<<20)
	names := func() (n int) {
		for i := range pool.places {
			for j := range pool.places[i].ranges {
				if pool.places[i].ranges[j].run == r {
					n++
				}
			}
		}
		return n
	}
	if n := names(); n != 4 {
		t.Errorf("a job with 3 helpers has %d ranges, want 4", n)
	}
	if r.leave(); names() != 0 {
		t.Errorf("%d ranges name a run that is over", names())
	}
}

// nothing is a task without work; busy is a task whose chunks take a while.
type (
	nothing struct{}
	busy    struct{ loops int }
)

func (nothing) Chunk(*Run, *Worker, int) {}

func (b busy) Chunk(*Run, *Worker, int) {
	x := uint64(1)
	for range b.loops {
		x = x*6364136223846793005 + 1
	}
	sink.Store(x)
}

var sink atomic.Uint64

// BenchmarkForkJoin measures the cost of distributing work: a task without work, and
// tasks of eight chunks of a few microseconds in all, which two cores do in at least
// half the time of one.
func BenchmarkForkJoin(b *testing.B) {
	r := &Run{Plan: &Plan{}, Procs: runtime.GOMAXPROCS(0)}
	b.Run("empty", func(b *testing.B) {
		for b.Loop() {
			r.Parallel(nothing{}, 8, 1<<30)
		}
	})
	for _, loops := range []int{1000, 5000, 50000} {
		t := busy{loops}
		for name, work := range map[string]int{"alone": 0, "shared": 1 << 30} {
			b.Run(fmt.Sprintf("%d/%s", loops, name), func(b *testing.B) {
				for b.Loop() {
					r.Parallel(t, 8, work)
				}
			})
		}
	}
}
