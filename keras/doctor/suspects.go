package doctor

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/op"
	"github.com/mezzo-ml/mezzo/backend/tensor"
)

// visible is a relative error that is worth a cause.
const visible = 0.02

// Scores of suspects: what cannot be held, what reads it, what amplifies errors, what
// they come from, what becomes 0.
const (
	scoreNonFinite = 1e9 + 1
	scoreRange     = 1e9
	scoreReader    = 1e8
	scoreError     = 1e3
	scoreSource    = 0.99e3
	scoreFlushed   = 1e4
)

// unitOf returns the layer that recorded a value, or the operation outside of layers; ""
// if a remedy cannot change it.
func (e *examination) unitOf(t *tensor.Tap) string {
	path := strings.TrimSuffix(t.Path, "/grad")
	for ; path != ""; path = path[:max(strings.LastIndexByte(path, '/'), 0)] {
		if _, ok := e.order[path]; ok {
			return path
		}
	}
	if _, ok := e.order[string(t.ID)]; ok {
		return string(t.ID)
	}
	return ""
}

func isGradient(path string) bool { return strings.HasSuffix(path, "/grad") }

// suspect ranks the layers: those whose numbers their type cannot hold according to
// the free shadow, those where errors become visible according to the forced one, and
// those where such errors come from.
func (e *examination) suspect(free, forced *observed) {
	found := map[string]Suspect{}
	note := func(t *tensor.Tap, score float64, format string, args ...any) {
		if l := e.unitOf(t); l != "" && score > found[l].score {
			found[l] = Suspect{l, fmt.Sprintf(format, args...), score}
		}
	}
	underflows := forced.underflows()
	for i := range free.Values {
		t := &free.Values[i]
		s := t.Shadow
		if s == nil || isGradient(t.Path) && free.scaled(t) { // which is a matter of the loss scale
			continue
		}
		if !t.Type.DType.Is16() {
			continue
		}
		if beyond(t.Type.DType, s) {
			note(t, scoreRange, "%v of %.3g in %v", t.Op, s.Y.Largest, t.Type.DType)
		}
		for _, k := range t.Args {
			if a := &free.Values[k]; a.Type.DType.Is16() && a.Shadow != nil && beyond(a.Type.DType, a.Shadow) {
				note(t, scoreReader, "%v reads %.3g", t.Op, a.Shadow.Y.Largest)
			}
		}
		if share := flushed(t.Type.DType, s); share > 0.1 && underflows[i] {
			note(t, scoreFlushed*share, "%v: %.0f %% become 0", t.Op, 100*share)
		}
	}
	for i := range forced.Values {
		t := &forced.Values[i]
		s := t.Shadow
		if s == nil || forced.unscaled && isGradient(t.Path) && t.Type.DType == dtype.Float16 {
			continue
		}
		if bad := forced.bad[i] > 0; bad {
			if s.Y.NaNs+s.Y.Infinities == 0 && !forced.scaled(t) && !slices.ContainsFunc(t.Args, func(a int) bool { return forced.bad[a] > 0 }) {
				note(t, scoreNonFinite, "%v makes what is not finite", t.Op)
			}
			continue
		}
		own := relative(s)
		if !(own >= visible) {
			continue
		}
		worst := forced.worstOperand(i)
		before := 0.0
		if worst >= 0 {
			if before = forced.error(worst); before >= own/4 {
				continue // it came with an operand
			}
		}
		note(t, scoreError*min(own, 10), "%v: an error of %.2g from operands with %.2g", t.Op, own, before)
		for k := worst; k >= 0; k = forced.worstOperand(k) {
			a := &forced.Values[k]
			if a.Local != nil && relative(a.Local) >= forced.error(k)/2 {
				note(a, scoreSource*min(own, 10), "%v rounds by %.2g, which %s turns into %.2g", a.Op, relative(a.Local), t.Path, own)
				break
			}
		}
	}
	for _, s := range found {
		e.report.Suspects = append(e.report.Suspects, s)
	}
	slices.SortFunc(e.report.Suspects, func(a, b Suspect) int {
		if a.score != b.score {
			if a.score > b.score {
				return -1
			}
			return 1
		}
		return e.order[a.Layer] - e.order[b.Layer]
	})
}

// underflows marks values with elements that an operation made 0, of numbers that are not,
// and what is computed from such values. The square of a difference that is 0 because of
// rounding is none of them.
func (r *observed) underflows() []bool {
	all := make([]bool, len(r.Values))
	for i := range r.Values {
		t := &r.Values[i]
		all[i] = t.Local != nil && t.Local.Flushed > 0 || slices.ContainsFunc(t.Args, func(a int) bool { return all[a] })
	}
	return all
}

// flushed is the share of the elements that are 0 because they are too small for the
// type. A difference that is 0 because its operands were rounded is none of them.
func flushed(d dtype.DType, s *op.Statistics) float64 {
	_, least := d.Exponents()
	return float64(min(s.Flushed, s.Y.Below(least))) / float64(max(s.Count, 1))
}

// beyond reports whether the shadow has numbers that the type cannot hold.
func beyond(d dtype.DType, s *op.Statistics) bool { return s.Y.Largest > d.Max() }

// worstOperand is the operand of value i with the largest error, or -1.
func (r *observed) worstOperand(i int) int {
	worst, most := -1, math.Inf(-1)
	for _, a := range r.Values[i].Args {
		if r.Values[a].Type.DType.IsFloat() {
			if x := r.error(a); x > most {
				worst, most = a, x
			}
		}
	}
	return worst
}

// kind says what is wrong with a step that a loss scale does not mend, and in a
// sentence.
func (e *examination) kind(forced, free *observed, origin int) (Kind, string) {
	if origin >= 0 && (!e.report.Before.Finite || forced.spoils(origin)) {
		t := &forced.Values[origin]
		what := fmt.Sprintf("%s: %v in %v", where(t.Path), t.Op, t.Type.DType)
		switch l := t.Local; {
		case l == nil || l.Y.NaNs+l.Y.Infinities == 0:
			return Overflow, fmt.Sprintf("%s overflows: in float32 it is up to %.3g, and %v ends at %.6g.", what, free.Values[origin].Shadow.Y.Largest, t.Type.DType, t.Type.DType.Max())
		default:
			k, underflow := forced.flushedBefore(origin)
			if underflow >= 0 {
				u := &forced.Values[underflow]
				why := fmt.Sprintf("%s is not finite: %.0f %% of what %v of %s gives become 0 in %v", what, 100*flushed(u.Type.DType, u.Shadow), u.Op, where(u.Path), u.Type.DType)
				if k >= 0 {
					why += fmt.Sprintf(", and so does the constant %.3g", forced.Values[k].Constant)
				}
				return Underflow, why + "."
			}
			if k >= 0 {
				c := &forced.Values[k]
				return FlushedConstant, fmt.Sprintf("%s is not finite: the constant %.3g of %s is 0 in %v.", what, c.Constant, where(c.Path), c.Type.DType)
			}
			return RoundedOperand, fmt.Sprintf("%s is not finite on the operands that it gets: they were rounded, and float32 operands are finite.", what)
		}
	}
	for _, s := range e.report.Suspects {
		switch {
		case s.score >= scoreReader:
			return Overflow, fmt.Sprintf("Layer %s: %s.", s.Layer, s.Why)
		case strings.HasSuffix(s.Why, "become 0"):
			return Underflow, fmt.Sprintf("Layer %s: %s.", s.Layer, s.Why)
		case e.noScaleFits(free, s.Layer):
			a := e.report.Scale
			return Scale, fmt.Sprintf("No loss scale fits all gradients: %s needs at least 2^%d, and %s overflows beyond 2^%d.", a.LowAt, a.Low, a.HighAt, a.High)
		default:
			return Rounding, fmt.Sprintf("Layer %s: %s.", s.Layer, s.Why)
		}
	}
	return Rounding, fmt.Sprintf("Errors add up: the worst gradient (%s) is off by %.2g.", e.report.Before.Worst, e.report.Before.Gradient)
}

// noScaleFits reports whether gradients of a layer become 0 at any loss scale at which
// those of others are finite.
func (e *examination) noScaleFits(free *observed, layer string) bool {
	a := e.report.Scale
	if !a.Known || a.Fits() || e.report.Before.Gradient < 0.5 {
		return false
	}
	i := slices.IndexFunc(free.Values, func(t tensor.Tap) bool { return string(t.ID) == a.LowAt })
	t := &free.Values[i]
	return flushed(t.Type.DType, t.Shadow) > 0.5 && e.unitOf(t) == layer
}

func where(path string) string {
	if path == "" {
		return "outside of layers"
	}
	return "layer " + path
}

// spoils reports whether value i, which is not finite, makes finite values wrong: x/∞
// is 0. A mask may leave it out instead.
func (r *observed) spoils(i int) bool {
	reached := map[int]bool{i: true}
	for k := i + 1; k < len(r.Values); k++ {
		t := &r.Values[k]
		if !slices.ContainsFunc(t.Args, func(a int) bool { return reached[a] }) {
			continue
		}
		switch {
		case r.bad[k] > 0:
			reached[k] = true
		case t.Type.DType.IsFloat() && t.Shadow != nil && relative(t.Shadow) >= visible:
			return true
		}
	}
	return false
}

// accounts reports whether as many elements of value k became 0 as half of those of value
// i that are not finite.
func (r *observed) accounts(k, i int) bool {
	t := &r.Values[k]
	zero := flushed(t.Type.DType, t.Shadow) * float64(t.Shadow.Count)
	return zero > 0 && 2*zero >= float64(r.bad[i])
}

// flushedBefore looks in the values that value i is computed from, as far as they are 0
// where their shadows are not, for a constant that is 0 in its type, and for the first one
// of which many elements became 0; -1 if there is none.
func (r *observed) flushedBefore(i int) (constant, value int) {
	constant, value = -1, -1
	seen := map[int]bool{}
	var find func(k int)
	find = func(k int) {
		k, _ = r.source(k)
		t := &r.Values[k]
		if seen[k] || k != i && (t.Shadow == nil || t.Shadow.Flushed == 0) {
			return
		}
		seen[k] = true
		if t.Op == op.Const {
			constant = k
			return
		}
		var zero, constants int // operands, and those of them that are constants
		for _, a := range t.Args {
			a, _ = r.source(a)
			if s := r.Values[a].Shadow; s != nil && s.Flushed > 0 {
				zero++
				if r.Values[a].Op == op.Const {
					constants++
				}
			}
		}
		flushes := t.Shadow != nil && t.Type.DType.Is16() && (flushed(t.Type.DType, t.Shadow) > 0.1 || r.accounts(k, i))
		if flushes && k != i && (zero == 0 || zero > constants) && (value < 0 || k < value) { // not 0 plus a constant that is 0
			value = k
		}
		if flushes || t.Path == r.Values[i].Path {
			for _, a := range t.Args {
				find(a)
			}
		}
	}
	find(i)
	return constant, value
}
