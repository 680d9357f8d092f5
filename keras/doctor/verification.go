package doctor

import (
	"context"
	"fmt"
	"maps"
	"math"

	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/optimizers"
)

// training is a copy of the model that was trained for the steps of a verification.
type training struct {
	model   *keras.Model
	losses  []float64
	skipped [2]int // in each half
	failed  string // why it ended early; "" if it did not
	metric  float64
}

// mean is the mean loss of a half of the steps.
func (t *training) mean(half int) float64 {
	n := len(t.losses) / 2
	x := t.losses[:n]
	if half == 1 {
		x = t.losses[n:]
	}
	sum := 0.0
	for _, l := range x {
		sum += l
	}
	return sum / float64(len(x))
}

// mostSkips is how many steps a loss scale may skip on its way down, from 2^24 at most to
// 2^-8.
const mostSkips = 32

// train trains a copy of the model under a point.
func (s *policySearch) train(ctx context.Context, p *Point) (*training, error) {
	m, scaled, err := s.copy(p.Policy, p.Map)
	if err != nil {
		return nil, err
	}
	t := &training{model: m}
	var before int64
	for k := 0; k < s.config.Steps; {
		logs, err := m.TrainOnBatch(ctx, s.batches[k%len(s.batches)])
		if err != nil {
			return nil, err
		}
		half := 2 * k / s.config.Steps
		if scaled {
			r, err := m.StepResult()
			if err != nil {
				return nil, err
			}
			if r.SkippedSteps > before {
				before = r.SkippedSteps
				t.skipped[half]++
				switch {
				case half == 1:
					t.failed = fmt.Sprintf("step %d was skipped", k+1)
					return t, nil
				case t.skipped[0] > mostSkips:
					t.failed = fmt.Sprintf("step %d is skipped under any loss scale", k+1)
					return t, nil
				}
				continue
			}
		}
		loss := logs.Get("loss")
		if math.IsNaN(loss) || math.IsInf(loss, 0) {
			t.failed = fmt.Sprintf("the loss of step %d is %v", k+1, loss)
			return t, nil
		}
		t.losses = append(t.losses, loss)
		k++
	}
	if s.config.Metric != nil {
		if t.metric, err = s.config.Metric(ctx, m); err != nil {
			return nil, fmt.Errorf("Metric: %w", err)
		}
	}
	return t, nil
}

// try verifies a point within the budget. single is the point of float32.
func (s *policySearch) try(ctx context.Context, p, single *Point) (*Verification, error) {
	c, v := &s.config, &Verification{}
	if share := p.Seconds / single.Seconds; c.MaxTime > 0 && share > c.MaxTime {
		v.Why = fmt.Sprintf("it takes %.3g of float32's time, and MaxTime is %.3g", share, c.MaxTime)
		return v, nil
	}
	if c.MaxMemory > 0 && p.Memory > c.MaxMemory {
		v.Why = fmt.Sprintf("it needs %v, and MaxMemory is %v", p.Memory, c.MaxMemory)
		return v, nil
	}
	if s.single == nil {
		t, err := s.train(ctx, single)
		if err != nil {
			return nil, err
		}
		if t.failed != "" {
			return nil, fmt.Errorf("in float32 %s; Examine says why", t.failed)
		}
		s.single = t
	}
	if p.Policy == single.Policy && maps.Equal(p.Map, single.Map) {
		v.OK = true
		return v, nil
	}
	t, err := s.train(ctx, p)
	if err != nil {
		return nil, err
	}
	v.Skipped = t.skipped
	if v.Why = t.failed; v.Why != "" {
		return v, nil
	}
	if v.Why = v.compare(t, s.single, c); v.Why != "" {
		return v, nil
	}
	// Layers that learn nothing need not show in the loss of a few steps.
	scaler, _ := t.model.Optimizer().(*optimizers.LossScaleOptimizer)
	step := &modelStep{model: t.model, compiled: s.compiled, batch: s.batches[c.Steps%len(s.batches)]}
	e, err := newExamination(step, scaler, Config{})
	if err != nil {
		return nil, err
	}
	if _, err := e.look(ctx); err != nil {
		return nil, err
	}
	before := e.report.Before
	v.Gradient, v.Worst = before.Gradient, before.Worst
	switch {
	case !before.Finite:
		v.Why = "after the steps a gradient is not finite"
	case !e.healthy(before):
		v.Why = fmt.Sprintf("after the steps the gradient of %s is off by %.2g", v.Worst, v.Gradient)
	}
	v.OK = v.Why == ""
	return v, nil
}

// compare sets the differences of t from single, and returns which one exceeds the
// tolerance.
func (v *Verification) compare(t, single *training, c *SearchConfig) (why string) {
	first := math.Abs(single.mean(0))
	for half := range v.Loss {
		of := single.mean(half)
		v.Loss[half] = difference(t.mean(half), of, max(math.Abs(of), first/100))
		if !(v.Loss[half] <= c.Tolerance) && why == "" {
			why = fmt.Sprintf("the loss is off by %s in the %s half", percent(v.Loss[half]), [2]string{"first", "second"}[half])
		}
	}
	if c.Metric != nil {
		v.Metric = difference(t.metric, single.metric, math.Abs(single.metric))
		if !(v.Metric <= c.Tolerance) && why == "" {
			why = fmt.Sprintf("the metric is %.4g, and %.4g in float32", t.metric, single.metric)
		}
	}
	return why
}

// difference is |x-y| relative to of, 0 if both are the same.
func difference(x, y, of float64) float64 {
	if x == y {
		return 0
	}
	return math.Abs(x-y) / of
}
