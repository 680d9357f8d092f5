package layers_test

import (
	"context"
	"fmt"
	"math"
	"strings"
	"testing"

	_ "github.com/mezzo-ml/mezzo/backend/cpu"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/backend/tensor/tensortest"
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/layers/layertest"
	"github.com/mezzo-ml/mezzo/policy"
)

// TestKeras compares layers with Keras: outputs under three policies, and
// float32 gradients and new statistics.
func TestKeras(t *testing.T) {
	for _, name := range []string{"layers.json", "conv.json"} {
		for _, c := range tensortest.Load(t, "../keras/testdata/golden/"+name).Cases {
			t.Run(c.Name+"/"+c.Policy, func(t *testing.T) { compare(t, &c) })
		}
	}
}

type outputs struct {
	Y, Loss *tensor.Tensor
	Grads   []*tensor.Tensor // by inputs, then by trainable weights
}

func compare(t *testing.T, c *tensortest.Case) {
	l, training := layertest.FromCase(t, c)
	b := layers.BaseOf(l)
	p, err := policy.Parse(c.Policy)
	if err != nil {
		t.Fatal(err)
	}
	// Keras casts the input of BatchNormalization and then computes in
	// float32; here it is not cast, so the same numbers are given.
	x := layertest.Inputs(c, dtype.Float32)
	if c.Class() == "BatchNormalization" {
		x = layertest.Inputs(c, p.Compute)
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
	if err := apply(l, layers.Pass{}, layertest.Symbols(x)); err != nil {
		t.Fatal(err)
	}
	if len(b.Weights()) != len(c.Weights) {
		t.Fatalf("got %d weights, want %d", len(b.Weights()), len(c.Weights))
	}
	for _, w := range b.Weights() {
		if err := w.Set(c.Weights[local(w.Variable)].Data); err != nil {
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
		near(t, "y", got.Y, want, 4*2*largest(want))
		// Here one operation is rounded once; in Dense and convolutions the
		// product is rounded before the bias is added, and the sum again;
		// separable ones round what the second convolution multiplies, too.
		exact := c.Outputs["y_float32"]
		switch class := c.Class(); {
		case strings.HasPrefix(class, "SeparableConv"):
			near(t, "y_float32", got.Y, exact, 4*largest(exact))
		case class == "Dense" || strings.Contains(class, "Conv"):
			near(t, "y_float32", got.Y, exact, 2*largest(exact))
		default:
			tensortest.Close(t, "y_float32", got.Y, exact, 1)
		}
	}
	for _, w := range b.NonTrainableWeights() {
		name := "new/" + local(w.Variable)
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
		names = append(names, local(w.Variable))
	}
	for i, name := range names {
		// A gradient chains a few rounded results, of magnitude up to 10 in
		// normalization where the variance is small.
		tensortest.Close(t, "grad/"+name, got.Grads[i], c.Outputs["grad/"+name], 10)
	}
}

// local is a variable's name within its layer.
func local(v *tensor.Variable) string { return v.Name()[strings.LastIndexByte(v.Name(), '/')+1:] }

func largest(a tensortest.Array) (m float64) {
	for _, x := range a.Data {
		m = max(m, math.Abs(x))
	}
	return m
}

// near compares with half an epsilon of got's type times scale.
func near(t *testing.T, what string, got *tensor.Tensor, want tensortest.Array, scale float64) {
	t.Helper()
	data, err := got.Float64s()
	if err != nil {
		t.Fatal(err)
	}
	for i, w := range want.Data {
		if err := math.Abs(data[i] - w); !(err <= scale*got.DType().Epsilon()/2) {
			t.Errorf("%s: element %d: got %v, want %v", what, i, data[i], w)
		}
	}
}
