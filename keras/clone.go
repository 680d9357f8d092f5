package keras

import (
	"fmt"

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
	return m.clone("Clone", policyName, cloning{})
}

// CloneUnder returns a model with the same layers and the same weights under other
// policies: the layers with a key in byPath have that policy, the others policyName,
// or with "" the policy they were built with. Layers whose field DType names a
// policy keep that, unless force is set and byPath has a key for them. The map of
// policy.SetGlobalMap is not read, unless byPath is nil. The copy is not compiled: see
// CompileConfig.
//
// Weights, moving statistics and states of random numbers are copied by their names
// and converted to the type that the copy stores them in. The model must be built.
func (m *Model) CloneUnder(policyName string, byPath policy.Map, force bool) (*Model, error) {
	if err := byPath.Check(); err != nil {
		return nil, m.errorf("CloneUnder: %w", err)
	}
	if !m.built {
		return nil, m.errorf("CloneUnder: the model is not built; call it on data, or build it with Input")
	}
	to, err := m.clone("CloneUnder", policyName, cloning{byPath: byPath, force: force})
	if err != nil {
		return nil, err
	}
	if err := copyVariables(to.Variables(), m.Variables()); err != nil {
		return nil, m.errorf("CloneUnder: %w", err)
	}
	return to, nil
}

// copyVariables sets each variable of to to the value of the one in from with its
// name, and of those with one name the first to the first. Those without a namesake
// stay, such as the scales that layers have under 8-bit policies.
func copyVariables(to, from []*Variable) error {
	named := map[string][]*Variable{}
	for _, v := range from {
		named[v.Name()] = append(named[v.Name()], v)
	}
	for _, v := range to {
		all := named[v.Name()]
		if len(all) == 0 {
			continue
		}
		named[v.Name()] = all[1:]
		if err := copyVariable(v, all[0]); err != nil {
			return err
		}
	}
	return nil
}

func copyVariable(to, from *Variable) error {
	switch {
	case to.Type().Equal(from.Type()):
		b, err := from.Bytes()
		if err != nil {
			return err
		}
		return to.SetBytes(b)
	case to.Shape().Equal(from.Shape()) && to.DType().IsFloat() && from.DType().IsFloat():
		x, err := from.Float64s()
		if err != nil {
			return err
		}
		return to.Set(x)
	}
	return fmt.Errorf("%s is %v and %v in the copy", from.Name(), from.Type(), to.Type())
}

// clone is Clone for the method of that name.
func (m *Model) clone(method, policyName string, c cloning) (*Model, error) {
	c.layers = map[layers.Layer]layers.Layer{}
	if policyName != "" {
		p, err := policy.Parse(policyName)
		if err != nil {
			return nil, m.errorf("%s: %w", method, err)
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
	policy *policy.Policy // nil: each layer's own
	byPath policy.Map     // see layers.SetPolicyMap
	force  bool
	layers map[layers.Layer]layers.Layer
}

// blank is a model like m without layers.
func blank(m *Model) *Model {
	return &Model{name: m.name, named: m.named, prefix: m.prefix, keepDType: m.keepDType, seed: m.seed, frozen: m.frozen, inNest: m.inNest, outNest: m.outNest}
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
			d = is[i] // it has the type of the model's input
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
	layers.SetPolicyMap(c.layers[old], quantizedWithin(old, c.byPath), c.force)
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
