package backendtest

import (
	"fmt"
	"math"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// This file and its neighbours named reference_* are the interpreter that
// devices are compared with: the obvious loop for each operation, in float64,
// or in int64 for integers and bool. It says what the result is before it is
// rounded to its type, and how far from that a device may be.

// array is a tensor on the host.
type array struct {
	op.Type
	data []byte // elements, little-endian
}

func newArray(t op.Type) array { return array{t, make([]byte, t.Bytes())} }

// floats are the elements as float64.
func (a array) floats() []float64 {
	f := make([]float64, a.Shape.Size())
	dtype.ToF64(f, a.data, a.DType)
	return f
}

// ints are the elements as int64.
func (a array) ints() []int64 {
	i := make([]int64, a.Shape.Size())
	dtype.ToI64(i, a.data, a.DType)
	return i
}

// at formats element i.
func (a array) at(i int) string {
	one := array{op.Type{DType: a.DType}, a.data[i*a.DType.Size():][:a.DType.Size()]}
	if a.DType.IsFloat() {
		return fmt.Sprintf("%v (0x%x)", one.floats()[0], reversed(one.data))
	}
	return fmt.Sprint(one.ints()[0])
}

func reversed(b []byte) []byte {
	r := make([]byte, len(b))
	for i, x := range b {
		r[len(b)-1-i] = x
	}
	return r
}

// result is what an operation should give. One of f, i and raw is set.
type result struct {
	op.Type
	f   []float64 // float types: the elements, not yet rounded to the type
	i   []int64   // integers and bool
	raw []byte    // copied elements: compared byte by byte

	// tol is how far each element of f may be missed; nil where the rounded
	// element must be met exactly.
	tol []float64
	// anyZero says that 0 may have either sign, for operations whose
	// definition leaves it open (the larger of 0 and -0).
	anyZero bool
	// or is another result that is as right, or nil.
	or *result
}

// array rounds r to its type.
func (r result) array() array {
	a := newArray(r.Type)
	switch {
	case r.raw != nil:
		copy(a.data, r.raw)
	case r.DType.IsFloat():
		dtype.FromF64(a.data, r.f, r.DType)
	default:
		dtype.FromI64(a.data, r.i, r.DType)
	}
	return a
}

// check reports the first element of got that r does not allow.
func (r result) check(got array) error {
	err := r.checkElements(got)
	if err != nil && r.or != nil && r.or.checkElements(got) == nil {
		return nil
	}
	return err
}

func (r result) checkElements(got array) error {
	want := r.array()
	bad := func(i int) error {
		msg := fmt.Sprintf("element %d of %v: got %s, want %s", i, r.Type, got.at(i), want.at(i))
		if r.tol != nil {
			msg += fmt.Sprintf(" ± %.3g", r.tol[i])
		}
		return fmt.Errorf("%s", msg)
	}
	if !got.Type.Equal(want.Type) {
		return fmt.Errorf("got %v, want %v", got.Type, want.Type)
	}
	if r.raw != nil || !r.DType.IsFloat() {
		size := r.DType.Size()
		for i := range r.Shape.Size() {
			if string(got.data[i*size:][:size]) != string(want.data[i*size:][:size]) {
				return bad(i)
			}
		}
		return nil
	}
	g, w := got.floats(), want.floats()
	for i := range g {
		if same(g[i], w[i], r.anyZero || r.tol != nil) || r.tol != nil && r.near(i, g[i]) {
			continue
		}
		return bad(i)
	}
	return nil
}

// near reports whether a result that is not the rounded reference is within
// the tolerance of the reference before rounding.
func (r result) near(i int, got float64) bool {
	want := r.f[i]
	switch {
	case math.IsNaN(want) || math.IsInf(want, 0):
		return false
	case math.IsInf(r.tol[i], 0):
		return true
	case math.IsNaN(got):
		return false
	case math.IsInf(got, 0):
		// Right when the allowed range reaches what rounds to infinity: half a
		// spacing above the largest finite value.
		over := r.DType.Max() * (1 + r.DType.Epsilon()/4)
		return math.Signbit(got) == math.Signbit(want) && math.Abs(want)+r.tol[i] >= over
	}
	return math.Abs(got-want) <= r.tol[i]
}

// same compares two floats of a type: NaN equals NaN whatever its payload,
// which no standard settles.
func same(a, b float64, anyZero bool) bool {
	if a != b {
		return math.IsNaN(a) && math.IsNaN(b)
	}
	return anyZero || a != 0 || math.Signbit(a) == math.Signbit(b)
}

// sameBits compares two arrays element by element, NaN equal to NaN, and
// reports the first difference.
func sameBits(got, want array) error {
	if !got.Type.Equal(want.Type) {
		return fmt.Errorf("got %v, want %v", got.Type, want.Type)
	}
	if string(got.data) == string(want.data) {
		return nil
	}
	r := result{Type: want.Type, raw: want.data}
	if want.DType.IsFloat() {
		r = result{Type: want.Type, f: want.floats()}
	}
	return r.check(got)
}

// evaluate computes one operation.
func evaluate(c op.Code, a op.Attr, args []array) (result, error) {
	types := make([]op.Type, len(args))
	for i, x := range args {
		types[i] = x.Type
	}
	t, err := op.Infer(c, a, types...)
	if err != nil {
		return result{}, err
	}
	switch {
	case c == op.Fused:
		return fused(t, a.Body, args)
	case c == op.Cast || c.Info().Class == op.Elementwise:
		return elementwise(c, t, args)
	case slidings[c] != nil:
		return slidings[c](a, t, args), nil
	case c == op.MatMul:
		return matMul(a, t, args), nil
	case c == op.QuantizedMatMul:
		return quantizedMatMul(t, args), nil
	case c == op.AllReduceStart || c == op.AllGatherStart:
		return allReduceStart(t, args), nil
	case c == op.AllGatherDone: // of one rank
		return result{Type: t, f: args[0].floats()}, nil
	case c == op.AllReduceDone:
		return allReduceDone(a, t, args), nil
	case c == op.QuantizedConv:
		return quantizedConv(a, t, args), nil
	case c == op.RNN:
		return rnnReference(a, t, args), nil
	case c == op.RNNGrad:
		return rnnGradReference(a, t, args), nil
	case c == op.Loop:
		return loopReference(a, t, args), nil
	case c == op.SoftmaxGrad:
		return softmaxGrad(a, t, args), nil
	case normalizations[c] != nil:
		return normalizations[c](a, t, args), nil
	case columnwise[c] != nil:
		return columnwise[c](a, t, args), nil
	case attentions[c] != nil:
		return attentions[c](a, t, args), nil
	case c == op.Stats:
		return statsReference(t, args[0], args[1]), nil
	case c == op.Softmax || c == op.LogSoftmax:
		return softmax(c, a, t, args[0]), nil
	case c.Info().Class == op.Reduction:
		return reduce(c, a, t, args[0])
	}
	if f, ok := movements[c]; ok {
		return f(a, t, args)
	}
	return result{}, fmt.Errorf("the reference has no %v", c)
}

// interpret computes the outputs of a graph, each value rounded to its type.
func interpret(g *ir.Graph, in []array) ([]array, error) {
	vals := map[*ir.Value]array{}
	for _, v := range g.Values {
		if v.Op == op.Param {
			vals[v] = in[v.Attr.Index]
			continue
		}
		r, err := evaluate(v.Op, v.Attr, valuesOf(vals, v.Args))
		if err != nil {
			return nil, err
		}
		vals[v] = r.array()
	}
	return valuesOf(vals, g.Outputs), nil
}

func valuesOf(vals map[*ir.Value]array, list []*ir.Value) []array {
	out := make([]array, len(list))
	for i, v := range list {
		out[i] = vals[v]
	}
	return out
}

// fused runs a body instruction by instruction, rounding each to its type.
func fused(t op.Type, body *op.Body, args []array) (result, error) {
	vals := make([]array, 0, len(args)+len(body.Code))
	for _, a := range args {
		vals = append(vals, broadcastTo(a, t.Shape))
	}
	var last result
	for _, in := range body.Code {
		var x []array
		for _, j := range in.Args[:in.Op.Info().Args] {
			x = append(x, vals[j])
		}
		var err error
		if last, err = evaluate(in.Op, op.Attr{DType: in.DType}, x); err != nil {
			return last, err
		}
		vals = append(vals, last.array())
	}
	return last, nil
}

// strides of a dense array, in elements.
func strides(s op.Shape) []int {
	st := make([]int, len(s))
	n := 1
	for i := len(s) - 1; i >= 0; i-- {
		st[i] = n
		n *= s[i]
	}
	return st
}

// walk calls f with the position and the index along each axis of every
// element of s. The index is reused.
func walk(s op.Shape, f func(pos int, index []int)) {
	index := make([]int, len(s))
	for pos := range s.Size() {
		f(pos, index)
		for i := len(s) - 1; i >= 0; i-- {
			if index[i]++; index[i] < s[i] {
				break
			}
			index[i] = 0
		}
	}
}

// broadcastIndex gives, for each element of shape to, the element of an array
// of shape from that it repeats.
func broadcastIndex(from, to op.Shape) []int {
	st := strides(from)
	off := len(to) - len(from)
	at := make([]int, to.Size())
	walk(to, func(pos int, index []int) {
		for i, d := range from {
			if d != 1 {
				at[pos] += st[i] * index[off+i]
			}
		}
	})
	return at
}
