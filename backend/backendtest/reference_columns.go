package backendtest

import (
	"math"

	"github.com/mezzo-ml/mezzo/backend/op"
)

func init() { register(columnCases, op.Moments, op.BatchNormReduce, op.BatchNorm) }

func columnCases(b *builder) {
	acc := b.dtype.Accumulator()
	for _, s := range []struct {
		name                 string
		outer, rows, columns int
	}{
		{"one", 1, 1, 1}, {"small", 2, 3, 4}, {"column", 3, 301, 1}, {"narrow", 1, 700, 3}, {"odd", 2, 131, 10}, {"vectors", 2, 129, 64},
		{"uneven", 2, 35, 67}, {"prime", 1, 17, 1031}, {"few", 5, 2, 7}, {"emptyOuter", 0, 3, 4}, {"emptyColumns", 2, 3, 0},
		{"largeRows", 1, 9001, 24}, {"largeColumns", 3, 300, 1100},
	} {
		x := b.t(s.outer, s.rows, s.columns)
		per, each := op.Type{DType: acc, Shape: op.Shape{s.columns}}, op.Type{DType: acc, Shape: op.Shape{s.outer, s.columns}}
		switch b.op {
		case op.Moments:
			b.add(s.name, op.Attr{}, []op.Type{x}, numbers).Large = large(s.name)
		case op.BatchNormReduce:
			b.add(s.name, op.Attr{}, []op.Type{x, each, x}, numbers).Large = large(s.name)
			if b.dtype.Is16() { // of another type than x
				b.add(s.name+suffix(acc), op.Attr{}, []op.Type{x, each, {DType: acc, Shape: x.Shape}}, numbers).Large = large(s.name)
			}
		default:
			a := op.Attr{Epsilon: 1e-3}
			b.add(s.name, a, []op.Type{x, per, per}, numbers).Large = large(s.name)
			if s.columns%2 == 0 && s.columns > 0 {
				a.Groups = s.columns / 2
				b.add(s.name+"Pairs", a, []op.Type{x, per, per}, numbers).Large = large(s.name)
			}
			a.Groups, a.DType = 1, acc
			b.add(s.name+"Together", a, []op.Type{x, per, per}, numbers).Large = large(s.name)
		}
	}
	if b.op != op.BatchNormReduce {
		// Far from 0 the mean of the squares less the square of the mean would
		// have no digit of the variance; nor would deviations from the first row,
		// which is further off.
		args := []op.Type{b.t(1, 60, 5), {DType: acc, Shape: op.Shape{5}}, {DType: acc, Shape: op.Shape{5}}}
		n := b.op.Info().Args
		b.add("far", op.Attr{Epsilon: 1e-3}, args[:n], values(1000, 1001, 1002, 999, 1000), numbers, numbers)
		args[0] = b.t(1, 3, 5)
		b.add("nan", op.Attr{Epsilon: 1e-3}, args[:n], values(1, math.NaN(), 2, 1, 2, 3, 4), numbers, numbers)
	}
}

// columnwise are the operations on the columns of matrices.
var columnwise = map[op.Code]func(op.Attr, op.Type, []array) result{
	op.Moments: func(_ op.Attr, t op.Type, args []array) result {
		r := blank(t)
		acc, _ := t.DType.Tolerance()
		n := len(r.f) / 2
		eachGroup(op.Attr{}, args[0], func(at []int, i int, m group) {
			r.f[i], r.tol[i] = m.mean, acc*m.size
			// The variance is that of deviations from a mean that is as far off.
			r.f[n+i], r.tol[n+i] = m.variance, acc*(3*m.variance+acc*m.size*m.size)
		})
		return r
	},
	op.BatchNormReduce: func(_ op.Attr, t op.Type, args []array) result {
		r := blank(t)
		acc, _ := t.DType.Tolerance()
		n := len(r.f) / 2
		x, center, g := args[0].floats(), args[1].floats(), args[2].floats()
		eachGroup(op.Attr{}, args[0], func(at []int, i int, _ group) {
			for _, k := range at {
				d := x[k] - center[i]
				r.f[i], r.f[n+i] = r.f[i]+g[k], r.f[n+i]+g[k]*d
				r.tol[i], r.tol[n+i] = r.tol[i]+acc*math.Abs(g[k]), r.tol[n+i]+acc*math.Abs(g[k])*(math.Abs(x[k])+math.Abs(center[i]))
			}
		})
		return r
	},
	op.BatchNorm: func(a op.Attr, t op.Type, args []array) result {
		r := blank(t)
		acc, _ := args[0].DType.Accumulator().Tolerance()
		rel, _ := t.DType.Tolerance()
		x, gain, shift := args[0].floats(), args[1].floats(), args[2].floats()
		columns := t.Shape[2]
		eachGroup(a, args[0], func(at []int, _ int, m group) {
			scale := 1 / math.Sqrt(m.variance+a.Epsilon)
			for _, k := range at {
				h := (x[k] - m.mean) * scale
				off := acc * (math.Abs(h) + m.size*scale)
				g, s := gain[k%columns], shift[k%columns]
				y := h*g + s
				r.f[k] = y
				r.tol[k] = rel*math.Abs(y) + off*math.Abs(g) + acc*(math.Abs(h*g)+math.Abs(s)) + t.DType.SmallestSubnormal()
			}
		})
		return r
	},
}

func blank(t op.Type) result {
	n := t.Shape.Size()
	return result{Type: t, f: make([]float64, n), tol: make([]float64, n)}
}

// group is the moments of elements, and their mean size.
type group struct{ mean, variance, size float64 }

// eachGroup calls f with the places of elements of x that have moments in
// common, which group that is, and their moments.
func eachGroup(a op.Attr, x array, f func(at []int, i int, m group)) {
	v := x.floats()
	outer, rows, columns := x.Shape[0], x.Shape[1], x.Shape[2]
	groups := a.Groups
	if groups == 0 {
		groups = columns
	}
	for i := range outer * groups {
		var at []int
		width := columns / groups
		for r := range rows {
			for c := range width {
				at = append(at, (i/groups*rows+r)*columns+i%groups*width+c)
			}
		}
		var m group
		n := float64(len(at))
		for _, k := range at {
			m.mean += v[k] / n
			m.size += math.Abs(v[k]) / n
		}
		for _, k := range at {
			m.variance += (v[k] - m.mean) * (v[k] - m.mean) / n
		}
		f(at, i, m)
	}
}
