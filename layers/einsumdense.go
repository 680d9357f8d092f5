package layers

import (
	"fmt"
	"slices"
	"strings"

	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/layers/activations"
	"github.com/mezzo-ml/mezzo/layers/callspec"
	"github.com/mezzo-ml/mezzo/layers/internal/support"
)

// EinsumDense computes activation(einsum(Equation, x, kernel) + bias): a dense
// layer over any axes. "abc,cd->abd" is Dense for three axes, "...x,xy->...y"
// for any number.
//
// Shapes: by Equation. Weights: kernel, with the sizes of the letters of the
// second operand, and, with BiasAxes, bias, with the axes of the result from
// the first of BiasAxes on, those not named of size 1. Quantized to int8 (see [Quantize])
// the kernel is int8, and kernel_scale has the axes of the result, of size 1 where the
// kernel has none.
type EinsumDense struct {
	Equation            string  // "x,kernel->result"; required
	OutputShape         PerAxis // of the result without the batch; -1: as the input; without what "..." stands for; required
	BiasAxes            string  // letters of the result that have a bias; default: no bias
	Activation          string  `default:"linear"`
	KernelInitializer   string  `default:"glorot_uniform"`
	BiasInitializer     string  `default:"zeros"`
	KernelRegularizer   string
	BiasRegularizer     string
	ActivityRegularizer string
	KernelConstraint    string
	BiasConstraint      string
	Name, DType         string

	Base
	kernel, bias *Weight
	quantized    *quantized // nil: not its policy
	activation   activations.Func
	equation     equation
}

// Config returns the fields Name and DType.
func (e *EinsumDense) Config() Config { return Config{e.Name, e.DType} }

// Build makes the weights for inputs of shape in.
func (e *EinsumDense) Build(in ...Shape) error {
	c := Defaults(*e)
	s, err := support.Single(in, 1)
	if err != nil {
		return err
	}
	eq, leading, trailing, err := parseEquation(c.Equation, len(s))
	if err == nil {
		err = eq.fits(c.Equation)
	}
	if err != nil {
		return err
	}
	e.equation = eq
	out, err := e.output(s, leading, trailing)
	if err != nil {
		return err
	}
	if e.activation, err = activations.Get(c.Activation); err != nil {
		return err
	}
	if err := e.SetActivityRegularizer(c.ActivityRegularizer); err != nil {
		return err
	}
	shape := make(Shape, 0, len(eq.y))
	for _, l := range eq.y {
		n := tensor.Unknown
		if i := strings.IndexRune(eq.out, l); i >= 0 {
			n = out[i]
		} else {
			n = s[strings.IndexRune(eq.x, l)]
		}
		if n == tensor.Unknown {
			return fmt.Errorf("axis %q of Equation %q has no size in input %v and OutputShape %v, want one: weights depend on it", l, c.Equation, s, []int(c.OutputShape))
		}
		shape = append(shape, n)
	}
	init, err := withFans(c.KernelInitializer, axesIn(eq.y, eq.out, false), axesIn(eq.y, eq.out, true))
	if err != nil {
		return err
	}
	if e.policy.Int8 {
		e.kernel, err = e.AddWeight("kernel", shape, "zeros", Int8())
	} else {
		e.kernel, err = e.AddWeight("kernel", shape, init, Regularizer(c.KernelRegularizer), Constraint(c.KernelConstraint))
	}
	if err != nil {
		return err
	}
	if c.BiasAxes != "" {
		bias, err := e.biasShape(out)
		if err != nil {
			return err
		}
		e.bias, err = e.AddWeight("bias", bias, c.BiasInitializer, Regularizer(c.BiasRegularizer), Constraint(c.BiasConstraint))
		if err != nil {
			return err
		}
	}
	if e.quantized, err = e.addQuantized(e.kernel, eq.alongResult(shape)); err != nil {
		return err
	}
	err = e.addFloat8()
	return err
}

// output is the shape of the result for inputs of shape s.
func (e *EinsumDense) output(s Shape, leading, trailing int) (Shape, error) {
	for _, n := range e.OutputShape {
		if n < 1 && n != tensor.Unknown {
			return nil, fmt.Errorf("OutputShape is %v, want positive numbers, or -1 for sizes of the input", []int(e.OutputShape))
		}
	}
	out := Shape{s[0]}
	if leading > 1 {
		out = append(out, s[1:leading]...)
	}
	out = append(append(out, e.OutputShape...), s[len(s)-trailing:]...)
	if len(out) != len(e.equation.out) {
		return nil, fmt.Errorf("OutputShape is %v, want the axes of the result of Equation %q without the batch", []int(e.OutputShape), e.Equation)
	}
	for i, c := range e.equation.out {
		j := strings.IndexRune(e.equation.x, c)
		if j < 0 {
			continue
		}
		if out[i] == tensor.Unknown {
			out[i] = s[j]
		} else if s[j] != tensor.Unknown && out[i] != s[j] {
			return nil, fmt.Errorf("OutputShape is %v, want %d for axis %q as input %v has, or -1", []int(e.OutputShape), s[j], c, s)
		}
	}
	return out, nil
}

// biasShape returns the shape of a bias for results of shape out.
func (e *EinsumDense) biasShape(out Shape) (Shape, error) {
	letters := e.equation.out
	first := len(letters)
	for _, c := range e.BiasAxes {
		i := strings.IndexRune(letters, c)
		if i < 0 {
			return nil, fmt.Errorf("BiasAxes is %q, want letters of the result of Equation %q", e.BiasAxes, e.Equation)
		}
		if out[i] == tensor.Unknown {
			return nil, fmt.Errorf("BiasAxes is %q, want letters of axes with a size; %q has none", e.BiasAxes, c)
		}
		first = min(first, i)
	}
	shape := out[first:].Clone()
	for i, c := range letters[first:] {
		if !strings.ContainsRune(e.BiasAxes, c) {
			shape[i] = 1
		}
	}
	return shape, nil
}

// CheckInput requires the number of axes it was built for, and the sizes that
// the kernel has.
func (e *EinsumDense) CheckInput(in ...Shape) error {
	var axes []int
	var sizes Shape
	for i, c := range e.equation.x {
		if j := strings.IndexRune(e.equation.y, c); j >= 0 {
			axes, sizes = append(axes, i), append(sizes, e.kernel.Shape()[j])
		}
	}
	return support.CheckAxes(in, e.InputShapes()[0], axes, sizes)
}

// Call computes the layer on x.
func (e *EinsumDense) Call(p Pass, x *tensor.Tensor) *tensor.Tensor {
	support.CheckFloats(x)
	text := e.equation.x + "," + e.equation.y + "->" + e.equation.out
	var y *tensor.Tensor
	if e.quantized != nil {
		y = tensor.QuantizedEinsum(text, x, e.kernel.Variable.Value(), e.quantized.scale.Value())
	} else {
		y = e.float8.product(p, x, e.kernel, func(x, k *tensor.Tensor) *tensor.Tensor { return tensor.Einsum(text, x, k) })
	}
	if e.bias != nil {
		y = y.Add(e.bias.Value())
	}
	return e.activation(y)
}

// withFans tells initializers that scale with the numbers of inputs and
// outputs which axes of the kernel these are, unless the text does.
func withFans(initializer string, inputs, outputs []int) (string, error) {
	s, err := callspec.Parse(initializer)
	if err != nil {
		return "", fmt.Errorf("initializer %w", err)
	}
	family, _, _ := strings.Cut(s.Name, "_")
	if s.Name != "variance_scaling" && !slices.Contains([]string{"glorot", "he", "lecun"}, family) {
		return initializer, nil
	}
	for _, a := range s.Args {
		if a.Name == "input_axes" || a.Name == "output_axes" {
			return initializer, nil
		}
	}
	list := func(axes []int) []any {
		out := make([]any, len(axes))
		for i, a := range axes {
			out[i] = int64(a)
		}
		return out
	}
	s.Args = append(s.Args, callspec.Arg{Name: "input_axes", Value: list(inputs)}, callspec.Arg{Name: "output_axes", Value: list(outputs)})
	return s.String(), nil
}
