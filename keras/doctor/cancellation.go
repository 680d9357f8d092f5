package doctor

import (
	"math"

	"github.com/mezzo-ml/mezzo/backend/op"
)

// cancellation says how much smaller value i, the gradient of a weight, is than the sum
// that it comes from would be if its terms were independent: samples that pull in
// opposite directions leave little, and the rounding errors of all. At least 1.
//
// It looks at the last sum only. What cancels before it does so within a sample. Without
// the statistics that it needs it is 1.
func (r *observed) cancellation(i int) float64 {
	if known, ok := r.cancels[i]; ok {
		return known
	}
	x := r.cancellationOf(i)
	if !(x > 1) || math.IsInf(x, 1) {
		x = 1
	}
	r.cancels[i] = x
	return x
}

func (r *observed) cancellationOf(i int) float64 {
	t := &r.Values[i]
	most := func() (x float64) {
		for _, a := range t.Args {
			if r.Values[a].Type.DType.IsFloat() {
				x = max(x, r.cancellation(a))
			}
		}
		return x
	}
	if t.Shadow == nil { // it moves elements
		if _, all := r.source(i); !all {
			return 1
		}
		return most()
	}
	var expected float64 // of the square of the norm
	switch t.Op {
	case op.Sum, op.Mean:
		a := t.Args[0]
		terms := float64(r.Values[a].Type.Shape.Size()) / float64(max(t.Type.Shape.Size(), 1))
		expected = r.squares(a)
		if t.Op == op.Mean {
			expected /= terms * terms
		}
	case op.MatMul:
		a, b := t.Args[0], t.Args[1]
		m, n := t.Type.Shape, float64(max(t.Type.Shape.Size(), 1))
		batch := n / float64(max(m[len(m)-1]*m[len(m)-2], 1))
		terms := math.Sqrt(float64(r.Values[a].Type.Shape.Size()) * float64(r.Values[b].Type.Shape.Size()) / (n * batch))
		expected = r.squares(a) * r.squares(b) / (batch * terms)
	case op.ConvKernelGrad: // of the input and the gradient of the result
		a, b := t.Args[0], t.Args[1]
		size, shape := r.Values[b].Type.Shape.Size(), r.Values[b].Type.Shape
		terms := float64(size) / float64(max(shape[len(shape)-1], 1))
		expected = float64(t.Type.Shape.Size()) * terms * r.meanSquare(a) * r.meanSquare(b)
	case op.Add, op.Sub: // of the uses of a shared weight, or of steps
		for _, a := range t.Args {
			c := r.cancellation(a)
			expected += c * c * r.squares(a)
		}
	case op.Mul, op.Div, op.Neg, op.Cast, op.RoundE4M3, op.RoundE5M2, op.Where:
		return most()
	}
	return math.Sqrt(expected / t.Shadow.Y.Squares)
}

// squares is the sum of the squares of the shadow of value i, or of what it moves; 0 if
// it is not known.
func (r *observed) squares(i int) float64 {
	size := float64(r.Values[i].Type.Shape.Size())
	i, all := r.source(i)
	if r.Values[i].Shadow == nil || !all {
		return 0
	}
	return r.Values[i].Shadow.Y.Squares * size / float64(max(r.Values[i].Type.Shape.Size(), 1)) // it may repeat elements
}

func (r *observed) meanSquare(i int) float64 {
	return r.squares(i) / float64(max(r.Values[i].Type.Shape.Size(), 1))
}
