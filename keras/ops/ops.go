// Package ops has the operations on tensors that are not methods of a tensor:
// Keras's keras.ops and keras.random.
//
// What Keras writes as a function of one tensor is a method here: x.Add(y),
// x.MatMul(y), x.Softmax(-1), x.Slice(axis, start, limit), x.At(axis, i). This
// package has the rest: functions of several tensors, constants, random
// numbers, and functions for custom layers, losses and training steps.
//
//	y := ops.Where(x.GreaterScalar(0), x, ops.Zeros(keras.Float32, 3, 4))
//
// Operations are recorded; package keras says when they are computed. They panic
// with *keras.Error if something does not fit. [Catch] turns that panic into an
// error.
package ops

import (
	"context"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/tensor"
)

// Tensor is keras.Tensor.
type Tensor = tensor.Tensor

// DType is keras.DType.
type DType = dtype.DType

// Zeros returns a tensor of zeros (Keras: ops.zeros).
func Zeros(d DType, shape ...int) *Tensor { return tensor.Zeros(d, shape...) }

// Ones returns a tensor of ones (Keras: ops.ones).
func Ones(d DType, shape ...int) *Tensor { return tensor.Ones(d, shape...) }

// Full returns a tensor whose elements are all v (Keras: ops.full).
func Full(d DType, v float64, shape ...int) *Tensor { return tensor.Full(d, v, shape...) }

// Scalar returns a tensor of rank 0.
func Scalar(d DType, v float64) *Tensor { return tensor.Scalar(d, v) }

// Arange returns 0, 1, 2 … n-1 (Keras: ops.arange).
func Arange(d DType, n int) *Tensor { return tensor.Iota(d, n) }

// Concatenate joins tensors along an axis (Keras: ops.concatenate).
func Concatenate(axis int, ts ...*Tensor) *Tensor { return tensor.Concat(axis, ts...) }

// Stack joins tensors of one shape along a new axis (Keras: ops.stack).
func Stack(axis int, ts ...*Tensor) *Tensor { return tensor.Stack(axis, ts...) }

// Where returns the elements of a where cond is true, else those of b. The
// three broadcast (Keras: ops.where).
func Where(cond, a, b *Tensor) *Tensor { return tensor.Where(cond, a, b) }

// Einsum returns the sums of products of x and y over the axes that the result
// does not have (Keras: ops.einsum): "abc,cd->abd".
func Einsum(equation string, x, y *Tensor) *Tensor { return tensor.Einsum(equation, x, y) }

// ConvOptions are the arguments of the methods Conv and ConvTranspose (Keras:
// ops.conv, ops.conv_transpose).
type ConvOptions = tensor.ConvOptions

// PoolOptions are the arguments of the methods MaxPool and AvgPool (Keras:
// ops.max_pool, ops.average_pool).
type PoolOptions = tensor.PoolOptions

// AttentionOptions are the arguments of DotProductAttention.
type AttentionOptions = tensor.AttentionOptions

// DotProductAttention returns the values v weighted by the softmax of the
// products of queries q and keys k (Keras: ops.dot_product_attention).
//
// Shapes: q [batch heads queries size], k and v [batch heads keys size] →
// [batch heads queries size].
func DotProductAttention(q, k, v *Tensor, o AttentionOptions) *Tensor {
	return tensor.Attention(q, k, v, o)
}

// Scan calls step for each element of the sequences xs along their first axis
// (Keras: ops.scan). step gets the states and the elements, and returns the
// next states and the results of the step. Scan returns the last states and
// the results of all steps. With reverse it starts at the last element; the
// results are in the order of the sequences.
//
// step is called once and recorded as one operation, whatever the number of
// steps. Gradients run backwards through the steps and compute each again from
// its states, so that only the states are kept.
//
// Shapes: xs [steps …], at least one → results [steps …].
func Scan(step func(states, x []*Tensor) (next, y []*Tensor), init, xs []*Tensor, reverse bool) (last, ys []*Tensor) {
	ys, last = tensor.Loop(xs, init, reverse, func(x, states []*Tensor) (y, next []*Tensor) {
		next, y = step(states, x)
		return y, next
	})
	return last, ys
}

// Remat records f, which computes a part of a model, and returns its result.
// Gradients recompute this part instead of keeping its inner values (gradient
// checkpointing; Keras: remat). Results have the same bits.
func Remat(f func() *Tensor) *Tensor { return tensor.Remat(f) }

// RandomUniform returns float32 numbers in [0, 1) (Keras: random.uniform). They
// are a function of state, an int64 [2] tensor, and stream alone. A layer gets a
// state from layers.NextState.
func RandomUniform(state *Tensor, stream uint64, shape ...int) *Tensor {
	return tensor.RandomUniform(state, stream, shape...)
}

// RandomNormal returns float32 numbers of mean 0 and standard deviation 1
// (Keras: random.normal). It draws from stream and the next one; see
// RandomUniform.
func RandomNormal(state *Tensor, stream uint64, shape ...int) *Tensor {
	return tensor.RandomNormal(state, stream, shape...)
}

// RandomKeep returns bools that are true with probability 1-rate, for dropout. See
// RandomUniform for state and stream.
func RandomKeep(state *Tensor, stream uint64, rate float64, shape ...int) *Tensor {
	return tensor.RandomKeep(state, stream, rate, shape...)
}

// Gradients returns the derivatives of a scalar loss with respect to tensors, nil
// for a tensor that the loss does not depend on (PyTorch: autograd.grad). For
// variables use keras.Gradients.
func Gradients(loss *Tensor, by ...*Tensor) []*Tensor { return tensor.GradientsAt(loss, by...) }

// Predicated runs f. Variables that f assigns keep their values if cond, a bool
// scalar that is computed in the same Function, is false. So a custom training
// step can be skipped without reading cond back:
//
//	finite := optimizers.AllFinite(gradients)
//	ops.Predicated(finite, func() { optimizer.ApplyGradients(gradients, variables) })
func Predicated(cond *Tensor, f func()) { tensor.Predicated(cond, f) }

// PredicateAssigned is Predicated for all assignments that were recorded before
// this call, such as those of moving statistics in the forward pass.
func PredicateAssigned(cond *Tensor) { tensor.PredicateAssigned(cond) }

// Eval computes tensors as one program. It is not needed to read them: reading
// a tensor computes it.
func Eval(ctx context.Context, ts ...*Tensor) error { return tensor.Eval(ctx, ts...) }

// Fail panics with a *keras.Error. A layer or loss calls it for inputs that do
// not fit; where names the operation.
func Fail(where, format string, args ...any) { tensor.Fail(where, format, args...) }

// Catch turns a panic with *keras.Error into an error; other panics continue.
// Defer it in a function that records outside of keras.Function:
//
//	func run() (err error) {
//		defer ops.Catch(&err)
//		…
//	}
func Catch(err *error) {
	switch r := recover().(type) {
	case nil:
	case *tensor.Error:
		*err = r
	default:
		panic(r)
	}
}
