//go:build cuda && linux && amd64

package cuda

import (
	"fmt"
	"slices"

	"github.com/mezzo-ml/mezzo/backend/cuda/internal/ptx"
	"github.com/mezzo-ml/mezzo/backend/dtype"
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

// code is the parameter of a divisor of numbers below 2^31: see ptx.Reciprocal.
func code(d int) uint64 {
	magic, shift := ptx.Reciprocal(max(1, d)) // of an empty space nothing is divided
	return magic | uint64(shift)<<32
}

// splitCode is code, or 0 if n elements are too many for it: see split of types.h.
func splitCode(d, n int) uint64 {
	if n >= 1<<31 {
		return 0
	}
	return code(d)
}

// window calls a kernel of window.cu with a thread for each element of shape, in or out.
func (b *builder) window(v *ir.Value, name string, shape op.Shape, geometry []any, args ...any) error {
	images, each := shape[0], shape[1:].Size()
	last := len(shape) - 1
	input := geometry[1].(int) * geometry[2].(int) * geometry[3].(int) * geometry[4].(int)
	if n := max(each, input); n >= 1<<31 {
		return fmt.Errorf("cuda: layer %s: %v of images of %d elements, want less than 2^31", v.Path, v.Op, n)
	}
	if images*each == 0 {
		return nil
	}
	axes := [3]int{1, 1, 1}
	copy(axes[4-len(shape)+1:], shape[1:last])
	through := []int{shape[last], axes[1], axes[2]}
	for _, d := range through {
		geometry = append(geometry, d)
	}
	for _, d := range append(through, geometry[11].(int), geometry[12].(int), geometry[13].(int)) {
		geometry = append(geometry, code(d))
	}
	b.call(v, name+v.Args[0].Type.DType.String(), [3]int{(each + 255) / 256, min(images, 65535), 1}, [3]int{256, 1, 1}, slices.Concat(args, geometry)...)
	return nil
}

func (b *builder) pool(v *ir.Value) error { return b.pooling(v, false) }

// fourChannels is how a pooling is called that takes four channels at a time, if they lie
// together in all operands and have one type: the names of its kernels go on so.
func (b *builder) fourChannels(v *ir.Value, shape op.Shape, geometry []any) (s op.Shape, name string) {
	t := v.Type.DType
	last := len(shape) - 1
	four := shape[last]%4 == 0 && (t.Is16() || t == dtype.Float32)
	for _, x := range append([]*ir.Value{v}, v.Args...) {
		four = four && x.Type.DType == t && b.alignment(x)%(4*t.Size()) == 0
	}
	if !four {
		return shape, ""
	}
	s = slices.Clone(shape)
	s[last] /= 4
	geometry[1] = s[last]
	return s, "four_"
}

// pooling makes the calls of a pooling, and with relu, of the gradient of a ReLU before.
func (b *builder) pooling(v *ir.Value, relu bool) error {
	x, out := v.Args[0].Type.Shape, v.Type.Shape
	to := int(v.Type.DType)
	switch v.Op {
	case op.MaxPool:
		geometry := windows(v.Attr, x, out, v.Attr.Window)
		s, four := b.fourChannels(v, out, geometry)
		return b.window(v, "max_pool_"+four, s, geometry, v.Args[0], v)
	case op.MaxPoolGradGrad:
		return b.window(v, "max_pool_take_", out, windows(v.Attr, x, out, v.Attr.Window), v.Args[0], v.Args[1], v)
	case op.AvgPool:
		return b.window(v, "avg_pool_", out, windows(v.Attr, x, out, v.Attr.Window), v.Args[0], v, to)
	case op.AvgPoolGrad:
		return b.window(v, "avg_pool_grad_", out, windows(v.Attr, out, x, v.Attr.Window), v.Args[0], v, to)
	}
	g := v.Args[1].Type.Shape
	geometry := windows(v.Attr, x, g, v.Attr.Window)
	overlap, covered := false, true
	for i := range 3 {
		in, outputs, size, stride, dilation, low := geometry[2+i].(int), geometry[5+i].(int), geometry[8+i].(int), geometry[11+i].(int), geometry[14+i].(int), geometry[17+i].(int)
		overlap = overlap || outputs > 1 && stride <= (size-1)*dilation
		covered = covered && (dilation == 1 || size == 1) && (stride <= size || outputs <= 1) && low >= 0 && (outputs-1)*stride+size-low >= in
	}
	above := 0
	if relu {
		above = 1
	}
	if overlap {
		return b.window(v, "max_pool_grad_", x, geometry, v.Args[0], v.Args[1], v, to, above)
	}
	if !covered {
		b.fill(v, 0)
	}
	s, four := b.fourChannels(v, g, geometry)
	if four != "" {
		return b.window(v, "max_pool_spread_"+four, s, geometry, v.Args[0], v.Args[1], v, above)
	}
	return b.window(v, "max_pool_spread_", g, geometry, v.Args[0], v.Args[1], v, to, above)
}

// reluPool reports whether all that v does with the gradient of a maximum is to keep it
// where the pooling's input is above 0, as the gradient of a ReLU before it does.
func reluPool(v *ir.Value) bool {
	body := v.Attr.Body
	if v.Op != op.MaxPoolGrad || len(body.Code) != 2 || len(body.Inputs) != 3 || len(v.Args) != 4 || len(body.ExtraOutputs) > 0 || v.Args[3] != v.Args[0] || v.Attr.DType != v.Type.DType {
		return false
	}
	zero, above, where := v.Args[2], body.Code[0], body.Code[1]
	return zero.Op == op.Const && zero.Attr.Data == nil && zero.Attr.Value == 0 && zero.Type.DType == v.Args[0].Type.DType &&
		above.Op == op.Greater && above.Args[0] == 2 && above.Args[1] == 1 && where.Op == op.Where && where.DType == v.Type.DType && where.Args == [...]int32{3, 0, 1}
}
