package backendtest

import (
	"math"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// bounded is a number and how far a device may be from it. Errors grow from
// step to step of a scan, so that they are computed with the numbers: each
// operation passes those of its operands on to first order, and adds the
// tolerance of the type that is computed in.
type bounded struct{ v, e float64 }

// bounds is arithmetic on bounded numbers in one type, with what is stored in
// another.
type bounds struct{ acc, function, rel, abs float64 }

func boundsOf(store dtype.DType) bounds {
	acc, _ := store.Accumulator().Tolerance()
	rel, _ := store.Tolerance()
	// Twice: a device may round at other places than this formula.
	b := bounds{2 * acc, 2 * acc, rel, store.SmallestSubnormal()}
	if store.Is16() {
		// A sixteenth of the rounding error of what is stored, half an epsilon,
		// which it does not add to notably.
		b.function = store.Epsilon() / 32
	}
	return b
}

func (b bounds) add(x, y bounded) bounded {
	v := x.v + y.v
	return bounded{v, x.e + y.e + b.acc*math.Abs(v)}
}

func (b bounds) sub(x, y bounded) bounded { return b.add(x, bounded{-y.v, y.e}) }

func (b bounds) mul(x, y bounded) bounded {
	v := x.v * y.v
	return bounded{v, math.Abs(x.v)*y.e + math.Abs(y.v)*x.e + x.e*y.e + b.acc*math.Abs(v)}
}

func (b bounds) tanh(x bounded) bounded {
	v := math.Tanh(x.v)
	return bounded{v, (1-v*v)*x.e + x.e*x.e + b.function*math.Abs(v)}
}

func (b bounds) sigmoid(x bounded) bounded {
	v := 1 / (1 + math.Exp(-x.v))
	return bounded{v, v*(1-v)*x.e + x.e*x.e + b.function*v}
}

// stored is x as it is read again.
func (b bounds) stored(x bounded) bounded {
	return bounded{x.v, x.e + b.rel*math.Abs(x.v) + b.abs}
}

// strip is numbers of an array, one every step.
type strip struct {
	x    []bounded
	step int
}

// dot is start + Σ x·y of n numbers each. It is mul and add written out: most of
// what the references of recurrent layers take.
func (b bounds) dot(start bounded, n int, x, y strip) bounded {
	size := math.Abs(start.v)
	for i := range n {
		l, r := x.x[i*x.step], y.x[i*y.step]
		v := l.v * r.v
		a := math.Abs(v)
		start.v += v
		start.e += math.Abs(l.v)*r.e + math.Abs(r.v)*l.e + l.e*r.e + b.acc*a
		size += a
	}
	start.e += b.acc * size
	return start
}

// cube is a part of a flat array, matrices of rows × cols.
type cube struct {
	x          []bounded
	rows, cols int
}

func (c cube) at(i, row, col int) *bounded { return &c.x[(i*c.rows+row)*c.cols+col] }

// along is a row from a column on, and down a column of the matrices one below
// the other, from a matrix on.
func (c cube) along(i, row, col int) strip { return strip{c.x[(i*c.rows+row)*c.cols+col:], 1} }
func (c cube) down(i, col int) strip {
	return strip{c.x[min(i*c.rows*c.cols+col, len(c.x)):], c.cols} // empty if there are no rows
}

func exact(f []float64) []bounded {
	out := make([]bounded, len(f))
	for i, v := range f {
		out[i].v = v
	}
	return out
}

// flatResult is the result made of x.
func flatResult(t op.Type, x []bounded) result {
	r := result{Type: t, f: make([]float64, len(x)), tol: make([]float64, len(x))}
	for i, b := range x {
		r.f[i], r.tol[i] = b.v, b.e
	}
	return r
}

// scanOf is what RNN and RNNGrad have in common here.
type scanOf struct {
	bounds
	*op.Scan
	steps, batch, units, gates int
	u                          cube
	mask                       []int64
}

func (s *scanOf) place(j int) (t, before, after int) {
	if s.Reverse {
		t = s.steps - 1 - j
		return t, t + 1, t
	}
	return j, j, j + 1
}

func (s *scanOf) cubeOf(x []bounded, at op.Section) cube {
	if len(at.Shape) == 0 {
		return cube{}
	}
	return cube{x[at.Start : at.Start+at.Shape.Size()], s.batch, at.Shape[len(at.Shape)-1]}
}

// inputs is x·w+v for all steps.
func (s *scanOf) inputs(x cube, steps int, w cube, v []bounded) cube {
	z := cube{make([]bounded, steps*s.batch*w.cols), s.batch, w.cols}
	for t := range steps {
		for n := range s.batch {
			for i := range w.cols {
				*z.at(t, n, i) = s.dot(v[i], x.cols, x.along(t, n, 0), w.down(0, i))
			}
		}
	}
	return z
}

func rnnReference(a op.Attr, t op.Type, args []array) result {
	o := a.Scan.Operands()
	z := args[o.X].Shape
	s := &scanOf{bounds: boundsOf(t.DType), Scan: a.Scan, steps: z[0], batch: z[1], units: args[o.U].Shape[0], gates: a.Scan.Cell.Gates()}
	s.u = cube{exact(args[o.U].floats()), s.units, s.gates * s.units}
	in := cube{exact(args[o.X].floats()), s.batch, z[2]}
	if s.Product {
		in = s.inputs(in, z[0], cube{exact(args[o.W].floats()), z[2], s.gates * s.units}, exact(args[o.V].floats()))
	}
	if o.Mask >= 0 {
		s.mask = args[o.Mask].ints()
	}
	var bias []float64
	if o.B >= 0 {
		bias = args[o.B].floats()
	}
	at := s.Sections(s.steps, s.batch, s.units)
	out := make([]bounded, at.Elements)
	h, c, saved := s.cubeOf(out, at.Outputs), cube{}, s.cubeOf(out, at.Saved)
	_, first, _ := s.place(0)
	copy(h.x[first*s.batch*s.units:], exact(args[o.H].floats()))
	var carry []bounded
	if o.C >= 0 {
		c = s.cubeOf(out, at.States)
		carry = exact(args[o.C].floats())
		copy(c.x[first*s.batch*s.units:], carry)
	}
	for j := range s.steps {
		t, before, after := s.place(j)
		for n := range s.batch {
			last := func(i int) bounded { return *h.at(before, n, i) }
			row := h.along(before, n, 0)
			sum := func(x strip, start bounded, g, i int) bounded {
				return s.dot(start, s.units, x, s.u.down(0, g*s.units+i))
			}
			z := func(g, i int) bounded { return *in.at(t, n, g*s.units+i) }
			keep := func(g, i int) *bounded { return saved.at(t*s.Cell.Saved()+g, n, i) }
			q := make([]bounded, s.units)
			for i := range s.units {
				switch s.Cell {
				case op.GRUCell:
					q[i] = s.add(sum(row, bounded{}, 2, i), bounded{v: bias[i]})
				case op.GRUBeforeCell:
					q[i] = s.stored(s.mul(s.sigmoid(sum(row, z(1, i), 1, i)), last(i)))
				}
			}
			for i := range s.units {
				var y bounded
				switch s.Cell {
				case op.TanhCell:
					y = s.tanh(sum(row, z(0, i), 0, i))
				case op.ReluCell:
					y = sum(row, z(0, i), 0, i)
					y.v = max(y.v, 0)
				case op.LSTMCell:
					in, forget := s.sigmoid(sum(row, z(0, i), 0, i)), s.sigmoid(sum(row, z(1, i), 1, i))
					g, o := s.tanh(sum(row, z(2, i), 2, i)), s.sigmoid(sum(row, z(3, i), 3, i))
					for k, x := range []bounded{in, forget, g, o} {
						*keep(k, i) = s.stored(x)
					}
					at := n*s.units + i
					if s.mask == nil || s.mask[t*s.batch+n] != 0 {
						carry[at] = s.add(s.mul(forget, carry[at]), s.mul(in, g))
					}
					*c.at(after, n, i) = s.stored(carry[at])
					y = s.mul(o, s.tanh(carry[at]))
				default:
					x, r := s.sigmoid(sum(row, z(0, i), 0, i)), s.sigmoid(sum(row, z(1, i), 1, i))
					var g bounded
					if s.Cell == op.GRUCell {
						g = s.tanh(s.add(z(2, i), s.mul(r, q[i])))
					} else {
						g = s.tanh(sum(strip{q, 1}, z(2, i), 2, i))
					}
					for k, x := range []bounded{x, r, g, q[i]} {
						*keep(k, i) = s.stored(x)
					}
					y = s.add(g, s.mul(x, s.sub(last(i), g)))
				}
				*h.at(after, n, i) = s.stored(y)
				if s.mask != nil && s.mask[t*s.batch+n] == 0 {
					*h.at(after, n, i) = last(i)
				}
			}
		}
	}
	return flatResult(t, out)
}

func rnnGradReference(a op.Attr, t op.Type, args []array) result {
	o := a.Scan.GradOperands()
	s := &scanOf{bounds: boundsOf(args[o.S].DType), Scan: a.Scan, steps: a.Dims[0], batch: a.Dims[1], units: a.Dims[2], gates: a.Scan.Cell.Gates()}
	s.u = cube{exact(args[o.U].floats()), s.units, s.gates * s.units}
	if o.Mask >= 0 {
		s.mask = args[o.Mask].ints()
	}
	from, to := s.Sections(s.steps, s.batch, s.units), s.GradSections(a.Dims)
	data := exact(args[o.S].floats())
	h, c, saved := s.cubeOf(data, from.Outputs), s.cubeOf(data, from.States), s.cubeOf(data, from.Saved)
	out := make([]bounded, to.Elements)
	input, recurrent := s.cubeOf(out, to.Input), s.cubeOf(out, to.Recurrent)
	if s.Weights {
		wide := s.gates * s.units
		input = cube{make([]bounded, s.steps*s.batch*wide), s.batch, wide}
		recurrent = cube{make([]bounded, s.steps*s.batch*wide), s.batch, wide}
	}
	read := func(at int) []bounded {
		if at < 0 {
			return make([]bounded, s.batch*s.units)
		}
		return exact(args[at].floats())
	}
	dh, dc := read(o.Last), read(o.State)
	var all cube
	if o.Steps >= 0 {
		all = cube{exact(args[o.Steps].floats()), s.batch, s.units}
	}
	one := bounded{v: 1}
	slope := func(x bounded) bounded { return s.mul(x, s.sub(one, x)) }
	tanhSlope := func(x bounded) bounded { return s.sub(one, s.mul(x, x)) }
	for j := s.steps - 1; j >= 0; j-- {
		t, before, after := s.place(j)
		for n := range s.batch {
			row := dh[n*s.units:][:s.units]
			if o.Steps >= 0 {
				for i := range row {
					row[i] = s.add(row[i], *all.at(t, n, i))
				}
			}
			if s.mask != nil && s.mask[t*s.batch+n] == 0 {
				continue // zeros, and dh and dc stay
			}
			gate := func(g, i int) bounded { return *saved.at(t*s.Cell.Saved()+g, n, i) }
			last := func(i int) bounded { return *h.at(before, n, i) }
			put := func(g, i int, x bounded) {
				*input.at(t, n, g*s.units+i) = s.stored(x)
				*recurrent.at(t, n, g*s.units+i) = s.stored(x)
			}
			back := func(i, from, to int, x cube) bounded { // columns from to to of x·uᵀ
				return s.dot(bounded{}, to-from, x.along(t, n, from), s.u.along(0, i, from))
			}
			pass := make([]bounded, s.units)
			for i := range row {
				switch s.Cell {
				case op.TanhCell:
					put(0, i, s.mul(row[i], tanhSlope(*h.at(after, n, i))))
				case op.ReluCell:
					put(0, i, bounded{})
					if h.at(after, n, i).v > 0 {
						put(0, i, row[i])
					}
				case op.LSTMCell:
					in, f, g, o := gate(0, i), gate(1, i), gate(2, i), gate(3, i)
					tc := s.tanh(*c.at(after, n, i))
					d := &dc[n*s.units+i]
					*d = s.add(*d, s.mul(s.mul(row[i], o), tanhSlope(tc)))
					put(0, i, s.mul(s.mul(*d, g), slope(in)))
					put(1, i, s.mul(s.mul(*d, *c.at(before, n, i)), slope(f)))
					put(2, i, s.mul(s.mul(*d, in), tanhSlope(g)))
					put(3, i, s.mul(s.mul(row[i], tc), slope(o)))
					*d = s.mul(*d, f)
				default:
					z, r, g, q := gate(0, i), gate(1, i), gate(2, i), gate(3, i)
					pass[i] = s.mul(row[i], z)
					put(0, i, s.mul(s.mul(row[i], s.sub(last(i), g)), slope(z)))
					dp := s.mul(s.mul(row[i], s.sub(one, z)), tanhSlope(g))
					put(2, i, dp)
					if s.Cell == op.GRUCell {
						put(1, i, s.mul(s.mul(dp, q), slope(r)))
						*recurrent.at(t, n, 2*s.units+i) = s.stored(s.mul(dp, r))
					}
				}
			}
			width := s.gates * s.units
			if s.Cell == op.GRUBeforeCell {
				width = 2 * s.units
				for i := range row {
					dq, r := back(i, width, width+s.units, input), gate(1, i)
					put(1, i, s.mul(s.mul(dq, last(i)), slope(r)))
					pass[i] = s.add(pass[i], s.mul(dq, r))
				}
			}
			for i := range row {
				row[i] = s.add(pass[i], back(i, 0, width, recurrent))
			}
		}
	}
	if s.Weights {
		x := cube{exact(args[o.X].floats()), s.batch, a.Dims[3]}
		s.weights(out, to, x, h, saved, input, recurrent)
		if o.W >= 0 {
			w := exact(args[o.W].floats())
			s.back(out[to.X.Start:], a.Dims[3], w, input)
		}
		s.rel, s.abs = 0, 0 // results are of the type that is computed in
	}
	for i, x := range dh {
		out[to.Output.Start+i] = s.stored(x)
	}
	if s.Cell.HasState() {
		for i, x := range dc {
			out[to.State.Start+i] = s.stored(x)
		}
	}
	return flatResult(t, out)
}

// weights is the gradients by the weights: sums over all steps and rows.
func (s *scanOf) weights(out []bounded, to op.RNNGradSections, x, h, saved, input, recurrent cube) {
	rows, wide := s.steps*s.batch, s.gates*s.units
	sum := func(at int, left strip, g cube, col int) {
		out[at] = s.dot(bounded{}, rows, left, g.down(0, col))
	}
	first := 0
	if s.Reverse {
		first = 1 // the step before is the next in memory
	}
	one := strip{[]bounded{{v: 1}}, 0}
	var candidate cube // the fourth of what a step saves
	if s.Cell == op.GRUBeforeCell {
		candidate = cube{make([]bounded, 0, rows*s.units), s.batch, s.units}
		for t := range s.steps {
			from := (t*s.Cell.Saved() + 3) * s.batch * s.units
			candidate.x = append(candidate.x, saved.x[from:][:s.batch*s.units]...)
		}
	}
	for j := range wide {
		for i := range x.cols {
			sum(to.W.Start+i*wide+j, x.down(0, i), input, j)
		}
		for i := range s.units {
			left := h.down(first, i)
			if s.Cell == op.GRUBeforeCell && j >= 2*s.units {
				left = candidate.down(0, i)
			}
			sum(to.U.Start+i*wide+j, left, recurrent, j)
		}
		sum(to.V.Start+j, one, input, j)
		if s.Cell.HasBias() && j >= 2*s.units {
			sum(to.B.Start+j-2*s.units, one, recurrent, j)
		}
	}
}

// back is the gradient by x: that by z times the transposed kernel w.
func (s *scanOf) back(out []bounded, features int, w []bounded, input cube) {
	for row := range s.steps * s.batch {
		for i := range features {
			out[row*features+i] = s.dot(bounded{}, input.cols, strip{input.x[row*input.cols:], 1}, strip{w[i*input.cols:], 1})
		}
	}
}
