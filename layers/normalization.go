package layers

import (
	"fmt"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/layers/internal/support"
)

// Normalization layers take their input uncast, compute in float32 (float64
// where the input or the weights have it), keep their weights in that type
// under every policy, and cast the result alone to the compute type.

// BatchNormalization subtracts the mean of the batch and divides by its
// standard deviation, then multiplies by gamma and adds beta (Ioffe and
// Szegedy 2015). Statistics are over all axes but Axis; elements that the mask
// of the input hides are not counted. When not training, and with
// SetTrainable(false), it uses moving averages of the batch statistics:
// moving·Momentum + batch·(1-Momentum).
//
// The averages are updated in a tensor.Function only. A step that the
// optimizer skips does not change them. Variances are biased: divided by n.
//
// Data parallelism cuts a batch into shards. By default each shard has statistics of its
// own. With Synchronized they are those of the whole batch, which the shards exchange in
// the forward pass, and their gradients in the backward pass: one exchange each for each
// layer. It has no effect on a batch that is not cut. A training loop of one's own must
// compute its gradients in distribution.DataParallel.Replicas, as Fit does.
//
// Shapes: [batch …] → the same. Weights, of the size c of Axis: gamma, beta,
// moving_mean and moving_variance [c].
type BatchNormalization struct {
	Axis                      *int     `default:"-1"` // that keeps statistics of its own: the features
	Momentum                  *float64 `default:"0.99"`
	Epsilon                   *float64 `default:"0.001"` // added to the variance
	Center                    *bool    `default:"true"`  // whether there is a beta
	Scale                     *bool    `default:"true"`  // whether there is a gamma
	BetaInitializer           string   `default:"zeros"`
	GammaInitializer          string   `default:"ones"`
	MovingMeanInitializer     string   `default:"zeros"`
	MovingVarianceInitializer string   `default:"ones"`
	BetaRegularizer           string
	GammaRegularizer          string
	BetaConstraint            string
	GammaConstraint           string
	Synchronized              bool // statistics are those of all shards of the batch, see keras/distribution
	Name, DType               string

	Base
	PassesMask
	gamma, beta, mean, variance *Weight
	axis                        int
	momentum, epsilon           float64
}

// Config returns the fields Name and DType.
func (b *BatchNormalization) Config() Config { return Config{b.Name, b.DType} }

// Build makes the weights for inputs of shape in.
func (b *BatchNormalization) Build(in ...Shape) error {
	c := Defaults(*b)
	s, err := support.Single(in, 2)
	if err != nil {
		return err
	}
	if b.axis, err = s.Axis(*c.Axis); err != nil {
		return fmt.Errorf("Axis is %d, want an axis of input %v", *c.Axis, s)
	}
	n, err := support.KnownAxis(s, b.axis)
	if err != nil {
		return err
	}
	if b.momentum = *c.Momentum; !(b.momentum >= 0 && b.momentum <= 1) {
		return fmt.Errorf("Momentum is %v, want a number from 0 to 1", b.momentum)
	}
	if b.epsilon, err = support.NotNegative("Epsilon", *c.Epsilon); err != nil {
		return err
	}
	b.SetAutocast(false)
	b.gamma, b.beta, err = b.gainAndShift(Shape{n}, *c.Scale, *c.Center,
		affine{c.GammaInitializer, c.GammaRegularizer, c.GammaConstraint},
		affine{c.BetaInitializer, c.BetaRegularizer, c.BetaConstraint})
	if err != nil {
		return err
	}
	b.mean, err = b.AddWeight("moving_mean", Shape{n}, c.MovingMeanInitializer, Statistic(), KeepDType())
	if err != nil {
		return err
	}
	b.variance, err = b.AddWeight("moving_variance", Shape{n}, c.MovingVarianceInitializer, Statistic(), KeepDType())
	return err
}

// CheckInput requires the number of axes it was built for, and the size of the
// one with the statistics.
func (b *BatchNormalization) CheckInput(in ...Shape) error {
	return support.CheckAxes(in, b.InputShapes()[0], []int{b.axis}, b.mean.Shape())
}

// Call computes the layer on x.
func (b *BatchNormalization) Call(p Pass, x *tensor.Tensor) *tensor.Tensor {
	training := p.Training && b.Trainable()
	together := false // with other shards
	if training && b.Synchronized {
		_, shards := tensor.ShardIndex()
		if together = shards > 1; !together {
			tensor.UnsharedStatistics(b.Path())
		}
	}
	if training && b.axis == x.Rank()-1 && x.Mask() == nil && !together {
		return b.batchNorm(x)
	}
	x = x.Cast(support.Widest(b.Policy(), x))
	onAxis := support.Along(x.Shape(), []int{b.axis})
	read := func(w *Weight) *tensor.Tensor { return w.Value().CastLike(x).Reshape(onAxis...) }
	var centered, variance *tensor.Tensor
	if training {
		var mean *tensor.Tensor
		if together {
			mean, variance = b.sharedMoments(x)
			centered = x.Sub(mean)
		} else {
			mean, centered, variance = maskedMoments(x, others(x.Rank(), b.axis))
		}
		b.average(b.mean, mean)
		b.average(b.variance, variance)
	} else {
		centered, variance = x.Sub(read(b.mean)), read(b.variance)
	}
	gain := variance.AddScalar(b.epsilon).Rsqrt()
	if b.gamma != nil {
		gain = gain.Mul(read(b.gamma))
	}
	y := centered.Mul(gain)
	if b.beta != nil {
		y = y.Add(read(b.beta))
	}
	return y.Cast(b.ComputeDType())
}

// batchNorm normalizes x, whose features are the last axis, with the
// statistics of the batch.
func (b *BatchNormalization) batchNorm(x *tensor.Tensor) *tensor.Tensor {
	x, gain, shift := b.widened(x, b.mean.Shape(), b.gamma, b.beta)
	columns := x.Reshape(1, x.Shape()[:b.axis].Size(), x.Shape()[b.axis])
	mean, variance := columns.Moments()
	b.average(b.mean, mean)
	b.average(b.variance, variance)
	o := tensor.BatchNormOptions{Epsilon: b.epsilon, DType: b.ComputeDType()}
	return tensor.BatchNorm(columns, gain, shift, o).Reshape(x.Shape()...)
}

// sharedMoments returns the mean and the biased variance of all shards of the batch, of
// which x is one. Of each feature the shards add up the number, the sum and the sum of
// the squares of the elements that are not hidden. They do it in float64: the variance,
// which is the mean of the squares less the square of the mean, has the digits of float32
// unless the mean is more than 2¹⁴ standard deviations.
func (b *BatchNormalization) sharedMoments(x *tensor.Tensor) (mean, variance *tensor.Tensor) {
	n, onAxis := x.Dim(b.axis), support.Along(x.Shape(), []int{b.axis})
	count := tensor.Full(dtype.Float64, float64(x.Shape().Size()/n), 1)
	if x.Mask() == nil && b.axis == x.Rank()-1 {
		mean, variance = x.Reshape(1, x.Shape().Size()/n, n).Moments()
	} else {
		axes := others(x.Rank(), b.axis)
		if x.Mask() != nil {
			kept := spreadMask(x.Mask(), x).Cast(x.DType()).BroadcastTo(x.Shape()...)
			count = kept.Sum(axes...).Slice(0, 0, 1).Cast(dtype.Float64)
		}
		mean, _, variance = maskedMoments(x, axes)
	}
	mean, variance = mean.Reshape(n).Cast(dtype.Float64), variance.Reshape(n).Cast(dtype.Float64)
	sums := tensor.Concat(0, mean.Mul(count), variance.Add(mean.Square()).Mul(count), count).ShardMean()
	// A mask may hide all; then the sums are 0, too.
	all := sums.Slice(0, 2*n, 2*n+1).MaximumScalar(1e-9)
	mean = sums.Slice(0, 0, n).Div(all)
	variance = sums.Slice(0, n, 2*n).Div(all).Sub(mean.Square()).MaximumScalar(0)
	return mean.CastLike(x).Reshape(onAxis...), variance.CastLike(x).Reshape(onAxis...)
}

// average moves a statistic towards the batch's.
func (b *BatchNormalization) average(w *Weight, batch *tensor.Tensor) {
	if !inStep(batch, w.Variable) {
		return
	}
	batch = batch.Reshape(w.Shape()...).Cast(w.DType())
	w.Assign(w.Variable.Value().MulScalar(b.momentum).Add(batch.MulScalar(1 - b.momentum)))
}

// LayerNormalization subtracts the mean of each sample and divides by its
// standard deviation, then multiplies by gamma and adds beta (Ba et al. 2016).
// Statistics are over Axis. Variances are biased: divided by n.
//
// Shapes: [batch …] → the same. Weights gamma and beta have the sizes of the
// axes of Axis, in the order of the input.
type LayerNormalization struct {
	Axis             []int    `default:"-1"`    // axes that are normalized together
	Epsilon          *float64 `default:"0.001"` // added to the variance
	Center           *bool    `default:"true"`  // whether there is a beta
	Scale            *bool    `default:"true"`  // whether there is a gamma
	BetaInitializer  string   `default:"zeros"`
	GammaInitializer string   `default:"ones"`
	BetaRegularizer  string
	GammaRegularizer string
	BetaConstraint   string
	GammaConstraint  string
	Name, DType      string

	Base
	PassesMask
	gamma, beta *Weight
	axes        []int
	sizes       Shape // of axes
	epsilon     float64
}

// Config returns the fields Name and DType.
func (l *LayerNormalization) Config() Config { return Config{l.Name, l.DType} }

// Build makes the weights for inputs of shape in.
func (l *LayerNormalization) Build(in ...Shape) error {
	c := Defaults(*l)
	s, err := support.Single(in, 1)
	if err != nil {
		return err
	}
	if l.axes, err = someAxes(s, c.Axis); err != nil {
		return err
	}
	l.sizes = nil
	for _, a := range l.axes {
		n, err := support.KnownAxis(s, a)
		if err != nil {
			return err
		}
		l.sizes = append(l.sizes, n)
	}
	if l.epsilon, err = support.NotNegative("Epsilon", *c.Epsilon); err != nil {
		return err
	}
	l.SetAutocast(false)
	l.gamma, l.beta, err = l.gainAndShift(l.sizes, *c.Scale, *c.Center,
		affine{c.GammaInitializer, c.GammaRegularizer, c.GammaConstraint},
		affine{c.BetaInitializer, c.BetaRegularizer, c.BetaConstraint})
	return err
}

// CheckInput requires the number of axes it was built for, and the sizes of
// those it normalizes.
func (l *LayerNormalization) CheckInput(in ...Shape) error {
	return support.CheckAxes(in, l.InputShapes()[0], l.axes, l.sizes)
}

// Call computes the layer on x.
func (l *LayerNormalization) Call(_ Pass, x *tensor.Tensor) *tensor.Tensor {
	if trailing(l.axes, x) {
		return l.normalizeRows(x, l.gamma, l.beta, l.sizes, tensor.LayerNormOptions{Epsilon: l.epsilon})
	}
	x = x.Cast(support.Widest(l.Policy(), x))
	onAxes := support.Along(x.Shape(), l.axes)
	_, centered, variance := moments(x, l.axes)
	y := centered.Mul(variance.AddScalar(l.epsilon).Rsqrt())
	if l.gamma != nil {
		y = y.Mul(l.gamma.Value().CastLike(x).Reshape(onAxes...))
	}
	if l.beta != nil {
		y = y.Add(l.beta.Value().CastLike(x).Reshape(onAxes...))
	}
	return y.Cast(l.ComputeDType())
}

// trailing reports whether axes, in order, are the last ones of x.
func trailing(axes []int, x *tensor.Tensor) bool {
	for i, a := range axes {
		if a != x.Rank()-len(axes)+i {
			return false
		}
	}
	return true
}

// normalizeRows normalizes x over its last axes, of the given sizes, with
// weights that may be nil.
func (b *Base) normalizeRows(x *tensor.Tensor, gain, shift *Weight, sizes Shape, o tensor.LayerNormOptions) *tensor.Tensor {
	x, g, s := b.widened(x, sizes, gain, shift)
	rows := x.Shape()[:x.Rank()-len(sizes)].Size()
	o.DType = b.ComputeDType()
	return x.Reshape(rows, sizes.Size()).LayerNorm(g, s, o).Reshape(x.Shape()...)
}

// widened returns the operands of a normalization operation: x, in a type whose
// accumulator is the layer's, and its weights, of the given sizes, as vectors of that
// type; ones and zeros for nil.
func (b *Base) widened(x *tensor.Tensor, sizes Shape, gain, shift *Weight) (y, g, s *tensor.Tensor) {
	wide, n := support.Widest(b.Policy(), x), sizes.Size()
	if x.DType().Accumulator() != wide {
		x = x.Cast(wide) // the weights are float64
	}
	per := func(w *Weight, otherwise float64) *tensor.Tensor {
		if w == nil {
			return tensor.Full(wide, otherwise, n)
		}
		return w.Value().Cast(wide).Reshape(n)
	}
	return x, per(gain, 1), per(shift, 0)
}

// moments returns the mean of x over axes, which stay with size 1, x less the
// mean, and the biased variance. The variance is the mean of the squared
// deviations: the mean of the squares less the square of the mean would cancel.
func moments(x *tensor.Tensor, axes []int) (mean, centered, variance *tensor.Tensor) {
	mean = x.MeanKeep(axes...)
	centered = x.Sub(mean)
	return mean, centered, centered.Square().MeanKeep(axes...)
}

// maskedMoments is moments without the elements that x's mask hides. If it hides all,
// mean and variance are 0.
func maskedMoments(x *tensor.Tensor, axes []int) (mean, centered, variance *tensor.Tensor) {
	if x.Mask() == nil {
		return moments(x, axes)
	}
	keep := spreadMask(x.Mask(), x)
	zero := tensor.Scalar(x.DType(), 0)
	// At least 1: there is nothing but 0 to divide where nothing is kept.
	n := keep.Cast(x.DType()).BroadcastTo(x.Shape()...).SumKeep(axes...).MaximumScalar(1)
	mean = tensor.Where(keep, x, zero).SumKeep(axes...).Div(n)
	centered = x.Sub(mean)
	return mean, centered, tensor.Where(keep, centered, zero).Square().SumKeep(axes...).Div(n)
}

// affine says how a gain or a shift is made.
type affine struct{ initializer, regularizer, constraint string }

// gainAndShift makes gamma and beta, nil where they are not wanted.
func (b *Base) gainAndShift(s Shape, scale, center bool, gain, shift affine) (gamma, beta *Weight, err error) {
	if scale {
		gamma, err = b.AddWeight("gamma", s, gain.initializer, KeepDType(), Regularizer(gain.regularizer), Constraint(gain.constraint))
	}
	if center && err == nil {
		beta, err = b.AddWeight("beta", s, shift.initializer, KeepDType(), Regularizer(shift.regularizer), Constraint(shift.constraint))
	}
	return gamma, beta, err
}

// others lists the axes of a rank but one.
func others(rank, axis int) []int {
	var out []int
	for i := range rank {
		if i != axis {
			out = append(out, i)
		}
	}
	return out
}
