//go:build cuda && linux && amd64

package cuda

import (
	"slices"

	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// windows is the parameters WINDOWS of window.cu: in and out are the shapes of
// what the windows slide over and of what they make.
func windows(a op.Attr, in, out op.Shape, window []int) []any {
	three := func(list []int, otherwise int) []any {
		r := []any{otherwise, otherwise, otherwise}
		for i, x := range list {
			r[3-len(list)+i] = x
		}
		return r
	}
	last := len(in) - 1
	return slices.Concat([]any{in[0], in[last]}, three(in[1:last], 1), three(out[1:last], 1),
		three(window, 1), three(a.Stride, 1), three(a.Dilation, 1), three(a.Low, 0))
}

func (b *builder) pool(v *ir.Value) error {
	x, out := v.Args[0].Type.Shape, v.Type.Shape
	name, in, result := "", x, out
	args := []any{v.Args[0]}
	switch v.Op {
	case op.MaxPool:
		name = "max_pool_"
		args = append(args, v)
	case op.MaxPoolGradGrad:
		name = "max_pool_take_"
		args = append(args, v.Args[1], v)
	case op.MaxPoolGrad:
		name, result = "max_pool_grad_", v.Args[1].Type.Shape
		args = append(args, v.Args[1], v, int(v.Type.DType))
	case op.AvgPool:
		name = "avg_pool_"
		args = append(args, v, int(v.Type.DType))
	case op.AvgPoolGrad:
		name, in, result = "avg_pool_grad_", out, x
		args = append(args, v, int(v.Type.DType))
	}
	b.each(v, name+v.Args[0].Type.DType.String(), out.Size(), append(args, windows(v.Attr, in, result, v.Attr.Window)...)...)
	return nil
}
