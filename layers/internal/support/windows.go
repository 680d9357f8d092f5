package support

import (
	"fmt"
	"slices"
	"strings"

	"github.com/mezzo-ml/mezzo/backend/tensor"
)

// Windows is how a layer slides windows over a field.
type Windows struct {
	Field                  Field
	Size, Stride, Dilation []int
	Padding                string
}

// Of reads the fields of a layer on n axes; name is that of size. Without a
// stride windows touch each other.
func (w *Windows) Of(n int, name string, size, stride, dilation []int, padding string, paddings ...string) (err error) {
	if w.Size, err = EachAxis(size, name, n, 1); err != nil {
		return err
	}
	if stride == nil {
		stride = size
	}
	if w.Stride, err = EachAxis(stride, "Strides", n, 1); err != nil {
		return err
	}
	if w.Dilation, err = EachAxis(dilation, "DilationRate", n, 1); err != nil {
		return err
	}
	if slices.Max(w.Stride) > 1 && slices.Max(w.Dilation) > 1 {
		return fmt.Errorf("Strides is %v and DilationRate is %v, want 1 in one of the two", stride, dilation)
	}
	if !slices.Contains(paddings, padding) {
		last := len(paddings) - 1
		return fmt.Errorf("Padding is %q, want %s or %s", padding, strings.Join(paddings[:last], ", "), paddings[last])
	}
	w.Padding = padding
	return nil
}

// Extent is how many elements a window reaches over on axis i of the field.
func (w *Windows) Extent(i int) int { return (w.Size[i]-1)*w.Dilation[i] + 1 }

// Pads is the padding for x, channels last: a word, or numbers where sizes are
// not known yet.
func (w *Windows) Pads(x *tensor.Tensor) (word string, low, high []int) {
	spatial := x.Shape()[1 : x.Rank()-1]
	if w.Padding != "same" || Unknowns(spatial) == 0 {
		return w.Padding, nil, nil
	}
	// Such tensors have no elements: only the sum on axes with a size matters.
	low, high = make([]int, len(spatial)), make([]int, len(spatial))
	for i, n := range spatial {
		if n != tensor.Unknown {
			high[i] = max((n+w.Stride[i]-1)/w.Stride[i]*w.Stride[i]-w.Stride[i]+w.Extent(i)-n, 0)
		}
	}
	return "", low, high
}

// Conv slides kernels over x, channels last.
func (w *Windows) Conv(x, kernel *tensor.Tensor, groups int) *tensor.Tensor {
	return x.Conv(kernel, w.options(x, groups))
}

// QuantizedConv is Conv with a kernel of int8 and its scales, and with the scale and the
// zero point of x.
func (w *Windows) QuantizedConv(x, kernel, scale, inputScale, zero *tensor.Tensor, groups int) *tensor.Tensor {
	return x.QuantizedConv(kernel, scale, inputScale, zero, w.options(x, groups))
}

func (w *Windows) options(x *tensor.Tensor, groups int) tensor.ConvOptions {
	o := tensor.ConvOptions{Stride: w.Stride, Dilation: w.Dilation, Groups: groups}
	o.Padding, o.Low, o.High = w.Pads(x)
	return o
}
