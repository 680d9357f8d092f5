package preprocessing

import (
	"fmt"
	"math"

	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/layers/internal/support"
)

// Normalization is (x-mean)/√variance with given numbers or with those that
// Adapt computes; training does not change them. It computes in float32
// (float64 for float64 inputs or policies) from the unrounded input. Standard
// deviations below 1e-7 count as 1e-7.
//
// Shapes: [batch …] → the same. Weights, unless Mean is given, not trainable:
// mean and variance, of the sizes of the axes of Axis, and count [], int32,
// the number of elements that Adapt used for each.
type Normalization struct {
	Axis        []int     `default:"-1"` // axes that have statistics of their own; empty: none has
	Mean        []float64 // one number, or one for each place on Axis; default: from Adapt
	Variance    []float64 // as Mean; both or neither are given
	Invert      bool      // whether to undo it: x·√variance + mean
	Name, DType string

	layers.Base
	layers.PassesMask
	mean, variance, count *layers.Weight
	axes                  []int
	sizes                 layers.Shape // of axes
}

// Config returns the fields Name and DType.
func (n *Normalization) Config() layers.Config { return layers.Config{Name: n.Name, DType: n.DType} }

// Build makes the weights for inputs of shape in.
func (n *Normalization) Build(in ...layers.Shape) error {
	s, err := support.Single(in, 1)
	if err != nil {
		return err
	}
	if n.axes, err = support.NormalAxes(s, layers.Defaults(*n).Axis); err != nil {
		return err
	}
	n.sizes = layers.Shape{}
	for _, a := range n.axes {
		d, err := support.KnownAxis(s, a)
		if err != nil {
			return err
		}
		n.sizes = append(n.sizes, d)
	}
	n.SetAutocast(false)
	if n.Mean != nil || n.Variance != nil {
		return n.given()
	}
	if n.mean, err = n.AddWeight("mean", n.sizes, "zeros", layers.NonTrainable(), layers.KeepDType()); err != nil {
		return err
	}
	if n.variance, err = n.AddWeight("variance", n.sizes, "ones", layers.NonTrainable(), layers.KeepDType()); err != nil {
		return err
	}
	n.count, err = n.AddWeight("count", layers.Shape{}, "zeros", layers.Integer())
	return err
}

// given checks Mean and Variance.
func (n *Normalization) given() error {
	size := n.sizes.Size()
	if len(n.Mean) != len(n.Variance) || len(n.Mean) != 1 && len(n.Mean) != size {
		return fmt.Errorf("got %d numbers in Mean and %d in Variance, want 1 or %d in both", len(n.Mean), len(n.Variance), size)
	}
	for _, v := range n.Mean {
		if _, err := support.Finite("Mean", v); err != nil {
			return err
		}
	}
	for _, v := range n.Variance {
		if !(v >= 0) {
			return fmt.Errorf("Variance is %v, want numbers from 0", n.Variance)
		}
	}
	return nil
}

// CheckInput requires the number of axes it was built for, and the sizes of
// those of Axis.
func (n *Normalization) CheckInput(in ...layers.Shape) error {
	return support.CheckAxes(in, n.InputShapes()[0], n.axes, n.sizes)
}

// Adapt computes mean and variance from all batches together, in float64, and
// replaces the results of an earlier Adapt. It builds the layer for the shape
// of the data if it is not built yet. Call it outside Functions.
func (n *Normalization) Adapt(batches ...*tensor.Tensor) (err error) {
	defer tensor.Catch(&err)
	if n.Mean != nil || n.Variance != nil {
		return fmt.Errorf("layer %s: Adapt: Mean and Variance are given, want them left out", layers.SnakeClass(n))
	}
	if len(batches) == 0 {
		return fmt.Errorf("layer %s: Adapt: got no data", layers.SnakeClass(n))
	}
	if n.LayerName() == "" {
		defer layers.ClearName(n)
	}
	var m momentsOf
	for _, x := range batches {
		shape := x.Shape().Clone()
		if len(shape) > 0 {
			shape[0] = tensor.Unknown
		}
		layers.Apply(n, layers.Pass{}, tensor.Placeholder(x.DType(), shape...)) // builds and checks
		data, err := x.Float64s()
		if err != nil {
			return err
		}
		m.add(data, x.Shape(), n.axes)
	}
	if m.count == 0 {
		return fmt.Errorf("layer %s: Adapt: got data without elements", n.Path())
	}
	return n.setMoments(m)
}

// setMoments sets what Adapt has learned; the layer is built.
func (n *Normalization) setMoments(m momentsOf) error {
	for i := range m.squares {
		m.squares[i] /= m.count
	}
	if err := n.mean.Set(m.mean); err != nil {
		return err
	}
	if err := n.variance.Set(m.squares); err != nil {
		return err
	}
	return n.count.Set([]float64{m.count})
}

// hasMoments reports whether the weights are others than those of a new layer.
// Keras's files have a count of 0.
func (n *Normalization) hasMoments() (bool, error) {
	for i, w := range []*layers.Weight{n.mean, n.variance, n.count} {
		data, err := w.Variable.Float64s()
		if err != nil {
			return false, err
		}
		for _, v := range data {
			if v != []float64{0, 1, 0}[i] {
				return true, nil
			}
		}
	}
	return false, nil
}

// Call computes the layer on x.
func (n *Normalization) Call(_ layers.Pass, x *tensor.Tensor) *tensor.Tensor {
	x = x.Cast(support.Widest(n.Policy(), x))
	onAxes := support.Along(x.Shape(), n.axes)
	read := func(w *layers.Weight, given []float64) *tensor.Tensor {
		switch {
		case w != nil:
			return w.Value().CastLike(x).Reshape(onAxes...)
		case len(given) == 1:
			return tensor.Scalar(x.DType(), given[0])
		}
		return support.Constant(x.DType(), given, onAxes...)
	}
	mean := read(n.mean, n.Mean)
	deviation := read(n.variance, n.Variance).Sqrt().MaximumScalar(1e-7)
	if n.Invert {
		return x.Mul(deviation).Add(mean).Cast(n.ComputeDType())
	}
	return x.Sub(mean).Div(deviation).Cast(n.ComputeDType())
}

// momentsOf holds the mean and the sum of squared deviations of what was
// added, for each place on some axes.
type momentsOf struct {
	count         float64 // of each place
	mean, squares []float64
}

// add adds elements of a tensor of the given shape, batch by batch (Chan et
// al. 1983): two passes over each, so that nothing cancels.
func (m *momentsOf) add(data []float64, shape layers.Shape, axes []int) {
	places := 1
	for _, a := range axes {
		places *= shape[a]
	}
	if len(data) == 0 || places == 0 {
		return
	}
	if m.mean == nil {
		m.mean, m.squares = make([]float64, places), make([]float64, places)
	}
	each := func(f func(place int, v float64)) {
		index := make([]int, len(shape))
		for _, v := range data {
			place := 0
			for _, a := range axes {
				place = place*shape[a] + index[a]
			}
			f(place, v)
			for a := len(shape) - 1; a >= 0; a-- {
				if index[a]++; index[a] < shape[a] {
					break
				}
				index[a] = 0
			}
		}
	}
	n := float64(len(data) / places)
	mean, squares := make([]float64, places), make([]float64, places)
	each(func(p int, v float64) { mean[p] += v / n })
	each(func(p int, v float64) { squares[p] += math.Pow(v-mean[p], 2) })
	total := m.count + n
	for p := range mean {
		d := mean[p] - m.mean[p]
		m.mean[p] += d * n / total
		m.squares[p] += squares[p] + d*d*m.count*n/total
	}
	m.count = total
}
