// Package layertest, without compatibility promise, checks layers: [Run] tests
// everything that every layer must do, under every policy.
//
// Rules: importers import a device too; inputs, weights and random numbers are
// functions of fixed seeds, so a test that passes once passes always.
package layertest

import (
	"bytes"
	"context"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/op"
	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/policy"
)

// policies are those a layer is checked under. float64 is first: the gradients
// of the others are compared with its.
var policies = []string{"float64", "float32", "mixed_float16", "mixed_bfloat16", "mixed_float32"}

// Run checks the layers that make returns, all alike, on inputs of the types
// in: the batch first, a tuple when there are several. For each policy:
//
//   - the types predicted on placeholders are those computed, and floats have
//     the compute type; only those of training of preprocessing.RandomCrop, which
//     crops in training alone;
//   - weights have the variable type (normalization: float32 or wider) and
//     names that start with the layer's path;
//   - the layer written as JSON and read again computes the same bits;
//   - gradients by weights and inputs agree with finite differences (float64)
//     and with those of float64 (the others), unless no output is a float;
//     not with differences in training if the layer has a method
//     StraightThrough(), which says that they are none of what it computes;
//   - a step of gradient descent lowers a loss;
//   - two layers give the same bits, and inference gives them twice and
//     changes nothing;
//   - a frozen layer has no trainable weights.
//
// The class of the layer must be registered for UnmarshalConfig.
func Run(t *testing.T, make func() layers.Layer, in ...op.Type) {
	t.Helper()
	exact := map[bool]derivative{} // by Pass.Training
	for _, name := range policies {
		t.Run(name, func(t *testing.T) {
			defer policy.SetGlobal(policy.SetGlobal(name))
			c := &check{T: t, make: make, types: in}
			c.predicted()
			c.weights()
			c.config()
			c.repeatable()
			c.inference()
			c.gradients(exact)
			c.descends()
		})
	}
}

// BadField checks that applying l fails with the error want. in are the types
// of the input; default: float32 with axes of an unknown batch and 4.
func BadField(t testing.TB, l layers.Layer, want string, in ...op.Type) {
	t.Helper()
	if len(in) == 0 {
		in = []op.Type{{DType: dtype.Float32, Shape: op.Shape{op.Unknown, 4}}}
	}
	err := try(func() { layers.Apply(l, layers.Pass{}, placeholder(in)) })
	if err == nil || err.Error() != want {
		t.Errorf("%s: got error %v\nwant %s", layers.Class(l), err, want)
	}
}

// try runs f and returns what it panicked with as an error.
func try(f func()) (err error) {
	defer tensor.Catch(&err)
	f()
	return nil
}

type check struct {
	*testing.T
	make  func() layers.Layer
	types []op.Type
}

type function = tensor.Func[*tensor.Tensor, *tensor.Tensor]

// layer returns a new layer, built on placeholders, and what they predict.
func (c *check) layer() (layers.Layer, *tensor.Tensor) {
	c.Helper()
	l := c.make()
	return l, c.build(l)
}

func (c *check) build(l layers.Layer) (y *tensor.Tensor) {
	c.Helper()
	types := make([]op.Type, len(c.types))
	for i, t := range c.types {
		types[i] = op.Type{DType: t.DType, Shape: append(op.Shape{op.Unknown}, t.Shape[1:]...)}
	}
	if err := try(func() { y = layers.Apply(l, layers.Pass{}, placeholder(types)) }); err != nil {
		c.Fatalf("on placeholders: %v", err)
	}
	return y
}

func (c *check) compile(l layers.Layer, p layers.Pass) *function {
	return tensor.Function(func(x *tensor.Tensor) *tensor.Tensor { return layers.Apply(l, p, x) }, layers.BaseOf(l))
}

func (c *check) call(f *function, x *tensor.Tensor) *tensor.Tensor {
	c.Helper()
	y, err := f.Call(context.Background(), x)
	if err != nil {
		c.Fatal(err)
	}
	return y
}

// predicted compares the types on placeholders with those that are computed.
func (c *check) predicted() {
	c.Helper()
	l, want := c.layer()
	crops := layers.Class(l) == "RandomCrop" // which leaves images alone when it predicts
	for _, training := range []bool{false, true} {
		if crops && !training {
			continue
		}
		got := c.call(c.compile(l, layers.Pass{Training: training}), c.input(0))
		if got.Len() != want.Len() {
			c.Fatalf("got %d outputs, want %d as predicted", got.Len(), want.Len())
		}
		for i, y := range got.Unpack() {
			w := want.Unpack()[i].Type()
			fits := y.DType() == w.DType && len(y.Shape()) == len(w.Shape)
			for a := 0; fits && a < len(w.Shape); a++ {
				fits = w.Shape[a] == op.Unknown || w.Shape[a] == y.Dim(a)
			}
			if !fits {
				c.Errorf("training %v: output %d: got %v, want %v as predicted", training, i, y.Type(), w)
			}
			if d := layers.BaseOf(l).ComputeDType(); y.DType().IsFloat() && y.DType() != d {
				c.Errorf("output %d: got %v, want the compute type %v", i, y.Type(), d)
			}
		}
	}
}

func (c *check) weights() {
	c.Helper()
	l, _ := c.layer()
	b := layers.BaseOf(l)
	store := b.Policy().Variable
	for _, w := range b.Weights() {
		if d := w.DType(); d.IsFloat() && d != store && d != dtype.Promote(store, dtype.Float32) {
			c.Errorf("weight %s: got %v, want the variable type %v", w.Name(), d, store)
		}
		if d := w.Value().DType(); d != b.ComputeDType() && d != w.DType() {
			c.Errorf("weight %s: got a value of %v, want the compute type %v", w.Name(), d, b.ComputeDType())
		}
	}
	for _, v := range b.Variables() {
		if !strings.HasPrefix(v.Name(), b.Path()+"/") {
			c.Errorf("variable %s: want a name that starts with %s/", v.Name(), b.Path())
		}
	}
	b.SetTrainable(false)
	if n := len(b.TrainableWeights()); n != 0 {
		c.Errorf("frozen: got %d trainable weights, want none", n)
	}
}

// config writes the layer as JSON, reads it, and compares what both compute:
// what is read has every default spelled out.
func (c *check) config() {
	c.Helper()
	l, _ := c.layer()
	data, err := layers.MarshalConfig(l)
	if err != nil {
		c.Fatal(err)
	}
	read, err := layers.UnmarshalConfig(data)
	if err != nil {
		c.Fatal(err)
	}
	again, err := layers.MarshalConfig(read)
	if err != nil {
		c.Fatal(err)
	}
	if !bytes.Equal(data, again) {
		c.Errorf("config: got %s after reading\nwant %s", again, data)
	}
	c.build(read)
	c.sameBits("a layer read from JSON", l, read)
}

func (c *check) repeatable() {
	c.Helper()
	l, _ := c.layer()
	m, _ := c.layer()
	c.sameBits("a second layer", l, m)
}

// sameBits runs two steps of training on both layers.
func (c *check) sameBits(what string, l, m layers.Layer) {
	c.Helper()
	f, g := c.compile(l, layers.Pass{Training: true}), c.compile(m, layers.Pass{Training: true})
	for step := range uint64(2) {
		x := c.input(step)
		if !bytes.Equal(c.bits(c.call(f, x)), c.bits(c.call(g, x))) {
			c.Errorf("step %d of %s: got other bits, want the same", step, what)
		}
	}
	if !bytes.Equal(c.state(l), c.state(m)) {
		c.Errorf("%s: got other variables after two steps, want the same", what)
	}
}

func (c *check) inference() {
	c.Helper()
	l, _ := c.layer()
	f, x := c.compile(l, layers.Pass{}), c.input(0)
	before := c.state(l)
	first := c.bits(c.call(f, x))
	if !bytes.Equal(first, c.bits(c.call(f, x))) {
		c.Errorf("inference: got other bits the second time, want the same")
	}
	if !bytes.Equal(before, c.state(l)) {
		c.Errorf("inference: got changed variables, want them as they were")
	}
}

// descent is a step of gradient descent that would lower the loss by Share of
// it if that were linear.
type descent struct{ X, Share *tensor.Tensor }

// descends takes steps against the gradient of the mean squared distance to
// random targets, from the same weights, and wants one to lower it: a tenth is
// far above what 16 bits round away, smaller shares are for layers that can
// take the loss down only a little.
func (c *check) descends() {
	c.Helper()
	l, _ := c.layer()
	b := layers.BaseOf(l)
	if len(b.TrainableWeights()) == 0 {
		return
	}
	step := tensor.Function(func(in descent) *tensor.Tensor {
		var vars []*tensor.Variable
		for _, w := range b.TrainableWeights() {
			vars = append(vars, w.Variable)
		}
		loss := total(layers.Apply(l, layers.Pass{}, in.X), func(y *tensor.Tensor, i uint64) *tensor.Tensor {
			return y.Sub(normal(100+i, y.Type())).Square().Mean()
		})
		grads := tensor.Gradients(loss, vars)
		length := tensor.Scalar(loss.DType(), 0)
		for i, g := range grads {
			if g == nil {
				tensor.Fail("Gradients", "weight %s has no gradient", vars[i].Name())
			}
			length = length.Add(g.SumSquares().CastLike(loss))
		}
		rate := loss.Mul(in.Share.CastLike(loss)).Div(length)
		for i, v := range vars {
			v.Assign(v.Value().Sub(grads[i].Mul(rate.CastLike(grads[i]))))
		}
		return loss
	}, b)
	first := c.snapshot(l)
	var loss [2]float64
	for _, share := range []float64{0.1, 0.02, 0.004} {
		c.restore(l, first)
		for i := range loss {
			y, err := step.Call(context.Background(), descent{c.input(0), tensor.Scalar(dtype.Float32, share)})
			if err == nil {
				loss[i], err = y.Item()
			}
			if err != nil {
				c.Fatal(err)
			}
		}
		if loss[1] < loss[0] {
			return
		}
	}
	c.Errorf("a step of gradient descent: got a loss of %v after %v, want a lower one", loss[1], loss[0])
}

// total sums f over the float parts of y, widened to float32 at least.
func total(y *tensor.Tensor, f func(y *tensor.Tensor, i uint64) *tensor.Tensor) *tensor.Tensor {
	var sum *tensor.Tensor
	for i, p := range y.Unpack() {
		if !p.DType().IsFloat() {
			continue
		}
		v := f(p.Cast(dtype.Promote(p.DType(), dtype.Float32)), uint64(i))
		if sum == nil {
			sum = v
		} else {
			sum = sum.Add(v)
		}
	}
	if sum == nil {
		tensor.Fail("total", "no output is a float")
	}
	return sum
}

// input returns random numbers: normal floats, integers from 0 to 2. Floats
// are float64 under a float64 policy, where differences are taken.
func (c *check) input(seed uint64) *tensor.Tensor {
	parts := make([]*tensor.Tensor, len(c.types))
	for i, t := range c.types {
		if t.DType.IsFloat() && policy.Global().Compute == dtype.Float64 {
			t.DType = dtype.Float64
		}
		parts[i] = normal(seed*16+uint64(i), t)
	}
	if len(parts) == 1 {
		return parts[0]
	}
	return tensor.Tuple(parts...)
}

func normal(seed uint64, t op.Type) *tensor.Tensor {
	data := numbers(seed, t.Shape.Size())
	if !t.DType.IsFloat() {
		for i, x := range data {
			data[i] = float64(min(int(x*x*2), 2))
		}
	}
	return of(t, data)
}

func numbers(seed uint64, n int) []float64 {
	r := rand.New(rand.NewPCG(seed, 1))
	data := make([]float64, n)
	for i := range data {
		data[i] = r.NormFloat64()
	}
	return data
}

func of(t op.Type, data []float64) *tensor.Tensor {
	b := make([]byte, t.Bytes())
	dtype.FromF64(b, data, t.DType)
	return tensor.FromBytes(t, b)
}

func placeholder(types []op.Type) *tensor.Tensor {
	parts := make([]*tensor.Tensor, len(types))
	for i, t := range types {
		parts[i] = tensor.Placeholder(t.DType, t.Shape...)
	}
	if len(parts) == 1 {
		return parts[0]
	}
	return tensor.Tuple(parts...)
}

// bits returns the elements of all parts of y.
func (c *check) bits(y *tensor.Tensor) []byte {
	c.Helper()
	var all []byte
	for _, p := range y.Unpack() {
		b, err := p.Bytes()
		if err != nil {
			c.Fatal(err)
		}
		all = append(all, b...)
	}
	return all
}

// state returns the elements of all variables of l.
func (c *check) state(l layers.Layer) []byte {
	c.Helper()
	return bytes.Join(c.snapshot(l), nil)
}

// snapshot returns the elements of each variable of l, for restore.
func (c *check) snapshot(l layers.Layer) [][]byte {
	c.Helper()
	var all [][]byte
	for _, v := range layers.BaseOf(l).Variables() {
		b, err := v.Bytes()
		if err != nil {
			c.Fatal(err)
		}
		all = append(all, b)
	}
	return all
}

// restore gives the variables of l the elements they had.
func (c *check) restore(l layers.Layer, all [][]byte) {
	c.Helper()
	for i, v := range layers.BaseOf(l).Variables() {
		if err := v.SetBytes(all[i]); err != nil {
			c.Fatal(err)
		}
	}
}
