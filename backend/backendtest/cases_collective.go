package backendtest

import (
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/op"
)

func init() {
	register(allReduceCases, op.AllReduceStart, op.AllReduceDone)
	register(allGatherCases, op.AllGatherStart, op.AllGatherDone)
}

// exchangedShapes are tensors that are exchanged together, and a factor of their sums.
var exchangedShapes = []struct {
	name   string
	shapes []op.Shape
	scale  float64
}{
	{"scalar", []op.Shape{{}}, 1},
	{"odd", []op.Shape{{3, 5}, {7}, {}, {2, 1, 3}}, 0.25},
	{"empty", []op.Shape{{0}, {4}}, 1},
	{"large", []op.Shape{{129, 257}, {40000}, {3}}, 1.0 / 3},
}

// allGatherCases are exchanges of a group of one rank, which has all parts.
func allGatherCases(b *builder) {
	for _, c := range exchangedShapes {
		a := &op.AllReduce{Ranks: 1, Shards: 1, Shapes: c.shapes, Wire: b.dtype, Scale: 1}
		args := []op.Type{b.t(a.Gathered())}
		if b.op == op.AllGatherStart {
			args = nil
			for _, s := range c.shapes {
				args = append(args, b.t(s.Size()))
			}
		}
		b.add(c.name, op.Attr{AllReduce: a}, args, numbers)
	}
}

// allReduceCases are exchanges of a group of one rank, which are defined to the bit:
// the tensors one after the other, rounded to the wire's type, and their multiples.
func allReduceCases(b *builder) {
	for _, c := range exchangedShapes {
		for _, wire := range []dtype.DType{dtype.Float64, dtype.Float32, dtype.BFloat16, dtype.Float16} {
			a := &op.AllReduce{Ranks: 1, Shards: 1, Shapes: c.shapes, Wire: wire, Scale: c.scale, Scatter: c.name == "large"}
			name := c.name + "/" + wire.String()
			if b.op == op.AllReduceDone {
				if b.dtype == wire {
					b.add(name, op.Attr{AllReduce: a}, []op.Type{b.t(a.Part())}, numbers)
				}
				continue
			}
			if wire != b.dtype && (b.dtype != dtype.Float32 || !wire.Is16()) {
				continue
			}
			var args []op.Type
			for _, s := range c.shapes {
				args = append(args, b.t(s...))
			}
			b.add(name, op.Attr{AllReduce: a}, args, numbers)
		}
	}
}

// allReduceStart is the formula of op.AllReduceStart for one rank.
func allReduceStart(t op.Type, args []array) result {
	r := result{Type: t, f: make([]float64, 0, t.Shape.Size())}
	for _, a := range args {
		r.f = append(r.f, a.floats()...)
	}
	r.f = r.f[:cap(r.f)]
	return r
}

// allReduceDone is the formula of op.AllReduceDone for one rank.
func allReduceDone(a op.Attr, t op.Type, args []array) result {
	r := result{Type: t, f: args[0].floats()[:t.Shape.Size()]}
	for i, x := range r.f {
		if t.DType == dtype.Float32 {
			r.f[i] = float64(float32(x) * float32(a.AllReduce.Scale))
		} else {
			r.f[i] = x * a.AllReduce.Scale
		}
	}
	return r
}
