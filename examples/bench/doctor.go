package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/keras/doctor"
	"github.com/mezzo-ml/mezzo/policy"
)

// doctorTable prints, for each row under each policy, the time of a step, of a step
// beside its shadow with statistics, and of the first examination, which records and
// compiles; the last two in steps under float32. The last column is the time of training
// in which every 100th step is examined, computed from these times.
func doctorTable(ctx context.Context, w io.Writer, rows []row, policies []string) error {
	fmt.Fprint(w, "| row | policy | step, ms | beside its shadow / float32 step | first examination, in float32 steps | every 100th step examined |\n|---|---|---|---|---|---|\n")
	for _, r := range rows {
		if r.onlyPlanned {
			continue
		}
		full := 0.0
		for _, p := range append([]string{policy.Float32}, policies...) {
			if full != 0 && p == policy.Float32 {
				continue
			}
			step, err := examine(ctx, r, p)
			if err != nil {
				return fmt.Errorf("%s, %s: %w", r.name, p, err)
			}
			if full == 0 {
				full = step.plain
			}
			if _, err := fmt.Fprintf(w, "| %s | %s | %.3g | %.2f | %.1f | %.3f |\n", r.name, p, 1000*step.plain, step.beside/full, step.first/full, 1+step.again/(100*step.plain)); err != nil {
				return err
			}
		}
	}
	return nil
}

// costs are seconds of a step, of one beside its shadow, and of the first and of a later
// examination.
type costs struct{ plain, beside, first, again float64 }

func examine(ctx context.Context, r row, name string) (c costs, err error) {
	defer policy.SetGlobal(policy.SetGlobal(name))
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
	all := []*contender{{runner: own(func() error { return n.model.TrainStep(ctx, n.batch) })}, {runner: beside}, {runner: look}}
	for _, k := range all {
		if err := k.calibrate(min(*least, 50*time.Millisecond)); err != nil {
			return c, err
		}
	}
	if err := compete(ctx, all, min(*reps, 5)); err != nil {
		return c, err
	}
	c.plain, c.beside, c.again = all[0].median(), all[1].median(), all[2].median()
	return c, nil
}
