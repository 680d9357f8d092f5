package layertest

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/backend/tensor/tensortest"
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/policy"
)

// Keras runs the cases of a golden file: it compares layers with Keras in inference or
// training. The keys of a case's config select what is compared:
//
//   - learning_rate: the weights after three steps of training;
//   - weight_names: results with their masks under up to three policies, and float32
//     gradients and new weights;
//   - neither: outputs under three policies, and float32 gradients and new statistics.
func Keras(t *testing.T, golden string) {
	t.Helper()
	for _, c := range tensortest.Load(t, golden).Cases {
		t.Run(c.Name+"/"+c.Policy, func(t *testing.T) {
			switch {
			case c.Config["learning_rate"] != nil:
				compareSteps(t, &c)
			case c.Config["weight_names"] != nil:
				compareMasked(t, &c)
			default:
				compareOutputs(t, &c)
			}
		})
	}
}

type outputs struct {
	Y, Loss *tensor.Tensor
	Grads   []*tensor.Tensor // by inputs, then by trainable weights
}

func compareOutputs(t *testing.T, c *tensortest.Case) {
	l, training := FromCase(t, c)
	b := layers.BaseOf(l)
	p, err := policy.Parse(c.Policy)
	if err != nil {
		t.Fatal(err)
	}
	// Keras casts the input of BatchNormalization and then computes in
	// float32; here it is not cast, so the same numbers are given.
	x := Inputs(c, dtype.Float32)
	if c.Class() == "BatchNormalization" {
		x = Inputs(c, p.Compute)
	}
	run := tensor.Function(func(x *tensor.Tensor) outputs {
		y := layers.Apply(l, layers.Pass{Training: training}, x)
		r, ok := c.Inputs["r"]
		if !ok {
			return outputs{Y: y}
		}
		loss := y.Mul(r.Tensor()).Sum()
		var vars []*tensor.Variable
		for _, w := range b.TrainableWeights() {
			vars = append(vars, w.Variable)
		}
		return outputs{y, loss, append(tensor.GradientsAt(loss, x.Unpack()...), tensor.Gradients(loss, vars)...)}
	}, b)
	if err := apply(l, Symbols(x)); err != nil {
		t.Fatal(err)
	}
	if len(b.Weights()) != len(c.Weights) {
		t.Fatalf("got %d weights, want %d", len(b.Weights()), len(c.Weights))
	}
	for _, w := range b.Weights() {
		if err := w.Set(c.Weights[weightName(l, w)].Data); err != nil {
			t.Fatal(err)
		}
	}
	got, err := run.Call(context.Background(), x)
	if err != nil {
		t.Fatal(err)
	}
	if d := got.Y.DType(); d != p.Compute {
		t.Fatalf("y: got %v, want %v", d, p.Compute)
	}
	want := c.Outputs["y"]
	if c.Name == "layer_norm_constant_70000" {
		want = c.Weights["beta"] // the exact answer; Keras cancels here
		want.Shape, want.Data = []int{2, 4}, append(want.Data, want.Data...)
		c.Outputs["y_float32"] = want
	}
	if !p.Mixed() {
		tensortest.Close(t, "y", got.Y, want, 1)
	} else {
		// TensorFlow rounds after every operation: the largest intermediate is
		// taken for twice the largest result, and rounded up to four times.
		tensortest.Near(t, "y", got.Y, want, 4*2*want.Largest())
		// Here one operation is rounded once; in Dense and convolutions the
		// product is rounded before the bias is added, and the sum again;
		// separable ones round what the second convolution multiplies, too.
		exact := c.Outputs["y_float32"]
		switch class := c.Class(); {
		case strings.HasPrefix(class, "SeparableConv"):
			tensortest.Near(t, "y_float32", got.Y, exact, 4*exact.Largest())
		case class == "Dense" || strings.Contains(class, "Conv"):
			tensortest.Near(t, "y_float32", got.Y, exact, 2*exact.Largest())
		default:
			tensortest.Close(t, "y_float32", got.Y, exact, 1)
		}
	}
	for _, w := range b.NonTrainableWeights() {
		name := "new/" + weightName(l, w)
		tensortest.Close(t, name, w.Variable.Value(), c.Outputs[name], 1)
	}
	if got.Grads == nil {
		return
	}
	names := []string{"x"}
	if x.IsTuple() {
		names = nil
		for i := range x.Len() {
			names = append(names, fmt.Sprintf("x%d", i))
		}
	}
	for _, w := range b.TrainableWeights() {
		names = append(names, weightName(l, w))
	}
	for i, name := range names {
		// A gradient chains a few rounded results, of magnitude up to 10 in
		// normalization where the variance is small.
		tensortest.Close(t, "grad/"+name, got.Grads[i], c.Outputs["grad/"+name], 10)
	}
}

// withMasks returns the inputs of a case, and their masks where it has some.
func withMasks(c *tensortest.Case) (x []*tensor.Tensor, masks []*tensor.Tensor) {
	for i := 0; ; i++ {
		name := fmt.Sprint("x", i)
		if _, ok := c.Inputs["x"]; ok && i == 0 {
			name = "x"
		}
		a, ok := c.Inputs[name]
		if !ok {
			return x, masks
		}
		x = append(x, a.Tensor())
		m := tensor.Ones(dtype.Bool)
		if a, ok := c.Inputs[fmt.Sprint("mask", i)]; ok {
			m = a.Tensor()
		}
		masks = append(masks, m)
	}
}

type masked struct{ X, Masks []*tensor.Tensor }

// apply calls l with the masks that are more than scalars: attached to their inputs, or
// as arguments of a call with initial states, which uses no others.
func (m masked) apply(l layers.Layer, p layers.Pass) *tensor.Tensor {
	in := slices.Clone(m.X)
	for i, k := range m.Masks {
		switch {
		case k.Rank() == 0:
		case len(m.X) > 1 && slices.Contains([]string{"SimpleRNN", "LSTM", "GRU", "RNN", "Bidirectional"}, layers.Class(l)):
			l, in = layers.With(l, layers.Args{Mask: layers.Inputs(i)}), append(in, k)
		default:
			in[i] = in[i].WithMask(k)
		}
	}
	if len(in) == 1 {
		return layers.Apply(l, p, in[0])
	}
	return layers.Apply(l, p, tensor.Tuple(in...))
}

type maskedOutputs struct{ Y, Mask, Grads []*tensor.Tensor }

func compareMasked(t *testing.T, c *tensortest.Case) {
	var order []string
	if err := json.Unmarshal(c.Config["weight_names"], &order); err != nil {
		t.Fatal(err)
	}
	delete(c.Config, "weight_names")
	calls := 0 // before the one that is compared
	if n, ok := c.Config["calls"]; ok {
		if err := json.Unmarshal(n, &calls); err != nil {
			t.Fatal(err)
		}
		delete(c.Config, "calls")
	}
	var args layers.Args
	if reverse, ok := c.Config["reverse"]; ok {
		args.Reverse = string(reverse) == "true"
		delete(c.Config, "reverse")
	}
	l, training := FromCase(t, c)
	l = layers.With(l, args)
	b := layers.BaseOf(l)
	p, err := policy.Parse(c.Policy)
	if err != nil {
		t.Fatal(err)
	}
	x, masks := withMasks(c)
	var symbolic []*tensor.Tensor
	for _, p := range x {
		symbolic = append(symbolic, tensor.Placeholder(p.DType(), append([]int{-1}, p.Shape()[1:]...)...))
	}
	if err := try(func() { masked{X: symbolic}.apply(l, layers.Pass{}) }); err != nil {
		t.Fatal(err)
	}
	weights := setWeights(t, c, l, order)
	run := tensor.Function(func(in masked) maskedOutputs {
		y := in.apply(l, layers.Pass{Training: training})
		out := maskedOutputs{Y: y.Unpack()}
		for _, p := range y.Unpack() {
			if m := p.Mask(); m != nil {
				out.Mask = append(out.Mask, m)
			}
		}
		r, ok := c.Inputs["r"]
		if !ok {
			return out
		}
		loss := y.Unpack()[0].Mul(r.Tensor()).Sum()
		for i, g := range tensor.GradientsAt(loss, in.X...) {
			if g == nil {
				g = tensor.Zeros(in.X[i].DType(), in.X[i].Shape()...)
			}
			out.Grads = append(out.Grads, g)
		}
		var vars []*tensor.Variable
		for _, w := range b.TrainableWeights() {
			vars = append(vars, w.Variable)
		}
		for i, g := range tensor.Gradients(loss, vars) {
			if g == nil {
				g = tensor.Zeros(vars[i].DType(), vars[i].Shape()...)
			}
			out.Grads = append(out.Grads, g)
		}
		return out
	}, b)
	for range calls {
		if _, err := run.Call(context.Background(), masked{x, masks}); err != nil {
			t.Fatal(err)
		}
	}
	got, err := run.Call(context.Background(), masked{x, masks})
	if err != nil {
		t.Fatal(err)
	}
	for i, y := range got.Y {
		name := "y"
		if len(got.Y) > 1 {
			name = fmt.Sprint("y", i)
		}
		want := c.Outputs[name]
		if y.DType().IsFloat() && y.DType() != p.Compute {
			t.Fatalf("%s: got %v, want %v", name, y.Type(), p.Compute)
		}
		if !p.Mixed() {
			// Several rounded results follow each other.
			tensortest.Close(t, name, y, want, 4)
			continue
		}
		// Keras rounds after every operation, and the projections of attention
		// are rounded here too: up to eight times, at up to twice the result.
		tensortest.Near(t, name, y, want, 8*2*want.Largest())
	}
	if want, ok := c.Outputs["out_mask"]; ok != (len(got.Mask) > 0) {
		t.Errorf("got %d masks, want one: %v", len(got.Mask), ok)
	} else if ok {
		tensortest.Close(t, "mask", got.Mask[0], want, 0)
	}
	for name, want := range c.Outputs {
		// Under mixed policies Keras rounds what it makes statistics of.
		if w := weights[strings.TrimPrefix(name, "new/")]; strings.HasPrefix(name, "new/") && !p.Mixed() {
			tensortest.Close(t, name, w.Variable.Value(), want, 4)
		}
	}
	if got.Grads == nil {
		return
	}
	var names []string
	for i := range x {
		names = append(names, fmt.Sprint("x", i))
	}
	if len(x) == 1 {
		names[0] = "x"
	}
	for _, w := range b.TrainableWeights() {
		names = append(names, weightName(l, w))
	}
	for i, name := range names {
		if want, ok := c.Outputs["grad/"+name]; ok {
			// As for the golden cases of layers.json.
			tensortest.Close(t, "grad/"+name, got.Grads[i], want, 10)
		}
	}
}

// apply returns the error of applying l to x.
func apply(l layers.Layer, x *tensor.Tensor) error {
	return try(func() { layers.Apply(l, layers.Pass{}, x) })
}

// weightName returns the path of a weight within its layer.
func weightName(l layers.Layer, w *layers.Weight) string {
	return strings.TrimPrefix(w.Name(), layers.BaseOf(l).Path()+"/")
}

// setWeights gives a built layer the weights of a case, which must be those of order,
// and returns them by name.
func setWeights(t *testing.T, c *tensortest.Case, l layers.Layer, order []string) map[string]*layers.Weight {
	t.Helper()
	weights := map[string]*layers.Weight{}
	var names []string
	for _, w := range layers.BaseOf(l).Weights() {
		name := weightName(l, w)
		weights[name] = w
		names = append(names, name)
		if err := w.Set(c.Weights[name].Data); err != nil {
			t.Fatal(err)
		}
	}
	if c.Class() == "SpectralNormalization" { // Keras lists the vector amid the layer's
		slices.Sort(names)
		slices.Sort(order)
	}
	if !slices.Equal(names, order) {
		t.Fatalf("got weights %q, want %q", names, order)
	}
	return weights
}
