//go:build cuda && linux && amd64

package cuda

import (
	"errors"
	"fmt"

	"github.com/mezzo-ml/mezzo/backend/cuda/internal/api"
	"github.com/mezzo-ml/mezzo/backend/cuda/internal/cudnn"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// convolutionLibrary is cuDNN for a device, where it was found.
type convolutionLibrary struct {
	handle  *cudnn.Handle
	missing error // why there is no handle
	// chosen is how each convolution is computed that a program has; nil: not by
	// the library.
	chosen map[cudnn.Problem]*cudnn.Convolution
}

func openConvolutionLibrary(driver int, s settings) convolutionLibrary {
	l := convolutionLibrary{chosen: map[cudnn.Problem]*cudnn.Convolution{}}
	if !s.cudnn {
		l.missing = errors.New("cuDNN: MEZZO_CUDA_CUDNN=0 has it not used")
		return l
	}
	var found *cudnn.Library
	if found, l.missing = cudnn.Open(driver); l.missing == nil {
		l.handle, l.missing = found.NewHandle()
	}
	return l
}

func (l *convolutionLibrary) close() error {
	for _, c := range l.chosen {
		if c != nil {
			c.Close()
		}
	}
	if l.handle == nil {
		return nil
	}
	return l.handle.Close()
}

// maxWorkspace is the most bytes that an algorithm for convolutions may work
// in. Programs have one such memory for all their calls.
const maxWorkspace = 256 << 20

// convolution finds how the library computes a convolution best, or nil when it
// does not. The search is made once for each problem.
func (d *Device) convolution(p cudnn.Problem) *cudnn.Convolution {
	if d.dnn.handle == nil || !d.settings.cudnn {
		return nil
	}
	c, known := d.dnn.chosen[p]
	if known {
		return c
	}
	c, err := d.dnn.handle.Convolution(p, maxWorkspace)
	if err == nil {
		if err = d.tuneConvolution(c); err != nil {
			c.Close()
		}
	}
	if err != nil {
		c = nil // our own kernels have every convolution
		d.noteBroken(fmt.Sprintf("a convolution %+v", p))
	}
	d.dnn.chosen[p] = c
	return c
}

// tuneConvolution chooses the fastest algorithm, or the first one, of those that
// work, and that keep a NaN in an activation. It computes with memory of its
// own; where there is not enough of it, there is none for a program either.
func (d *Device) tuneConvolution(c *cudnn.Convolution) (err error) {
	x, w, y := c.Elements()
	workspace := 0
	for i := range c.Choices() {
		if err := c.Choose(i); err != nil {
			return err
		}
		workspace = max(workspace, c.Workspace())
	}
	bytes := c.Type.Size()
	at := [...]int{0, aligned(x * bytes), 0, 0, 0}
	for i, n := range []int{w, y, c.OutChannels} {
		at[i+2] = at[i+1] + aligned(n*bytes)
	}
	peak := d.peak.Load()
	memory, err := d.take(at[4]+workspace, "")
	if err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, api.Release(memory))
		d.taken -= size(at[4] + workspace)
		d.peak.Store(peak)
	}()
	// The operands lie in the order of their sizes above, the result is the third.
	input, kernels, output := uint64(memory), uint64(memory)+uint64(at[1]), uint64(memory)+uint64(at[2])
	a, b, out := input, kernels, output
	switch c.Operation {
	case cudnn.BackwardData:
		a, out = output, input
	case cudnn.BackwardFilter:
		b, out = output, kernels
	}
	run := func() error {
		return c.Run(d.stream.Handle(), a, b, uint64(memory)+uint64(at[3]), 0, out, uint64(memory)+uint64(at[4]))
	}
	return d.fastest(c.Choices(), c.Choose, memory, at[4], run, func() (bool, error) {
		if !c.Relu {
			return true, nil
		}
		return d.keepsNaN(memory, at[4], api.Ptr(out), c.Type, run)
	})
}

// convolutionProblem is what the library is asked for a convolution, and
// whether it has those of its kind: its padding is the same before and behind
// the input, and its results have the type of the operands. in and result are
// the shapes of what windows slide over and of what they make.
func (b *builder) convolutionProblem(v *ir.Value, in, result, window op.Shape) (cudnn.Problem, bool) {
	last, a := len(in)-1, v.Attr
	p := cudnn.Problem{
		Operation: map[op.Code]cudnn.Operation{op.Conv: cudnn.Forward, op.ConvInputGrad: cudnn.BackwardData, op.ConvKernelGrad: cudnn.BackwardFilter}[v.Op],
		Type:      v.Args[0].Type.DType, Batch: in[0], Axes: max(2, len(window)), InChannels: in[last], OutChannels: result[last], Groups: max(1, a.Groups),
		Input: [3]int{1, 1, 1}, Output: [3]int{1, 1, 1}, Window: [3]int{1, 1, 1}, Stride: [3]int{1, 1, 1}, Dilation: [3]int{1, 1, 1},
	}
	p.TF32 = p.Type == dtype.Float32 && b.p.device.tf32()
	narrow := v.Op == op.ConvKernelGrad && v.Type.DType == dtype.Float32 && !b.p.device.settings.wideGradients
	ok := cudnn.Supports(p.Type) && (v.Type.DType == p.Type || narrow)
	for i := range window {
		axis := p.Axes - len(window) + i // sequences are images of one row
		p.Input[axis], p.Output[axis], p.Window[axis] = in[i+1], result[i+1], window[i]
		p.Stride[axis], p.Dilation[axis], p.Padding[axis] = a.Stride[i], a.Dilation[i], a.Low[i]
		n, err := op.Windows(in[i+1], window[i], a.Stride[i], a.Dilation[i], a.Low[i], a.Low[i])
		ok = ok && err == nil && n == result[i+1] && a.Low[i] >= 0
	}
	for _, s := range []op.Shape{in, result, v.Args[0].Type.Shape, v.Args[1].Type.Shape} {
		ok = ok && s.Size() > 0 && s.Size() < 1<<31
	}
	for _, x := range append([]*ir.Value{v}, v.Args...) {
		ok = ok && b.alignment(x) >= 16
	}
	return p, ok
}

// libraryConvolution makes v a call of the library, if it has one that does all
// that follows the convolution, and reports whether it did. Where it has only
// the convolution itself, alone is true.
func (b *builder) libraryConvolution(v *ir.Value, p cudnn.Problem, f following) (done, alone bool) {
	d := b.p.device
	var c *cudnn.Convolution
	switch {
	case f == (following{}):
		c = d.convolution(p)
	case v.Op == op.Conv && f.bias != nil && b.alignment(f.bias) >= 16 && (!p.Type.Is16() || d.settings.epilogue):
		q := p
		q.Bias, q.Relu = true, f.relu
		c = d.convolution(q)
	}
	if c == nil {
		return false, f != (following{}) && d.convolution(p) != nil
	}
	// The library has the kernels of an output channel together, we have the
	// output channels of an element of the window together.
	_, elements, _ := p.Elements()
	rows, size := elements/p.OutChannels, p.Type.Size()
	turn := rows > 1 && p.OutChannels > 1
	second, out := any(v.Args[1]), any(v)
	switch {
	case v.Op == op.ConvKernelGrad:
		if turn || v.Type.DType != p.Type {
			out = b.hold(elements * size)
		}
	case turn:
		second = b.hold(elements * size)
		b.turn(v, second, v.Args[1], p.OutChannels, rows, size)
	}
	b.call(v, p.Operation.String(), [3]int{}, [3]int{}, v.Args[0], second, f.parameter(), uint64(0), out, b.hold(c.Workspace()))
	b.pending[len(b.pending)-1].product = c
	if out == any(v) {
		return true, false
	}
	if v.Type.DType == p.Type {
		b.turn(v, v, out, rows, p.OutChannels, size)
		return true, false
	}
	kept, _ := box(v, []int{rows, p.OutChannels}, []int{1, rows})
	b.convert(v, out, p.Type, kept)
	return true, false
}

// convert rounds the numbers of a type that lie in a box to the type of v: a sum of one
// number each does.
func (b *builder) convert(v *ir.Value, from any, t dtype.DType, kept []any) {
	folded, _ := box(v, nil, nil)
	b.reduction(v, true, t.String(), v.Type.Shape.Size(), 1, []any{from, v, int(v.Type.DType), sum, 1, 1, 1.0}, kept, folded)
}
