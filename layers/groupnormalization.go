package layers

import (
	"fmt"
	"slices"

	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/layers/internal/support"
)

// GroupNormalization subtracts the mean of each group of channels of each
// sample and divides by its standard deviation, then multiplies by gamma and
// adds beta (Wu and He 2018). Groups are of neighbouring channels; statistics
// are over a group and all axes but the batch. Variances are biased.
//
// Shapes: [batch …] → the same. Weights gamma and beta [channels].
type GroupNormalization struct {
	Groups           *int     `default:"32"`    // number of groups; -1: each channel for itself
	Axis             *int     `default:"-1"`    // the channels
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
	gamma, beta            *Weight
	axis, groups, channels int
	epsilon                float64
}

// Config returns the fields Name and DType.
func (g *GroupNormalization) Config() Config { return Config{g.Name, g.DType} }

// Build makes the weights for inputs of shape in.
func (g *GroupNormalization) Build(in ...Shape) error {
	c := Defaults(*g)
	s, err := support.Single(in, 2)
	if err != nil {
		return err
	}
	if g.axis, err = s.Axis(*c.Axis); err != nil || g.axis == 0 {
		return fmt.Errorf("Axis is %d, want an axis of input %v after the batch", *c.Axis, s)
	}
	if g.channels, err = support.KnownAxis(s, g.axis); err != nil {
		return err
	}
	if g.groups = *c.Groups; g.groups == -1 {
		g.groups = g.channels
	}
	if g.groups <= 0 || g.channels%g.groups != 0 {
		return fmt.Errorf("Groups is %d, want -1 or a number that divides the %d channels of input %v", *c.Groups, g.channels, s)
	}
	if g.epsilon, err = support.NotNegative("Epsilon", *c.Epsilon); err != nil {
		return err
	}
	g.SetAutocast(false)
	g.gamma, g.beta, err = g.gainAndShift(Shape{g.channels}, *c.Scale, *c.Center,
		affine{c.GammaInitializer, c.GammaRegularizer, c.GammaConstraint},
		affine{c.BetaInitializer, c.BetaRegularizer, c.BetaConstraint})
	return err
}

// CheckInput requires the number of axes it was built for, and the channels.
func (g *GroupNormalization) CheckInput(in ...Shape) error {
	return support.CheckAxes(in, g.InputShapes()[0], []int{g.axis}, Shape{g.channels})
}

// Call computes the layer on x.
func (g *GroupNormalization) Call(_ Pass, x *tensor.Tensor) *tensor.Tensor {
	if g.axis == x.Rank()-1 {
		x, gain, shift := g.widened(x, Shape{g.channels}, g.gamma, g.beta)
		shape := x.Shape()
		o := tensor.BatchNormOptions{Epsilon: g.epsilon, Groups: g.groups, DType: g.ComputeDType()}
		return tensor.BatchNorm(x.Reshape(shape[0], shape[1:g.axis].Size(), g.channels), gain, shift, o).Reshape(shape...)
	}
	x = x.Cast(support.Widest(g.Policy(), x))
	shape := x.Shape()
	split := slices.Insert(shape.Clone(), g.axis, g.groups)
	split[g.axis+1] /= g.groups
	_, centered, variance := moments(x.Reshape(split...), others(len(split), g.axis)[1:])
	y := centered.Mul(variance.AddScalar(g.epsilon).Rsqrt()).Reshape(shape...)
	onAxis := support.Along(shape, []int{g.axis})
	if g.gamma != nil {
		y = y.Mul(g.gamma.Value().CastLike(x).Reshape(onAxis...))
	}
	if g.beta != nil {
		y = y.Add(g.beta.Value().CastLike(x).Reshape(onAxis...))
	}
	return y.Cast(g.ComputeDType())
}

// RMSNormalization divides by the root of the mean square over Axis and
// multiplies by scale (Zhang and Sennrich 2019).
//
// Shapes: [batch …] → the same. Weight: scale, of the sizes of the axes of
// Axis, in the order of the input.
type RMSNormalization struct {
	Axis        []int    `default:"-1"`   // axes that are normalized together
	Epsilon     *float64 `default:"1e-6"` // added to the mean square
	Name, DType string

	Base
	scale   *Weight
	axes    []int
	epsilon float64
}

// Config returns the fields Name and DType.
func (r *RMSNormalization) Config() Config { return Config{r.Name, r.DType} }

// Build makes the weight for inputs of shape in.
func (r *RMSNormalization) Build(in ...Shape) error {
	c := Defaults(*r)
	s, err := support.Single(in, 1)
	if err != nil {
		return err
	}
	if r.axes, err = someAxes(s, c.Axis); err != nil {
		return err
	}
	sizes := make(Shape, len(r.axes))
	for i, a := range r.axes {
		if sizes[i], err = support.KnownAxis(s, a); err != nil {
			return err
		}
	}
	if r.epsilon, err = support.NotNegative("Epsilon", *c.Epsilon); err != nil {
		return err
	}
	r.SetAutocast(false)
	r.scale, err = r.AddWeight("scale", sizes, "ones", KeepDType())
	return err
}

// CheckInput requires the number of axes it was built for, and the sizes of
// those it normalizes.
func (r *RMSNormalization) CheckInput(in ...Shape) error {
	return support.CheckAxes(in, r.InputShapes()[0], r.axes, r.scale.Shape())
}

// Call computes the layer on x.
func (r *RMSNormalization) Call(_ Pass, x *tensor.Tensor) *tensor.Tensor {
	if trailing(r.axes, x) {
		return r.normalizeRows(x, r.scale, nil, r.scale.Shape(), tensor.LayerNormOptions{Epsilon: r.epsilon, Uncentered: true})
	}
	x = x.Cast(support.Widest(r.Policy(), x))
	scale := r.scale.Value().CastLike(x).Reshape(support.Along(x.Shape(), r.axes)...)
	return x.Mul(x.Square().MeanKeep(r.axes...).AddScalar(r.epsilon).Rsqrt()).Mul(scale).Cast(r.ComputeDType())
}

// UnitNormalization divides by the Euclidean norm over Axis.
//
// Shapes: [batch …] → the same.
type UnitNormalization struct {
	Axis        []int `default:"-1"` // axes that are normalized together
	Name, DType string

	Base
	PassesMask
	axes []int
}

// Config returns the fields Name and DType.
func (u *UnitNormalization) Config() Config { return Config{u.Name, u.DType} }

// Build checks the axes.
func (u *UnitNormalization) Build(in ...Shape) error {
	u.SetAutocast(false)
	return u.CheckInput(in...)
}

// CheckInput requires an input that has the axes of Axis.
func (u *UnitNormalization) CheckInput(in ...Shape) error {
	s, err := support.Single(in, 1)
	if err == nil {
		u.axes, err = someAxes(s, Defaults(*u).Axis)
	}
	return err
}

// Call computes the layer on x.
func (u *UnitNormalization) Call(_ Pass, x *tensor.Tensor) *tensor.Tensor {
	return unit(x.Cast(support.Widest(u.Policy(), x)), u.axes...).Cast(u.ComputeDType())
}

// unit divides x by its Euclidean norm over axes, no axes meaning all of them.
// Norms below 1e-6 count as 1e-6 (Keras: epsilon 1e-12, of the square).
func unit(x *tensor.Tensor, axes ...int) *tensor.Tensor {
	return x.Mul(x.Square().SumKeep(axes...).MaximumScalar(1e-12).Rsqrt())
}

// someAxes is normalAxes for a field that must name at least one axis.
func someAxes(s Shape, axes []int) ([]int, error) {
	if len(axes) == 0 {
		return nil, fmt.Errorf("Axis is %v, want at least one axis of input %v", axes, s)
	}
	return support.NormalAxes(s, axes)
}
