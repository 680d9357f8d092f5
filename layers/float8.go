package layers

import (
	"github.com/mezzo-ml/mezzo/backend/tensor"
)

// amaxHistory is over how many steps a scale looks back (Keras and
// Transformer Engine: amax_history_length, amax_history_len).
const amaxHistory = 1024

// float8 holds what a layer needs for products of 8-bit floats (policy
// mixed_float8): a scale for each operand and for the gradient of the result,
// from the largest magnitudes of the steps before (delayed scaling, as in
// NVIDIA's Transformer Engine). Operands are rounded to E4M3, gradients to
// E5M2. Names, shapes and order of the weights are those of Keras's Dense.
type float8 struct {
	inputs, kernel, gradient float8Scale
}

// scales lists them in the order of their weights.
func (f *float8) scales() []*float8Scale { return []*float8Scale{&f.inputs, &f.kernel, &f.gradient} }

// float8Scale is the divisor of a tensor before it is rounded.
type float8Scale struct {
	name           string
	scale, history *Weight
	format         Float8Format // that it is rounded to; the first one if choice is not nil
	choice         *Weight      // of policy mixed_float8_adaptive: see float8choice.go
}

// addFloat8 adds the scales of a layer with a kernel if its policy has 8-bit floats. It
// must be called in Build, after the other weights are added.
func (b *Base) addFloat8() error {
	if !b.policy.Float8 {
		return nil
	}
	f := &float8{
		inputs:   float8Scale{name: "inputs", format: E4M3},
		kernel:   float8Scale{name: "kernel", format: E4M3},
		gradient: float8Scale{name: "outputs_grad", format: E5M2},
	}
	for _, s := range f.scales() {
		var err error
		if s.scale, err = b.AddWeight(s.name+"_scale", Shape{}, "ones", Statistic(), KeepDType()); err != nil {
			return err
		}
		if s.history, err = b.AddWeight(s.name+"_amax_history", Shape{amaxHistory}, "zeros", Statistic(), KeepDType()); err != nil {
			return err
		}
	}
	b.float8 = f
	if b.policy.Adaptive {
		return b.addFloat8Choices(f)
	}
	return nil
}

// product is multiply(x, kernel), with a result in the type of x. The operands
// of multiply hold numbers of E4M3, and in the backward pass its gradient some
// of E5M2, all divided by their scales: these are exact in every float type,
// and so are their products in float32, where they are added up. The scales are
// multiplied in after that. Where f is nil it is the product of x and the
// kernel as they are.
func (f *float8) product(p Pass, x *tensor.Tensor, kernel *Weight, multiply func(x, k *tensor.Tensor) *tensor.Tensor) *tensor.Tensor {
	if f == nil {
		return multiply(x, kernel.Value())
	}
	k := kernel.Variable.Value() // rounded once, from the stored type
	ofX, ofK, ofG := f.inputs.scale.Value(), f.kernel.scale.Value(), f.gradient.scale.Value()
	roundX, roundK, roundG := f.inputs.rounding(), f.kernel.rounding(), f.gradient.rounding()
	if p.Training {
		f.inputs.observe(x)
		f.kernel.observe(k)
	}
	z := multiply(
		straight(quantize(x, ofX, roundX).Cast(x.DType()), x, ofG.Mul(ofK)),
		straight(quantize(k, ofK, roundK).Cast(x.DType()), k, ofG.Mul(ofX)))
	y := z.Widen().CastLike(ofX).Mul(ofX.Mul(ofK)).Cast(x.DType())
	return y.WithGradient(func(g *tensor.Tensor) []*tensor.Tensor {
		if p.Training {
			f.gradient.observe(g)
		}
		return []*tensor.Tensor{quantize(g, ofG, roundG).Cast(z.DType())}
	}, z)
}

// straight returns q, a quantized x, and passes its gradient to x: q's gradient, which
// lacks the scales, times the scales.
func straight(q, x, scales *tensor.Tensor) *tensor.Tensor {
	return q.WithGradient(func(g *tensor.Tensor) []*tensor.Tensor {
		return []*tensor.Tensor{g.Widen().CastLike(scales).Mul(scales).Cast(x.DType())}
	}, x)
}

// quantize divides t by scale and rounds it.
func quantize(t, scale *tensor.Tensor, round func(*tensor.Tensor) *tensor.Tensor) *tensor.Tensor {
	return round(t.CastLike(scale).Div(scale))
}

// observe puts the largest magnitude of t into the history, and makes the scale
// of the next step from the largest there. A scale that would not be a positive
// finite number stays as it was.
func (s *float8Scale) observe(t *tensor.Tensor) {
	if !inStep(t, s.history.Variable) {
		return
	}
	t = t.StopGradient()
	old := s.history.Value()
	// The newest in front, as Keras has it; the others go round.
	now := tensor.Concat(0, t.Abs().Max().CastLike(old).Reshape(1), old.Slice(0, 2, amaxHistory), old.Slice(0, 0, 1))
	s.history.Assign(now)
	up := tensor.Scalar(old.DType(), s.format.Largest()).Div(now.Max())
	good := up.IsFinite().And(up.GreaterScalar(0))
	if s.choice != nil {
		s.choose(t, now.Max(), good)
		return
	}
	s.scale.Assign(tensor.Where(good, up.Reciprocal(), s.scale.Value()))
}
