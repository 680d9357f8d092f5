package cpu

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/exec"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/vec"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// plain is a loop that reads and writes given numbers of bytes and computes nothing:
// the speed of memory for an operation with that traffic. It tries ordinary stores, and
// non-temporal stores with reads from several places.
type plain struct {
	src, dst    []byte
	nonTemporal bool
	r           *exec.Run
	chunks      int
}

func newPlain(reads, writes int) *plain {
	t := &plain{src: exec.Aligned(reads), dst: exec.Aligned(writes)}
	for i := range t.src {
		t.src[i] = 1
	}
	clear(t.dst)
	t.chunks = max(1, max(reads, writes)>>15)
	t.r = &exec.Run{Plan: &exec.Plan{}}
	return t
}

func (t *plain) Chunk(_ *exec.Run, _ *exec.Worker, i int) {
	part := func(b []byte) []byte {
		return b[len(b)*i/t.chunks&^63 : len(b)*(i+1)/t.chunks&^63]
	}
	src, dst := part(t.src), part(t.dst)
	n := min(len(src), len(dst))
	if v := vec.Current(); v != nil && t.nonTemporal {
		v.CopyNT(dst[:n], src[:n])
		v.FillNT(dst[n:], 0)
		v.PrefetchLoad(src[n:])
		return
	}
	copy(dst[:n], src[:n])
	clear(dst[n:])
	if v := vec.Current(); v != nil {
		v.PrefetchLoad(src[n:])
	}
}

// seconds returns the time of one pass, the shortest of several.
func (t *plain) seconds(procs int) float64 {
	t.r.Procs = procs
	best := time.Duration(1 << 62)
	for _, nonTemporal := range []bool{false, true} {
		t.nonTemporal = nonTemporal
		for range 3 {
			best = min(best, rounds(len(t.src)+len(t.dst), func() { t.r.Parallel(t, t.chunks, 1<<40) }))
		}
	}
	return best.Seconds()
}

// rounds returns the mean time of f over enough calls for the clock's resolution.
func rounds(bytes int, f func()) time.Duration {
	n := max(1, (1<<22)/max(1, bytes))
	start := time.Now()
	for range n {
		f()
	}
	return time.Since(start) / time.Duration(n)
}

// sizes are the bytes that an operation reads and writes in all: within L1, within L2,
// and more than a program's share of L3.
var sizes = []struct {
	name  string
	bytes int
}{{"L1", 1 << 15}, {"L2", 1 << 20}, {"DRAM", 1 << 27}}

// benchMemory runs a graph of one output at each size. It reports useful bytes per
// second, each operand and result counted once, and their share of the rate of a loop
// with the same traffic. build gets the number of elements for one byte of traffic
// each.
func benchMemory(b *testing.B, name string, perElement int, build func(tb testing.TB, g *ir.Graph, n int) *ir.Value) {
	for _, size := range sizes {
		for _, procs := range []int{1, runtime.NumCPU()} {
			b.Run(fmt.Sprintf("%s/%s/%dT", name, size.name, procs), func(b *testing.B) {
				defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(procs))
				g := ir.New(8)
				v := build(b, g, size.bytes/perElement)
				g.Params = slices.DeleteFunc(g.Params, func(v *ir.Value) bool { return v == nil })
				g.Output(v, -1)
				p := plan(b, g)
				var inputs []array
				reads, writes := 0, v.Type.Bytes()
				for _, v := range g.Params {
					inputs = append(inputs, repeated(v.Type))
					reads += v.Type.Bytes()
				}
				in, out := buffers(p, inputs)
				t := newPlain(reads, writes)
				var ours, plain []float64
				for b.Loop() {
					for range 3 {
						plain = append(plain, t.seconds(procs))
						best := time.Duration(1 << 62)
						for range 4 {
							best = min(best, rounds(reads+writes, func() {
								if err := p.Run(context.Background(), in, out); err != nil {
									b.Fatal(err)
								}
							}))
						}
						ours = append(ours, best.Seconds())
					}
				}
				slices.Sort(ours)
				slices.Sort(plain)
				b.ReportMetric(0, "ns/op")
				b.ReportMetric(float64(reads+writes)/ours[len(ours)/2]/1e9, "GB/s")
				b.ReportMetric(100*plain[len(plain)/2]/ours[len(ours)/2], "%plain")
			})
		}
	}
}

// repeated returns an array that repeats a few numbers of both signs; integers are
// scattered from 0 to 999.
func repeated(t op.Type) array {
	const period = 4093 // prime
	size := t.Shape.Size()
	a := arrayOf(t.DType, op.Shape{min(period, size)}, func(i int) float64 {
		x := i * 2654435 % 1000
		if t.DType.IsInt() {
			return float64(x)
		}
		return float64(x)/250 - 2
	})
	data := exec.Aligned(t.Bytes())
	exec.Repeat(data, copy(data, a.data))
	return array{t, data}
}

func BenchmarkMemory(b *testing.B) {
	typ := func(d dtype.DType, shape ...int) op.Type { return op.Type{DType: d, Shape: shape} }
	one := func(name string, bytes int, c op.Code, attr func(n int) op.Attr, types func(n int) []op.Type) {
		benchMemory(b, name, bytes, func(tb testing.TB, g *ir.Graph, n int) *ir.Value {
			var args []*ir.Value
			for i, t := range types(n) {
				args = append(args, param(tb, g, i, t))
			}
			return record(tb, g, c, attr(n), args...)
		})
	}
	fixed := func(a op.Attr) func(int) op.Attr { return func(int) op.Attr { return a } }
	flat := func(types ...dtype.DType) func(n int) []op.Type {
		return func(n int) (list []op.Type) {
			for _, d := range types {
				list = append(list, typ(d, n))
			}
			return list
		}
	}
	// rows returns a matrix of n elements with a given width.
	rows := func(d dtype.DType, width int) func(n int) []op.Type {
		return func(n int) []op.Type { return []op.Type{typ(d, max(1, n/width), width)} }
	}
	f32, f16, bf16 := dtype.Float32, dtype.Float16, dtype.BFloat16
	for _, c := range [][2]dtype.DType{{f32, bf16}, {bf16, f32}, {f32, f16}, {f16, f32}, {f16, bf16}, {bf16, f16}} {
		one("Cast/"+c[0].String()+"-"+c[1].String(), c[0].Size()+c[1].Size(), op.Cast, fixed(op.Attr{DType: c[1]}), flat(c[0]))
	}
	for _, d := range []dtype.DType{f32, bf16, f16} {
		s := d.Size()
		for _, c := range []op.Code{op.Relu, op.Sqrt, op.Exp, op.Tanh, op.Sigmoid, op.Log, op.Erf} {
			one(c.String()+"/"+d.String(), 2*s, c, fixed(op.Attr{}), flat(d))
		}
		for _, c := range []op.Code{op.Add, op.Mul, op.Maximum} {
			one(c.String()+"/"+d.String(), 3*s, c, fixed(op.Attr{}), flat(d, d))
		}
		one("Greater/"+d.String(), 2*s+1, op.Greater, fixed(op.Attr{}), flat(d, d))
		one("Where/"+d.String(), 3*s+1, op.Where, fixed(op.Attr{}), flat(dtype.Bool, d, d))
		for name, axis := range map[string]int{"BiasColumns": 1, "BiasRows": 0} {
			one(name+"/"+d.String(), 2*s, op.Add, fixed(op.Attr{}), func(n int) []op.Type {
				bias := typ(d, 1, 64)
				if axis == 0 {
					bias = typ(d, n/64, 1)
				}
				return []op.Type{typ(d, n/64, 64), bias}
			})
		}
		for _, width := range []int{10, 64, 1024} {
			at := fmt.Sprintf("%v/%d", d, width)
			one("SumColumns/"+at, s, op.Sum, fixed(op.Attr{Axes: []int{0}}), rows(d, width))
			one("SumRows/"+at, s, op.Sum, fixed(op.Attr{Axes: []int{1}}), rows(d, width))
			one("MaxRows/"+at, s, op.Max, fixed(op.Attr{Axes: []int{1}}), rows(d, width))
			one("ArgMax/"+at, s, op.ArgMax, fixed(op.Attr{Axes: []int{1}}), rows(d, width))
		}
		one("MaxColumns/"+d.String(), s, op.Max, fixed(op.Attr{Axes: []int{0}}), rows(d, 64))
		one("Sum/"+d.String(), s, op.Sum, fixed(op.Attr{Axes: []int{0}}), flat(d))
		one("Max/"+d.String(), s, op.Max, fixed(op.Attr{Axes: []int{0}}), flat(d))
		one("SumSquares/"+d.String(), s, op.SumSquares, fixed(op.Attr{}), flat(d))
		one("AllFinite/"+d.String(), s, op.AllFinite, fixed(op.Attr{}), flat(d))
		one("Transpose/"+d.String()+"/64", 2*s, op.Transpose, fixed(op.Attr{Perm: []int{1, 0}}), rows(d, 64))
		one("Transpose/"+d.String()+"/1024", 2*s, op.Transpose, fixed(op.Attr{Perm: []int{1, 0}}), rows(d, 1024))
		one("Transpose/"+d.String()+"/1000", 2*s, op.Transpose, fixed(op.Attr{Perm: []int{1, 0}}), rows(d, 1000))
		image := func(shape func(k int) []int) func(n int) []op.Type {
			return func(n int) []op.Type { return []op.Type{typ(d, shape(max(1, n/(14*14*32)))...)} }
		}
		one("NHWC-NCHW/"+d.String(), 2*s, op.Transpose, fixed(op.Attr{Perm: []int{0, 3, 1, 2}}), image(func(k int) []int { return []int{k, 14, 14, 32} }))
		one("NCHW-NHWC/"+d.String(), 2*s, op.Transpose, fixed(op.Attr{Perm: []int{0, 2, 3, 1}}), image(func(k int) []int { return []int{k, 32, 14, 14} }))
		one("Heads/"+d.String(), 2*s, op.Transpose, fixed(op.Attr{Perm: []int{0, 2, 1, 3}}), func(n int) []op.Type {
			return []op.Type{typ(d, max(1, n/(128*8*64)), min(128, n/(8*64)), 8, 64)}
		})
		one("Concat/"+d.String(), 2*s, op.Concat, fixed(op.Attr{Axes: []int{1}}), func(n int) []op.Type {
			return []op.Type{typ(d, n/128, 64), typ(d, n/128, 64)}
		})
		one("Pad/"+d.String(), 2*s, op.Pad, fixed(op.Attr{Low: []int{0, 1}, High: []int{0, 1}}), rows(d, 62))
		one("Slice/"+d.String(), 2*s, op.Slice, func(n int) op.Attr {
			return op.Attr{Start: []int{0, 32}, Limit: []int{n / 128, 96}, Stride: []int{1, 1}}
		}, func(n int) []op.Type { return []op.Type{typ(d, n/128, 128)} })
		indexed := func(n int) []op.Type {
			k := max(1, n/(2*128))
			return []op.Type{typ(d, 1000, 128), typ(dtype.Int32, 2*k)}
		}
		one("Gather/"+d.String(), 2*s, op.Gather, fixed(op.Attr{}), indexed)
		one("ScatterAdd/"+d.String(), s, op.ScatterAdd, fixed(op.Attr{Size: 1000}), func(n int) []op.Type {
			k := max(1, n/128)
			return []op.Type{typ(d, k, 128), typ(dtype.Int32, k)}
		})
		benchMemory(b, "OneHot/"+d.String(), 100*s, func(tb testing.TB, g *ir.Graph, n int) *ir.Value {
			one := record(tb, g, op.Const, op.Attr{DType: d, Dims: op.Shape{n}, Value: 1})
			return record(tb, g, op.ScatterAlongAxis, op.Attr{Size: 1000}, one, param(tb, g, 0, typ(dtype.Int32, n)))
		})
		benchMemory(b, "Dropout/"+d.String(), 2*s, func(tb testing.TB, g *ir.Graph, n int) *ir.Value {
			x, state := param(tb, g, 0, typ(d, n)), param(tb, g, 1, typ(dtype.Int64, 2))
			rec := func(c op.Code, a op.Attr, args ...*ir.Value) *ir.Value { return record(tb, g, c, a, args...) }
			u := rec(op.RandomUniform, op.Attr{Dims: x.Type.Shape, Bits: 16}, state)
			number := func(d dtype.DType, v float64) *ir.Value { return rec(op.Const, op.Attr{DType: d, Value: v}) }
			keep := rec(op.GreaterEqual, op.Attr{}, u, number(f32, 0.2))
			return rec(op.Where, op.Attr{}, keep, rec(op.Mul, op.Attr{}, x, number(d, 1.25)), number(d, 0))
		})
	}
	one("RandomUniform", 4, op.RandomUniform, func(n int) op.Attr { return op.Attr{Dims: op.Shape{n}} }, func(int) []op.Type { return []op.Type{typ(dtype.Int64, 2)} })
	for _, d := range []dtype.DType{f32, bf16, f16} {
		s := d.Size()
		for _, width := range []int{10, 1024} {
			one(fmt.Sprintf("Softmax/%v/%d", d, width), 2*s, op.Softmax, fixed(op.Attr{Axes: []int{1}}), rows(d, width))
		}
		benchMemory(b, "ReluMask/"+d.String(), 3*s, func(tb testing.TB, g *ir.Graph, n int) *ir.Value {
			y, dy := param(tb, g, 0, typ(d, n)), param(tb, g, 1, typ(d, n))
			zero := record(tb, g, op.Const, op.Attr{DType: d})
			return record(tb, g, op.Where, op.Attr{}, record(tb, g, op.Greater, op.Attr{}, y, zero), dy, zero)
		})
	}
}
