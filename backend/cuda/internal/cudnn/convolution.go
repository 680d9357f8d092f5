//go:build cuda && linux && amd64

package cudnn

/*
#include "shim.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"slices"

	"github.com/mezzo-ml/mezzo/backend/dtype"
)

// Operation is a convolution or one of its gradients.
type Operation int

const (
	Forward        Operation = C.MEZZO_DNN_FORWARD         // of the input and the kernels
	BackwardData   Operation = C.MEZZO_DNN_BACKWARD_DATA   // the input's gradient, of the output's and the kernels
	BackwardFilter Operation = C.MEZZO_DNN_BACKWARD_FILTER // the kernels' gradient, of the input and the output's
)

// String is the library's function.
func (o Operation) String() string {
	return [...]string{"cudnnConvolutionForward", "cudnnConvolutionBackwardData", "cudnnConvolutionBackwardFilter"}[o]
}

// Problem is a cross-correlation of images [Batch Input… InChannels] with
// kernels [OutChannels Window… InChannels/Groups] to [Batch Output… OutChannels],
// or a gradient of it: sums are in float32.
type Problem struct {
	Operation Operation
	Type      dtype.DType // of all three
	TF32      bool        // round elements of float32 to 10 bits of mantissa, for Tensor Cores
	Batch     int
	Axes      int // in space: 2 or 3, the first so many of each list

	Input, Output, Window     [3]int
	Stride, Dilation, Padding [3]int // padding is that before and behind the input

	InChannels, OutChannels, Groups int
	Bias, Relu                      bool // of a Forward: a bias [OutChannels] is added, and then negative numbers become 0
}

// Elements are the sizes of the input, the kernels and the output.
func (p Problem) Elements() (x, w, y int) {
	x, w, y = p.Batch*p.InChannels, p.OutChannels*p.InChannels/p.Groups, p.Batch*p.OutChannels
	for i := range p.Axes {
		x, w, y = x*p.Input[i], w*p.Window[i], y*p.Output[i]
	}
	return x, w, y
}

// Numbers of cudnn.h.
const (
	float, half, bfloat16 = 0, 2, 9 // cudnnDataType_t
	defaultMath           = 0       // cudnnMathType_t
	tensorMath            = 1       //
	fmaMath               = 3       //
	deterministic         = 1       // cudnnDeterminism_t
	maxChoices            = 8       // of algorithms
)

// types are the numbers of element types.
var types = map[dtype.DType]C.int{dtype.Float32: float, dtype.Float16: half, dtype.BFloat16: bfloat16}

// algorithms are those, by their numbers in cudnn_ops.h, that sum up the
// products themselves, and always in the same order. The others multiply what a
// Fourier or Winograd transform makes of the operands, or add atomically.
var algorithms = [...][]C.int{
	Forward:        {0, 1, 2, 3},
	BackwardData:   {1},
	BackwardFilter: {1},
}

// Supports reports whether the library has convolutions of a type.
func Supports(t dtype.DType) bool {
	_, ok := types[t]
	return ok
}

// Convolution is how a Problem is computed on a device.
type Convolution struct {
	Problem
	h       *Handle
	d       C.mezzo_dnn_description
	choices []C.mezzo_dnn_choice
	chosen  int
}

// describe makes the library's description of a problem. It needs no device.
func (l *Library) describe(p Problem) (*Convolution, error) {
	t, ok := types[p.Type]
	if !ok {
		return nil, fmt.Errorf("cuDNN: convolution of %v", p.Type)
	}
	if p.Axes < 2 || p.Axes > 3 || p.Groups < 1 {
		return nil, fmt.Errorf("cuDNN: convolution over %d axes in %d groups, want 2 or 3 axes and at least 1 group", p.Axes, p.Groups)
	}
	if (p.Bias || p.Relu) && (p.Operation != Forward || !p.Bias) {
		return nil, fmt.Errorf("cuDNN: %v with bias %v and ReLU %v, which only a forward convolution has, and ReLU only behind a bias", p.Operation, p.Bias, p.Relu)
	}
	c := &Convolution{Problem: p, h: &Handle{l: l}}
	in := C.mezzo_dnn_problem{operation: C.int(p.Operation), _type: t, axes: C.int(p.Axes + 2), groups: C.int(p.Groups), math: tensorMath}
	if p.Type == dtype.Float32 {
		in.math = fmaMath
		if p.TF32 {
			in.math = defaultMath
		}
	}
	in.x[0], in.x[1] = C.int(p.Batch), C.int(p.InChannels)
	in.w[0], in.w[1] = C.int(p.OutChannels), C.int(p.InChannels/p.Groups)
	in.y[0], in.y[1] = C.int(p.Batch), C.int(p.OutChannels)
	for i := range p.Axes {
		in.x[2+i], in.w[2+i], in.y[2+i] = C.int(p.Input[i]), C.int(p.Window[i]), C.int(p.Output[i])
		in.padding[i], in.stride[i], in.dilation[i] = C.int(p.Padding[i]), C.int(p.Stride[i]), C.int(p.Dilation[i])
	}
	if p.Bias {
		in.bias = 1
	}
	if p.Relu {
		in.relu = 1
	}
	var call *C.char
	status := C.mezzo_dnn_describe(l.c, &in, &c.d, &call)
	err := l.check(C.GoString(call), status)
	if err == nil {
		var sizes [C.MEZZO_DNN_AXES]C.int
		err = l.check("cudnnGetConvolutionNdForwardOutputDim", C.mezzo_dnn_output(l.c, &c.d, in.axes, &sizes[0]))
		if err == nil && sizes != in.y {
			err = fmt.Errorf("cuDNN: the convolution makes a result of %v, want %v", sizes[:in.axes], in.y[:in.axes])
		}
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

var errNone = errors.New("cuDNN: no algorithm that sums up products in the same order each time")

// Convolution asks the library how to compute a problem with at most so many
// bytes of workspace. The first of its algorithms is chosen.
func (h *Handle) Convolution(p Problem, workspace int) (*Convolution, error) {
	c, err := h.l.describe(p)
	if err != nil {
		return nil, err
	}
	c.h = h
	c.choices = make([]C.mezzo_dnn_choice, maxChoices)
	var found C.int
	status := C.mezzo_dnn_algorithms(h.l.c, h.c, C.int(p.Operation), &c.d, maxChoices, &found, &c.choices[0])
	if err := h.l.check("cudnnGetConvolutionAlgorithm_v7 of "+p.Operation.String(), status); err != nil {
		c.Close()
		return nil, err
	}
	c.choices = slices.DeleteFunc(c.choices[:found], func(a C.mezzo_dnn_choice) bool {
		exact := p.Type == dtype.Float32 && !p.TF32
		return a.status != 0 || a.determinism != deterministic || int(a.memory) > workspace ||
			exact && a.math != fmaMath || !slices.Contains(algorithms[p.Operation], a.algorithm)
	})
	if len(c.choices) == 0 {
		c.Close()
		return nil, errNone
	}
	if err := c.Choose(0); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// Choices is the number of algorithms, the one that the library thinks best
// first.
func (c *Convolution) Choices() int { return len(c.choices) }

// Choose makes one of them that of Run.
func (c *Convolution) Choose(i int) error {
	c.chosen = i
	return c.h.l.check("cudnnSetConvolutionMathType", C.mezzo_dnn_choose(c.h.l.c, &c.d, &c.choices[i]))
}

// Workspace is the bytes that the chosen algorithm works in.
func (c *Convolution) Workspace() int { return int(c.choices[c.chosen].memory) }

// Run puts the convolution on a stream: of the operands a and b, in the order
// of its Operation. Addresses are those of device memory, aligned to 16 bytes:
// bias is not used unless the problem has one, and workspace has as many bytes
// as Workspace says, aligned to 256.
func (c *Convolution) Run(stream uintptr, a, b, bias, _, out, workspace uint64) error {
	l := c.h.l
	if err := c.h.use(stream); err != nil {
		return err
	}
	return l.check(c.Operation.String(), C.mezzo_dnn_run(l.c, c.h.c, C.int(c.Operation), &c.d, &c.choices[c.chosen],
		C.uint64_t(a), C.uint64_t(b), C.uint64_t(bias), C.uint64_t(out), C.uint64_t(workspace)))
}

// Close frees the description.
func (c *Convolution) Close() { C.mezzo_dnn_free(c.h.l.c, &c.d) }
