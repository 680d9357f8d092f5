package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/keras/doctor"
	"github.com/mezzo-ml/mezzo/policy"
)

// doctorTable prints, for each row under each policy, the time of a step, of a step
// beside its shadow with statistics, and of the first examination, which records and
// compiles; the last two in steps under float32, which are timed in turns with the others.
// The last column is the time of training in which every 100th step is examined, computed
// from these times.
func doctorTable(ctx context.Context, w io.Writer, rows []row, policies []string) error {
	fmt.Fprint(w, "| row | policy | step, ms | beside its shadow / float32 step | first examination, in float32 steps | every 100th step examined |\n|---|---|---|---|---|---|\n")
	peak := new(float64)
	for _, r := range rows {
		if r.onlyPlanned {
			continue
		}
		for _, p := range policies {
			step, err := examine(ctx, r, p, peak)
			if err != nil {
				return fmt.Errorf("%s, %s: %w", r.name, p, err)
			}
			if _, err := fmt.Fprintf(w, "| %s | %s | %.3g | %.2f | %.1f | %.3f |\n", r.name, p, 1000*step.plain, step.beside/step.full, step.first/step.full, 1+step.again/(100*step.plain)); err != nil {
				return err
			}
		}
	}
	return nil
}

// costs are seconds of a step under float32 and under a policy, of that beside its shadow,
// and of the first and of a later examination.
type costs struct{ full, plain, beside, first, again float64 }

// examine times a row under a policy. peak is the largest rate of arithmetic so far: at a
// lower one the host has less than the machine's cores for it.
func examine(ctx context.Context, r row, name string, peak *float64) (c costs, err error) {
	defer policy.SetGlobal(policy.SetGlobal(policy.Float32))
	single, err := r.network()
	if err != nil {
		return c, err
	}
	if err := single.model.TrainStep(ctx, single.batch); err != nil { // which builds it
		return c, err
	}
	policy.SetGlobal(name)
	n, err := r.network()
	if err != nil {
		return c, err
	}
	if err := n.model.TrainStep(ctx, n.batch); err != nil {
		return c, err
	}
	look := own(func() error {
		_, err := doctor.Examine(ctx, n.model, n.batch, doctor.Config{})
		return err
	})
	wall, _, err := look.repeat(1)
	if err != nil {
		return c, err
	}
	c.first = wall.Seconds()
	beside := own(func() error {
		_, err := n.model.Beside(ctx, n.batch, tensor.BesideOptions{})
		return err
	})
	step := func(n network) runner { return own(func() error { return n.model.TrainStep(ctx, n.batch) }) }
	all := []*contender{{runner: step(single)}, {runner: step(n)}, {runner: beside}, {runner: look}}
	rate := arithmetic(dtype.Float32)
	for _, k := range all {
		k.probe, k.best = rate, peak
		if err := k.calibrate(min(*least, 50*time.Millisecond)); err != nil {
			return c, err
		}
	}
	if err := compete(ctx, all, min(*reps, 5)); err != nil {
		return c, err
	}
	c.full, c.plain, c.beside, c.again = all[0].median(), all[1].median(), all[2].median(), all[3].median()
	return c, nil
}
