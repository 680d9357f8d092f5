package optimizers

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/tensor"
)

// Slots of options; the update rules name their own.
const (
	averageSlot     = "average"
	accumulatorSlot = "gradient_accumulator"
)

// setup describes a class of optimizers to the shared code.
type setup struct {
	class        string // default of Name
	learningRate float64
	given        *float64     // the field LearningRate itself; nil where there is none
	again        func() setup // reads the fields again
	options      *options
	fields       []field // checked before recording

	// slots are the state of each variable. Keras stores the slots of one group
	// interleaved (m₀ v₀ m₁ v₁ …), and one group after the other.
	slots [][]slot
	// update returns the new value of weight w for gradient g, and assigns the
	// slots.
	update func(u *update, w, g *tensor.Tensor) *tensor.Tensor
	// still reports that a gradient of 0 changes neither weight nor slots, and that
	// each element's update depends on that element alone.
	still bool

	// elementwise reports that an element of weight and slots depends on this element
	// alone, of them and of the gradient.
	elementwise bool

	// For few classes; nil for the others.

	// decayOf is the weight decay of one variable, instead of weightDecay.
	decayOf func(v *tensor.Variable) float64
	// shared are scalars that belong to no variable, and before assigns them
	// at the start of a step.
	shared []slot
	before func(u *update)
}

// slot describes a slot.
type slot struct {
	name   string
	first  float64                            // all elements before the first step
	copies bool                               // instead of first: the elements of the variable
	of     func(v *tensor.Variable) bool      // which variables have it; nil: all
	shape  func(of tensor.Shape) tensor.Shape // nil: the variable's shape
	whole  bool                               // each rank has all of it, also in a Partition
}

// zeros is a group of slots that start at 0.
func zeros(names ...string) []slot {
	group := make([]slot, len(names))
	for i, name := range names {
		group[i].name = name
	}
	return group
}

// init fills the slot for the first step.
func (s *slot) init(dst []float64) error {
	for i := range dst {
		dst[i] = s.first
	}
	return nil
}

func (s *setup) name() string { return or(s.options.Name, s.class) }

// weightDecay is 0 where there is none.
func (s *setup) weightDecay() float64 {
	if d := s.options.WeightDecay; d != nil {
		return *d
	}
	return 0
}

// state is embedded in every optimizer: its variables, and the code that all
// classes share.
type state struct {
	setup setup // of the last use

	iterations   *tensor.Variable // applied steps
	learningRate *tensor.Variable
	given, began float64          // the field LearningRate when learningRate was made or set, and the rate it stood for
	norm         *tensor.Variable // of the last gradients
	microStep    *tensor.Variable // calls in the open window
	nonFinite    *tensor.Variable // of them, those with a gradient that was not finite

	partition *tensor.Partition // see SetPartition; nil: none

	scaler   *LossScaleOptimizer // the last one that has applied gradients with this optimizer
	scaledIn uint64              // and the recording in which it did

	known         []*tensor.Variable // variables passed to ApplyGradients, in order of appearance
	slotVariables map[*tensor.Variable]map[string]*tensor.Variable
	shared        map[string]*tensor.Variable
	averaged      []*tensor.Variable             // variables that have had a step with UseEMA
	held          map[*tensor.Variable][]float64 // the averages, while SwapEMA has them in the weights
}

// begin makes the variables that are there before the first step.
func (b *state) begin(s setup) {
	b.setup = s
	scalar := func(name string, d dtype.DType, first float64) *tensor.Variable {
		return tensor.NewState(s.name()+"/"+name, d, nil, func(dst []float64) error {
			dst[0] = first
			return nil
		})
	}
	if b.iterations == nil {
		b.iterations = scalar("iteration", dtype.Int64, 0)
		b.learningRate = scalar("learning_rate", dtype.Float32, math.Abs(s.learningRate)) // of negative zero, 0
		b.note(s)
		b.norm = scalar("gradient_norm", dtype.Float32, 0)
		b.microStep = scalar("accumulated_steps", dtype.Int64, 0)
		b.nonFinite = scalar("accumulated_non_finite", dtype.Int64, 0)
		b.slotVariables = map[*tensor.Variable]map[string]*tensor.Variable{}
		b.shared = map[string]*tensor.Variable{}
	}
}

// note remembers the field LearningRate.
func (b *state) note(s setup) {
	if s.given != nil {
		b.given, b.began = *s.given, s.learningRate
	}
}

// meet makes the slotVariables of variables that are new.
func (b *state) meet(vars []*tensor.Variable) {
	s := &b.setup
	for _, shared := range s.shared {
		if b.shared[shared.name] == nil {
			b.shared[shared.name] = tensor.NewState(s.name()+"/"+shared.name, arithmetic(vars[0]), nil, shared.init)
		}
	}
	for _, v := range vars {
		if b.slotVariables[v] == nil {
			b.slotVariables[v] = map[string]*tensor.Variable{}
			b.known = append(b.known, v)
		}
		for _, slot := range slices.Concat(b.groups()...) {
			if old := b.slotVariables[v][slot.name]; old != nil {
				if p, _ := old.Partition(); !p.Equal(b.partition) && !slot.whole {
					tensor.Fail("ApplyGradients", "optimizer %s: slot %s was made for another division among ranks; resume with a new optimizer from a checkpoint", s.name(), old.Name())
				}
				continue
			}
			if slot.of != nil && !slot.of(v) {
				continue
			}
			init, shape := slot.init, v.Shape()
			if slot.copies {
				init = func(dst []float64) error {
					now, err := v.Float64s()
					copy(dst, now)
					return err
				}
			}
			if slot.shape != nil {
				shape = slot.shape(shape)
			}
			name := fmt.Sprintf("%s/%s_%s", s.name(), strings.ReplaceAll(v.Name(), "/", "_"), slot.name)
			if b.partition != nil && !slot.whole {
				b.slotVariables[v][slot.name] = b.partition.NewState(name, arithmetic(v), shape, init)
			} else {
				b.slotVariables[v][slot.name] = tensor.NewState(name, arithmetic(v), shape, init)
			}
		}
	}
}

// groups returns the slots of options, followed by those of the class.
func (b *state) groups() [][]slot {
	var own [][]slot
	if b.setup.options.UseEMA {
		// A variable that joins a running training does not start its average
		// from 0.
		own = append(own, []slot{{name: averageSlot, copies: true, whole: true}})
	}
	if b.setup.options.GradientAccumulationSteps > 1 {
		own = append(own, []slot{{name: accumulatorSlot, whole: b.partition == nil || !b.partition.Scattered}})
	}
	return append(own, b.setup.slots...)
}

// arithmetic is the type that v is updated in, and of its slots.
func arithmetic(v *tensor.Variable) dtype.DType { return v.DType().Accumulator() }

// kerasVariables returns the variables that Keras's optimizer of this class has;
// see kerasstate.Variables.
func (b *state) kerasVariables() []*tensor.Variable {
	if b.iterations == nil {
		return nil
	}
	out := []*tensor.Variable{b.iterations}
	if b.setup.options.Schedule == nil {
		out = append(out, b.learningRate)
	}
	for _, group := range b.groups() {
		for _, v := range b.known {
			for _, slot := range group {
				if c := b.slotVariables[v][slot.name]; c != nil {
					out = append(out, c)
				}
			}
		}
	}
	for _, shared := range b.setup.shared {
		if c := b.shared[shared.name]; c != nil {
			out = append(out, c)
		}
	}
	return out
}

// variables returns Keras's variables, then those that Keras does not have.
func (b *state) variables(s setup) []*tensor.Variable {
	b.begin(s)
	out := append(b.kerasVariables(), b.norm)
	if s.options.GradientAccumulationSteps > 1 {
		out = append(out, b.microStep, b.nonFinite)
	}
	return out
}

// apply records a call of ApplyGradients. finite, where it is not nil, tells
// whether the gradients are: a step in which they are not moves nothing. It
// returns whether this call ends a step (nil: always), and whether all
// gradients of that step were finite (nil: not asked).
func (b *state) apply(s setup, finite *tensor.Tensor, grads []*tensor.Tensor, vars []*tensor.Variable) (ends, ok *tensor.Tensor) {
	inFunction(s.name())
	s.check("ApplyGradients")
	g, v := pairs(b.partition, grads, vars)
	if finite == nil && !s.options.AllowUnscaledLoss {
		throughFloat16(g, v, "optimizer "+s.name(), "use a LossScaleOptimizer")
	}
	b.begin(s)
	if err := b.precondition(); err != nil {
		tensor.Fail("ApplyGradients", "%w", err)
	}
	b.meet(vars)
	for i := range g {
		g[i] = join(g[i].Widen().Cast(arithmetic(v[i])), b.iterations)
	}
	if finite == nil {
		norm, _ := judge(b.partition, g)
		b.norm.Assign(norm)
	}
	ok = finite
	predicate := finite
	if n := s.options.GradientAccumulationSteps; n > 1 {
		ends, ok = b.window(finite, n)
		predicate = ends
		if ok != nil {
			predicate = ends.And(ok)
		}
		b.accumulate(ends, g, v, n)
	}
	if predicate == nil {
		b.step(g, v)
	} else {
		tensor.Predicated(predicate, func() { b.step(g, v) })
	}
	return ends, ok
}

// join makes a gradient that does not depend on the recording, such as a constant, part
// of it: variables made in a recording can be assigned only values of that recording.
// counter is a variable of the optimizer that is never negative.
func join(g *tensor.Tensor, counter *tensor.Variable) *tensor.Tensor {
	if n := counter.Value(); !tensor.IsRecorded(g) && tensor.IsRecorded(n) {
		return tensor.Where(n.GreaterScalar(-1), g, g)
	}
	return g
}

// window counts the calls of an accumulation window. It returns whether this
// is the last one, and whether all so far were finite.
func (b *state) window(finite *tensor.Tensor, n int) (last, ok *tensor.Tensor) {
	zero := tensor.Scalar(dtype.Int64, 0)
	step := b.microStep.Value()
	last = step.Equal(tensor.Scalar(dtype.Int64, float64(n-1)))
	b.microStep.Assign(tensor.Where(last, zero, step.AddScalar(1)))
	if finite != nil {
		bad := b.nonFinite.Value().Add(finite.Not().Cast(dtype.Int64))
		b.nonFinite.Assign(tensor.Where(last, zero, bad))
		ok = bad.Equal(zero)
	}
	return last, ok
}

// accumulate adds the gradients g to their accumulators, which start again at
// 0 after the last call of a window, and replaces them by the average.
//
// Under a LossScaleOptimizer they were unscaled one by one. The scale changes
// only when a window ends, so that is the same as to unscale their sum.
func (b *state) accumulate(last *tensor.Tensor, g []*tensor.Tensor, v []*tensor.Variable, n int) {
	for i := range g {
		acc := b.slotVariables[v[i]][accumulatorSlot]
		sum := acc.Value().Add(g[i])
		acc.Assign(tensor.Where(last, tensor.Scalar(acc.DType(), 0), sum))
		g[i] = sum.DivScalar(float64(n))
	}
}

// step records the steps after gradient averaging: clip, decay, update, average,
// constrain.
func (b *state) step(g []*tensor.Tensor, vars []*tensor.Variable) {
	s := &b.setup
	g = s.clip(g)
	rate, done := b.rate(), b.iterations.Value()
	view := func(d dtype.DType, slots map[string]*tensor.Variable) update {
		return update{rate: rate.Cast(d), step: done.AddScalar(1).Cast(d), slot: slots, shared: b.shared}
	}
	if s.before != nil {
		u := view(b.shared[s.shared[0].name].DType(), nil)
		s.before(&u)
	}
	excluded := s.matcher("ExcludeFromWeightDecay", s.options.ExcludeFromWeightDecay)
	var parts []*tensor.Tensor // of the weights, of a Partition
	finish := func(v *tensor.Variable, d dtype.DType) {
		if s.options.UseEMA {
			b.average(v, done)
		}
		if c := v.Constraint(); c != nil {
			v.Assign(c(v.Value().Cast(d)).Cast(v.DType()))
		}
	}
	for i, v := range vars {
		since := tensor.SequencePoint()
		d := arithmetic(v)
		u := view(d, b.slotVariables[v])
		u.variable = v
		decay := s.weightDecay()
		if s.decayOf != nil {
			decay = s.decayOf(v)
		}
		if decay != 0 && !excluded(v) {
			u.decay = decay
		}
		x := g[i]
		if p := b.partition; p != nil {
			if !p.Scattered {
				x = p.Own(x)
			}
			w := p.Own(v.Value()).Cast(d)
			if u.decay != 0 {
				w = w.Sub(w.MulScalar(decay).Mul(u.rate))
			}
			parts = append(parts, b.stored(v, i, s.update(&u, w, x)))
			tensor.Label(s.name()+"/"+v.Name(), since, parts[i])
			continue
		}
		if s.still && u.decay == 0 && !s.options.UseEMA && v.Constraint() == nil {
			if at, rows, ok := tensor.SparseRows(x); ok {
				u.at, x = at, rows
			}
		}
		w := u.of(v).Cast(d)
		if u.decay != 0 {
			w = w.Sub(w.MulScalar(decay).Mul(u.rate))
		}
		u.set(v, b.stored(v, i, s.update(&u, w, x)))
		finish(v, d)
		tensor.Label(s.name()+"/"+v.Name(), since, v.Value())
	}
	if b.partition != nil {
		b.gather(parts, vars, finish)
	}
	b.iterations.Assign(done.AddScalar(1))
}

// gather assigns to weights what the ranks have computed of them in parts.
func (b *state) gather(parts []*tensor.Tensor, vars []*tensor.Variable, finish func(v *tensor.Variable, d dtype.DType)) {
	shapes := make([]tensor.Shape, len(vars))
	for i, v := range vars {
		shapes[i] = v.Shape()
	}
	since := tensor.SequencePoint()
	whole := b.partition.Gather(parts, shapes)
	tensor.Label(b.setup.name()+"/gather", since, whole...)
	for i, v := range vars {
		since := tensor.SequencePoint()
		v.Assign(whole[i])
		finish(v, arithmetic(v))
		tensor.Label(b.setup.name()+"/"+v.Name(), since, v.Value())
	}
}

// rate is the learning rate of this step, a float32 scalar.
func (b *state) rate() *tensor.Tensor {
	schedule := b.setup.options.Schedule
	if schedule == nil {
		return b.learningRate.Value()
	}
	return scheduled(schedule, b.iterations.Value().Cast(dtype.Float32))
}

func (b *state) setLearningRate(s setup, rate float64) error {
	b.begin(s)
	if s.options.Schedule != nil {
		return fmt.Errorf("optimizer %s: SetLearningRate: the rate is determined by the Schedule %T", s.name(), s.options.Schedule)
	}
	if !(rate >= 0 && rate <= math.MaxFloat32) {
		return fmt.Errorf("optimizer %s: SetLearningRate: got %v, want a finite number that is not negative", s.name(), rate)
	}
	if err := b.learningRate.Set([]float64{rate}); err != nil {
		return err
	}
	b.note(s)
	return nil
}

// precondition returns an error when the field LearningRate was changed after the
// first step: later steps do not read it. Functions that list the optimizer call
// it before each run.
func (b *state) precondition() error {
	s := &b.setup
	if b.iterations == nil || s.given == nil || *s.given != 0 && *s.given == b.began || math.Float64bits(*s.given) == math.Float64bits(b.given) {
		return nil
	}
	if renewed, err := b.renew(); renewed || err != nil {
		return err
	}
	cure := fmt.Sprintf("call SetLearningRate(%v)", math.Abs(*s.given))
	if s.options.Schedule != nil {
		cure = fmt.Sprintf("the rate is determined by the Schedule %T", s.options.Schedule)
	}
	return fmt.Errorf("optimizer %s: the field LearningRate is %v, but the optimizer has begun with %v and does not read it again; %s",
		s.name(), *s.given, b.began, cure)
}

// renew takes the rate from the field again if no step was applied so far: the
// variables may have been made only to list them or to plan a step.
func (b *state) renew() (done bool, err error) {
	defer tensor.Catch(&err)
	if tensor.Recording() != 0 {
		return false, nil
	}
	if n, err := b.Iterations(); n > 0 || err != nil {
		return false, err
	}
	s := b.setup.again()
	s.check("LearningRate")
	if err := b.learningRate.Set([]float64{math.Abs(s.learningRate)}); err != nil {
		return false, err
	}
	b.note(s)
	return true, nil
}

func (b *state) currentLearningRate(s setup) (rate float64, err error) {
	defer tensor.Catch(&err)
	b.begin(s)
	if err := b.precondition(); err != nil {
		return 0, err
	}
	if s.options.Schedule == nil {
		return b.learningRate.Item()
	}
	n, err := b.iterations.Item()
	if err != nil {
		return 0, err
	}
	// As data, not as a constant: then there is one program for all steps.
	return scheduled(s.options.Schedule, tensor.New([]float32{float32(n)})).Item()
}

// Iterations returns the number of applied steps.
func (b *state) Iterations() (int64, error) {
	if b.iterations == nil {
		return 0, tensor.Readable("an optimizer")
	}
	n, err := b.iterations.Item()
	return int64(n), err
}

// Result describes the last step. Under a LossScaleOptimizer call that
// optimizer's Result.
func (b *state) Result() (StepResult, error) {
	r := StepResult{LossScale: 1}
	if b.iterations == nil {
		return r, tensor.Readable("an optimizer")
	}
	var err error
	if r.AppliedSteps, err = b.Iterations(); err != nil {
		return r, err
	}
	r.Applied = r.AppliedSteps > 0
	r.GradientNorm, err = b.norm.Item()
	return r, err
}
