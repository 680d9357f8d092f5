package cpu

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/exec"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/lanes"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// traffic is the memory traffic of an optimizer with almost no arithmetic: a gradient
// is read, and slots and weight are read and written in place.
type traffic struct {
	gradient []float32
	moved    [][]float32
	block    int
}

const trafficGrain = 1 << 16

func (t *traffic) Chunk(_ *exec.Run, _ *exec.Worker, i int) {
	add := lanes.OfF32().Binary[op.Add]
	hi := min(len(t.gradient), (i+1)*trafficGrain)
	for lo := i * trafficGrain; lo < hi; lo += t.block {
		end := min(hi, lo+t.block)
		for _, x := range t.moved {
			add(x[lo:end], x[lo:end], t.gradient[lo:end])
		}
	}
}

// seconds returns the best of a few rounds with blocks of several sizes.
func (t *traffic) seconds() float64 {
	best := time.Duration(1 << 62)
	r := &exec.Run{Plan: &exec.Plan{}, Procs: runtime.GOMAXPROCS(0)}
	for _, t.block = range []int{256, 1024, 4096} {
		for range 3 {
			start := time.Now()
			r.Parallel(t, (len(t.gradient)+trafficGrain-1)/trafficGrain, 1<<40)
			best = min(best, time.Since(start))
		}
	}
	return best.Seconds()
}

// updateRule records the new slots and weight for old ones and a gradient.
type updateRule struct {
	name  string
	slots int
	move  func(b *updates, w, g *ir.Value, slots []*ir.Value) (newW *ir.Value, newSlots []*ir.Value)
}

type updates struct {
	tb testing.TB
	g  *ir.Graph
}

func (b *updates) do(c op.Code, args ...*ir.Value) *ir.Value {
	return record(b.tb, b.g, c, op.Attr{}, args...)
}

func (b *updates) num(x float64) *ir.Value {
	return record(b.tb, b.g, op.Const, op.Attr{DType: dtype.Float32, Value: x})
}

// lerp is v + (x-v)·s that flushes numbers near 0: see package optimizers.
func (b *updates) lerp(v, x *ir.Value, s float64) *ir.Value {
	small := b.num(0x1p-80)
	return b.do(op.Sub, b.do(op.Add, b.do(op.Add, v, b.do(op.Mul, b.do(op.Sub, x, v), b.num(s))), small), small)
}

var updateRules = []updateRule{
	{"SGD", 0, func(b *updates, w, g *ir.Value, _ []*ir.Value) (*ir.Value, []*ir.Value) {
		return b.do(op.Sub, w, b.do(op.Mul, g, b.num(0.01))), nil
	}},
	{"Momentum", 1, func(b *updates, w, g *ir.Value, s []*ir.Value) (*ir.Value, []*ir.Value) {
		m := b.do(op.Sub, b.do(op.Mul, s[0], b.num(0.9)), b.do(op.Mul, g, b.num(0.01)))
		return b.do(op.Add, w, m), []*ir.Value{m}
	}},
	{"RMSprop", 1, func(b *updates, w, g *ir.Value, s []*ir.Value) (*ir.Value, []*ir.Value) {
		v := b.do(op.Add, b.do(op.Mul, s[0], b.num(0.9)), b.do(op.Mul, b.do(op.Square, g), b.num(0.1)))
		return b.do(op.Sub, w, b.do(op.Div, b.do(op.Mul, g, b.num(0.001)), b.do(op.Sqrt, b.do(op.Add, v, b.num(1e-7))))), []*ir.Value{v}
	}},
	{"Lion", 1, func(b *updates, w, g *ir.Value, s []*ir.Value) (*ir.Value, []*ir.Value) {
		blend := func(beta float64) *ir.Value {
			return b.do(op.Add, b.do(op.Mul, s[0], b.num(beta)), b.do(op.Mul, g, b.num(1-beta)))
		}
		return b.do(op.Sub, w, b.do(op.Mul, b.do(op.Sign, blend(0.9)), b.num(0.001))), []*ir.Value{blend(0.99)}
	}},
	{"Adam", 2, moveAdam},
	{"AdamW", 2, func(b *updates, w, g *ir.Value, s []*ir.Value) (*ir.Value, []*ir.Value) {
		return moveAdam(b, b.do(op.Sub, w, b.do(op.Mul, w, b.num(0.004))), g, s)
	}},
	{"AdamClipAverage", 3, func(b *updates, w, g *ir.Value, s []*ir.Value) (*ir.Value, []*ir.Value) {
		g = b.do(op.Mul, g, b.num(0.5))
		w, slots := moveAdam(b, w, g, s)
		return w, append(slots, b.do(op.Add, b.do(op.Mul, s[2], b.num(0.99)), b.do(op.Mul, w, b.num(0.01))))
	}},
}

func moveAdam(b *updates, w, g *ir.Value, s []*ir.Value) (*ir.Value, []*ir.Value) {
	m, v := b.lerp(s[0], g, 0.1), b.lerp(s[1], b.do(op.Square, g), 0.001)
	step := b.do(op.Div, b.do(op.Mul, m, b.num(0.01)), b.do(op.Add, b.do(op.Sqrt, v), b.num(1e-7)))
	return b.do(op.Sub, w, step), []*ir.Value{m, v}
}

// program compiles the update of a weight of n elements, in place. Inputs are
// the weight, the slots and the gradient.
func (u updateRule) program(tb testing.TB, n int) *Program { return plan(tb, u.graph(tb, n)) }

func (u updateRule) graph(tb testing.TB, n int) *ir.Graph {
	b := &updates{tb, ir.New(u.slots + 2)}
	t := op.Type{DType: dtype.Float32, Shape: op.Shape{n}}
	var in []*ir.Value
	for i := range u.slots + 2 {
		in = append(in, param(tb, b.g, i, t))
	}
	w, slots := u.move(b, in[0], in[u.slots+1], in[1:u.slots+1])
	for i, s := range slots {
		b.g.Output(s, 1+i)
	}
	b.g.Output(w, 0)
	return b.g
}

// BenchmarkUpdate updates 20 million parameters by several rules. It reports
// nanoseconds per parameter, useful bytes per second, and the share of the rate of
// loops with the same traffic and one addition per array, measured before and after.
func BenchmarkUpdate(b *testing.B) {
	const n = 20_000_000
	for _, u := range updateRules {
		for _, procs := range []int{1, 2} {
			b.Run(fmt.Sprintf("%s/%dT", u.name, procs), func(b *testing.B) {
				defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(procs))
				p := u.program(b, n)
				rng := rand.New(rand.NewPCG(1, 1))
				var inputs []array
				t := &traffic{}
				for range u.slots + 2 {
					inputs = append(inputs, randomArray(rng, dtype.Float32, n))
				}
				for i := range inputs[1 : u.slots+1] { // squares are not negative
					x := dtype.View[float32](inputs[1+i].data)
					for j := range x {
						x[j] = max(x[j], -x[j])
					}
				}
				in, out := buffers(p, inputs)
				for _, buf := range in {
					t.moved = append(t.moved, dtype.View[float32](buf.(*Buffer).storage)[:n])
				}
				t.gradient, t.moved = t.moved[u.slots+1], t.moved[:u.slots+1]
				seconds, plain := 1e9, 1e9
				for b.Loop() {
					for range 3 {
						start := time.Now()
						if err := p.Run(context.Background(), in, out); err != nil {
							b.Fatal(err)
						}
						seconds = min(seconds, time.Since(start).Seconds())
					}
					plain = min(plain, t.seconds())
				}
				bytes := float64(4 * n * (2*u.slots + 3))
				b.ReportMetric(0, "ns/op")
				b.ReportMetric(seconds*1e9/n, "ns/param")
				b.ReportMetric(bytes/seconds/1e9, "GB/s")
				b.ReportMetric(100*plain/seconds, "%traffic")
			})
		}
	}
}
