package layertest

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/backend/tensor/tensortest"
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/optimizers"
	"github.com/mezzo-ml/mezzo/policy"
)

// Trained requires a case of training in a golden file for each class of cases whose
// weights training moves, alone or in a layer around it.
func Trained(t *testing.T, golden string, cases []Case) {
	t.Helper()
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
	for _, c := range tensortest.Load(t, golden).Cases {
		if c.Policy == "float32" && c.Config["learning_rate"] != nil {
			l, _, _ := stepCase(t, &c)
			classesIn(l)
		}
	}
	for _, c := range cases {
		l := c.Make()
		if err := apply(l, placeholder(c.In)); err != nil {
			t.Fatal(err)
		}
		if len(layers.BaseOf(l).TrainableWeights()) > 0 && !seen[layers.Class(l)] {
			t.Errorf("%s: no case of training in %s", layers.Class(l), golden)
			seen[layers.Class(l)] = true
		}
	}
}

// stepCase returns the layer of a case, not built, its optimizer, and the names of the
// weights in Keras's order.
func stepCase(t *testing.T, c *tensortest.Case) (l layers.Layer, opt optimizers.Optimizer, names []string) {
	t.Helper()
	var rate, scale float64
	for key, to := range map[string]any{"weight_names": &names, "learning_rate": &rate, "initial_scale": &scale} {
		if err := json.Unmarshal(c.Config[key], to); err != nil {
			t.Fatal(err)
		}
		delete(c.Config, key)
	}
	l, _ = FromCase(t, c)
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

// compareSteps trains a layer for three steps, as Keras did under the same policy. It
// compares the gradients of the first step, the losses, and the weights at the end.
func compareSteps(t *testing.T, c *tensortest.Case) {
	defer policy.SetGlobal(policy.SetGlobal(c.Policy)) // of layers within the layer
	l, opt, order := stepCase(t, c)
	b := layers.BaseOf(l)
	xs, _ := withMasks(c)
	x := make([]*tensor.Tensor, len(xs))
	for i, t := range xs {
		x[i] = Symbols(t)
	}
	if err := try(func() { masked{X: x}.apply(l, layers.Pass{}) }); err != nil {
		t.Fatal(err)
	}
	setWeights(t, c, l, order)
	var gradNames []string
	var vars []*tensor.Variable
	for i, in := range xs {
		if in.DType().IsFloat() {
			gradNames = append(gradNames, fmt.Sprint("x", i))
		}
	}
	for _, w := range b.TrainableWeights() {
		vars = append(vars, w.Variable)
		gradNames = append(gradNames, weightName(l, w))
	}
	train := tensor.Function(func(in masked) (out stepResult) {
		y := in.apply(l, layers.Pass{Training: true}).Unpack()[0]
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
	// A layer is some ten operations forwards and as many backwards. Both sides round
	// each of them, at different places, and the next steps add as much again.
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
		name := weightName(l, w)
		if want, ok := c.Outputs["final/"+name]; ok {
			closeTo(t, "final/"+name, w.Variable.Value(), want, share, c.Weights[name].Data, cancels(c, name))
		}
	}
}

// cancels returns the largest gradient of a case for weights whose own gradient is a sum
// that cancels, else 0. The softmax of attention ignores a constant that is added to all
// scores: all that the bias of the keys does, and most of what a scale of scores does.
func cancels(c *tensortest.Case, name string) (m float64) {
	if name != "key/bias" && name != "scale" {
		return 0
	}
	for key, g := range c.Outputs {
		if strings.HasPrefix(key, "grad/") {
			m = max(m, g.Largest())
		}
	}
	return m
}

// closeTo compares got with want. The tolerance is a share of want's largest element, or
// of its largest change since start, or of least. A change was rounded to float32 with
// its weight, on both sides by half a unit in each of three steps.
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
