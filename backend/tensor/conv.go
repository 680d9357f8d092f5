package tensor

import (
	"slices"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// Convolution and pooling. Channels come last, as in Keras's
// data_format="channels_last". Options with an entry per spatial axis also accept one
// entry for all of them.
//
// Padding is as in Keras: "valid", the default, uses the windows that lie inside;
// "same" pads so that there are ⌈n/stride⌉ of them, the odd element after; "causal"
// pads before only, so that no window sees later elements. Instead of a word, Low and
// High give the number of elements to add before and after each axis; negative numbers
// cut elements off.

// ConvOptions are the options of [Tensor.Conv].
type ConvOptions struct {
	Stride    []int  // from one window to the next; default 1
	Dilation  []int  // between the elements of a window; default 1
	Padding   string // "valid" (default), "same" or "causal"
	Low, High []int  // padding in numbers; not together with Padding
	Groups    int    // parts into which the channels are cut, each with its own kernels; default 1
}

// PoolOptions are the options of [Tensor.MaxPool] and [Tensor.AvgPool].
type PoolOptions struct {
	Window    []int  // size of the windows; required
	Stride    []int  // from one window to the next; default Window
	Dilation  []int  // between the elements of a window; default 1
	Padding   string // "valid" (default), "same" or "causal"
	Low, High []int  // padding in numbers; not together with Padding
}

// Conv returns the cross-correlation of t with kernels w, which Keras and others call a
// convolution. One spatial axis gives Conv1D, two Conv2D, three Conv3D. With as many
// groups as channels it is a depthwise convolution, whose output channel c·m+j is
// kernel j of channel c.
//
// Shapes: t [N spatial… C], w [window… C/Groups O] → [N outputs… O]. Types: equal
// floats; 16-bit ones accumulate in float32 and round once.
func (t *Tensor) Conv(w *Tensor, o ConvOptions) *Tensor {
	if bad := brokenOf(t, w); bad != nil {
		return bad
	}
	n := max(len(w.typ.Shape)-2, 0)
	a := slides{"Conv", o.Stride, o.Dilation, o.Low, o.High, o.Padding}.attr(t.typ.Shape, w.typ.Shape[:n])
	a.Groups = o.Groups
	return t.record(op.Conv, a, t, w)
}

// QuantizedConv returns [Tensor.Conv] of t, float32 or bfloat16, with int8 kernels w whose
// channel j stands for w/scale[j]. T is quantized to int8 as it comes, to zero+t·inputScale,
// and sums are int32; op/quantize.go has the formula. There is no gradient.
//
// Shapes: t [N spatial… C], w [window… C/Groups O], float32 scale [O], float32 inputScale
// [] and int8 zero [] → [N outputs… O] of t's type.
func (t *Tensor) QuantizedConv(w, scale, inputScale, zero *Tensor, o ConvOptions) *Tensor {
	if bad := brokenOf(t, w, scale, inputScale, zero); bad != nil {
		return bad
	}
	n := max(len(w.typ.Shape)-2, 0)
	a := slides{"QuantizedConv", o.Stride, o.Dilation, o.Low, o.High, o.Padding}.attr(t.typ.Shape, w.typ.Shape[:n])
	a.Groups = o.Groups
	return t.record(op.QuantizedConv, a, t, w, scale, inputScale, zero)
}

// ConvTranspose returns a transposed convolution as in Keras: the gradient of the input
// of a Conv with kernels w and options o whose input has the given shape and whose
// result has t's. Several shapes fit one t if strides are larger than 1, hence the
// argument.
//
// Shapes: t [N outputs… O], w [window… C/Groups O] → shape [N spatial… C].
func (t *Tensor) ConvTranspose(w *Tensor, shape []int, o ConvOptions) *Tensor {
	if bad := brokenOf(t, w); bad != nil {
		return bad
	}
	n := max(len(w.typ.Shape)-2, 0)
	a := slides{"ConvTranspose", o.Stride, o.Dilation, o.Low, o.High, o.Padding}.attr(shape, w.typ.Shape[:n])
	a.Groups, a.Dims = o.Groups, Shape(shape).Clone()
	return t.record(op.ConvInputGrad, a, t, w)
}

// MaxPool returns the maximum of each window; padding is never the largest.
// The gradient goes to the first maximum of a window.
//
// Shapes: [N spatial… C] → [N outputs… C].
func (t *Tensor) MaxPool(o PoolOptions) *Tensor { return t.pool(op.MaxPool, o) }

// AvgPool returns the mean of each window, of the elements that are not
// padding. 16-bit types accumulate in float32 and round once.
//
// Shapes: [N spatial… C] → [N outputs… C].
func (t *Tensor) AvgPool(o PoolOptions) *Tensor { return t.pool(op.AvgPool, o) }

func (t *Tensor) pool(c op.Code, o PoolOptions) *Tensor {
	if bad := brokenOf(t); bad != nil {
		return bad
	}
	n := max(len(t.typ.Shape)-2, 0)
	window := perAxis(c.String(), "window", o.Window, n, 0)
	if o.Stride == nil {
		o.Stride = window
	}
	a := slides{c.String(), o.Stride, o.Dilation, o.Low, o.High, o.Padding}.attr(t.typ.Shape, window)
	a.Window = window
	return t.record(c, a.TrimWindows(t.typ.Shape), t)
}

// brokenOf is the first tensor that no operation takes, or nil.
func brokenOf(ts ...*Tensor) *Tensor {
	for _, t := range ts {
		switch {
		case t == nil:
			Fail("Conv", "the kernels are nil")
		case t.err != nil:
			return t
		case t.parts != nil:
			return t.record(op.Identity, op.Attr{}, t) // which reports it
		}
	}
	return nil
}

// slides is how windows slide, as given.
type slides struct {
	name                        string // of the operation, for errors
	stride, dilation, low, high []int
	padding                     string
}

// perAxis is an option with an entry for each of n spatial axes.
func perAxis(name, what string, given []int, n, otherwise int) []int {
	switch len(given) {
	case n:
		return slices.Clone(given)
	case 1:
		return slices.Repeat(given, n)
	case 0:
		if otherwise > 0 || what == "padding" {
			return slices.Repeat([]int{otherwise}, n)
		}
	}
	Fail(name, "got %s %v, want an entry for each of %d spatial axes, or one for all", what, given, n)
	return nil
}

// attr resolves s for windows of the given sizes in a tensor of shape x.
func (s slides) attr(x Shape, sizes []int) op.Attr {
	n := len(sizes)
	a := op.Attr{
		Stride:   perAxis(s.name, "stride", s.stride, n, 1),
		Dilation: perAxis(s.name, "dilation", s.dilation, n, 1),
		Low:      perAxis(s.name, "padding", s.low, n, 0),
		High:     perAxis(s.name, "padding", s.high, n, 0),
	}
	switch s.padding {
	case "", "valid":
	case "same", "causal":
		if len(x) != n+2 {
			return a // record reports it
		}
		for i, size := range sizes {
			a.Low[i], a.High[i] = s.pad(x, i+1, (size-1)*a.Dilation[i]+1, a.Stride[i])
		}
	default:
		Fail(s.name, `got padding %q, want "valid", "same" or "causal"`, s.padding)
	}
	if s.padding != "" && (s.low != nil || s.high != nil) {
		Fail(s.name, "got padding %q and numbers %v, %v, want one of the two", s.padding, s.low, s.high)
	}
	return a
}

// pad is the padding of an axis by the word given, for windows that reach over
// extent elements.
func (s slides) pad(x Shape, axis, extent, stride int) (low, high int) {
	size := x[axis]
	switch {
	case s.padding == "causal":
		return extent - 1, 0
	case stride < 1:
		return 0, 0 // record reports it
	case size == Unknown && stride > 1:
		Fail(s.name, `axis %d of %v has no size yet, want one for padding "same" with stride %d`, axis, x, stride)
	case size == Unknown:
		size = extent // any: with stride 1 it makes no difference
	}
	outputs := (size + stride - 1) / stride
	total := max((outputs-1)*stride+extent-size, 0)
	return total / 2, total - total/2
}

// recordLike records operation c with the window attributes of t.
func (t *Tensor) recordLike(c op.Code, dims Shape, args ...*Tensor) *Tensor {
	a := t.attr
	a.DType, a.Dims = dtype.Invalid, dims.Clone()
	return t.record(c, a, args...)
}

// A convolution, its gradient by the input and that by the kernels are linear
// in both arguments, and each is the gradient of the others. Operands stay
// 16-bit when the forward ones were, whatever type the result was stored in.

func convGradient(t, g *Tensor) []*Tensor {
	x, w := t.args[0], t.args[1]
	g = g.CastLike(x)
	return []*Tensor{
		t.recordLike(op.ConvInputGrad, x.typ.Shape, g, w),
		t.recordLike(op.ConvKernelGrad, w.typ.Shape, x, g),
	}
}

func convInputGradGradient(t, g *Tensor) []*Tensor {
	y, w := t.args[0], t.args[1] // t is a gradient of x; g stands for an x
	g = g.CastLike(y)
	return []*Tensor{
		t.recordLike(op.Conv, nil, g, w),
		t.recordLike(op.ConvKernelGrad, w.typ.Shape, g, y),
	}
}

func convKernelGradGradient(t, g *Tensor) []*Tensor {
	x, y := t.args[0], t.args[1] // t is a gradient of w; g stands for a w
	g = g.CastLike(x)
	return []*Tensor{
		t.recordLike(op.ConvInputGrad, x.typ.Shape, y, g),
		t.recordLike(op.Conv, nil, x, g),
	}
}
