// Package cost is a callback with which the example programs print what a training step
// takes: time and memory.
package cost

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/mezzo-ml/mezzo/keras"
)

// Callback prints, at the end of a training, the median time of a step of its last epoch,
// without reading data, and the memory that the first step was planned with.
func Callback() keras.Callback {
	var plan keras.MemoryPlan
	var times []time.Duration
	var begin time.Time
	return keras.Callback{
		EpochBegin: func(context.Context, *keras.Run) error {
			times = times[:0]
			return nil
		},
		BatchBegin: func(_ context.Context, r *keras.Run) (err error) {
			if plan.Peak == 0 {
				plan, err = r.Model.PlanMemory(r.Batch)
			}
			begin = time.Now()
			return err
		},
		BatchEnd: func(context.Context, *keras.Run) error {
			times = append(times, time.Since(begin))
			return nil
		},
		TrainEnd: func(context.Context, *keras.Run) error {
			if len(times) == 0 {
				return nil
			}
			slices.Sort(times)
			fmt.Printf("Time of a step in ms: %.3g\n", times[len(times)/2].Seconds()*1e3)
			fmt.Printf("Planned memory of a step in MiB: %.1f\n", float64(plan.Peak)/(1<<20))
			return nil
		},
	}
}
