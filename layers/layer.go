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

// Config is what every layer can be given.
type Config struct {
	Name  string // unique in a model; default: the class in snake_case, numbered
	DType string // name of a policy or float type; default: the global policy when the layer is built
}

// InputChecker is a Layer that knows which shapes fit it once it is built.
// Without it, a layer with weights takes the shapes it was built for, whatever
// the batch, and one without weights takes any.
type InputChecker interface {
	CheckInput(in ...Shape) error
}

// LabelMixer is a layer that takes images, or a tuple of images and labels, and
// returns the like.
type LabelMixer interface {
	Layer
	MixesLabels()
}

// Pass tells a layer what it is called for.
type Pass struct {
	Training bool              // Keras's argument of that name
	Args                       // of this call, see With
	losses   *[]*tensor.Tensor // see AddLoss
}

// Collect returns a pass that collects the losses that layers add into into.
func (p Pass) Collect(into *[]*tensor.Tensor) Pass {
	p.losses = into
	return p
}

// AddLoss adds a float32 scalar to the loss that the model is trained on.
func (p Pass) AddLoss(loss *tensor.Tensor) {
	if p.losses != nil && !loss.Symbolic() {
		*p.losses = append(*p.losses, loss.Widen())
	}
}

// Base is the part all layers share. Embed it.
type Base struct {
	name       string // in its model
	prefix     string // path of the model or layer it is part of, with "/"
	policy     policy.Policy
	general    *policy.Policy // see SetPolicy
	follows    bool           // it was built with what the policy package had for its path
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
}

func (b *Base) base() *Base { return b }

// LayerName is the layer's name in its model, "" before the first Apply.
func (b *Base) LayerName() string { return b.name }

// Path is the name with those of the models around it: "encoder/dense_1".
func (b *Base) Path() string { return b.prefix + b.name }

// Policy is the policy that the layer was built with.
func (b *Base) Policy() policy.Policy { return b.policy }

// ComputeDType is the element type the layer computes in.
func (b *Base) ComputeDType() dtype.DType { return b.policy.Compute }

// Built reports whether the layer has its weights.
func (b *Base) Built() bool { return b.built }

// InputDTypes lists, in Build and after it, the element types of the inputs that
// the layer is built for; it is empty where they are not known.
func (b *Base) InputDTypes() []dtype.DType { return b.types }

// InputShapes lists the shapes of the inputs that the layer was built for.
func (b *Base) InputShapes() []Shape { return b.inputs }

// SetAutocast says whether Apply casts float inputs to the compute type; call
// it in Build. Normalization layers turn it off to see their input unrounded.
func (b *Base) SetAutocast(on bool) { b.uncast = !on }

// Remat returns l, which from now on keeps its input only from the forward to
// the backward pass of training, and computes the rest again there (gradient
// checkpointing; Keras: remat). Training takes the time of another forward pass
// through l, and gives the same numbers to the bit. For a model use
// Remat(model.Layer()). A Remat within another does nothing of its own.
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

// Weights lists the layer's weights, trainable ones first, each group in the
// order they were made: Keras's order.
func (b *Base) Weights() []*Weight {
	return append(b.collect(true), b.collect(false)...)
}

// TrainableWeights lists the weights that optimizers update.
func (b *Base) TrainableWeights() []*Weight { return b.collect(true) }

// NonTrainableWeights lists the weights that optimizers leave alone.
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

// Variables lists everything that calls of the layer change: the weights, what
// AddState made, and the states of its random numbers.
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

// RandomStates lists the states of the layer's random numbers.
func (b *Base) RandomStates() []*tensor.Variable {
	all := slices.Clone(b.states)
	for _, s := range b.sublayers {
		all = append(all, s.base().RandomStates()...)
	}
	return all
}

// Trainable is Keras's attribute: true unless SetTrainable(false).
func (b *Base) Trainable() bool { return !b.frozen }

// SetTrainable freezes or unfreezes the layer. Where the model was compiled
// after it was built, or has had a batch, compile it again: until then its Fit,
// TrainOnBatch and TrainStep are errors.
func (b *Base) SetTrainable(on bool) {
	b.frozen = !on
	for _, w := range b.weights {
		w.SetTrainable(on && w.wanted)
	}
	for _, s := range b.sublayers {
		s.base().SetTrainable(on)
	}
}

// AddLayer makes l part of this layer: its weights and random states are this
// layer's too, its path starts with this layer's, and it has this layer's
// policy unless it names its own. Call it in Build, then use Apply on l in
// Call. name is l's name unless its Config has one.
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

// AddBuilt is AddLayer for a layer whose weights are needed at once: it builds
// l for inputs of the given shapes, and of the types that Call gets.
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

// buildAs builds l, whose base b is, or checks that inputs fit what it was
// built for.
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

// Sublayers lists what AddLayer added.
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

// SetName names a layer that has none yet; an explicit Name in its Config
// wins. Models call it before anything in the layer can fail.
func SetName(l Layer, prefix, name string) {
	if n := l.Config().Name; n != "" {
		name = n
	}
	l.base().rename(prefix, name)
}

// ClearName takes back the name of a layer that was called outside a model, so
// that the model it becomes part of names it.
func ClearName(l Layer) { l.base().rename(l.base().prefix, "") }

// SetSeed makes the first values of the layer's weights and the states of its
// random numbers functions of seed and their paths, drawing those again that
// exist already.
func SetSeed(l Layer, seed uint64) error { return l.base().setSeed(seed) }

// BaseOf returns the part of a layer that all layers share.
func BaseOf(l Layer) *Base { return l.base() }

// Class is the name of the layer's type: "BatchNormalization".
func Class(l Layer) string {
	l, _ = Unwrap(l)
	return reflect.Indirect(reflect.ValueOf(l)).Type().Name()
}

// SnakeClass is the class as Keras numbers layers: "batch_normalization".
func SnakeClass(l Layer) string { return callspec.SnakeCase(Class(l)) }

// Apply calls layer l on x: Keras's __call__. It builds the layer at its first
// call, casts float inputs to the layer's compute type, calls it, and labels
// what it recorded with the layer's path. It panics with *tensor.Error when
// something does not fit, or when a batch is empty. Integers and bools are
// never cast. Inputs keep their masks; the result has the mask that the layer's MaskRule says.
func Apply(l Layer, p Pass, x *tensor.Tensor) *tensor.Tensor {
	if x.Err() != nil {
		return x
	}
	l, p.Args = Unwrap(l) // those of a layer around it are not its own
	b := l.base()
	if b.name == "" {
		SetName(l, b.prefix, SnakeClass(l))
	}
	defer b.locate()
	p.Args.check(l)
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
	since := tensor.Mark()
	call := func() *tensor.Tensor {
		if !b.uncast {
			x = support.CastFloats(x, b.policy.Compute)
		}
		return l.Call(p, x)
	}
	var y *tensor.Tensor
	if b.remat && p.Training {
		y = tensor.Remat(call)
	} else {
		y = call()
	}
	y = maskResult(l, x, y)
	if b.activityOf != nil {
		b.penalize(p, y)
	}
	label(b.Path(), since, y)
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
	name := l.Config().DType
	if name == "" && b.owner != nil {
		b.policy = b.owner.policy
	} else {
		general := policy.Global()
		if b.general != nil {
			general = *b.general
		}
		p, err := policy.Under(general, b.Path(), name)
		if err != nil {
			return err
		}
		b.policy, b.follows = p, name == "" && b.general == nil
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
