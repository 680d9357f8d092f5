package layers

import (
	"fmt"
	"math"
	"slices"

	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/layers/activations"
	"github.com/mezzo-ml/mezzo/layers/internal/support"
)

// ReLU is the rectified linear unit: MaxValue from there up, x above
// Threshold, NegativeSlope·(x-Threshold) below.
//
// Shapes: any → the same.
type ReLU struct {
	MaxValue      *float64 // default: none
	NegativeSlope float64
	Threshold     float64
	Name, DType   string

	Base
	PassesMask
}

// Config returns the fields Name and DType.
func (r *ReLU) Config() Config { return Config{r.Name, r.DType} }

// Build checks the fields.
func (r *ReLU) Build(in ...Shape) (err error) {
	if _, err := support.Single(in, 0); err != nil {
		return err
	}
	if r.MaxValue != nil {
		_, err = support.NotNegative("MaxValue", *r.MaxValue)
	}
	if err == nil {
		_, err = support.NotNegative("NegativeSlope", r.NegativeSlope)
	}
	if err == nil {
		_, err = support.NotNegative("Threshold", r.Threshold)
	}
	return err
}

// Call computes the layer on x.
func (r *ReLU) Call(_ Pass, x *tensor.Tensor) *tensor.Tensor {
	limit := math.Inf(1)
	if r.MaxValue != nil {
		limit = *r.MaxValue
	}
	return activations.ReluWith(x, r.NegativeSlope, limit, r.Threshold)
}

// LeakyReLU is x where it is positive, NegativeSlope·x elsewhere.
//
// Shapes: any → the same.
type LeakyReLU struct {
	NegativeSlope *float64 `default:"0.3"`
	Name, DType   string

	Base
	PassesMask
	slope float64
}

// Config returns the fields Name and DType.
func (l *LeakyReLU) Config() Config { return Config{l.Name, l.DType} }

// Build checks the fields.
func (l *LeakyReLU) Build(in ...Shape) (err error) {
	if _, err := support.Single(in, 0); err != nil {
		return err
	}
	l.slope, err = support.NotNegative("NegativeSlope", *Defaults(*l).NegativeSlope)
	return err
}

// Call computes the layer on x.
func (l *LeakyReLU) Call(_ Pass, x *tensor.Tensor) *tensor.Tensor {
	return activations.LeakyRelu(x, l.slope)
}

// PReLU is x where it is positive, alpha·x elsewhere, with alpha learned (He
// et al. 2015).
//
// Shapes: [batch …] → the same. Weight: alpha, of the axes after the batch
// with size 1 in SharedAxes.
type PReLU struct {
	AlphaInitializer string `default:"zeros"`
	AlphaRegularizer string
	AlphaConstraint  string
	SharedAxes       []int // axes along which alpha is the same, counted from 1
	Name, DType      string

	Base
	PassesMask
	alpha *Weight
	axes  []int // those alpha has its own values on
	sizes Shape // of axes
}

// Config returns the fields Name and DType.
func (r *PReLU) Config() Config { return Config{r.Name, r.DType} }

// Build makes alpha for inputs of shape in.
func (r *PReLU) Build(in ...Shape) error {
	s, err := support.Single(in, 2)
	if err != nil {
		return err
	}
	for _, a := range r.SharedAxes {
		if a < 1 || a >= len(s) {
			return fmt.Errorf("SharedAxes is %v, want axes from 1 of input %v", r.SharedAxes, s)
		}
	}
	r.axes, r.sizes = nil, nil
	for a := 1; a < len(s); a++ {
		if slices.Contains(r.SharedAxes, a) {
			continue
		}
		n, err := support.KnownAxis(s, a)
		if err != nil {
			return err
		}
		r.axes, r.sizes = append(r.axes, a), append(r.sizes, n)
	}
	c := Defaults(*r)
	r.alpha, err = r.AddWeight("alpha", support.Along(s, r.axes)[1:], c.AlphaInitializer,
		Regularizer(c.AlphaRegularizer), Constraint(c.AlphaConstraint))
	return err
}

// CheckInput requires the sizes of alpha.
func (r *PReLU) CheckInput(in ...Shape) error {
	return support.CheckAxes(in, r.InputShapes()[0], r.axes, r.sizes)
}

// Call computes the layer on x.
func (r *PReLU) Call(_ Pass, x *tensor.Tensor) *tensor.Tensor {
	support.CheckFloats(x)
	return x.Relu().Sub(r.alpha.Value().Mul(x.Neg().Relu()))
}

// ELU is the exponential linear unit: x where it is positive, Alpha·(eˣ-1)
// elsewhere (Clevert et al. 2016).
//
// Shapes: any → the same.
type ELU struct {
	Alpha       *float64 `default:"1"`
	Name, DType string

	Base
	PassesMask
	alpha float64
}

// Config returns the fields Name and DType.
func (e *ELU) Config() Config { return Config{e.Name, e.DType} }

// Build reads the fields.
func (e *ELU) Build(in ...Shape) (err error) {
	if _, err := support.Single(in, 0); err != nil {
		return err
	}
	e.alpha, err = support.Finite("Alpha", *Defaults(*e).Alpha)
	return err
}

// Call computes the layer on x.
func (e *ELU) Call(_ Pass, x *tensor.Tensor) *tensor.Tensor { return activations.Elu(x, e.alpha) }
