package layertest

import (
	"context"
	"math"
	"slices"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/layers"
)

// derivative is that of a loss in one random direction in the space of all
// trainable weights and float inputs.
type derivative struct {
	value float64
	terms float64 // Σ|gradient·direction|: the scale of rounding errors
}

// results of one evaluation of the loss Σ y·r with r random.
type results struct {
	Loss  *tensor.Tensor
	Grads []*tensor.Tensor // by trainable weights, then by float inputs
}

// straightThrough is a layer whose gradients in training are not the
// derivatives of what it computes, on purpose.
type straightThrough interface{ StraightThrough() }

// gradients checks the derivative of the loss: under float64 against a central
// difference, under other policies against float64's, which it keeps in exact.
func (c *check) gradients(exact map[bool]derivative) {
	c.Helper()
	for _, training := range []bool{false, true} {
		l, y := c.layer()
		if !slices.ContainsFunc(y.Unpack(), func(p *tensor.Tensor) bool { return p.DType().IsFloat() }) {
			return
		}
		e := c.newEvaluation(l, training)
		d := e.derivative()
		if layers.BaseOf(l).ComputeDType() != dtype.Float64 {
			want, ok := exact[training]
			if !ok {
				continue // the layer has an own policy
			}
			// Eight rounded results one after the other: the forward pass, and
			// as much again backward.
			rel, abs := layers.BaseOf(l).ComputeDType().Tolerance()
			if err := math.Abs(d.value - want.value); !(err <= 8*(rel*want.terms+abs)) {
				c.Errorf("training %v: derivative in a random direction: got %v, want %v as in float64", training, d.value, want.value)
			}
			continue
		}
		exact[training] = d
		if _, ok := l.(straightThrough); ok && training {
			continue
		}
		// Rounding error of the difference: 2⁻⁵³·|loss|/h ≈ 1e-10; truncation
		// error: h²/6 times the third derivative, 1e-10 where that is 6. The
		// tolerance leaves room for ten thousand times both; a wrong formula
		// is off by far more.
		const h = 1e-5
		diff := (e.loss(h) - e.loss(-h)) / (2 * h)
		if !(math.Abs(d.value-diff) <= 1e-6*(1+d.terms)) {
			c.Errorf("training %v: derivative in a random direction: got %v, want %v by finite differences", training, d.value, diff)
		}
	}
}

// evaluation computes losses around one point.
type evaluation struct {
	c         *check
	f         *tensor.Func[*tensor.Tensor, results]
	vars      []*tensor.Variable // trainable
	layer     layers.Layer
	first     [][]byte    // all its variables
	weights   [][]float64 // of vars
	input     *tensor.Tensor
	direction [][]float64 // for vars, then for float inputs
}

func (c *check) newEvaluation(l layers.Layer, training bool) *evaluation {
	c.Helper()
	e := &evaluation{c: c, layer: l, input: c.input(0)}
	b := layers.BaseOf(l)
	sizes := []int{}
	for _, w := range b.TrainableWeights() {
		e.vars = append(e.vars, w.Variable)
		sizes = append(sizes, w.Shape().Size())
		data, err := w.Float64s()
		if err != nil {
			c.Fatal(err)
		}
		e.weights = append(e.weights, data)
	}
	e.first = c.snapshot(l)
	for _, x := range e.input.Unpack() {
		if x.DType().IsFloat() {
			sizes = append(sizes, x.Shape().Size())
		}
	}
	var norm float64
	for i, n := range sizes {
		e.direction = append(e.direction, numbers(200+uint64(i), n))
		for _, x := range e.direction[i] {
			norm += x * x
		}
	}
	for _, d := range e.direction {
		for i := range d {
			d[i] /= math.Sqrt(norm)
		}
	}
	e.f = tensor.Function(func(x *tensor.Tensor) results {
		y := layers.Apply(l, layers.Pass{Training: training}, x)
		loss := total(y, func(y *tensor.Tensor, i uint64) *tensor.Tensor {
			return y.Mul(normal(300+i, y.Type())).Sum()
		})
		var inputs []*tensor.Tensor
		for _, p := range x.Unpack() {
			if p.DType().IsFloat() {
				inputs = append(inputs, p)
			}
		}
		grads := append(tensor.Gradients(loss, e.vars), tensor.GradientsAt(loss, inputs...)...)
		for i, g := range grads {
			switch {
			case g != nil:
			case i < len(e.vars):
				tensor.Fail("Gradients", "weight %s has no gradient", e.vars[i].Name())
			default: // finite differences tell whether the input matters
				p := inputs[i-len(e.vars)]
				grads[i] = tensor.Zeros(p.DType(), p.Shape()...)
			}
		}
		return results{loss, grads}
	}, b)
	return e
}

// at evaluates the loss a distance h along the direction, from the first
// values of all variables.
func (e *evaluation) at(h float64) results {
	e.c.Helper()
	e.c.restore(e.layer, e.first)
	for i, v := range e.vars {
		if err := v.Set(along(e.weights[i], e.direction[i], h)); err != nil {
			e.c.Fatal(err)
		}
	}
	var parts []*tensor.Tensor
	next := len(e.vars)
	for _, x := range e.input.Unpack() {
		if x.DType().IsFloat() {
			data, err := x.Float64s()
			if err != nil {
				e.c.Fatal(err)
			}
			x = of(x.Type(), along(data, e.direction[next], h))
			next++
		}
		parts = append(parts, x)
	}
	x := parts[0]
	if len(parts) > 1 {
		x = tensor.Tuple(parts...)
	}
	r, err := e.f.Call(context.Background(), x)
	if err != nil {
		e.c.Fatal(err)
	}
	return r
}

func along(x, direction []float64, h float64) []float64 {
	y := make([]float64, len(x))
	for i := range x {
		y[i] = x[i] + h*direction[i]
	}
	return y
}

func (e *evaluation) loss(h float64) float64 {
	e.c.Helper()
	v, err := e.at(h).Loss.Item()
	if err != nil {
		e.c.Fatal(err)
	}
	return v
}

func (e *evaluation) derivative() (d derivative) {
	e.c.Helper()
	for i, g := range e.at(0).Grads {
		if i < len(e.vars) && g.DType() != e.vars[i].DType() {
			e.c.Errorf("gradient of %s: got %v, want the type of the variable %v", e.vars[i].Name(), g.Type(), e.vars[i].Type())
		}
		data, err := g.Float64s()
		if err != nil {
			e.c.Fatal(err)
		}
		for j, x := range data {
			d.value += x * e.direction[i][j]
			d.terms += math.Abs(x * e.direction[i][j])
		}
	}
	return d
}
