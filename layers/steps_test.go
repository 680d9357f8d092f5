package layers_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/backend/tensor/tensortest"
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/layers/layertest"
	"github.com/mezzo-ml/mezzo/optimizers"
	"github.com/mezzo-ml/mezzo/policy"
)

const stepsFile = "../keras/testdata/golden/steps.json"

// TestKerasSteps trains every layer with weights for three steps, as Keras did
// under the same policy, and compares the gradients of the first one, the
// losses, and where the weights end.
func TestKerasSteps(t *testing.T) {
	for _, c := range tensortest.Load(t, stepsFile).Cases {
		t.Run(c.Name+"/"+c.Policy, func(t *testing.T) { steps(t, &c) })
	}
}

// TestStepsOfAll: each class with weights that training moves is in steps.json,
// alone or in a layer around it.
func TestStepsOfAll(t *testing.T) {
	seen := map[string]bool{}
	var classesIn func(l layers.Layer)
	classesIn = func(l layers.Layer) {
		seen[layers.Class(l)] = true
		for _, s := range layers.BaseOf(l).Sublayers() {
			classesIn(s)
		}
		if r, ok := l.(*layers.RNN); ok {
			classesIn(r.Cell)
		}
	}
	for _, c := range tensortest.Load(t, stepsFile).Cases {
		if c.Policy == "float32" {
			l, _, _ := stepCase(t, &c)
			classesIn(l)
		}
	}
	if !seen["STFTSpectrogram"] { // the only class of package preprocessing with such weights
		t.Error("STFTSpectrogram: no case in steps.json")
	}
	for _, c := range everyLayer() {
		l := c.Make()
		var in []*tensor.Tensor
		for _, x := range c.In {
			in = append(in, tensor.Placeholder(x.DType, x.Shape...))
		}
		x := in[0]
		if len(in) > 1 {
			x = tensor.Tuple(in...)
		}
		if err := apply(l, layers.Pass{}, x); err != nil {
			t.Fatal(err)
		}
		if len(layers.BaseOf(l).TrainableWeights()) > 0 && !seen[layers.Class(l)] {
			t.Errorf("%s: no case in steps.json", layers.Class(l))
			seen[layers.Class(l)] = true
		}
	}
}

// stepCase is the layer of a case, not built, the optimizer's rate, and the
// names of the weights in Keras's order.
func stepCase(t *testing.T, c *tensortest.Case) (l layers.Layer, opt optimizers.Optimizer, names []string) {
	t.Helper()
	var rate, scale float64
	for key, to := range map[string]any{"weight_names": &names, "learning_rate": &rate, "initial_scale": &scale} {
		if err := json.Unmarshal(c.Config[key], to); err != nil {
			t.Fatal(err)
		}
		delete(c.Config, key)
	}
	l, _ = layertest.FromCase(t, c)
	opt = &optimizers.SGD{LearningRate: rate}
	if c.Policy == "mixed_float16" {
		opt = &optimizers.LossScaleOptimizer{Inner: opt, InitialScale: scale}
	}
	return l, opt, names
}

type stepResult struct {
	Loss  *tensor.Tensor
	Grads []*tensor.Tensor
}

func steps(t *testing.T, c *tensortest.Case) {
	defer policy.SetGlobal(policy.SetGlobal(c.Policy)) // of layers within the layer
	l, opt, order := stepCase(t, c)
	b := layers.BaseOf(l)
	xs, _ := withMasks(c)
	x := masked{X: xs}.tuple()
	if err := apply(l, layers.Pass{}, layertest.Symbols(x)); err != nil {
		t.Fatal(err)
	}
	var names, gradNames []string
	for _, w := range b.Weights() {
		name := strings.TrimPrefix(w.Name(), b.Path()+"/")
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
	var vars []*tensor.Variable
	for i, in := range xs {
		if in.DType().IsFloat() {
			gradNames = append(gradNames, fmt.Sprint("x", i))
		}
	}
	for _, w := range b.TrainableWeights() {
		vars = append(vars, w.Variable)
		gradNames = append(gradNames, strings.TrimPrefix(w.Name(), b.Path()+"/"))
	}
	train := tensor.Function(func(in masked) (out stepResult) {
		y := layers.Apply(l, layers.Pass{Training: true}, in.tuple()).Unpack()[0]
		out.Loss = y.Cast(dtype.Float32).Sub(c.Inputs["t"].Tensor()).Square().Mean()
		loss := out.Loss
		scaler, scaled := opt.(*optimizers.LossScaleOptimizer)
		if scaled {
			loss = scaler.GetScaledLoss(loss)
		}
		var floats []*tensor.Tensor
		for _, x := range in.X {
			if x.DType().IsFloat() {
				floats = append(floats, x)
			}
		}
		grads := append(tensor.GradientsAt(loss, floats...), tensor.Gradients(loss, vars)...)
		if scaled {
			grads = scaler.GetUnscaledGradients(grads)
		}
		opt.ApplyGradients(grads[len(floats):], vars)
		out.Grads = grads
		return out
	}, b, opt)
	// A layer is some ten operations forwards and as many backwards, each of
	// which both sides round, at other places; what follows it in three steps
	// is wrong by as much again.
	share := 32 * b.ComputeDType().Epsilon()
	if b.ComputeDType() != dtype.Float32 {
		share = 6 * b.ComputeDType().Epsilon() // most of them are in float32, on either side
	}
	for step := range 3 {
		got, err := train.Call(context.Background(), masked{X: xs})
		if err != nil {
			t.Fatal(err)
		}
		loss, err := got.Loss.Item()
		if err != nil {
			t.Fatal(err)
		}
		if want := c.Outputs["loss"].Data[step]; math.Abs(loss-want) > share*want {
			t.Errorf("step %d: got loss %v, want %v", step, loss, want)
		}
		if step > 0 {
			continue
		}
		for i, name := range gradNames {
			if want, ok := c.Outputs["grad/"+name]; ok {
				closeTo(t, "grad/"+name, got.Grads[i], want, share, nil, cancels(c, name))
			}
		}
	}
	for _, w := range b.Weights() {
		name := strings.TrimPrefix(w.Name(), b.Path()+"/")
		if want, ok := c.Outputs["final/"+name]; ok {
			closeTo(t, "final/"+name, w.Variable.Value(), want, share, c.Weights[name].Data, cancels(c, name))
		}
	}
}

// cancels is the largest gradient of a case for weights whose own is a sum that
// cancels: the softmax of attention takes no notice of what is added to all
// scores, which is all that the bias of the keys does, and most of what a scale
// of all scores does.
func cancels(c *tensortest.Case, name string) (m float64) {
	if name != "key/bias" && name != "scale" {
		return 0
	}
	for key, g := range c.Outputs {
		if strings.HasPrefix(key, "grad/") {
			m = max(m, largest(g))
		}
	}
	return m
}

// closeTo compares within a share of the largest of what is wanted, or of what
// has moved since start, or of least. What has moved was rounded to float32
// with the weight, on both sides by half a unit in each of three steps.
func closeTo(t *testing.T, what string, got *tensor.Tensor, want tensortest.Array, share float64, start []float64, least float64) {
	t.Helper()
	data, err := got.Float64s()
	if err != nil {
		t.Fatal(err)
	}
	size, worst, stored := least, 0.0, 0.0
	for i, w := range want.Data {
		worst = max(worst, math.Abs(data[i]-w))
		if start != nil {
			stored = max(stored, 3*dtype.Float32.Epsilon()*math.Abs(w))
			w -= start[i]
		}
		size = max(size, math.Abs(w))
	}
	if !(worst <= share*size+stored) {
		t.Errorf("%s: got an error of %v, want at most %v of %v and %v", what, worst, share, size, stored)
	}
}
