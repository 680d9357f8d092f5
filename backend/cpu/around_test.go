package cpu

import (
	"bytes"
	"context"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/driver"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
	"github.com/mezzo-ml/mezzo/backend/philox"
)

// TestAround: results that are written around the caches are those of small
// tensors, the last elements included.
func TestAround(t *testing.T) { forEachVectors(t, testAround) }

func testAround(t *testing.T) {
	const part = 1 << 12
	const n = soonBytes/8 + part + 13
	data := make([]float32, n)
	for i := range data {
		data[i] = float32(i%9973)/97 - 40
	}
	compute := func(x []float32) []byte {
		g := ir.New(1)
		typ := op.Type{DType: dtype.Float32, Shape: op.Shape{len(x)}}
		p := param(t, g, 0, typ)
		y := record(t, g, op.Mul, op.Attr{}, p, record(t, g, op.Const, op.Attr{DType: dtype.Float32, Value: 1.37}))
		g.Output(record(t, g, op.Add, op.Attr{}, y, p), -1)
		if err := ir.Optimize(g, ir.Options{Check: true}); err != nil {
			t.Fatal(err)
		}
		prog, err := compile(New(), g)
		if err != nil {
			t.Fatal(err)
		}
		if k, ok := prog.steps[len(prog.steps)-1].kernel.(*elementwise); !ok || k.fence != (vectors() != nil && len(x) == n) {
			t.Fatalf("%d elements: written around the caches: %v", len(x), ok && k.fence)
		}
		in, out := &Buffer{data: aligned(4 * len(x))}, &Buffer{data: aligned(4*len(x) + 64)}
		copy(dtype.View[float32](in.data), x)
		for i := range out.data[4*len(x):] {
			out.data[4*len(x)+i] = 0xa5
		}
		if err := prog.Run(context.Background(), []driver.Buffer{in}, []driver.Buffer{out}); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(out.data[4*len(x):], bytes.Repeat([]byte{0xa5}, 64)) {
			t.Error("bytes behind the result were written")
		}
		return out.data[:4*len(x)]
	}
	got := compute(data)
	for lo := 0; lo < n; lo += part {
		hi := min(n, lo+part)
		if !bytes.Equal(got[4*lo:4*hi], compute(data[lo:hi])) {
			t.Fatalf("elements %d to %d differ", lo, hi-1)
		}
	}
}

// TestRandomInRegisters: random numbers that one element-wise value reads are
// made there, and are the same; a run that is watched sees them. Others are in
// memory.
func TestRandomInRegisters(t *testing.T) { forEachVectors(t, testRandomInRegisters) }

func testRandomInRegisters(t *testing.T) {
	dims := op.Shape{3, 37, 43}
	numbers := make([]float32, dims.Size())
	philox.Uniform(12345, 7, 5, numbers)
	state := &Buffer{data: aligned(16)}
	copy(dtype.View[int64](state.data), []int64{12345, 7})
	for _, d := range []dtype.DType{dtype.Float32, dtype.Float16, dtype.BFloat16} {
		for name, c := range map[string]struct {
			record func(g *ir.Graph, u *ir.Value)
			want   bool
		}{
			"cast": {func(g *ir.Graph, u *ir.Value) { g.Output(record(t, g, op.Cast, op.Attr{DType: d}, u), -1) }, true},
			"product": {func(g *ir.Graph, u *ir.Value) {
				g.Output(record(t, g, op.Cast, op.Attr{DType: d}, record(t, g, op.Mul, op.Attr{}, u, u)), -1)
			}, true},
			"short rows": {func(g *ir.Graph, u *ir.Value) { // which end at odd places
				row := record(t, g, op.Const, op.Attr{DType: dtype.Float32, Dims: op.Shape{3, 1, 43}, Value: 1})
				g.Output(record(t, g, op.Cast, op.Attr{DType: d}, record(t, g, op.Mul, op.Attr{}, record(t, g, op.Mul, op.Attr{}, u, u), row)), -1)
			}, true},
			"two readers": {func(g *ir.Graph, u *ir.Value) {
				g.Output(record(t, g, op.Cast, op.Attr{DType: d}, record(t, g, op.Mul, op.Attr{}, u, u)), -1)
				g.Output(record(t, g, op.Sum, op.Attr{Axes: []int{0, 1, 2}}, u), -1)
			}, false},
			"result": {func(g *ir.Graph, u *ir.Value) {
				g.Output(record(t, g, op.Cast, op.Attr{DType: d}, record(t, g, op.Mul, op.Attr{}, u, u)), -1)
				g.Output(u, -1)
			}, false},
		} {
			g := ir.New(1)
			s := param(t, g, 0, op.Type{DType: dtype.Int64, Shape: op.Shape{2}})
			u := record(t, g, op.RandomUniform, op.Attr{Dims: dims, Stream: 5, DType: dtype.Float32}, s)
			c.record(g, u)
			if err := ir.Optimize(g, ir.Options{Check: true}); err != nil {
				t.Fatal(err)
			}
			prog, err := compile(New(), g)
			if err != nil {
				t.Fatal(err)
			}
			spared := 0
			for _, s := range prog.steps {
				if s.watched {
					spared++
				}
			}
			// In float32 the cast is none, and the numbers are the result.
			if want := c.want && !(name == "cast" && d == dtype.Float32); (spared == 1) != want {
				t.Errorf("%v, %s: %d values are made by their readers", d, name, spared)
			}
			var out []driver.Buffer
			for _, o := range g.Outputs {
				out = append(out, &Buffer{data: aligned(o.Type.Bytes())})
			}
			expect := aligned(dims.Size() * d.Size())
			products := make([]float32, len(numbers))
			for i, x := range numbers {
				products[i] = x
				if name != "cast" {
					products[i] = x * x
				}
			}
			dtype.FromF32(expect, products, d)
			seen := false
			see := func(v *ir.Value, data []byte) error {
				if v.Op == op.RandomUniform {
					seen = bytes.Equal(data, bytesOfFloats(numbers))
				}
				return nil
			}
			for _, see := range []func(*ir.Value, []byte) error{nil, see} {
				clear(out[0].(*Buffer).data)
				if err := prog.RunWatched(context.Background(), []driver.Buffer{state}, out, see); err != nil {
					t.Fatal(err)
				}
				if !bytes.Equal(out[0].(*Buffer).data, expect) {
					t.Errorf("%v, %s: other numbers", d, name)
				}
			}
			if !seen {
				t.Errorf("%v, %s: a watched run does not see the numbers", d, name)
			}
		}
	}
}
