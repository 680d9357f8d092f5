package op

import (
	"math/rand/v2"
	"reflect"
	"testing"
)

// TestInferConv: want is the type of the result, or the text of the error.
func TestInferConv(t *testing.T) {
	const q = Unknown
	one, two := []int{1}, []int{1, 1}
	plain := Attr{Stride: two, Dilation: two, Low: []int{0, 0}, High: []int{0, 0}}
	with := func(f func(*Attr)) Attr {
		a := plain
		f(&a)
		return a
	}
	same := with(func(a *Attr) { a.Low, a.High = two, two })
	groups := func(n int) Attr { return with(func(a *Attr) { a.Groups = n }) }
	dims := func(s ...int) Attr { return with(func(a *Attr) { a.Dims = s }) }
	pool := with(func(a *Attr) { a.Window, a.Stride = []int{2, 2}, []int{2, 2} })
	poolDims := pool
	poolDims.Dims = Shape{2, 5, 4, 3}
	for _, c := range []struct {
		op   Code
		attr Attr
		args []Type
		want string
	}{
		{Conv, plain, args(ty(f16, 2, 9, 8, 3), ty(f16, 3, 3, 3, 5)), "float16[2 7 6 5]"},
		{Conv, same, args(ty(f16, q, 9, 8, 3), ty(f16, 3, 3, 3, 5)), "float16[? 9 8 5]"},
		{Conv, plain, args(ty(f16, q, q, 8, 3), ty(f16, 3, 3, 3, 5)), "float16[? ? 6 5]"},
		{Conv, with(func(a *Attr) { a.Stride, a.Dilation = []int{2, 3}, []int{3, 1} }), args(ty(f32, 2, 9, 8, 3), ty(f32, 3, 3, 3, 5)), "float32[2 2 2 5]"},
		{Conv, with(func(a *Attr) { a.Low, a.High, a.DType = []int{-1, 0}, []int{0, 2}, f32 }), args(ty(f16, 2, 9, 8, 3), ty(f16, 3, 3, 3, 5)), "float32[2 6 8 5]"},
		{Conv, groups(3), args(ty(f32, 2, 9, 8, 3), ty(f32, 3, 3, 1, 6)), "float32[2 7 6 6]"},
		{Conv, Attr{Stride: one, Dilation: one, Low: one, High: one}, args(ty(f32, 2, 9, 3), ty(f32, 3, 3, 5)), "float32[2 9 5]"},
		{Conv, plain, args(ty(f16, 2, 9, 8, 3), ty(f32, 3, 3, 3, 5)), "wants two tensors of one float type, got float16[2 9 8 3] and float32[3 3 3 5]"},
		{Conv, plain, args(ty(i32, 2, 9, 8, 3), ty(i32, 3, 3, 3, 5)), "wants two tensors of one float type, got int32[2 9 8 3] and int32[3 3 3 5]"},
		{Conv, plain, args(ty(f32, 2, 9), ty(f32, 3)), "the kernels are float32[3], want an axis for each of the window, input channels and output channels"},
		{Conv, plain, args(ty(f32, 2, 9), ty(f32, 3, 3)), "got float32[2 9], want a batch axis, one to three spatial axes and channels"},
		{Conv, plain, args(ty(f32, 2, 9, 3), ty(f32, 3, 3, 3, 5)), "windows of size [3 3] do not fit the 1 spatial axes of float32[2 9 3]"},
		{Conv, Attr{}, args(ty(f32, 2, 9, 3), ty(f32, 3, 3, 5)), "stride, dilation, low and high must name each spatial axis of float32[2 9 3]"},
		{Conv, plain, args(ty(f32, 2, 9, 2, 3), ty(f32, 3, 3, 3, 5)), "axis 2 of float32[2 9 2 3]: a window of 3 elements, 1 apart, does not fit into 2 elements with padding 0 and 0"},
		{Conv, with(func(a *Attr) { a.Stride = []int{1, 0} }), args(ty(f32, 2, 9, 8, 3), ty(f32, 3, 3, 3, 5)), "axis 2 of float32[2 9 8 3]: got a window of size 3, stride 0 and dilation 1, want at least 1"},
		{Conv, plain, args(ty(f32, 2, 9, 8, 4), ty(f32, 3, 3, 3, 5)), "float32[2 9 8 4] has 4 channels, want the 3 of the kernels float32[3 3 3 5] in 1 groups"},
		{Conv, groups(2), args(ty(f32, 2, 9, 8, 6), ty(f32, 3, 3, 3, 5)), "the 5 output channels of the kernels float32[3 3 3 5] are not a multiple of 2 groups"},
		{Conv, groups(-1), args(ty(f32, 2, 9, 8, 3), ty(f32, 3, 3, 3, 5)), "got -1 groups, want at least 1"},
		{Conv, with(func(a *Attr) { a.DType = i32 }), args(ty(f32, 2, 9, 8, 3), ty(f32, 3, 3, 3, 5)), "the result would be int32, want a float type"},

		{ConvInputGrad, dims(2, 9, 8, 3), args(ty(f16, 2, 7, 6, 5), ty(f16, 3, 3, 3, 5)), "float16[2 9 8 3]"},
		{ConvInputGrad, dims(2, 9, 8, 3), args(ty(f16, 2, 7, 5, 5), ty(f16, 3, 3, 3, 5)), "got the gradient float16[2 7 5 5] for an input of shape [2 9 8 3], want shape [2 7 6 5]"},
		{ConvInputGrad, dims(2, -9, 8, 3), args(ty(f16, 2, 7, 6, 5), ty(f16, 3, 3, 3, 5)), "shape [2 -9 8 3] has a negative axis"},
		{ConvKernelGrad, dims(3, 3, 3, 5), args(ty(f16, 2, 9, 8, 3), ty(f16, 2, 7, 6, 5)), "float16[3 3 3 5]"},
		{ConvKernelGrad, dims(3, 3, 3, 4), args(ty(f16, 2, 9, 8, 3), ty(f16, 2, 7, 6, 5)), "got the gradient float16[2 7 6 5] for an input float16[2 9 8 3] and kernels of shape [3 3 3 4], want shape [2 7 6 4]"},
		{ConvKernelGrad, dims(3, 3, 3, 5), args(ty(f16, 2, 9, 8, 3), ty(f32, 2, 7, 6, 5)), "wants two tensors of one float type, got float16[2 9 8 3] and float32[2 7 6 5]"},

		{MaxPool, pool, args(ty(f16, q, 5, 4, 3)), "float16[? 2 2 3]"},
		{AvgPool, pool, args(ty(i32, 2, 5, 4, 3)), "wants a float type, got int32[2 5 4 3]"},
		{MaxPool, plain, args(ty(f16, 2, 5, 4, 3)), "windows of size [] do not fit the 2 spatial axes of float16[2 5 4 3]"},
		{MaxPoolGrad, pool, args(ty(f16, 2, 5, 4, 3), ty(f16, 2, 2, 2, 3)), "float16[2 5 4 3]"},
		{MaxPoolGrad, pool, args(ty(f16, 2, 5, 4, 3), ty(f16, 2, 2, 1, 3)), "got the gradient float16[2 2 1 3] for an input float16[2 5 4 3], want float16[2 2 2 3]"},
		{MaxPoolGradGrad, pool, args(ty(f16, 2, 5, 4, 3), ty(f16, 2, 5, 4, 3)), "float16[2 2 2 3]"},
		{MaxPoolGradGrad, pool, args(ty(f16, 2, 5, 4, 3), ty(f32, 2, 5, 4, 3)), "got float32[2 5 4 3] to take from for an input float16[2 5 4 3], want its type"},
		{AvgPoolGrad, poolDims, args(ty(f16, 2, 2, 2, 3)), "float16[2 5 4 3]"},
		{AvgPoolGrad, poolDims, args(ty(f16, 2, 2, 2, 4)), "got the gradient float16[2 2 2 4] for an input of shape [2 5 4 3], want float16[2 2 2 3]"},
	} {
		r, err := Infer(c.op, c.attr, c.args...)
		got := r.String()
		if err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%v %v {%v}: got %q, want %q", c.op, c.args, c.attr, got, c.want)
		}
	}
}

func TestConvAttr(t *testing.T) {
	a := Attr{Window: []int{2}, Stride: []int{1}, Dilation: []int{3}, Low: []int{0}, High: []int{4}, Groups: 5}
	if got, want := a.String(), "window=[2] stride=[1] dilation=[3] low=[0] high=[4] groups=5"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestTrimWindows: what lies on padding in all windows goes, and as many windows
// stay, over the same elements.
func TestTrimWindows(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	on := func(a Attr, n, count int) (all [][]int) {
		for y := range count {
			var window []int
			for i := range a.Window[0] {
				if at := y*a.Stride[0] + i*a.Dilation[0] - a.Low[0]; at >= 0 && at < n {
					window = append(window, at)
				}
			}
			all = append(all, window)
		}
		return all
	}
	trimmed := 0
	for range 20000 {
		n := 1 + r.IntN(9)
		a := Attr{Window: []int{1 + r.IntN(12)}, Stride: []int{1 + r.IntN(4)}, Dilation: []int{1 + r.IntN(3)}, Low: []int{r.IntN(20) - 2}, High: []int{r.IntN(20) - 2}}
		count, err := Windows(n, a.Window[0], a.Stride[0], a.Dilation[0], a.Low[0], a.High[0])
		if err != nil {
			continue
		}
		b := a.TrimWindows(Shape{1, n, 1})
		again, err := Windows(n, b.Window[0], b.Stride[0], b.Dilation[0], b.Low[0], b.High[0])
		if err != nil || again != count || !reflect.DeepEqual(on(a, n, count), on(b, n, count)) {
			t.Fatalf("%d elements: %+v became %+v: %d windows, want %d over the same elements; %v", n, a, b, again, count, err)
		}
		if b.Window[0] < a.Window[0] {
			trimmed++
		}
	}
	if trimmed < 1000 {
		t.Errorf("only %d windows were trimmed", trimmed)
	}
	const huge = 1 << 34
	a := Attr{Window: []int{huge}, Stride: []int{1}, Dilation: []int{1}, Low: []int{huge / 2}, High: []int{huge - 1 - huge/2}}
	if b := a.TrimWindows(Shape{1, 5, 1}); b.Window[0] > 9 {
		t.Errorf("a window of %d over 5 elements, padded the same, became one of %d", huge, b.Window[0])
	}
}
