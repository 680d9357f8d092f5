package layers_test

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
	"github.com/mezzo-ml/mezzo/layers/layertest"
	"github.com/mezzo-ml/mezzo/policy"
)

// TestKeras2 compares further layers with Keras: outputs with their masks under
// up to three policies, and float32 gradients and new weights.
func TestKeras2(t *testing.T) {
	for _, name := range []string{"layers2.json", "rnn.json"} {
		for _, c := range tensortest.Load(t, "../keras/testdata/golden/"+name).Cases {
			t.Run(c.Name+"/"+c.Policy, func(t *testing.T) { compare2(t, &c) })
		}
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

// tuple attaches the masks that are more than scalars.
func (m masked) tuple() *tensor.Tensor {
	out := slices.Clone(m.X)
	for i, k := range m.Masks {
		if k.Rank() > 0 {
			out[i] = out[i].WithMask(k)
		}
	}
	if len(out) == 1 {
		return out[0]
	}
	return tensor.Tuple(out...)
}

type results struct{ Y, Mask, Grads []*tensor.Tensor }

func compare2(t *testing.T, c *tensortest.Case) {
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
	l, training := layertest.FromCase(t, c)
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
	if err := apply(l, layers.Pass{}, masked{X: symbolic}.tuple()); err != nil {
		t.Fatal(err)
	}
	weights := map[string]*layers.Weight{}
	var names []string
	for _, w := range b.Weights() {
		name := strings.TrimPrefix(w.Name(), b.Path()+"/")
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
	run := tensor.Function(func(in masked) results {
		y := layers.Apply(l, layers.Pass{Training: training}, in.tuple())
		out := results{Y: y.Unpack()}
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
		near(t, name, y, want, 8*2*largest(want))
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
	names = nil
	for i := range x {
		names = append(names, fmt.Sprint("x", i))
	}
	if len(x) == 1 {
		names[0] = "x"
	}
	for _, w := range b.TrainableWeights() {
		names = append(names, strings.TrimPrefix(w.Name(), b.Path()+"/"))
	}
	for i, name := range names {
		if want, ok := c.Outputs["grad/"+name]; ok {
			// As for the golden cases of layers.json.
			tensortest.Close(t, "grad/"+name, got.Grads[i], want, 10)
		}
	}
}
