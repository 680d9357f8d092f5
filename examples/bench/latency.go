package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/mezzo-ml/mezzo/policy"
)

// latencyTable prints how long single calls of rows take, one after the other: half of
// them at most p50, all but one of a hundred at most p99. Other load on the machine
// slows the least of them last.
func latencyTable(ctx context.Context, w io.Writer, rows []row, policies []string, calls int) error {
	fmt.Fprintln(w, "| row | policy | least, ms | p50, ms | p99, ms | p99 / p50 |\n|---|---|---|---|---|---|")
	for _, r := range rows {
		for _, name := range policies {
			times, err := latencies(ctx, r, name, calls)
			if err != nil {
				return fmt.Errorf("%s, %s: %w", r.name, name, err)
			}
			least, p50, p99 := times[0].Seconds(), times[len(times)/2].Seconds(), times[len(times)*99/100].Seconds()
			fmt.Fprintf(w, "| %s | %s | %.4g | %.4g | %.4g | %.2f |\n", r.name, name, 1e3*least, 1e3*p50, 1e3*p99, p99/p50)
		}
	}
	return nil
}

// latencies returns the times of calls of a row that has warmed up, the shortest first.
func latencies(ctx context.Context, r row, name string, calls int) ([]time.Duration, error) {
	defer policy.SetGlobal(policy.SetGlobal(name))
	call, err := r.build(ctx)
	if err != nil {
		return nil, err
	}
	c := contender{runner: own(call)}
	if err := c.calibrate(*least); err != nil {
		return nil, err
	}
	times := make([]time.Duration, calls)
	for i := range times {
		start := time.Now()
		if err := call(); err != nil {
			return nil, err
		}
		times[i] = time.Since(start)
	}
	slices.Sort(times)
	return times, nil
}
