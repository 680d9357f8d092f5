package layers

import (
	"fmt"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/tensor"
)

// SpectralNormalization divides the kernel of a layer by its largest singular
// value in each training step (Miyato et al. 2018). The value is estimated by
// power iteration, which starts from the vector of the last step.
//
// The division changes the kernel itself, in a tensor.Function only. A step
// that the optimizer skips does not change it. As in Keras on TensorFlow,
// gradients are with respect to the divided kernel, and the optimizer updates
// that kernel.
//
// Shapes: those of Layer. Weights: those of Layer, of which one is named
// kernel or embeddings, and vector_u [1 units], not trainable, where units is
// the size of the kernel's last axis.
type SpectralNormalization struct {
	Layer           Layer // required
	PowerIterations *int  `default:"1"`
	Name, DType     string

	Base
	kernel, u *Weight
}

// Config returns the fields Name and DType.
func (s *SpectralNormalization) Config() Config { return Config{s.Name, s.DType} }

// MaskRule returns the rule of Layer.
func (s *SpectralNormalization) MaskRule() MaskRule {
	if ruleOf(s.Layer) == MaskRuleDrop {
		return MaskRuleDrop
	}
	return MaskRuleSet // Layer's result has them
}

// Build builds the layer and makes the vector.
func (s *SpectralNormalization) Build(in ...Shape) error {
	c := Defaults(*s)
	if c.Layer == nil {
		return fmt.Errorf("Layer is nil, want a layer with a kernel")
	}
	if *c.PowerIterations <= 0 {
		return fmt.Errorf("PowerIterations is %d, want a positive number", *c.PowerIterations)
	}
	s.SetAutocast(false) // Layer casts for itself
	if err := s.AddBuilt(SnakeClass(c.Layer), c.Layer, in...); err != nil {
		return err
	}
	inner := c.Layer.base()
	for _, w := range inner.weights {
		if w.local == "kernel" || w.local == "embeddings" {
			s.kernel = w
		}
	}
	if s.kernel == nil {
		return fmt.Errorf("Layer is a %s without a kernel, want a layer with one", Class(c.Layer))
	}
	// A skipped step must not keep the division.
	s.kernel.SetStatistic(true)
	shape := s.kernel.Shape()
	var err error
	s.u, err = s.AddWeight("vector_u", Shape{1, shape[len(shape)-1]}, "truncated_normal(stddev=0.02)", Statistic(), KeepDType())
	return err
}

// CheckInput returns nil: Layer checks its input.
func (s *SpectralNormalization) CheckInput(...Shape) error { return nil }

// Call computes the layer on x.
func (s *SpectralNormalization) Call(p Pass, x *tensor.Tensor) *tensor.Tensor {
	if p.Training && inStep(x, s.u.Variable) {
		s.normalize()
	}
	return Apply(s.Layer, p, x)
}

// StraightThrough marks the layer as one whose gradients differ from the
// derivatives of its forward pass: the division by the singular value is not differentiated.
func (s *SpectralNormalization) StraightThrough() {}

// normalize assigns the kernel divided by its estimated largest singular
// value. A kernel of zeros, which has no direction, stays.
func (s *SpectralNormalization) normalize() {
	kernel, u := s.kernel.Variable.Value(), s.u.Variable.Value()
	wide := dtype.Promote(kernel.DType(), dtype.Float32)
	shape := s.kernel.Shape()
	w := kernel.Cast(wide).Reshape(shape[:len(shape)-1].Size(), shape[len(shape)-1])
	next := u.Cast(wide)
	var v *tensor.Tensor
	for range *Defaults(*s).PowerIterations {
		v = unit(next.MatMulT(w, false, true))
		next = unit(v.MatMul(w))
	}
	sigma := v.MatMul(w).MatMulT(next, false, true).Reshape()
	some := w.Abs().Max().GreaterScalar(0)
	sigma = tensor.Where(some, sigma, tensor.Scalar(wide, 1))
	divided := w.Div(sigma).Reshape(shape...).Cast(kernel.DType()).StopGradient()
	s.kernel.Assign(divided.Add(kernel.Sub(kernel.StopGradient()))) // the addend is 0, with a gradient of 1
	s.u.Assign(tensor.Where(some, next, u.Cast(wide)).Cast(u.DType()))
}
