package backendtest

import (
	"math"

	"github.com/mezzo-ml/mezzo/backend/op"
)

// slidings are the operations that slide windows over spatial axes.
var slidings = map[op.Code]func(op.Attr, op.Type, []array) result{
	op.Conv: func(a op.Attr, t op.Type, x []array) result {
		return convolve(a, x[0].Shape, x[1].Shape, t, x, func(x, w, y int) (to, i, j int) { return y, x, w })
	},
	op.ConvInputGrad: func(a op.Attr, t op.Type, x []array) result {
		return convolve(a, t.Shape, x[1].Shape, t, x, func(x, w, y int) (to, i, j int) { return x, y, w })
	},
	op.ConvKernelGrad: func(a op.Attr, t op.Type, x []array) result {
		return convolve(a, x[0].Shape, t.Shape, t, x, func(x, w, y int) (to, i, j int) { return w, x, y })
	},
	op.MaxPool: func(a op.Attr, t op.Type, x []array) result {
		r := result{Type: t, f: make([]float64, t.Shape.Size()), anyZero: true}
		v := x[0].floats()
		eachWindow(a, x[0].Shape, func(y int, members []int) {
			r.f[y] = math.Inf(-1)
			if at := best(true, v, members); at >= 0 {
				r.f[y] = v[at]
			}
		})
		return r
	},
	op.MaxPoolGradGrad: func(a op.Attr, t op.Type, x []array) result {
		r := result{Type: t, f: make([]float64, t.Shape.Size())}
		v, from := x[0].floats(), x[1].floats()
		eachWindow(a, x[0].Shape, func(y int, members []int) {
			if at := best(true, v, members); at >= 0 {
				r.f[y] = from[at]
			}
		})
		return r
	},
	op.MaxPoolGrad: func(a op.Attr, t op.Type, x []array) result {
		v, g := x[0].floats(), x[1].floats()
		return sums(t, func(add func(at int, x float64)) {
			eachWindow(a, t.Shape, func(y int, members []int) {
				if at := best(true, v, members); at >= 0 {
					add(at, g[y])
				}
			})
		})
	},
	op.AvgPool: func(a op.Attr, t op.Type, x []array) result {
		v, n := x[0].floats(), make([]float64, t.Shape.Size())
		r := sums(t, func(add func(at int, x float64)) {
			eachWindow(a, x[0].Shape, func(y int, members []int) {
				n[y] = float64(len(members))
				for _, m := range members {
					add(y, v[m]/n[y])
				}
			})
		})
		for i, n := range n {
			if n == 0 {
				r.f[i] = math.NaN()
			}
		}
		return r
	},
	op.AvgPoolGrad: func(a op.Attr, t op.Type, x []array) result {
		g := x[0].floats()
		return sums(t, func(add func(at int, x float64)) {
			eachWindow(a, t.Shape, func(y int, members []int) {
				for _, m := range members {
					add(m, g[y]/float64(len(members)))
				}
			})
		})
	},
}

// sums is a result whose elements are sums of what f adds.
func sums(t op.Type, f func(add func(at int, x float64))) result {
	n := t.Shape.Size()
	acc := make([]accumulator, n)
	f(func(at int, x float64) { acc[at].add(x) })
	r := result{Type: t, f: make([]float64, n), tol: make([]float64, n)}
	for i, s := range acc {
		r.f[i], r.tol[i] = s.value(), sumTolerance(t.DType, t.DType, s.value(), s.magnitude)
	}
	return r
}

// tap is a pair of spatial positions, of an element of a window and of what
// it lies on.
type tap struct{ window, x int }

// taps lists, for each window over spatial axes of shape x, what its elements
// lie on, without padding.
func taps(a op.Attr, x, window op.Shape) [][]tap {
	out := make(op.Shape, len(x))
	for i := range x {
		out[i], _ = op.Windows(x[i], window[i], a.Stride[i], a.Dilation[i], a.Low[i], a.High[i])
	}
	all := make([][]tap, out.Size())
	st := strides(x)
	walk(out, func(y int, at []int) {
		walk(window, func(k int, in []int) {
			pos := 0
			for i := range x {
				p := at[i]*a.Stride[i] + in[i]*a.Dilation[i] - a.Low[i]
				if p < 0 || p >= x[i] {
					return
				}
				pos += p * st[i]
			}
			all[y] = append(all[y], tap{k, pos})
		})
	})
	return all
}

// eachWindow calls f with each element of a pooling of a tensor of shape x,
// and the elements that its window covers.
func eachWindow(a op.Attr, x op.Shape, f func(y int, members []int)) {
	n := len(x) - 1
	channels, size := x[n], x[1:n].Size()
	list := taps(a, x[1:n], a.Window)
	members := make([]int, 0, op.Shape(a.Window).Size())
	for batch := range x[0] {
		for y, window := range list {
			for c := range channels {
				members = members[:0]
				for _, t := range window {
					members = append(members, (batch*size+t.x)*channels+c)
				}
				f((batch*len(list)+y)*channels+c, members)
			}
		}
	}
}

// convolve is a convolution of an input of shape x with kernels of shape w, or
// a gradient of one: each product of elements of the two arguments is added to
// an element of the result. which says to which, and of which elements, given
// the places in the input, the kernels and the result of the convolution.
func convolve(a op.Attr, x, w op.Shape, t op.Type, args []array, which func(x, w, y int) (to, i, j int)) result {
	n := len(x) - 1
	groups := max(a.Groups, 1)
	in, out := w[n-1], w[n]
	list := taps(a, x[1:n], w[:n-1])
	u, v := args[0].floats(), args[1].floats()
	sum, magnitude := make([]float64, t.Shape.Size()), make([]float64, t.Shape.Size())
	size := x[1:n].Size()
	nextTo, nextI, nextJ := which(0, 1, 1) // from one channel of the result of the convolution to the next
	for batch := range x[0] {
		for y, window := range list {
			for _, tap := range window {
				for c := range x[n] {
					o := c / in * (out / groups)
					to, i, j := which((batch*size+tap.x)*x[n]+c, (tap.window*in+c%in)*out+o, (batch*len(list)+y)*out+o)
					for range out / groups {
						p := u[i] * v[j]
						sum[to] += p
						magnitude[to] += math.Abs(p)
						to, i, j = to+nextTo, i+nextI, j+nextJ
					}
				}
			}
		}
	}
	r := result{Type: t, f: sum, tol: make([]float64, len(sum))}
	for i := range sum {
		r.tol[i] = sumTolerance(args[0].DType, t.DType, sum[i], magnitude[i])
	}
	return r
}
