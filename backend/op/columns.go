package op

import (
	"fmt"

	"github.com/mezzo-ml/mezzo/backend/dtype"
)

// Operations on columns take O matrices x [O R C] and reduce the R rows of each. Batch
// normalization has one matrix, whose rows are all positions of all samples; group
// normalization has one per sample. All arithmetic is in the accumulator's type.

// wantColumns checks matrices of floats with a known number of columns.
func wantColumns(x Type) error {
	if !x.DType.IsFloat() || len(x.Shape) != 3 || x.Shape[2] == Unknown {
		return fmt.Errorf("got %v, want matrices of floats [n rows columns]", x)
	}
	return nil
}

func inferMoments(_ Attr, t []Type) (Type, error) {
	x := t[0]
	if err := wantColumns(x); err != nil {
		return Type{}, err
	}
	return Type{x.DType.Accumulator(), Shape{2, x.Shape[0], x.Shape[2]}}, nil
}

func inferBatchNormReduce(_ Attr, t []Type) (Type, error) {
	x, center, g := t[0], t[1], t[2]
	if err := wantColumns(x); err != nil {
		return Type{}, err
	}
	if want := (Type{x.DType.Accumulator(), Shape{x.Shape[0], x.Shape[2]}}); !center.Equal(want) {
		return Type{}, fmt.Errorf("centers %v of %v, want %v", center, x, want)
	}
	if !g.DType.IsFloat() || !g.Shape.Equal(x.Shape) {
		return Type{}, fmt.Errorf("gradient %v of %v, want floats of its shape", g, x)
	}
	return Type{x.DType.Accumulator(), Shape{2, x.Shape[0], x.Shape[2]}}, nil
}

func inferBatchNorm(a Attr, t []Type) (Type, error) {
	x := t[0]
	if err := wantColumns(x); err != nil {
		return Type{}, err
	}
	want := Type{x.DType.Accumulator(), x.Shape[2:]}
	for _, u := range t[1:] {
		if !u.Equal(want) {
			return Type{}, fmt.Errorf("gain or shift %v of %v, want %v", u, x, want)
		}
	}
	if a.Groups < 0 || a.Groups > 0 && x.Shape[2]%a.Groups != 0 {
		return Type{}, fmt.Errorf("%d groups of the columns of %v, want a number that divides them", a.Groups, x)
	}
	if a.DType == dtype.Invalid {
		a.DType = x.DType
	}
	if !a.DType.IsFloat() {
		return Type{}, fmt.Errorf("the result would be %v, want a float type", a.DType)
	}
	return Type{a.DType, x.Shape}, nil
}

// perColumn reshapes [O C], a number per column of each matrix, to broadcast with the
// matrices.
func perColumn(r Recorder, x Ref) Ref {
	s := r.TypeOf(x).Shape
	return r.Record(Reshape, Attr{Dims: Shape{s[0], 1, s[1]}}, x)
}

// pair joins two results of one shape to [2 …].
func pair(r Recorder, x, y Ref) Ref {
	dims := append(Shape{1}, r.TypeOf(x).Shape...)
	return r.Record(Concat, Attr{Axes: []int{0}}, r.Record(Reshape, Attr{Dims: dims}, x), r.Record(Reshape, Attr{Dims: dims}, y))
}

// half returns result i of a pair.
func half(r Recorder, p Ref, i int) Ref {
	s := r.TypeOf(p).Shape
	start, limit, stride := make([]int, len(s)), s.Clone(), make([]int, len(s))
	start[0], limit[0] = i, i+1
	for k := range stride {
		stride[k] = 1
	}
	one := r.Record(Slice, Attr{Start: start, Limit: limit, Stride: stride}, p)
	return r.Record(Reshape, Attr{Dims: s[1:]}, one)
}

func expandMoments(r Recorder, _ Attr, args []Ref) Ref {
	x := r.Record(Cast, Attr{DType: r.TypeOf(args[0]).DType.Accumulator()}, args[0])
	mean := r.Record(Mean, Attr{Axes: []int{1}}, x)
	d := r.Record(Sub, Attr{}, x, perColumn(r, mean))
	return pair(r, mean, r.Record(Mean, Attr{Axes: []int{1}}, r.Record(Square, Attr{}, d)))
}

func expandBatchNormReduce(r Recorder, _ Attr, args []Ref) Ref {
	wide := Attr{DType: r.TypeOf(args[0]).DType.Accumulator()}
	x, g := r.Record(Cast, wide, args[0]), r.Record(Cast, wide, args[2])
	sum := func(x Ref) Ref { return r.Record(Sum, Attr{Axes: []int{1}}, x) }
	return pair(r, sum(g), sum(r.Record(Mul, Attr{}, g, r.Record(Sub, Attr{}, x, perColumn(r, args[1])))))
}

// ColumnStatistics returns the mean and 1/√(variance+Epsilon) that BatchNorm with
// attributes a uses for each column, both [O C], for the Moments of its argument.
func ColumnStatistics(r Recorder, a Attr, moments Ref) (mean, scale Ref) {
	mean, variance := half(r, moments, 0), half(r, moments, 1)
	t := r.TypeOf(mean)
	if a.Groups > 0 && a.Groups < t.Shape[1] {
		// Columns have equal numbers of rows, so the moments of a group are means.
		dims := Shape{t.Shape[0], a.Groups, t.Shape[1] / a.Groups}
		of := func(x Ref) Ref { return r.Record(Mean, Attr{Axes: []int{2}, KeepDims: true}, x) }
		each := func(x Ref) Ref {
			return r.Record(Reshape, Attr{Dims: t.Shape}, r.Record(BroadcastTo, Attr{Dims: dims}, x))
		}
		columns := r.Record(Reshape, Attr{Dims: dims}, mean)
		common := of(columns)
		off := r.Record(Square, Attr{}, r.Record(Sub, Attr{}, columns, common))
		variance = each(of(r.Record(Add, Attr{}, r.Record(Reshape, Attr{Dims: dims}, variance), off)))
		mean = each(common)
	}
	epsilon := r.Record(Const, Attr{DType: t.DType, Dims: Shape{}, Value: a.Epsilon})
	return mean, r.Record(Rsqrt, Attr{}, r.Record(Add, Attr{}, variance, epsilon))
}

func expandBatchNorm(r Recorder, a Attr, args []Ref) Ref {
	x := r.TypeOf(args[0])
	mean, scale := ColumnStatistics(r, a, r.Record(Moments, Attr{}, args[0]))
	scale = r.Record(Mul, Attr{}, scale, args[1])
	wide := r.Record(Cast, Attr{DType: x.DType.Accumulator()}, args[0])
	y := r.Record(Mul, Attr{}, r.Record(Sub, Attr{}, wide, perColumn(r, mean)), perColumn(r, scale))
	if a.DType == dtype.Invalid {
		a.DType = x.DType
	}
	return r.Record(Cast, Attr{DType: a.DType}, r.Record(Add, Attr{}, y, args[2]))
}
