//go:build cuda && linux && amd64

package cuda

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/cuda/internal/cublaslt"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// padding runs what record makes with copies in whole rows and without, whose
// sums have the same terms in the same order, and zeros: the results have the
// same bits, up to rounding where own kernels cut the terms otherwise. A NaN and
// an infinity in the last element of an operand, a neighbour of what is padded,
// reach what they reach without padding.
func padding(t *testing.T, d *Device, exact bool, record func(*graph) *ir.Value) {
	t.Helper()
	var plain []float64
	for _, pad := range []bool{false, true} {
		d.settings.pad, d.settings.padAll = pad, pad
		g := newGraph(t)
		y := record(g)
		r := rand.New(rand.NewPCG(1, 2))
		var in [][]float64
		for _, p := range g.params {
			x := numbers(r, p.DType, p.Shape.Size())
			if len(in) == 0 {
				x[len(x)-1], x[0] = math.NaN(), math.Inf(1)
			}
			in = append(in, x)
		}
		eps := max(y.Type.DType.Epsilon(), 0x1p-20)
		exact := exact && os.Getenv("MEZZO_CUDA_TEST") != "gpu" // whose library chooses other algorithms
		got, names := g.run(d, ir.Options{}, in, y)
		if !pad {
			plain = got[0]
			if slices.ContainsFunc(names, func(s string) bool { return strings.HasPrefix(s, "resize") }) {
				t.Errorf("kernels %v without padding", names)
			}
			continue
		}
		if !strings.HasPrefix(names[0], "resize_") {
			t.Errorf("kernels %v, want copies", names)
		}
		for i, want := range plain {
			x := got[0][i]
			if same := x == want || x != x && want != want; !same && (exact || !(math.Abs(x-want) <= 4*eps*max(1, math.Abs(want)))) {
				t.Fatalf("element %d: got %v, want %v as without padding (kernels %v)", i, x, want, names)
			}
		}
	}
}

// TestPadding: products and convolutions of odd sizes are those of copies in
// whole rows.
func TestPadding(t *testing.T) {
	d := open(t)
	defer d.Close()
	library := d.lt.handle
	for _, dt := range []dtype.DType{dtype.Float16, dtype.BFloat16, dtype.Float32} {
		for _, own := range []bool{false, true} {
			d.settings = settings{tf32: true, epilogue: true}
			if d.lt.handle = library; own {
				d.lt.handle = nil
			}
			for layout := range 4 {
				transA, transB := layout&1 != 0, layout&2 != 0
				for _, follows := range []string{"", "bias relu"} {
					t.Run(fmt.Sprintf("MatMul/%v/own=%v/%v%v/%s", dt, own, transA, transB, follows), func(t *testing.T) {
						padding(t, d, true, func(g *graph) *ir.Value {
							a, b := []int{7, 13}, []int{13, 10}
							if transA {
								slices.Reverse(a)
							}
							if transB {
								slices.Reverse(b)
							}
							y := g.add(op.MatMul, op.Attr{TransA: transA, TransB: transB}, g.param(dt, a...), g.param(dt, b...))
							if follows != "" {
								y = g.add(op.Relu, op.Attr{}, g.add(op.Add, op.Attr{}, y, g.param(dt, 10)))
							}
							return y
						})
					})
				}
			}
		}
		for _, c := range convolutions {
			if c.groups > 1 || testing.Short() && c.name != "odd" || c.name == "image" && dt != dtype.Float16 {
				continue
			}
			for _, code := range []op.Code{op.Conv, op.ConvInputGrad, op.ConvKernelGrad} {
				if last := c.w[len(c.w)-2:]; code == op.ConvInputGrad && whole(last[1], dt) == last[1] || whole(last[0], dt) == last[0] && whole(last[1], dt) == last[1] {
					continue
				}
				t.Run(fmt.Sprintf("%v/%v/%s", code, dt, c.name), func(t *testing.T) {
					padding(t, d, false, func(g *graph) *ir.Value {
						made, y := c.graph(t, code, dt, "bias relu")
						*g = *made
						return y
					})
				})
			}
		}
	}
}

// TestPads: what is padded, in the sizes of docs/gpu-queue.md, and what is not.
func TestPads(t *testing.T) {
	d := open(t)
	defer d.Close()
	d.settings = settings{pad: true}
	b := &builder{p: &Program{device: d}}
	for _, c := range []struct {
		dt             dtype.DType
		m, n, k, batch int
		want           bool
	}{
		{dtype.Float16, 8192, 10, 4096, 1, true},
		{dtype.BFloat16, 8192, 30522, 768, 1, false}, // the result is as large as all that is multiplied
		{dtype.Float16, 8192, 16, 4096, 1, false},    // in whole rows
		{dtype.Float16, 128, 10, 64, 1, false},       // too small
		{dtype.Float64, 8192, 10, 4096, 1, false},    // not for Tensor Cores
		{dtype.Float32, 8192, 10, 4096, 1, false},    // nor without TF32
		{dtype.Float16, 512, 77, 64, 4096, false},    // of many
		{dtype.Float16, 100000, 31, 31, 1, false},    // copies would take as long
		{dtype.Float16, 1 << 20, 10, 16, 1, false},   // as would that of the result
		{dtype.Float16, 8192, 4096, 4097, 1, true},
	} {
		p := cublaslt.Problem{M: c.m, N: c.n, K: c.k, In: c.dt, Out: c.dt, Batch: c.batch}
		if _, got := b.paddedProblem(p); got != c.want {
			t.Errorf("%+v: padded %v", c, got)
		}
	}
}
