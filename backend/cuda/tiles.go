//go:build cuda && linux && amd64

package cuda

import (
	"fmt"
	"math/bits"
	"slices"

	"github.com/mezzo-ml/mezzo/backend"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// tiling is a product by the kernels of gemm.cu: batches of rows by terms
// times terms by columns.
type tiling struct {
	out                           any // where the result goes: a value, or working memory
	rows, columns, terms, batches int
	wideA, wideB                  int // logarithms of the bytes that a copy takes together
	stride, apart                 int // of rows and of batches in the result
}

// The depth of a tile in bytes, and what a product is cut into parts for: about
// so many blocks, each of so many tiles or more.
const (
	depthBytes = 64
	blocksWish = 256
	depthLeast = 16
)

// arithmetic names the kernels that multiply a type, and the size of their
// tiles.
func (d *Device) arithmetic(t dtype.DType) (name string, size int) {
	if d.capability() >= 80 && t.Is16() || t == dtype.Float32 && d.tf32() {
		return "tensor", 128
	}
	return "plain", 64
}

// tf32 reports whether float32 is multiplied as TensorFloat-32: as backend.SetTF32
// says, else as MEZZO_TF32 does.
func (d *Device) tf32() bool {
	on, set := backend.TF32()
	if !set {
		on = d.settings.tf32
	}
	return on && d.MultipliesTF32()
}

// MultipliesTF32 implements driver.TF32Multiplier. GPUs have TensorFloat-32 from
// compute capability 8.0 on.
func (d *Device) MultipliesTF32() bool { return d.capability() >= 80 }

// wide is the logarithm of the number of bytes, up to 16, that the address of x
// and all distances of elements of a type are multiples of.
func (b *builder) wide(x any, t dtype.DType, distances ...int) int {
	n := min(16, b.begins(x))
	for _, d := range distances {
		for d*t.Size()%n != 0 {
			n /= 2
		}
	}
	return bits.TrailingZeros(uint(n))
}

// tiles calls a kernel of gemm.cu, whose name has a gap for the arithmetic. A
// product with few tiles and many terms is cut into parts that another kernel
// sums up, which nothing can follow; then it reports that it did nothing.
func (b *builder) tiles(v *ir.Value, name string, t tiling, f following, before, after []any) bool {
	in := v.Args[0].Type.DType
	how, size := b.p.device.arithmetic(in)
	blocks := (t.rows + size - 1) / size * ((t.columns + size - 1) / size)
	depth := depthBytes / in.Size()
	parts := max(1, min(blocksWish/(blocks*t.batches), t.terms/(depth*depthLeast)))
	per := max(depth, ((t.terms+parts-1)/parts+depth-1)/depth*depth)
	parts = max(1, (t.terms+per-1)/per)
	if parts > 1 && f != (following{}) {
		return false
	}
	out, to, apart := t.out, v.Type.DType, 0
	outputs := t.rows * t.columns * t.batches
	if parts > 1 {
		out, to, apart = scratch(b.reserved), wide(in), outputs
		b.scratch = max(b.scratch, b.reserved+parts*outputs*to.Size())
	}
	relu := 0
	if f.relu {
		relu = 1
	}
	args := slices.Concat(before, []any{out, int(to), t.rows, t.columns, t.terms, t.wideA, t.wideB, t.stride, t.apart, t.batches, per, apart, f.parameter(), relu}, after)
	b.call(v, fmt.Sprintf(name, how)+"_"+in.String(), [3]int{blocks, parts, min(t.batches, 65535)}, [3]int{256, 1, 1}, args...)
	if parts > 1 {
		kept, _ := box(v, []int{outputs}, []int{1})
		folded, _ := box(v, []int{parts}, []int{outputs})
		b.reduction(v, outputs >= 32, to.String(), outputs, 1, []any{out, t.out, int(v.Type.DType), sum, parts, parts, float64(parts)}, kept, folded)
	}
	return true
}

func (b *builder) matmul(v *ir.Value, f following) (bool, error) {
	g := productOf(v)
	if b.current != nil {
		return b.eightMatmul(v, f), nil
	}
	if done, alone := b.libraryProduct(v, g, f); done || alone {
		return done, nil
	}
	xb, err := box(v, g.batch.sizes, g.batch.strides[0])
	if err != nil {
		return false, err
	}
	yb, err := box(v, g.batch.sizes, g.batch.strides[1])
	if err != nil {
		return false, err
	}
	layout, lda, ldb := [2]byte{'n', 'n'}, g.k, g.n
	if g.transA {
		layout[0], lda = 't', g.m
	}
	if g.transB {
		layout[1], ldb = 't', g.k
	}
	x, y, lda, ldb := b.paddedMatmul(v, g, lda, ldb)
	t := tiling{
		out: v, rows: g.m, columns: g.n, terms: g.k, batches: op.Shape(g.batch.sizes).Size(), stride: g.n, apart: g.m * g.n,
		wideA: b.wide(x, v.Args[0].Type.DType, lda), wideB: b.wide(y, v.Args[0].Type.DType, ldb),
	}
	return b.tiles(v, "matmul_%s_"+string(layout[:]), t, f, slices.Concat([]any{x, y, lda, ldb}, xb, yb), nil), nil
}

// fewChannels is the number of channels of a group below which tiles would
// have little in them.
const fewChannels = 8

// conv makes the calls of a convolution or of one of its gradients: of the
// library, or by tiles, or, for groups of few channels, by a kernel with a
// thread for each output.
func (b *builder) conv(v *ir.Value, f following) (bool, error) {
	x, y, out := v.Args[0].Type.Shape, v.Args[1].Type.Shape, v.Type.Shape
	name, in, result, kernels := "conv", x, out, y
	switch v.Op {
	case op.ConvInputGrad:
		name, in, result = "conv_input_grad", out, x
	case op.ConvKernelGrad:
		name, result, kernels = "conv_kernel_grad", y, out
	}
	last := len(in) - 1
	groups := max(1, v.Attr.Groups)
	c, o := in[last], result[last]
	cg, og := c/groups, o/groups
	window := kernels[:last-1]
	taps, pixels, inputs := window.Size(), result[:last].Size(), in[:last].Size()
	if p, ok := b.convolutionProblem(v, in, result, window); ok {
		if done, alone := b.libraryConvolution(v, p, f); done || alone {
			return done, nil
		}
	}
	if g, ok := b.im2colOf(v, in, result, window); ok {
		if f == (following{}) {
			b.byColumns(v, g)
		}
		return f == (following{}), nil
	}
	geometry := windows(v.Attr, in, result, window)
	if groups > 1 && min(cg, og) < fewChannels || max(taps*cg, taps*og, pixels, inputs) >= 1<<31 {
		if f != (following{}) {
			return false, nil
		}
		args := []any{v.Args[0], v.Args[1], v, int(v.Type.DType), o, groups}
		if v.Op == op.ConvKernelGrad {
			b.each(v, "direct_"+name+"_"+v.Args[0].Type.DType.String(), out.Size(), slices.Concat(args, geometry)...)
			return true, nil
		}
		return true, b.window(v, "direct_"+name+"_", out, geometry, args...)
	}
	var first, second any = v.Args[0], v.Args[1]
	columns := og
	if groups == 1 {
		first, second, c, o = b.paddedConv(v, taps, pixels, inputs, c, o)
		cg, og = c, o
		geometry[1] = c
	}
	dt := v.Args[0].Type.DType
	t := tiling{out: v, batches: groups, rows: pixels, columns: columns, terms: taps * cg, stride: result[last], apart: columns}
	channels, space := cg, geometry[5:8] // of the result
	t.wideA, t.wideB = b.wide(first, dt, c, cg), b.wide(second, dt, o, og)
	switch v.Op {
	case op.ConvInputGrad:
		t.rows, t.columns, t.terms, t.stride, t.apart = inputs, cg, taps*og, c, cg
		t.wideA, channels, space = b.wide(first, dt, o, og), og, geometry[2:5]
	case op.ConvKernelGrad:
		t.rows, t.terms = taps*cg, pixels
		if c != in[last] {
			t.out = b.hold(taps * c * columns * v.Type.DType.Size())
		}
	}
	divisors := slices.Concat(space, geometry[9:11], []any{channels}, geometry[11:14])
	after := slices.Concat(geometry, []any{channels}, space)
	for _, d := range divisors {
		after = append(after, code(d.(int)))
	}
	done := b.tiles(v, name+"_%s", t, f, []any{first, second, o, og, cg}, after)
	if done && t.out != any(v) {
		b.resize(v, v.Type.DType, t.out, v, taps, c, columns, in[last], columns)
	}
	return done, nil
}
