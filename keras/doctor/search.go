package doctor

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/op"
	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/policy"
)

// beyondPolicies reports a step that no policy mends: what it was given is not finite,
// or float32 is not enough either.
func (e *examination) beyondPolicies(ctx context.Context, forced, free *observed, origin int) (bool, error) {
	r := e.report
	if origin >= 0 && forced.Values[origin].Op == op.Param && !free.shadowFinite() {
		t := &forced.Values[origin]
		r.Kind = Given
		what, advice := fmt.Sprintf("variable %s", t.Path), "restore it from a checkpoint"
		if t.Argument >= 0 {
			what, advice = fmt.Sprintf("the batch (%s)", t.Path), "leave the batch out, or look at how it was made"
		}
		r.Summary = fmt.Sprintf("Before the step %s has %d elements that are not finite.", what, forced.bad[origin])
		r.Remedy.Advice = advice
		return true, nil
	}
	if free.shadowFinite() {
		return false, nil
	}
	// The step in float32 beside itself in float64.
	single, err := e.observe(ctx, tensor.BesideOptions{Wide: dtype.Float64, Free: true, Local: true, All: true, Promote: func(*tensor.Tap) dtype.DType { return dtype.Float32 }})
	if err != nil {
		return false, err
	}
	at := single.origin()
	if at < 0 {
		return false, nil
	}
	if single.Values[at].Op == op.Const { // an infinity that was written, of a mask
		if k := single.firstNaN(); k >= 0 {
			at = k
		}
	}
	t := &single.Values[at]
	r.Origin = t
	if s := t.Shadow; s != nil && s.Y.Largest > dtype.Float32.Max() && !single.steep(at) {
		r.Kind = Diverged
		r.Summary = fmt.Sprintf("The step leaves the range of float32, too: %s: %v is up to %.3g.", where(t.Path), t.Op, s.Y.Largest)
		r.Remedy.Advice = "no policy helps: lower the learning rate, clip gradients, or restore an earlier checkpoint"
		if k := single.largestArgument(at); k >= 0 {
			r.Remedy.Advice = fmt.Sprintf("no policy helps: scale the data, %s is up to %.3g", single.Values[k].Path, single.Values[k].Shadow.Y.Largest)
		}
		return true, nil
	}
	r.Kind = Formula
	r.Summary = fmt.Sprintf("float32 is not enough for this formula either: %s: %v is not finite.", where(t.Path), t.Op)
	if single.shadowFinite() {
		r.Summary += " float64 is."
	}
	r.Remedy.Advice = "no policy helps: write it in a stable form (LogSigmoid, Softplus, LogSumExp, or Where in front of a root or a logarithm)"
	if t.Op == op.Softmax || t.Op == op.LogSoftmax {
		r.Remedy.Advice = "no policy helps: a row of nothing but -Inf has no softmax; let each row keep one element, or mask with a large finite number"
	}
	return true, nil
}

// largestArgument is the argument with the largest number of those that value i is
// computed from, if that is beyond the range of float16; -1 if none is.
func (r *observed) largestArgument(i int) int {
	from := make([]bool, i+1)
	from[i] = true
	largest, most := -1, dtype.Float16.Max()
	for k := i; k >= 0; k-- { // operands come first
		if !from[k] {
			continue
		}
		t := &r.Values[k]
		for _, a := range t.Args {
			from[a] = true
		}
		if t.Argument >= 0 && t.Shadow != nil && t.Shadow.Y.Largest > most {
			largest, most = k, t.Shadow.Y.Largest
		}
	}
	return largest
}

// firstNaN is the first value with a NaN of those that the loss and the gradients come
// from; -1 if there is none.
func (r *observed) firstNaN() int {
	from := r.differentiated()
	for i, t := range r.Values {
		if from[i] && t.Shadow != nil && t.Shadow.X.NaNs > 0 {
			return i
		}
	}
	return -1
}

// steep reports whether value i is so large for no large operand: an exponential of 100, a
// quotient by what is next to nothing.
func (r *observed) steep(i int) bool {
	t := &r.Values[i]
	switch t.Op {
	case op.Exp, op.Expm1, op.Div, op.Reciprocal, op.Rsqrt, op.Pow:
	default:
		return false
	}
	for _, a := range t.Args {
		a, _ = r.source(a)
		if s := r.Values[a].Shadow; s != nil && s.Y.Largest > dtype.Float16.Max() {
			return false
		}
	}
	return true
}

// outcome is the result of a trial.
type outcome struct {
	ok      bool
	scale   float64 // 0: without one
	verdict Verdict
	fixed   tensor.TapID // the first value that is not finite, if it has 16 bits; "" else
}

func keyOf(at policy.Map) string { return fmt.Sprintf("%#v", at) }

// try runs the step under a map, once more with another loss scale if the present one
// does not fit, and reports whether it is healthy.
func (e *examination) try(ctx context.Context, at policy.Map) (bool, error) {
	if len(at) == 0 {
		at = nil
	}
	key := keyOf(at)
	if known, ok := e.tried[key]; ok {
		return known.ok, nil
	}
	if err := ctx.Err(); err != nil {
		return false, err
	}
	scale := e.scale
	for {
		taps, scaled, err := e.under(ctx, at, scale)
		e.collect()
		r, err := e.observed(taps, err)
		if err != nil {
			return false, err
		}
		v := r.verdict(e.isNoise)
		o := outcome{ok: e.ok(v), scale: scale, verdict: v}
		if k := r.origin(); k >= 0 && r.Values[k].Type.DType.Is16() && e.unitOf(&r.Values[k]) != "" {
			o.fixed = r.Values[k].ID
		}
		if !scaled {
			o.scale = 0
		}
		e.tried[key] = o
		a := r.scaleAdvice(scale)
		best := math.Exp2(float64(min(a.High-1, largestScale)))
		switch {
		case o.ok, !scaled, !a.Fits(), scale != e.scale:
			return o.ok, nil
		case v.Finite && a.Flushed < 0.05, !v.Finite && best >= scale:
			return false, nil // the scale is right
		}
		scale = best // what a dynamic scale would come to
	}
}

// search looks for the smallest set of layers that must be wide. It begins with all
// that certainly are, adds suspects until the step is healthy, then neighbours, and
// takes away what is not needed.
func (e *examination) search(ctx context.Context) error {
	wide := e.config.Prefer[len(e.config.Prefer)-1]
	test := func(set []string) (bool, error) {
		if e.report.Trials >= e.config.Trials {
			return false, errTrials
		}
		return e.try(ctx, mapOf(set, wide))
	}
	set, err := e.smallest(test)
	if err == errTrials {
		err = nil
		if set == nil {
			e.report.Remedy.Advice = fmt.Sprintf("no map was found in %d trials", e.report.Trials)
			return nil
		}
	}
	if err != nil {
		return err
	}
	if set == nil {
		e.report.Remedy.Advice = "float32 in all layers does not help: look at the loss and at what surrounds the model"
		if id := e.tried[keyOf(mapOf(e.units, wide))].fixed; id != "" {
			e.report.Remedy.Advice = fmt.Sprintf("%s computes in 16 bits whatever the policy: cast to the layer's ComputeDType instead", id)
		}
		return nil
	}
	best := mapOf(set, wide)
	for _, name := range e.config.Prefer[:len(e.config.Prefer)-1] {
		for _, l := range set {
			if best[l] != wide || e.report.Trials >= e.config.Trials {
				continue
			}
			narrower := maps.Clone(best)
			narrower[l] = name
			ok, err := e.try(ctx, narrower)
			if err != nil {
				return err
			}
			if ok {
				best = narrower
			}
		}
	}
	o := e.tried[keyOf(best)]
	e.report.Remedy = Remedy{Verified: o.ok, After: o.verdict}
	for _, u := range set {
		if operation(u) {
			e.report.Remedy.Operations = append(e.report.Remedy.Operations, tensor.TapID(u))
			delete(best, u)
		}
	}
	if len(best) > 0 {
		e.report.Remedy.Map = best
	}
	if o.scale != 0 && o.scale != e.scale {
		e.report.Remedy.Scale = o.scale
	}
	return nil
}

type budgetError string

func (e budgetError) Error() string { return string(e) }

const errTrials = budgetError("out of trials")

func mapOf(set []string, name string) policy.Map {
	m := policy.Map{}
	for _, l := range set {
		m[l] = name
	}
	return m
}

// smallest returns a set from which no layer can be taken away, or nil if there is
// none. When trials run out it returns the best so far with errTrials.
func (e *examination) smallest(test func([]string) (bool, error)) ([]string, error) {
	narrow := map[string]bool{}
	for _, l := range e.units {
		narrow[l] = true
	}
	var set []string
	var rest []Suspect
	for _, s := range e.report.Suspects {
		switch {
		case !narrow[s.Layer]:
		case s.score >= scoreReader:
			set = append(set, s.Layer)
		default:
			rest = append(rest, s)
		}
	}
	passes := false
	var err error
	if len(set) > 0 {
		if passes, err = test(set); err != nil {
			return nil, err
		}
	}
	for _, s := range rest {
		if passes {
			break
		}
		set = append(set, s.Layer)
		if passes, err = test(set); err != nil {
			return nil, err
		}
	}
	if !passes {
		if passes, err = test(e.units); !passes || err != nil {
			return nil, err
		}
		if set, err = e.neighbours(set, test); err != nil {
			return nil, err
		}
	}
	for again := true; again; { // one that fell may make another needless
		again = false
		for i := len(set) - 1; i >= 0 && len(set) > 1; i-- {
			less := slices.Delete(slices.Clone(set), i, i+1)
			ok, err := test(less)
			if err != nil {
				return set, err
			}
			if ok {
				set, again = less, len(less) > 1 && i < len(less)
			}
		}
	}
	slices.SortFunc(set, func(a, b string) int { return e.order[a] - e.order[b] })
	return set, nil
}

// neighbours adds layers around those in set, the nearest first, twice as many each
// time, until the step is healthy.
func (e *examination) neighbours(set []string, test func([]string) (bool, error)) ([]string, error) {
	distance := func(l string) int {
		least := len(e.order)
		for _, s := range set {
			least = min(least, abs(e.order[s]-e.order[l]))
		}
		return least
	}
	others := slices.DeleteFunc(slices.Clone(e.units), func(l string) bool { return slices.Contains(set, l) })
	near := map[string]int{}
	for _, l := range others {
		near[l] = distance(l)
	}
	slices.SortStableFunc(others, func(a, b string) int { return near[a] - near[b] })
	for n := 1; ; n *= 2 {
		n = min(n, len(others))
		all := append(slices.Clone(set), others[:n]...)
		ok, err := test(all)
		if ok || err != nil || n == len(others) {
			return all, err
		}
	}
}

func abs(x int) int { return max(x, -x) }

// scale is the loss scale in words.
func (r *Remedy) scale() string {
	if r.MinScale != 0 {
		return fmt.Sprintf("a loss scale of %v, with a MinScale of %v", r.Scale, r.MinScale)
	}
	return fmt.Sprintf("a loss scale of %v", r.Scale)
}

// String prints the report as text.
func (r *Report) String() string {
	var s strings.Builder
	fmt.Fprintf(&s, "%s: %s\n", strings.ToUpper(string(r.Kind)), r.Summary)
	if r.Origin != nil {
		fmt.Fprintf(&s, "first seen at: %s %v\n", r.Origin.ID, r.Origin.Type)
	}
	for _, x := range r.Suspects {
		fmt.Fprintf(&s, "suspect: %s (%s)\n", x.Layer, x.Why)
	}
	if r.Scale.Known {
		fmt.Fprintf(&s, "%v\n", r.Scale)
	}
	switch {
	case r.Kind == Healthy:
	case r.Remedy.Map != nil || r.Remedy.Operations != nil:
		s.WriteString("remedy: ")
		if r.Remedy.Map != nil {
			fmt.Fprintf(&s, "%#v", r.Remedy.Map)
		}
		for i, o := range r.Remedy.Operations {
			if i > 0 || r.Remedy.Map != nil {
				s.WriteString(", and ")
			}
			fmt.Fprintf(&s, "%s in float32", strings.TrimPrefix(string(o), "/"))
		}
		if r.Remedy.Scale != 0 {
			fmt.Fprintf(&s, " and %s", r.Remedy.scale())
		}
		fmt.Fprintf(&s, "; then the loss is off by %.2g and the worst gradient by %.2g\n", r.Remedy.After.Loss, r.Remedy.After.Gradient)
		if r.Remedy.Advice != "" {
			fmt.Fprintf(&s, "and: %s\n", r.Remedy.Advice)
		}
	case r.Remedy.Scale != 0:
		fmt.Fprintf(&s, "remedy: %s", r.Remedy.scale())
		if r.Remedy.Advice != "" {
			fmt.Fprintf(&s, "; %s", r.Remedy.Advice)
		}
		s.WriteString("\n")
	default:
		fmt.Fprintf(&s, "remedy: %s\n", r.Remedy.Advice)
	}
	fmt.Fprintf(&s, "the step was run %s\n", times(r.Trials))
	return s.String()
}

func times(n int) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}

func steps(n int) string {
	if n == 1 {
		return "one step is"
	}
	return fmt.Sprintf("%d steps are", n)
}

func stepsPass(n int) string {
	if n == 1 {
		return "one step passes"
	}
	return fmt.Sprintf("%d steps pass", n)
}
