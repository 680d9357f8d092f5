//go:build cuda && linux && amd64

package cuda

import (
	"fmt"
	"math"

	"github.com/mezzo-ml/mezzo/backend"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// group is how many threads a row of n elements has in dense.cu.
func group(t dtype.DType, n int) int {
	if n <= 256 && t != dtype.Float64 {
		return 32
	}
	return 256
}

// paired reports whether dense.cu has kernels for two types.
func paired(a, b dtype.DType) bool {
	return a == b || a == dtype.Float32 && b.Is16() || a.Is16() && b == dtype.Float32
}

// vectors is 1 if rows of n elements are read and written several elements at
// a time: all of them begin where 16 bytes do.
func (b *builder) vectors(n int, values ...*ir.Value) int {
	for _, v := range values {
		if n%4 != 0 || b.alignment(v)%16 != 0 {
			return 0
		}
	}
	return 1
}

// dense calls a kernel of dense.cu on rows of n elements, with at most so many
// blocks, and returns how many groups go through the rows.
func (b *builder) dense(v *ir.Value, name string, from, to dtype.DType, rows, n, most int, args []any, values ...*ir.Value) (groups int) {
	each := 256 / group(from, n)
	blocks := max(1, min((rows+each-1)/each, most))
	args = append(args, rows, n, b.vectors(n, values...))
	b.call(v, fmt.Sprintf("%s_%v_%v", name, from, to), [3]int{blocks, 1, 1}, [3]int{256, 1, 1}, args...)
	return blocks * each
}

const manyBlocks = 1 << 20

func (b *builder) softmax(v *ir.Value) error {
	x := v.Args[0]
	outer, n, inner := splitAt(x.Type.Shape, v.Attr.Axes[0])
	logarithm := 0
	if v.Op == op.LogSoftmax {
		logarithm = 1
	}
	switch {
	case outer*n*inner == 0:
	case inner == 1 && n <= math.MaxInt32 && paired(x.Type.DType, v.Type.DType):
		b.dense(v, "softmax_rows", x.Type.DType, v.Type.DType, outer, n, manyBlocks, []any{x, v, logarithm}, x, v)
	default:
		b.call(v, "softmax_"+x.Type.DType.String(), [3]int{outer * inner, 1, 1}, [3]int{256, 1, 1}, x, v, int(v.Type.DType), logarithm, n, inner)
	}
	return nil
}

func (b *builder) softmaxGrad(v *ir.Value) error {
	y, g := v.Args[0], v.Args[1]
	outer, n, inner := splitAt(y.Type.Shape, v.Attr.Axes[0])
	switch from, to := y.Type.DType, g.Type.DType; {
	case outer*n*inner == 0:
	case inner == 1 && n <= math.MaxInt32 && to == v.Type.DType && paired(from, to):
		b.dense(v, "softmax_grad_rows", from, to, outer, n, manyBlocks, []any{y, g, v}, y, g, v)
	default:
		b.call(v, "softmax_grad_"+from.String(), [3]int{outer * inner, 1, 1}, [3]int{256, 1, 1}, y, g, int(to), v, int(v.Type.DType), n, inner)
	}
	return nil
}

// uncentered is a parameter.
func uncentered(a op.Attr) int {
	if a.Uncentered {
		return 1
	}
	return 0
}

func (b *builder) normalize(v *ir.Value) error {
	x := v.Args[0]
	rows, n := x.Type.Shape[0], x.Type.Shape[1]
	if from, to := x.Type.DType, v.Type.DType; !paired(from, to) {
		return &backend.UnsupportedError{Device: b.p.device.Name(), Op: v.Op, DType: to, Path: v.Path}
	}
	if rows*n > 0 {
		b.dense(v, "normalize", x.Type.DType, v.Type.DType, rows, n, manyBlocks, []any{x, v.Args[1], v.Args[2], v, v.Attr.Epsilon, uncentered(v.Attr)}, x, v)
	}
	return nil
}

func (b *builder) normalizeGrad(v *ir.Value) error {
	x, g := v.Args[0], v.Args[2]
	rows, n := x.Type.Shape[0], x.Type.Shape[1]
	if from, to := x.Type.DType, g.Type.DType; !paired(from, to) {
		return &backend.UnsupportedError{Device: b.p.device.Name(), Op: v.Op, DType: to, Path: v.Path}
	}
	if n == 0 {
		return nil
	}
	const most = 512 // blocks: what they add up by themselves has to be added up again
	groups := b.dense(v, "normalize_grad", x.Type.DType, g.Type.DType, rows, n, most,
		[]any{x, v.Args[1], g, v, scratch(0), v.Attr.Epsilon, uncentered(v.Attr)}, x, g, v)
	b.scratch = max(b.scratch, groups*2*n*v.Type.DType.Size())
	kept, _ := box(v, []int{2 * n}, []int{1})
	folded, _ := box(v, []int{groups}, []int{2 * n})
	t := v.Type.DType
	b.reduction(v, true, t.String(), 2*n, 1, []any{scratch(0), b.section(v, rows*n, 2*n), int(t), sum, groups, groups, 1.0}, kept, folded)
	return nil
}
