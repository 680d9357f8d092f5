package main

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// warmUp is how many calls at the start of a turn do not count: threads sleep between turns.
const warmUp = 5

// turns is how often each side of a comparison of single calls has its turn: the machine
// is not the same for long.
const turns = 20

// latencies prints how long single calls of rows take, one after the other: half of
// them at most p50, all but one of a hundred at most p99. Peers, in the setting that is
// fastest, and the bare machine (see bare) take turns with Mezzo. Other load on the machine
// slows the least of them last.
func (t *table) latencies(ctx context.Context, rows []row, calls int) error {
	fmt.Fprintln(t.w, "| row | policy | | least, ms | p50, ms | p99, ms | p99 / p50 |\n|---|---|---|---|---|---|---|")
	for _, r := range rows {
		for _, name := range t.policies {
			e, err := t.enter(ctx, r, name)
			if err != nil {
				return fmt.Errorf("%s, %s: %w", r.name, name, err)
			}
			e.ours.label = "Mezzo"
			for i, c := range e.peers {
				c.label = t.peerNames[i]
			}
			usual, err := e.ours.runner.each(max(1, calls/turns))
			if err != nil {
				return fmt.Errorf("%s, %s: %w", r.name, name, err)
			}
			machine := &contender{runner: newBare(percentile(usual, 50)), label: "bare machine"}
			sides := append([]*contender{e.ours, machine}, e.peers...)
			times := make([][]time.Duration, len(sides))
			for range turns {
				for i, c := range sides {
					if c.runner == nil {
						continue
					}
					time.Sleep(min(settle, *least))
					more, err := c.runner.each(warmUp + max(1, calls/turns))
					if err != nil {
						return fmt.Errorf("%s, %s: %w", r.name, name, err)
					}
					times[i] = append(times[i], more[min(warmUp, len(more)):]...)
				}
				if err := ctx.Err(); err != nil {
					return err
				}
			}
			for i, c := range sides {
				if len(times[i]) == 0 {
					continue
				}
				shortest, p50, p99 := percentile(times[i], 0).Seconds(), percentile(times[i], 50).Seconds(), percentile(times[i], 99).Seconds()
				if _, err := fmt.Fprintf(t.w, "| %s | %s | %s | %.4g | %.4g | %.4g | %.2f |\n", r.name, name, c.label, 1e3*shortest, 1e3*p50, 1e3*p99, p99/p50); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// percentile sorts times and returns the one that p percent of them are below.
func percentile(times []time.Duration, p int) time.Duration {
	slices.Sort(times)
	return times[len(times)*p/100]
}

// bare is what the machine itself does to a call: each processor computes for a while in
// registers, and the call ends when the last of them is done. A call that takes much longer
// than others was interrupted by the system or the host, and so are those of any library.
type bare struct{ loops int }

// newBare returns a bare for calls of about the given length.
func newBare(length time.Duration) bare {
	const tries, loops = 5, 1 << 16
	fastest := time.Duration(1<<63 - 1)
	for range tries {
		start := time.Now()
		inRegisters(loops)
		fastest = min(fastest, time.Since(start))
	}
	return bare{max(1, int(float64(loops)*length.Seconds()/fastest.Seconds()))}
}

func (b bare) each(n int) ([]time.Duration, error) {
	others := int64(runtime.GOMAXPROCS(0) - 1)
	var begun, done atomic.Int64 // calls, and what the others did in all of them
	var wg sync.WaitGroup
	for range others {
		wg.Go(func() {
			for seen := int64(0); seen < int64(n); {
				if begun.Load() > seen {
					inRegisters(b.loops)
					seen++
					done.Add(1)
				}
			}
		})
	}
	times := make([]time.Duration, n)
	for i := range times {
		start := time.Now()
		calls := begun.Add(1)
		inRegisters(b.loops)
		for done.Load() < calls*others {
		}
		times[i] = time.Since(start)
	}
	wg.Wait()
	return times, nil
}

func (b bare) repeat(n int) (wall, used time.Duration, err error) {
	return own(func() error { _, err := b.each(1); return err }).repeat(n)
}

// inRegisters computes without memory.
//
//go:noinline
func inRegisters(loops int) {
	x := 1.0
	for range loops {
		x = x*0.999 + 0.001
	}
	runtime.KeepAlive(x)
}
