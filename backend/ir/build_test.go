package ir

import (
	"fmt"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// builder records graphs for tests.
type builder struct {
	*Graph
	path string
}

func build() *builder { return &builder{Graph: New(0)} }

func (b *builder) op(c op.Code, a op.Attr, args ...*Value) *Value {
	types := make([]op.Type, len(args))
	for i, x := range args {
		types[i] = x.Type
	}
	t, err := op.Infer(c, a, types...)
	if err != nil {
		panic(fmt.Sprintf("%v of %v: %v", c, types, err))
	}
	return b.Add(c, a, t, b.path, args...)
}

func (b *builder) do(c op.Code, args ...*Value) *Value { return b.op(c, op.Attr{}, args...) }

func (b *builder) param(d dtype.DType, shape ...int) *Value {
	b.Params = append(b.Params, nil)
	return b.op(op.Param, op.Attr{DType: d, Dims: shape, Index: len(b.Params) - 1})
}

func (b *builder) scalar(d dtype.DType, x float64) *Value {
	return b.op(op.Const, op.Attr{DType: d, Value: x})
}

func (b *builder) cast(x *Value, d dtype.DType) *Value { return b.op(op.Cast, op.Attr{DType: d}, x) }

func (b *builder) sum(x *Value, out dtype.DType, axes ...int) *Value {
	return b.op(op.Sum, op.Attr{Axes: axes, DType: out}, x)
}

func (b *builder) reshape(x *Value, shape ...int) *Value {
	return b.op(op.Reshape, op.Attr{Dims: shape}, x)
}

func (b *builder) broadcast(x *Value, shape ...int) *Value {
	return b.op(op.BroadcastTo, op.Attr{Dims: shape}, x)
}

// only names the passes to skip so that of the optional ones just these run.
func only(names ...string) []string {
	var skip []string
	for _, p := range OptionalPasses() {
		wanted := false
		for _, n := range names {
			wanted = wanted || n == p
		}
		if !wanted {
			skip = append(skip, p)
		}
	}
	return skip
}

// optimize runs Optimize with checks and returns the plan's text, or its text
// after one pass.
func optimize(t *testing.T, b *builder, after string, o Options) string {
	t.Helper()
	text := ""
	o.Check = true
	o.Trace = func(pass string, g *Graph) {
		if pass == after {
			g.sort() // undo the shuffle: before the schedule IDs are the order recorded
			text = g.String()
		}
	}
	if err := Optimize(b.Graph, o); err != nil {
		t.Fatalf("Optimize: %v\n%v", err, b.Graph)
	}
	if after == "" {
		return b.Graph.String()
	}
	return text
}

func wantText(t *testing.T, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("got:\n%swant:\n%s", got, want)
	}
}

// trainingStep is a step of a perceptron in mixed_float16: forward, softmax
// cross-entropy, scaled backward, RMSprop with momentum, skipped when a
// gradient is not finite. Inputs: x, y, scale, then kernel, bias and their
// slots for each layer.
func trainingStep(batch int, sizes ...int) *builder {
	b := build()
	x := b.param(dtype.Float32, batch, sizes[0])
	y := b.param(dtype.Float32, batch, sizes[len(sizes)-1])
	scale := b.param(dtype.Float32)
	type weight struct{ p, velocity *Value }
	type layer struct{ kernel, bias weight }
	layers := make([]layer, len(sizes)-1)
	for i := range layers {
		in, out := sizes[i], sizes[i+1]
		layers[i] = layer{
			weight{b.param(dtype.Float32, in, out), b.param(dtype.Float32, in, out)},
			weight{b.param(dtype.Float32, out), b.param(dtype.Float32, out)},
		}
	}
	h := b.cast(x, dtype.Float16)
	inputs := make([]*Value, len(layers))
	outs := make([]*Value, len(layers))
	for i, l := range layers {
		b.path = fmt.Sprintf("dense_%d", i)
		inputs[i] = b.cast(h, dtype.Float16)
		h = b.do(op.MatMul, inputs[i], b.cast(l.kernel.p, dtype.Float16))
		h = b.do(op.Add, h, b.cast(l.bias.p, dtype.Float16))
		if i < len(layers)-1 {
			h = b.do(op.Relu, h)
		}
		outs[i] = h
	}
	b.path = "loss"
	logits := b.cast(h, dtype.Float32)
	logp := b.op(op.LogSoftmax, op.Attr{Axes: []int{1}}, logits)
	loss := b.do(op.Neg, b.op(op.Mean, op.Attr{Axes: []int{0}}, b.sum(b.do(op.Mul, y, logp), dtype.Invalid, 1)))
	b.Output(b.do(op.Identity, loss), -1)
	d := b.do(op.Sub, b.do(op.Exp, logp), y)
	d = b.do(op.Mul, d, b.broadcast(b.do(op.Div, scale, b.scalar(dtype.Float32, float64(batch))), batch, sizes[len(sizes)-1]))
	d = b.cast(d, dtype.Float16)
	type update struct {
		path  string
		w     weight
		grad  *Value
		input int
	}
	var updates []update
	finite := (*Value)(nil)
	gradient := func(w weight, g *Value) {
		g = b.do(op.Div, b.cast(g, dtype.Float32), scale)
		updates = append(updates, update{b.path, w, g, w.p.Attr.Index})
		ok := b.do(op.AllFinite, g)
		if finite != nil {
			ok = b.do(op.And, finite, ok)
		}
		finite = ok
	}
	for i := len(layers) - 1; i >= 0; i-- {
		b.path = fmt.Sprintf("dense_%d/grad", i)
		if i < len(layers)-1 {
			zero := b.scalar(dtype.Float16, 0)
			d = b.op(op.Where, op.Attr{}, b.do(op.Greater, outs[i], zero), d, b.broadcast(zero, d.Type.Shape...))
		}
		gradient(layers[i].bias, b.sum(d, dtype.Invalid, 0))
		gradient(layers[i].kernel, b.op(op.MatMul, op.Attr{TransA: true}, inputs[i], d))
		if i > 0 {
			d = b.op(op.MatMul, op.Attr{TransB: true}, d, b.cast(layers[i].kernel.p, dtype.Float16))
		}
	}
	for _, u := range updates {
		b.path = "rmsprop/" + u.path
		rho, rest := b.scalar(dtype.Float32, 0.9), b.scalar(dtype.Float32, 0.1)
		v := b.do(op.Add, b.do(op.Mul, rho, u.w.velocity), b.do(op.Mul, rest, b.do(op.Square, u.grad)))
		stepSize := b.do(op.Div, b.do(op.Mul, u.grad, b.scalar(dtype.Float32, 0.001)), b.do(op.Sqrt, b.do(op.Add, v, b.scalar(dtype.Float32, 1e-7))))
		w := b.do(op.Sub, u.w.p, stepSize)
		b.Output(b.do(op.Where, finite, w, u.w.p), u.input)
		b.Output(b.do(op.Where, finite, v, u.w.velocity), u.input+1)
	}
	b.path = "scale"
	b.Output(b.do(op.Where, finite, scale, b.do(op.Mul, scale, b.scalar(dtype.Float32, 0.5))), 2)
	return b
}
