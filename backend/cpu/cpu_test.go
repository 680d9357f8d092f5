package cpu

import (
	"context"
	"fmt"
	"hash/maphash"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/exec"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/isa"
	"github.com/mezzo-ml/mezzo/backend/driver"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// array is a value on the host.
type array struct {
	op.Type
	data []byte
}

// randomArray returns random numbers in [-2, 2), rounded to the type; integers are in
// [-20, 20), or [0, 40) for uint8.
func randomArray(rng *rand.Rand, d dtype.DType, shape ...int) array {
	x := make([]float64, op.Shape(shape).Size())
	for i := range x {
		switch {
		case d.IsFloat():
			x[i] = 4*rng.Float64() - 2
		case d == dtype.Bool:
			x[i] = float64(rng.IntN(2))
		case d == dtype.Uint8:
			x[i] = float64(rng.IntN(40))
		default:
			x[i] = float64(rng.IntN(40) - 20)
		}
	}
	return arrayFrom(d, shape, x)
}

func arrayOf(d dtype.DType, shape op.Shape, f func(i int) float64) array {
	x := make([]float64, shape.Size())
	for i := range x {
		x[i] = f(i)
	}
	return arrayFrom(d, shape, x)
}

// arrayFrom rounds numbers to a type.
func arrayFrom(d dtype.DType, shape op.Shape, x []float64) array {
	a := array{Type: op.Type{DType: d, Shape: shape}}
	a.data = exec.Aligned(a.Bytes())
	dtype.FromF64(a.data, x, d)
	return a
}

// values returns the elements as float64.
func (a array) values() []float64 {
	x := make([]float64, a.Shape.Size())
	dtype.ToF64(x, a.data, a.DType)
	return x
}

// references caches reference results by operation and operands, for all levels.
var references = map[string]array{}

var referenceSeed = maphash.MakeSeed()

// reference returns the cached result of compute for an operation, way and operands.
func reference(way string, c op.Code, a op.Attr, args []array, compute func() array) array {
	var h maphash.Hash
	h.SetSeed(referenceSeed)
	for _, x := range args {
		fmt.Fprintln(&h, x.Type)
		h.Write(x.data)
	}
	key := fmt.Sprintf("%s %v %+v %x", way, c, a, h.Sum64())
	want, ok := references[key]
	if !ok {
		want = compute()
		references[key] = want
	}
	return want
}

// portable returns the result of an operation in portable Go.
func portable(t *testing.T, c op.Code, a op.Attr, args ...array) array {
	t.Helper()
	return reference("portable", c, a, args, func() array {
		defer isa.Use(isa.Use(isa.Portable))
		return eval(t, c, a, args...)
	})
}

const guard = 64 // bytes on either side of an output that must not change

// guarded returns a buffer in the middle of memory filled with a pattern.
func guarded(bytes int) (*Buffer, func(t *testing.T)) {
	all := exec.Aligned(bytes + 2*guard)
	all[0] = 0xa5
	exec.Repeat(all, 1)
	return &Buffer{storage: all[guard : guard+bytes]}, func(t *testing.T) {
		t.Helper()
		for i := range guard {
			if all[i] != 0xa5 || all[guard+bytes+i] != 0xa5 {
				t.Fatalf("byte %d before an output of %d bytes, or byte %d behind it, was overwritten", guard-i, bytes, i)
			}
		}
	}
}

// shared is the device of most tests: a new device would ask the system for the size of
// memory.
var shared = New()

// plan optimizes a graph and compiles it.
func plan(t testing.TB, g *ir.Graph) *Program {
	t.Helper()
	if err := ir.Optimize(g, ir.Options{}); err != nil {
		t.Fatal(err)
	}
	p, err := shared.Compile(t.Context(), g)
	if err != nil {
		t.Fatal(err)
	}
	return p.(*Program)
}

// kernelName returns the type name of p's last kernel.
func kernelName(p *Program) string {
	_, name, _ := strings.Cut(fmt.Sprintf("%T", p.steps[len(p.steps)-1].kernel), ".")
	return name
}

// record appends an operation to a graph.
func record(t testing.TB, g *ir.Graph, c op.Code, a op.Attr, args ...*ir.Value) *ir.Value {
	t.Helper()
	types := make([]op.Type, len(args))
	for i, v := range args {
		types[i] = v.Type
	}
	typ, err := op.Infer(c, a, types...)
	if err != nil {
		t.Fatalf("%v: %v", c, err)
	}
	return g.Add(c, a, typ, "test", args...)
}

func param(t testing.TB, g *ir.Graph, i int, typ op.Type) *ir.Value {
	return record(t, g, op.Param, op.Attr{DType: typ.DType, Dims: typ.Shape, Index: i})
}

// eval runs one operation.
func eval(t testing.TB, c op.Code, a op.Attr, args ...array) array {
	t.Helper()
	out, err := tryEval(t, c, a, args...)
	if err != nil {
		t.Fatalf("%v: %v", c, err)
	}
	return out
}

func tryEval(t testing.TB, c op.Code, a op.Attr, args ...array) (array, error) {
	t.Helper()
	g := ir.New(len(args))
	in := make([]driver.Buffer, len(args))
	vals := make([]*ir.Value, len(args))
	for i, x := range args {
		vals[i] = param(t, g, i, x.Type)
		in[i] = &Buffer{storage: x.data}
	}
	v := record(t, g, c, a, vals...)
	g.Output(v, -1)
	out := array{Type: v.Type}
	buf, intact := guarded(v.Type.Bytes())
	err := plan(t, g).Run(context.Background(), in, []driver.Buffer{buf})
	if tt, ok := t.(*testing.T); ok {
		intact(tt)
	}
	out.data = buf.storage
	return out, err
}

// near checks got against a reference, within the tolerance of got's type for
// operands of magnitude scale.
func near(t *testing.T, what string, got array, want []float64, scale float64) {
	t.Helper()
	rel, abs := got.DType.Tolerance()
	x := got.values()
	if len(x) != len(want) {
		t.Fatalf("%s: got %d elements, want %d", what, len(x), len(want))
	}
	for i, w := range want {
		if math.IsNaN(w) != math.IsNaN(x[i]) || math.IsInf(w, 0) && x[i] != w ||
			!math.IsInf(w, 0) && math.Abs(x[i]-w) > abs*scale+rel*math.Abs(w) {
			t.Fatalf("%s: element %d is %v, want %v", what, i, x[i], w)
		}
	}
}

// TestTrainingStep runs training steps of a small classifier (forward, backward and
// update with donated weights) and checks that the loss falls.
func TestTrainingStep(t *testing.T) {
	for _, d := range dtype.Floats() {
		t.Run(d.String(), func(t *testing.T) {
			const batch, in, hidden, classes = 32, 20, 24, 10
			g := ir.New(4)
			rec := func(c op.Code, a op.Attr, args ...*ir.Value) *ir.Value { return record(t, g, c, a, args...) }
			x := param(t, g, 0, op.Type{DType: dtype.Float32, Shape: op.Shape{batch, in}})
			y := param(t, g, 1, op.Type{DType: dtype.Int32, Shape: op.Shape{batch}})
			w1 := param(t, g, 2, op.Type{DType: dtype.Float32, Shape: op.Shape{in, hidden}})
			w2 := param(t, g, 3, op.Type{DType: dtype.Float32, Shape: op.Shape{hidden, classes}})
			cast := func(v *ir.Value, d dtype.DType) *ir.Value { return rec(op.Cast, op.Attr{DType: d}, v) }
			xd, w1d, w2d := cast(x, d), cast(w1, d), cast(w2, d)
			h := rec(op.Relu, op.Attr{}, rec(op.MatMul, op.Attr{}, xd, w1d))
			logits := cast(rec(op.MatMul, op.Attr{}, h, w2d), dtype.Float32)
			logp := rec(op.LogSoftmax, op.Attr{Axes: []int{1}}, logits)
			loss := rec(op.Neg, op.Attr{}, rec(op.Mean, op.Attr{Axes: []int{0}}, rec(op.TakeAlongAxis, op.Attr{}, logp, y)))
			ones := rec(op.Const, op.Attr{DType: dtype.Float32, Dims: op.Shape{batch}, Value: 1})
			hot := rec(op.ScatterAlongAxis, op.Attr{Size: classes}, ones, y)
			dl := cast(rec(op.Sub, op.Attr{}, rec(op.Exp, op.Attr{}, logp), hot), d)
			dw2 := rec(op.MatMul, op.Attr{TransA: true, DType: dtype.Float32}, h, dl)
			dh := rec(op.MatMul, op.Attr{TransB: true}, dl, w2d)
			zero := rec(op.Const, op.Attr{DType: d})
			dh = rec(op.Where, op.Attr{}, rec(op.Greater, op.Attr{}, h, zero), dh, zero)
			dw1 := rec(op.MatMul, op.Attr{TransA: true, DType: dtype.Float32}, xd, dh)
			rate := rec(op.Const, op.Attr{DType: dtype.Float32, Value: 0.3 / batch})
			update := func(w, dw *ir.Value) *ir.Value {
				return rec(op.Sub, op.Attr{}, w, rec(op.Mul, op.Attr{}, cast(dw, dtype.Float32), rate))
			}
			g.Output(loss, -1)
			g.Output(update(w1, dw1), 2)
			g.Output(update(w2, dw2), 3)
			p := plan(t, g)

			rng := rand.New(rand.NewPCG(1, 2))
			in1 := randomArray(rng, dtype.Float32, batch, in)
			labels := arrayOf(dtype.Int32, op.Shape{batch}, func(i int) float64 { return float64(i % classes) })
			bufs := []driver.Buffer{&Buffer{storage: in1.data}, &Buffer{storage: labels.data},
				&Buffer{storage: randomArray(rng, dtype.Float32, in, hidden).data}, &Buffer{storage: randomArray(rng, dtype.Float32, hidden, classes).data}}
			lossBuf := &Buffer{storage: exec.Aligned(4)}
			out := []driver.Buffer{lossBuf, bufs[2], bufs[3]}
			for i, donated := range g.Donated {
				if i > 0 && donated < 0 {
					out[i] = &Buffer{storage: exec.Aligned(out[i].Bytes())}
				}
			}
			var first, last float32
			for i := range 50 {
				if err := p.Run(context.Background(), bufs, out); err != nil {
					t.Fatal(err)
				}
				for j := 1; j < 3; j++ { // rebind, as the recorder does
					if g.Donated[j] < 0 {
						bufs[j+1], out[j] = out[j], bufs[j+1]
					}
				}
				last = dtype.View[float32](lossBuf.storage)[0]
				if i == 0 {
					first = last
				}
			}
			if !(last < first/4) {
				t.Errorf("the loss went from %v to %v in 50 steps", first, last)
			}
			run := func() {
				if err := p.Run(context.Background(), bufs, out); err != nil {
					t.Fatal(err)
				}
			}
			if n := testing.AllocsPerRun(10, run); n != 0 {
				t.Errorf("a run allocates %v times, want 0", n)
			}
		})
	}
}
