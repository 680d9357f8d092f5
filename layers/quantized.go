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

// WeightsInFile returns the layer's own weights, without the weights of layers in it, in
// the order of Keras's files. The order is the same as in Weights; in a quantized layer
// it is the order in which the weights were made.
func (b *Base) WeightsInFile() []*Weight {
	if b.policy.Int8 {
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
	old := *place
	values, err := old.Variable.Float64s()
	if err != nil {
		return fail(err)
	}
	integers, scales := quantizeAbsMax(values, old.Shape(), reduced)
	replaced := &Weight{local: old.local, compute: dtype.Int8}
	replaced.Variable = tensor.NewVariable(old.Name(), dtype.Int8, old.Shape(), nil)
	scale := &Weight{local: old.local + "_scale", compute: b.policy.Compute}
	scale.Variable = tensor.NewVariable(old.Name()+"_scale", old.DType(), shape, func(dst []float64) error {
		for i := range dst { // as in a layer that is built with the policy
			dst[i] = 1
		}
		return nil
	})
	for _, w := range []*Weight{replaced, scale} {
		w.SetTrainable(false)
	}
	if err := replaced.Set(integers); err != nil {
		return fail(err)
	}
	if err := scale.Set(scales); err != nil {
		return fail(err)
	}
	for i, w := range b.weights {
		if w == old {
			b.weights[i] = replaced
		}
	}
	*place = replaced
	b.weights = append(b.weights, scale)
	b.policy, b.named, b.follows = to, true, false
	q.setQuantized(to.Name, &quantized{scale})
	return nil
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
