package layers

import (
	"fmt"

	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/layers/activations"
	"github.com/mezzo-ml/mezzo/layers/internal/support"
)

// Dense computes activation(x·kernel + bias) over the last axis of x.
//
// Shapes: [batch … features] → [batch … Units], with at least two axes.
// Weights: kernel [features Units], bias [Units]. Quantized to int8 (see [Quantize]) they
// are kernel, int8 [features Units], bias [Units] and kernel_scale [Units].
type Dense struct {
	Units               int    // size of the output; required
	Activation          string `default:"linear"`
	UseBias             *bool  `default:"true"`
	KernelInitializer   string `default:"glorot_uniform"`
	BiasInitializer     string `default:"zeros"`
	KernelRegularizer   string
	BiasRegularizer     string
	ActivityRegularizer string
	KernelConstraint    string
	BiasConstraint      string
	Name, DType         string

	Base
	PassesMask
	kernel, bias *Weight
	quantized    *quantized // nil: not its policy
	activation   activations.Func
}

// Config returns the fields Name and DType.
func (d *Dense) Config() Config { return Config{d.Name, d.DType} }

// Build makes the weights for inputs of shape in.
func (d *Dense) Build(in ...Shape) (err error) {
	c := Defaults(*d)
	if c.Units <= 0 {
		return fmt.Errorf("Units is %d, want a positive number", c.Units)
	}
	features, err := support.LastAxis(in)
	if err != nil {
		return err
	}
	if d.activation, err = activations.Get(c.Activation); err != nil {
		return err
	}
	if err := d.SetActivityRegularizer(c.ActivityRegularizer); err != nil {
		return err
	}
	if d.policy.Int8 {
		d.kernel, err = d.AddWeight("kernel", Shape{features, c.Units}, "zeros", Int8())
	} else {
		d.kernel, err = d.AddWeight("kernel", Shape{features, c.Units}, c.KernelInitializer,
			Regularizer(c.KernelRegularizer), Constraint(c.KernelConstraint))
	}
	if err == nil && *c.UseBias {
		d.bias, err = d.AddWeight("bias", Shape{c.Units}, c.BiasInitializer,
			Regularizer(c.BiasRegularizer), Constraint(c.BiasConstraint))
	}
	if err != nil {
		return err
	}
	if d.quantized, err = d.addQuantized(d.kernel, Shape{c.Units}); err != nil {
		return err
	}
	err = d.addFloat8()
	return err
}

// CheckInput requires at least two axes and the number of features of the
// kernel.
func (d *Dense) CheckInput(in ...Shape) error {
	features, err := support.LastAxis(in)
	if want := d.kernel.Shape()[0]; err == nil && features != want {
		return fmt.Errorf("the last axis of input %v is %d, want %d", in[0], features, want)
	}
	return err
}

// Call computes the layer on x.
func (d *Dense) Call(p Pass, x *tensor.Tensor) *tensor.Tensor {
	support.CheckFloats(x)
	return d.activation(support.OverLast(x, d.Units, func(x *tensor.Tensor) *tensor.Tensor {
		var y *tensor.Tensor
		if d.quantized != nil {
			y = x.QuantizedMatMul(d.kernel.Variable.Value(), d.quantized.scale.Value())
		} else {
			y = d.float8.product(p, x, d.kernel, (*tensor.Tensor).MatMul)
		}
		if d.bias != nil {
			y = y.Add(d.bias.Value())
		}
		return y
	}))
}
