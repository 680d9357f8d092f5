//go:build cuda && linux && amd64

package cuda

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// TestIm2col: gradients of kernels by products on the im2col matrix are those of float64
// within the tolerance of their type, of all images at once and of one at a time, alone and
// with a bias and ReLU.
func TestIm2col(t *testing.T) {
	d := open(t)
	defer d.Close()
	if d.lt.handle == nil {
		lacks(t, d.lt.missing)
	}
	for _, tf32 := range []bool{false, true} {
		for _, dt := range []dtype.DType{dtype.Float16, dtype.BFloat16, dtype.Float32} {
			if tf32 && dt != dtype.Float32 {
				continue // all the same
			}
			for _, c := range convolutions {
				for _, products := range slices.Compact([]int{1, c.x[0]}) {
					for _, follows := range []string{"", "bias relu"} {
						if c.groups > 1 {
							continue
						}
						d.settings = settings{tf32: tf32, wgrad: byIm2col}
						if products > 1 {
							d.settings.columns = oneImage(c, dt)
						}
						t.Run(fmt.Sprintf("tf32=%v/%v/%s/%d/%s", tf32, dt, c.name, products, follows), func(t *testing.T) {
							names := testConvolution(t, d, c, op.ConvKernelGrad, dt, follows)
							if got := count(names, "cublasLtMatmul"); got != products || count(names, "im2col_") != products {
								unexpected(t, "kernels %v, want %d products", names, products)
							}
						})
					}
				}
			}
		}
	}
}

// oneImage is how many bytes an image takes of the im2col matrix, with its gradient if that
// is copied.
func oneImage(c convolution, dt dtype.DType) int {
	last := len(c.x) - 1
	pixels := 1
	for i := 1; i < last; i++ {
		n, _ := op.Windows(c.x[i], c.w[i-1], c.stride, c.dilation, c.padding, c.padding)
		pixels *= n
	}
	row, channels := whole(c.w[:last].Size(), dt), c.w[last]
	if n := whole(channels, dt); n != channels {
		row += n
	}
	return pixels * row * dt.Size()
}

// count is how many names begin so.
func count(names []string, prefix string) int {
	n := 0
	for _, s := range names {
		if strings.HasPrefix(s, prefix) {
			n++
		}
	}
	return n
}

// TestIm2colReused: float32 gradients of 16-bit convolutions of several sizes, which share
// their working memory, have zeros where windows reach out of the input and where rows
// are filled up.
func TestIm2colReused(t *testing.T) {
	d := open(t)
	defer d.Close()
	if d.lt.handle == nil {
		lacks(t, d.lt.missing)
	}
	d.settings = settings{wgrad: byIm2col, cudnn: true, wideGradients: true}
	for _, dt := range []dtype.DType{dtype.Float16, dtype.BFloat16} {
		g := newGraph(t)
		r := rand.New(rand.NewPCG(7, 8))
		var in, wants, magnitudes [][]float64
		var outs []*ir.Value
		for _, name := range []string{"image", "odd", "cube", "sequence"} {
			c := convolutions[slices.IndexFunc(convolutions, func(c convolution) bool { return c.name == name })]
			of, y := c.graph(t, op.ConvKernelGrad, dt, "")
			second := of.params[1].Shape
			y = g.add(op.ConvKernelGrad, y.Attr, g.param(dt, c.x...), g.param(dt, second...))
			y.Attr.DType, y.Type.DType = dtype.Float32, dtype.Float32
			x, dy := numbers(r, dt, c.x.Size()), numbers(r, dt, second.Size())
			want, magnitude := c.reference(op.ConvKernelGrad, second, x, dy)
			in, wants, magnitudes, outs = append(in, x, dy), append(wants, want), append(magnitudes, magnitude), append(outs, y)
		}
		got, names := g.run(d, ir.Options{Check: true}, in, outs...)
		if count(names, "im2col_") != len(outs) {
			unexpected(t, "kernels %v, want %d matrices", names, len(outs))
		}
		for k := range outs {
			for i, x := range got[k] {
				// sums of up to 2000 products in float32
				if tolerance := magnitudes[k][i]*0x1p-24*2000 + 0x1p-25; !(math.Abs(x-wants[k][i]) <= tolerance) {
					t.Fatalf("%v: result %d, element %d: got %v, want %v ± %v", dt, k, i, x, wants[k][i], tolerance)
				}
			}
		}
	}
}

// TestIm2colPays: which gradients of kernels are products of the library, and of how many
// images each: those of the convolutions of seed models, and what is no such product.
func TestIm2colPays(t *testing.T) {
	d := open(t)
	defer d.Close()
	if d.lt.handle == nil {
		lacks(t, d.lt.missing)
	}
	for _, c := range []struct {
		name         string
		in, out      op.Shape
		window       op.Shape
		dt           dtype.DType
		s            settings
		want, images int // products, and images of one
	}{
		{"CNN, second layer", op.Shape{590, 14, 14, 420}, op.Shape{590, 14, 14, 1000}, op.Shape{3, 3}, dtype.Float16, settings{}, 4, 148},
		{"of 1000 images", op.Shape{1000, 14, 14, 420}, op.Shape{1000, 14, 14, 1000}, op.Shape{3, 3}, dtype.BFloat16, settings{}, 6, 167},
		{"TF32", op.Shape{590, 14, 14, 420}, op.Shape{590, 14, 14, 1000}, op.Shape{3, 3}, dtype.Float32, settings{tf32: true}, 7, 85},
		{"float32", op.Shape{590, 14, 14, 420}, op.Shape{590, 14, 14, 1000}, op.Shape{3, 3}, dtype.Float32, settings{}, 0, 0},
		{"float64", op.Shape{590, 14, 14, 420}, op.Shape{590, 14, 14, 1000}, op.Shape{3, 3}, dtype.Float64, settings{wgrad: byIm2col}, 0, 0},
		{"tiles", op.Shape{590, 14, 14, 420}, op.Shape{590, 14, 14, 1000}, op.Shape{3, 3}, dtype.Float16, settings{wgrad: byTiles}, 0, 0},
		{"CNN, first layer", op.Shape{590, 28, 28, 1}, op.Shape{590, 28, 28, 420}, op.Shape{3, 3}, dtype.Float16, settings{}, 0, 0}, // a copy is as long
		{"UNet, first level", op.Shape{8, 254, 254, 64}, op.Shape{8, 252, 252, 64}, op.Shape{3, 3}, dtype.Float16, settings{}, 0, 0},
		{"UNet, last level", op.Shape{8, 26, 26, 512}, op.Shape{8, 24, 24, 512}, op.Shape{3, 3}, dtype.Float16, settings{}, 1, 8},
		{"small", op.Shape{2, 8, 8, 64}, op.Shape{2, 8, 8, 512}, op.Shape{3, 3}, dtype.Float16, settings{}, 0, 0},
		{"an image too large", op.Shape{1, 256, 256, 512}, op.Shape{1, 256, 256, 512}, op.Shape{3, 3}, dtype.Float16, settings{}, 0, 0},
	} {
		g := newGraph(t)
		d.settings = c.s
		v := &ir.Value{Op: op.ConvKernelGrad, Args: []*ir.Value{g.param(c.dt, c.in...), g.param(c.dt, c.out...)}}
		v.Type = op.Type{DType: c.dt, Shape: append(slices.Clone(c.window), c.in[3], c.out[3])}
		b := &builder{p: &Program{device: d}}
		p, ok := b.im2colOf(v, c.in, c.out, c.window)
		if len(p.products) != c.want || ok != (c.want > 0) || ok && p.images != c.images {
			t.Errorf("%s: %d products of %d images, want %d of %d", c.name, len(p.products), p.images, c.want, c.images)
		}
	}
}
