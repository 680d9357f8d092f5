package ir

import (
	"bytes"
	"fmt"
	"hash/fnv"
	"math"
	"slices"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// This file is a tiny device: it computes in float64, rounds each result to
// its type, and accumulates where kernels do, so that a graph and its plan
// must give the same bits.

var math1 = map[op.Code]func(float64) float64{
	op.Identity: func(x float64) float64 { return x },
	op.Cast:     func(x float64) float64 { return x },
	op.Neg:      func(x float64) float64 { return -x },
	op.Abs:      math.Abs,
	op.Square:   func(x float64) float64 { return x * x },
	op.Exp:      math.Exp,
	op.Log:      math.Log,
	op.Sqrt:     math.Sqrt,
	op.Tanh:     math.Tanh,
	op.Relu:     func(x float64) float64 { return max(x, 0) },
	op.Floor:    math.Floor,
	op.Sign: func(x float64) float64 {
		if x == 0 || math.IsNaN(x) {
			return x
		}
		return math.Copysign(1, x)
	},
	op.RoundE4M3: dtype.RoundE4M3,
	op.Not:       func(x float64) float64 { return 1 - x },
	op.IsFinite:  func(x float64) float64 { return truth(!math.IsNaN(x) && !math.IsInf(x, 0)) },
}

var math2 = map[op.Code]func(x, y float64) float64{
	op.Add:     func(x, y float64) float64 { return x + y },
	op.Sub:     func(x, y float64) float64 { return x - y },
	op.Mul:     func(x, y float64) float64 { return x * y },
	op.Div:     func(x, y float64) float64 { return x / y },
	op.Maximum: math.Max,
	op.Minimum: math.Min,
	op.Less:    func(x, y float64) float64 { return truth(x < y) },
	op.Greater: func(x, y float64) float64 { return truth(x > y) },
	op.Equal:   func(x, y float64) float64 { return truth(x == y) },
	op.And:     math.Min,
	op.Or:      math.Max,
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// scalar computes one element of an element-wise operation.
func scalar(c op.Code, d dtype.DType, x [3]float64) float64 {
	var y float64
	switch {
	case math1[c] != nil:
		y = math1[c](x[0])
	case math2[c] != nil:
		y = math2[c](x[0], x[1])
	case c == op.Where && x[0] != 0:
		y = x[1]
	case c == op.Where:
		y = x[2]
	default:
		panic(fmt.Sprintf("the test device has no %v", c))
	}
	return round(y, d)
}

func round(x float64, d dtype.DType) float64 {
	b := make([]byte, d.Size())
	store(b, 0, d, x)
	return load(b, 0, d)
}

func load(b []byte, i int, d dtype.DType) float64 {
	var x [1]float64
	dtype.ToF64(x[:], b[i*d.Size():(i+1)*d.Size()], d)
	return x[0]
}

func store(b []byte, i int, d dtype.DType, x float64) {
	dtype.FromF64(b[i*d.Size():(i+1)*d.Size()], []float64{x}, d)
}

// data is memory and what is in it.
type data struct {
	b []byte
	t op.Type
}

func (x data) at(i int) float64 { return load(x.b, i, x.t.DType) }

// repeated is element i of a result of shape s that x broadcasts to.
func (x data) repeated(i int, s op.Shape) float64 {
	j, step := 0, 1
	for axis := len(x.t.Shape) - 1; axis >= 0; axis-- {
		out := s[len(s)-len(x.t.Shape)+axis]
		if x.t.Shape[axis] != 1 {
			j += i % out * step
			step *= x.t.Shape[axis]
		}
		i /= out
	}
	return x.at(j)
}

func index(i int, s op.Shape) []int {
	at := make([]int, len(s))
	for axis := len(s) - 1; axis >= 0; axis-- {
		at[axis] = i % s[axis]
		i /= s[axis]
	}
	return at
}

func offset(at []int, s op.Shape) int {
	i := 0
	for axis, x := range at {
		i = i*s[axis] + x
	}
	return i
}

// compute writes v to out, reading its arguments while it writes: element-wise
// operations element by element, as a kernel does, and for all others out is
// spoilt first, so that a plan that writes over what is still needed shows.
// parts is where the extra results of a Fused value lie.
func compute(v *Value, out data, args, parts []data) {
	n := v.Type.Shape.Size()
	set := func(i int, x float64) { store(out.b, i, out.t.DType, x) }
	if !elementwise(v) {
		for i := range out.b {
			out.b[i] = 0xA5
		}
	}
	switch v.Op {
	case op.Const:
		for i := range n {
			set(i, v.Attr.Value)
		}
	case op.Iota:
		for i := range n {
			set(i, float64(i%v.Attr.Dims[len(v.Attr.Dims)-1]))
		}
	case op.RandomUniform:
		for i := range n {
			h := fnv.New32a()
			fmt.Fprint(h, args[0].b, v.Attr.Stream, v.Attr.Bits, i)
			set(i, float64(h.Sum32())/(1<<32))
		}
	case op.Fused:
		for i := range n {
			var regs []float64
			for _, a := range args {
				regs = append(regs, a.repeated(i, v.Type.Shape))
			}
			regs = runBody(v.Attr.Body, regs)
			set(i, regs[len(regs)-1])
			for k, p := range parts {
				store(p.b, i, p.t.DType, regs[v.Attr.Body.ExtraOutputs[k]])
			}
		}
	case op.ExtraOutput: // computed with its Fused value
	case op.Sum, op.Mean, op.Max, op.SumSquares, op.AllFinite:
		reduce(v, args[0], set)
	case op.MatMul:
		product := set
		if body := v.Attr.Body; body != nil {
			product = func(i int, x float64) {
				regs := []float64{round(x, v.Attr.DType)}
				for _, a := range args[2:] {
					regs = append(regs, a.repeated(i, v.Type.Shape))
				}
				regs = runBody(body, regs)
				set(i, regs[len(regs)-1])
			}
		}
		matmul(v, args[0], args[1], product)
	case op.Reshape, op.Barrier:
		for i := range n {
			set(i, args[0].at(i))
		}
	case op.BroadcastTo:
		for i := range n {
			set(i, args[0].repeated(i, v.Type.Shape))
		}
	case op.Transpose:
		for i := range n {
			to := index(i, v.Type.Shape)
			from := make([]int, len(to))
			for axis, p := range v.Attr.Perm {
				from[p] = to[axis]
			}
			set(i, args[0].at(offset(from, args[0].t.Shape)))
		}
	case op.Slice:
		for i := range n {
			at := index(i, v.Type.Shape)
			for axis := range at {
				at[axis] = v.Attr.Start[axis] + at[axis]*v.Attr.Stride[axis]
			}
			set(i, args[0].at(offset(at, args[0].t.Shape)))
		}
	case op.Concat:
		axis := v.Attr.Axes[0]
		for i := range n {
			at := index(i, v.Type.Shape)
			j := 0
			for at[axis] >= args[j].t.Shape[axis] {
				at[axis] -= args[j].t.Shape[axis]
				j++
			}
			set(i, args[j].at(offset(at, args[j].t.Shape)))
		}
	default:
		for i := range n {
			var x [3]float64
			for j, a := range args {
				x[j] = a.repeated(i, v.Type.Shape)
			}
			set(i, scalar(v.Op, v.Type.DType, x))
		}
	}
}

// runBody computes one element of a chain: it appends the result of each
// instruction to its operands.
func runBody(b *op.Body, regs []float64) []float64 {
	for _, in := range b.Code {
		var x [3]float64
		for j := range in.Op.Info().Args {
			x[j] = regs[in.Args[j]]
		}
		regs = append(regs, scalar(in.Op, in.DType, x))
	}
	return regs
}

func reduce(v *Value, x data, set func(int, float64)) {
	axes := v.Attr.Axes
	if v.Op == op.SumSquares || v.Op == op.AllFinite {
		axes = nil
		for i := range x.t.Shape {
			axes = append(axes, i)
		}
	}
	acc := make([]float64, v.Type.Shape.Size())
	for i := range acc {
		acc[i] = map[op.Code]float64{op.Max: math.Inf(-1), op.AllFinite: 1}[v.Op]
	}
	n := 0
	for i := range x.t.Shape.Size() {
		to := []int{}
		for axis, k := range index(i, x.t.Shape) {
			if !slices.Contains(axes, axis) {
				to = append(to, k)
			} else if v.Attr.KeepDims {
				to = append(to, 0)
			}
		}
		j := offset(to, v.Type.Shape)
		switch e := x.at(i); v.Op {
		case op.Max:
			acc[j] = math.Max(acc[j], e)
		case op.SumSquares:
			acc[j] += e * e
		case op.AllFinite:
			acc[j] *= scalar(op.IsFinite, dtype.Bool, [3]float64{e})
		default:
			acc[j] += e
		}
		n++
	}
	for j, e := range acc {
		if v.Op == op.Mean {
			e *= float64(len(acc)) / float64(n)
		}
		set(j, round(e, accumulator(v)))
	}
}

func matmul(v *Value, x, y data, set func(int, float64)) {
	m, k := x.t.Shape[0], x.t.Shape[1]
	if v.Attr.TransA {
		m, k = k, m
	}
	n := v.Type.Shape[1]
	for i := range m {
		for j := range n {
			sum := 0.0
			for l := range k {
				xi, yi := i*k+l, l*n+j
				if v.Attr.TransA {
					xi = l*m + i
				}
				if v.Attr.TransB {
					yi = j*k + l
				}
				sum += x.at(xi) * y.at(yi)
			}
			set(i*n+j, round(sum, accumulator(v)))
		}
	}
}

// accumulator is the type in which v sums; max and its like do not.
func accumulator(v *Value) dtype.DType {
	if v.Op == op.Max || v.Op == op.AllFinite {
		return v.Type.DType
	}
	return v.Args[0].Type.DType.Accumulator()
}

// interpret computes g as recorded: every value in memory of its own.
func interpret(g *Graph, in [][]byte) [][]byte {
	mem := map[*Value]data{}
	for _, v := range g.Values {
		d := data{make([]byte, v.Type.Bytes()), v.Type}
		if v.Op == op.Param {
			copy(d.b, in[v.Attr.Index])
		} else {
			var args []data
			for _, a := range v.Args {
				args = append(args, mem[a])
			}
			compute(v, d, args, nil)
		}
		mem[v] = d
	}
	var out [][]byte
	for _, v := range g.Outputs {
		out = append(out, mem[v].b)
	}
	return out
}

// run runs a plan in its slots: in one arena full of rubbish, over inputs that
// were donated. It returns the outputs, and an error when an input changed
// that must not, or too early.
func run(g *Graph, in [][]byte) ([][]byte, error) {
	arena := bytes.Repeat([]byte{0xA5}, g.ArenaBytes)
	inputs := make([][]byte, len(in))
	for i, b := range in {
		inputs[i] = slices.Clone(b)
	}
	outputs := make([][]byte, len(g.Outputs))
	for o, v := range g.Outputs {
		outputs[o] = bytes.Repeat([]byte{0xA5}, v.Type.Bytes())
		if p := g.Donated[o]; p >= 0 {
			outputs[o] = inputs[p]
		}
	}
	static := map[*Value][]byte{}
	at := func(v *Value) data {
		var b []byte
		switch v.Slot.Place {
		case Arena:
			b = arena[v.Slot.Offset : v.Slot.Offset+v.Type.Bytes()]
		case Input:
			b = inputs[v.Slot.Index]
		case Output:
			b = outputs[v.Slot.Index]
		case Static:
			for v.Op != op.Const {
				v = v.Args[0]
			}
			b = static[v]
		}
		return data{b, v.Type}
	}
	unchanged := func(but []int) error {
		for i := range in {
			if !slices.Contains(but, i) && !bytes.Equal(in[i], inputs[i]) {
				return fmt.Errorf("input %d changed", i)
			}
		}
		return nil
	}
	for i, v := range g.Values {
		if i == g.Commit {
			if err := unchanged(nil); err != nil {
				return nil, fmt.Errorf("before the commit phase: %w", err)
			}
		}
		switch {
		case v.Op == op.Param || v.View():
			continue
		case v.Op == op.Const:
			static[v] = make([]byte, v.Type.Bytes())
		}
		var args []data
		for _, a := range v.Args {
			d := at(a)
			d.t = a.Type
			args = append(args, d)
		}
		var parts []data
		for _, p := range g.results(i)[1:] {
			parts = append(parts, at(p))
		}
		compute(v, at(v), args, parts)
	}
	return outputs, unchanged(g.Donated)
}

// same compares elements, all NaNs being alike: a cast through a wider type
// may make a NaN quiet.
func same(a, b []byte, d dtype.DType) bool {
	for i := range len(a) / d.Size() {
		x, y := load(a, i, d), load(b, i, d)
		if math.Float64bits(x) != math.Float64bits(y) && !(math.IsNaN(x) && math.IsNaN(y)) {
			return false
		}
	}
	return len(a) == len(b)
}
