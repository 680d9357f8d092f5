package op

import (
	"fmt"

	"github.com/mezzo-ml/mezzo/backend/dtype"
)

// Normalization of the rows of a matrix x: (x-mean)/√(v+Epsilon)·gain + shift, with the
// mean and the biased variance v of a row. With Attr.Uncentered the mean is 0 and v the
// mean of the squares. All arithmetic is in the accumulator's type.

func inferLayerNorm(a Attr, t []Type) (Type, error) {
	if err := wantFeatures(t[0], t[1:3]); err != nil {
		return Type{}, err
	}
	if a.DType == dtype.Invalid {
		a.DType = t[0].DType
	}
	if !a.DType.IsFloat() {
		return Type{}, fmt.Errorf("the result would be %v, want a float type", a.DType)
	}
	return Type{a.DType, t[0].Shape}, nil
}

func inferLayerNormGrad(_ Attr, t []Type) (Type, error) {
	x, g := t[0], t[2]
	if err := wantFeatures(x, t[1:2]); err != nil {
		return Type{}, err
	}
	if !x.Shape.Known() {
		return Type{}, fmt.Errorf("got %v, want a known shape", x)
	}
	if !g.DType.IsFloat() || !g.Shape.Equal(x.Shape) {
		return Type{}, fmt.Errorf("gradient %v of %v, want floats of its shape", g, x)
	}
	return Type{x.DType.Accumulator(), Shape{x.Shape.Size() + 2*x.Shape[1]}}, nil
}

// layerNormGradResults are the gradients of x, gain and shift.
func layerNormGradResults(_ Attr, t []Type) []Section {
	x, gain := t[0].Shape, t[1].Shape
	n, features := x.Size(), gain[0]
	return []Section{{0, x}, {n, gain}, {n + features, gain}}
}

// wantFeatures checks a matrix of floats and its vectors with a number per column.
func wantFeatures(x Type, of []Type) error {
	if !x.DType.IsFloat() || len(x.Shape) != 2 || x.Shape[1] == Unknown {
		return fmt.Errorf("got %v, want a matrix of floats", x)
	}
	want := Type{x.DType.Accumulator(), x.Shape[1:]}
	for _, u := range of {
		if !u.Equal(want) {
			return fmt.Errorf("gain or shift %v of %v, want %v", u, x, want)
		}
	}
	return nil
}

// normalization records the common steps of the expansions.
type normalization struct {
	Recorder
	attr Attr
	x    Ref // in the accumulator's type
}

func newNormalization(r Recorder, a Attr, x Ref) normalization {
	return normalization{r, a, r.Record(Cast, Attr{DType: r.TypeOf(x).DType.Accumulator()}, x)}
}

func (n normalization) mean(x Ref) Ref {
	return n.Record(Mean, Attr{Axes: []int{1}, KeepDims: true}, x)
}

// normalized returns (x-mean)/√(v+Epsilon), and the factor 1/√(v+Epsilon).
func (n normalization) normalized() (h, scale Ref) {
	h = n.x
	if !n.attr.Uncentered {
		h = n.Record(Sub, Attr{}, h, n.mean(h))
	}
	epsilon := n.Record(Const, Attr{DType: n.TypeOf(n.x).DType, Dims: Shape{}, Value: n.attr.Epsilon})
	variance := n.mean(n.Record(Square, Attr{}, h))
	scale = n.Record(Rsqrt, Attr{}, n.Record(Add, Attr{}, variance, epsilon))
	return n.Record(Mul, Attr{}, h, scale), scale
}

func expandLayerNorm(r Recorder, a Attr, args []Ref) Ref {
	h, _ := newNormalization(r, a, args[0]).normalized()
	y := r.Record(Add, Attr{}, r.Record(Mul, Attr{}, h, args[1]), args[2])
	if a.DType == dtype.Invalid {
		a.DType = r.TypeOf(args[0]).DType
	}
	return r.Record(Cast, Attr{DType: a.DType}, y)
}

// expandLayerNormGrad: the gradient of x is the gradient through the gain, less its
// mean and its component along the normalized x, which normalization removes.
func expandLayerNormGrad(r Recorder, a Attr, args []Ref) Ref {
	n := newNormalization(r, a, args[0])
	h, scale := n.normalized()
	g := r.Record(Cast, Attr{DType: r.TypeOf(n.x).DType}, args[2])
	gained := r.Record(Mul, Attr{}, g, args[1])
	dx := r.Record(Sub, Attr{}, gained, r.Record(Mul, Attr{}, h, n.mean(r.Record(Mul, Attr{}, gained, h))))
	if !a.Uncentered {
		dx = r.Record(Sub, Attr{}, dx, n.mean(gained))
	}
	dx = r.Record(Mul, Attr{}, dx, scale)
	sum := func(x Ref) Ref { return r.Record(Sum, Attr{Axes: []int{0}}, x) }
	all := r.Record(Reshape, Attr{Dims: Shape{r.TypeOf(dx).Shape.Size()}}, dx)
	return r.Record(Concat, Attr{Axes: []int{0}}, all, sum(r.Record(Mul, Attr{}, g, h)), sum(g))
}
