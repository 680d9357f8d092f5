// Package losses has Keras's losses: distances between targets and predictions
// that models are trained on.
//
//	model.Compile(keras.CompileConfig{Loss: &losses.SparseCategoricalCrossentropy{}})
//
// A [Loss] is a struct. Its exported fields are the arguments of Keras's
// constructor, and the zero value of a field is Keras's default; it is a pointer
// where Go's zero is another valid value. [Get] returns a loss by its Keras name.
//
// # The losses
//
//   - Classes: [SparseCategoricalCrossentropy] for integer targets,
//     [CategoricalCrossentropy] for one-hot targets, [BinaryCrossentropy] for
//     two classes or independent labels; the focal variants
//     [CategoricalFocalCrossentropy] and [BinaryFocalCrossentropy];
//     [CategoricalGeneralizedCrossEntropy], [KLDivergence], [Hinge],
//     [SquaredHinge], [CategoricalHinge].
//   - Numbers: [MeanSquaredError], [MeanAbsoluteError], [Huber], [LogCosh],
//     [MeanAbsolutePercentageError], [MeanSquaredLogarithmicError], [Poisson].
//   - Masks of images: [Dice], [Tversky].
//   - Vectors: [CosineSimilarity], [Circle].
//   - Sequences: [CTC].
//
// # Rules
//
//   - A loss is computed and returned in float32 under every policy (float64
//     for float64 predictions): 16-bit predictions are widened, not rounded
//     first.
//   - A cross-entropy of the output of a softmax or sigmoid is computed from its
//     logits, which is exact where probabilities have become 0 or 1. FromLogits
//     then makes no difference.
//   - Steps that the mask of the predictions leaves out count neither in the
//     loss nor in its mean.
//   - Shapes do not broadcast, except for sample weights. Targets that do not
//     fit panic with *keras.Error; a label out of range is an error of the run.
package losses

import (
	"fmt"
	"slices"
	"strings"

	"github.com/mezzo-ml/mezzo/backend/op"
	"github.com/mezzo-ml/mezzo/backend/suggest"
	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/backend/tensor/lossshape"
)

// Loss measures how far predictions are from targets.
type Loss interface {
	// Call returns the loss of a batch, reduced to a scalar unless the loss
	// has a field that says otherwise.
	Call(yTrue, yPred *tensor.Tensor) *tensor.Tensor
}

// Weighted is a Loss that weighs samples. All losses of this package are.
type Weighted interface {
	Loss
	// CallWeighted is Call with the loss of each sample multiplied by its
	// weight; nil weighs all alike. Weights have the shape of the per-sample
	// losses, or broadcast to it; a last axis of 1 may be added or missing.
	CallWeighted(yTrue, yPred, sampleWeight *tensor.Tensor) *tensor.Tensor
	// LossName is the Name field, or Keras's default for the class.
	LossName() string
}

// Reductions are what the field Reduction may be; "" is the first.
//
//   - sum_over_batch_size, or mean: Σ(loss·weight)/n over the n samples (for a
//     sequence: over its steps too), whatever the weights add up to.
//   - sum: Σ(loss·weight).
//   - none: the loss of each sample.
//   - mean_with_sample_weight: Σ(loss·weight)/Σweight.
var Reductions = []string{"sum_over_batch_size", "mean", "sum", "none", "mean_with_sample_weight"}

var byName = map[string]func() Weighted{}

func init() {
	for _, e := range []struct {
		make  func() Weighted
		names string
	}{
		{func() Weighted { return &MeanSquaredError{} }, "MeanSquaredError mean_squared_error mse MSE"},
		{func() Weighted { return &MeanAbsoluteError{} }, "MeanAbsoluteError mean_absolute_error mae MAE"},
		{func() Weighted { return &MeanAbsolutePercentageError{} }, "MeanAbsolutePercentageError mean_absolute_percentage_error mape MAPE"},
		{func() Weighted { return &MeanSquaredLogarithmicError{} }, "MeanSquaredLogarithmicError mean_squared_logarithmic_error msle MSLE"},
		{func() Weighted { return &CosineSimilarity{} }, "CosineSimilarity cosine_similarity"},
		{func() Weighted { return &Huber{} }, "Huber huber huber_loss"},
		{func() Weighted { return &LogCosh{} }, "LogCosh log_cosh logcosh"},
		{func() Weighted { return &Hinge{} }, "Hinge hinge"},
		{func() Weighted { return &SquaredHinge{} }, "SquaredHinge squared_hinge"},
		{func() Weighted { return &CategoricalHinge{} }, "CategoricalHinge categorical_hinge"},
		{func() Weighted { return &KLDivergence{} }, "KLDivergence kl_divergence kld KLD"},
		{func() Weighted { return &Poisson{} }, "Poisson poisson"},
		{func() Weighted { return &BinaryCrossentropy{} }, "BinaryCrossentropy binary_crossentropy bce BCE"},
		{func() Weighted { return &BinaryFocalCrossentropy{} }, "BinaryFocalCrossentropy binary_focal_crossentropy"},
		{func() Weighted { return &CategoricalCrossentropy{} }, "CategoricalCrossentropy categorical_crossentropy"},
		{func() Weighted { return &CategoricalFocalCrossentropy{} }, "CategoricalFocalCrossentropy categorical_focal_crossentropy"},
		{func() Weighted { return &CategoricalGeneralizedCrossEntropy{} }, "CategoricalGeneralizedCrossEntropy categorical_generalized_cross_entropy"},
		{func() Weighted { return &SparseCategoricalCrossentropy{} }, "SparseCategoricalCrossentropy sparse_categorical_crossentropy"},
		{func() Weighted { return &CTC{} }, "CTC ctc"},
		{func() Weighted { return &Dice{} }, "Dice dice"},
		{func() Weighted { return &Tversky{} }, "Tversky tversky"},
		{func() Weighted { return &Circle{} }, "Circle circle"},
	} {
		for _, n := range strings.Fields(e.names) {
			byName[n] = e.make
		}
	}
}

// Names lists what Get knows: class names, snake_case names and Keras's
// aliases.
func Names() []string {
	var all []string
	for n := range byName {
		all = append(all, n)
	}
	slices.Sort(all)
	return all
}

// Get returns a loss with its defaults by one of Names.
func Get(name string) (Loss, error) {
	if f := byName[name]; f != nil {
		return f(), nil
	}
	return nil, fmt.Errorf("losses: %w", suggest.Unknown("loss", name, Names()))
}

// common is what is the same for all losses: the class for messages, the
// fields Name and Reduction, and the formula.
type common struct {
	class, name, reduction string

	// values computes the loss of each sample. mask, if not nil, is of the
	// same shape and false for samples that are to be left out.
	values func(class string, yTrue, yPred *tensor.Tensor) (values, mask *tensor.Tensor)

	readsMask bool // values heeds the mask of the predictions itself
}

// plain is a loss that leaves no samples out.
func plain(class, name, reduction string, values func(class string, yTrue, yPred *tensor.Tensor) *tensor.Tensor) common {
	return common{class: class, name: name, reduction: reduction, values: func(class string, t, p *tensor.Tensor) (*tensor.Tensor, *tensor.Tensor) {
		return values(class, t, p), nil
	}}
}

func (c common) call(yTrue, yPred, weight *tensor.Tensor) *tensor.Tensor {
	if c.reduction == "" {
		c.reduction = Reductions[0]
	}
	if !slices.Contains(Reductions, c.reduction) {
		tensor.Fail(c.class, "got reduction %q, want one of %s", c.reduction, strings.Join(Reductions, ", "))
	}
	if broken := lossshape.Check(c.class, yTrue, yPred); broken != nil {
		return broken
	}
	since := tensor.SequencePoint()
	values, mask := c.values(c.class, yTrue, yPred)
	if !c.readsMask {
		if m := lossshape.Mask(c.class, yPred, values); m != nil {
			// What padding made must not do harm, even if it is not finite.
			values = tensor.Where(m, values, tensor.Scalar(values.DType(), 0))
			if mask != nil {
				m = m.And(mask)
			}
			mask = m
		}
	}
	loss := c.reduce(values, mask, weight)
	tensor.Label("loss/"+c.name, since, loss)
	return loss
}

func (c common) reduce(values, mask, weight *tensor.Tensor) *tensor.Tensor {
	if weight != nil {
		weight = weight.Cast(values.DType())
		c.checkWeight(values, weight)
	}
	if mask != nil {
		m := mask.Cast(values.DType())
		if c.isMean() {
			// The mean is one over the samples that are left.
			m = m.Mul(divideNoNaN(tensor.Scalar(m.DType(), float64(m.Shape().Size())), m.Sum()))
		}
		if weight == nil {
			weight = m
		} else {
			m, weight = lossshape.SameRank(m, weight)
			weight = weight.Mul(m)
		}
	}
	if weight != nil {
		values, weight = lossshape.SameRank(values, weight)
		values = values.Mul(weight)
	}
	switch {
	case c.reduction == "none" || values.Rank() == 0:
		return values
	case c.reduction == "mean_with_sample_weight" && weight != nil:
		return divideNoNaN(values.Sum(), weight.Sum())
	case c.reduction == "sum" || values.Shape().Size() == 0: // of no samples: 0
		return values.Sum()
	}
	return values.Mean()
}

func (c common) isMean() bool {
	return c.reduction == "sum_over_batch_size" || c.reduction == "mean"
}

// checkWeight panics unless weights broadcast to the losses. The loss of
// vectors is a scalar already; in Keras it is repeated for each weight.
func (c common) checkWeight(values, weight *tensor.Tensor) {
	v, w := lossshape.SameRank(values, weight)
	s, err := op.Broadcast(v.Shape(), w.Shape())
	if err != nil || v.Rank() > 0 && !s.Equal(v.Shape()) {
		tensor.Fail(c.class, "got sample weights %v for losses of shape %v, want that shape or one that broadcasts to it", weight.Type(), values.Shape())
	}
}

// divideNoNaN returns a/b, 0 where b is 0.
func divideNoNaN(a, b *tensor.Tensor) *tensor.Tensor {
	zero := tensor.Scalar(b.DType(), 0)
	none := b.Equal(zero)
	return tensor.Where(none, zero, a.Div(tensor.Where(none, tensor.Scalar(b.DType(), 1), b)))
}
