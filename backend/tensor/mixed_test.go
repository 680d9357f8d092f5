package tensor_test

import (
	"bytes"
	"fmt"
	"math"
	"runtime"
	"slices"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
	"github.com/mezzo-ml/mezzo/backend/tensor"
)

// mlp is a classifier of two layers, with float32 (or wider) weights that are
// cast to the compute type.
type mlp struct {
	compute dtype.DType
	w       vars // kernel, bias, kernel, bias
	moment  vars
}

const features, hidden, classes, batch = 12, 40, 5, 24

func newMLP(compute, store dtype.DType) *mlp {
	m := &mlp{compute: compute}
	for i, shape := range []tensor.Shape{{features, hidden}, {hidden}, {hidden, classes}, {classes}} {
		init := func(dst []float64) error {
			copy(dst, randoms(uint64(i+1), len(dst), -0.5, 0.5))
			return nil
		}
		m.w = append(m.w, tensor.NewVariable(fmt.Sprintf("w%d", i), store, shape, init))
		m.moment = append(m.moment, tensor.NewState(fmt.Sprintf("m%d", i), store, shape, nil))
	}
	return m
}

func (m *mlp) Variables() []V { return append(slices.Clone(m.w), m.moment...) }

type example struct{ X, Y T }

// examples of which the labels depend on the features.
func examples(d dtype.DType) example {
	x := randoms(42, batch*features, -1, 1)
	y := make([]int32, batch)
	for i := range y {
		for j, v := range x[i*features : (i+1)*features] {
			if v > x[i*features+int(y[i])] && j < classes {
				y[i] = int32(j)
			}
		}
	}
	return example{tensor.New(x, batch, features).Cast(d), tensor.New(y, batch)}
}

func (m *mlp) logits(x T) T {
	w := func(i int) T { return m.w[i].Value().Cast(m.compute) }
	h := x.Cast(m.compute).MatMul(w(0)).Add(w(1)).Relu()
	return h.MatMul(w(2)).Add(w(3))
}

func (m *mlp) loss(e example) T {
	return m.logits(e.X).Widen().LogSoftmax(-1).TakeAlongAxis(e.Y).Mean().Neg()
}

// step is gradient descent with momentum.
func (m *mlp) step(e example) T {
	loss := m.loss(e)
	for i, g := range tensor.Gradients(loss, m.w) {
		v := m.moment[i].Value().MulScalar(0.9).Add(g)
		m.moment[i].Assign(v)
		m.w[i].Assign(m.w[i].Value().Sub(v.MulScalar(0.1)))
	}
	return loss
}

// train takes steps and returns the bits of losses and variables.
func (m *mlp) train(t testing.TB, o ir.Options) []byte {
	t.Helper()
	step := tensor.Function(m.step, m)
	step.Options(o)
	var bits []byte
	e := examples(dtype.Float32)
	first, last := 0.0, 0.0
	for i := range 4 {
		loss := must[T](t)(step.Call(ctx, e))
		bits = append(bits, must[[]byte](t)(loss.Bytes())...)
		last = must[float64](t)(loss.Item())
		if i == 0 {
			first = last
		}
	}
	if !(last < first) {
		t.Errorf("the loss went from %v to %v", first, last)
	}
	for _, v := range m.Variables() {
		bits = append(bits, must[[]byte](t)(v.Bytes())...)
	}
	return bits
}

var computeTypes = []dtype.DType{dtype.Float32, dtype.Float16, dtype.BFloat16}

// TestSameBits: a training step gives the same bits on every run, for every
// number of processors, and without any of the optional passes.
func TestSameBits(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	for _, d := range computeTypes {
		want := newMLP(d, dtype.Float32).train(t, ir.Options{})
		check := func(what string, o ir.Options) {
			t.Helper()
			if !bytes.Equal(newMLP(d, dtype.Float32).train(t, o), want) {
				t.Errorf("%v: %s: other bits", d, what)
			}
		}
		for _, n := range []int{1, 2, 3, 8} {
			runtime.GOMAXPROCS(n)
			check(fmt.Sprintf("GOMAXPROCS %d", n), ir.Options{})
		}
		for _, pass := range ir.OptionalPasses() {
			check("without pass "+pass, ir.Options{Skip: []string{pass}, Check: true})
		}
		check("without optional passes", ir.Options{Skip: ir.OptionalPasses(), Check: true})
		check("watched", ir.Options{Watch: true})
	}
}

// TestMixedGradients compares the gradients of a classifier computed in 16
// bits with those computed in float64.
func TestMixedGradients(t *testing.T) {
	gradients := func(compute, store dtype.DType) []T {
		m := newMLP(compute, store)
		fn := tensor.Function(func(e example) []T { return tensor.Gradients(m.loss(e), m.w) }, m)
		return must[[]T](t)(fn.Call(ctx, examples(store)))
	}
	exact := gradients(dtype.Float64, dtype.Float64)
	for _, d := range computeTypes {
		rel, abs := d.Tolerance()
		for i, g := range gradients(d, dtype.Float32) {
			if g.DType() != dtype.Float32 {
				t.Errorf("%v: gradient %d is %v, want float32", d, i, g.Type())
			}
			// Ten rounded results in a row (two casts, two products and two
			// sums forward; four backward), each off by rel of the largest
			// element, as sums cancel.
			largest := 0.0
			for _, x := range values(t, exact[i]) {
				largest = max(largest, math.Abs(x))
			}
			for j, x := range values(t, g) {
				if w := values(t, exact[i])[j]; math.Abs(x-w) > 10*(abs+rel*largest) {
					t.Errorf("%v: gradient %d, element %d: got %v, want %v", d, i, j, x, w)
					break
				}
			}
		}
	}
}

// TestGradientsNotNarrowed: the gradient of a float32 weight is not rounded
// through the 16-bit compute type.
func TestGradientsNotNarrowed(t *testing.T) {
	for _, d := range []dtype.DType{dtype.Float16, dtype.BFloat16} {
		w, b := variable("w", dtype.Float32, 1), variable("b", dtype.Float32, 1)
		fn := tensor.Function(func(x T) []T {
			kernel := w.Value().Cast(d).Reshape(1, 1)
			y := x.Cast(d).MatMul(kernel).Add(b.Value().Cast(d))
			// The weights of the sum, 1 and 2⁻¹⁵ … , are powers of two.
			r := tensor.New([]float32{1, 1.0 / (1 << 15)}, 2, 1).Cast(d)
			return tensor.Gradients(tensor.SumAs(y.Mul(r), dtype.Float32), []V{w, b})
		}, vars{w, b})
		x := tensor.New([]float32{1, 1}, 2, 1)
		got := must[[]T](t)(fn.Call(ctx, x))
		const sum = 1 + 1.0/(1<<15) // 15 fraction bits: neither 16-bit type has it
		if d.Round(sum) == sum {
			t.Fatalf("%v holds %v", d, sum)
		}
		want(t, "kernel", got[0], sum)
		want(t, "bias", got[1], sum)
		g := must[*ir.Graph](t)(fn.Plan(x))
		wide := 0
		for _, v := range g.Values {
			if v.Op == op.MatMul && v.Type.DType == dtype.Float32 {
				wide++
			}
			if v.Op == op.MatMul && v.Args[0].Type.DType != d {
				t.Errorf("%v: a product of %v operands", d, v.Args[0].Type.DType)
			}
		}
		if wide == 0 {
			t.Errorf("%v: no product is stored in float32:\n%v", d, g)
		}
	}
}

// TestWiden: what has a wider value to be had is recorded with it.
func TestWiden(t *testing.T) {
	x := tensor.New(randoms(1, 6, -1, 1), 2, 3).Cast(dtype.Float16)
	k := tensor.New(randoms(2, 12, -1, 1), 3, 4).Cast(dtype.Float16)
	b := tensor.New(randoms(3, 4, -1, 1), 4).Cast(dtype.Float16)
	wide := func(x T) T { return x.Cast(dtype.Float32) }
	product := wide(x).MatMul(wide(k)) // exact operands: the float32 result of the 16-bit product
	for _, c := range []struct {
		name      string
		got, want T
	}{
		{"product", x.MatMul(k), product},
		{"logits", x.MatMul(k).Add(b), product.Add(wide(b))},
		{"bias first", b.Add(x.MatMul(k)), wide(b).Add(product)},
		{"softmax head", x.MatMul(k).Add(b).Softmax(-1), product.Add(wide(b)).Softmax(-1)},
		{"log softmax head", x.MatMul(k).LogSoftmax(0), product.LogSoftmax(0)},
		{"sigmoid head", x.MatMul(k).Sigmoid(), product.Sigmoid()},
		{"sum", x.Sum(1), wide(x).Sum(1)},
		{"mean", x.MeanKeep(0), wide(x).MeanKeep(0)},
		{"prod", x.Prod(), wide(x).Prod()},
		{"views", x.MatMul(k).Reshape(4, 2).Transpose().BroadcastTo(3, 2, 4), product.Reshape(4, 2).Transpose().BroadcastTo(3, 2, 4)},
		{"nothing wider", x.Add(x), wide(x.Add(x))},
		{"nothing wider at all", x.Relu(), wide(x.Relu())},
		{"data", x, wide(x)},
		{"stopped", x.MatMul(k).StopGradient().Add(b), product.Add(wide(b))},
	} {
		w := c.got.Widen()
		if w.DType() != dtype.Float32 {
			t.Errorf("%s: got %v, want float32", c.name, w.Type())
		}
		want(t, c.name, w, values(t, c.want)...)
	}
	for _, d := range []dtype.DType{dtype.Float32, dtype.Float64, dtype.Int32} {
		if y := x.Cast(d); y.Widen() != y {
			t.Errorf("%v was widened", d)
		}
	}
	// A stop inside what is widened stays one.
	if g := tensor.GradientsAt(x.MatMul(k).StopGradient().Add(b).Widen().Sum(), x); g[0] != nil {
		t.Error("a gradient passes StopGradient in a widened tensor")
	}
}

// TestWidenedTwins: computing a value in 16 bits and in float32 gives the bits
// that either gives alone, with and without the passes that join the two.
func TestWidenedTwins(t *testing.T) {
	x := tensor.New(randoms(1, 64, -1, 1), 8, 8).Cast(dtype.Float16)
	record := func(x T) (narrow, wide T) {
		y := x.MatMul(x)
		return y, y.Widen()
	}
	narrow, wide := record(x)
	for _, skip := range [][]string{nil, {"cse"}, {"precisions"}, {"cse", "precisions"}} {
		fn := tensor.Function(func(x T) []T {
			n, w := record(x)
			n2, w2 := record(x)
			return []T{n, w, n2, w2}
		})
		fn.Options(ir.Options{Skip: skip})
		got := must[[]T](t)(fn.Call(ctx, x))
		for i, w := range []T{narrow, wide, narrow, wide} {
			want(t, fmt.Sprintf("skip %q, result %d", skip, i), got[i], values(t, w)...)
		}
	}
}

func TestLogits(t *testing.T) {
	x := tensor.New(randoms(1, 6, -1, 1), 2, 3).Cast(dtype.Float16)
	for _, c := range []struct {
		name string
		y    T
		kind op.Code
	}{
		{"softmax", x.Softmax(-1), op.Softmax},
		{"softmax, cast up", x.Softmax(-1).Cast(dtype.Float32), op.Softmax},
		{"sigmoid, passed on", tensor.Record(op.Identity, op.Attr{}, x.Sigmoid()), op.Sigmoid},
		{"sigmoid, stopped", x.Sigmoid().StopGradient(), 0},
		{"softmax over another axis", x.Softmax(0), 0},
		{"softmax, rounded", x.Cast(dtype.Float32).Softmax(-1).Cast(dtype.Float16), 0},
		{"other", x.Relu(), 0},
		{"tuple", tensor.Tuple(x, x), 0},
		{"broken", tensor.Broken(fmt.Errorf("no")), 0},
	} {
		logits, kind, ok := tensor.Logits(c.y)
		if kind != c.kind || ok != (c.kind != 0) || ok != (logits != nil) {
			t.Errorf("%s: got %v, %v, want %v", c.name, kind, ok, c.kind)
		}
	}
}
