package layers

import (
	"fmt"
	"math"
	"slices"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/layers/internal/support"
)

// MultiHeadAttention projects query, key and value for each of several heads,
// attends, and projects what the heads found together (Vaswani et al. 2017).
// Scores are divided by √KeyDim.
//
// Inputs are a tuple of query and value, or query, value and key, and with
// UseAttentionMask a bool mask [batch T S] or [batch NumHeads T S], true where
// step t of the query may see step s of the value. Masks that query, value and key carry, a causal mask
// and a window leave out more; a step of the query that sees nothing gets the
// bias of the output. With more than three axes masks must be given.
//
// Shapes: ([batch … T … d], [batch … S … e], [batch … S … f]) → [batch … T …
// OutputShape…], where T and S stand for AttentionAxes and the other axes
// agree; with ReturnAttentionScores a tuple with the scores [batch … NumHeads T
// S]. Weights, each with a bias of the last axes if UseBias: query/kernel
// [d NumHeads KeyDim], key/kernel [f NumHeads KeyDim], gate/kernel [d NumHeads
// ValueDim] with UseGate, value/kernel [e NumHeads ValueDim],
// attention_output/kernel [NumHeads ValueDim OutputShape…].
type MultiHeadAttention struct {
	NumHeads              int     // required
	KeyDim                int     // size of a head's query and key; required
	ValueDim              int     // size of a head's value; default: KeyDim
	Dropout               float64 // share of the scores that is dropped while training
	UseBias               *bool   `default:"true"`
	OutputShape           PerAxis // default: the last axis of the query
	AttentionAxes         []int   // axes attention is over; default: all but batch and features
	SlidingWindow         *int    // how near a step must be to be seen: less than so many steps away; default: any
	UseGate               bool    // whether what the heads found is multiplied by sigmoid(query·gate)
	UseCausalMask         bool    // whether step t sees steps up to t only, in all calls; see Args
	UseAttentionMask      bool    // whether the last input is a mask; an argument of the call in Keras
	ReturnAttentionScores bool    // whether the result is a tuple with the scores, in all calls; see Args
	KernelInitializer     string  `default:"glorot_uniform"`
	BiasInitializer       string  `default:"zeros"`
	KernelRegularizer     string
	BiasRegularizer       string
	ActivityRegularizer   string // of each projection
	KernelConstraint      string
	BiasConstraint        string
	Seed                  *int64 // default: derived from the model's seed and the layer's path
	Name, DType           string

	Base
	SetsMask
	attends
	query, key, value, gate, out *EinsumDense
	dropout                      *Dropout
	letters                      attentionLetters
	over                         int  // number of attention axes
	inner                        bool // whether they are the last ones, in order
}

// Config returns the fields Name and DType.
func (m *MultiHeadAttention) Config() Config { return Config{m.Name, m.DType} }

// Build makes the projections.
func (m *MultiHeadAttention) Build(in ...Shape) (err error) {
	c := Defaults(*m)
	if err := support.Positive("NumHeads", c.NumHeads); err != nil {
		return err
	}
	if err := support.Positive("KeyDim", c.KeyDim); err != nil {
		return err
	}
	if c.ValueDim == 0 {
		c.ValueDim = c.KeyDim
	}
	if err := support.Positive("ValueDim", c.ValueDim); err != nil {
		return err
	}
	if c.SlidingWindow != nil {
		if err := support.Positive("SlidingWindow", *c.SlidingWindow); err != nil {
			return err
		}
	}
	inputs, err := attentionInputs(in, c.UseAttentionMask)
	if err != nil {
		return err
	}
	q, v, k := inputs[0], inputs[1], inputs[2]
	rank := len(q)
	if err := m.attentionAxes(c, rank); err != nil {
		return err
	}
	output := c.OutputShape
	if output == nil {
		n, err := support.KnownAxis(q, -1)
		if err != nil {
			return err
		}
		output = PerAxis{n}
	}
	for _, n := range output {
		if n < 1 {
			return fmt.Errorf("OutputShape is %v, want positive numbers", []int(output))
		}
	}
	project := projection{c.UseBias, c.KernelInitializer, c.BiasInitializer, c.KernelRegularizer, c.BiasRegularizer,
		c.ActivityRegularizer, c.KernelConstraint, c.BiasConstraint, ""}
	if m.query, err = project.add(&m.Base, "query", q, 1, c.NumHeads, c.KeyDim); err != nil {
		return err
	}
	if m.key, err = project.add(&m.Base, "key", k, 1, c.NumHeads, c.KeyDim); err != nil {
		return err
	}
	if c.UseGate {
		if m.gate, err = project.gate().add(&m.Base, "gate", q, 1, c.NumHeads, c.ValueDim); err != nil {
			return err
		}
	}
	if m.value, err = project.add(&m.Base, "value", v, 1, c.NumHeads, c.ValueDim); err != nil {
		return err
	}
	heads := append(q[:rank-1].Clone(), c.NumHeads, c.ValueDim)
	if m.out, err = project.add(&m.Base, "attention_output", heads, 2, output...); err != nil {
		return err
	}
	m.dropout, err = m.addDropout(c.Dropout, c.Seed)
	return err
}

// attentionAxes checks AttentionAxes for inputs with rank axes, and names the
// axes of all that is multiplied.
func (m *MultiHeadAttention) attentionAxes(c MultiHeadAttention, rank int) error {
	axes := slices.Clone(c.AttentionAxes)
	if axes == nil {
		for a := 1; a < rank-1; a++ {
			axes = append(axes, a)
		}
	}
	for i, a := range axes {
		if a < 0 {
			axes[i] = rank + a
		}
		if axes[i] < 1 || axes[i] >= rank-1 || slices.Contains(axes[:i], axes[i]) {
			return fmt.Errorf("AttentionAxes is %v, want different axes between batch and features of %d axes", c.AttentionAxes, rank)
		}
	}
	m.over = len(axes)
	if m.over == 0 {
		return fmt.Errorf("AttentionAxes is %v, want at least one axis", axes)
	}
	if m.over > 1 && (c.UseCausalMask || c.SlidingWindow != nil) {
		return fmt.Errorf("UseCausalMask or SlidingWindow is set with AttentionAxes %v, want one axis with an order", axes)
	}
	m.letters = lettersOf(rank, axes)
	m.inner = true
	for i, a := range axes {
		m.inner = m.inner && a == rank-1-m.over+i
	}
	return nil
}

// CheckInput requires the inputs it was built for; steps may differ.
func (m *MultiHeadAttention) CheckInput(in ...Shape) error {
	_, err := attentionInputs(in, m.UseAttentionMask)
	return err
}

// Call computes the layer on the tuple x.
func (m *MultiHeadAttention) Call(p Pass, x *tensor.Tensor) *tensor.Tensor {
	q, k, v, given := splitInputs(x, m.UseAttentionMask)
	if given != nil && (given.Rank() < 2*m.over || given.Rank() > q.Rank()+m.over) {
		tensor.Fail("Call", "got mask %v for query %v, want [batch T S]", given.Type(), q.Type())
	}
	queries, keys, values := Apply(m.query, p, q), Apply(m.key, p, k), Apply(m.value, p, v)
	window := 0
	if m.SlidingWindow != nil {
		window = *m.SlidingWindow
	}
	causal, withScores := m.UseCausalMask || p.UseCausalMask, m.ReturnAttentionScores || p.ReturnAttentionScores
	if causal && m.over > 1 {
		tensor.Fail("Call", "UseCausalMask is set with attention over %d axes, want one axis with an order", m.over)
	}
	var y, weights *tensor.Tensor
	if !withScores && m.inner && (given == nil || q.Rank() == 3) {
		y = m.fused(p, q, k, v, queries, keys, values, given, window)
	} else {
		y, weights = m.withScores(p, q, k, v, queries, keys, values, given, window)
	}
	if m.gate != nil {
		y = y.Mul(Apply(m.gate, p, q))
	}
	y = Apply(m.out, p, y).WithMask(q.Mask())
	if withScores {
		return tensor.Tuple(y, weights)
	}
	return y
}

// fused attends without keeping the scores. It takes attention over the inner
// ones of the axes between batch and features, in their order: outer ones are
// as good as samples.
func (m *MultiHeadAttention) fused(p Pass, q, k, v, queries, keys, values, given *tensor.Tensor, window int) *tensor.Tensor {
	merged := func(t *tensor.Tensor) *tensor.Tensor {
		s := t.Shape()
		n := len(s) - 2 - m.over
		return t.Reshape(s[:n].Size(), s[n:len(s)-2].Size(), s[len(s)-2], s[len(s)-1])
	}
	h := heads{q: merged(queries), k: merged(keys), v: merged(values), scale: 1 / math.Sqrt(float64(m.KeyDim)),
		causal: m.UseCausalMask || p.UseCausalMask, window: window, dropout: m.dropout}
	if q.Rank() == 3 {
		h.keep, h.queries = both(overHeads(given), overHeads(keyMask(v, k))), q.Mask()
	}
	s := queries.Shape().Clone()
	s[len(s)-1] = values.Dim(-1)
	return h.attend(p).Reshape(s...)
}

// withScores attends and returns the weights, too.
func (m *MultiHeadAttention) withScores(p Pass, q, k, v, queries, keys, values, given *tensor.Tensor, window int) (y, weights *tensor.Tensor) {
	scores := tensor.Einsum(m.letters.query+","+m.letters.key+"->"+m.letters.scores, queries, keys).Widen()
	scores = scores.MulScalar(1 / math.Sqrt(float64(m.KeyDim)))
	// Masks lack the axes of the heads and the axes that are not attended over.
	over := func(mask *tensor.Tensor) *tensor.Tensor {
		for mask != nil && mask.Rank() < scores.Rank() {
			mask = mask.ExpandDims(mask.Rank() - 2*m.over)
		}
		return mask
	}
	keep := over(given)
	if q.Rank() == 3 {
		keep = both(keep, over(carriedMasks(q, k, v)))
	}
	if m.over == 1 {
		keep = both(keep, over(band(scores.Dim(-2), scores.Dim(-1), m.UseCausalMask || p.UseCausalMask, window)))
	}
	axes := make([]int, m.over)
	for i := range axes {
		axes[i] = i - m.over
	}
	weights = maskedSoftmax(scores, keep, axes...).Cast(values.DType())
	used := weights
	if m.dropout != nil {
		used = Apply(m.dropout, p, used)
	}
	return tensor.Einsum(m.letters.scores+","+m.letters.key+"->"+m.letters.query, used, values), weights
}

// attentionLetters name the axes of projected queries, projected keys and
// values, and scores, for einsum.
type attentionLetters struct{ query, key, scores string }

// lettersOf names them for inputs with rank axes, attended over axes. The
// projections have the heads and a head's features as their last two axes.
func lettersOf(rank int, axes []int) attentionLetters {
	var l attentionLetters
	var batch, from, to string
	for i := range rank - 1 {
		c := string(rune('a' + i))
		l.query += c
		if slices.Contains(axes, i) {
			l.key += string(rune('A' + i))
		} else {
			l.key += c
			batch += c
		}
	}
	for _, a := range axes {
		from += string(rune('a' + a))
		to += string(rune('A' + a))
	}
	l.query += "yz"
	l.key += "yz"
	l.scores = batch + "y" + from + to
	return l
}

// projection is the common part of the projections of an attention layer.
type projection struct {
	useBias                          *bool
	kernelInit, biasInit             string
	kernelReg, biasReg, activity     string
	kernelConstraint, biasConstraint string
	activation                       string
}

// gate is the projection whose results multiply others.
func (p projection) gate() projection {
	p.activation = "sigmoid"
	return p
}

// add makes the projection of the last bound axes of inputs of shape s to axes
// of the given sizes.
func (p projection) add(b *Base, name string, s Shape, bound int, sizes ...int) (*EinsumDense, error) {
	free := len(s) - bound
	letters := "abcdefghijklmnopqrstuvwx"[:len(s)+len(sizes)]
	kept, summed, made := letters[:free], letters[free:len(s)], letters[len(s):]
	e := &EinsumDense{
		Equation:          kept + summed + "," + summed + made + "->" + kept + made,
		KernelInitializer: p.kernelInit, BiasInitializer: p.biasInit,
		KernelRegularizer: p.kernelReg, BiasRegularizer: p.biasReg, ActivityRegularizer: p.activity,
		KernelConstraint: p.kernelConstraint, BiasConstraint: p.biasConstraint, Activation: p.activation,
	}
	for range free - 1 {
		e.OutputShape = append(e.OutputShape, tensor.Unknown)
	}
	e.OutputShape = append(e.OutputShape, sizes...)
	if *p.useBias {
		e.BiasAxes = made
	}
	return e, b.AddBuilt(name, e, s)
}

// attentionInputs checks the shapes of query, value, key and mask, and returns the
// first three.
func attentionInputs(in []Shape, withMask bool) ([3]Shape, error) {
	all := in
	if withMask && len(in) > 0 {
		in = in[:len(in)-1]
	}
	if len(in) != 2 && len(in) != 3 {
		want := "query and value, or of query, value and key"
		if withMask {
			want += ", and a mask"
		}
		return [3]Shape{}, fmt.Errorf("got %d inputs, want a tuple of %s", len(all), want)
	}
	q, v, k := in[0], in[1], in[len(in)-1]
	rank := len(q)
	if rank < 3 || len(v) != rank || len(k) != rank {
		return [3]Shape{}, fmt.Errorf("got inputs %v, want as many axes of each, at least 3: batch, steps, features", all)
	}
	if q[0] != v[0] || !v[:rank-1].Equal(k[:rank-1]) {
		return [3]Shape{}, fmt.Errorf("got query %v, value %v and key %v, want one batch size, and value and key alike but for the last axis", q, v, k)
	}
	return [3]Shape{q, v, k}, nil
}

// splitInputs takes the tuple of a multi-head layer apart; mask may be nil.
func splitInputs(x *tensor.Tensor, withMask bool) (q, k, v, mask *tensor.Tensor) {
	parts := x.Unpack()
	if withMask {
		mask = parts[len(parts)-1]
		if mask.DType() != dtype.Bool {
			tensor.Fail("Call", "got mask %v, want bool", mask.Type())
		}
		parts = parts[:len(parts)-1]
	}
	wantSequences(parts)
	return parts[0], parts[len(parts)-1], parts[1], mask
}

// carriedMasks returns the combined masks that query, key and value carry, which
// broadcast to [batch T S], or nil.
func carriedMasks(q, k, v *tensor.Tensor) *tensor.Tensor {
	var keep *tensor.Tensor
	if m := q.Mask(); m != nil {
		keep = m.ExpandDims(2)
	}
	for _, t := range []*tensor.Tensor{v, k} {
		if m := t.Mask(); m != nil {
			keep = both(keep, m.ExpandDims(1))
		}
	}
	return keep
}
