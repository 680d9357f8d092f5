package activations

import (
	"math"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/tensor"
)

// once computes f in float32 where x has a 16-bit type and rounds its result.
func once(x *tensor.Tensor, f Func) *tensor.Tensor {
	if x.Err() != nil {
		return x
	}
	if !x.DType().Is16() {
		return f(x)
	}
	return f(x.Cast(dtype.Float32)).CastLike(x)
}

// constant is v in the element type of x; a broken x stays so.
func constant(x *tensor.Tensor, v float64) *tensor.Tensor {
	if x.Err() != nil {
		return x
	}
	return tensor.Scalar(x.DType(), v)
}

// negative is x where it is not positive, else 0. Exponentials are taken of
// it: of x itself they would overflow where they are not wanted, and infinity
// times 0 make the gradient NaN there.
func negative(x, positive *tensor.Tensor) *tensor.Tensor {
	return tensor.Where(positive, constant(x, 0), x)
}

// Linear returns x.
func Linear(x *tensor.Tensor) *tensor.Tensor { return x }

// Relu returns max(x, 0).
func Relu(x *tensor.Tensor) *tensor.Tensor { return x.Relu() }

// Relu6 returns min(max(x, 0), 6).
func Relu6(x *tensor.Tensor) *tensor.Tensor { return atMost6(x.Relu()) }

// Maximum and Minimum pass the gradient to their first argument where both are
// equal. The order of arguments below is what gives kinks Keras's gradients.

// atMost6 is min(x, 6) with gradient 0 at 6.
func atMost6(x *tensor.Tensor) *tensor.Tensor { return constant(x, 6).Minimum(x) }

// share is x limited to 0 … 1, with gradient 0 at both ends.
func share(x *tensor.Tensor) *tensor.Tensor {
	return constant(x, 1).Minimum(constant(x, 0).Maximum(x))
}

// ReluWith is Keras's relu with all its arguments: x limited to 0 … maxValue
// above threshold, negativeSlope·(x-threshold) below. A maxValue of +Inf stands
// for none.
func ReluWith(x *tensor.Tensor, negativeSlope, maxValue, threshold float64) *tensor.Tensor {
	limit := func(x *tensor.Tensor) *tensor.Tensor {
		switch {
		case math.IsInf(maxValue, 1):
		case maxValue == 6 && threshold == 0:
			x = atMost6(x) // here Keras takes relu6
		default:
			x = x.MinimumScalar(maxValue)
		}
		return x
	}
	if negativeSlope == 0 && threshold == 0 {
		return limit(x.Relu())
	}
	return once(x, func(x *tensor.Tensor) *tensor.Tensor {
		above, below := limit(x), constant(x, 0)
		if threshold < 0 && !math.IsInf(maxValue, 1) {
			above = above.MaximumScalar(0)
		}
		if negativeSlope != 0 {
			below = x.AddScalar(-threshold).MulScalar(negativeSlope)
			if threshold != 0 || !math.IsInf(maxValue, 1) { // gradient 0 at the threshold
				below = tensor.Where(x.GreaterEqual(constant(x, threshold)), constant(x, 0), below)
			}
		}
		return tensor.Where(x.GreaterScalar(threshold), above, below)
	})
}

// LeakyRelu returns x where it is positive, negativeSlope·x elsewhere.
func LeakyRelu(x *tensor.Tensor, negativeSlope float64) *tensor.Tensor {
	return ReluWith(x, negativeSlope, math.Inf(1), 0)
}

// Elu returns x where it is positive, alpha·(eˣ-1) elsewhere (Clevert et al.
// 2016).
func Elu(x *tensor.Tensor, alpha float64) *tensor.Tensor { return elu(x, 1, alpha, 1) }

// Selu returns 1.0507·x where it is positive, 1.0507·1.6733·(eˣ-1) elsewhere
// (Klambauer et al. 2017). At 0 its gradient is 1.0507.
func Selu(x *tensor.Tensor) *tensor.Tensor {
	const scale, alpha = 1.0507009873554805, 1.6732632423543772
	return elu(x, scale, scale*alpha, 1)
}

// Celu returns x where it is positive, alpha·(e^(x/alpha)-1) elsewhere (Barron
// 2017).
func Celu(x *tensor.Tensor, alpha float64) *tensor.Tensor { return elu(x, 1, alpha, alpha) }

// elu is scale·x where x is positive, alpha·(e^(x/width)-1) elsewhere. At 0 it
// has the gradient of the exponential, but that of the line if it has a scale.
func elu(x *tensor.Tensor, scale, alpha, width float64) *tensor.Tensor {
	return once(x, func(x *tensor.Tensor) *tensor.Tensor {
		positive := x.GreaterScalar(0)
		if scale != 1 {
			positive = x.GreaterEqual(constant(x, 0))
		}
		curve := negative(x, positive)
		if width != 1 {
			curve = curve.DivScalar(width)
		}
		if curve = curve.Expm1(); alpha != 1 {
			curve = curve.MulScalar(alpha)
		}
		line := x
		if scale != 1 {
			line = x.MulScalar(scale)
		}
		return tensor.Where(positive, line, curve)
	})
}

// Gelu returns x·Φ(x), with Φ the normal distribution function; approximate
// puts ½(1+tanh(√(2/π)(x+0.044715x³))) for Φ (Hendrycks and Gimpel 2016). It is
// exact in Keras when chosen by name, approximate in keras.ops.gelu.
func Gelu(x *tensor.Tensor, approximate bool) *tensor.Tensor {
	return once(x, func(x *tensor.Tensor) *tensor.Tensor {
		if !approximate {
			return x.Mul(tensor.NormalCDF(x))
		}
		// ½(1+tanh u) is sigmoid(2u), where nothing cancels.
		return x.Square().MulScalar(0.044715).AddScalar(1).Mul(x).MulScalar(2 * math.Sqrt(2/math.Pi)).Sigmoid().Mul(x)
	})
}

// Silu returns x·sigmoid(x), also called swish.
func Silu(x *tensor.Tensor) *tensor.Tensor {
	return once(x, func(x *tensor.Tensor) *tensor.Tensor { return x.Mul(x.Sigmoid()) })
}

// Mish returns x·tanh(softplus(x)) (Misra 2019).
func Mish(x *tensor.Tensor) *tensor.Tensor {
	return once(x, func(x *tensor.Tensor) *tensor.Tensor { return x.Mul(Softplus(x).Tanh()) })
}

// Glu returns a·sigmoid(b), with a and b the halves of x along axis (Dauphin et
// al. 2017). The size of the axis must be even.
func Glu(x *tensor.Tensor, axis int) *tensor.Tensor {
	if x.Err() != nil {
		return x
	}
	n := x.Dim(axis)
	if n < 0 || n%2 != 0 {
		tensor.Fail("glu", "axis %d of %v has size %d, want an even one", axis, x.Type(), n)
	}
	return once(x, func(x *tensor.Tensor) *tensor.Tensor {
		return x.Slice(axis, 0, n/2).Mul(x.Slice(axis, n/2, n).Sigmoid())
	})
}

// Sigmoid returns 1/(1+e⁻ˣ).
func Sigmoid(x *tensor.Tensor) *tensor.Tensor { return x.Sigmoid() }

// HardSigmoid returns x/6+½, limited to 0 … 1.
func HardSigmoid(x *tensor.Tensor) *tensor.Tensor {
	return once(x, func(x *tensor.Tensor) *tensor.Tensor { return share(x.DivScalar(6).AddScalar(0.5)) })
}

// LogSigmoid returns ln sigmoid(x).
func LogSigmoid(x *tensor.Tensor) *tensor.Tensor {
	// At 0 the gradient is that of tail alone, ½.
	return once(x, func(x *tensor.Tensor) *tensor.Tensor { return constant(x, 0).Minimum(x).Sub(tail(x)) })
}

// SparseSigmoid returns (x+1)/2, limited to 0 … 1.
func SparseSigmoid(x *tensor.Tensor) *tensor.Tensor {
	return once(x, func(x *tensor.Tensor) *tensor.Tensor { return share(x.AddScalar(1).MulScalar(0.5)) })
}

// HardSilu returns x·hard_sigmoid(x), also called hard swish.
func HardSilu(x *tensor.Tensor) *tensor.Tensor {
	return once(x, func(x *tensor.Tensor) *tensor.Tensor { return x.Mul(HardSigmoid(x)) })
}

// Tanh returns tanh x.
func Tanh(x *tensor.Tensor) *tensor.Tensor { return x.Tanh() }

// HardTanh returns x, limited to -1 … 1.
func HardTanh(x *tensor.Tensor) *tensor.Tensor { return x.Clip(-1, 1) }

// TanhShrink returns x - tanh x.
func TanhShrink(x *tensor.Tensor) *tensor.Tensor {
	return once(x, func(x *tensor.Tensor) *tensor.Tensor { return x.Sub(x.Tanh()) })
}

// Softmax returns eˣ/Σeˣ along axis.
func Softmax(x *tensor.Tensor, axis int) *tensor.Tensor { return x.Softmax(axis) }

// LogSoftmax returns x - ln Σeˣ along axis.
func LogSoftmax(x *tensor.Tensor, axis int) *tensor.Tensor { return x.LogSoftmax(axis) }

// Sparsemax returns the point of the probability simplex nearest to x along
// axis: max(x-τ, 0), with τ such that it sums to 1 (Martins and Astudillo
// 2016; Keras up to 3.15 gives sums other than 1, issue 23425). It compares all
// pairs: for an axis of n elements it computes n times as many numbers as x
// has.
func Sparsemax(x *tensor.Tensor, axis int) *tensor.Tensor {
	if x.Err() != nil {
		return x
	}
	at, err := x.Shape().Axis(axis)
	if err != nil {
		tensor.Fail("sparsemax", "%v", err)
	}
	return once(x, func(x *tensor.Tensor) *tensor.Tensor {
		// Adding a number to all of x changes nothing but the rounding.
		x = x.Sub(x.MaxKeep(at).StopGradient())
		// Element i is positive in the result if Σⱼ max(xⱼ-xᵢ, 0) < 1: the
		// paper's 1 + k·x₍ₖ₎ > Σ x₍₁₎ … x₍ₖ₎ without sorting.
		above := x.ExpandDims(at).Sub(x.ExpandDims(at + 1)).Relu().Sum(at + 1)
		in := above.LessScalar(1).CastLike(x)
		tau := x.Mul(in).SumKeep(at).AddScalar(-1).Div(in.SumKeep(at))
		return x.Sub(tau).Relu()
	})
}

// Softplus returns ln(1+eˣ).
func Softplus(x *tensor.Tensor) *tensor.Tensor { return x.Softplus() }

// tail is ln(1+e^-|x|), what softplus adds to max(x, 0), with gradient -½ at 0.
func tail(x *tensor.Tensor) *tensor.Tensor { return x.Neg().Minimum(x).Exp().Log1p() }

// Squareplus returns (x+√(x²+b))/2, for b > 0 (Barron 2021).
func Squareplus(x *tensor.Tensor, b float64) *tensor.Tensor {
	return once(x, func(x *tensor.Tensor) *tensor.Tensor {
		// The same as max(x, 0) + b/(2(√(x²+b)+|x|)), where nothing cancels.
		// |x| has gradient 1 at 0, as max(x, 0) has, which makes ½ of all.
		sum := x.Square().AddScalar(b).Sqrt().Add(x.Maximum(x.Neg()))
		return x.MaximumScalar(0).Add(constant(x, b/2).Div(sum))
	})
}

// SparsePlus returns 0 below -1, (x+1)²/4 from there to 1, and x above.
func SparsePlus(x *tensor.Tensor) *tensor.Tensor {
	return once(x, func(x *tensor.Tensor) *tensor.Tensor {
		curve := x.Clip(-1, 1).AddScalar(1).Square().MulScalar(0.25)
		return tensor.Where(x.LessScalar(1), curve, x)
	})
}

// Softsign returns x/(1+|x|).
func Softsign(x *tensor.Tensor) *tensor.Tensor {
	return once(x, func(x *tensor.Tensor) *tensor.Tensor {
		// Beyond ±1 it is 1/(1/x ± 1): the gradient of the quotient would cancel.
		far := x.Abs().GreaterScalar(1)
		near, away := tensor.Where(far, constant(x, 0), x), tensor.Where(far, x, constant(x, 1))
		return tensor.Where(far, away.Reciprocal().Add(away.Sign()).Reciprocal(), near.Div(near.Abs().AddScalar(1)))
	})
}

// Exponential returns eˣ.
func Exponential(x *tensor.Tensor) *tensor.Tensor { return x.Exp() }

// HardShrink returns x where |x| exceeds threshold, 0 elsewhere.
func HardShrink(x *tensor.Tensor, threshold float64) *tensor.Tensor {
	return once(x, func(x *tensor.Tensor) *tensor.Tensor {
		return tensor.Where(x.Abs().GreaterScalar(threshold), x, constant(x, 0))
	})
}

// SoftShrink returns x moved towards 0 by threshold, 0 where it is nearer.
func SoftShrink(x *tensor.Tensor, threshold float64) *tensor.Tensor {
	return once(x, func(x *tensor.Tensor) *tensor.Tensor {
		above := tensor.Where(x.GreaterScalar(threshold), x.AddScalar(-threshold), constant(x, 0))
		return tensor.Where(x.LessScalar(-threshold), x.AddScalar(threshold), above)
	})
}

// Threshold returns x where it exceeds threshold, value elsewhere.
func Threshold(x *tensor.Tensor, threshold, value float64) *tensor.Tensor {
	return once(x, func(x *tensor.Tensor) *tensor.Tensor {
		return tensor.Where(x.GreaterScalar(threshold), x, constant(x, value))
	})
}
