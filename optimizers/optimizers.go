// Package optimizers updates variables from gradients: Keras 3's optimizers
// with its defaults and arithmetic, from [SGD] to [Muon]; its learning rate
// schedules, such as [CosineDecay]; and [LossScaleOptimizer], which scales the
// loss for float16. [Get] finds optimizers by name; [MarshalConfig] and
// [MarshalSchedule] write down what they are made of.
//
// Rules:
//   - An optimizer is a struct whose zero value has Keras's defaults. What all
//     of them share is in the embedded [Options].
//   - ApplyGradients is recorded in a tensor.Function. Learning rate,
//     iterations, slots and counters are variables on the device, so nothing is
//     read back per step and no change of them compiles again.
//   - Arithmetic and slots are float32 whatever the type of the variable
//     (float64 for float64 variables); the result is rounded once, to the
//     variable's type.
//   - The order is: average over accumulation steps, clip, decay the weights,
//     update, moving average of the weights, constraint.
//   - Of a gradient that is 0 but for some rows, as that of an embedding, those
//     alone are read; they alone are updated where the others would not move:
//     by SGD without momentum and Adagrad, without weight decay, average,
//     accumulation or constraint.
//   - A slot is assigned before the weight that is computed from it, and the
//     weight reads the slot's new value: so everything is updated in place.
//     What an update needs as a whole before the weight can move, such as the
//     norm in Lamb, is computed from the old values instead.
//   - A float32 slot that is a moving average or a momentum has no numbers
//     that are almost 0: below 2⁻⁵⁵ it is rounded to multiples of 2⁻¹⁰³. Keras
//     lets it decay into the subnormal numbers, which are slow.
//   - What does not fit panics with *tensor.Error, as everything that records
//     does; methods that run outside a Function return errors.
package optimizers

import (
	"github.com/mezzo-ml/mezzo/backend/tensor"
)

// Optimizer changes variables such that a loss gets smaller.
type Optimizer interface {
	// ApplyGradients records one update of vars, each by the gradient at the
	// same place in grads; a nil gradient leaves its variable alone. Gradients
	// have the shapes of the variables and carry no loss scale. Those that
	// passed through float16 must come from a loss that had one, see
	// LossScaleOptimizer and Options.AllowUnscaledLoss.
	ApplyGradients(grads []*tensor.Tensor, vars []*tensor.Variable)
	// Variables lists the state: what a checkpoint holds. Slots appear when
	// ApplyGradients has met their variables.
	Variables() []*tensor.Variable
	// Result tells what the last step did.
	Result() (StepResult, error)
	// Iterations is how many steps were applied. Skipped ones do not count (see
	// StepResult.Steps), and a window of accumulated gradients is one step.
	Iterations() (int64, error)
	// SetLearningRate changes the rate from the next step on. It is an error
	// when a Schedule determines it. The field LearningRate is the rate of the
	// first applied step alone: a step after the field has changed later is an
	// error.
	SetLearningRate(rate float64) error
	// CurrentLearningRate is the rate of the next step.
	CurrentLearningRate() (float64, error)
	// FinalizeVariables copies the moving averages of the weights into the
	// weights, when UseEMA is set: the end of a training.
	FinalizeVariables() error
	// SwapEMA exchanges the weights with their moving averages, when UseEMA is
	// set; a second call gives both back, to the bit. Between the two the model
	// may be evaluated, but not trained.
	SwapEMA() error
}

// Options are what all optimizers share: Keras's arguments of the same names.
// The zero value turns everything off.
type Options struct {
	// WeightDecay subtracts weight·WeightDecay·rate from each weight before its
	// update. nil means none (AdamW: 0.004); new(0.0) means none.
	WeightDecay *float64
	// ExcludeFromWeightDecay are regular expressions; a variable in whose name
	// one is found does not decay.
	ExcludeFromWeightDecay []string

	// At most one of the three may be set; 0 is off.
	ClipNorm       float64 `keras:"clipnorm"`        // limits the norm of each gradient
	ClipValue      float64 `keras:"clipvalue"`       // limits each element to ±ClipValue
	GlobalClipNorm float64 `keras:"global_clipnorm"` // limits the norm of all gradients together

	// UseEMA keeps an exponential moving average of each weight. It replaces
	// the weights every EMAOverwriteFrequency steps (0: never), and when
	// FinalizeVariables is called.
	UseEMA                bool
	EMAMomentum           float64 `default:"0.99"`
	EMAOverwriteFrequency int

	// GradientAccumulationSteps, 2 or more, adds up the gradients of so many
	// calls in float32 and applies their average in the last of them; the other
	// calls move nothing else. 0 applies every call.
	GradientAccumulationSteps int

	// Schedule computes the learning rate from the number of applied steps; nil
	// means the rate is LearningRate until SetLearningRate changes it.
	Schedule Schedule

	// AllowUnscaledLoss accepts gradients that passed through float16 although
	// their loss had no loss scale, which is an error otherwise: small ones have
	// become 0. Set it where losses are scaled by hand, or on purpose not at all.
	AllowUnscaledLoss bool

	// Name starts the names of the state's variables; default: the class in
	// lower case.
	Name string
}

// StepResult tells what the last step did. While gradients are accumulated a
// step is a window, and the result is of the last one that has ended.
type StepResult struct {
	Applied          bool    // the weights have moved; false when skipped, or before any step
	LossScale        float64 // of the next step; 1 without loss scaling
	GradientNorm     float64 // L2 norm of all unscaled gradients of the last call, before clipping; computed in float32
	AppliedSteps     int64
	SkippedSteps     int64 // not applied because a gradient was not finite
	ConsecutiveSkips int64 // steps skipped since the last one that was applied
	SkipsAtFloor     int64 // of these, skipped when the loss scale could not get smaller any more
}

// Steps is how many steps were done: applied and skipped. In a loop of one's own
// it tells which batch comes next; while gradients are accumulated a step is a
// window, of GradientAccumulationSteps batches.
func (r StepResult) Steps() int64 { return r.AppliedSteps + r.SkippedSteps }

// or returns x, or the default d when x is zero.
func or[T comparable](x, d T) T {
	var zero T
	if x == zero {
		return d
	}
	return x
}
