// Package optimizers updates variables from gradients. It has Keras 3's
// optimizers with its defaults and arithmetic, from [SGD] to [Muon], its
// learning rate schedules, such as [CosineDecay], and [LossScaleOptimizer],
// which scales the loss for float16.
//
//	&optimizers.Adam{LearningRate: 1e-3, GlobalClipNorm: 1, WeightDecay: new(0.01)}
//
// The zero value of an optimizer has Keras's defaults. [Get] finds optimizers
// by name; [MarshalConfig] and [MarshalSchedule] write their settings as JSON.
//
// # The optimizers
//
//   - [SGD], with momentum and Nesterov momentum; [RMSprop].
//   - The family of Adam: [Adam], [AdamW], [Adamax], [Nadam], [Lamb],
//     [ScheduleFreeAdamW].
//   - Rates by weight: [Adagrad], [Adadelta], [Adafactor], [Ftrl].
//   - [Lion], which moves by the sign of the momentum; [Muon], which makes the
//     momentum of matrices orthogonal.
//   - [MultiOptimizer], with an optimizer for each part of the weights;
//     [LossScaleOptimizer], around one of the others.
//
// # Schedules
//
// [CosineDecay], [CosineDecayRestarts], [ExponentialDecay], [InverseTimeDecay],
// [PiecewiseConstantDecay], [PolynomialDecay] and PyTorch's [OneCycle]; a type
// with a method Rate is a [Schedule], too.
//
// # Fields of every optimizer
//
// Each class lists the same fields itself, as each class of Keras lists the
// same arguments. They are not in an embedded struct because a composite
// literal cannot set promoted fields: it would have to name that struct. A test
// keeps the lists equal.
//
//   - LearningRate is the rate of the first step. [SetLearningRate] changes it
//     afterwards; a step after a change of the field is an error.
//   - Schedule computes the rate from the number of applied steps, instead of
//     LearningRate.
//   - WeightDecay subtracts weight·WeightDecay·rate from each weight before its
//     update. Default: none, for [AdamW] and [Muon] 0.004; new(0.0) is none.
//   - ExcludeFromWeightDecay are regular expressions: a variable whose name
//     contains a match does not decay.
//   - ClipNorm limits the L2 norm of each gradient, ClipValue each element, and
//     GlobalClipNorm the norm of all gradients together. At most one may be set.
//   - UseEMA keeps an exponential moving average of each weight with the
//     momentum EMAMomentum, 0.99 by default. The average replaces the weight
//     every EMAOverwriteFrequency steps (0: never) and in [FinalizeVariables].
//   - GradientAccumulationSteps, 2 or more, adds up the gradients of so many
//     calls in float32. The last call applies their average; the other calls
//     change nothing else. 0 applies every call.
//   - AllowUnscaledLoss accepts gradients that passed through float16 although
//     their loss was not scaled. Without it they are an error, because small
//     ones have become 0.
//   - StochasticRounding is the seed of random numbers that say whether a weight
//     stored in 16 bits is rounded up or down, by how far it is from the two, so
//     that small updates count in the mean. Default: rounding to nearest. Weights
//     of other types, such as those of the mixed policies, do not depend on it.
//   - Name is the prefix of the names of the state's variables. Default: the
//     class in lower case.
//
// # Your own optimizer
//
// An [Optimizer] has two methods; docs/add-an-op.md has an example. It may
// implement [StepCounter], [Reporter], [RateSetter] and [Averager], too.
//
// # Rules
//
//   - ApplyGradients is recorded in a keras.Function. Learning rate,
//     iterations, slots and counters are variables on the device, so no step
//     reads back and no change of them compiles again.
//   - Arithmetic and slots are float32 whatever the type of the variable
//     (float64 for float64 variables). The result is rounded once, to the
//     variable's type: to nearest, or as StochasticRounding says.
//   - The order is: average over accumulation steps, clip, decay the weights,
//     update, moving average of the weights, constraint.
//   - Of a sparse gradient, such as an embedding's, only the rows that are not
//     0 are read. SGD without momentum and Adagrad also update only these rows,
//     unless there is weight decay, a moving average, accumulation or a
//     constraint.
//   - A slot is assigned before the weight that is computed from it, and the
//     weight reads the slot's new value, so that every update is in place.
//     A reduction over a whole variable, such as the norm in Lamb, is computed
//     from the old slots instead.
//   - Moving averages and momenta in float32 below 2⁻⁵⁵ are rounded to multiples
//     of 2⁻¹⁰³. Keras lets them become subnormal numbers, which are slow.
//   - Recording panics with *keras.Error when something does not fit. Methods
//     that run outside a Function return errors.
package optimizers

import (
	"errors"
	"fmt"
	"math"

	"github.com/mezzo-ml/mezzo/backend/tensor"
)

// Optimizer updates variables from gradients so that a loss decreases.
//
// An optimizer may also implement [StepCounter], [Reporter], [RateSetter] and
// [Averager]; all optimizers of this package do. The functions [Iterations],
// [Result], [CurrentLearningRate], [SetLearningRate], [FinalizeVariables] and
// [SwapEMA] accept any Optimizer and document what they do if it lacks the
// method.
type Optimizer interface {
	// ApplyGradients records one update of vars, each by the gradient at the
	// same index of grads. A variable with a nil gradient does not change.
	// Gradients must have the shapes of the variables and no loss scale.
	// Gradients that passed through float16 must come from a scaled loss; see
	// LossScaleOptimizer and AllowUnscaledLoss.
	ApplyGradients(grads []*tensor.Tensor, vars []*tensor.Variable)
	// Variables returns the state that a checkpoint holds. It includes the
	// slots of a variable from its first ApplyGradients on.
	Variables() []*tensor.Variable
}

// StepCounter is an Optimizer that counts its steps.
type StepCounter interface {
	// Iterations returns the number of applied steps. Skipped steps do not
	// count (see StepResult.Steps), and a window of accumulated gradients is
	// one step.
	Iterations() (int64, error)
}

// Reporter is an Optimizer that describes its last step; see Result.
type Reporter interface {
	Result() (StepResult, error)
}

// RateSetter is an Optimizer with a learning rate.
type RateSetter interface {
	// CurrentLearningRate returns the rate of the next step.
	CurrentLearningRate() (float64, error)
	// SetLearningRate changes the rate from the next step on. It is an error
	// when a Schedule computes the rate.
	SetLearningRate(rate float64) error
}

// Averager is an Optimizer that may keep moving averages of the weights.
type Averager interface {
	// FinalizeVariables copies the averages into the weights at the end of a
	// training. Without averages it does nothing.
	FinalizeVariables() error
	// SwapEMA exchanges the weights with their averages. A second call restores
	// both, to the bit. Between the two calls the model may be evaluated but
	// not trained.
	SwapEMA() error
}

// Minimize records a step of o: the gradients of loss by vars, with the loss scale if o
// is a LossScaleOptimizer, and their application (TensorFlow 2: Optimizer.minimize).
// loss is not scaled yet. It belongs in a keras.Function or a TrainStep.
func Minimize(o Optimizer, loss *tensor.Tensor, vars []*tensor.Variable) {
	s, scaled := o.(*LossScaleOptimizer)
	if scaled {
		loss = s.GetScaledLoss(loss)
	}
	gradients := tensor.Gradients(loss, vars)
	if scaled {
		gradients = s.GetUnscaledGradients(gradients)
	}
	o.ApplyGradients(gradients, vars)
}

// Iterations returns the number of steps that o has applied. The error is
// errors.ErrUnsupported when o is no StepCounter.
func Iterations(o Optimizer) (int64, error) {
	if c, ok := o.(StepCounter); ok && !isNil(o) {
		return c.Iterations()
	}
	return 0, unsupported(o, "Iterations")
}

// Result describes the last step of o. For an optimizer that is no Reporter it
// has the applied steps if o counts them, the loss scale 1 and the gradient
// norm NaN.
func Result(o Optimizer) (StepResult, error) {
	if r, ok := o.(Reporter); ok && !isNil(o) {
		return r.Result()
	}
	n, err := Iterations(o)
	if errors.Is(err, errors.ErrUnsupported) {
		err = nil
	}
	return StepResult{Applied: n > 0, LossScale: 1, GradientNorm: math.NaN(), AppliedSteps: n}, err
}

// CurrentLearningRate returns o's rate of the next step. The error is
// errors.ErrUnsupported when o is no RateSetter.
func CurrentLearningRate(o Optimizer) (float64, error) {
	if r, ok := o.(RateSetter); ok && !isNil(o) {
		return r.CurrentLearningRate()
	}
	return 0, unsupported(o, "CurrentLearningRate")
}

// SetLearningRate changes o's rate from the next step on (Keras:
// optimizer.learning_rate = rate). The error is errors.ErrUnsupported when o is
// no RateSetter.
func SetLearningRate(o Optimizer, rate float64) error {
	if r, ok := o.(RateSetter); ok && !isNil(o) {
		return r.SetLearningRate(rate)
	}
	return unsupported(o, "SetLearningRate")
}

// FinalizeVariables copies o's moving averages into the weights. It does
// nothing when o is no Averager or keeps no averages.
func FinalizeVariables(o Optimizer) error {
	if a, ok := o.(Averager); ok && !isNil(o) {
		return a.FinalizeVariables()
	}
	return nil
}

// SwapEMA exchanges the weights with o's moving averages. A second call
// restores both. It does nothing when o is no Averager or keeps no averages.
func SwapEMA(o Optimizer) error {
	if a, ok := o.(Averager); ok && !isNil(o) {
		return a.SwapEMA()
	}
	return nil
}

// unsupported is the error for an optimizer without an optional method.
func unsupported(o Optimizer, method string) error {
	if isNil(o) {
		return fmt.Errorf("%s: got %s, want an optimizer", method, nilText(o))
	}
	return fmt.Errorf("optimizer %T has no method %s: %w", o, method, errors.ErrUnsupported)
}

// StepResult describes the last step. With GradientAccumulationSteps a step is
// a window of calls, and StepResult describes the last complete window.
type StepResult struct {
	Applied          bool    // the weights have moved; false when skipped, or before any step
	LossScale        float64 // of the next step; 1 without loss scaling
	GradientNorm     float64 // L2 norm of all unscaled gradients of the last call, before clipping; computed in float32
	AppliedSteps     int64
	SkippedSteps     int64 // not applied because a gradient was not finite
	ConsecutiveSkips int64 // steps skipped since the last one that was applied
	SkipsAtFloor     int64 // of these, skipped when the loss scale could not get smaller any more
}

// Steps returns the number of steps, applied and skipped. In a custom loop it
// is the number of the next batch. With GradientAccumulationSteps a step is a
// window of that many batches.
func (r StepResult) Steps() int64 { return r.AppliedSteps + r.SkippedSteps }

// or returns x, or the default d when x is zero.
func or[T comparable](x, d T) T {
	var zero T
	if x == zero {
		return d
	}
	return x
}
