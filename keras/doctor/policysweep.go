package doctor

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/mezzo-ml/mezzo/backend/op"
	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/policy"
)

// layerCosts is what a layer costs under each of the policies.
type layerCosts struct {
	path    string
	squared []float64 // relative error of the loss, squared
	seconds []float64
	bytes   []float64
}

// weigh finds out what each layer costs under each policy, and returns the points at
// which all layers have one policy.
func (s *policySearch) weigh(ctx context.Context) ([]Point, error) {
	if err := s.findNamed(); err != nil {
		return nil, err
	}
	n := len(s.config.Policies)
	copies := make([]*keras.Model, n)
	units := make([][]unit, n)
	for i, name := range s.config.Policies {
		m, _, err := s.copy(name, s.uniform(name))
		if err != nil {
			return nil, err
		}
		copies[i], units[i] = m, layersOf(m)
	}
	for l, u := range units[0] {
		if slices.ContainsFunc(units, func(of []unit) bool { return of[l].policy != u.policy }) { // not fixed by a field DType
			s.layers = append(s.layers, layerCosts{u.name, make([]float64, n), make([]float64, n), make([]float64, n)})
		}
	}
	if len(s.layers) == 0 {
		return nil, fmt.Errorf("the policies %q make no difference for any layer", s.config.Policies)
	}
	points := make([]Point, n)
	for i, m := range copies {
		if err := s.effects(ctx, i, m); err != nil {
			return nil, fmt.Errorf("under %s: %w", s.config.Policies[i], err)
		}
		points[i] = s.pointOf(slices.Repeat([]int{i}, len(s.layers)))
		t, err := s.measure(ctx, &points[i], m)
		if err != nil {
			return nil, err
		}
		for _, path := range slices.Sorted(maps.Keys(t.Layers)) { // sums of one order
			if l := s.layerOf(path); l >= 0 {
				s.layers[l].seconds[i] += t.Layers[path]
			}
		}
		for l := range s.layers {
			if t.Layers == nil {
				s.layers[l].seconds[i] = t.Seconds / float64(len(s.layers))
			}
		}
	}
	for _, l := range s.layers {
		for i, name := range s.config.Policies {
			s.result.Layers = append(s.result.Layers, LayerCost{l.path, name, math.Sqrt(l.squared[i]), l.seconds[i], keras.Bytes(l.bytes[i])})
		}
	}
	return points, nil
}

// findNamed finds the layers that have a policy of their own without force.
func (s *policySearch) findNamed() error {
	for _, name := range s.config.Policies {
		if !s.config.Force {
			break
		}
		m, err := s.model.CloneUnder(name, policy.Map{}, false)
		if err != nil {
			return err
		}
		for _, u := range layersOf(m) {
			if u.policy != name && !slices.Contains(s.named, u.name) {
				s.named = append(s.named, u.name)
			}
		}
	}
	return nil
}

// layerOf returns the position of the layer that records under path, or -1.
func (s *policySearch) layerOf(path string) int {
	for path = strings.TrimSuffix(path, "/grad"); path != ""; path = path[:max(strings.LastIndexByte(path, '/'), 0)] {
		if i := slices.IndexFunc(s.layers, func(l layerCosts) bool { return l.path == path }); i >= 0 {
			return i
		}
	}
	return -1
}

// mostShadows is how often a step runs beside its shadow under one policy.
const mostShadows = 4

// effects runs the step under policy number i beside its shadow. Layers whose values
// leave the range of their types spoil those behind them: they are float32 in another
// run.
func (s *policySearch) effects(ctx context.Context, i int, m *keras.Model) error {
	at := policy.Map{}
	for range mostShadows {
		if len(at) > 0 {
			var err error
			by := s.uniform(s.config.Policies[i])
			maps.Copy(by, at)
			if m, _, err = s.copy(s.config.Policies[i], by); err != nil {
				return err
			}
		}
		taps, err := m.Beside(ctx, s.batches[0], tensor.BesideOptions{Effect: true, Free: true, Only: rounds})
		if err != nil {
			return err
		}
		e := examination{report: &Report{}}
		r, err := e.observed(taps, nil)
		if err != nil {
			return err
		}
		before := len(at)
		if err := s.add(i, r, at); err != nil {
			return err
		}
		if len(at) == before {
			break
		}
	}
	return nil
}

// rounds reports whether a value rounds to few bits, or may be the loss.
func rounds(t *tensor.Tap) bool {
	return t.Type.DType.Is16() || t.Op == op.RoundE4M3 || t.Op == op.RoundE5M2 || len(t.Type.Shape) == 0
}

// add sets the costs of the layers from a step under policy number i. Layers whose
// values leave the range of their types are added to at.
func (s *policySearch) add(i int, r *observed, at policy.Map) error {
	if len(r.Derivatives) == 0 || r.Derivatives[0].Loss < 0 {
		return fmt.Errorf("the step has no loss")
	}
	loss := r.Values[r.Derivatives[0].Loss].Shadow // a scalar
	if loss.Y.NaNs+loss.Y.Infinities > 0 {
		return fmt.Errorf("the loss is not finite in float32; Examine says why")
	}
	first := len(at) == 0
	for l := range s.layers {
		if c := &s.layers[l]; at[c.path] == "" {
			c.squared[i] = 0
		}
	}
	for k := range r.Values {
		t := &r.Values[k]
		l := s.layerOf(t.Path)
		if l < 0 {
			continue
		}
		c := &s.layers[l]
		if first && !isGradient(t.Path) && t.Op != op.Param && t.Op != op.Const && t.Op.Info().Class != op.Movement {
			c.bytes[i] += float64(t.Type.Bytes())
		}
		switch d := t.Type.DType; {
		case at[c.path] != "" || t.Shadow == nil || isGradient(t.Path) && t.Scaled: // the loss scale is a matter of its own
		case d.Is16() && (beyond(d, t.Shadow) || r.breaks(k)):
			at[c.path] = policy.Float32
			c.squared[i] = math.Inf(1)
		case t.Effect != nil && t.Effect.SquaredError > 0:
			c.squared[i] += t.Effect.SquaredError / (loss.Y.Largest * loss.Y.Largest)
		case t.Effect == nil && t.Local != nil && t.Local.SquaredError > 0 && !isGradient(t.Path):
			if next := r.nextEffect(k); next != nil {
				own := relative(t.Local)
				c.squared[i] += own * own * next.Y.Squares / (loss.Y.Largest * loss.Y.Largest)
			}
		}
	}
	for l := range s.layers {
		if c := &s.layers[l]; math.IsNaN(c.squared[i]) {
			c.squared[i] = math.Inf(1)
		}
	}
	return nil
}

// nextEffect is the effect of the first value computed from value k that the loss has a
// derivative by; nil if there is none. There is none by what no weight comes before, such
// as inputs, by values behind a gradient of their own, such as those of 8-bit products,
// and in loops. A relative error of such a value is about that of the next one that has
// one.
func (r *observed) nextEffect(k int) *op.Statistics {
	reached := map[int]bool{k: true}
	for j := k + 1; j < len(r.Values); j++ {
		t := &r.Values[j]
		if isGradient(t.Path) || !slices.ContainsFunc(t.Args, func(a int) bool { return reached[a] }) {
			continue
		}
		if t.Effect != nil {
			return t.Effect
		}
		reached[j] = true
	}
	return nil
}

// breaks reports whether value k is not finite although its operands and its shadow are.
func (r *observed) breaks(k int) bool {
	t := &r.Values[k]
	return r.bad[k] > 0 && t.Shadow.Y.NaNs+t.Shadow.Y.Infinities == 0 &&
		!slices.ContainsFunc(t.Args, func(a int) bool { return r.bad[a] > 0 })
}

// uniform is a map for a copy of which all layers have one policy.
func (s *policySearch) uniform(name string) policy.Map {
	at := policy.Map{}
	for _, l := range s.named {
		at[l] = name
	}
	return at
}

// pointOf is the point at which layer l has policy number assigned[l]. Its Policy is that
// of most layers, of those the first.
func (s *policySearch) pointOf(assigned []int) Point {
	count := make([]int, len(s.config.Policies))
	for _, i := range assigned {
		count[i]++
	}
	most := slices.Index(count, slices.Max(count))
	p := Point{Policy: s.config.Policies[most], Map: policy.Map{}}
	squared := 0.0
	for l, i := range assigned {
		squared += s.layers[l].squared[i]
		if i != most || slices.Contains(s.named, s.layers[l].path) {
			p.Map[s.layers[l].path] = s.config.Policies[i]
		}
	}
	p.Predicted = math.Sqrt(squared)
	return p
}

// sweep returns assignments of policies to layers, from the least of what the goal is
// about to the least error.
func (s *policySearch) sweep() [][]int {
	cost := func(l layerCosts) []float64 { return l.seconds }
	if s.config.Goal == MinMemory || s.config.Goal == MinError && s.config.MaxTime == 0 {
		cost = func(l layerCosts) []float64 { return l.bytes }
	}
	// The prices of an error at which a layer alone would change.
	var prices []float64
	for _, l := range s.layers {
		c := cost(l)
		for i := range c {
			for j := range c {
				if price := (c[j] - c[i]) / (l.squared[i] - l.squared[j]); price > 0 && !math.IsInf(price, 1) {
					prices = append(prices, price)
				}
			}
		}
	}
	slices.Sort(prices)
	prices = slices.Compact(prices)
	between := []float64{0}
	for i, p := range prices {
		next := 4 * p
		if i+1 < len(prices) {
			next = prices[i+1]
		}
		if i == 0 {
			between = append(between, p/2)
		}
		between = append(between, math.Sqrt(p)*math.Sqrt(next))
	}
	var all [][]int
	for _, price := range between {
		a := s.assign(cost, price)
		if !slices.ContainsFunc(all, func(b []int) bool { return slices.Equal(a, b) }) {
			all = append(all, a)
		}
	}
	if n := s.config.Maps; len(all) > n { // evenly
		var some [][]int
		for i := range n {
			some = append(some, all[i*(len(all)-1)/max(n-1, 1)])
		}
		all = some
	}
	return all
}

// assign returns the policies of the layers with the least sum of costs and of errors
// times price. A change of policy from one layer to the next costs a little: it is a
// cast, and layers that it does not matter for follow their neighbours.
func (s *policySearch) assign(cost func(layerCosts) []float64, price float64) []int {
	n := len(s.config.Policies)
	total := 0.0
	for _, l := range s.layers {
		total += cost(l)[0]
	}
	change := 0.02 * total / float64(len(s.layers))
	best := make([]float64, n) // of the layers so far, the last under each policy
	from := make([][]int, len(s.layers))
	for k, l := range s.layers {
		next := make([]float64, n)
		from[k] = make([]int, n)
		for i := range n {
			least := math.Inf(1)
			for j := range n { // the same policy first
				j = (i + j) % n
				x := best[j]
				if j != i {
					x += change
				}
				if k > 0 && x < least || k == 0 && j == i {
					least, from[k][i] = x, j
				}
			}
			next[i] = least + cost(l)[i]
			if price > 0 { // an infinite error is too much at any
				next[i] += price * l.squared[i]
			}
		}
		best = next
	}
	a := make([]int, len(s.layers))
	at := 0
	for i := range n {
		if best[i] < best[at] {
			at = i
		}
	}
	for k := len(a) - 1; k >= 0; k-- {
		a[k] = at
		at = from[k][at]
	}
	return a
}
