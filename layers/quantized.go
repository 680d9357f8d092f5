package layers

import (
	"fmt"
	"math"
	"reflect"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/op"
	"github.com/mezzo-ml/mezzo/backend/tensor"
)

// quantized holds what a layer needs to compute with a matrix of int8 (policies
// int8_from_P): the scales that the matrix was multiplied by. Names, shapes and order of
// the weights are those of Keras.
type quantized struct {
	scale *Weight
}

// addQuantized adds the scales, of the given shape, of a matrix of int8, or returns nil if
// the layer's policy is not quantized. It must be called in Build, after the other weights
// are added.
func (b *Base) addQuantized(matrix *Weight, shape Shape) (*quantized, error) {
	if !b.policy.Int8 {
		return nil, nil
	}
	scale, err := b.AddWeight(matrix.local+"_scale", shape, "ones", NonTrainable())
	return &quantized{scale}, err
}

// static is what a convolution whose policy is int8_static_from_P has besides its kernel of
// int8: the scales that the kernel was multiplied by, and the scale and the zero point that
// turn its input into int8.
type static struct {
	scale, inputsScale, inputsZeroPoint *Weight
}

// addStatic adds these weights to a convolution of some filters. It must be called in Build,
// after the other weights are added.
func (b *Base) addStatic(filters int) (*static, error) {
	if !b.policy.Int8Static {
		return nil, nil
	}
	var s static
	var err error
	if s.scale, err = b.AddWeight("kernel_scale", Shape{filters}, "ones", NonTrainable(), KeepDType()); err == nil {
		s.inputsScale, err = b.AddWeight("inputs_scale", Shape{}, "ones", NonTrainable(), KeepDType())
	}
	if err == nil {
		s.inputsZeroPoint, err = b.AddWeight("inputs_zero_point", Shape{}, "zeros", Int8())
	}
	return &s, err
}

// WeightsInFile returns the layer's own weights, without the weights of layers in it, in
// the order of Keras's files. The order is the same as in Weights; in a quantized layer
// it is the order in which the weights were made.
func (b *Base) WeightsInFile() []*Weight {
	if b.policy.HasInt8() {
		return b.weights
	}
	own := &Base{weights: b.weights}
	return own.Weights()
}

// quantizer is a layer with a quantized form.
type quantizer interface {
	Layer
	// matrix returns the weight to quantize, the axes over which its numbers share a
	// scale, and the shape of the scales.
	matrix() (w **Weight, reduced []int, scales Shape)
	// setQuantized sets the name of the policy and the scales.
	setQuantized(policy string, q *quantized)
}

func (d *Dense) matrix() (**Weight, []int, Shape) {
	return &d.kernel, []int{0}, Shape{d.kernel.Shape()[1]}
}

func (d *Dense) setQuantized(policy string, q *quantized) { d.DType, d.quantized = policy, q }

func (e *EinsumDense) matrix() (**Weight, []int, Shape) {
	return &e.kernel, axesIn(e.equation.y, e.equation.out, false), e.equation.alongResult(e.kernel.Shape())
}

func (e *EinsumDense) setQuantized(policy string, q *quantized) { e.DType, e.quantized = policy, q }

func (e *Embedding) matrix() (**Weight, []int, Shape) {
	return &e.embeddings, []int{1}, Shape{e.embeddings.Shape()[0]}
}

func (e *Embedding) setQuantized(policy string, q *quantized) { e.DType, e.quantized = policy, q }

// Quantizable reports whether a layer has a quantized form: whether its class is Dense,
// EinsumDense or Embedding. Types that embed these have other classes.
func Quantizable(l Layer) bool {
	l, _ = Unwrap(l)
	_, ok := l.(quantizer)
	return ok && reflect.TypeOf(l).Elem().PkgPath() == reflect.TypeOf(Base{}).PkgPath()
}

// Quantize replaces the matrix of l, a built Dense, EinsumDense or Embedding, by one of
// int8 with scales, as Keras's layer.quantize("int8") does, to the bit:
//
//	scale = 127 / (max |w| + 1e-7)    for each output, or for each row of an Embedding
//	q     = clip(round(w·scale), -127, 127), ties to even
//
// all in float32, and the scale then rounded to the type of the variable. The layer's policy P becomes int8_from_P. From
// then on it only predicts: it has no gradient. Initializers, regularizers and constraints
// of the matrix stay in the config and have no effect. It is an error for a layer of another
// class, one that is quantized or not built, and for policies that have no quantized
// form: see policy.Policy.Quantized.
func Quantize(l Layer) error {
	l, _ = Unwrap(l)
	b := l.base()
	fail := func(err error) error { return &tensor.Error{Path: b.Path(), Op: "Quantize", Err: err} }
	if !Quantizable(l) {
		return fail(fmt.Errorf("%s has no quantized form; Dense, EinsumDense and Embedding have", Class(l)))
	}
	if !b.built {
		return fail(fmt.Errorf("the layer is not built; call it on data first"))
	}
	to, err := b.policy.Quantized()
	if err != nil {
		return fail(err)
	}
	q := l.(quantizer)
	place, reduced, shape := q.matrix()
	scale, err := b.quantize(place, reduced, shape, b.policy.Compute)
	if err != nil {
		return fail(err)
	}
	b.policy, b.named, b.follows = to, true, false
	q.setQuantized(to.Name, &quantized{scale})
	return nil
}

// quantize replaces a weight by one of int8 and adds its scales, of the given shape, which
// layers read in type compute. Numbers share a scale over the reduced axes.
func (b *Base) quantize(place **Weight, reduced []int, shape Shape, compute dtype.DType) (scale *Weight, err error) {
	old := *place
	values, err := old.Variable.Float64s()
	if err != nil {
		return nil, err
	}
	integers, scales := quantizeAbsMax(values, old.Shape(), reduced)
	store := old.DType()
	if compute == dtype.Float32 { // as KeepDType
		store = dtype.Promote(store, compute)
	}
	if scale, err = b.constantWeight(old.local+"_scale", store, shape, scales); err != nil {
		return nil, err
	}
	scale.compute = compute
	replaced, err := b.constantWeight(old.local, dtype.Int8, old.Shape(), integers)
	if err != nil {
		return nil, err
	}
	for i, w := range b.weights {
		if w == old {
			b.weights[i] = replaced
		}
	}
	*place = replaced
	b.weights = append(b.weights, scale)
	return scale, nil
}

// constantWeight returns a weight that is not trainable. The layer does not have it yet.
func (b *Base) constantWeight(local string, d dtype.DType, shape Shape, values []float64) (*Weight, error) {
	w := &Weight{local: local, compute: d}
	w.Variable = tensor.NewVariable(b.Path()+"/"+local, d, shape, func(dst []float64) error {
		if d != dtype.Int8 {
			for i := range dst { // as in a layer that is built with the policy
				dst[i] = 1
			}
		}
		return nil
	})
	w.SetTrainable(false)
	return w, w.Set(values)
}

// convolutionOf returns the parts of l that static quantization changes; ok is false for layers
// without a statically quantized form.
func convolutionOf(l Layer) (c *convolution, kernel **Weight, name *string, ok bool) {
	switch l := l.(type) {
	case *Conv1D:
		return &l.conv, &l.kernel, &l.DType, true
	case *Conv2D:
		return &l.conv, &l.kernel, &l.DType, true
	case *Conv3D:
		return &l.conv, &l.kernel, &l.DType, true
	case *DepthwiseConv1D:
		return &l.conv, &l.kernel, &l.DType, l.DepthMultiplier == nil || *l.DepthMultiplier == 1
	case *DepthwiseConv2D:
		return &l.conv, &l.kernel, &l.DType, l.DepthMultiplier == nil || *l.DepthMultiplier == 1
	}
	return nil, nil, nil, false
}

// QuantizableStatic reports whether a layer has a statically quantized form. Conv1D, Conv2D,
// Conv3D and, with DepthMultiplier 1, DepthwiseConv1D and DepthwiseConv2D have one; types that
// embed them do not.
func QuantizableStatic(l Layer) bool {
	l, _ = Unwrap(l)
	_, _, _, ok := convolutionOf(l)
	return ok
}

// QuantizeStatic replaces the kernel of l, a built Conv1D, Conv2D, Conv3D, DepthwiseConv1D or
// DepthwiseConv2D, by one of int8 with a scale for each channel of the result, as [Quantize]
// does, and gives its input a scale and a zero point: numbers from low to high, and 0, become
// integers from -128 to 127, and others are clipped.
//
//	inputs_scale      = 255 / (max(high, 0) - min(low, 0)), 1 if that is 0
//	inputs_zero_point = round(-128 - min(low, 0)·inputs_scale)
//	q                 = inputs_zero_point + round(x·inputs_scale)
//
// The layer's policy P becomes int8_static_from_P. From then on it only predicts: it has no
// gradient. Initializers, regularizers and constraints of the kernel stay in the config and
// have no effect. It is an error for a layer of another class, one that is quantized or not
// built, for policies that have no quantized form (see policy.Policy.Quantized), and if
// low and high are no numbers of float32, or high is less than low.
func QuantizeStatic(l Layer, low, high float64) error {
	l, _ = Unwrap(l)
	b := l.base()
	fail := func(err error) error { return &tensor.Error{Path: b.Path(), Op: "QuantizeStatic", Err: err} }
	c, kernel, name, ok := convolutionOf(l)
	if !ok {
		return fail(fmt.Errorf("%s has no statically quantized form; Conv1D, Conv2D, Conv3D and, with DepthMultiplier 1, DepthwiseConv1D and DepthwiseConv2D have", Class(l)))
	}
	if !b.built {
		return fail(fmt.Errorf("the layer is not built; call it on data first"))
	}
	if !(math.Abs(low) <= math.MaxFloat32 && math.Abs(high) <= math.MaxFloat32 && low <= high) {
		return fail(fmt.Errorf("inputs are from %g to %g, want two finite numbers in order", low, high))
	}
	to, err := b.policy.QuantizedStatic()
	if err != nil {
		return fail(err)
	}
	low, high = min(low, 0), max(high, 0)
	inputsScale := float32(1)
	if s := float32(255 / (high - low)); s <= math.MaxFloat32 {
		inputsScale = s
	}
	zero := min(max(math.RoundToEven(-128-low*float64(inputsScale)), -128), 127)
	var s static
	if s.inputsScale, err = b.constantWeight("inputs_scale", dtype.Float32, Shape{}, []float64{float64(inputsScale)}); err != nil {
		return fail(err)
	}
	if s.inputsZeroPoint, err = b.constantWeight("inputs_zero_point", dtype.Int8, Shape{}, []float64{zero}); err != nil {
		return fail(err)
	}
	// Kernels are [window… channels filters], those of depthwise convolutions [window… channels 1].
	shape := (*kernel).Shape()
	last := len(shape) - 1
	switch l.(type) {
	case *DepthwiseConv1D, *DepthwiseConv2D:
		last--
	}
	var reduced []int
	for a := range shape {
		if a != last {
			reduced = append(reduced, a)
		}
	}
	if s.scale, err = b.quantize(kernel, reduced, Shape{shape[last]}, dtype.Float32); err != nil {
		return fail(err)
	}
	b.weights = append(b.weights, s.inputsScale, s.inputsZeroPoint)
	b.policy, b.named, b.follows = to, true, false
	*name, c.static = to.Name, &s
	return nil
}

// Observe makes later calls of l call f with its input first, in its compute type; nil ends
// that. Calibration uses it.
func Observe(l Layer, f func(x *tensor.Tensor)) {
	l, _ = Unwrap(l)
	l.base().observe = f
}

// quantizeAbsMax returns the integers of w and the scales that they share along the reduced axes, in the order of the axes that are left.
func quantizeAbsMax(w []float64, shape Shape, reduced []int) (integers, scales []float64) {
	of := make([]int, len(w)) // the scale of each number
	index := make([]int, len(shape))
	stride := make([]int, len(shape))
	groups := 1
	for a := len(shape) - 1; a >= 0; a-- {
		if !contains(reduced, a) {
			stride[a], groups = groups, groups*shape[a]
		}
	}
	for i := range w {
		for a, n := range index {
			of[i] += n * stride[a]
		}
		for a := len(shape) - 1; a >= 0; a-- {
			if index[a]++; index[a] < shape[a] {
				break
			}
			index[a] = 0
		}
	}
	largest := make([]float32, groups)
	for i, x := range w {
		largest[of[i]] = max(largest[of[i]], float32(math.Abs(x)))
	}
	scale := make([]float32, groups)
	scales = make([]float64, groups)
	for i, x := range largest {
		scale[i] = op.QuantizeLimit / (x + op.QuantizeEpsilon)
		scales[i] = float64(scale[i])
	}
	integers = make([]float64, len(w))
	for i, x := range w {
		q := math.RoundToEven(float64(float32(x) * scale[of[i]]))
		if q == q { // not of a number that is not finite
			integers[i] = min(max(q, -op.QuantizeLimit), op.QuantizeLimit)
		}
	}
	return integers, scales
}

func contains(list []int, x int) bool {
	for _, y := range list {
		if x == y {
			return true
		}
	}
	return false
}
