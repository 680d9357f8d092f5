package main

import (
	"context"
	"fmt"
	"io"
	"runtime"

	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/policy"
)

// steady is how many steps memoryTable takes to look for growth.
const steady = 1000

// memoryTable prints what a training step of each row plans to need, under
// each policy and as a ratio to the first one; and what the process holds
// after steps more than after the first few, for rows whose steps are short.
func memoryTable(ctx context.Context, w io.Writer, rows []row, policies []string) error {
	fmt.Fprintf(w, "| row | policy | weights | slots | activations and gradients | workspace | peak, MiB | / %s |\n|---|---|---|---|---|---|---|---|\n", policies[0])
	for _, r := range rows {
		first := keras.Bytes(0)
		for _, p := range policies {
			need, err := planned(r, p)
			if err != nil {
				return fmt.Errorf("%s, %s: %w", r.name, p, err)
			}
			if first == 0 {
				first = need.Peak
			}
			mib := func(n keras.Bytes) float64 { return float64(n) / (1 << 20) }
			fmt.Fprintf(w, "| %s | %s | %.1f | %.1f | %.1f | %.1f | %.1f | %.2f |\n", r.name, p,
				mib(need.Weights), mib(need.Slots), mib(need.Activation), mib(need.Workspace), mib(need.Peak), float64(need.Peak)/float64(first))
		}
	}
	fmt.Fprintf(w, "\n| row | policy | heap after 20 steps, MiB | after %d more | growth, KiB | Go allocations a step |\n|---|---|---|---|---|---|\n", steady)
	for _, r := range rows {
		if r.flops > 3e9 {
			continue
		}
		for _, p := range policies {
			if err := growth(ctx, w, r, p); err != nil {
				return fmt.Errorf("%s, %s: %w", r.name, p, err)
			}
		}
	}
	return nil
}

// growth runs a row and prints how the heap grows.
func growth(ctx context.Context, w io.Writer, r row, name string) error {
	defer policy.SetGlobal(policy.SetGlobal(name))
	call, err := r.build(ctx)
	if err != nil {
		return err
	}
	run := func(n int) error {
		for range n {
			if err := call(); err != nil {
				return err
			}
		}
		return nil
	}
	held := func() (m runtime.MemStats) {
		runtime.GC()
		runtime.GC() // what the first one put into finalization and pools
		runtime.ReadMemStats(&m)
		return m
	}
	if err := run(20); err != nil {
		return err
	}
	before := held()
	if err := run(steady); err != nil {
		return err
	}
	after := held()
	_, err = fmt.Fprintf(w, "| %s | %s | %.1f | %.1f | %.0f | %.2f |\n", r.name, name,
		float64(before.HeapAlloc)/(1<<20), float64(after.HeapAlloc)/(1<<20),
		(float64(after.HeapAlloc)-float64(before.HeapAlloc))/(1<<10), float64(after.Mallocs-before.Mallocs)/steady)
	return err
}

// planned is what a step of a row needs under a policy.
func planned(r row, name string) (keras.MemoryPlan, error) {
	defer policy.SetGlobal(policy.SetGlobal(name))
	n, err := r.network()
	if err != nil {
		return keras.MemoryPlan{}, err
	}
	return n.model.PlanMemory(n.batch)
}
