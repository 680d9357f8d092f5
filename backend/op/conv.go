package op

import (
	"fmt"
	"slices"
)

// Windows returns the number of windows along an axis of n elements, with low and high
// elements added (or, if negative, cut off) at its ends. A window has size elements
// dilation apart, and begins stride after the one before. Windows returns Unknown if n
// is, and an error if no window fits.
func Windows(n, size, stride, dilation, low, high int) (int, error) {
	switch {
	case size < 1 || stride < 1 || dilation < 1:
		return 0, fmt.Errorf("got a window of size %d, stride %d and dilation %d, want at least 1", size, stride, dilation)
	case n == Unknown:
		return Unknown, nil
	}
	room := n + low + high - Times(size-1, dilation) - 1
	if room < 0 {
		return 0, fmt.Errorf("a window of %d elements, %d apart, does not fit into %d elements with padding %d and %d", size, dilation, n, low, high)
	}
	return room/stride + 1, nil
}

// TrimWindows removes the elements at the ends of a pooling's windows that lie on
// padding in all windows over an input of shape x: they cost time and change nothing.
// Axes without a size, and invalid attributes, are unchanged.
func (a Attr) TrimWindows(x Shape) Attr {
	n := len(x) - 2
	if n < 1 || len(a.Window) != n || len(a.Stride) != n || len(a.Dilation) != n || len(a.Low) != n || len(a.High) != n || a.check() != nil {
		return a
	}
	a.Window, a.Low, a.High = slices.Clone(a.Window), slices.Clone(a.Low), slices.Clone(a.High)
	for i := range n {
		size, apart := a.Window[i], a.Dilation[i]
		count, err := Windows(x[i+1], size, a.Stride[i], apart, a.Low[i], a.High[i])
		if err != nil || count < 1 {
			continue
		}
		last := Times(count-1, a.Stride[i])
		before := min(max(0, (a.Low[i]-last+apart-1)/apart), size-1)
		behind := min(max(0, size-(x[i+1]+a.Low[i]+apart-1)/apart), size-1-before)
		a.Window[i] -= before + behind
		a.Low[i] -= before * apart
		a.High[i] -= behind * apart
	}
	return a
}

// windowed returns the spatial axes of the result of sliding windows of the given sizes
// over x.
func windowed(a Attr, x Type, sizes []int) (Shape, error) {
	n := len(x.Shape) - 2
	if n < 1 || n > 3 {
		return nil, fmt.Errorf("got %v, want a batch axis, one to three spatial axes and channels", x)
	}
	if len(sizes) != n {
		return nil, fmt.Errorf("windows of size %v do not fit the %d spatial axes of %v", sizes, n, x)
	}
	if len(a.Stride) != n || len(a.Dilation) != n || len(a.Low) != n || len(a.High) != n {
		return nil, fmt.Errorf("stride, dilation, low and high must name each spatial axis of %v", x)
	}
	out := make(Shape, n)
	for i := range out {
		var err error
		if out[i], err = Windows(x.Shape[i+1], sizes[i], a.Stride[i], a.Dilation[i], a.Low[i], a.High[i]); err != nil {
			return nil, fmt.Errorf("axis %d of %v: %w", i+1, x, err)
		}
	}
	return out, nil
}

// convShape returns the shape of Conv of x with kernels w.
func convShape(a Attr, x, w Type) (Shape, error) {
	if x.DType != w.DType || !x.DType.IsFloat() {
		return nil, fmt.Errorf("wants two tensors of one float type, got %v and %v", x, w)
	}
	if len(w.Shape) < 2 {
		return nil, fmt.Errorf("the kernels are %v, want an axis for each of the window, input channels and output channels", w)
	}
	n := len(w.Shape) - 2
	spatial, err := windowed(a, x, w.Shape[:n])
	if err != nil {
		return nil, err
	}
	groups := max(a.Groups, 1)
	in, out := w.Shape[n], w.Shape[n+1]
	switch {
	case a.Groups < 0:
		return nil, fmt.Errorf("got %d groups, want at least 1", a.Groups)
	case x.Shape[n+1] != Times(in, groups):
		return nil, fmt.Errorf("%v has %d channels, want the %d of the kernels %v in %d groups", x, x.Shape[n+1], Times(in, groups), w, groups)
	case out%groups != 0:
		return nil, fmt.Errorf("the %d output channels of the kernels %v are not a multiple of %d groups", out, w, groups)
	}
	return append(append(Shape{x.Shape[0]}, spatial...), out), nil
}

func inferConv(a Attr, t []Type) (Type, error) {
	s, err := convShape(a, t[0], t[1])
	if err != nil {
		return Type{}, err
	}
	out, err := floatResult(a, t[0])
	return Type{out, s}, err
}

func inferConvInputGrad(a Attr, t []Type) (Type, error) {
	if err := checkDims(a.Dims); err != nil {
		return Type{}, err
	}
	s, err := convShape(a, Type{t[0].DType, a.Dims}, t[1])
	if err != nil {
		return Type{}, err
	}
	if !t[0].Shape.Equal(s) {
		return Type{}, fmt.Errorf("got the gradient %v for an input of shape %v, want shape %v", t[0], a.Dims, s)
	}
	out, err := floatResult(a, t[0])
	return Type{out, a.Dims}, err
}

func inferConvKernelGrad(a Attr, t []Type) (Type, error) {
	if err := checkDims(a.Dims); err != nil {
		return Type{}, err
	}
	if t[1].DType != t[0].DType {
		return Type{}, fmt.Errorf("wants two tensors of one float type, got %v and %v", t[0], t[1])
	}
	s, err := convShape(a, t[0], Type{t[0].DType, a.Dims})
	if err != nil {
		return Type{}, err
	}
	if !t[1].Shape.Equal(s) {
		return Type{}, fmt.Errorf("got the gradient %v for an input %v and kernels of shape %v, want shape %v", t[1], t[0], a.Dims, s)
	}
	out, err := floatResult(a, t[0])
	return Type{out, a.Dims}, err
}

// pooled returns the type of a pooling of x.
func pooled(a Attr, x Type) (Type, error) {
	if !x.DType.IsFloat() {
		return Type{}, fmt.Errorf("wants a float type, got %v", x)
	}
	spatial, err := windowed(a, x, a.Window)
	if err != nil {
		return Type{}, err
	}
	n := len(x.Shape)
	return Type{x.DType, slices.Concat(x.Shape[:1], spatial, x.Shape[n-1:])}, nil
}

func inferPool(a Attr, t []Type) (Type, error) { return pooled(a, t[0]) }

func inferMaxPoolGrad(a Attr, t []Type) (Type, error) {
	y, err := pooled(a, t[0])
	if err == nil && !t[1].Equal(y) {
		err = fmt.Errorf("got the gradient %v for an input %v, want %v", t[1], t[0], y)
	}
	return t[0], err
}

func inferMaxPoolGradGrad(a Attr, t []Type) (Type, error) {
	y, err := pooled(a, t[0])
	if err == nil && !t[1].Equal(t[0]) {
		err = fmt.Errorf("got %v to take from for an input %v, want its type", t[1], t[0])
	}
	return y, err
}

func inferAvgPoolGrad(a Attr, t []Type) (Type, error) {
	x := Type{t[0].DType, a.Dims}
	if err := checkDims(a.Dims); err != nil {
		return x, err
	}
	y, err := pooled(a, x)
	if err == nil && !t[0].Equal(y) {
		err = fmt.Errorf("got the gradient %v for an input of shape %v, want %v", t[0], a.Dims, y)
	}
	return x, err
}
