package backendtest

import (
	"math"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/op"
	"github.com/mezzo-ml/mezzo/backend/philox"
)

// attentions are Attention and what it is made of.
var attentions = map[op.Code]func(op.Attr, op.Type, []array) result{
	op.Attention: func(a op.Attr, t op.Type, args []array) result {
		r := attentionForward(a, op.Type{DType: t.DType.Accumulator(), Shape: nil}, args)
		r.Type, r.f, r.tol = t, r.f[:t.Shape.Size()], r.tol[:t.Shape.Size()]
		rel, _ := t.DType.Tolerance()
		for i, v := range r.f {
			r.tol[i] += rel*math.Abs(v) + t.DType.SmallestSubnormal()
		}
		return r
	},
	op.AttentionForward: attentionForward,
	op.AttentionGrad:    attentionGrad,
}

// attended is an attention in float64.
type attended struct {
	op.AttentionSizes
	attr          op.Attr
	q, k, v       []float64
	mask          []float64
	maskAt        []int
	random        []float32
	bound         float64     // of the numbers that keep a weight
	wide          dtype.DType // of scores and sums
	acc, operands float64     // relative errors: of the accumulator; of weights as operands
	small         float64     // the error of weights as operands that are subnormal
	sign, factor  float64     // of the scores
}

func newAttended(operands int, a op.Attr, args []array) *attended {
	types := make([]op.Type, len(args))
	for i, x := range args {
		types[i] = x.Type
	}
	s, _ := op.SizesOfAttention(operands, a, types)
	d := &attended{AttentionSizes: s, attr: a, q: args[0].floats(), k: args[1].floats(), v: args[2].floats()}
	scores := op.Shape{s.Batch, s.Heads, s.Queries, s.Keys}
	if s.Mask >= 0 {
		for _, x := range args[s.Mask].ints() {
			d.mask = append(d.mask, float64(x))
		}
		d.maskAt = broadcastIndex(args[s.Mask].Shape, scores)
	}
	if s.State >= 0 {
		state := args[s.State].ints()
		d.random = make([]float32, scores.Size())
		draw := philox.Uniform
		var bits int
		if bits, d.bound = op.DropDraw(a.DropoutRate); bits == 16 {
			draw = philox.Uniform16
		}
		draw(uint64(state[0]), uint64(state[1]), a.Stream, d.random)
	}
	t := args[0].DType
	d.wide = t.Accumulator()
	d.sign, d.factor = a.ScoreFactors()
	d.acc, _ = d.wide.Tolerance()
	d.operands = d.acc
	if t.Is16() {
		d.operands, _ = t.Tolerance()
		d.small = t.SmallestSubnormal()
	}
	return d
}

// seen reports whether query t of a batch and head sees key s.
func (d *attended) seen(row, t, s int) bool {
	lo, hi := d.Seen(d.attr, t)
	return s >= lo && s < hi && (d.mask == nil || d.mask[d.maskAt[row*d.Keys+s]] != 0)
}

// kept is the factor of the weight of key s: 0 if it is dropped.
func (d *attended) kept(row, s int) float64 {
	switch {
	case d.random == nil:
		return 1
	case d.random[row*d.Keys+s] < float32(d.bound):
		return 0
	}
	return d.attr.KeepScale()
}

// each calls f for every query: row is its place in [B H T], y that of its
// features in the result, kv of the first feature of a key and of a value.
func (d *attended) each(f func(row, t, q, y int, key, value func(s int) int)) {
	for b := range d.Batch {
		for h := range d.Heads {
			g := h / (d.Heads / d.KeyHeads)
			at := func(features int) func(s int) int {
				return func(s int) int { return ((b*d.Keys+s)*d.KeyHeads + g) * features }
			}
			for t := range d.Queries {
				head := (b*d.Queries+t)*d.Heads + h
				f((b*d.Heads+h)*d.Queries+t, t, head*d.Features, head*d.ValueFeatures, at(d.Features), at(d.ValueFeatures))
			}
		}
	}
}

// dot is Σ x·y of n features, and Σ |x·y|.
func dot(x, y []float64, n int) (sum, magnitude float64) {
	y = y[:n]
	for i, v := range x[:n] {
		p := v * y[i]
		sum += p
		magnitude += math.Abs(p)
	}
	return
}

// product is that of a query, with the sign of the factor, and what it may be missed
// by: nothing where the sums of its terms, in any order, have few enough bits.
func (d *attended) product(q, key int) (p, off float64) {
	p, size := dot(d.q[q:], d.k[key:], d.Features)
	if math.IsInf(size, 0) || math.IsNaN(size) {
		return d.sign * p, 0
	}
	for i := range d.Features { // most products of random numbers are rounded because of the first term
		if size*d.wide.Epsilon() > lowestBit(d.q[q+i]*d.k[key+i]) {
			return d.sign * p, d.acc * size
		}
	}
	return d.sign * p, 0
}

// lowestBit is the place of the last bit of x that is set, ∞ for 0.
func lowestBit(x float64) float64 {
	if x == 0 {
		return math.Inf(1)
	}
	fraction := math.Float64bits(x)&(1<<52-1) | 1<<52 // with the bit before it
	last := float64(fraction & -fraction)
	if exponent := math.Float64bits(x) >> 52 & 0x7ff; exponent > 52 {
		return last * math.Float64frombits((exponent-52)<<52)
	}
	_, exponent := math.Frexp(x)
	return math.Ldexp(last, exponent-53)
}

func attentionForward(a op.Attr, t op.Type, args []array) result {
	d := newAttended(3, a, args)
	n, rows := d.Result().Size(), d.PerQuery().Size()
	r := result{Type: t, f: make([]float64, n+2*rows)}
	r.tol = make([]float64, len(r.f))
	product, off, weight := make([]float64, d.Keys), make([]float64, d.Keys), make([]float64, d.Keys)
	d.each(func(row, t, q, y int, key, value func(int) int) {
		top, seen := math.Inf(-1), false
		for s := range d.Keys {
			if d.seen(row, t, s) {
				seen = true
				product[s], off[s] = d.product(q, key(s))
				top = larger(top, product[s])
			}
		}
		if !seen {
			return
		}
		sum, most, largest := 0., 0., 0. // the last two: what the sum and the top may be missed by
		for s := range d.Keys {
			if d.seen(row, t, s) {
				// What a score may be missed by is what its exponential may be
				// missed by, relatively.
				exponent := d.factor * (product[s] - top)
				largest, weight[s] = max(largest, off[s]), math.Exp(exponent)
				off[s] = off[s]*d.factor + d.acc*(1-exponent)
				sum += weight[s]
				if weight[s] > 0 {
					most += weight[s] * off[s]
				}
			}
		}
		r.f[n+row], r.f[n+rows+row] = top, 1/sum
		r.tol[n+row], r.tol[n+rows+row] = largest, (2*most+d.acc*sum)/(sum*sum)
		if math.IsNaN(sum) { // some of both make NaNs of weights
			r.f[n+row], r.tol[n+row] = 0, math.Inf(1)
			r.f[n+rows+row], r.tol[n+rows+row] = 0, math.Inf(1)
		}
		for s := range d.Keys {
			if !d.seen(row, t, s) || weight[s] == 0 {
				continue
			}
			w := weight[s] / sum * d.kept(row, s)
			f, tol, relative := r.f[y:][:d.ValueFeatures], r.tol[y:][:d.ValueFeatures], off[s]+most/sum+d.acc+d.operands
			for e, v := range d.v[value(s):][:d.ValueFeatures] {
				p := w * v
				f[e] += p
				tol[e] += math.Abs(p)*relative + d.small*math.Abs(v)
			}
		}
		for e := range d.ValueFeatures {
			r.tol[y+e] += d.wide.SmallestNormal() * float64(1+d.Keys)
		}
	})
	return r
}

func attentionGrad(a op.Attr, t op.Type, args []array) result {
	d := newAttended(6, a, args)
	out, statistics, grad := args[3].floats(), args[4].floats(), args[5].floats()
	r := result{Type: t, f: make([]float64, t.Shape.Size()), tol: make([]float64, t.Shape.Size())}
	rows, dk := d.PerQuery().Size(), len(d.q)
	dv := dk + len(d.k)
	d.each(func(row, t, q, y int, key, value func(int) int) {
		mean, meanSize := dot(out[y:], grad[y:], d.ValueFeatures)
		for s := range d.Keys {
			if !d.seen(row, t, s) {
				continue
			}
			product, off := d.product(q, key(s))
			exponent := d.factor * (product - statistics[row])
			w, kept := math.Exp(exponent)*statistics[rows+row], d.kept(row, s)
			off = off*d.factor + d.acc*(math.Abs(exponent)+1)
			f, tol := r.f[dv+value(s):], r.tol[dv+value(s):]
			for e, g := range grad[y:][:d.ValueFeatures] {
				p := w * kept * g
				f[e] += p
				tol[e] += math.Abs(p)*(off+d.operands) + d.small*math.Abs(g)
			}
			dw, dwSize := dot(grad[y:], d.v[value(s):], d.ValueFeatures)
			ds := w * (dw*kept - mean) * a.Scale
			err := math.Abs(ds)*(off+d.operands) + (d.acc*w*(dwSize*kept+meanSize)+d.small)*math.Abs(a.Scale)
			for i, x := range d.k[key(s):][:d.Features] {
				z := d.q[q+i]
				r.f[q+i] += ds * x
				r.tol[q+i] += err * math.Abs(x)
				r.f[dk+key(s)+i] += ds * z
				r.tol[dk+key(s)+i] += err * math.Abs(z)
			}
		}
	})
	rel, _ := t.DType.Tolerance()
	for i, x := range r.f {
		r.tol[i] += rel*math.Abs(x) + t.DType.SmallestSubnormal() + d.wide.SmallestNormal()*float64(d.Keys+d.Queries*d.Heads)
	}
	return r
}
