package cpu

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/exec"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/isa"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/isa/isatest"
	"github.com/mezzo-ml/mezzo/backend/driver"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// randomConv draws a convolution whose windows fit.
func randomConv(rng *rand.Rand) (a op.Attr, x, w, y op.Shape) {
	for {
		n := 1 + rng.IntN(3)
		groups := []int{1, 1, 1, 2, 3}[rng.IntN(5)]
		in, out := []int{1, 2, 3, 4, 8, 17, 32}[rng.IntN(7)], []int{1, 3, 16, 33, 40}[rng.IntN(5)]
		switch rng.IntN(8) {
		case 0:
			groups, in, out = 1+rng.IntN(40), 1, 1
		case 1:
			groups, in, out = 1, 1+rng.IntN(4), []int{24, 32, 63}[rng.IntN(3)]
		}
		x, w = op.Shape{1 + rng.IntN(3)}, nil
		a = op.Attr{Groups: groups}
		for range n {
			x, w = append(x, 1+rng.IntN([]int{60, 20, 8}[n-1])), append(w, 1+rng.IntN(4))
			a.Stride, a.Dilation = append(a.Stride, max(1, rng.IntN(4))), append(a.Dilation, max(1, rng.IntN(4)))
			a.Low, a.High = append(a.Low, rng.IntN(5)-1), append(a.High, rng.IntN(5)-1)
		}
		x, w = append(x, in*groups), append(w, in, out*groups)
		typ := func(s op.Shape) op.Type { return op.Type{DType: dtype.Float32, Shape: s} }
		t, err := op.Infer(op.Conv, a, typ(x), typ(w))
		if err == nil && t.Shape.Size()*w[:len(w)-1].Size() < 1<<21 {
			return a, x, w, t.Shape
		}
	}
}

// convArguments are those of Conv or a gradient of it.
func convArguments(c op.Code, a op.Attr, x, w, y op.Shape) (op.Attr, [2]op.Shape) {
	switch c {
	case op.ConvInputGrad:
		a.Dims = x
		return a, [2]op.Shape{y, w}
	case op.ConvKernelGrad:
		a.Dims = w
		return a, [2]op.Shape{x, y}
	}
	return a, [2]op.Shape{x, w}
}

// TestConvLevels holds the kernels of every level of instructions against the
// portable ones, which the conformance suite holds against float64.
func TestConvLevels(t *testing.T) {
	isatest.ForEach(t, func(t *testing.T) {
		if isa.Current() == isa.Portable {
			return
		}
		rng := rand.New(rand.NewPCG(31, 32))
		for i := range 150 {
			a, x, w, y := randomConv(rng)
			if !isatest.InTurn(i / 3) {
				continue
			}
			d := dtype.Floats()[i%3]
			for _, c := range []op.Code{op.Conv, op.ConvInputGrad, op.ConvKernelGrad} {
				a, shapes := convArguments(c, a, x, w, y)
				if d.Is16() && i%2 == 0 {
					a.DType = dtype.Float32
				}
				args := []array{randomArray(rng, d, shapes[0]...), randomArray(rng, d, shapes[1]...)}
				got, want := eval(t, c, a, args...), portable(t, c, a, args...)
				// Sums of that many products of up to 4; both sides round to the
				// result's type, so twice the tolerance of a reference.
				terms := max(y[1:].Size()*y[0], w.Size())
				near(t, fmt.Sprint(c, " ", d, " ", x, " ", w, " ", a), got, want.values(), 8*math.Sqrt(float64(terms)))
			}
		}
	})
}

// TestConvWorkers: the bits do not depend on the number of workers, and runs
// allocate nothing.
func TestConvWorkers(t *testing.T) {
	isatest.SkipEmulated(t, "how work is shared does not depend on the processor")
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	rng := rand.New(rand.NewPCG(33, 34))
	a := op.Attr{Stride: []int{1, 1}, Dilation: []int{1, 1}, Low: []int{1, 1}, High: []int{1, 1}}
	pool := a
	pool.Window, pool.Stride = []int{3, 3}, []int{2, 2}
	own := a
	own.Groups = 24
	x, w, y := op.Shape{6, 20, 20, 24}, op.Shape{3, 3, 24, 40}, op.Shape{6, 20, 20, 40}
	one, half := op.Shape{3, 3, 1, 24}, op.Shape{6, 10, 10, 24}
	kernels, dims := a, a
	kernels.Dims, dims.Dims = w, x
	ownDims, ownKernels, avg := own, own, pool
	ownDims.Dims, ownKernels.Dims, avg.Dims = x, one, x
	few, fewX, fewY := op.Shape{3, 3, 37, 5}, op.Shape{6, 20, 20, 37}, op.Shape{6, 20, 20, 5} // channels of the result, and an odd number of others
	odd, oddX, oddY := op.Shape{3, 3, 25, 40}, op.Shape{6, 20, 20, 25}, y
	fewDims, fewKernels, oddKernels := a, a, a
	fewDims.Dims, fewKernels.Dims, oddKernels.Dims = fewY, few, odd
	for _, c := range []struct {
		op   op.Code
		attr op.Attr
		args []op.Shape
	}{
		{op.Conv, a, []op.Shape{x, w}}, {op.ConvInputGrad, dims, []op.Shape{y, w}}, {op.ConvKernelGrad, kernels, []op.Shape{x, y}},
		{op.Conv, a, []op.Shape{fewX, few}}, {op.ConvInputGrad, fewDims, []op.Shape{fewX, {3, 3, 5, 37}}}, {op.ConvKernelGrad, fewKernels, []op.Shape{fewX, fewY}},
		{op.Conv, a, []op.Shape{oddX, odd}}, {op.ConvKernelGrad, oddKernels, []op.Shape{oddX, oddY}},
		{op.Conv, own, []op.Shape{x, one}}, {op.ConvInputGrad, ownDims, []op.Shape{x, one}}, {op.ConvKernelGrad, ownKernels, []op.Shape{x, x}},
		{op.MaxPool, pool, []op.Shape{x}}, {op.MaxPoolGrad, pool, []op.Shape{x, half}}, {op.MaxPoolGradGrad, pool, []op.Shape{x, x}},
		{op.AvgPool, pool, []op.Shape{x}}, {op.AvgPoolGrad, avg, []op.Shape{half}},
	} {
		for _, d := range isatest.Floats() {
			g := ir.New(len(c.args))
			var vals []*ir.Value
			var in []driver.Buffer
			for i, s := range c.args {
				arg := randomArray(rng, d, s...)
				vals, in = append(vals, param(t, g, i, arg.Type)), append(in, &Buffer{storage: arg.data})
			}
			v := record(t, g, c.op, c.attr, vals...)
			g.Output(v, -1)
			p := plan(t, g)
			run := func(procs int) []byte {
				runtime.GOMAXPROCS(procs)
				out := &Buffer{storage: exec.Aligned(v.Type.Bytes())}
				if err := p.Run(context.Background(), in, []driver.Buffer{out}); err != nil {
					t.Fatal(err)
				}
				return out.storage
			}
			want := run(1)
			for _, procs := range []int{2, 5} {
				if !bytes.Equal(run(procs), want) {
					t.Errorf("%v of %v: %d workers give other bits than one", c.op, d, procs)
				}
			}
			runtime.GOMAXPROCS(1)
			out := []driver.Buffer{&Buffer{storage: exec.Aligned(v.Type.Bytes())}}
			// Workers that fall asleep meanwhile may allocate, once each.
			if n := testing.AllocsPerRun(5, func() {
				if err := p.Run(context.Background(), in, out); err != nil {
					t.Fatal(err)
				}
			}); n != 0 {
				t.Errorf("%v of %v: a run allocates %v times, want 0", c.op, d, n)
			}
		}
	}
}

// TestConvBiasRelu: a bias and a relu that follow a convolution give the bits
// that they give apart, also where sums are negative zeros and NaNs.
func TestConvBiasRelu(t *testing.T) {
	isatest.ForEach(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(37, 38))
		for i := range 48 {
			d := dtype.Floats()[i%4]
			x, w := op.Shape{1 + rng.IntN(3), 1 + rng.IntN(30), 1 + rng.IntN(30), 1 + i/4%2}, op.Shape{1 + rng.IntN(3), 1 + rng.IntN(3), 1 + i/4%2, []int{24, 32, 40, 63}[rng.IntN(4)]}
			pad := func() []int { return []int{rng.IntN(3), rng.IntN(3)} }
			a := op.Attr{Stride: []int{1 + i%2, 1 + i%3}, Dilation: []int{1, 1}, Low: pad(), High: pad()}
			if x[1] < w[0] || x[2] < w[1] {
				continue
			}
			small := func(shape op.Shape, scale float64) array {
				return arrayOf(d, shape, func(int) float64 { return float64(rng.IntN(5)-2) * scale })
			}
			args := []array{small(x, 1), small(w, []float64{1, 1, 0x1p-24}[i%3]), small(w[3:], []float64{1, 0}[i%2])}
			if i%5 == 0 {
				args[0] = arrayOf(d, x, func(i int) float64 { return []float64{1, -2, math.NaN()}[i%17%3] })
			}
			var got [2][]byte
			for j, skip := range [][]string{nil, {"epilogue"}} {
				g := ir.New(3)
				var vals []*ir.Value
				var in []driver.Buffer
				for k, arg := range args {
					vals, in = append(vals, param(t, g, k, arg.Type)), append(in, &Buffer{storage: arg.data})
				}
				v := record(t, g, op.Conv, a, vals[0], vals[1])
				if i%7 > 0 {
					v = record(t, g, op.Add, op.Attr{}, vals[2], v)
				}
				if i%3 > 0 || i%7 == 0 {
					v = record(t, g, op.Relu, op.Attr{}, v)
				}
				g.Output(v, -1)
				if err := ir.Optimize(g, ir.Options{Skip: skip}); err != nil {
					t.Fatal(err)
				}
				p, err := shared.Compile(t.Context(), g)
				if err != nil {
					t.Fatal(err)
				}
				buf, intact := guarded(v.Type.Bytes())
				if err := p.Run(context.Background(), in, []driver.Buffer{buf}); err != nil {
					t.Fatal(err)
				}
				intact(t)
				got[j] = buf.storage
			}
			if !bytes.Equal(got[0], got[1]) {
				t.Errorf("%v %v %v, %v: fused and apart differ", d, x, w, a)
			}
		}
	})
}

// TestConvEpilogue: what follows a convolution gives the bits that it gives
// apart.
func TestConvEpilogue(t *testing.T) {
	isatest.ForEach(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(35, 36))
		for i := range 60 {
			a, x, w, y := randomConv(rng)
			if i%5 == 0 { // a product of matrices
				a.Groups = 1
				for j := range a.Stride {
					a.Stride[j], a.Dilation[j], a.Low[j], a.High[j], w[j] = 1, 1, 0, 0, 1
				}
				w[len(w)-2] = x[len(x)-1]
				y = append(x[:len(x)-1:len(x)-1], w[len(w)-1])
			}
			all := i%5 == 1 // a window that covers the image
			if all {
				a.Groups = 1
				copy(w, x[1:])
				y = slices.Repeat(op.Shape{1}, len(x))
				y[0], y[len(y)-1] = x[0], w[len(w)-1]
				for j := range a.Stride {
					w[j] = min(w[j], 5)
					x[1+j] = w[j]
					a.Dilation[j], a.Low[j], a.High[j] = 1, 0, 0
				}
			}
			d := dtype.Floats()[i%4]
			for _, c := range []op.Code{op.Conv, op.ConvInputGrad, op.ConvKernelGrad} {
				a, shapes := convArguments(c, a, x, w, y)
				out := map[op.Code]op.Shape{op.Conv: y, op.ConvInputGrad: x, op.ConvKernelGrad: w}[c]
				bias := op.Shape{out[len(out)-1]}
				if i%2 == 0 { // for each image
					bias = slices.Repeat(op.Shape{1}, len(out))
					bias[0], bias[len(out)-1] = out[0], out[len(out)-1]
				}
				if all && c == op.ConvInputGrad && i%4 != 0 {
					bias = out
				}
				args := []array{randomArray(rng, d, shapes[0]...), randomArray(rng, d, shapes[1]...), randomArray(rng, d, bias...), randomArray(rng, d, out...)}
				var got [2][]byte
				for j, skip := range [][]string{nil, {"epilogue"}} {
					g := ir.New(4)
					var vals []*ir.Value
					var in []driver.Buffer
					for k, arg := range args {
						vals, in = append(vals, param(t, g, k, arg.Type)), append(in, &Buffer{storage: arg.data})
					}
					v := record(t, g, op.Add, op.Attr{}, record(t, g, c, a, vals[0], vals[1]), vals[2])
					v = record(t, g, op.Cast, op.Attr{DType: dtype.Float16}, record(t, g, op.Mul, op.Attr{}, record(t, g, op.Relu, op.Attr{}, v), vals[3]))
					g.Output(v, -1)
					if err := ir.Optimize(g, ir.Options{Skip: skip}); err != nil {
						t.Fatal(err)
					}
					broadcasts := all && bias.Size() != 1 && (c == op.ConvInputGrad && i%4 == 0 || c == op.ConvKernelGrad && bias[:len(bias)-1].Size() != 1) // onto axes that a product lacks
					if v := g.Values[4]; (v.Attr.Body != nil) != (j == 0 && !broadcasts) {
						t.Fatalf("%v with skipped passes %v is\n%v", c, skip, g)
					}
					p, err := shared.Compile(t.Context(), g)
					if err != nil {
						t.Fatal(err)
					}
					buf, intact := guarded(v.Type.Bytes())
					if err := p.Run(context.Background(), in, []driver.Buffer{buf}); err != nil {
						t.Fatal(err)
					}
					intact(t)
					got[j] = buf.storage
				}
				if !bytes.Equal(got[0], got[1]) {
					t.Errorf("%v of %v %v %v, %v: fused and apart differ", c, d, x, w, a)
				}
			}
		}
	})
}

// TestDepthwiseChannels: depthwise convolutions of any number of channels are those of portable
// Go, also where pixels fill a vector together, and with a bias and a relu they have the bits of
// separate operations.
func TestDepthwiseChannels(t *testing.T) {
	isatest.ForEach(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(41, 42))
		for _, channels := range []int{2, 3, 4, 8, 16, 24, 32, 48} {
			for _, stride := range []int{1, 2} {
				for _, d := range []dtype.DType{dtype.Float32, dtype.BFloat16, dtype.Float16} {
					size, pad := []int{stride, stride}, []int{1, 1}
					a := op.Attr{Stride: size, Dilation: []int{1, 1}, Low: pad, High: pad, Groups: channels}
					x, w, b := randomArray(rng, d, 2, 7, 13, channels), randomArray(rng, d, 3, 3, 1, channels), randomArray(rng, d, channels)
					what := fmt.Sprint(d, " ", channels, " channels, stride ", stride)
					got := eval(t, op.Conv, a, x, w)
					near(t, what, got, portable(t, op.Conv, a, x, w).values(), 8*3)

					g := ir.New(3)
					y := record(t, g, op.Conv, a, param(t, g, 0, x.Type), param(t, g, 1, w.Type))
					g.Output(record(t, g, op.Relu, op.Attr{}, record(t, g, op.Add, op.Attr{}, y, param(t, g, 2, b.Type))), -1)
					p := plan(t, g)
					out := output(t, p, []driver.Buffer{&Buffer{storage: x.data}, &Buffer{storage: w.data}, &Buffer{storage: b.data}}, 1, nil)
					want := eval(t, op.Relu, op.Attr{}, eval(t, op.Add, op.Attr{}, got, b))
					if !bytes.Equal(out, want.data) {
						t.Errorf("%s: with a bias and a relu it has other bits than one after the other", what)
					}
				}
			}
		}
	})
}

// TestConvTerms: a convolution with terms and a relu behind it has the bits of separate
// operations.
func TestConvTerms(t *testing.T) {
	isatest.ForEach(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(43, 44))
		for _, s := range []struct{ batch, height, width, in, out, stride int }{{1, 9, 14, 16, 16, 1}, {2, 12, 31, 3, 16, 2}, {1, 7, 7, 8, 48, 1}, {3, 6, 8, 24, 20, 1}, {1, 5, 18, 40, 64, 2}, {1, 9, 9, 3, 5, 2}, {1, 8, 5, 3, 1, 1}} {
			for i, terms := range []string{"b", "r", "b+", "r+", "+", "br", "br+", "rb+", "bb+", "rr+"} {
				for _, d := range []dtype.DType{dtype.Float32, dtype.BFloat16, dtype.Float16} {
					if !isatest.InTurn(i + int(d)) {
						continue
					}
					pad := []int{1, 1}
					a := op.Attr{Stride: []int{s.stride, s.stride}, Dilation: pad, Low: pad, High: pad}
					x, w := randomArray(rng, d, s.batch, s.height, s.width, s.in), randomArray(rng, d, 3, 3, s.in, s.out)
					want := eval(t, op.Conv, a, x, w)
					in := []array{x, w}
					g := ir.New(2 + len(terms))
					y := record(t, g, op.Conv, a, param(t, g, 0, x.Type), param(t, g, 1, w.Type))
					for _, term := range terms {
						if term == '+' {
							y, want = record(t, g, op.Relu, op.Attr{}, y), eval(t, op.Relu, op.Attr{}, want)
							break
						}
						b := randomArray(rng, d, s.out)
						if term == 'r' {
							b = randomArray(rng, d, y.Type.Shape...)
						}
						y, want = record(t, g, op.Add, op.Attr{}, y, param(t, g, len(in), b.Type)), eval(t, op.Add, op.Attr{}, want, b)
						in = append(in, b)
					}
					g.Output(y, -1)
					var buffers []driver.Buffer
					for _, b := range in {
						buffers = append(buffers, &Buffer{storage: b.data})
					}
					for i := len(in); i < len(g.Params); i++ {
						buffers = append(buffers, &Buffer{})
					}
					if got := output(t, plan(t, g), buffers, 2, nil); !bytes.Equal(got, want.data) {
						t.Errorf("%v %+v %q: other bits than one after the other", d, s, terms)
					}
				}
			}
		}
	})
}
