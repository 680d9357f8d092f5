package cpu

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/mezzo-ml/mezzo/backend"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/conv"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/gemm"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/isa/isatest"
	"github.com/mezzo-ml/mezzo/backend/driver"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// separable is two separable convolutions of images of height by width by channels, with biases
// and relus unless plain is set.
func separable(t *testing.T, d dtype.DType, batch, height, width, channels, outs, stride int, plain bool, skip ...string) (*Program, []driver.Buffer) {
	rng := rand.New(rand.NewPCG(5, uint64(batch)))
	one, zero, by := []int{1, 1}, []int{0, 0}, []int{stride, stride}
	low := one
	if stride == 2 {
		low = zero // as Keras pads even sizes
	}
	g := ir.New(9)
	var in []driver.Buffer
	input := func(s ...int) *ir.Value {
		x := randomArray(rng, d, s...)
		in = append(in, &Buffer{storage: x.data})
		return param(t, g, len(in)-1, x.Type)
	}
	y := record(t, g, op.Square, op.Attr{}, input(batch, height, width, channels))
	for _, c := range [][2]int{{channels, outs}, {outs, channels}} {
		depthwise := op.Attr{Stride: by, Dilation: one, Low: low, High: one, Groups: c[0]}
		point := op.Attr{Stride: one, Dilation: one, Low: zero, High: zero}
		for _, v := range []struct {
			a op.Attr
			w *ir.Value
			n int
		}{{depthwise, input(3, 3, 1, c[0]), c[0]}, {point, input(1, 1, c[0], c[1]), c[1]}} {
			y = record(t, g, op.Conv, v.a, y, v.w)
			if b := input(v.n); !plain {
				y = record(t, g, op.Relu, op.Attr{}, record(t, g, op.Add, op.Attr{}, y, b))
			}
		}
		by, low = one, one
	}
	g.Output(y, -1)
	if err := ir.Optimize(g, ir.Options{Skip: skip}); err != nil {
		t.Fatal(err)
	}
	p, err := shared.Compile(t.Context(), g)
	if err != nil {
		t.Fatal(err)
	}
	return p.(*Program), in
}

// separables returns the number of joined pairs in a program and its programs of samples.
func separables(p *Program) (n int) {
	for _, s := range p.steps {
		if _, ok := s.kernel.(*conv.Separable); ok {
			n++
		}
	}
	for _, l := range p.loops() {
		n += separables(l)
	}
	return n
}

// TestSeparable: joined convolutions have the bits of one after the other, whatever the number
// of workers.
func TestSeparable(t *testing.T) {
	isatest.SkipEmulated(t, "how kernels are joined does not depend on the processor")
	// Of several images each would be computed through all layers by one worker.
	layers, err := backend.ParseSkips("depth-first")
	if err != nil {
		t.Fatal(err)
	}
	defer backend.SetSkips(backend.SetSkips(layers))
	isatest.ForEach(t, func(t *testing.T) {
		set := gemm.Current()
		for i, s := range []struct{ height, width, channels, outs, stride int }{
			{48, 48, 16, 32, 1}, {24, 23, 32, 64, 2}, {9, 31, 64, 96, 1}, {17, 16, 48, 32, 2}, {8, 8, 32, 128, 1}, {13, 30, 20, 32, 1}, {7, 11, 16, 33, 1}, {1, 90, 8, 32, 1},
		} {
			for _, d := range []dtype.DType{dtype.Float32, dtype.BFloat16, dtype.Float16} {
				batches := []int{1, 2, 9}
				if d != dtype.Float32 {
					batches = []int{1 + i} // only float32 is joined
				}
				for _, batch := range batches {
					what := fmt.Sprintf("%d images of %v, %+v", batch, d, s)
					p, in := separable(t, d, batch, s.height, s.width, s.channels, s.outs, s.stride, i%3 == 1, "separable")
					if n := separables(p); n > 0 {
						t.Errorf("%s: %d pairs are joined without the pass", what, n)
					}
					want := output(t, p, in, 1, nil)
					p, in = separable(t, d, batch, s.height, s.width, s.channels, s.outs, s.stride, i%3 == 1)
					if n := separables(p); i == 0 && batch == 1 && d == dtype.Float32 && set != nil && set.F32.Tall != nil && n == 0 {
						t.Errorf("%s: no pair is joined in\n%v", what, p.graph)
					}
					for _, procs := range []int{1, 2, 5} {
						if got := output(t, p, in, procs, nil); !bytes.Equal(got, want) {
							t.Fatalf("%s, %d workers: other bits than one after the other", what, procs)
						}
					}
					seen := 0
					if got := output(t, p, in, 2, func(*ir.Value, []byte) error { seen++; return nil }); !bytes.Equal(got, want) || seen == 0 {
						t.Fatalf("%s: watched it has other bits", what)
					}
				}
			}
		}
	})
}

// TestSeparableReaders: a depthwise convolution that something else reads is computed alone.
func TestSeparableReaders(t *testing.T) {
	isatest.SkipEmulated(t, "how kernels are joined does not depend on the processor")
	for _, outputs := range []bool{false, true} {
		one, zero := []int{1, 1}, []int{0, 0}
		g := ir.New(3)
		f32 := func(s ...int) op.Type { return op.Type{DType: dtype.Float32, Shape: s} }
		x := param(t, g, 0, f32(1, 24, 24, 32))
		y := record(t, g, op.Conv, op.Attr{Stride: one, Dilation: one, Low: one, High: one, Groups: 32}, x, param(t, g, 1, f32(3, 3, 1, 32)))
		z := record(t, g, op.Conv, op.Attr{Stride: one, Dilation: one, Low: zero, High: zero}, y, param(t, g, 2, f32(1, 1, 32, 32)))
		g.Output(z, -1)
		if outputs {
			g.Output(y, -1)
		}
		p := plan(t, g)
		if joined := slices.ContainsFunc(p.graph.Values, func(v *ir.Value) bool { return v.Joined }); joined == outputs {
			t.Errorf("with the first value as an output %v: joined %v in\n%v", outputs, joined, p.graph)
		}
	}
}
