package cpu

import (
	"bytes"
	"context"
	"fmt"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/elementwise"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/exec"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/isa/isatest"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/vec"
	"github.com/mezzo-ml/mezzo/backend/driver"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
	"github.com/mezzo-ml/mezzo/backend/philox"
)

// TestNonTemporal: results stored non-temporally equal those of small tensors, including the
// last elements.
func TestNonTemporal(t *testing.T) { forEachVectors(t, testNonTemporal) }

func testNonTemporal(t *testing.T) {
	for _, d := range []dtype.DType{dtype.Float32, dtype.BFloat16, dtype.Float16} {
		// A rounded sum, and a sum rounded before the operation that stores it.
		for _, last := range []op.Code{op.Identity, op.Relu} {
			t.Run(fmt.Sprint(d, last), func(t *testing.T) {
				if d != dtype.Float32 || last != op.Identity {
					isatest.SkipEmulated(t, "NEON has non-temporal stores of float32 alone")
				}
				testNonTemporalOf(t, d, last)
			})
		}
	}
}

func testNonTemporalOf(t *testing.T, d dtype.DType, last op.Code) {
	size := d.Size()
	const part = 1 << 12
	n := elementwise.ReuseBytes/(2*size) + part + 13
	data := exec.Aligned(n * size)
	const period = 9973
	few := arrayOf(d, op.Shape{period}, func(i int) float64 { return float64(i)/97 - 40 })
	exec.Repeat(data, copy(data, few.data))
	compute := func(x []byte) []byte {
		g := ir.New(1)
		typ := op.Type{DType: d, Shape: op.Shape{len(x) / size}}
		p := param(t, g, 0, typ)
		y := record(t, g, op.Mul, op.Attr{}, p, record(t, g, op.Const, op.Attr{DType: d, Value: 1.37}))
		g.Output(record(t, g, last, op.Attr{}, record(t, g, op.Add, op.Attr{}, y, p)), -1)
		if err := ir.Optimize(g, ir.Options{Check: true}); err != nil {
			t.Fatal(err)
		}
		prog, err := compile(t.Context(), shared, g)
		if err != nil {
			t.Fatal(err)
		}
		if k, ok := prog.steps[len(prog.steps)-1].kernel.(*elementwise.Chain); !ok || k.NonTemporal() != (len(x) == n*size && (vec.Current() != nil && size == 4 || vec.Current() == vec.AVX512() && vec.Current() != nil)) {
			t.Fatalf("%d bytes: written around the caches: %v", len(x), ok && k.NonTemporal())
		}
		in, out := &Buffer{storage: exec.Aligned(len(x))}, &Buffer{storage: exec.Aligned(len(x) + 64)}
		copy(in.storage, x)
		for i := range out.storage[len(x):] {
			out.storage[len(x)+i] = 0xa5
		}
		if err := prog.Run(context.Background(), []driver.Buffer{in}, []driver.Buffer{out}); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(out.storage[len(x):], bytes.Repeat([]byte{0xa5}, 64)) {
			t.Error("bytes behind the result were written")
		}
		return out.storage[:len(x)]
	}
	got := compute(data)
	for lo := 0; lo < n; lo += part {
		hi := min(n, lo+part)
		if hi < n && lo > 4*part && lo%(61*part) != 0 { // comparing all would take too long
			continue
		}
		if !bytes.Equal(got[size*lo:size*hi], compute(data[size*lo:size*hi])) {
			t.Fatalf("elements %d to %d differ", lo, hi-1)
		}
	}
}

// TestFusedRandom: random numbers with one element-wise consumer are fused into
// it and have the same bits; a watched run sees them. All others are stored.
func TestFusedRandom(t *testing.T) { forEachVectors(t, testFusedRandom) }

func testFusedRandom(t *testing.T) {
	dims := op.Shape{3, 37, 43}
	numbers := make([]float32, dims.Size())
	philox.Uniform(12345, 7, 5, numbers)
	state := &Buffer{storage: exec.Aligned(16)}
	copy(dtype.View[int64](state.storage), []int64{12345, 7})
	for _, d := range []dtype.DType{dtype.Float32, dtype.Float16, dtype.BFloat16} {
		for name, c := range map[string]struct {
			record func(g *ir.Graph, u *ir.Value)
			want   bool
		}{
			"cast": {func(g *ir.Graph, u *ir.Value) { g.Output(record(t, g, op.Cast, op.Attr{DType: d}, u), -1) }, true},
			"product": {func(g *ir.Graph, u *ir.Value) {
				g.Output(record(t, g, op.Cast, op.Attr{DType: d}, record(t, g, op.Mul, op.Attr{}, u, u)), -1)
			}, true},
			"short rows": {func(g *ir.Graph, u *ir.Value) { // ends at odd offsets
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
			prog, err := compile(t.Context(), shared, g)
			if err != nil {
				t.Fatal(err)
			}
			spared := 0
			for _, s := range prog.steps {
				if s.watched {
					spared++
				}
			}
			// In float32 there is no cast, and the numbers are the result.
			if want := c.want && !(name == "cast" && d == dtype.Float32); (spared == 1) != want {
				t.Errorf("%v, %s: %d values are made by their readers", d, name, spared)
			}
			var out []driver.Buffer
			for _, o := range g.Outputs {
				out = append(out, &Buffer{storage: exec.Aligned(o.Type.Bytes())})
			}
			expect := exec.Aligned(dims.Size() * d.Size())
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
				if err := out[0].CopyIn(make([]byte, out[0].Bytes())); err != nil {
					t.Fatal(err)
				}
				if err := prog.RunWatched(context.Background(), []driver.Buffer{state}, out, see); err != nil {
					t.Fatal(err)
				}
				if !bytes.Equal(out[0].(*Buffer).storage, expect) {
					t.Errorf("%v, %s: other numbers", d, name)
				}
			}
			if !seen {
				t.Errorf("%v, %s: a watched run does not see the numbers", d, name)
			}
		}
	}
}
