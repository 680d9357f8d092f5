package keras

import (
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/optimizers"
	"github.com/mezzo-ml/mezzo/policy"
)

// Clone returns a model of the same layers with weights of its own, drawn anew
// (Keras: clone_model), under a policy: that of the layers that name none of
// their own. "" is the policy that each of them has, or, where the model is not
// built, the global one. The copy is not compiled.
func (m *Model) Clone(policyName string) (*Model, error) {
	c := cloning{layers: map[layers.Layer]layers.Layer{}}
	if policyName != "" {
		p, err := policy.Parse(policyName)
		if err != nil {
			return nil, m.errorf("Clone: %w", err)
		}
		c.policy = &p
	}
	return c.model(m)
}

// cloning is one call of Clone: a layer that is used twice is cloned once.
type cloning struct {
	policy *policy.Policy // nil: that of each layer
	layers map[layers.Layer]layers.Layer
}

func (c cloning) model(m *Model) (*Model, error) {
	to := &Model{name: m.name, named: m.named, prefix: m.prefix, keepDType: m.keepDType, seed: m.seed, frozen: m.frozen}
	for _, l := range m.stack {
		s, err := c.layer(l)
		if err != nil {
			return nil, err
		}
		to.stack = append(to.stack, s)
	}
	if !m.built {
		return to, nil
	}
	at := map[*Tensor]*Tensor{}
	in := eachPart(m.in, func(t *Tensor) *Tensor {
		at[t] = InputOf(t.DType(), t.Shape()[1:]...)
		return at[t]
	})
	for _, n := range m.nodes {
		l, err := c.layer(n.layer)
		if err != nil {
			return nil, err
		}
		y := call(layers.With(l, n.args), to.prefix, replace(n.in, at))
		if y.Err() != nil {
			return nil, y.Err()
		}
		for i, t := range y.Parts() {
			at[n.out[i]] = t
		}
	}
	if err := to.wire(in, replace(m.out, at)); err != nil {
		return nil, err
	}
	if m.seed != nil {
		return to, to.SetSeed(*m.seed)
	}
	return to, nil
}

func (c cloning) layer(l layers.Layer) (layers.Layer, error) {
	l, args := layers.Unwrap(l)
	if made := c.layers[l]; made != nil {
		return layers.With(made, args), nil
	}
	var made layers.Layer
	if inner, ok := l.(*modelLayer); ok {
		m, err := c.model(inner.model)
		if err != nil {
			return nil, err
		}
		made = m.Layer()
		layers.TakeAfter(made, l)
	} else {
		made = layers.Clone(l)
	}
	switch b := layers.BaseOf(l); {
	case c.policy != nil:
		layers.SetPolicy(made, *c.policy)
	case b.Built():
		layers.SetPolicy(made, b.Policy())
	}
	c.layers[l] = made
	return layers.With(made, args), nil
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
