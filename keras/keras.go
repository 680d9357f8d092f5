// Package keras builds, trains and runs models the way Keras does, in mixed
// precision when the policy says so:
//
//	policy.SetGlobal("mixed_float16")
//	model := keras.Sequential(
//		&layers.Dense{Units: 64, Activation: "relu"},
//		&layers.Dense{Units: 10, Activation: "softmax"},
//	)
//	err := model.Compile(keras.CompileConfig{Loss: &losses.SparseCategoricalCrossentropy{}})
//	history, err := model.Fit(ctx, train, keras.FitConfig{Epochs: 5})
//
// # Models
//
// [Sequential] stacks layers. A functional model starts at [Input], calls layers
// with [Apply] and ends at [NewModel]:
//
//	x := keras.Input(784)
//	y := keras.Apply(&layers.Dense{Units: 10, Activation: "softmax"}, x)
//	model, err := keras.NewModel(x, y)
//
// Building keeps errors. A layer that does not fit breaks the tensor it
// returns, and NewModel reports the error. Several inputs or outputs are one
// [Tuple]. [Model.Layer] nests a model in another one.
//
// # Training
//
// [Model.Compile] sets optimizer, loss and metrics. [Model.Fit] trains on a
// [Dataset], [Model.Evaluate] computes loss and metrics, [Model.Predict]
// computes outputs. A [Callback] adds to Fit; package keras/callbacks has
// Keras's. FitConfig.Checkpoint saves and resumes a training, and package
// keras/saving reads and writes Keras's files.
//
// A training step is a transaction. When it fails, or its context ends, every
// variable keeps the value of the last finished step. Model outputs are float32
// under mixed policies (see [Model.KeepOutputDType]); losses and metrics work in
// float32 or better.
//
// # Data
//
// A [Dataset] yields a [Batch] at a time and opens again for each epoch.
// [FromTensors] makes one of tensors in memory, [FromGenerator] of a Go
// function. Package keras/data reads files.
//
// # Tensors and custom loops
//
// [NewTensor] makes a [Tensor] of a slice. Its methods, and the functions of
// package keras/ops, record operations. Outside a Function a tensor is computed
// when it is read or printed. [Function] compiles a Go function of tensors, and
// [Gradients] differentiates; a custom training step has the lines of Fit's:
//
//	step := keras.Function(func(b keras.Batch) *keras.Tensor {
//		loss := lossObject.Call(b.Y, model.Call(b.X, keras.Training))
//		optimizer.ApplyGradients(keras.Gradients(loss, model.TrainableVariables()), model.TrainableVariables())
//		return loss
//	}, model, optimizer)
//
// # Looking inside
//
// [Model.Summary] prints the layers, [Model.Lint] finds what costs time or
// precision, [Model.PlanMemory] returns the memory of a step, [Model.Explain]
// prints the ranges of weights, activations and gradients, [Model.Trace] writes
// a timeline.
//
// # For packages that save and load
//
// [Graph], [GraphCall], [GraphRef], [Node], [State], [Array] and their functions
// describe models and trainings to packages such as keras/saving and
// keras/checkpoint.
package keras

import (
	"slices"

	"github.com/mezzo-ml/mezzo/backend"
	_ "github.com/mezzo-ml/mezzo/backend/cpu" // every program can run on the processor
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/tensor"
)

// Names that scripts need from the packages below, so that they import keras,
// layers, policy and little else.
type (
	// Tensor is an array of one element type.
	Tensor = tensor.Tensor
	// Variable is a named tensor that Functions can assign: a weight, an
	// optimizer's slot, a metric's total.
	Variable = tensor.Variable
	// Shape lists the sizes of the axes of a tensor.
	Shape = tensor.Shape
	// DType is an element type.
	DType = dtype.DType
	// Stateful is an owner of variables that a Function may change: a model, an
	// optimizer, a metric.
	Stateful = tensor.Stateful
	// Error says which operation or layer does not fit, and why. Recording panics
	// with it; Fit, Predict and other methods return it. Path is the layer's path.
	Error = tensor.Error
	// NonFiniteValue is an error that names the first value of a program that has
	// a NaN or an infinity.
	NonFiniteValue = tensor.NonFinite
	// Element is a Go type of elements, for NewTensor.
	Element = tensor.Element
)

// Func is a compiled Go function; see Function.
type Func[In, Out any] = tensor.Func[In, Out]

// Unknown is the size of the batch axis while a model is built.
const Unknown = tensor.Unknown

// The element types.
const (
	Bool     = dtype.Bool
	Uint8    = dtype.Uint8
	Int8     = dtype.Int8
	Int32    = dtype.Int32
	Int64    = dtype.Int64
	Float16  = dtype.Float16
	BFloat16 = dtype.BFloat16
	Float32  = dtype.Float32
	Float64  = dtype.Float64
)

// DeviceInfo describes a device, or says why it cannot be used.
type DeviceInfo = backend.DeviceInfo

// Devices returns the devices of this machine (TensorFlow:
// tf.config.list_physical_devices): "cpu", and the GPUs "cuda", "cuda:1" …. A
// device that cannot be used has the reason in Err. MEZZO_DEVICE selects the
// default device. In a program built without the tag cuda one entry "cuda"
// says so.
//
//	cpu: Intel Xeon, AVX-512
//	cuda: not available: no driver found: tried libcuda.so.1, …
func Devices() []DeviceInfo { return backend.Search() }

// GPUs returns the GPUs that can be used (TensorFlow:
// tf.config.list_physical_devices("GPU")). There are none in a program built
// without the tag cuda; Devices says why.
func GPUs() []DeviceInfo {
	return slices.DeleteFunc(Devices(), func(d DeviceInfo) bool { return d.Err != nil || d.Name == "cpu" })
}

// Function compiles f (TensorFlow: tf.function); see tensor.Function. changes
// must list the owners of all variables that f changes: the model, the
// optimizer, metrics.
func Function[In, Out any](f func(In) Out, changes ...Stateful) *Func[In, Out] {
	return tensor.Function(f, changes...)
}

// Gradients returns the derivatives of a scalar loss with respect to the
// variables, nil for a variable that the loss does not depend on (TensorFlow:
// GradientTape.gradient); see tensor.Gradients.
func Gradients(loss *Tensor, vars []*Variable) []*Tensor { return tensor.Gradients(loss, vars) }

// Autocast lets what f records in float32, in a Function, compute in d, float16 or
// bfloat16, where that is safe and faster (PyTorch: torch.autocast); see
// tensor.Autocast, and policy.Auto for whole models.
func Autocast(d DType, f func()) { tensor.Autocast(d, f) }

// NewTensor returns a tensor of a copy of data, in row-major order; without a
// shape it takes one element. It panics with *Error when the number of
// elements is not that of the shape.
func NewTensor[T Element](data []T, shape ...int) *Tensor { return tensor.New(data, shape...) }

// NewVariable returns a trainable variable (Keras: keras.Variable). init fills
// the first values, which are 0 when it is nil.
func NewVariable(name string, d DType, shape Shape, init func(dst []float64) error) *Variable {
	return tensor.NewVariable(name, d, shape, init)
}

// NewState returns a variable that is not trained, such as a slot of an
// optimizer or a counter. init fills the first values, which are 0 when it is
// nil.
func NewState(name string, d DType, shape Shape, init func(dst []float64) error) *Variable {
	return tensor.NewState(name, d, shape, init)
}

// Tuple groups tensors: the inputs or outputs of a model that has several.
func Tuple(ts ...*Tensor) *Tensor { return tensor.Tuple(ts...) }
