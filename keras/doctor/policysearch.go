package doctor

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/optimizers"
	"github.com/mezzo-ml/mezzo/policy"
)

// Goal is what Search makes as small as it can.
type Goal string

// The goals of Search.
const (
	MinTime   Goal = "time"   // of a training step
	MinMemory Goal = "memory" // peak of a training step
	MinError  Goal = "error"  // predicted, within MaxTime and MaxMemory
)

// SearchConfig has the arguments of Search. The zero value is the default.
type SearchConfig struct {
	Goal Goal // default MinTime

	// Policies are those that layers may have. float32 is always one. Default:
	// mixed_bfloat16 and mixed_float16. policy.Parse knows the names.
	Policies []string

	// Force gives other policies also to layers whose field DType names one, as layers of
	// files do. Maps have keys for all of these then.
	Force bool

	MaxTime   float64     // of a step, as a share of float32's; 0: no limit
	MaxMemory keras.Bytes // peak of a step; 0: no limit

	// Tolerance is how far the loss, and the Metric, may be off from float32's,
	// relative to it. Default: 0.02.
	Tolerance float64
	Steps     int // of training that verify a choice; default 50
	Maps      int // that are weighed at most beside policies for all layers; default 6

	// Metric, if not nil, judges a model after the steps that verify a choice, such as by
	// its accuracy on other data. It must change no weight.
	Metric func(ctx context.Context, m *keras.Model) (float64, error)

	// Times are known: a step under one of their policies is not measured. With the Times
	// of an earlier result Search returns that result again, to the bit.
	Times []StepTime
	// Measure gives another cost of a step of m on b, a copy that is not used again. Nil is
	// MeasureStep, twice for each step, of which the smaller time counts.
	Measure func(ctx context.Context, m *keras.Model, b keras.Batch) (StepTime, error)
}

// StepTime is how long a training step takes under policies.
type StepTime struct {
	Policy string     `json:"policy"` // of the layers that Map has no key for
	Map    policy.Map `json:"map"`

	Seconds float64 `json:"seconds"`
	// Layers are seconds by the path of a layer, forward and backward. It is nil if the
	// device cannot tell; all layers count alike then.
	Layers map[string]float64 `json:"layers"`
}

// Point is a choice of policies. Model.CloneUnder(Policy, Map, force) makes a copy that
// has them; force is SearchConfig.Force. After policy.SetGlobal(Policy) and
// policy.SetGlobalMap(Map) a new model has them. Layers whose field DType names a policy
// keep that, unless they are forced.
type Point struct {
	Policy string     // of the layers that Map has no key for
	Map    policy.Map // empty if all layers have one policy and need no force

	Seconds float64     // of a step
	Memory  keras.Bytes // peak of a step: Model.PlanMemory

	// Predicted is the relative error of the loss of the first step, to first order, from
	// the effects of the rounding of each layer; infinite if a value leaves the range of its
	// type.
	Predicted float64
	Verified  *Verification // nil: the point was not tried
	Dominated bool          // another point is as good in time, memory and Predicted, and better in one
}

// Verification is how training under the policies of a point compares with training in
// float32, from the same state and on the same batches.
type Verification struct {
	OK  bool
	Why string // not; "" if OK

	// Loss has the relative differences of the mean loss in the first and the second half
	// of the steps, relative to the float32 loss of that half, or to a hundredth of the first
	// half's loss if that is larger.
	Loss [2]float64
	// Skipped counts skipped steps in the two halves. A step that is skipped because the
	// loss scale was too large is run again on the same batch. There may be none in the
	// second half.
	Skipped  [2]int
	Metric   float64 // difference from float32's, relative to it; 0 without a Metric
	Gradient float64 // the largest relative error of a gradient after the steps: see Verdict
	Worst    string  // the variable with that gradient
}

// LayerCost is what a layer contributes under a policy.
type LayerCost struct {
	Layer, Policy string
	Error         float64     // relative error of the loss that its rounding leads to, but for that of weights stored in few bits
	Seconds       float64     // of a step
	Memory        keras.Bytes // of the values of its forward pass
}

// SearchResult is the result of Search.
type SearchResult struct {
	Goal      Goal
	Tolerance float64
	Steps     int

	// Chosen is the first of Points, and was verified. It is nil if no point is within the
	// budget.
	Chosen *Point
	// Points are Chosen and those that are worse by the goal. Rejected come before it: they
	// exceed the budget, or failed.
	Points   []Point
	Rejected []Point

	Layers []LayerCost // that policies make a difference for, in the order of the step
	Times  []StepTime  // that were measured or given
}

// Search looks for the policies under which a training step of m is the fastest, or the
// smallest, while the loss stays within a tolerance of the loss under float32.
//
// A step runs beside its shadow under each policy. That says what the rounding of each
// layer changes the loss by. Where one overflows the step runs again with that layer
// in float32. From errors, and measured times of layers, come maps with more and more
// layers in few bits. Each map is planned, which gives its memory exactly, and measured.
// Then maps are tried, the best by the goal first: a copy of m is trained with it for
// Steps, from the state of m, on batches in the order of data, beside a copy in
// float32. The first one is chosen whose loss differs by at most Tolerance in both halves
// of the steps, that skips no step in the second half, and whose gradients are healthy
// afterwards, as Examine understands it.
//
// Copies have optimizers without slots, and a LossScaleOptimizer where a layer computes
// in float16. m must be compiled; it is built if it is not, and nothing else of it
// changes. Search keeps Steps batches in memory. Everything but times is the same on
// each run, to the bit: see SearchConfig.Times.
func Search(ctx context.Context, m *keras.Model, data keras.Dataset, c SearchConfig) (*SearchResult, error) {
	s, err := newPolicySearch(ctx, m, data, c)
	if err == nil {
		err = s.search(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("doctor: Search: %w", err)
	}
	return s.result, nil
}

// policySearch is one call of Search.
type policySearch struct {
	config   SearchConfig
	model    *keras.Model
	compiled keras.CompileConfig
	batches  []keras.Batch
	named    []string // layers whose field DType is overridden
	layers   []layerCosts
	single   *training // in float32; nil until the first verification
	result   *SearchResult
}

func newPolicySearch(ctx context.Context, m *keras.Model, data keras.Dataset, c SearchConfig) (*policySearch, error) {
	switch {
	case ctx == nil:
		return nil, fmt.Errorf("the context is nil; use context.Background()")
	case m == nil:
		return nil, fmt.Errorf("the model is nil")
	case data == nil:
		return nil, fmt.Errorf("the data is nil")
	}
	compiled, ok := m.CompileConfig()
	if !ok {
		return nil, fmt.Errorf("the model is not compiled")
	}
	if len(compiled.Parts) > 0 {
		return nil, fmt.Errorf("the model is compiled with Parts, which the copies that are tried would share")
	}
	if err := c.complete(); err != nil {
		return nil, err
	}
	if compiled.NonFinite == keras.NonFiniteError { // which a verification says
		compiled.NonFinite = keras.NonFiniteApply
	}
	s := &policySearch{config: c, model: m, compiled: compiled, result: &SearchResult{Goal: c.Goal, Tolerance: c.Tolerance, Steps: c.Steps}}
	for b, err := range batchesOf(ctx, data) {
		if err != nil {
			return nil, err
		}
		if s.batches = append(s.batches, b); len(s.batches) == c.Steps {
			break
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
	}
	switch {
	case len(s.batches) == 0:
		return nil, fmt.Errorf("the data has no batch")
	case !m.Built():
		_, err := m.PlanMemory(s.batches[0])
		return s, err
	}
	return s, nil
}

// complete checks the arguments and sets the defaults.
func (c *SearchConfig) complete() error {
	c.Goal = cmp.Or(c.Goal, MinTime)
	switch {
	case c.Goal != MinTime && c.Goal != MinMemory && c.Goal != MinError:
		return fmt.Errorf("Goal is %q, want %s, %s or %s", c.Goal, MinTime, MinMemory, MinError)
	case !(c.MaxTime >= 0) || math.IsInf(c.MaxTime, 1):
		return fmt.Errorf("MaxTime is %v, want a positive share of float32's time, or 0 for no limit", c.MaxTime)
	case c.MaxMemory < 0:
		return fmt.Errorf("MaxMemory is %d, want a positive number of bytes, or 0 for no limit", c.MaxMemory)
	case c.Goal == MinError && c.MaxTime == 0 && c.MaxMemory == 0:
		return fmt.Errorf("Goal is %s without MaxTime and MaxMemory: that is float32", c.Goal)
	case !(c.Tolerance >= 0 && c.Tolerance < 1):
		return fmt.Errorf("Tolerance is %v, want a number from 0, which stands for 0.02, to 1", c.Tolerance)
	case c.Steps < 0 || c.Steps == 1:
		return fmt.Errorf("Steps is %d, want at least 2, or 0 for 50", c.Steps)
	case c.Maps < 0:
		return fmt.Errorf("Maps is %d, want a positive number, or 0 for 6", c.Maps)
	}
	for _, name := range c.Policies {
		if _, err := policy.Parse(name); err != nil {
			return fmt.Errorf("Policies: %w", err)
		}
	}
	if len(c.Policies) == 0 {
		c.Policies = []string{"mixed_bfloat16", "mixed_float16"}
	}
	all := []string{policy.Float32}
	for _, name := range c.Policies {
		if !slices.Contains(all, name) {
			all = append(all, name)
		}
	}
	c.Policies = all
	c.Tolerance = cmp.Or(c.Tolerance, 0.02)
	c.Steps = cmp.Or(c.Steps, 50)
	c.Maps = cmp.Or(c.Maps, 6)
	return nil
}

// batchesOf are those of the first epoch. Batches of a dataset that shuffles has another
// order in each call.
func batchesOf(ctx context.Context, data keras.Dataset) iter.Seq2[keras.Batch, error] {
	switch d := data.(type) {
	case keras.SeekableDataset:
		return d.Epoch(ctx, 0, 0)
	case keras.EpochDataset:
		return d.EpochBatches(0)
	}
	return data.Batches()
}

func (s *policySearch) search(ctx context.Context) error {
	uniform, err := s.weigh(ctx)
	if err != nil {
		return err
	}
	single := &uniform[0] // float32
	points := slices.Clone(uniform)
	for _, assigned := range s.sweep() {
		p := s.pointOf(assigned)
		if slices.ContainsFunc(points, func(q Point) bool { return q.Policy == p.Policy && maps.Equal(q.Map, p.Map) }) {
			continue
		}
		m, _, err := s.copy(p.Policy, p.Map)
		if err != nil {
			return err
		}
		if _, err := s.measure(ctx, &p, m); err != nil {
			return fmt.Errorf("under %s: %w", p.policies(), err)
		}
		points = append(points, p)
	}
	if err := s.measureAgain(ctx, points); err != nil {
		return err
	}
	slices.SortStableFunc(points, s.order)
	r := s.result
	for i := range points {
		p := &points[i]
		v, err := s.try(ctx, p, single)
		if err != nil {
			return err
		}
		if p.Verified = v; v.OK {
			r.Points, r.Rejected = points[i:], points[:i:i]
			r.Chosen = &r.Points[0]
			break
		}
	}
	if r.Chosen == nil {
		r.Rejected = points
	}
	for i := range r.Points {
		p := &r.Points[i]
		p.Dominated = slices.ContainsFunc(r.Points, func(q Point) bool { return q.dominates(p) })
	}
	return nil
}

// order compares points by the goal.
func (s *policySearch) order(a, b Point) int {
	seconds, memory, predicted := cmp.Compare(a.Seconds, b.Seconds), cmp.Compare(a.Memory, b.Memory), cmp.Compare(a.Predicted, b.Predicted)
	switch s.config.Goal {
	case MinMemory:
		return cmp.Or(memory, seconds, predicted)
	case MinError:
		return cmp.Or(predicted, seconds, memory)
	}
	return cmp.Or(seconds, memory, predicted)
}

func (p *Point) dominates(q *Point) bool {
	return p.Seconds <= q.Seconds && p.Memory <= q.Memory && p.Predicted <= q.Predicted &&
		(p.Seconds < q.Seconds || p.Memory < q.Memory || p.Predicted < q.Predicted)
}

// copy makes a compiled copy of the model. at is not nil.
func (s *policySearch) copy(name string, at policy.Map) (m *keras.Model, scaled bool, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("a copy under %s: %w", name, err)
		}
	}()
	if m, err = s.model.CloneUnder(name, at, s.config.Force); err != nil {
		return nil, false, err
	}
	scaled, err = compileCopy(m, s.compiled, func(inner optimizers.Optimizer) *optimizers.LossScaleOptimizer {
		if o, ok := s.compiled.Optimizer.(*optimizers.LossScaleOptimizer); ok {
			return optimizers.Clone(o).(*optimizers.LossScaleOptimizer)
		}
		return &optimizers.LossScaleOptimizer{Inner: inner}
	})
	return m, scaled, err
}

// measure fills in what a step of m, which is not used again, costs.
func (s *policySearch) measure(ctx context.Context, p *Point, m *keras.Model) (StepTime, error) {
	plan, err := m.PlanMemory(s.batches[0])
	if err != nil {
		return StepTime{}, err
	}
	t, err := s.time(ctx, p, m)
	p.Memory, p.Seconds = plan.Peak, t.Seconds
	return t, err
}

func (s *policySearch) time(ctx context.Context, p *Point, m *keras.Model) (StepTime, error) {
	var t StepTime
	if i := p.timeIn(s.config.Times); i >= 0 {
		t = s.config.Times[i]
	} else {
		measure := s.config.Measure
		if measure == nil {
			measure = MeasureStep
		}
		var err error
		if t, err = measure(ctx, m, s.batches[0]); err != nil {
			return t, err
		}
	}
	if !(t.Seconds > 0) || math.IsInf(t.Seconds, 1) {
		return t, fmt.Errorf("the time of a step under %s is %v seconds, want a positive number", p.policies(), t.Seconds)
	}
	t.Policy, t.Map = p.Policy, p.Map
	s.result.Times = append(s.result.Times, t)
	return t, nil
}

// timeIn returns which of the times is of a step under p, or -1.
func (p *Point) timeIn(times []StepTime) int {
	return slices.IndexFunc(times, func(t StepTime) bool { return t.Policy == p.Policy && maps.Equal(t.Map, p.Map) })
}

// measureAgain measures steps whose times were measured once more, and takes the smaller
// ones: a machine is slow for seconds at a time, and one after another it would be slow
// for some.
func (s *policySearch) measureAgain(ctx context.Context, points []Point) error {
	if s.config.Measure != nil {
		return nil
	}
	for i := range points {
		p := &points[i]
		if p.timeIn(s.config.Times) >= 0 {
			continue
		}
		m, _, err := s.copy(p.Policy, p.Map)
		if err != nil {
			return err
		}
		seconds, err := medianStep(ctx, m, s.batches[0])
		if err != nil {
			return err
		}
		p.Seconds = min(p.Seconds, seconds)
		s.result.Times[p.timeIn(s.result.Times)].Seconds = p.Seconds
	}
	return nil
}

// MeasureStep measures training steps of m on b: the median of a few, and their times by
// layer where the device can tell. It trains m, which must be compiled. On a machine that
// does other work the times mean little.
func MeasureStep(ctx context.Context, m *keras.Model, b keras.Batch) (StepTime, error) {
	seconds, err := medianStep(ctx, m, b)
	t := StepTime{Seconds: seconds}
	if err != nil {
		return t, err
	}
	byLayer := map[string][]float64{}
	for i := range leastSteps {
		paths, err := m.StepTimes(ctx, b)
		if err != nil {
			if ctx.Err() != nil {
				return t, err
			}
			return t, nil // the device cannot tell
		}
		for path, d := range paths {
			name := strings.TrimSuffix(path, "/grad")
			if byLayer[name] == nil {
				byLayer[name] = make([]float64, leastSteps)
			}
			byLayer[name][i] += d.Seconds()
		}
	}
	t.Layers = map[string]float64{}
	for name, all := range byLayer {
		t.Layers[name] = median(all)
	}
	return t, nil
}

// leastSteps are measured at least.
const leastSteps = 5

// medianStep is the median of a few training steps in seconds.
func medianStep(ctx context.Context, m *keras.Model, b keras.Batch) (float64, error) {
	const (
		warm   = 2 // the first compiles, the second touches memory for the first time
		most   = 50
		enough = 300 * time.Millisecond
	)
	var times []float64
	total := time.Duration(0)
	for i := 0; i < warm+leastSteps || i < warm+most && total < enough; i++ {
		start := time.Now()
		if _, err := m.TrainOnBatch(ctx, b); err != nil { // reads the loss back: the step is over
			return 0, err
		}
		if d := time.Since(start); i >= warm {
			times, total = append(times, d.Seconds()), total+d
		}
	}
	return median(times), nil
}

func median(x []float64) float64 {
	slices.Sort(x)
	return (x[(len(x)-1)/2] + x[len(x)/2]) / 2
}
