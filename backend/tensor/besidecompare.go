package tensor

import (
	"slices"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// compare adds the shadow to g, and statistics as the outputs of g. derivative has those
// of the loss by values of g.
func (b *beside) compare(g *ir.Graph, derivative map[*ir.Value]*ir.Value, o BesideOptions) error {
	c := &comparing{beside: b, g: g, o: o, values: slices.Clone(g.Values), compared: map[*ir.Value][]*ir.Value{}}
	if err := c.twins(); err != nil {
		return err
	}
	if err := c.changes(); err != nil {
		return err
	}
	if err := c.statistics(derivative); err != nil {
		return err
	}
	interleave(g, c.values, func(v *ir.Value) []*ir.Value {
		v = c.step[v]
		return append([]*ir.Value{v, c.shadows[v]}, c.compared[v]...)
	})
	return nil
}

// comparing is a call of compare.
type comparing struct {
	*beside
	g        *ir.Graph
	o        BesideOptions
	values   []*ir.Value               // of the step as it was recorded
	step     map[*ir.Value]*ir.Value   // by values: with what is promoted
	shadows  map[*ir.Value]*ir.Value   // by values of step
	compared map[*ir.Value][]*ir.Value // statistics by value of step
}

// twins makes step and shadows.
func (c *comparing) twins() (err error) {
	c.step = make(map[*ir.Value]*ir.Value, len(c.values))
	for _, v := range c.values {
		c.step[v] = v
	}
	if c.o.Promote != nil {
		at := make(map[*ir.Value]int, len(c.values))
		for i, v := range c.values {
			at[v] = i
		}
		c.step, err = c.g.Retype(c.values, ir.Retyping{Least: func(v *ir.Value) dtype.DType { return c.o.Promote(&c.taps.Values[at[v]]) }})
		if err != nil {
			return err
		}
	}
	// Of all values: a promoted step takes other decisions, and those are forced.
	c.shadows, err = c.g.Retype(slices.Clone(c.g.Values), ir.Retyping{Least: func(*ir.Value) dtype.DType { return c.o.Wide }, Forced: !c.o.Free, Path: "shadow/"})
	return err
}

// output adds statistics of v and its reference.
func (c *comparing) output(v, reference *ir.Value, f comparison) error {
	t, err := op.Infer(op.Stats, op.Attr{}, v.Type, reference.Type)
	if err != nil {
		return err
	}
	s := c.g.Add(op.Stats, op.Attr{}, t, v.Path, v, reference)
	c.g.Output(s, -1)
	c.compared[v] = append(c.compared[v], s)
	c.fill = append(c.fill, f)
	return nil
}

// changes adds statistics of how far variables move.
func (c *comparing) changes() error {
	was := map[*Variable]*ir.Value{}
	for i, v := range c.values {
		if x := c.taps.Values[i].Variable; x != nil && v.Op == op.Param {
			was[x] = v
		}
	}
	for i, a := range c.taps.Assigned {
		before := was[a.Variable]
		if a.Tap < 0 || before == nil || !a.Variable.Trainable() || !before.Type.DType.IsFloat() || !before.Type.DType.Is16() && !c.o.Update {
			continue
		}
		after := c.values[a.Tap]
		moved, err := pairwise(c.g, op.Sub, c.o.Wide, c.step[after], c.step[before])
		if err != nil {
			return err
		}
		moves, err := pairwise(c.g, op.Sub, c.o.Wide, c.shadows[c.step[after]], c.shadows[c.step[before]])
		if err != nil {
			return err
		}
		if err := c.output(moved, moves, comparison{tap: i, change: true}); err != nil {
			return err
		}
	}
	return nil
}

// statistics adds those of values, but where the ones of another value are the same.
func (c *comparing) statistics(derivative map[*ir.Value]*ir.Value) error {
	shown := c.shown()
	has := make(map[*ir.Value]int, len(c.values)) // values with statistics: the taps that have them
	casts := map[*ir.Value]int{}                  // variables in float32: the taps of their casts to 16 bits
	var given []int                               // taps of variables in float32
	for i, v := range c.values {
		if !shown(i) {
			continue
		}
		x, reference := c.step[v], c.shadows[c.step[v]]
		if k, ok := c.widened(v, has); ok {
			has[v] = k
			c.same = append(c.same, same{tap: i, as: k})
			continue
		}
		if v.Op == op.Param && v.Type.DType == dtype.Float32 && reference == v {
			given = append(given, i)
			continue
		}
		if _, ok := casts[reference]; !ok && reference.Op == op.Param && x.Type.DType.Is16() {
			casts[reference] = i
		}
		has[v] = i
		if err := c.output(x, reference, comparison{tap: i}); err != nil {
			return err
		}
		if c.o.Local && v.Op != op.Param {
			if err := c.local(i, v, c.shadows[c.step[derivative[v]]]); err != nil {
				return err
			}
		}
	}
	for _, i := range given {
		v := c.values[i]
		if k, ok := casts[v]; ok {
			c.same = append(c.same, same{i, k, true})
		} else if err := c.output(v, v, comparison{tap: i}); err != nil {
			return err
		}
	}
	return nil
}

// shown reports which taps have statistics.
func (c *comparing) shown() func(i int) bool {
	terms, roots, summed := c.terms(), c.roots(), biased(c.values)
	activated := rectified(c.values)
	return func(i int) bool {
		v := c.values[i]
		switch {
		case !v.Type.DType.IsFloat() || v.Op.Info().Class == op.Movement:
			return false
		case terms[i] && !c.o.Update && !v.Type.DType.Is16():
			return false
		case c.o.Only != nil:
			return c.o.Only(&c.taps.Values[i])
		}
		hidden := v.Op != op.Relu && (summed[v] || activated[v])
		return c.o.All || roots[i] || v.Op == op.Relu && activated[v] || !selects(v) && !hidden
	}
}

// widened reports whether v is a cast to a wider type whose shadow is that of the operand,
// and which tap has the operand's statistics.
func (c *comparing) widened(v *ir.Value, has map[*ir.Value]int) (tap int, ok bool) {
	if v.Op != op.Cast || !v.Args[0].Type.DType.IsFloat() || v.Args[0].Type.DType.Size() >= v.Type.DType.Size() {
		return 0, false
	}
	x, operand := c.step[v], c.step[v.Args[0]]
	if c.shadows[x] != c.shadows[operand] || x != operand && (x.Op != op.Cast || x.Args[0] != operand) {
		return 0, false
	}
	tap, ok = has[v.Args[0]]
	return tap, ok
}

// local adds statistics of value i beside what its operation gives in the wide type on the
// same operands, and of its effect if derivative is not nil.
func (c *comparing) local(i int, v, derivative *ir.Value) error {
	alone, err := c.g.RetypeAlone(v, c.o.Wide, "alone/")
	if alone == v || err != nil {
		return err
	}
	if err := c.output(v, alone, comparison{tap: i, local: true}); err != nil || derivative == nil {
		return err
	}
	x, err := pairwise(c.g, op.Mul, c.o.Wide, v, derivative)
	if err != nil {
		return err
	}
	y, err := pairwise(c.g, op.Mul, c.o.Wide, alone, derivative)
	if err != nil {
		return err
	}
	return c.output(x, y, comparison{tap: i, effect: true})
}

// interleave orders g so that values that one layer recorded one after the other are
// followed by what goes with each: its shadow and their statistics. So these find them
// in the caches, and need little memory. The layer's own values stay together, to be
// fused, and max-pooling stays behind what it reads.
func interleave(g *ir.Graph, values []*ir.Value, with func(*ir.Value) []*ir.Value) {
	order := make([]*ir.Value, 0, len(g.Values))
	listed := make(map[*ir.Value]bool, len(g.Values))
	var list func(v *ir.Value)
	list = func(v *ir.Value) {
		if v == nil || listed[v] {
			return
		}
		for _, a := range v.Args {
			list(a)
		}
		listed[v] = true
		order = append(order, v)
	}
	for len(values) > 0 {
		n := 1
		for n < len(values) && (values[n].Path == values[0].Path || values[n].Op == op.MaxPool) {
			n++
		}
		for _, v := range values[:n] {
			list(with(v)[0])
		}
		for _, v := range values[:n] {
			for _, w := range with(v) {
				list(w)
			}
		}
		values = values[n:]
	}
	for _, v := range g.Values {
		list(v)
	}
	g.Values = order
}

// terms marks what belongs to the update alone: what neither a loss, a gradient nor a
// result is computed from. A step without gradients has none.
func (b *beside) terms() []bool {
	terms := make([]bool, len(b.taps.Values))
	if len(b.taps.Derivatives) == 0 {
		return terms
	}
	for i := range terms {
		terms[i] = true
	}
	keep := func(i int) {
		if i >= 0 {
			terms[i] = false
		}
	}
	for _, d := range b.taps.Derivatives {
		keep(d.Loss)
		for _, g := range d.Gradients {
			keep(g)
		}
	}
	for i := len(terms) - 1; i >= 0; i-- { // operands come first
		if !terms[i] {
			for _, a := range b.taps.Values[i].Args {
				terms[a] = false
			}
		}
	}
	for _, i := range b.taps.Results {
		keep(i)
	}
	return terms
}

// roots marks results, losses, and gradients of variables.
func (b *beside) roots() map[int]bool {
	roots := map[int]bool{}
	for _, i := range b.taps.Results {
		roots[i] = true
	}
	for _, d := range b.taps.Derivatives {
		roots[d.Loss] = true
		for _, i := range d.Gradients {
			roots[i] = true
		}
	}
	return roots
}

// biased marks products that nothing reads but the sum with a bias.
func biased(values []*ir.Value) map[*ir.Value]bool {
	readers := readersOf(values)
	all := map[*ir.Value]bool{}
	for _, v := range values {
		if v.Op != op.Add || !v.Type.DType.IsFloat() {
			continue
		}
		product, bias := v.Args[0], v.Args[1]
		for len(bias.Args) == 1 && (bias.Op == op.Cast || bias.Op.Info().Class == op.Movement) {
			bias = bias.Args[0]
		}
		for product.Op.Info().Class == op.Movement && len(product.Args) == 1 && readers[product] == 1 {
			product = product.Args[0]
		}
		if product.Op.Info().Class == op.Contraction && bias.Op == op.Param && product.Type.Bytes() == v.Type.Bytes() && readers[product] == 1 {
			all[product] = true
		}
	}
	return all
}

// rectified marks ReLUs, and their operands that nothing else reads.
func rectified(values []*ir.Value) map[*ir.Value]bool {
	readers := readersOf(values)
	all := map[*ir.Value]bool{}
	for _, v := range values {
		if v.Op == op.Relu && v.Type.DType.IsFloat() && readers[v.Args[0]] == 1 && v.Args[0].Op.Info().Class != op.Leaf {
			all[v], all[v.Args[0]] = true, true
		}
	}
	return all
}

// readersOf counts the uses of values.
func readersOf(values []*ir.Value) map[*ir.Value]int {
	readers := map[*ir.Value]int{}
	for _, v := range values {
		for _, a := range v.Args {
			readers[a]++
		}
	}
	return readers
}

// selects reports whether each element of a value is one of an operand's, or 0.
func selects(v *ir.Value) bool {
	switch v.Op {
	case op.Sign:
		return false
	case op.Max, op.Min, op.MaxPool, op.MaxPoolGradGrad:
		return true
	case op.MaxPoolGrad: // adds up where windows overlap
		a := &v.Attr
		for i, n := range a.Window {
			if n > a.Stride[i] || a.Dilation != nil && a.Dilation[i] > 1 {
				return false
			}
		}
		return true
	}
	return v.Op.Info().Selects
}

// pairwise adds an operation on x and y, computed in d, to g.
func pairwise(g *ir.Graph, code op.Code, d dtype.DType, x, y *ir.Value) (*ir.Value, error) {
	args := []*ir.Value{x, y}
	for i, v := range args {
		if v.Type.DType != d {
			args[i] = g.Add(op.Cast, op.Attr{DType: d}, op.Type{DType: d, Shape: v.Type.Shape}, v.Path, v)
		}
	}
	t, err := op.Infer(code, op.Attr{}, args[0].Type, args[1].Type)
	if err != nil {
		return nil, err
	}
	return g.Add(code, op.Attr{}, t, x.Path, args...), nil
}
