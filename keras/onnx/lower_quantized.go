package onnx

import (
	"fmt"
	"math"
	"slices"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
	"github.com/mezzo-ml/mezzo/backend/tensor"
)

// Quantized convolutions are written in the form that ONNX Runtime, TensorRT and OpenVINO
// turn into convolutions of integers (QDQ): each operand of Conv is the result of a
// DequantizeLinear whose scale and zero point are constants, the kernels lie in ONNX's
// layout, and where the result is quantized for the next convolutions, the bias is an
// operand of int32 with the scale of the sums. Inputs are uint8: ONNX Runtime's kernels for
// x86 take int8 only where it can convert it.

// lowerQuantizedConv writes a convolution of dequantized integers. ONNX's scales are the
// reciprocals of Mezzo's.
func lowerQuantizedConv(e *exporter, v, twin *ir.Value, in []string) string {
	if d := v.Args[0].Type.DType; d != dtype.Float32 {
		e.fail("it quantizes %v, which ONNX has no node for; export a model that was quantized under float32", d)
		return ""
	}
	kernel, scale, step, zero := e.computed(v.Args[1]), e.floats(v.Args[2]), e.floats(v.Args[3]), e.floats(v.Args[4])
	if kernel == nil || scale == nil || step == nil || zero == nil {
		e.fail("its kernels, scales and zero point are not all weights")
		return ""
	}
	raw, err := kernel.Bytes()
	if err != nil {
		e.fail("%w", err)
		return ""
	}
	inputStep := 1 / float32(step[0])
	f := e.affineAfter(v)
	steps, signs := kernelSteps(scale, f.gain)
	bias := ""
	if slices.ContainsFunc(f.shift, func(x float64) bool { return x != 0 }) {
		if e.onlyQuantized(f.last) {
			bias = e.quantizedBias(f.shift, inputStep, steps)
		}
		if bias == "" {
			bias = e.floatBias(f.shift)
		}
	}
	w := e.quantizedKernel(v.Args[1], raw, signs)
	// With session.x64quantprecision ONNX Runtime replaces the zero points: there must be some,
	// that no other node reads.
	zeros := e.initializer(nil, w+"_zero_point", op.Type{DType: dtype.Int8, Shape: op.Shape{len(steps)}}, make([]byte, len(steps)))
	w = e.emit("DequantizeLinear", []string{w, e.vector(steps), zeros}, intAttr("axis", 0))
	n := len(v.Type.Shape) - 2
	first, last := channels(n)
	x, low, high := e.cropped(in[0], v)
	operands := []string{e.dequantized(x, first, inputStep, int8(zero[0])), w}
	if bias != "" {
		operands = append(operands, bias)
	}
	y := e.transpose(e.emit("Conv", operands, convAttrs(v, low, high)...), last...)
	e.names[f.last] = y
	return y
}

// kernelSteps returns the step of each filter, times its gain, and the sign that its integers
// are multiplied by: steps are positive.
func kernelSteps(scale, gain []float64) (steps []float32, signs []int) {
	steps, signs = make([]float32, len(scale)), make([]int, len(scale))
	for o := range steps {
		steps[o], signs[o] = float32(gain[o])/float32(scale[o]), 1
		switch s := steps[o]; {
		case s < 0:
			steps[o], signs[o] = -s, -1
		case !(s > 0):
			steps[o], signs[o] = 1, 0
		}
	}
	return steps, signs
}

// computed returns the value of v if it is computed from weights and constants, element by
// element, or nil.
func (e *exporter) computed(v *ir.Value) *tensor.Tensor {
	switch {
	case v.Op == op.Param:
		if in := e.inputs[v.Attr.Index]; in.Variable != nil {
			return in.Variable.Value()
		} else if in.Data != nil {
			return in.Data
		}
		return nil
	case v.Op != op.Const && v.Op != op.Reshape && v.Op != op.Barrier && v.Op.Info().Class != op.Elementwise:
		return nil
	}
	args := make([]*tensor.Tensor, len(v.Args))
	for i, a := range v.Args {
		if args[i] = e.computed(a); args[i] == nil {
			return nil
		}
	}
	return tensor.Record(v.Op, v.Attr, args...)
}

// floats returns the elements of v if it is computed, or nil.
func (e *exporter) floats(v *ir.Value) []float64 {
	t := e.computed(v)
	if t == nil {
		return nil
	}
	f, err := t.Float64s()
	if err != nil {
		e.fail("%w", err)
	}
	return f
}

// affine is what follows a quantized convolution: factors and summands of each filter, from
// weights, such as a bias and batch normalization.
type affine struct {
	last        *ir.Value
	gain, shift []float64
}

// affineAfter returns the chain after v.
func (e *exporter) affineAfter(v *ir.Value) *affine {
	outs := v.Type.Shape[len(v.Type.Shape)-1]
	f := &affine{last: v, gain: slices.Repeat([]float64{1}, outs), shift: make([]float64, outs)}
	for next := v; e.uses[next] == 1 && !slices.Contains(e.graph.Outputs, next); {
		users := e.usersOf(next)
		if len(users) != 1 || !f.take(e, users[0], next, outs) {
			break
		}
		next = users[0]
		if next.Type.Shape.Equal(v.Type.Shape) {
			f.last = next
		}
	}
	return f
}

// take adds next, which reads last, to the chain, if it can.
func (f *affine) take(e *exporter, next, last *ir.Value, outs int) bool {
	s := next.Type.Shape
	if len(s) == 0 || s[len(s)-1] != outs || next.Type.DType != dtype.Float32 {
		return false
	}
	switch next.Op {
	case op.Reshape, op.Identity:
		return true
	case op.Add, op.Sub, op.Mul:
	default:
		return false
	}
	by := next.Args[1]
	if by == last {
		by = next.Args[0]
	}
	n := by.Type.Shape.Size()
	if by == last || next.Op == op.Sub && by == next.Args[0] || !s.Equal(last.Type.Shape) ||
		n != 1 && (n != outs || by.Type.Shape[len(by.Type.Shape)-1] != outs) {
		return false
	}
	x := e.floats(by)
	if x == nil {
		return false
	}
	for o := range f.gain {
		y := x[o%n]
		switch next.Op {
		case op.Mul:
			f.gain[o] *= y
			f.shift[o] *= y
		case op.Add:
			f.shift[o] += y
		default:
			f.shift[o] -= y
		}
	}
	return true
}

// onlyQuantized reports whether v is read by quantized convolutions alone, directly or
// behind operations that ONNX Runtime moves the quantization before.
func (e *exporter) onlyQuantized(v *ir.Value) bool {
	users := e.usersOf(v)
	for _, u := range users {
		switch {
		case u.Op == op.QuantizedConv && u.Args[0] == v:
		case (u.Op == op.Relu || u.Op == op.MaxPool) && e.onlyQuantized(u):
		default:
			return false
		}
	}
	return len(users) > 0 && !slices.Contains(e.graph.Outputs, v)
}

// usersOf lists the values that read v.
func (e *exporter) usersOf(v *ir.Value) (users []*ir.Value) {
	for _, u := range e.graph.Values {
		if slices.Contains(u.Args, v) {
			users = append(users, u)
		}
	}
	return users
}

// dequantized permutes the axes of x, quantizes it and dequantizes it again: next to Conv and
// with no other reader, as runtimes look for it. Convolutions that read x with the same step
// share the integers.
func (e *exporter) dequantized(x string, perm []int, step float32, zero int8) string {
	key := fmt.Sprintf("%s %x %d", x, math.Float32bits(step), zero)
	params := []string{e.number(dtype.Float32, float64(step)), e.constantOf(op.Type{DType: dtype.Uint8}, []byte{byte(int(zero) + 128)})}
	if e.quantized[key] == "" {
		e.quantized[key] = e.emit("QuantizeLinear", append([]string{e.transpose(x, perm...)}, params...))
	}
	return e.emit("DequantizeLinear", append([]string{e.quantized[key]}, params...))
}

// quantizedKernel adds the kernels v, with elements raw, in ONNX's layout, each with its
// sign.
func (e *exporter) quantizedKernel(v *ir.Value, raw []byte, signs []int) string {
	s := v.Type.Shape
	n := len(s) - 2
	window, in, outs := s[:n].Size(), s[n], s[n+1]
	to := make([]byte, len(raw))
	for p := range window {
		for c := range in {
			for o := range outs {
				to[(o*in+c)*window+p] = byte(signs[o] * int(int8(raw[(p*in+c)*outs+o])))
			}
		}
	}
	t := op.Type{DType: dtype.Int8, Shape: append(op.Shape{outs, in}, s[:n]...)}
	for v.Op == op.Reshape { // of a depthwise convolution
		v = v.Args[0]
	}
	if v.Op == op.Param {
		if of := e.inputs[v.Attr.Index].Variable; of != nil {
			return e.initializer(of, of.Name(), t, to)
		}
	}
	return e.constantOf(t, to)
}

// quantizedBias returns a bias in int32 whose steps are those of the sums, dequantized; ""
// if it does not fit.
func (e *exporter) quantizedBias(shift []float64, inputStep float32, steps []float32) string {
	raw, scale := make([]byte, 4*len(shift)), make([]float32, len(shift))
	q := make([]float64, len(shift))
	for o, b := range shift {
		scale[o] = inputStep * steps[o]
		q[o] = math.RoundToEven(b / float64(scale[o]))
		if !(math.Abs(q[o]) <= 1<<30) { // leaves room for the sum
			return ""
		}
	}
	dtype.FromF64(raw, q, dtype.Int32)
	b := e.constantOf(op.Type{DType: dtype.Int32, Shape: op.Shape{len(shift)}}, raw)
	return e.emit("DequantizeLinear", []string{b, e.vector(scale)}, intAttr("axis", 0))
}

// floatBias returns a bias of floats, which is added to dequantized sums.
func (e *exporter) floatBias(shift []float64) string {
	x := make([]float32, len(shift))
	for o, b := range shift {
		x[o] = float32(b)
	}
	return e.vector(x)
}

// vector returns the name of a constant vector of float32.
func (e *exporter) vector(x []float32) string {
	raw := make([]byte, 4*len(x))
	copy(dtype.View[float32](raw), x)
	return e.constantOf(op.Type{DType: dtype.Float32, Shape: op.Shape{len(x)}}, raw)
}
