package backendtest

import (
	"math"

	"github.com/mezzo-ml/mezzo/backend/op"
)

func init() { register(normalizeCases, op.LayerNorm, op.LayerNormGrad) }

func normalizeCases(b *builder) {
	acc := b.dtype.Accumulator()
	for _, s := range []struct {
		name           string
		rows, features int
	}{
		{"one", 1, 1}, {"small", 3, 5}, {"odd", 7, 33}, {"vectors", 4, 64}, {"tall", 301, 3}, {"wide", 2, 9001},
		{"emptyRows", 0, 4}, {"emptyFeatures", 3, 0}, {"largeRows", 700, 130},
	} {
		for _, uncentered := range []bool{false, true} {
			name := s.name
			if uncentered {
				name += "Uncentered"
			}
			a := op.Attr{Epsilon: 1e-3, Uncentered: uncentered}
			x, per := b.t(s.rows, s.features), op.Type{DType: acc, Shape: op.Shape{s.features}}
			third := per
			if b.op == op.LayerNormGrad {
				third = x
			}
			b.add(name, a, []op.Type{x, per, third}, numbers).Large = large(s.name)
			if b.op == op.LayerNorm && b.dtype.Is16() {
				a.DType = acc
				b.add(name+suffix(acc), a, []op.Type{x, per, third}, numbers)
			}
		}
	}
	// Far from 0 the mean of the squares less the square of the mean would
	// have no digit of the variance.
	far := values(1000, 1001, 1002, 999, 1000)
	x, per := b.t(3, 40), op.Type{DType: acc, Shape: op.Shape{40}}
	if b.op == op.LayerNorm {
		b.add("far", op.Attr{Epsilon: 1e-3}, []op.Type{x, per, per}, far, numbers, numbers)
		b.add("nan", op.Attr{Epsilon: 1e-3}, []op.Type{b.t(2, 3), {DType: acc, Shape: op.Shape{3}}, {DType: acc, Shape: op.Shape{3}}}, values(1, math.NaN(), 2, 1, 2, 3), numbers, numbers)
	}
}

// normalizations are LayerNorm and its gradient.
var normalizations = map[op.Code]func(op.Attr, op.Type, []array) result{
	op.LayerNorm: func(a op.Attr, t op.Type, args []array) result {
		r := result{Type: t, f: make([]float64, t.Shape.Size()), tol: make([]float64, t.Shape.Size())}
		gain, shift := args[1].floats(), args[2].floats()
		rel, _ := t.DType.Tolerance()
		eachNormalized(a, args[0], func(at int, h, off []float64, scale, acc float64) {
			for i := range h {
				y := h[i]*gain[i] + shift[i]
				r.f[at+i] = y
				r.tol[at+i] = rel*math.Abs(y) + off[i]*math.Abs(gain[i]) + acc*(math.Abs(h[i]*gain[i])+math.Abs(shift[i])) + t.DType.SmallestSubnormal()
			}
		})
		return r
	},
	op.LayerNormGrad: func(a op.Attr, t op.Type, args []array) result {
		r := result{Type: t, f: make([]float64, t.Shape.Size()), tol: make([]float64, t.Shape.Size())}
		gain, grad := args[1].floats(), args[2].floats()
		n := args[0].Shape.Size()
		add := func(at int, x, tol float64) {
			r.f[at] += x
			r.tol[at] += tol
		}
		eachNormalized(a, args[0], func(at int, h, off []float64, scale, acc float64) {
			var mean, along, meanSize, alongSize, alongOff float64
			count := float64(len(h))
			for i := range h {
				g := grad[at+i] * gain[i]
				mean += g / count
				meanSize += math.Abs(g) / count
				along += g * h[i] / count
				alongSize += math.Abs(g*h[i]) / count
				alongOff += math.Abs(g) * off[i] / count
				add(n+i, grad[at+i]*h[i], math.Abs(grad[at+i])*(off[i]+acc*math.Abs(h[i])))
				add(n+len(h)+i, grad[at+i], acc*math.Abs(grad[at+i]))
			}
			if a.Uncentered {
				mean, meanSize = 0, 0
			}
			for i := range h {
				g := grad[at+i] * gain[i]
				add(at+i, scale*(g-mean-h[i]*along), scale*(acc*(math.Abs(g)+meanSize+3*math.Abs(h[i])*alongSize)+
					off[i]*math.Abs(along)+math.Abs(h[i])*alongOff))
			}
		})
		return r
	},
}

// eachNormalized calls f with the rows of x, normalized, of which the first
// element is number at; scale is what they were multiplied by, off how much
// each may be missed by, acc the relative error of arithmetic.
func eachNormalized(a op.Attr, x array, f func(at int, h, off []float64, scale, acc float64)) {
	v := x.floats()
	n := x.Shape[1]
	acc, _ := x.DType.Accumulator().Tolerance()
	h, off := make([]float64, n), make([]float64, n)
	for at := 0; at < len(v); at += n {
		mean, variance, size := 0., 0., 0.
		for _, e := range v[at : at+n] {
			mean += e / float64(n)
			size += math.Abs(e) / float64(n)
		}
		if a.Uncentered {
			mean, size = 0, 0
		}
		for _, e := range v[at : at+n] {
			variance += (e - mean) * (e - mean) / float64(n)
		}
		scale := 1 / math.Sqrt(variance+a.Epsilon)
		for i, e := range v[at : at+n] {
			h[i] = (e - mean) * scale
			off[i] = acc * (math.Abs(h[i]) + size*scale)
		}
		f(at, h, off, scale, acc)
	}
}
