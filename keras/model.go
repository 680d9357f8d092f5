package keras

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/op"
	"github.com/mezzo-ml/mezzo/backend/suggest"
	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/layers"
)

// Model is a graph of layers with inputs and outputs. Make it with NewModel or
// Sequential.
//
// Any number of goroutines may call Predict, GetWeights and SetWeights, and
// read or write files of weights, also while one goroutine trains the model:
// they see the weights between two steps. All other methods are for one
// goroutine at a time.
type Model struct {
	name    string
	named   bool           // by Named
	in, out *Tensor        // symbolic
	nodes   []*node        // in an order in which they can run
	layers  []layers.Layer // Nodes without the inputs
	members []Node
	built   bool
	prefix  string // path of the model around it

	stack      []layers.Layer // of Sequential
	keepDType  bool
	seed       *uint64
	frozen     bool
	asLayer    *modelLayer
	inNest     *Nest // nil: by default
	outNest    *Nest
	training   *training  // after Compile
	plans      int        // see KeepPlans; 0: the default
	predicting sync.Mutex // held to build the model, or the prediction program, in Predict
	prediction *tensor.Func[*Tensor, *Tensor]
}

// Sequential returns a model that applies layers one after the other (Keras:
// Sequential). It is built by Build, or by the first data.
func Sequential(ls ...layers.Layer) *Model {
	return &Model{name: "sequential", stack: slices.Clone(ls)}
}

// Add appends a layer to a Sequential model that is not built yet.
func (m *Model) Add(l layers.Layer) error {
	if m.built {
		return m.errorf("Add: the model is built; add layers before it sees data")
	}
	m.stack = append(m.stack, l)
	return nil
}

// Named sets the model's name, which Summary prints and which is part of the
// paths of its layers when the model is nested. It returns m.
func (m *Model) Named(name string) *Model {
	m.name, m.named = name, true
	return m
}

// Name returns the model's name: the one given to Named, else "functional" or
// "sequential".
func (m *Model) Name() string { return m.name }

// KeepOutputDType makes outputs keep the compute type of the layers that
// return them. By default outputs are float32 under mixed policies, so that
// losses and arithmetic on them lose no precision. It returns m.
func (m *Model) KeepOutputDType() *Model {
	m.keepDType = true
	return m
}

func (m *Model) errorf(format string, args ...any) error {
	return fmt.Errorf("model "+m.name+": "+format, args...)
}

// Build builds a Sequential model for float32 samples of the given shape,
// which has no batch axis. A model that is not built yet is built for the
// first data it gets: as float32 for floats and uint8, as the element type
// itself for other integers.
func (m *Model) Build(shape ...int) error { return m.build(Input(shape...)) }

func (m *Model) build(in *Tensor) error {
	if m.built {
		return nil
	}
	if in.Err() != nil {
		return in.Err()
	}
	if len(m.stack) == 0 {
		return m.errorf("it has no layers")
	}
	x := in
	for i, l := range m.stack {
		if l == nil {
			return m.errorf("layer %d is nil", i)
		}
		m.stack[i], _ = layers.Unwrap(l)
		if x = call(l, m.prefix, x); x.Err() != nil {
			return x.Err()
		}
	}
	if err := m.wire(in, x); err != nil {
		return err
	}
	return m.settle()
}

// settle applies settings that were made before the model had layers.
func (m *Model) settle() error {
	if m.frozen {
		m.SetTrainable(false)
	}
	if m.seed != nil {
		return m.SetSeed(*m.seed)
	}
	return nil
}

// buildFor builds the model for inputs like x, of any batch size.
func (m *Model) buildFor(x *Tensor) error {
	if m.built {
		return nil
	}
	if x.Err() != nil {
		return x.Err()
	}
	ins := make([]*Tensor, x.Len())
	for i, t := range x.Unpack() {
		if t.Rank() == 0 {
			return m.errorf("the input is the scalar %v; axis 0 counts samples", t.Type())
		}
		ins[i] = inputFor(t.DType(), t.Shape()[1:]...)
	}
	if len(ins) == 1 {
		return m.build(ins[0])
	}
	return m.build(tensor.Tuple(ins...))
}

// inputFor is the Input of a model that is built for tensors of type d: float32
// for floats and images, which are uint8, and indices are int32 or int64.
func inputFor(d DType, shape ...int) *Tensor {
	if d.IsFloat() || d == dtype.Uint8 {
		return Input(shape...)
	}
	return InputOf(d, shape...)
}

// CallOption changes how a model is called.
type CallOption func(*layers.Pass)

// Training calls a model for training: dropout drops, and batch normalization
// uses and updates the statistics of the batch.
func Training(p *layers.Pass) { p.Training = true }

// Call returns the model's outputs for x. In a Function it records the
// computation; outside, the result is computed when it is read. It panics with
// *Error if x does not fit.
func (m *Model) Call(x *Tensor, opts ...CallOption) *Tensor {
	var p layers.Pass
	for _, o := range opts {
		o(&p)
	}
	return m.call(p, x, true)
}

// call runs the layers; outer is false for a model within a model, whose
// outputs are left as they are.
func (m *Model) call(p layers.Pass, x *Tensor, outer bool) *Tensor {
	if x.Err() != nil {
		return x
	}
	if err := m.buildFor(x); err != nil {
		var e *tensor.Error
		if errors.As(err, &e) {
			panic(e)
		}
		panic(&tensor.Error{Err: err})
	}
	ins := m.in.Unpack()
	if x.Len() != len(ins) {
		panic(&tensor.Error{Err: m.errorf("it has %d inputs, got %d", len(ins), x.Len())})
	}
	at := map[*Tensor]*Tensor{}
	for i, t := range x.Unpack() {
		at[ins[i]] = m.accept(i, t, ins[i].Type())
	}
	for _, n := range m.nodes {
		y := layers.Apply(layers.With(n.layer, n.args), p, replace(n.in, at))
		for i, part := range y.Unpack() {
			at[n.out[i]] = part
		}
	}
	out := replace(m.out, at)
	if !outer || m.keepDType {
		return out
	}
	return eachPart(out, func(t *Tensor) *Tensor {
		since := tensor.SequencePoint()
		w := t.Widen()
		tensor.Label(t.Path(), since, w)
		return w
	})
}

// accept checks input i against the type that the model was built for, and casts it to
// the Input's type.
func (m *Model) accept(i int, t *Tensor, want op.Type) *Tensor {
	fits := t.Rank() == len(want.Shape)
	for k := 0; fits && k < t.Rank(); k++ {
		fits = want.Shape[k] == tensor.Unknown || t.Shape()[k] == want.Shape[k] || t.Shape()[k] == tensor.Unknown
	}
	if !fits {
		if len(want.Shape) > 0 && t.Shape().Equal(want.Shape[1:]) {
			panic(&tensor.Error{Err: m.errorf("input %d is %v, want %v; give a sample its batch axis with ExpandDims(0)", i, t.Type(), want)})
		}
		panic(&tensor.Error{Err: m.errorf("input %d is %v, want %v", i, t.Type(), want)})
	}
	return t.Cast(want.DType)
}

func replace(t *Tensor, at map[*Tensor]*Tensor) *Tensor {
	return eachPart(t, func(p *Tensor) *Tensor {
		if r := at[p]; r != nil {
			return r
		}
		return p
	})
}

func eachPart(t *Tensor, f func(*Tensor) *Tensor) *Tensor {
	if !t.IsTuple() {
		return f(t)
	}
	parts := slices.Clone(t.Unpack())
	for i, p := range parts {
		parts[i] = f(p)
	}
	return tensor.Tuple(parts...)
}

// Layers lists the model's layers in Keras's order, see Nodes; before the
// model is built, as they were given to Sequential.
func (m *Model) Layers() []layers.Layer {
	if !m.built {
		return slices.Clone(m.stack)
	}
	return slices.Clone(m.layers)
}

// GetLayer returns the layer of a name, or an error that lists the names.
func (m *Model) GetLayer(name string) (layers.Layer, error) {
	var have []string
	for _, l := range m.Layers() {
		n := layers.BaseOf(l).LayerName()
		if n == name {
			return l, nil
		}
		have = append(have, n)
	}
	return nil, m.errorf("GetLayer: no layer %q; %shave %q", name, suggest.Meant(name, have), have)
}

// collect lists the results of f for the layers, once each: a layer may also be part of
// a nested model.
func collect[T comparable](m *Model, f func(*layers.Base) []T) []T {
	var all []T
	seen := map[T]bool{}
	for _, l := range m.Layers() {
		for _, x := range f(layers.BaseOf(l)) {
			if !seen[x] {
				seen[x] = true
				all = append(all, x)
			}
		}
	}
	return all
}

// Weights lists the weights of all layers, trainable ones first (Keras's
// order).
func (m *Model) Weights() []*layers.Weight {
	return append(collect(m, (*layers.Base).TrainableWeights), collect(m, (*layers.Base).NonTrainableWeights)...)
}

// Variables returns everything that training changes in the model: weights and
// the states of random number generators. It makes a Model a Stateful.
func (m *Model) Variables() []*Variable { return collect(m, (*layers.Base).Variables) }

// TrainableVariables lists the weights that optimizers update.
func (m *Model) TrainableVariables() []*Variable {
	return variablesOf(collect(m, (*layers.Base).TrainableWeights))
}

// NonTrainableVariables returns the weights that optimizers do not update.
func (m *Model) NonTrainableVariables() []*Variable {
	return variablesOf(collect(m, (*layers.Base).NonTrainableWeights))
}

func variablesOf(ws []*layers.Weight) []*Variable {
	vs := make([]*Variable, len(ws))
	for i, w := range ws {
		vs[i] = w.Variable
	}
	return vs
}

// CountParams returns the number of elements of all weights. The model must be
// built.
func (m *Model) CountParams() int {
	n := 0
	for _, w := range m.Weights() {
		n += w.Shape().Size()
	}
	return n
}

// GetWeights returns copies of all weights in the order of Weights, in their
// variable types.
func (m *Model) GetWeights() ([]*Tensor, error) {
	if !m.built {
		return nil, m.errorf("GetWeights: %w; call it on data or Build it first", ErrNotBuilt)
	}
	ws := m.Weights()
	data, err := layers.BytesOf(ws)
	if err != nil {
		return nil, err
	}
	out := make([]*Tensor, len(ws))
	for i, w := range ws {
		out[i] = tensor.FromBytes(w.Type(), data[i])
	}
	return out, nil
}

// SetWeights assigns all weights, in the order of Weights. Shapes must agree;
// element types are converted. If a value does not fit, SetWeights returns an
// error and no weight changes.
func (m *Model) SetWeights(values []*Tensor) error {
	if !m.built {
		return m.errorf("SetWeights: %w; call it on data or Build it first", ErrNotBuilt)
	}
	ws := m.Weights()
	if len(values) != len(ws) {
		return m.errorf("SetWeights: %d tensors given, it has %d weights", len(values), len(ws))
	}
	data := make([][]byte, len(ws))
	for i, w := range ws {
		v := values[i]
		if v == nil || v.IsTuple() || !v.Shape().Equal(w.Shape()) {
			return m.errorf("SetWeights: weight %s is %v, got %v", w.Name(), w.Type(), typeText(v))
		}
		var err error
		if data[i], err = v.Cast(w.DType()).Bytes(); err != nil {
			return err
		}
	}
	return layers.SetBytesOf(ws, data)
}

// Trainable returns what SetTrainable set last; true by default (Keras:
// Model.trainable).
func (m *Model) Trainable() bool { return !m.frozen }

// SetTrainable freezes or unfreezes every layer. Call Compile again afterwards
// if the training step was already made, that is if the model was built when
// it was compiled or has trained on a batch. Until then Fit, TrainOnBatch and
// TrainStep return an error.
func (m *Model) SetTrainable(on bool) {
	m.frozen = !on
	for _, l := range m.Layers() {
		layers.BaseOf(l).SetTrainable(on)
	}
}

// SetSeed sets the seed of the initial weights and of the random numbers of
// layers such as Dropout; both depend on the seed and the layers' paths alone.
// Existing weights are initialized again. The default seed is 0, so the same
// program gives the same numbers.
func (m *Model) SetSeed(seed uint64) error {
	m.seed = &seed
	if !m.built {
		return nil
	}
	for _, l := range m.layers {
		if err := layers.SetSeed(l, seed); err != nil {
			return err
		}
	}
	return nil
}

// InputTypes lists the types of the inputs, their batch axis unknown; nil
// before the model is built.
func (m *Model) InputTypes() []op.Type { return typesOf(m.in) }

// OutputTypes lists the types of the outputs, their batch axis unknown; nil
// before the model is built.
func (m *Model) OutputTypes() []op.Type {
	ts := typesOf(m.out)
	for i := range ts {
		if !m.keepDType && ts[i].DType.Is16() {
			ts[i].DType = dtype.Float32
		}
	}
	return ts
}

// typeText describes a tensor in messages: its type without its elements.
func typeText(t *Tensor) string {
	switch {
	case t == nil:
		return "nothing"
	case !t.IsTuple():
		return t.Type().String()
	}
	parts := make([]string, t.Len())
	for i, p := range t.Unpack() {
		parts[i] = p.Type().String()
	}
	return "(" + strings.Join(parts, ", ") + ")"
}

func typesOf(t *Tensor) []op.Type {
	if t == nil {
		return nil
	}
	var out []op.Type
	for _, p := range t.Unpack() {
		out = append(out, p.Type())
	}
	return out
}

// outputNames lists the names of the layers that made the outputs.
func (m *Model) outputNames() []string {
	var out []string
	for _, t := range m.out.Unpack() {
		name := "input"
		if o := tensor.OriginOf(t).(*origin); o.node != nil {
			name = layers.BaseOf(o.node.layer).LayerName()
		}
		out = append(out, name)
	}
	return out
}

// computesIn reports whether any layer computes in d, or lets its operations.
func (m *Model) computesIn(d dtype.DType) bool {
	var any func(ls []layers.Layer) bool
	any = func(ls []layers.Layer) bool {
		return slices.ContainsFunc(ls, func(l layers.Layer) bool {
			b := layers.BaseOf(l)
			return (b.ComputeDType() == d || b.Policy().Auto == d) && !isModel(l) || any(b.Sublayers())
		})
	}
	return any(m.layers)
}
