package keras

import (
	"cmp"

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
	return c.model(m, nil, nil)
}

// cloning is one call of Clone: a layer that is used twice is cloned once.
type cloning struct {
	policy *policy.Policy // nil: that of each layer
	layers map[layers.Layer]layers.Layer
}

// model clones m. A model within a model is applied to was, and its clone to
// is; both are nil for others, and where that is not known.
func (c cloning) model(m *Model, was, is *Tensor) (*Model, error) {
	to := &Model{name: m.name, named: m.named, prefix: m.prefix, keepDType: m.keepDType, seed: m.seed, frozen: m.frozen}
	if !m.built {
		return to, c.stack(m, to)
	}
	at := map[*Tensor]*Tensor{}
	i := -1
	in := eachPart(m.in, func(t *Tensor) *Tensor {
		i++
		d := t.DType()
		if o, ok := t.Origin().(*origin); ok && !o.float32 && was != nil && was.Len() == m.in.Len() && was.Parts()[i].DType() == d {
			d = is.Parts()[i].DType() // it has the type of what the model is applied to
		}
		at[t] = InputOf(d, t.Shape()[1:]...)
		at[t].Origin().(*origin).float32 = t.Origin().(*origin).float32
		return at[t]
	})
	for _, n := range m.nodes {
		x := replace(n.in, at)
		l, err := c.layer(n.layer, n.in, x)
		if err != nil {
			return nil, err
		}
		y := call(layers.With(l, n.args), to.prefix, x)
		if y.Err() != nil {
			return nil, y.Err()
		}
		for i, t := range y.Parts() {
			at[n.out[i]] = t
		}
	}
	if err := c.stack(m, to); err != nil {
		return nil, err
	}
	if err := to.wire(in, replace(m.out, at)); err != nil {
		return nil, err
	}
	if m.seed != nil {
		return to, to.SetSeed(*m.seed)
	}
	return to, nil
}

// stack clones the layers that m was given as a Sequential.
func (c cloning) stack(m, to *Model) error {
	for _, l := range m.stack {
		s, err := c.layer(l, nil, nil)
		if err != nil {
			return err
		}
		to.stack = append(to.stack, s)
	}
	return nil
}

// layer clones l, which is applied to was, and its clone to is; see model.
func (c cloning) layer(l layers.Layer, was, is *Tensor) (layers.Layer, error) {
	l, args := layers.Unwrap(l)
	if made := c.layers[l]; made != nil {
		return layers.With(made, args), nil
	}
	var made layers.Layer
	if inner, ok := l.(*modelLayer); ok {
		m, err := c.model(inner.model, was, is)
		if err != nil {
			return nil, err
		}
		made = m.Layer()
		layers.TakeAfter(made, l)
	} else {
		var err error
		if made, err = c.wrapper(l); err != nil {
			return nil, err
		}
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

// wrapper clones a layer that may have models in its fields.
func (c cloning) wrapper(l layers.Layer) (made layers.Layer, err error) {
	var inner func(l layers.Layer) layers.Layer
	inner = func(l layers.Layer) layers.Layer {
		if !isModel(l) {
			return layers.CloneWith(l, inner)
		}
		m, e := c.layer(l, nil, nil)
		err = cmp.Or(err, e)
		return m
	}
	made = layers.CloneWith(l, inner)
	return made, err
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
