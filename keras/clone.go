package keras

import (
	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/optimizers"
	"github.com/mezzo-ml/mezzo/policy"
)

// Clone returns a model with the same layers and newly initialized weights
// (Keras: clone_model). policyName is the policy of the layers that name none
// of their own. With "" each layer keeps the policy it was built with; in a
// model that is not built that is the global policy. The copy is not compiled.
func (m *Model) Clone(policyName string) (*Model, error) {
	c := cloning{layers: map[layers.Layer]layers.Layer{}}
	if policyName != "" {
		p, err := policy.Parse(policyName)
		if err != nil {
			return nil, m.errorf("Clone: %w", err)
		}
		c.policy = &p
	}
	to := blank(m)
	if err := c.fill(to, m, nil, nil); err != nil {
		return nil, err
	}
	return to, nil
}

// cloning is one call of Clone: a layer that is used twice is cloned once.
type cloning struct {
	policy *policy.Policy // nil: that of each layer
	layers map[layers.Layer]layers.Layer
}

// blank is a model like m without layers.
func blank(m *Model) *Model {
	return &Model{name: m.name, named: m.named, prefix: m.prefix, keepDType: m.keepDType, seed: m.seed, frozen: m.frozen}
}

// fill gives to the layers of m, cloned. A model within a model was applied to
// inputs of types was, and its clone is applied to inputs of types is; both are
// nil for others.
func (c cloning) fill(to, m *Model, was, is []DType) error {
	if !m.built {
		return c.stack(m, to)
	}
	at := map[*Tensor]*Tensor{}
	i := -1
	in := eachPart(m.in, func(t *Tensor) *Tensor {
		i++
		d := t.DType()
		if o, ok := tensor.OriginOf(t).(*origin); ok && !o.float32 && i < len(was) && i < len(is) && was[i] == d {
			d = is[i] // it has the type of what the model is applied to
		}
		at[t] = InputOf(d, t.Shape()[1:]...)
		tensor.OriginOf(at[t]).(*origin).float32 = tensor.OriginOf(t).(*origin).float32
		tensor.OriginOf(at[t]).(*origin).name = tensor.OriginOf(t).(*origin).name
		return at[t]
	})
	for _, n := range m.nodes {
		x := replace(n.in, at)
		l, err := c.layer(n.layer)
		if err != nil {
			return err
		}
		y := call(layers.With(l, n.args), to.prefix, x)
		if y.Err() != nil {
			return y.Err()
		}
		for i, t := range y.Unpack() {
			at[n.out[i]] = t
		}
	}
	if err := c.stack(m, to); err != nil {
		return err
	}
	if err := to.wire(in, replace(m.out, at)); err != nil {
		return err
	}
	if m.seed != nil {
		return to.SetSeed(*m.seed)
	}
	return nil
}

// stack clones the layers that m was given as a Sequential.
func (c cloning) stack(m, to *Model) error {
	for _, l := range m.stack {
		s, err := c.layer(l)
		if err != nil {
			return err
		}
		to.stack = append(to.stack, s)
	}
	return nil
}

// layer clones a layer of a model.
func (c cloning) layer(l layers.Layer) (layers.Layer, error) {
	old, _ := layers.Unwrap(l)
	known := c.layers[old] != nil
	made, err := c.bare(l)
	if err != nil || known {
		return made, err
	}
	switch b := layers.BaseOf(old); {
	case c.policy != nil:
		layers.SetPolicy(c.layers[old], *c.policy)
	case b.Built():
		layers.SetPolicy(c.layers[old], b.Policy())
	}
	return made, nil
}

// bare clones a layer of a model, or one in a field of such a layer, which has
// that layer's policy.
func (c cloning) bare(l layers.Layer) (made layers.Layer, err error) {
	l, args := layers.Unwrap(l)
	if made = c.layers[l]; made != nil {
		return layers.With(made, args), nil
	}
	if inner, ok := l.(*modelLayer); ok {
		made, err = c.nested(inner)
	} else {
		made, err = layers.CloneWith(l, func(in layers.Layer) (layers.Layer, error) {
			if isModel(in) {
				return c.layer(in)
			}
			return c.bare(in)
		})
	}
	if err != nil {
		return nil, err
	}
	c.layers[l] = made
	return layers.With(made, args), nil
}

// nested clones a model within a model. Where l was built, its clone is made
// when that is built: only then the types that it is applied to are known,
// whatever layers are around it.
func (c cloning) nested(l *modelLayer) (layers.Layer, error) {
	m, to := l.model, blank(l.model)
	made := to.Layer()
	layers.TakeAfter(made, l)
	if was := l.InputDTypes(); l.Built() {
		made.(*modelLayer).fill = func(is []DType) error { return c.fill(to, m, was, is) }
		return made, nil
	}
	return made, c.fill(to, m, nil, nil)
}

// cloneCompiled is Clone with the same losses and metrics, and a copy of the
// optimizer without its state.
func (m *Model) cloneCompiled(policyName string) (*Model, error) {
	c, err := m.Clone(policyName)
	if err != nil {
		return nil, err
	}
	config := m.training.config
	if config.Optimizer != nil {
		config.Optimizer = optimizers.Clone(config.Optimizer)
	}
	return c, c.Compile(config)
}
