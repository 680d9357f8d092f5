// Package doctor finds out what 16 bits do to a training step and what helps.
//
// [Examine] runs one step of a model beside itself in float32: every value, forward,
// backward and update, has a shadow that was computed in float32 throughout (see
// [tensor.Func.Beside]). From their statistics it says where the step goes wrong and
// why, and searches the smallest remedy: a loss scale, or a map of policies. A remedy
// is run before it is proposed. Nothing of the model changes.
//
//	report, err := doctor.Examine(ctx, model, batch, doctor.Config{})
//	fmt.Print(report)
//
// Callback examines the steps of Fit that fail. Capture puts a step into a file with all
// that it depends on; another process replays it to the bit.
//
// [Search] goes the other way: from a model that trains in float32 to the policies under
// which it is the fastest, or the smallest, and trains as well.
package doctor

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"runtime"
	"slices"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/op"
	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/optimizers"
	"github.com/mezzo-ml/mezzo/policy"
)

// Config has the arguments of Examine. The zero value is the default.
type Config struct {
	// Tolerance is the relative error, as a norm, that a remedy must bring the loss and
	// each gradient down to. Default: 0.01, 0.08 if a layer computes in bfloat16, 0.2 if
	// one computes in 8 bits. A step is sick if its loss is off by more, or a gradient by
	// more than four times as much: in healthy steps gradients of small layers are off by
	// the tolerance, and gradients of other layers by a tenth of it.
	Tolerance float64

	Trials int      // remedies that are tried at most; default 40
	Prefer []string // policies of remedies, the preferred one first; default: float32
}

// Kind is what is wrong with a step.
type Kind string

// The kinds, in the order in which they are looked for.
const (
	Healthy         Kind = "healthy"
	Given           Kind = "given"            // the batch or a variable is not finite
	Diverged        Kind = "diverged"         // the numbers leave the range of float32, too
	Formula         Kind = "formula"          // float32 is not enough for the formula, float64 is
	Scale           Kind = "loss scale"       // the gradients need another loss scale, or no single one fits them
	FlushedConstant Kind = "flushed constant" // a constant is 0 in the compute type
	Overflow        Kind = "overflow"         // a value leaves the range of its type
	RoundedOperand  Kind = "rounded operand"  // an operation is invalid on the operand that was rounded
	Underflow       Kind = "underflow"        // many values of the forward pass become 0
	Rounding        Kind = "rounding"         // a rounding error is amplified, or adds up
	LostUpdates     Kind = "lost updates"     // weights are stored in 16 bits, and many stay where they are
)

// Report is the result of an examination.
type Report struct {
	Kind    Kind
	Summary string // in a sentence

	Before    Verdict     // on the step as it is
	Tolerance float64     // relative error that a remedy may leave: see Config
	Origin    *tensor.Tap // the first value that goes wrong; nil if none does
	Noise     []string    // variables whose gradients are nothing but rounding errors, in float32 as well
	Scale     ScaleAdvice // for a model that computes in float16
	Remedy    Remedy      // what helps
	// Lost is, for each weight that is stored in 16 bits and loses any, the share of the
	// updates that leave elements as they were.
	Lost     map[string]float64
	Taps     *tensor.Taps // the step beside its shadow; with Local and All of BesideOptions unless it is healthy
	Suspects []Suspect    // layers that may need another policy, the likeliest first
	Trials   int          // how many steps the search has run
}

// Verdict says how good the loss and the gradients of a step are.
//
// The gradient of a weight is a sum over samples, which may cancel: the gradient of the
// last bias is nearly zero where the model is right on average. Its error is then
// relative to the norm that a sum of independent terms of that size would have.
type Verdict struct {
	Finite   bool    // the loss and all gradients are
	Loss     float64 // relative error of the loss
	Gradient float64 // the largest relative error of a gradient, as a norm; see below
	Worst    string  // the variable with that gradient
}

// Remedy is what makes the step healthy.
type Remedy struct {
	Map policy.Map // for Model.CloneUnder and policy.SetGlobalMap; nil if none is needed
	// Operations are operations of a custom loop, outside of layers, that must compute in
	// float32: cast their operands, or store the result of the one before (Widen).
	Operations []tensor.TapID
	Scale      float64 // loss scale; 0 if the present one is right
	MinScale   float64 // for the LossScaleOptimizer, if its own is above Scale; else 0
	Advice     string  // what to do where no map and no scale helps
	Verified   bool    // the step was run with it, and After is the verdict
	After      Verdict
}

// Suspect is a layer that may need another policy.
type Suspect struct {
	Layer string
	Why   string
	score float64
}

// Examine examines the training step of a compiled model on a batch. With Parts in its
// CompileConfig the model is examined as ExamineStep does: no copies of it are tried.
func Examine(ctx context.Context, m *keras.Model, b keras.Batch, c Config) (*Report, error) {
	if m == nil {
		return nil, fmt.Errorf("doctor: the model is nil")
	}
	compiled, ok := m.CompileConfig()
	switch {
	case !ok:
		return nil, fmt.Errorf("doctor: the model is not compiled")
	case b.X == nil:
		return nil, fmt.Errorf("doctor: the batch has no X")
	}
	scaler, _ := m.Optimizer().(*optimizers.LossScaleOptimizer)
	if len(compiled.Parts) > 0 { // which a copy of the model would share
		if len(c.Prefer) > 0 {
			return nil, fmt.Errorf("doctor: Prefer is %q, want none for a model with CompileConfig.Parts: operations are tried in float32", c.Prefer)
		}
		beside := func(ctx context.Context, o tensor.BesideOptions) (*tensor.Taps, error) { return m.Beside(ctx, b, o) }
		return examine(ctx, &functionStep{beside, scaler}, scaler, c)
	}
	return examine(ctx, &modelStep{m, compiled, b}, scaler, c)
}

// ExamineStep examines a step of a custom loop: any Function that calls Gradients, on an
// argument. scaler is the one that scales the loss, nil if none does. The step is run,
// but no variable changes, and none may be changed meanwhile; the loss scale is set to
// others on trial, and is what it was in the end.
//
// A layer of the remedy's map computes in float32 with all that it calls; what the
// step computes outside of layers is in Remedy.Operations. Config.Prefer must be empty:
// operations are computed in float32 on trial.
func ExamineStep[In, Out any](ctx context.Context, step *tensor.Func[In, Out], in In, scaler *optimizers.LossScaleOptimizer, c Config) (*Report, error) {
	switch {
	case step == nil:
		return nil, fmt.Errorf("doctor: the step is nil")
	case len(c.Prefer) > 0:
		return nil, fmt.Errorf("doctor: Prefer is %q, want none for a step: it has no policies, and operations are tried in float32", c.Prefer)
	}
	beside := func(ctx context.Context, o tensor.BesideOptions) (*tensor.Taps, error) {
		return step.Beside(ctx, in, o)
	}
	return examine(ctx, &functionStep{beside, scaler}, scaler, c)
}

// ExamineLoop examines a step of a custom loop that make makes for a model and, if the
// loss is scaled, its LossScaleOptimizer. Remedies are run on copies of the model, so
// that the report is that of Examine; scaler and the variables of the model do not
// change. Copies of the model have paths of their own: make must not keep the model.
func ExamineLoop[In, Out any](ctx context.Context, m *keras.Model, scaler *optimizers.LossScaleOptimizer, make func(*keras.Model, *optimizers.LossScaleOptimizer) *tensor.Func[In, Out], in In, c Config) (*Report, error) {
	if m == nil || make == nil {
		return nil, fmt.Errorf("doctor: the model or the function that makes a step is nil")
	}
	beside := func(ctx context.Context, m *keras.Model, scaler *optimizers.LossScaleOptimizer, o tensor.BesideOptions) (*tensor.Taps, error) {
		step := make(m, scaler)
		if step == nil {
			return nil, fmt.Errorf("the function that makes a step returned nil")
		}
		return step.Beside(ctx, in, o)
	}
	step := make(m, scaler)
	if step == nil {
		return nil, fmt.Errorf("doctor: the function that makes a step returned nil")
	}
	own := functionStep{func(ctx context.Context, o tensor.BesideOptions) (*tensor.Taps, error) {
		return step.Beside(ctx, in, o)
	}, scaler}
	return examine(ctx, &loopStep{own, m, beside}, scaler, c)
}

func examine(ctx context.Context, s subject, scaler *optimizers.LossScaleOptimizer, c Config) (*Report, error) {
	e, err := newExamination(s, scaler, c)
	if err != nil {
		return nil, err
	}
	if err := e.examine(ctx); err != nil {
		return nil, fmt.Errorf("doctor: %w", err)
	}
	least := 1.0 // the optimizer's default
	if scaler != nil {
		least = cmp.Or(scaler.MinScale, least)
	}
	if r := &e.report.Remedy; 0 < r.Scale && r.Scale < least {
		r.MinScale = r.Scale / roomBelow
	}
	return e.report, nil
}

// roomBelow is how far a dynamic loss scale may fall below the one that fits: other
// batches have larger gradients.
const roomBelow = 16

// examination is one call of Examine or ExamineStep.
type examination struct {
	subject
	scaler    *optimizers.LossScaleOptimizer // or nil
	config    Config
	tolerance float64
	scale     float64  // the present loss scale; 1 if there is none
	units     []string // that compute in 16 bits, in the order of the step: layers, and operations outside of them
	order     map[string]int
	noise     map[string]bool // names of variables; nil: not known yet
	report    *Report
	tried     map[string]outcome
	large     bool // a step takes much memory
	delayed   bool // it has products of 8 bits, with scales from the steps before
}

// largeStep is how many elements all values of a large step have.
const largeStep = 1 << 26

// collect gives back the memory of what was run last: a copy of the model, its plan, and
// what the plan computes in. The garbage collector would wait until there is as much
// garbage as there is memory in use.
func (e *examination) collect() {
	if e.large {
		runtime.GC()
		runtime.GC() // what the first one leaves to cleanups
	}
}

func newExamination(s subject, scaler *optimizers.LossScaleOptimizer, c Config) (*examination, error) {
	switch {
	case c.Trials < 0:
		return nil, fmt.Errorf("doctor: Trials is %d, want a positive number, or 0 for 40", c.Trials)
	case !(c.Tolerance >= 0):
		return nil, fmt.Errorf("doctor: Tolerance is %v, want a positive number, or 0 for the default", c.Tolerance)
	}
	e := &examination{subject: s, scaler: scaler, config: c, scale: 1, order: map[string]int{}, tried: map[string]outcome{}, report: &Report{}}
	if e.config.Trials == 0 {
		e.config.Trials = 40
	}
	if len(e.config.Prefer) == 0 {
		e.config.Prefer = []string{policy.Float32}
	}
	for _, name := range e.config.Prefer {
		if _, err := policy.Parse(name); err != nil {
			return nil, fmt.Errorf("doctor: Prefer: %w", err)
		}
	}
	if scaler != nil {
		r, err := scaler.Result()
		if err != nil {
			return nil, err
		}
		e.scale = r.LossScale
	}
	return e, nil
}

// inspect looks at what the step computes in.
func (e *examination) inspect(taps *tensor.Taps) {
	elements := 0
	for _, t := range taps.Values {
		elements += t.Type.Shape.Size()
	}
	e.large = elements > largeStep
	e.tolerance = 0.01
	for _, u := range e.unitsOf(taps) {
		e.order[u.name] = len(e.order)
		if u.computes.Is16() || u.float8 {
			e.units = append(e.units, u.name)
		}
		switch {
		case u.float8:
			e.tolerance, e.delayed = max(e.tolerance, 0.2), true
		case u.computes == dtype.BFloat16:
			e.tolerance = max(e.tolerance, 0.08)
		}
	}
	if e.config.Tolerance != 0 {
		e.tolerance = e.config.Tolerance
	}
}

// ok reports whether a remedy with this verdict is one.
func (e *examination) ok(v Verdict) bool {
	return v.Finite && v.Loss <= e.tolerance && v.Gradient <= e.tolerance
}

// healthy reports whether a step with this verdict needs no remedy.
func (e *examination) healthy(v Verdict) bool {
	return v.Finite && v.Loss <= e.tolerance && v.Gradient <= 4*e.tolerance
}

// look runs the step beside itself and judges it: first with the statistics that show
// that it is healthy, which most steps are, and then with all.
func (e *examination) look(ctx context.Context) (*observed, error) {
	r := e.report
	brief, err := e.observe(ctx, tensor.BesideOptions{})
	if err != nil {
		return nil, err
	}
	r.Taps = brief.Taps
	e.inspect(brief.Taps)
	r.Tolerance = e.tolerance
	if r.Before = brief.verdict(nil); e.healthy(r.Before) {
		return brief, nil
	}
	e.collect()
	// The update of a large step would need twice the memory of weights and slots.
	forced, err := e.observe(ctx, tensor.BesideOptions{Local: true, All: true, Update: !e.large})
	if err != nil {
		return nil, err
	}
	r.Taps = forced.Taps
	if r.Before = forced.verdict(nil); !e.healthy(r.Before) {
		// Errors of gradients that are noise are no illness.
		if err := e.findNoise(ctx); err != nil {
			return nil, err
		}
		r.Before = forced.verdict(e.isNoise)
	}
	return forced, nil
}

func (e *examination) examine(ctx context.Context) error {
	r := e.report
	forced, err := e.look(ctx)
	if err != nil {
		return err
	}
	if e.healthy(r.Before) {
		if e.lost(forced) {
			return nil
		}
		if spoiled, err := e.spoiled(forced); spoiled || err != nil {
			return err
		}
		r.Kind = Healthy
		r.Scale = forced.scaleAdvice(e.scale)
		r.Summary = fmt.Sprintf("The step is healthy: the loss is off by %.2g, the worst gradient (%s) by %.2g.", r.Before.Loss, r.Before.Worst, r.Before.Gradient)
		return nil
	}
	if settles, err := e.settles(ctx); settles || err != nil {
		return err
	}
	origin := forced.origin()
	if origin >= 0 {
		r.Origin = &forced.Values[origin]
	}
	// The decisions of a step that is not finite mean nothing.
	free := forced
	if origin >= 0 {
		if free, err = e.observe(ctx, tensor.BesideOptions{Free: true, All: true, Update: !e.large}); err != nil {
			return err
		}
		e.collect()
	}
	r.Scale = free.scaleAdvice(e.scale)
	if stop, err := e.beyondPolicies(ctx, forced, free, origin); stop || err != nil {
		return err
	}
	passes, err := e.try(ctx, nil)
	if err != nil {
		return err
	}
	if passes {
		at := e.tried[keyOf(nil)]
		if skips := int(math.Ceil(math.Log2(e.scale))) - r.Scale.High; r.Scale.Known && 0 < skips && skips <= usualSkips && e.falls(r.Scale.High) {
			r.Kind = Healthy
			r.Remedy = Remedy{Scale: at.scale, Verified: true, After: at.verdict}
			r.Summary = fmt.Sprintf("The step is healthy but for the loss scale, which comes down from %v to 2^%d by itself: %s skipped.", e.scale, r.Scale.High, steps(skips))
			return nil
		}
		r.Kind = Scale
		r.Remedy = Remedy{Scale: at.scale, Verified: true, After: at.verdict}
		r.Summary = fmt.Sprintf("The loss scale %v does not fit: with %v the step is healthy.", e.scale, at.scale)
		return nil
	}
	e.suspect(free, forced)
	if forced.unscaled && r.Before.Finite && len(r.Suspects) == 0 && r.Scale.Fits() && r.Scale.Low > 0 { // nothing but gradients is wrong
		r.Kind = Scale
		r.Remedy = Remedy{Scale: math.Exp2(float64(min(r.Scale.High-1, largestScale))), Advice: "scale the loss: GetScaledLoss and GetUnscaledGradients of a LossScaleOptimizer"}
		r.Summary = fmt.Sprintf("%.0f %% of the elements of gradients become 0, and the loss is not scaled.", 100*r.Scale.Flushed)
		return nil
	}
	r.Kind, r.Summary = e.kind(forced, free, origin)
	if err := e.search(ctx); err != nil {
		return err
	}
	if v, times := free.leap(); times > 1 && r.Remedy.Advice == "" {
		r.Remedy.Advice = fmt.Sprintf("in float32 the update of %s is %.2g times as large as the weight: look at the learning rate", v, times)
	}
	return nil
}

// mostSettling is how many steps delayed scales may take until they fit. They begin with 1,
// and a layer's gradient has its size only after those behind it.
const mostSettling = 8

// settles reports whether the step is healthy but for the scales of 8-bit products, which
// are those of the steps before.
func (e *examination) settles(ctx context.Context) (bool, error) {
	if !e.delayed {
		return false, nil
	}
	scales := map[string][]float64{}
	for n := range mostSettling + 1 {
		taps, err := e.settled(ctx, scales, e.scale)
		if taps == nil || err != nil {
			return false, err
		}
		r, err := e.observed(taps, nil)
		if err != nil {
			return false, err
		}
		e.collect()
		if v := r.verdict(e.isNoise); e.healthy(v) {
			e.report.Kind = Healthy
			e.report.Remedy = Remedy{Verified: true, After: v}
			e.report.Scale = r.scaleAdvice(e.scale)
			e.report.Summary = fmt.Sprintf("The step is healthy but for the scales of 8-bit products, which come from the steps before: %s until they fit.", stepsPass(n))
			return true, nil
		}
	}
	return false, nil
}

// usualSkips is how many steps a dynamic loss scale may skip until it fits. The first
// scale is chosen to be too large rather than too small.
const usualSkips = 4

// falls reports whether the loss scale comes down to 2^exponent by itself.
func (e *examination) falls(exponent int) bool {
	s := e.scaler
	return s != nil && !s.Fixed && s.Backoff < 1 && cmp.Or(s.MinScale, 1) <= math.Exp2(float64(exponent))
}

// observed is a step that was run beside its shadow.
type observed struct {
	*tensor.Taps
	bad     []int64 // of each value: elements that are not finite; at most, where it selects and has no statistics
	cancels map[int]float64

	unscaled bool // the loss is not scaled, so gradients carry a scale of 1
}

// scaled reports whether a value carries the loss scale.
func (r *observed) scaled(t *tensor.Tap) bool { return t.Scaled || r.unscaled && isGradient(t.Path) }

func (e *examination) observe(ctx context.Context, o tensor.BesideOptions) (*observed, error) {
	taps, err := e.run(ctx, o)
	r, err := e.observed(taps, err)
	if err == nil {
		_, compiles := e.subject.(*modelStep) // with a scaler, on trial
		r.unscaled = e.scaler == nil && !compiles
	}
	return r, err
}

func (e *examination) observed(taps *tensor.Taps, err error) (*observed, error) {
	e.report.Trials++
	if err != nil {
		return nil, err
	}
	r := &observed{taps, make([]int64, len(taps.Values)), map[int]float64{}, false}
	for i, t := range taps.Values {
		if t.Shadow != nil {
			r.bad[i] = t.Shadow.X.NaNs + t.Shadow.X.Infinities
			continue
		}
		if t.Type.DType.IsFloat() { // it moves or selects elements
			for _, a := range t.Args {
				r.bad[i] = max(r.bad[i], r.bad[a])
			}
		}
	}
	return r, nil
}

// relative is ‖x-y‖/‖y‖ over the finite elements of a value and its reference.
func relative(s *op.Statistics) float64 {
	if s == nil || s.SquaredError == 0 {
		return 0
	}
	return math.Sqrt(s.SquaredError / s.Y.Squares) // of 0: infinite
}

// verdict judges the loss and all gradients but those that noise accepts.
func (r *observed) verdict(noise func(*tensor.Variable) bool) Verdict {
	v := Verdict{Finite: true}
	for _, d := range r.Derivatives {
		if d.Loss >= 0 {
			v.Finite = v.Finite && r.bad[d.Loss] == 0
			v.Loss = max(v.Loss, r.error(d.Loss))
		}
		for i, g := range d.Gradients {
			if g < 0 {
				continue
			}
			v.Finite = v.Finite && r.bad[g] == 0
			if noise != nil && noise(d.Variables[i]) {
				continue
			}
			if x := r.error(g) / r.cancellation(g); x > v.Gradient || v.Worst == "" {
				v.Gradient, v.Worst = x, d.Variables[i].Name()
			}
		}
	}
	return v
}

// error is the relative error of value i, or of what it moves.
func (r *observed) error(i int) float64 {
	i, _ = r.source(i)
	return relative(r.Values[i].Shadow)
}

// source is value i, or if that has no statistics what it moves or selects. all reports
// whether it has all elements of that.
func (r *observed) source(i int) (at int, all bool) {
	all = true
	for r.Values[i].Shadow == nil && len(r.Values[i].Args) > 0 {
		t := &r.Values[i]
		i = t.Args[0]
		if t.Op == op.Identity || t.Op.Info().Class == op.Movement {
			continue
		}
		all = false
		for _, a := range t.Args { // Where, MaxPoolGrad: the last one
			if r.Values[a].Type.DType.IsFloat() && r.Values[a].Op != op.Const {
				i = a
			}
		}
	}
	return i, all
}

// shadowFinite reports whether the shadows of the loss and the gradients are finite.
func (r *observed) shadowFinite() bool {
	for _, d := range r.Derivatives {
		for _, i := range append(slices.Clone(d.Gradients), d.Loss) {
			if i < 0 {
				continue
			}
			i, _ = r.source(i)
			if s := r.Values[i].Shadow; s != nil && s.Y.NaNs+s.Y.Infinities > 0 {
				return false
			}
		}
	}
	return true
}

// origin is the first value that is not finite although its operands are, of those that
// the loss and the gradients come from; -1 if there is none. Totals of metrics, which are
// NaN after the first bad step, are none of them.
func (r *observed) origin() int {
	from := r.differentiated()
	for i, t := range r.Values {
		if from[i] && r.bad[i] > 0 && !slices.ContainsFunc(t.Args, func(a int) bool { return r.bad[a] > 0 }) {
			return i
		}
	}
	return -1
}

// differentiated marks the values that losses and gradients come from, and all values
// of a step without any.
func (r *observed) differentiated() []bool {
	from := make([]bool, len(r.Values))
	mark := func(i int) {
		if i >= 0 {
			from[i] = true
		}
	}
	for _, d := range r.Derivatives {
		mark(d.Loss)
		for _, g := range d.Gradients {
			mark(g)
		}
	}
	if !slices.Contains(from, true) {
		for i := range from {
			from[i] = true
		}
	}
	for i := len(from) - 1; i >= 0; i-- { // operands come first
		if from[i] {
			for _, a := range r.Values[i].Args {
				from[a] = true
			}
		}
	}
	return from
}

// findNoise finds the variables whose gradients float32 has no digits of either: those
// that are 0 in exact arithmetic, such as of a bias in front of a normalization.
func (e *examination) findNoise(ctx context.Context) error {
	everything := func(*tensor.Tap) dtype.DType { return dtype.Float32 }
	o := tensor.BesideOptions{Wide: dtype.Float64, Promote: everything}
	r, err := e.observed(e.sample(ctx, o))
	if err != nil { // a step for batches of one size
		if r, err = e.observe(ctx, o); err != nil {
			return err
		}
	}
	defer e.collect()
	e.noise = map[string]bool{}
	for _, d := range r.Derivatives {
		for i, g := range d.Gradients {
			if name := d.Variables[i].Name(); g >= 0 && r.error(g) > 1e-3 && !e.noise[name] {
				e.noise[name] = true
				e.report.Noise = append(e.report.Noise, name)
			}
		}
	}
	return nil
}

func (e *examination) isNoise(v *tensor.Variable) bool { return e.noise[v.Name()] }
