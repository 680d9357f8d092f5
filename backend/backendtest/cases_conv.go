package backendtest

import (
	"math"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/op"
)

func init() {
	register(convCases, op.Conv, op.ConvInputGrad, op.ConvKernelGrad)
	register(poolCases, op.MaxPool, op.MaxPoolGrad, op.MaxPoolGradGrad, op.AvgPool, op.AvgPoolGrad)
}

// slide is a convolution or, without the channels of w, a pooling. Lists that
// are nil stand for ones, or for no padding.
type slide struct {
	name                        string
	x, w                        op.Shape
	stride, dilation, low, high []int
	groups                      int
}

func (s slide) attr() op.Attr {
	n := len(s.x) - 2
	or := func(list []int, otherwise int) []int {
		out := make([]int, n)
		for i := range out {
			out[i] = otherwise
		}
		copy(out, list)
		return out
	}
	return op.Attr{Stride: or(s.stride, 1), Dilation: or(s.dilation, 1), Low: or(s.low, 0), High: or(s.high, 0), Groups: s.groups}
}

var slideClasses = []slide{
	{name: "one", x: op.Shape{1, 1, 1}, w: op.Shape{1, 1, 1}},
	{name: "valid1", x: op.Shape{2, 9, 3}, w: op.Shape{3, 3, 5}},
	{name: "causal", x: op.Shape{2, 9, 3}, w: op.Shape{3, 3, 5}, low: []int{4}, dilation: []int{2}},
	{name: "valid2", x: op.Shape{2, 6, 7, 4}, w: op.Shape{3, 2, 4, 8}},
	{name: "same2", x: op.Shape{2, 6, 7, 4}, w: op.Shape{3, 3, 4, 8}, low: []int{1, 1}, high: []int{1, 1}},
	{name: "sameEven", x: op.Shape{1, 5, 5, 3}, w: op.Shape{2, 4, 3, 2}, low: []int{0, 1}, high: []int{1, 2}},
	{name: "stride", x: op.Shape{2, 9, 8, 3}, w: op.Shape{3, 3, 3, 5}, stride: []int{2, 3}},
	{name: "strideSame", x: op.Shape{1, 9, 8, 4}, w: op.Shape{3, 3, 4, 6}, stride: []int{2, 2}, low: []int{1, 0}, high: []int{1, 1}},
	{name: "strideOver", x: op.Shape{2, 7, 8, 3}, w: op.Shape{1, 2, 3, 4}, stride: []int{3, 3}},
	{name: "dilation", x: op.Shape{2, 9, 8, 2}, w: op.Shape{3, 2, 2, 3}, dilation: []int{2, 3}, low: []int{2, 0}, high: []int{1, 1}},
	{name: "cut", x: op.Shape{1, 8, 8, 2}, w: op.Shape{3, 3, 2, 4}, low: []int{-1, 2}, high: []int{1, -2}},
	{name: "wide", x: op.Shape{1, 3, 3, 2}, w: op.Shape{5, 5, 2, 4}, low: []int{2, 2}, high: []int{2, 2}},
	{name: "padding", x: op.Shape{1, 3, 2, 2}, w: op.Shape{2, 1, 2, 3}, low: []int{3, 2}, high: []int{3, 1}},
	{name: "whole", x: op.Shape{5, 4, 3, 3}, w: op.Shape{4, 3, 3, 7}},
	{name: "point", x: op.Shape{3, 5, 4, 9}, w: op.Shape{1, 1, 9, 11}},
	{name: "pointStride", x: op.Shape{3, 5, 4, 9}, w: op.Shape{1, 1, 9, 11}, stride: []int{2, 2}},
	{name: "groups", x: op.Shape{2, 5, 6, 6}, w: op.Shape{3, 3, 2, 9}, groups: 3, low: []int{1, 1}, high: []int{1, 1}},
	{name: "groupsStride", x: op.Shape{1, 7, 6, 8}, w: op.Shape{3, 3, 4, 6}, groups: 2, stride: []int{2, 1}},
	{name: "depthwise", x: op.Shape{2, 6, 5, 7}, w: op.Shape{3, 3, 1, 7}, groups: 7, low: []int{1, 1}, high: []int{1, 1}},
	{name: "depthwiseTwo", x: op.Shape{2, 7, 5, 3}, w: op.Shape{3, 2, 1, 6}, groups: 3, stride: []int{2, 1}},
	{name: "cube", x: op.Shape{2, 4, 5, 6, 3}, w: op.Shape{2, 3, 3, 3, 4}, low: []int{0, 1, 1}, high: []int{1, 1, 0}},
	{name: "cubeStride", x: op.Shape{1, 5, 4, 6, 2}, w: op.Shape{3, 2, 3, 2, 3}, stride: []int{2, 1, 2}, dilation: []int{1, 2, 1}},
	{name: "emptyBatch", x: op.Shape{0, 5, 5, 3}, w: op.Shape{3, 3, 3, 4}},
	{name: "first", x: op.Shape{3, 20, 19, 1}, w: op.Shape{5, 3, 1, 9}, low: []int{2, 1}, high: []int{2, 1}},
	{name: "firstWide", x: op.Shape{1, 4, 45, 1}, w: op.Shape{3, 3, 1, 33}},
	{name: "colors", x: op.Shape{2, 11, 12, 3}, w: op.Shape{3, 3, 3, 17}, stride: []int{2, 2}, low: []int{0, 0}, high: []int{1, 1}},
	{name: "oddChannels", x: op.Shape{2, 8, 9, 13}, w: op.Shape{3, 3, 13, 37}, low: []int{1, 1}, high: []int{1, 1}},
	{name: "largeValid", x: op.Shape{3, 13, 13, 32}, w: op.Shape{3, 3, 32, 64}},
	{name: "largeSame", x: op.Shape{2, 16, 30, 24}, w: op.Shape{3, 3, 24, 40}, low: []int{1, 1}, high: []int{1, 1}},
	{name: "largeStride", x: op.Shape{2, 15, 17, 20}, w: op.Shape{3, 3, 20, 36}, stride: []int{2, 2}, low: []int{1, 1}, high: []int{1, 1}},
	{name: "largeDilation", x: op.Shape{1, 17, 16, 16}, w: op.Shape{3, 3, 16, 32}, dilation: []int{2, 2}, low: []int{2, 2}, high: []int{2, 2}},
	{name: "largeGroups", x: op.Shape{2, 10, 12, 32}, w: op.Shape{3, 3, 16, 48}, groups: 2, low: []int{1, 1}, high: []int{1, 1}},
	{name: "largeDepthwise", x: op.Shape{2, 21, 20, 40}, w: op.Shape{3, 3, 1, 40}, groups: 40, low: []int{1, 1}, high: []int{1, 1}},
	{name: "largeDeep", x: op.Shape{2, 4, 4, 160}, w: op.Shape{3, 3, 160, 48}, low: []int{1, 1}, high: []int{1, 1}},
	{name: "largeSequence", x: op.Shape{2, 300, 16}, w: op.Shape{5, 16, 24}, low: []int{4}},
	{name: "largeCube", x: op.Shape{1, 6, 7, 8, 16}, w: op.Shape{3, 3, 3, 16, 16}, low: []int{1, 1, 1}, high: []int{1, 1, 1}},
}

func convCases(b *builder) {
	outs := resultTypes(b.op, b.dtype)
	for _, s := range slideClasses {
		for _, out := range outs {
			b.conv(s, suffix(out), out, numbers).Large = large(s.name)
		}
	}
	// 0·∞ is NaN here, too. Windows of one element need no padding, which may
	// count as 0 or be left out.
	some := values(0, 1, -2, 0.5)
	if b.op == op.ConvKernelGrad { // sums over all pixels
		b.conv(slide{name: "special", x: op.Shape{1, 5, 4}, w: op.Shape{1, 4, 3}}, "", dtype.Invalid, values(math.Inf(1), 1, math.NaN(), math.Inf(-1)), some)
	} else {
		b.conv(slide{name: "special", x: op.Shape{1, 65, 2}, w: op.Shape{1, 2, 7}}, "", dtype.Invalid, special, some)
		b.conv(slide{name: "specialGroups", x: op.Shape{1, 65, 2}, w: op.Shape{1, 1, 4}, groups: 2}, "", dtype.Invalid, special, some)
	}
	b.conv(slide{name: "overflow", x: op.Shape{1, 9, 9, 4}, w: op.Shape{3, 3, 4, 5}}, "", dtype.Invalid, constant(min(b.dtype.Max()/4, 0x1p50)))
}

// conv adds a case of a convolution or of one of its gradients.
func (b *builder) conv(s slide, suffix string, out dtype.DType, f ...fill) *Case {
	a := s.attr()
	x, w := b.t(s.x...), b.t(s.w...)
	y, err := op.Infer(op.Conv, a, x, w)
	if err != nil {
		b.err = err
		y = x
	}
	a.DType = out
	switch b.op {
	case op.ConvInputGrad:
		a.Dims, x = s.x, y
	case op.ConvKernelGrad:
		a.Dims, w = s.w, y
	}
	return b.add(s.name+suffix, a, []op.Type{x, w}, f...)
}

func poolCases(b *builder) {
	for _, s := range slideClasses {
		if s.groups == 0 {
			b.pool(s, "", numbers).Large = large(s.name)
			b.pool(s, "Equal", few).Large = large(s.name)
		}
	}
	pairs := slide{name: "special", x: op.Shape{1, 65, 3}, w: op.Shape{2, 3, 3}, stride: []int{2}}
	b.pool(pairs, "", special)
	pairs.name = "nan"
	b.pool(pairs, "", nanFill)
	b.pool(slide{name: "global", x: op.Shape{3, 20, 33, 5}, w: op.Shape{20, 33, 5, 5}}, "", numbers)
	// The sum overflows a 16-bit type, the mean does not.
	b.pool(slide{name: "overflow", x: op.Shape{1, 9, 9, 2}, w: op.Shape{3, 3, 2, 2}}, "", constant(min(b.dtype.Max()/2, 0x1p100)))
}

// pool adds a case of a pooling or of what its gradient needs.
func (b *builder) pool(s slide, suffix string, f fill) *Case {
	a := s.attr()
	a.Window = s.w[:len(s.x)-2]
	x := b.t(s.x...)
	y, err := op.Infer(op.MaxPool, a, x)
	if err != nil {
		b.err = err
		y = x
	}
	args := []op.Type{x}
	switch b.op {
	case op.MaxPoolGrad:
		args = []op.Type{x, y}
	case op.MaxPoolGradGrad:
		args = []op.Type{x, x}
	case op.AvgPoolGrad:
		a.Dims, args = s.x, []op.Type{y}
	}
	return b.add(s.name+suffix, a, args, f)
}
