package main

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// turns is how often each side of a comparison of single calls has its turn: the machine
// is not the same for long.
const turns = 20

// latencies prints how long single calls of rows take, one after the other: half of
// them at most p50, all but one of a hundred at most p99. Peers, in the setting that is
// fastest, take turns with Mezzo. Other load on the machine slows the least of them last.
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
			sides := append([]*contender{e.ours}, e.peers...)
			times := make([][]time.Duration, len(sides))
			for range turns {
				for i, c := range sides {
					if c.runner == nil {
						continue
					}
					if len(sides) > 1 {
						time.Sleep(min(settle, *least))
					}
					more, err := c.runner.each(max(1, calls/turns))
					if err != nil {
						return fmt.Errorf("%s, %s: %w", r.name, name, err)
					}
					times[i] = append(times[i], more...)
				}
				if err := ctx.Err(); err != nil {
					return err
				}
			}
			for i, c := range sides {
				n := len(times[i])
				if n == 0 {
					continue
				}
				slices.Sort(times[i])
				shortest, p50, p99 := times[i][0].Seconds(), times[i][n/2].Seconds(), times[i][n*99/100].Seconds()
				if _, err := fmt.Fprintf(t.w, "| %s | %s | %s | %.4g | %.4g | %.4g | %.2f |\n", r.name, name, c.label, 1e3*shortest, 1e3*p50, 1e3*p99, p99/p50); err != nil {
					return err
				}
			}
		}
	}
	return nil
}
