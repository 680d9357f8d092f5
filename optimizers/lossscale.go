package optimizers

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/tensor"
)

// LossScaleOptimizer multiplies the loss by a scale, so that small float16
// gradients do not become 0, and divides the gradients by it. A step with a
// gradient that is not finite is skipped and decreases the scale. After
// DynamicGrowthSteps finite steps in a row the scale increases. It is used
// like TensorFlow 2's class of this name:
//
//	scaled := optimizer.GetScaledLoss(loss)
//	grads := optimizer.GetUnscaledGradients(tensor.Gradients(scaled, vars))
//	optimizer.ApplyGradients(grads, vars)
//
// There are two differences from TensorFlow. The scale stays between MinScale
// and MaxScale; TensorFlow has only a minimum, 1. A skipped step changes
// nothing but the scale and the counters: no weight, slot, average or
// iteration, and no moving statistic of the forward pass. The decision is part
// of the compiled program, so no step waits for the device.
//
// If Inner accumulates gradients, a step is a window of calls. One gradient
// that is not finite skips the whole window, and the scale changes once, at
// the end of the window. Moving statistics keep the updates of the finite
// batches before it.
type LossScaleOptimizer struct {
	Inner              Optimizer `keras:"inner_optimizer"` // applies the unscaled gradients; required, and not a LossScaleOptimizer
	InitialScale       float64   `default:"32768"`
	DynamicGrowthSteps int       `default:"2000"` // so many good steps in a row make the scale larger
	Growth             float64   `default:"2"`    // by this factor
	Backoff            float64   `default:"0.5"`  // a skipped step makes it smaller by this factor
	MinScale           float64   `default:"1"`
	MaxScale           float64   `default:"16777216"` // 2²⁴
	Fixed              bool      // keep InitialScale for ever; steps that are not finite are skipped nevertheless
	// AllowUnscaledLoss accepts gradients of losses that did not come from
	// GetScaledLoss, which are an error otherwise.
	AllowUnscaledLoss bool
	// Groups gives parts of the model loss scales of their own. Where no single scale
	// fits, because small gradients of one layer become 0 at the largest scale at which
	// those of another one do not overflow, two do. Keras has no such setting.
	Groups []LossScaleGroup
	Name   string `default:"loss_scale_optimizer"` // starts the names of the state's variables

	groups []*groupScale // of Groups, in their order

	scale     *tensor.Variable // float32
	goodSteps *tensor.Variable // int64: good steps since the scale changed
	norm      *tensor.Variable
	applied, skipped,
	consecutive, atFloor *tensor.Variable // int64 counters of StepResult
}

// lossScale is the tag of tensors that a loss scale has multiplied.
type lossScale struct {
	by     *LossScaleOptimizer
	scale  *tensor.Tensor // the value that was used: ApplyGradients may change the variable in between
	blocks *scaleBlocks   // nil: no Groups
}

// Blocks makes tensor.Gradients change the scale between Groups.
func (l *lossScale) Blocks() tensor.Blocks {
	if l.blocks == nil {
		return nil
	}
	return l.blocks
}

// scalerOf is the optimizer that has unscaled a gradient, given a member of
// GradientTag.UnscaledBy; nil for others.
func scalerOf(by any) *LossScaleOptimizer {
	switch by := by.(type) {
	case *LossScaleOptimizer:
		return by
	case *lossScale:
		return by.by
	}
	return nil
}

// ruled is the common interface of this package's optimizers.
type ruled interface {
	setup() setup
	scaledBy(s setup, o *LossScaleOptimizer)
	divideAs(s setup, p *tensor.Partition) error
	division() *tensor.Partition
	apply(s setup, finite *tensor.Tensor, grads []*tensor.Tensor, vars []*tensor.Variable) (ends, ok *tensor.Tensor)
}

// check fails when a field makes no sense.
func (o *LossScaleOptimizer) check(where string) *LossScaleOptimizer {
	s := withDefaults(o)
	fail := func(format string, args ...any) {
		tensor.Fail(where, "optimizer %s: "+format, append([]any{s.Name}, args...)...)
	}
	if isNil(o.Inner) {
		fail("Inner: got %s, want an optimizer", nilText(o.Inner))
	}
	if _, twice := o.Inner.(*LossScaleOptimizer); twice {
		fail("Inner: got a LossScaleOptimizer, want an optimizer without loss scaling")
	}
	// The smallest normal float32: a scale below would lose digits.
	const tiny = 0x1p-126
	for _, f := range []field{
		{"DynamicGrowthSteps", float64(s.DynamicGrowthSteps), 1, math.MaxInt32, "a positive number"},
		{"Growth", s.Growth, 1, math.MaxFloat32, "at least 1"},
		{"Backoff", s.Backoff, tiny, 1, "more than 0 and at most 1"},
		{"MinScale", s.MinScale, tiny, math.MaxFloat32, "a positive float32 number"},
		{"MaxScale", s.MaxScale, s.MinScale, math.MaxFloat32, fmt.Sprintf("at least MinScale, %v, and a finite float32 number", s.MinScale)},
		{"InitialScale", s.InitialScale, s.MinScale, s.MaxScale, fmt.Sprintf("MinScale %v … MaxScale %v", s.MinScale, s.MaxScale)},
	} {
		if !f.fits() {
			fail("%s: got %v, want %s", f.name, f.value, f.want)
		}
	}
	o.checkGroups(s, fail)
	return s
}

func (o *LossScaleOptimizer) begin() {
	if o.scale != nil {
		return
	}
	s := withDefaults(o)
	state := func(name string, d dtype.DType, first float64) *tensor.Variable {
		return tensor.NewState(s.Name+"/"+name, d, nil, func(dst []float64) error {
			dst[0] = first
			return nil
		})
	}
	o.scale = state("loss_scale", dtype.Float32, s.InitialScale)
	o.goodSteps = state("good_steps", dtype.Int64, 0)
	o.applied = state("applied_steps", dtype.Int64, 0)
	o.skipped = state("skipped_steps", dtype.Int64, 0)
	o.consecutive = state("consecutive_skips", dtype.Int64, 0)
	o.atFloor = state("skips_at_floor", dtype.Int64, 0)
	o.norm = state("gradient_norm", dtype.Float32, 0)
	o.beginGroups(s, state)
}

// Variables lists the loss scale, its counters, and the state of Inner.
func (o *LossScaleOptimizer) Variables() []*tensor.Variable {
	o.begin()
	out := []*tensor.Variable{o.scale, o.goodSteps, o.applied, o.skipped, o.consecutive, o.atFloor, o.norm}
	for _, g := range o.groups {
		out = append(out, g.scale, g.goodSteps, g.overflows, g.pending)
	}
	if o.Inner != nil {
		out = append(out, o.Inner.Variables()...)
	}
	return out
}

// kerasVariables returns good steps, the scale, and Inner's variables if Keras has its
// class. Keras's files have an iteration and a learning rate before them, which Keras
// does not use.
func (o *LossScaleOptimizer) kerasVariables() []*tensor.Variable {
	o.begin()
	inner, _ := kerasVariables(o.Inner)
	return append([]*tensor.Variable{o.goodSteps, o.scale}, inner...)
}

// GetScaledLoss returns loss times the loss scale, in float32 (float64 for
// float64). The result, and everything computed from it, is tagged as scaled:
// ApplyGradients and the Clip functions refuse it until GetUnscaledGradients.
func (o *LossScaleOptimizer) GetScaledLoss(loss *tensor.Tensor) *tensor.Tensor {
	const where = "GetScaledLoss"
	s := o.check(where)
	o.begin()
	switch {
	case loss == nil:
		tensor.Fail(where, "the loss is nil")
	case loss.Err() != nil:
		return loss
	case loss.IsTuple() || !loss.DType().IsFloat():
		tensor.Fail(where, "the loss: got %v, want a float tensor", describe(loss))
	case tensor.ScaledBy(loss) != nil:
		tensor.Fail(where, "the loss is already scaled")
	}
	tag := &lossScale{by: o, scale: o.scale.Value()}
	tag.blocks = o.blocks(tag.scale)
	loss = loss.Widen()
	since := tensor.SequencePoint()
	loss = tensor.TagScaled(loss.Mul(tag.scale.CastLike(loss)), tag)
	tensor.Label(s.Name, since, loss)
	return loss
}

// GetUnscaledGradients divides gradients of a loss from GetScaledLoss by the
// loss scale, in float32 (float64 for float64). nil stays nil. It fails for
// gradients that do not carry the scale of this optimizer.
func (o *LossScaleOptimizer) GetUnscaledGradients(grads []*tensor.Tensor) []*tensor.Tensor {
	const where = "GetUnscaledGradients"
	s := o.check(where)
	out := make([]*tensor.Tensor, len(grads))
	for i, g := range grads {
		if g == nil {
			continue
		}
		tag, _ := tensor.ScaledBy(g).(*lossScale)
		switch {
		case g.Err() != nil:
			tensor.Fail(where, "gradient %d: %w", i, g.Err())
		case tag == nil && slices.ContainsFunc(tensor.GradientTagOf(g).UnscaledBy, func(by any) bool { return scalerOf(by) == o }):
			tensor.Fail(where, "gradient %d is already unscaled; call GetUnscaledGradients once", i)
		case tensor.GradientTagOf(g).Scaled:
			tensor.Fail(where, "gradient %d was scaled in another Function; call GetUnscaledGradients in the one that calls GetScaledLoss", i)
		case tag == nil || tag.by != o:
			tensor.Fail(where, "gradient %d was not scaled by this optimizer; compute it from GetScaledLoss", i)
		}
		g = g.Widen()
		since := tensor.SequencePoint()
		if tag.blocks == nil {
			g = tensor.Untag(g, o)
		} else { // ApplyGradients reads what has overflowed
			g = tensor.Untag(g, tag)
		}
		out[i] = g.Div(tag.scale.CastLike(g))
		tensor.Label(s.Name, since, out[i])
	}
	return out
}

// ApplyGradients records one step with UNSCALED gradients: Inner applies them
// if all are finite, otherwise nothing moves; then the loss scale follows. See
// Optimizer.
func (o *LossScaleOptimizer) ApplyGradients(grads []*tensor.Tensor, vars []*tensor.Variable) {
	s := o.check("ApplyGradients")
	inFunction(s.Name)
	o.begin()
	p := partitionOf(o.Inner)
	g, v := pairs(p, grads, vars)
	o.scalesAll(s, g, v)
	losses := o.losses(s, g)
	in, own := o.Inner.(ruled)
	if own {
		in.scaledBy(in.setup(), o)
	}
	for i := range g {
		g[i] = join(g[i].Widen(), o.applied)
	}
	since := tensor.SequencePoint()
	norm, finite := judge(p, g)
	o.norm.Assign(norm)
	tensor.Label(s.Name, since, finite, o.norm.Value())

	var ends *tensor.Tensor
	ok := finite
	widened := make([]*tensor.Tensor, len(grads))
	for i, x := range v {
		widened[slices.Index(vars, x)] = g[i]
	}
	if own {
		ends, ok = in.apply(in.setup(), finite, widened, vars)
	} else {
		if s.AllowUnscaledLoss { // it may hand them on to an optimizer that asks
			for _, x := range g {
				tensor.ClearGradientTag(x)
			}
		}
		tensor.Predicated(finite, func() { o.Inner.ApplyGradients(widened, vars) })
	}
	// Only assignments in the forward pass count as statistics.
	tensor.PredicateStatistics(ok)

	since = tensor.SequencePoint()
	overflowed := o.overflowed(losses, ends != nil)
	if ends == nil {
		o.follow(s, ok, overflowed)
	} else {
		tensor.Predicated(ends, func() { o.follow(s, ok, overflowed) })
	}
	tensor.Label(s.Name, since, o.scale.Value())
}

// scalesAll fails for gradients whose losses this optimizer has not scaled: its
// scale would follow numbers that do not depend on it.
func (o *LossScaleOptimizer) scalesAll(s *LossScaleOptimizer, g []*tensor.Tensor, v []*tensor.Variable) {
	const where = "ApplyGradients"
	unscaled, own := -1, false
	for i, t := range g {
		m := tensor.GradientTagOf(t)
		for _, by := range m.UnscaledBy {
			if other := scalerOf(by); other == o {
				own = true
			} else if other != nil {
				tensor.Fail(where, "optimizer %s: the gradient of %s was scaled by another LossScaleOptimizer, %s, whose scale would not follow from it; "+
					"scale all losses of a step with the one that applies their gradients", s.Name, v[i].Name(), withDefaults(other).Name)
			}
		}
		if m.Unscaled && unscaled < 0 {
			unscaled = i
		}
	}
	if s.AllowUnscaledLoss {
		return
	}
	if unscaled >= 0 && !own {
		tensor.Fail(where, "optimizer %s: the loss whose gradient of %s is given was not scaled; "+
			"compute gradients from GetScaledLoss and give them to GetUnscaledGradients, or set AllowUnscaledLoss", s.Name, v[unscaled].Name())
	}
	throughFloat16(g, v, "optimizer "+s.Name, "scale every loss")
}

// scaledBy notes that o is about to apply gradients with this optimizer, and
// fails if another one has done so in the same recording: each would count the
// other's steps.
func (b *state) scaledBy(s setup, o *LossScaleOptimizer) {
	now := tensor.Recording()
	if b.scaler != nil && b.scaler != o && b.scaledIn == now && now != 0 {
		tensor.Fail("ApplyGradients", "optimizer %s: two LossScaleOptimizers around it apply gradients in one step, %s and %s; "+
			"use one, and its GetScaledLoss for each loss", s.name(), withDefaults(b.scaler).Name, withDefaults(o).Name)
	}
	b.scaler, b.scaledIn = o, now
}

// follow records how scales and counters follow a step that was applied or
// skipped. overflowed says which of Groups have overflowed.
func (o *LossScaleOptimizer) follow(s *LossScaleOptimizer, ok *tensor.Tensor, overflowed []*tensor.Tensor) {
	zero := tensor.Scalar(dtype.Int64, 0)
	count := func(v *tensor.Variable, when, otherwise *tensor.Tensor) {
		v.Assign(tensor.Where(when, v.Value().AddScalar(1), otherwise))
	}
	skipped := ok.Not()
	count(o.applied, ok, o.applied.Value())
	count(o.skipped, skipped, o.skipped.Value())
	count(o.consecutive, skipped, zero)
	// Whatever overflows outside of Groups is left for the scale of the loss.
	lower := skipped
	for i, g := range o.groups {
		count(g.overflows, skipped.And(overflowed[i]), g.overflows.Value())
		g.pending.Assign(zero)
		lower = lower.And(overflowed[i].Not())
	}
	if o.Fixed { // its scale cannot get smaller
		count(o.atFloor, skipped, zero)
		return
	}
	least := tensor.Scalar(dtype.Float32, s.MinScale)
	atFloor := lower.And(o.scale.Value().LessEqual(least))
	for i, g := range o.groups {
		atFloor = atFloor.Or(skipped.And(overflowed[i]).And(g.scale.Value().LessEqual(least)))
	}
	count(o.atFloor, atFloor, zero)
	s.followOne(o.scale, o.goodSteps, ok, lower)
	for i, g := range o.groups {
		s.followOne(g.scale, g.goodSteps, ok, skipped.And(overflowed[i]))
	}
}

// followOne records how one scale follows a step. It decreases if lower; other skipped
// steps leave it as it is.
func (s *LossScaleOptimizer) followOne(scale, goodSteps *tensor.Variable, ok, lower *tensor.Tensor) {
	zero := tensor.Scalar(dtype.Int64, 0)
	now := scale.Value()
	good := goodSteps.Value().AddScalar(1)
	grown := good.GreaterEqual(tensor.Scalar(dtype.Int64, float64(s.DynamicGrowthSteps)))
	larger := now.MulScalar(s.Growth).MinimumScalar(s.MaxScale)
	smaller := now.MulScalar(s.Backoff).Maximum(tensor.Scalar(dtype.Float32, s.MinScale))
	still, count := smaller, zero
	if len(s.Groups) > 0 { // a step may be skipped because of another scale
		still = tensor.Where(lower, smaller, now)
		count = tensor.Where(lower, zero, goodSteps.Value())
	}
	scale.Assign(tensor.Where(ok, tensor.Where(grown, larger, now), still))
	goodSteps.Assign(tensor.Where(ok, tensor.Where(grown, zero, good), count))
}

// SetLossScale sets the loss scale of the next steps and returns the present one. It
// counts steps for DynamicGrowthSteps as before, and may leave MinScale and MaxScale
// until the scale next changes by itself. PyTorch: GradScaler.update(new_scale).
func (o *LossScaleOptimizer) SetLossScale(scale float64) (before float64, err error) {
	o.begin()
	if !(scale > 0) || float32(scale) == 0 || scale > math.MaxFloat32 {
		return 0, fmt.Errorf("optimizers: SetLossScale: got %v, want a positive float32 number", scale)
	}
	if before, err = o.scale.Item(); err != nil {
		return 0, err
	}
	return before, o.scale.Set([]float64{scale})
}

// Result tells what the last step did.
func (o *LossScaleOptimizer) Result() (r StepResult, err error) {
	o.begin()
	item := func(v *tensor.Variable) float64 {
		x, e := v.Item()
		if err == nil {
			err = e
		}
		return x
	}
	r.LossScale = item(o.scale)
	r.GradientNorm = item(o.norm)
	r.AppliedSteps = int64(item(o.applied))
	r.SkippedSteps = int64(item(o.skipped))
	r.ConsecutiveSkips = int64(item(o.consecutive))
	r.SkipsAtFloor = int64(item(o.atFloor))
	r.Applied = r.AppliedSteps > 0 && r.ConsecutiveSkips == 0
	return r, err
}

// errNoInner is the error of methods outside a Function without Inner.
func (o *LossScaleOptimizer) errNoInner() error {
	if isNil(o.Inner) {
		return fmt.Errorf("optimizer %s: Inner: got %s, want an optimizer", withDefaults(o).Name, nilText(o.Inner))
	}
	return nil
}

// Iterations returns the number of applied steps: Inner's, or its own count
// when Inner is no StepCounter.
func (o *LossScaleOptimizer) Iterations() (int64, error) {
	if err := o.errNoInner(); err != nil {
		return 0, err
	}
	n, err := Iterations(o.Inner)
	if !errors.Is(err, errors.ErrUnsupported) {
		return n, err
	}
	o.begin()
	applied, err := o.applied.Item()
	return int64(applied), err
}

// precondition is Inner's; see state.precondition.
func (o *LossScaleOptimizer) precondition() error { return precondition(o.Inner) }

// SetLearningRate changes the rate of Inner from the next step on.
func (o *LossScaleOptimizer) SetLearningRate(rate float64) error {
	if err := o.errNoInner(); err != nil {
		return err
	}
	return SetLearningRate(o.Inner, rate)
}

// CurrentLearningRate returns Inner's rate of the next step.
func (o *LossScaleOptimizer) CurrentLearningRate() (float64, error) {
	if err := o.errNoInner(); err != nil {
		return 0, err
	}
	return CurrentLearningRate(o.Inner)
}

// FinalizeVariables calls Inner's, if it is an Averager.
func (o *LossScaleOptimizer) FinalizeVariables() error {
	if err := o.errNoInner(); err != nil {
		return err
	}
	return FinalizeVariables(o.Inner)
}

// SwapEMA calls Inner's, if it is an Averager.
func (o *LossScaleOptimizer) SwapEMA() error {
	if err := o.errNoInner(); err != nil {
		return err
	}
	return SwapEMA(o.Inner)
}
