// Package layers has the layers of Keras: the parts that models are built of.
//
//	model := keras.Sequential(
//		&layers.Conv2D{Filters: 32, KernelSize: []int{3}, Activation: "relu"},
//		&layers.MaxPooling2D{},
//		&layers.Flatten{},
//		&layers.Dense{Units: 10},
//	)
//
// A layer is a struct. Its exported fields are the arguments of Keras's
// constructor, and the zero value of a field is Keras's default. Where Go's zero
// is another valid value the field is a pointer: UseBias: new(false). Strings
// name activations, initializers, regularizers and constraints, with arguments
// if needed: "l2(0.01)". Every layer has Name and DType, the name of its policy.
// keras.Apply calls a layer in a functional model.
//
// # The layers
//
//   - Core: [Dense], [EinsumDense], [Embedding], [ReversibleEmbedding],
//     [Masking], [Identity], [Activation].
//   - Convolution: [Conv1D], [Conv2D], [Conv3D]; [DepthwiseConv1D],
//     [DepthwiseConv2D]; [SeparableConv1D], [SeparableConv2D];
//     [Conv1DTranspose], [Conv2DTranspose], [Conv3DTranspose].
//   - Pooling: Max, Average, GlobalMax, GlobalAverage, AdaptiveMax and
//     AdaptiveAverage Pooling in 1, 2 and 3 dimensions, such as [MaxPooling2D].
//   - Recurrent: [SimpleRNN], [LSTM], [GRU], [ConvLSTM2D] and its relatives;
//     [RNN] of a [Cell]; [Bidirectional], [TimeDistributed].
//   - Attention: [MultiHeadAttention], [GroupQueryAttention], [Attention],
//     [AdditiveAttention].
//   - Normalization: [BatchNormalization], [LayerNormalization],
//     [GroupNormalization], [RMSNormalization], [UnitNormalization],
//     [SpectralNormalization].
//   - Regularization: [Dropout], [SpatialDropout2D], [AlphaDropout],
//     [GaussianDropout], [GaussianNoise], [ActivityRegularization].
//   - Activations: [ReLU], [LeakyReLU], [PReLU], [ELU], [Softmax].
//   - Shapes: [Flatten], [Reshape], [Permute], [RepeatVector],
//     [ZeroPadding2D], [Cropping2D], [UpSampling2D] and their relatives.
//   - Merging: [Add], [Subtract], [Multiply], [Average], [Maximum], [Minimum],
//     [Concatenate], [Dot].
//
// Package layers/preprocessing has the layers that prepare data, from
// Normalization to TextVectorization and RandomFlip.
//
// # Your own layers
//
// A type of any package becomes a [Layer] by embedding [Base] and writing
// Config, Build and Call; docs/add-an-op.md has an example.
//
//   - [Apply] calls layers within layers. It is the only place that casts: Call
//     gets floats in the policy's compute type, and Weight.Value is in it, too.
//   - A layer resolves its policy once, when it is built.
//   - Build checks the fields and returns what is wrong with them; Call may
//     rely on them.
//   - A [MaskRule] declares how a layer treats masks; Apply follows it.
package layers

import (
	"fmt"
	"hash/fnv"
	"reflect"
	"slices"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/layers/callspec"
	"github.com/mezzo-ml/mezzo/layers/internal/support"
	"github.com/mezzo-ml/mezzo/layers/regularizers"
	"github.com/mezzo-ml/mezzo/policy"
)

// Shape lists the sizes of the axes of an input, the batch first; it is
// tensor.Unknown (-1) while a model is built.
type Shape = tensor.Shape

// Layer is what models are built of. Types outside this package implement it
// by embedding Base.
type Layer interface {
	// Config returns the fields Name and DType: one line per layer.
	Config() Config
	// Build checks the layer's fields and makes its weights for inputs of the
	// given shapes, one for each tensor of a tuple. It runs once.
	Build(in ...Shape) error
	// Call computes the layer on x, a tuple where it has several inputs.
	// Floats in x have the compute type.
	Call(p Pass, x *tensor.Tensor) *tensor.Tensor

	base() *Base
}

// Config has the settings of every layer.
type Config struct {
	Name  string // unique in a model; default: the class in snake_case, numbered
	DType string // name of a policy or float type; default: the global policy when the layer is built
}

// InputChecker is a Layer that checks the shapes of inputs after it is built.
// A layer with weights and without this method accepts the shapes it was built
// for, with any batch size; one without weights accepts any shape.
type InputChecker interface {
	CheckInput(in ...Shape) error
}

// LabelMixer is a layer that takes images, or a tuple of images and labels, and
// returns the like.
type LabelMixer interface {
	Layer
	MixesLabels()
}

// Pass describes one call of a layer.
type Pass struct {
	Training bool              // Keras's argument of that name
	Args                       // of this call, see With
	losses   *[]*tensor.Tensor // see AddLoss
}

// Collect returns a copy of p with which layers append the losses they add to
// into.
func (p Pass) Collect(into *[]*tensor.Tensor) Pass {
	p.losses = into
	return p
}

// AddLoss adds loss, a float32 scalar, to the loss of the model.
func (p Pass) AddLoss(loss *tensor.Tensor) {
	if p.losses != nil && !loss.Symbolic() {
		*p.losses = append(*p.losses, loss.Widen())
	}
}

// Base is the part that all layers share. A layer embeds it.
type Base struct {
	name       string // in its model
	prefix     string // path of the model or layer it is part of, with "/"
	policy     policy.Policy
	general    *policy.Policy // see SetPolicy
	byPath     policy.Map     // see SetPolicyMap
	byForce    bool           // byPath has precedence over fields DType
	mapped     bool           // part of a layer, with a policy of its own from a map
	follows    bool           // it was built with what the policy package had for its path
	named      bool           // its policy is its own: of its field DType, or of a map
	built      bool
	frozen     bool
	uncast     bool // see SetAutocast
	remat      bool // see Remat
	seed       uint64
	inputs     []Shape       // it was built for
	types      []dtype.DType // of the inputs that it is built for
	weights    []*Weight
	states     []*tensor.Variable // of random numbers
	memory     []*tensor.Variable // see AddState
	sublayers  []Layer
	owner      *Base // of a sublayer
	activityOf regularizers.Regularizer
	observe    func(x *tensor.Tensor) // see Observe
	float8     *float8                // of Dense and EinsumDense; nil: not their policy
}

func (b *Base) base() *Base { return b }

// LayerName returns the layer's name in its model, "" before the first Apply.
func (b *Base) LayerName() string { return b.name }

// Path returns the layer's name after the names of the models and layers that
// contain it, such as "encoder/dense_1".
func (b *Base) Path() string { return b.prefix + b.name }

// Policy returns the policy that the layer was built with.
func (b *Base) Policy() policy.Policy { return b.policy }

// ComputeDType returns the element type that the layer computes in.
func (b *Base) ComputeDType() dtype.DType { return b.policy.Compute }

// Built reports whether the layer has its weights.
func (b *Base) Built() bool { return b.built }

// InputDTypes returns the element types of the inputs that the layer is built
// for; nil if they are unknown. It may be called in Build.
func (b *Base) InputDTypes() []dtype.DType { return b.types }

// InputShapes returns the shapes of the inputs that the layer was built for.
func (b *Base) InputShapes() []Shape { return b.inputs }

// SetAutocast sets whether Apply casts float inputs to the compute type; true
// by default. Call it in Build. Normalization layers turn it off, so that
// their statistics are of the unrounded input.
func (b *Base) SetAutocast(on bool) { b.uncast = !on }

// Remat returns l, which from now on keeps its input only from the forward to
// the backward pass of training, and computes the rest again there (gradient
// checkpointing; Keras: remat). Training takes the time of another forward pass
// through l, and gives the same numbers to the bit. For a model use
// Remat(model.Layer()). A Remat within another has no further effect.
func Remat(l Layer) Layer {
	l.base().remat = true
	return l
}

// SetActivityRegularizer adds a penalty on the layer's output, divided by the
// batch size, to the model's loss (Keras: activity_regularizer). Call it in
// Build.
func (b *Base) SetActivityRegularizer(spec string) (err error) {
	if b.activityOf, err = regularizers.Get(spec); err != nil {
		return fmt.Errorf("ActivityRegularizer: %w", err)
	}
	return nil
}

// Weights returns the layer's weights in Keras's order: trainable ones first,
// each group in the order in which they were made.
func (b *Base) Weights() []*Weight {
	return append(b.collect(true), b.collect(false)...)
}

// TrainableWeights returns the weights that optimizers update.
func (b *Base) TrainableWeights() []*Weight { return b.collect(true) }

// NonTrainableWeights returns the weights that optimizers do not update.
func (b *Base) NonTrainableWeights() []*Weight { return b.collect(false) }

func (b *Base) collect(trainable bool) []*Weight {
	var all []*Weight
	for _, w := range b.weights {
		if w.Trainable() == trainable {
			all = append(all, w)
		}
	}
	for _, s := range b.sublayers {
		all = append(all, s.base().collect(trainable)...)
	}
	return all
}

// Variables returns all variables that calls or training of the layer change:
// its weights, and the variables of AddState and AddRandomState.
func (b *Base) Variables() []*tensor.Variable {
	var all []*tensor.Variable
	for _, w := range b.Weights() {
		all = append(all, w.Variable)
	}
	return append(append(all, b.remembered()...), b.RandomStates()...)
}

func (b *Base) remembered() []*tensor.Variable {
	all := slices.Clone(b.memory)
	for _, s := range b.sublayers {
		all = append(all, s.base().remembered()...)
	}
	return all
}

// RandomStates returns the states of the layer's random numbers.
func (b *Base) RandomStates() []*tensor.Variable {
	all := slices.Clone(b.states)
	for _, s := range b.sublayers {
		all = append(all, s.base().RandomStates()...)
	}
	return all
}

// Trainable returns what SetTrainable set last; true by default (Keras:
// Layer.trainable).
func (b *Base) Trainable() bool { return !b.frozen }

// SetTrainable freezes or unfreezes the layer. Compile its model again
// afterwards if the training step was already made, that is if the model was
// built when it was compiled or has trained on a batch. Until then Fit,
// TrainOnBatch and TrainStep return an error.
func (b *Base) SetTrainable(on bool) {
	b.frozen = !on
	for _, w := range b.weights {
		w.SetTrainable(on && w.wanted)
	}
	for _, s := range b.sublayers {
		s.base().SetTrainable(on)
	}
}

// AddLayer makes l part of this layer: Weights and RandomStates of this layer
// include l's, l's path starts with this layer's, and l has this layer's
// policy unless it names its own. Call it in Build; call Apply on l in Call.
// name is l's name unless its Config has one.
func (b *Base) AddLayer(name string, l Layer) {
	s := l.base()
	s.name = name
	if n := l.Config().Name; n != "" {
		s.name = n
	}
	s.owner = b
	b.sublayers = append(b.sublayers, l)
	s.rename(b.Path()+"/", s.name)
	if b.frozen {
		s.SetTrainable(false)
	}
}

// AddBuilt adds a layer as AddLayer does and builds it at once, for inputs of
// the given shapes and of the types that Call gets. Use it if Build needs l's
// weights.
func (b *Base) AddBuilt(name string, l Layer, in ...Shape) error {
	b.AddLayer(name, l)
	types := slices.Clone(b.types)
	for i, d := range types {
		if d.IsFloat() && !b.uncast {
			types[i] = b.policy.Compute
		}
	}
	l.base().types = types
	return l.base().buildAs(l, in)
}

// buildAs builds l, whose base is b, or checks that inputs match the ones it was built
// for.
func (b *Base) buildAs(l Layer, in []Shape) error {
	s := b
	var err error
	if s.built {
		err = s.checkInput(l, in)
	} else {
		err = s.build(l, in)
	}
	if err != nil {
		return &tensor.Error{Path: s.Path(), Op: "Build", Err: err}
	}
	return nil
}

// Sublayers returns the layers that AddLayer added.
func (b *Base) Sublayers() []Layer { return slices.Clone(b.sublayers) }

func (b *Base) rename(prefix, name string) {
	b.prefix, b.name = prefix, name
	for _, w := range b.weights {
		w.SetName(b.Path() + "/" + w.local)
	}
	for i, s := range b.states {
		s.SetName(fmt.Sprintf("%s/seed_generator_%d", b.Path(), i))
	}
	for i, s := range b.memory {
		s.SetName(fmt.Sprintf("%s/state_%d", b.Path(), i))
	}
	for _, s := range b.sublayers {
		s.base().rename(b.Path()+"/", s.base().name)
	}
}

// setSeed makes the first values of the weights and random states functions of
// seed and their paths, and draws those again that exist.
func (b *Base) setSeed(seed uint64) error {
	b.seed = seed
	for _, v := range b.states {
		if err := v.Reset(); err != nil {
			return err
		}
	}
	for _, w := range b.weights {
		if err := w.Reset(); err != nil {
			return err
		}
	}
	for _, s := range b.sublayers {
		if err := s.base().setSeed(seed); err != nil {
			return err
		}
	}
	return nil
}

// key is the seed of one weight or random state: different for each path.
func (b *Base) key(local string) uint64 {
	h := fnv.New64a()
	fmt.Fprintf(h, "%d/%s/%s", b.seed, b.Path(), local)
	return h.Sum64()
}

// SetName gives a name to a layer that has none. A Name in the layer's Config
// has precedence. Models call SetName before anything that can fail.
func SetName(l Layer, prefix, name string) {
	if n := l.Config().Name; n != "" {
		name = n
	}
	l.base().rename(prefix, name)
}

// ClearName removes the name of a layer that was called outside a model, so
// that the model to which it is added names it.
func ClearName(l Layer) { l.base().rename(l.base().prefix, "") }

// SetSeed makes the initial weights and the random states of the layer
// functions of seed and their paths. Existing weights are initialized again.
func SetSeed(l Layer, seed uint64) error { return l.base().setSeed(seed) }

// BaseOf returns the Base of a layer.
func BaseOf(l Layer) *Base { return l.base() }

// Class returns the name of the layer's type, such as "BatchNormalization".
func Class(l Layer) string {
	l, _ = Unwrap(l)
	return reflect.Indirect(reflect.ValueOf(l)).Type().Name()
}

// SnakeClass returns the class as Keras writes it in the names of layers, such
// as "batch_normalization".
func SnakeClass(l Layer) string { return callspec.SnakeCase(Class(l)) }

// Apply calls layer l on x, as Keras's __call__ does. On the first call it
// builds the layer. It casts float inputs to the layer's compute type (never
// integers and bools), calls the layer, attaches the mask that the layer's
// MaskRule gives, and labels the recorded operations with the layer's path. It
// panics with *tensor.Error if something does not fit or a batch is empty.
func Apply(l Layer, p Pass, x *tensor.Tensor) *tensor.Tensor {
	if x.Err() != nil {
		return x
	}
	l, p.Args = Unwrap(l) // the arguments of an outer layer do not apply to it
	b := l.base()
	if b.name == "" {
		SetName(l, b.prefix, SnakeClass(l))
	}
	defer b.locate()
	p.Args.check(l)
	if p.Mask != 0 {
		x = p.Mask.masked(x)
	}
	shapes := make([]Shape, x.Len())
	for i, t := range x.Unpack() {
		if shapes[i] = t.Shape(); len(shapes[i]) > 0 && shapes[i][0] == 0 {
			panic(&tensor.Error{Op: "Call", Err: fmt.Errorf("input %d is %v, want a batch of at least one sample", i, t.Type())})
		}
	}
	if !b.built {
		b.types = nil
		for _, t := range x.Unpack() {
			b.types = append(b.types, t.DType())
		}
		if err := b.build(l, shapes); err != nil {
			panic(&tensor.Error{Op: "Build", Err: err})
		}
	} else if err := b.checkInput(l, shapes); err != nil {
		panic(&tensor.Error{Op: "Call", Err: err})
	}
	since := tensor.SequencePoint()
	call := func() *tensor.Tensor {
		if !b.uncast {
			x = support.CastFloats(x, b.policy.Compute)
		}
		if b.observe != nil {
			b.observe(x)
		}
		return b.autocast(func() *tensor.Tensor { return l.Call(p, x) })
	}
	var y *tensor.Tensor
	if b.remat && p.Training {
		y = tensor.Remat(call)
	} else {
		y = call()
	}
	if b.mapped && (y.IsTuple() || y.DType() == b.policy.Compute) { // the layer around it knows nothing of the map
		y = support.CastFloats(y, b.owner.policy.Compute)
	}
	y = maskResult(l, x, y)
	if b.activityOf != nil {
		b.penalize(p, y)
	}
	label(b.Path(), since, y)
	return y
}

// autocast runs call under tensor.Autocast if the layer's policy is automatic. A layer
// that names a policy of its own computes in that, whatever is around it.
func (b *Base) autocast(call func() *tensor.Tensor) (y *tensor.Tensor) {
	d := b.policy.Auto
	if d == dtype.Invalid {
		if !b.named {
			return call()
		}
		d = dtype.Float32
	}
	tensor.Autocast(d, func() { y = call() })
	return y
}

// locate adds the layer's path to an error on its way out.
func (b *Base) locate() {
	r := recover()
	if r == nil {
		return
	}
	if e, ok := r.(*tensor.Error); ok && e.Path == "" {
		e.Path = b.Path()
	}
	panic(r)
}

func (b *Base) build(l Layer, in []Shape) error {
	if err := b.resolve(l.Config().DType); err != nil {
		return err
	}
	if err := checkIntegers(l); err != nil {
		return err
	}
	if err := l.Build(in...); err != nil {
		return err
	}
	for _, s := range in {
		b.inputs = append(b.inputs, s.Clone())
	}
	b.built = true
	return nil
}

// resolve sets the policy of a layer whose field DType is name: from the field, the
// map, the outer layer, or else the global policy. For a layer within one whose policy
// comes from a map, it returns the outer layer's compute type.
func (b *Base) resolve(name string) error {
	byPath, force := b.policyMap()
	// A layer in another one is looked up by its own path. The outer layer's path is no
	// key for it, as it has that layer's policy anyway.
	find, global := byPath.For, policy.GlobalMap
	if b.owner != nil {
		find, global = byPath.At, policy.GlobalMapAt
	}
	if byPath == nil {
		find = global
	}
	p, found, err := find(b.Path())
	switch {
	case err != nil:
		return err
	case name != "" && !(found && force):
		p, err = policy.Parse(name)
	case found:
	case b.owner != nil:
		p = b.owner.policy
	case b.general != nil:
		p = *b.general
	default:
		p = policy.Global()
	}
	b.policy, b.mapped, b.named = p, found && b.owner != nil, name != "" || found
	b.follows = name == "" && b.owner == nil && b.general == nil && byPath == nil
	return err
}

// policyMap returns the map that SetPolicyMap has set for the layer or an outer layer.
func (b *Base) policyMap() (byPath policy.Map, force bool) {
	for at := b; at != nil; at = at.owner {
		if at.byPath != nil {
			return at.byPath, at.byForce
		}
	}
	return nil, false
}

func (b *Base) checkInput(l Layer, in []Shape) error {
	if c, ok := l.(InputChecker); ok {
		return c.CheckInput(in...)
	}
	same := len(in) == len(b.inputs)
	if len(b.weights) == 0 && same {
		return nil
	}
	for i := 0; same && i < len(in); i++ {
		a, c := in[i], b.inputs[i]
		same = len(a) == len(c)
		for j := 1; same && j < len(a); j++ {
			same = a[j] == c[j] || a[j] == tensor.Unknown || c[j] == tensor.Unknown
		}
	}
	if !same {
		return fmt.Errorf("it was built for input %v and is now given %v; use another layer, or inputs of one shape", b.inputs, in)
	}
	return nil
}

func (b *Base) penalize(p Pass, y *tensor.Tensor) {
	for _, t := range y.Unpack() {
		if !t.Symbolic() && t.Rank() > 0 {
			p.AddLoss(b.activityOf(t.Cast(dtype.Promote(t.DType(), dtype.Float32))).DivScalar(float64(t.Dim(0))))
		}
	}
}
