package keras

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/layers"
)

// Input starts a functional model: a symbolic float32 tensor of the given
// sample shape, without the batch axis (Keras: Input(shape=...)).
func Input(shape ...int) *Tensor {
	t := InputOf(Float32, shape...)
	if o, ok := tensor.OriginOf(t).(*origin); ok {
		o.float32 = true
	}
	return t
}

// InputOf is Input with another element type, such as Int32 for indices. If a
// model is nested in another one, use the type of the tensor it is applied to,
// InputOf(x.DType(), …): a Clone under another policy then changes it
// accordingly.
func InputOf(dt DType, shape ...int) *Tensor {
	for _, d := range shape {
		if d < 1 && d != tensor.Unknown {
			return tensor.Broken(fmt.Errorf("Input: shape %v has an axis of size %d, want positive sizes", Shape(shape), d))
		}
	}
	t := tensor.Placeholder(dt, append([]int{tensor.Unknown}, shape...)...)
	tensor.SetOrigin(t, &origin{names: newNames()})
	return t
}

// Named gives an Input a name and returns it (Keras: Input(name="digits")):
//
//	x := keras.Named("digits", keras.Input(784))
//
// The name is in summaries and files; see [Model.InputNames]. It must differ
// from those of the layers and of other inputs.
func Named(name string, in *Tensor) *Tensor {
	if in == nil || in.Err() != nil {
		return in
	}
	o, ok := tensor.OriginOf(in).(*origin)
	if !ok || o.node != nil {
		return tensor.Broken(fmt.Errorf("Named: %q is to be the name of %v, which is not an Input", name, in.Type()))
	}
	o.name = name
	return in
}

// OutputNames lists the names of the model's outputs: those of the layers that they come
// from, as in Keras. It is nil before the model is built.
func (m *Model) OutputNames() []string {
	if m.out == nil {
		return nil
	}
	return m.outputNames()
}

// Inputs puts tensors, by the names of the model's inputs, in their order: for X of a
// Batch, FromTensors or Predict (Keras: a dict as x). All must be given.
func (m *Model) Inputs(x map[string]*Tensor) (*Tensor, error) {
	return m.inOrder("Inputs", "input", m.InputNames(), x)
}

// Targets puts tensors, by the names of the model's outputs, in their order: for Y of a
// Batch or FromTensors, or Weight (Keras: dicts as y and sample_weight). All must be
// given.
func (m *Model) Targets(y map[string]*Tensor) (*Tensor, error) {
	return m.inOrder("Targets", "output", m.OutputNames(), y)
}

func (m *Model) inOrder(method, what string, names []string, byName map[string]*Tensor) (*Tensor, error) {
	if names == nil {
		return nil, m.errorf("%s: %w; its names are not known yet", method, ErrNotBuilt)
	}
	all := make([]*Tensor, len(names))
	for i, name := range names {
		if slices.Contains(names[:i], name) {
			return nil, m.errorf("%s: several of its %ss are named %q; make a Tuple in their order", method, what, name)
		}
		if all[i] = byName[name]; all[i] == nil {
			return nil, m.errorf("%s: %s %q is missing; it has %q", method, what, name, names)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		if !slices.Contains(names, name) {
			return nil, m.errorf("%s: it has no %s %q; have %q", method, what, name, names)
		}
	}
	if len(all) == 1 {
		return all[0], nil
	}
	return tensor.Tuple(all...), nil
}

// InputNames lists the names of the model's inputs. An input that was not
// [Named] is input_layer, input_layer_1 and so on, as in Keras. It is nil before
// the model is built.
func (m *Model) InputNames() []string {
	if m.in == nil {
		return nil
	}
	taken := map[string]bool{}
	for _, l := range m.layers {
		taken[layers.BaseOf(l).LayerName()] = true
	}
	names := make([]string, m.in.Len())
	for i, t := range m.in.Unpack() {
		names[i] = tensor.OriginOf(t).(*origin).name
		taken[names[i]] = true
	}
	for i, name := range names {
		for k := 0; name == ""; k++ {
			free := "input_layer"
			if k > 0 {
				free = fmt.Sprintf("input_layer_%d", k)
			}
			if !taken[free] {
				name, taken[free] = free, true
			}
		}
		names[i] = name
	}
	return names
}

// origin is where a symbolic tensor of a model comes from.
type origin struct {
	node  *node // nil for an Input
	part  int   // which of the node's results
	names *names
	name  string // of an Input; "": none given
	// float32 says of an Input that it is float32 under every policy.
	float32 bool
}

// node is one call of a layer in a model.
type node struct {
	layer layers.Layer
	args  layers.Args
	in    *Tensor   // symbolic, or a tuple of such
	out   []*Tensor // symbolic
	tuple bool      // the layer returns a tuple
}

// names numbers the layers of the models that share inputs, as Keras does:
// dense, dense_1, …. Inputs that meet, in a layer or in NewModel, share their
// names from then on; numbered layers of the later one get new numbers where
// both had them.
type names struct {
	joined   *names // set when this was merged into another
	layers   map[string]layers.Layer
	numbered map[string]bool // names that were not given by the user
	counts   map[string]int
}

func newNames() *names {
	return &names{layers: map[string]layers.Layer{}, numbered: map[string]bool{}, counts: map[string]int{}}
}

func (n *names) root() *names {
	for n.joined != nil {
		n = n.joined
	}
	return n
}

// join merges a and b.
func (n *names) join(m *names) *names {
	a, b := n.root(), m.root()
	if a == b {
		return a
	}
	b.joined = a
	for class, c := range b.counts {
		a.counts[class] = max(a.counts[class], c)
	}
	for _, name := range slices.Sorted(maps.Keys(b.layers)) {
		l, other := b.layers[name], a.layers[name]
		switch {
		case other == nil || other == l:
			a.set(name, l, b.numbered[name])
		case b.numbered[name]:
			a.renumber(l)
		case a.numbered[name]:
			a.set(name, l, false)
			a.renumber(other)
		}
	}
	return a
}

func (n *names) set(name string, l layers.Layer, numbered bool) {
	n.layers[name] = l
	if numbered {
		n.numbered[name] = true
	} else {
		delete(n.numbered, name)
	}
}

// next is the next free name of a class.
func (n *names) next(class string) string {
	for {
		name := class
		if k := n.counts[class]; k > 0 {
			name += "_" + strconv.Itoa(k)
		}
		n.counts[class]++
		if n.layers[name] == nil {
			return name
		}
	}
}

func (n *names) renumber(l layers.Layer) {
	b := layers.BaseOf(l)
	name := n.next(snakeClass(l))
	n.set(name, l, true)
	layers.SetName(l, strings.TrimSuffix(b.Path(), b.LayerName()), name)
}

// give names a layer that has no name yet.
func (n *names) give(prefix string, l layers.Layer) {
	name := layers.BaseOf(l).LayerName()
	if name != "" {
		if n.layers[name] == nil {
			n.set(name, l, false)
		}
		return
	}
	name = l.Config().Name
	if name == "" {
		name = n.next(snakeClass(l))
		n.set(name, l, true)
	} else if n.layers[name] == nil {
		n.set(name, l, false)
	}
	layers.SetName(l, prefix, name)
}

// Apply calls layer l on x (Keras: l(x)); several tensors are passed as a
// Tuple. On an Input, or a tensor computed from one, Apply never panics: if
// the call does not fit, it returns a broken tensor and NewModel returns the
// error. On tensors with data, or in a Function, it is layers.Apply and panics
// with *Error.
func Apply(l layers.Layer, x ...*Tensor) *Tensor {
	in, err := group1(x)
	if err != nil {
		return tensor.Broken(err)
	}
	if in.Err() != nil {
		return in
	}
	if !in.Symbolic() {
		return layers.Apply(l, layers.Pass{}, in)
	}
	return call(l, "", in)
}

func group1(x []*Tensor) (t *Tensor, err error) {
	defer tensor.Catch(&err)
	if len(x) == 1 && x[0] != nil {
		return x[0], nil
	}
	if len(x) == 0 {
		return nil, fmt.Errorf("Apply: no input given")
	}
	return tensor.Tuple(x...), nil
}

// call applies a layer to symbolic tensors and cuts the result off from how it
// was computed: a model keeps layers, not recordings.
func call(l layers.Layer, prefix string, in *Tensor) *Tensor {
	var shared *names
	for _, t := range in.Unpack() {
		if o, ok := tensor.OriginOf(t).(*origin); ok {
			if shared == nil {
				shared = o.names.root()
			} else {
				shared = shared.join(o.names)
			}
		}
	}
	if shared == nil {
		shared = newNames()
	}
	l, args := layers.Unwrap(l)
	shared.give(prefix, l)
	var out *Tensor
	err := func() (err error) {
		defer tensor.Catch(&err)
		out = layers.Apply(layers.With(l, args), layers.Pass{}, in)
		return nil
	}()
	if err != nil {
		return tensor.Broken(err)
	}
	n := &node{layer: l, args: args, in: in, tuple: out.IsTuple()}
	for i, p := range out.Unpack() {
		s := tensor.Placeholder(p.DType(), p.Shape()...)
		if m := p.Mask(); m != nil { // of some type; layers make it again when the model runs
			s = s.WithMask(tensor.Placeholder(m.DType(), m.Shape()...))
		}
		tensor.SetOrigin(s, &origin{node: n, part: i, names: shared})
		n.out = append(n.out, s)
	}
	if !n.tuple {
		return n.out[0]
	}
	return tensor.Tuple(n.out...)
}

// NewModel returns the model that computes out from in (Keras: Model(inputs,
// outputs)). Either may be a Tuple. It returns the first error of the calls
// between them.
func NewModel(in, out *Tensor) (*Model, error) {
	for _, t := range []*Tensor{out, in} {
		if t == nil {
			return nil, fmt.Errorf("NewModel: an input or output is nil")
		}
		if err := t.Err(); err != nil {
			return nil, err
		}
	}
	m := &Model{name: "functional"}
	if err := m.wire(in, out); err != nil {
		return nil, err
	}
	return m, nil
}

// wire finds the calls between in and out, in an order in which they can run.
func (m *Model) wire(in, out *Tensor) error {
	m.in, m.out = in, out
	known := map[*Tensor]bool{}
	first, _ := tensor.OriginOf(in.Unpack()[0]).(*origin)
	for i, t := range in.Unpack() {
		o, ok := tensor.OriginOf(t).(*origin)
		if !ok || o.node != nil {
			return m.errorf("input %d, %v, is not an Input", i, t.Type())
		}
		first.names.join(o.names)
		known[t] = true
	}
	done := map[*node]bool{}
	var visit func(t *Tensor) error
	visit = func(t *Tensor) error {
		if known[t] || !t.Symbolic() {
			return nil
		}
		o, ok := tensor.OriginOf(t).(*origin)
		if !ok {
			return m.errorf("an output depends on %v, which operation %v made outside of a layer; a model is made of layers, such as Rescaling, Add, or one of your own", t.Type(), tensor.OpOf(t))
		}
		if o.node == nil {
			return m.errorf("an output depends on an Input of type %v that is not among the model's inputs", t.Type())
		}
		if done[o.node] {
			return nil
		}
		done[o.node] = true
		for _, a := range o.node.in.Unpack() {
			if err := visit(a); err != nil {
				return err
			}
		}
		m.nodes = append(m.nodes, o.node)
		return nil
	}
	for i, t := range out.Unpack() {
		if _, ok := tensor.OriginOf(t).(*origin); !ok && !t.Symbolic() {
			return m.errorf("output %d, %v, does not come from an Input; make it with Apply", i, t.Type())
		}
		if err := visit(t); err != nil {
			return err
		}
	}
	byName := map[string]layers.Layer{}
	for _, n := range m.nodes {
		name := layers.BaseOf(n.layer).LayerName()
		switch other, taken := byName[name]; {
		case taken && other == n.layer:
		case taken:
			return m.errorf("two layers are named %q; names in a model are unique", name)
		default:
			byName[name] = n.layer
		}
	}
	for _, t := range in.Unpack() {
		if name := tensor.OriginOf(t).(*origin).name; name != "" {
			if _, taken := byName[name]; taken {
				return m.errorf("an input is named %q as another input or a layer; names in a model are unique", name)
			}
			byName[name] = nil
		}
	}
	m.members = m.ordered()
	for _, x := range m.members {
		if x.Layer != nil {
			m.layers = append(m.layers, x.Layer)
		}
	}
	m.built = true
	return nil
}
