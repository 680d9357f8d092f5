//go:build cuda && linux && amd64

package cuda

import (
	"fmt"
	"slices"

	"github.com/mezzo-ml/mezzo/backend/cuda/internal/cublaslt"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// The gradient of a convolution's kernels is the product of the transposed im2col matrix,
// which has a row for each pixel of the output and a column for each element of a window,
// and of the output's gradient. MEZZO_ALGORITHM=wgrad:NAME chooses how it is computed:
//
//   - im2col: by cublasLt. A kernel writes the matrix to working memory, of as many images
//     at a time as fit into maxColumns. Each product adds to the float32 sums of the images
//     before.
//   - tiles: by a kernel of our own, which computes the matrix's elements while it loads
//     tiles. It reaches about a third of the library's rate.
//
// The first is chosen where memory copies its operands faster than Tensor Cores multiply them.
const (
	byIm2col = "im2col"
	byTiles  = "tiles"
)

// maxColumns is the most bytes of a part of the matrix, with a copy of the output's gradient
// if that has to be padded.
const maxColumns = 256 << 20

// im2col is a gradient of kernels by the library.
type im2col struct {
	in, out, window op.Shape // what windows slide over, what they make, and their sizes
	m, n            int      // of the products: elements of a window and output channels, in whole rows
	images          int      // of a product
	products        []*cublaslt.Matmul
}

// pixels is the number of outputs of an image.
func (g *im2col) pixels() int { return g.out[1 : len(g.out)-1].Size() }

// elements is the size of a window.
func (g *im2col) elements() int { return g.window.Size() * g.in[len(g.in)-1] }

// part is the number of images of product i.
func (g *im2col) part(i int) int { return min(g.images, g.in[0]-i*g.images) }

// from is a parameter: where the images of product i begin in an operand.
func (g *im2col) from(v *ir.Value, i int) any {
	if i == 0 {
		return v
	}
	return behind{v, i * g.images * v.Type.Shape[1:].Size() * v.Type.DType.Size()}
}

// im2colOf is a gradient of kernels by the library, if it is computed so.
func (b *builder) im2colOf(v *ir.Value, in, out, window op.Shape) (g im2col, ok bool) {
	d, t := b.p.device, v.Args[0].Type.DType
	s, size := d.settings, t.Size()
	if v.Op != op.ConvKernelGrad || v.Attr.Groups > 1 || s.wgrad == byTiles || d.lt.handle == nil || !t.Is16() && t != dtype.Float32 || max(in.Size(), out.Size()) >= 1<<31 {
		return g, false
	}
	channels := out[len(out)-1]
	g = im2col{in: in, out: out, window: window}
	g.m, g.n = whole(g.elements(), t), whole(channels, t)
	image := g.pixels() * g.m * size // bytes
	if g.n != channels {
		image += g.pixels() * g.n * size
	}
	limit := maxColumns
	if s.columns > 0 {
		limit = s.columns
	}
	if in[0]*image == 0 || image > limit {
		return g, false
	}
	parts := (in[0]*image + limit - 1) / limit
	g.images = (in[0] + parts - 1) / parts
	if g.images*image > limit { // whole images do not fill it
		g.images = limit / image
	}
	parts = (in[0] + g.images - 1) / g.images
	took := 2 * out.Size() * g.elements() / operationsPerByte
	copied := 2*in[0]*image + 2*parts*g.m*g.n*dtype.Float32.Size()
	if s.wgrad != byIm2col && (!t.Is16() && !d.tf32() || took < paddingFrom || copied > took) {
		return g, false
	}
	for i := range parts {
		p := cublaslt.Problem{M: g.m, N: g.n, K: g.part(i) * g.pixels(), TransA: true, In: t, Out: dtype.Float32, TF32: t == dtype.Float32 && d.tf32(), Batch: 1, Adds: i > 0, Align: [3]int{256, 256, 256}}
		if g.n == channels {
			p.Align[1] = b.begins(g.from(v.Args[1], i))
		}
		if g.direct(v) {
			p.Align[2] = b.alignment(v)
		}
		m := d.product(p)
		if m == nil {
			return g, false
		}
		g.products = append(g.products, m)
	}
	return g, true
}

// direct reports whether the products' result is that of v.
func (g *im2col) direct(v *ir.Value) bool {
	return v.Type.DType == dtype.Float32 && g.m*g.n == v.Type.Shape.Size()
}

// byColumns makes the calls of a gradient of kernels by the library.
func (b *builder) byColumns(v *ir.Value, g im2col) {
	x, dy, t := v.Args[0], v.Args[1], v.Args[0].Type.DType
	channels, size := g.out[len(g.out)-1], t.Size()
	sums := any(v)
	if !g.direct(v) {
		sums = b.hold(g.m * g.n * dtype.Float32.Size())
	}
	columns := b.hold(g.images * g.pixels() * g.m * size)
	var copied scratch
	if g.n != channels {
		copied = b.hold(g.images * g.pixels() * g.n * size)
	}
	for i, m := range g.products {
		rows := m.K
		b.im2col(v, g, g.from(x, i), columns, rows)
		second := g.from(dy, i)
		if g.n != channels {
			b.resize(v, t, second, copied, 1, rows, channels, rows, g.n)
			second = copied
		}
		addend := any(uint64(0))
		if m.Adds {
			addend = sums
		}
		b.libraryCall(v, m, columns, second, uint64(0), addend, sums)
		bytesA, bytesB, bytesD := m.Bytes()
		b.pending[len(b.pending)-1].moved = bytesA + bytesB + bytesD*(1+min(i, 1))
	}
	if sums == any(v) {
		return
	}
	if v.Type.DType == dtype.Float32 {
		b.resize(v, dtype.Float32, sums, v, 1, g.m, g.n, g.elements(), channels)
		return
	}
	if g.n != channels {
		sums = b.resized(v, dtype.Float32, sums, 1, g.m, g.n, g.elements(), channels)
	}
	kept, _ := box(v, []int{v.Type.Shape.Size()}, []int{1})
	b.convert(v, sums, dtype.Float32, kept)
}

// im2col calls the kernel that writes rows of the im2col matrix.
func (b *builder) im2col(v *ir.Value, g im2col, from any, to scratch, rows int) {
	const warps = 8
	last := len(g.in) - 1
	t := v.Args[0].Type.DType
	word := min(rowBytes, b.begins(from))
	for g.in[last]*t.Size()%word != 0 {
		word /= 2
	}
	geometry := windows(v.Attr, g.in, g.out, g.window)
	c := g.in[last] * t.Size() / word
	geometry[1] = c
	args := slices.Concat([]any{to, from}, geometry, []any{rows, g.m * t.Size() / word, g.window.Size(), code(c)})
	for _, at := range []int{9, 10, 5, 6, 7} { // the last axes of a window, and those of the output
		args = append(args, code(geometry[at].(int)))
	}
	b.call(v, fmt.Sprint("im2col_", word), [3]int{min((rows+warps-1)/warps, 1<<20), 1, 1}, [3]int{32 * warps, 1, 1}, args...)
	b.pending[len(b.pending)-1].moved = rows/g.pixels()*g.in[1:].Size()*t.Size() + rows*g.m*t.Size()
}
