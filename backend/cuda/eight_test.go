//go:build cuda && linux && amd64

package cuda

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/driver"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// eightLayer records a dense layer under mixed_float8 with its gradients, as
// package layers does, in a compute type: inputs x [m k], weights [k n] in
// float32, bias, gradient [m n], and a scale of each.
func eightLayer(g *graph, t dtype.DType, m, k, n int, mask bool) []*ir.Value {
	single := dtype.Float32
	x, w, bias, dy := g.param(t, m, k), g.param(single, k, n), g.param(t, n), g.param(t, m, n)
	scales := []*ir.Value{g.param(single), g.param(single), g.param(single)}
	cast := func(v *ir.Value, t dtype.DType) *ir.Value { return g.add(op.Cast, op.Attr{DType: t}, v) }
	quantize := func(c op.Code, v, s *ir.Value) *ir.Value {
		if v.Type.DType != single {
			v = cast(v, single)
		}
		return cast(g.add(c, op.Attr{}, g.add(op.Div, op.Attr{}, v, s)), t)
	}
	matmul := func(transA, transB bool, x, y *ir.Value) *ir.Value {
		return g.add(op.MatMul, op.Attr{TransA: transA, TransB: transB, DType: single}, x, y)
	}
	scale := func(i, j int) *ir.Value { return g.add(op.Mul, op.Attr{}, scales[i], scales[j]) }
	qx, qw, qg := quantize(op.RoundE4M3, x, scales[0]), quantize(op.RoundE4M3, w, scales[1]), quantize(op.RoundE5M2, dy, scales[2])
	y := cast(g.add(op.Mul, op.Attr{}, matmul(false, false, qx, qw), scale(0, 1)), t)
	y = g.add(op.Relu, op.Attr{}, g.add(op.Add, op.Attr{}, y, bias))
	dx := cast(g.add(op.Mul, op.Attr{}, matmul(false, true, qg, qw), scale(2, 1)), t)
	if mask {
		zero := g.add(op.Const, op.Attr{DType: t})
		dx = g.add(op.Where, op.Attr{}, g.add(op.Greater, op.Attr{}, x, zero), dx, zero)
	}
	dw := g.add(op.Mul, op.Attr{}, matmul(true, false, qx, qg), scale(2, 0))
	return []*ir.Value{y, dx, dw}
}

// eightInputs are numbers for eightLayer, of all sizes that the formats have,
// and more.
func eightInputs(g *graph) (in [][]float64) {
	r := rand.New(rand.NewPCG(5, 6))
	for i, p := range g.params {
		x := numbers(r, p.DType, p.Shape.Size())
		for j := range x {
			if i < 4 && i != 2 {
				x[j] *= math.Ldexp(1, j%24-16)
			}
		}
		data := make([]byte, p.Bytes())
		dtype.FromF64(data, x, p.DType)
		dtype.ToF64(x, data, p.DType)
		in = append(in, x)
	}
	n := len(in)
	in[0][3], in[0][4], in[3][5] = math.NaN(), math.Copysign(0, -1), 1000
	in[n-3], in[n-2], in[n-1] = []float64{1. / 64}, []float64{1. / 128}, []float64{1. / 16384}
	return in
}

// TestEight: a layer under mixed_float8 has the same bits with products of 8-bit
// floats as with products of what they stand for; where nothing else reads them
// operands are stored in 8 bits at once.
func TestEight(t *testing.T) {
	d := open(t)
	defer d.Close()
	d.settings.eight = true
	has, hardware := d.eightBits(), os.Getenv("MEZZO_CUDA_TEST") == "gpu" // whose sums have about 14 bits
	for _, dt := range []dtype.DType{dtype.BFloat16, dtype.Float16} {
		for _, c := range []struct {
			m, k, n int
			mask    bool
			eight   bool
		}{
			{48, 32, 80, false, true}, {16, 80, 16, true, true}, {144, 16, 80, true, true},
			{40, 32, 80, false, false}, {48, 24, 80, false, false}, {48, 32, 72, true, false},
		} {
			for _, skip := range [][]string{nil, {"fuse", "epilogue", "multioutput", "share"}} {
				for _, epilogue := range []bool{false, true} {
					t.Run(fmt.Sprintf("%v/%+v/%v/%v", dt, c, skip, epilogue), func(t *testing.T) {
						var want [][]float64
						for _, eight := range []bool{false, true} {
							d.settings = settings{tf32: true, epilogue: epilogue, eight: eight, eightAll: true}
							g := newGraph(t)
							outs := eightLayer(g, dt, c.m, c.k, c.n, c.mask)
							got, names := g.run(d, ir.Options{Skip: skip}, eightInputs(g), outs...)
							with := func(prefix string) (n int) {
								for _, s := range names {
									if strings.HasPrefix(s, prefix) {
										n++
									}
								}
								return n
							}
							if stored := with("eight_"); (stored > 0) != (eight && c.eight && has) {
								t.Errorf("kernels %v, want some that store 8 bits: %v", names, eight && c.eight && has)
							}
							if !eight {
								want = got
								continue
							}
							// Every operand is wanted turned once.
							if turned := with("eight_turned_uint8"); c.eight && has && skip == nil && turned != 3 {
								t.Errorf("kernels %v: %d matrices are turned, want 3", names, turned)
							}
							if c.eight && has && skip == nil && epilogue && !c.mask && len(names) != 12 {
								t.Errorf("kernels %v, want 3 chains that store and as many turns, 3 of scales and 3 products", names)
							}
							for k := range want {
								largest := 0.0
								for _, x := range want[k] {
									if x == x {
										largest = max(largest, math.Abs(x))
									}
								}
								for i, x := range want[k] {
									// A bias that is added before rounding makes one rounding of two.
									if y := got[k][i]; !(x == y || x != x && y != y) && !(epilogue && k == 0 && math.Abs(x-y) <= 2*dt.Epsilon()*(1+math.Abs(x))) &&
										!(hardware && math.Abs(x-y) <= 0x1p-8*largest) {
										t.Fatalf("result %d: element %d: got %v, want %v (kernels %v)", k, i, y, x, names)
									}
								}
							}
						}
					})
				}
			}
		}
	}
}

// TestEightWatched: what is stored in 8 bits is shown as what it stands for.
func TestEightWatched(t *testing.T) {
	d := open(t)
	defer d.Close()
	d.settings = settings{eight: true, eightAll: true}
	if !d.eightBits() {
		lacks(t, "the GPU has no products of 8-bit floats")
	}
	seen := 0
	for _, c := range []op.Code{op.RoundE4M3, op.RoundE5M2} {
		g := newGraph(t)
		x, y := g.param(dtype.Float16, 16, 16), g.param(dtype.Float16, 16, 16)
		round := func(c op.Code, v *ir.Value) *ir.Value {
			return g.add(c, op.Attr{}, g.add(op.Mul, op.Attr{}, v, v))
		}
		g.Params = g.Params[:2]
		g.Output(g.add(op.MatMul, op.Attr{}, round(c, x), round(op.RoundE4M3, y)), -1)
		if err := ir.Optimize(g.Graph, ir.Options{}); err != nil {
			t.Fatal(err)
		}
		p, err := d.Compile(t.Context(), g.Graph)
		if err != nil {
			t.Fatal(err)
		}
		in, data := []driver.Buffer{}, make([]byte, 512)
		want := make([]float64, 256)
		for i := range want {
			want[i] = float64(i-128) / 16
		}
		want[7] = math.NaN()
		dtype.FromF64(data, want, dtype.Float16)
		for range 2 {
			b, err := d.Alloc(512)
			if err == nil {
				err = b.CopyIn(data)
			}
			if err != nil {
				t.Fatal(err)
			}
			in = append(in, b)
		}
		out, err := d.Alloc(512)
		if err != nil {
			t.Fatal(err)
		}
		err = p.(driver.Watcher).RunWatched(context.Background(), in, []driver.Buffer{out}, func(v *ir.Value, data []byte) error {
			format := formatOf(v)
			if format == 0 {
				return nil
			}
			seen++
			x := make([]float64, 256)
			dtype.ToF64(x, data, dtype.Float16)
			for i, w := range want {
				w *= w
				if w = dtype.RoundE4M3(w); (packing{format: format}).name() == "e5m2" {
					w = dtype.RoundE5M2(want[i] * want[i])
				}
				if x[i] != w && (w == w || x[i] == x[i]) {
					t.Errorf("%v: element %d: got %v, want %v", c, i, x[i], w)
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range append(in, out) {
			b.Free()
		}
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if seen != 4 {
		t.Errorf("%d values in 8 bits, want 4", seen)
	}
}

// TestEightDevices: Hopper has the products from CUDA 11.8 on, Ada from 12.
func TestEightDevices(t *testing.T) {
	d := open(t)
	defer d.Close()
	if d.lt.handle == nil {
		lacks(t, d.lt.missing)
	}
	d.settings.eight = true
	l := d.lt.handle.Library()
	was := l.Version
	defer func() { l.Version = was }()
	var has []string
	for _, capability := range []int{75, 80, 89, 90, 100} {
		for _, version := range []int{111003, 111103, 120101, 130000} {
			d.gpu.Major, d.gpu.Minor, l.Version = capability/10, capability%10, version
			if d.eightBits() {
				has = append(has, fmt.Sprint(capability, "/", version))
			}
		}
	}
	want := []string{"89/120101", "89/130000", "90/111103", "90/120101", "90/130000", "100/111103", "100/120101", "100/130000"}
	if !slices.Equal(has, want) {
		t.Errorf("got %v, want %v", has, want)
	}
}
