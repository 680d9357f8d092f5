package main

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/mezzo-ml/mezzo/backend/cpu"
	"github.com/mezzo-ml/mezzo/backend/dtype"
)

// runner does its work n times and says how long that took, and how much time
// of the processors its process used meanwhile.
type runner interface {
	repeat(n int) (wall, used time.Duration, err error)
	// each does the work n times and says how long each of them took.
	each(n int) ([]time.Duration, error)
}

// own is work of this process.
type own func() error

func (f own) repeat(n int) (wall, used time.Duration, err error) {
	before, start := processTime(), time.Now()
	for range n {
		if err := f(); err != nil {
			return 0, 0, err
		}
	}
	return time.Since(start), processTime() - before, nil
}

func (f own) each(n int) ([]time.Duration, error) {
	times := make([]time.Duration, n)
	for i := range times {
		start := time.Now()
		if err := f(); err != nil {
			return nil, err
		}
		times[i] = time.Since(start)
	}
	return times, nil
}

// contender is one side of a comparison.
type contender struct {
	runner runner         // nil: it does not run here
	label  string         // of a peer: the setting that is fastest, or why there is none
	calls  int            // in a repetition
	probe  func() float64 // measures the peak
	best   *float64       // of the probe so far; nil: any will do
	shared int            // repetitions while the host had less than two cores for the machine

	walls    []float64 // seconds a call, of accepted repetitions
	rejected []float64 // of the others
	peaks    []float64 // rates of the probe around each accepted repetition
	outcast  []float64 // around each rejected one
}

// calibrate warms up and finds how many calls make a repetition of the given
// length.
func (c *contender) calibrate(least time.Duration) error {
	if _, _, err := c.runner.repeat(1); err != nil { // compiles
		return err
	}
	for c.calls = 1; ; c.calls *= 2 {
		wall, _, err := c.runner.repeat(c.calls)
		if err != nil {
			return err
		}
		if wall >= least || c.calls >= 1<<20 {
			return nil
		}
		if 8*wall < least {
			c.calls *= 4
		}
	}
}

// busy is the share of the processors' time that a process must have had for
// its repetition to count: less means that other programs took some.
const busy = 0.975

// ownCores is the share of the highest peak that must be measured around a repetition for
// it to count: virtual processors may share a core of the host for a while, which no
// guest is told.
const ownCores = 0.93

// settle is how long one side waits for the other's threads to stop spinning.
const settle = 20 * time.Millisecond

// compete lets the contenders take turns until each has so many accepted
// repetitions, or has used four times as many. The peak is measured around each
// repetition of those that have a probe.
func compete(ctx context.Context, contenders []*contender, reps int) error {
	threads := float64(runtime.GOMAXPROCS(0))
	for range 4 * reps {
		done := true
		for _, c := range contenders {
			if c.runner == nil || len(c.walls) >= reps {
				continue
			}
			done = false
			if err := ctx.Err(); err != nil {
				return err
			}
			if len(contenders) > 1 {
				time.Sleep(min(settle, *least))
			}
			peak := 0.0
			if c.probe != nil {
				peak = c.probe()
			}
			wall, used, err := c.runner.repeat(c.calls)
			if err != nil {
				return err
			}
			if c.probe != nil {
				peak = (peak + c.probe()) / 2
			}
			seconds := wall.Seconds() / float64(c.calls)
			slow := false
			if c.best != nil {
				*c.best = max(*c.best, peak)
				slow = peak < ownCores**c.best
			}
			if slow {
				// It is no measurement of either side, unless there is nothing else.
				if c.shared++; c.shared < 3*reps {
					continue
				}
			}
			if slow || used.Seconds() < busy*wall.Seconds()*threads {
				c.rejected, c.outcast = append(c.rejected, seconds), append(c.outcast, peak)
			} else {
				c.walls, c.peaks = append(c.walls, seconds), append(c.peaks, peak)
			}
		}
		if done {
			break
		}
	}
	for _, c := range contenders {
		if len(c.walls) < reps { // work that leaves processors idle is never accepted
			c.walls, c.peaks = append(c.walls, c.rejected...), append(c.peaks, c.outcast...)
		} else {
			c.rejected = nil
		}
	}
	return nil
}

// median is the median time of a call in seconds.
func (c *contender) median() float64 { return median(c.walls) }

// ms prints the median; ~ says that not enough repetitions had the processors
// to themselves.
func (c *contender) ms() string {
	mark := ""
	if len(c.rejected) > 0 {
		mark = "~"
	}
	return fmt.Sprintf("%s%.4g", mark, 1e3*c.median())
}

// shares lists the rates of the repetitions as shares of the peaks around them.
func (c *contender) shares(work float64) []float64 {
	var s []float64
	for i, wall := range c.walls {
		s = append(s, work/wall/c.peaks[i])
	}
	return s
}

func median(x []float64) float64 {
	if len(x) == 0 {
		return 0
	}
	x = slices.Sorted(slices.Values(x))
	return x[len(x)/2]
}

// arithmetic measures the peak for products of type d.
func arithmetic(d dtype.DType) func() float64 {
	return func() float64 { return cpu.Peak(d) }
}

// copies measures what memory gives: bytes that a plain copy reads and writes
// a second, half of them read.
type copies struct{ from, to []byte }

func newCopies(bytes int) *copies {
	c := &copies{make([]byte, bytes/2), make([]byte, bytes/2)}
	for i := range c.from {
		c.from[i] = 1 // another page than the one of zeros
	}
	return c
}

func (c *copies) rate() float64 {
	parts := runtime.GOMAXPROCS(0)
	calls := max(1, 1<<27/max(1, len(c.from)))
	if *least == 0 { // any length will do
		calls = 1
	}
	var wg sync.WaitGroup
	start := time.Now()
	for i := range parts {
		lo, hi := i*len(c.from)/parts, (i+1)*len(c.from)/parts
		wg.Go(func() {
			for range calls {
				copy(c.to[lo:hi], c.from[lo:hi])
			}
		})
	}
	wg.Wait()
	return 2 * float64(calls*len(c.from)) / time.Since(start).Seconds()
}
