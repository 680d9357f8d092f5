package layers_test

import (
	"context"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/op"
	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/backend/tensor/tensortest"
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/layers/layertest"
)

// local returns a variable's name within its layer.
func local(v *tensor.Variable) string { return v.Name()[strings.LastIndexByte(v.Name(), '/')+1:] }

var scaledTensors = []string{"inputs", "kernel", "outputs_grad"}

// float8Of is the weight of a float8 layer of that name.
func float8Of(t *testing.T, l layers.Layer, name string) *layers.Weight {
	t.Helper()
	for _, w := range layers.BaseOf(l).Weights() {
		if local(w.Variable) == name {
			return w
		}
	}
	t.Fatalf("no weight %s", name)
	return nil
}

// float8Step is a step of l on x in which its result has the gradient g.
func float8Step(l layers.Layer, training bool) *tensor.Func[[]*tensor.Tensor, []*tensor.Tensor] {
	return tensor.Function(func(in []*tensor.Tensor) []*tensor.Tensor {
		x, g := in[0], in[1]
		y := layers.Apply(l, layers.Pass{Training: training}, x)
		loss := y.Cast(dtype.Float32).Mul(g).Sum()
		at := []*tensor.Tensor{x}
		for _, w := range layers.BaseOf(l).TrainableWeights() {
			at = append(at, w.Variable.Value())
		}
		return append([]*tensor.Tensor{y}, tensor.GradientsAt(loss, at...)...)
	}, layers.BaseOf(l))
}

func TestFloat8Keras(t *testing.T) {
	for _, c := range tensortest.Load(t, "../keras/testdata/golden/float8.json").Cases {
		t.Run(c.Name, func(t *testing.T) {
			var l layers.Layer
			switch x := c.Inputs["x"]; c.Name {
			case "heads":
				l = &layers.EinsumDense{Equation: "abc,cde->abde", OutputShape: layers.PerAxis{-1, 2, 3}, BiasAxes: "de", DType: c.Policy}
			case "joined":
				l = &layers.EinsumDense{Equation: "abde,dec->abc", OutputShape: layers.PerAxis{-1, 4}, BiasAxes: "c", DType: c.Policy}
			default:
				y := c.Outputs["y"]
				l = &layers.Dense{Units: y.Shape[len(x.Shape)-1], DType: c.Policy}
			}
			x, g := c.Inputs["x"].Tensor(), c.Inputs["g"].Tensor()
			if err := apply(l, layers.Pass{}, layertest.Symbols(x)); err != nil {
				t.Fatal(err)
			}
			before := make([]float64, 1024)
			for i := range before {
				before[i] = float64(i) / 1024
			}
			var names []string
			for _, w := range layers.BaseOf(l).Weights() {
				names = append(names, local(w.Variable))
			}
			order := []string{"kernel", "bias"} // as Keras's files have them
			for i, which := range scaledTensors {
				order = append(order, which+"_scale", which+"_amax_history")
				if err := float8Of(t, l, which+"_scale").Set(c.Inputs["scales"].Data[i : i+1]); err != nil {
					t.Fatal(err)
				}
				if err := float8Of(t, l, which+"_amax_history").Set(before); err != nil {
					t.Fatal(err)
				}
			}
			if !slices.Equal(names, order) {
				t.Errorf("got weights %v, want %v", names, order)
			}
			for _, name := range []string{"kernel", "bias"} {
				if err := float8Of(t, l, name).Set(c.Weights[name].Data); err != nil {
					t.Fatal(err)
				}
			}
			got, err := float8Step(l, true).Call(context.Background(), []*tensor.Tensor{x, g})
			if err != nil {
				t.Fatal(err)
			}
			// Keras multiplies each operand by its scale and rounds that: two
			// roundings of each product that are not here. It rounds the
			// gradient by the bias to bfloat16, as the bias.
			for i, name := range []string{"y", "dx", "dkernel", "dbias"} {
				want, scale := c.Outputs[name], 16.0
				if name == "dbias" {
					scale = dtype.BFloat16.Epsilon() / dtype.Float32.Epsilon()
				}
				tensortest.Near(t, name, got[i], want, scale*want.Largest())
			}
			for i, which := range scaledTensors {
				h, err := float8Of(t, l, which+"_amax_history").Float64s()
				if err != nil {
					t.Fatal(err)
				}
				for j, at := range []int{0, 1, 1022, 1023} {
					if want := c.Outputs["history"].Data[4*i+j]; float32(h[at]) != float32(want) {
						t.Errorf("%s_amax_history[%d]: got %v, want %v", which, at, h[at], want)
					}
				}
				m := float32(slices.Max(h))
				limit := float32(448)
				if which == "outputs_grad" {
					limit = 57344
				}
				scale, err := float8Of(t, l, which+"_scale").Item()
				if want := 1 / (limit / m); err != nil || float32(scale) != want {
					t.Errorf("%s_scale: got %v, %v, want %v", which, scale, err, want)
				}
			}
		})
	}
}

func TestFloat8Layers(t *testing.T) {
	x := op.Type{DType: dtype.Float32, Shape: op.Shape{3, 8}}
	for name, l := range map[string]func() layers.Layer{
		"dense": func() layers.Layer { return &layers.Dense{Units: 5, Activation: "tanh", DType: "mixed_float8"} },
		"einsum": func() layers.Layer {
			return &layers.EinsumDense{Equation: "ab,bc->ac", OutputShape: layers.PerAxis{4}, DType: "mixed_float8"}
		},
	} {
		t.Run(name, func(t *testing.T) { layertest.Run(t, l, x) })
	}
	t.Run("attention", func(t *testing.T) {
		l := func() layers.Layer { return &layers.MultiHeadAttention{NumHeads: 2, KeyDim: 4, DType: "mixed_float8"} }
		x := op.Type{DType: dtype.Float32, Shape: op.Shape{2, 5, 8}}
		layertest.Run(t, l, x, x)
		made := l()
		in := tensor.Tuple(tensor.Placeholder(x.DType, x.Shape...), tensor.Placeholder(x.DType, x.Shape...))
		if err := apply(made, layers.Pass{}, in); err != nil {
			t.Fatal(err)
		}
		n := 0
		for _, w := range layers.BaseOf(made).NonTrainableWeights() {
			if local(w.Variable) == "outputs_grad_scale" {
				n++
			}
		}
		if n != 4 {
			t.Errorf("got %d projections with scales, want query, key, value and output", n)
		}
	})
}

// A scale follows the largest magnitude; a step without training moves none,
// and neither do magnitudes that make none.
func TestFloat8Scales(t *testing.T) {
	ctx := context.Background()
	l := &layers.Dense{Units: 3, DType: "mixed_float8"}
	g := tensor.Ones(dtype.Float32, 2, 3)
	scales := func() (s [3]float64) {
		for i, which := range scaledTensors {
			v, err := float8Of(t, l, which+"_scale").Item()
			if err != nil {
				t.Fatal(err)
			}
			s[i] = v
		}
		return s
	}
	call := func(training bool, x float32) []*tensor.Tensor {
		y, err := float8Step(l, training).Call(ctx, []*tensor.Tensor{tensor.New([]float32{x, 0, 0, -x / 2}, 2, 2), g})
		if err != nil {
			t.Fatal(err)
		}
		return y
	}
	call(false, 100)
	if got := scales(); got != [3]float64{1, 1, 1} {
		t.Errorf("after a call without training: got scales %v, want 1", got)
	}
	inf := float32(math.Inf(1))
	if y, err := call(true, inf)[0].Float64s(); err != nil || !math.IsNaN(y[0]) {
		t.Errorf("of an infinite input: got %v, %v, want NaN: an overflow is not to be hidden", y, err)
	}
	if got := scales()[0]; got != 1 {
		t.Errorf("after an infinite input: got scale %v, want 1 as before", got)
	}
	if err := float8Of(t, l, "inputs_amax_history").Reset(); err != nil {
		t.Fatal(err)
	}
	call(true, 0)
	if got := scales()[0]; got != 1 {
		t.Errorf("after an input of zeros: got scale %v, want 1 as before", got)
	}
	call(true, 896)
	if got := scales()[0]; got != 2 {
		t.Errorf("after an input of 896: got scale %v, want 2", got)
	}
	call(true, 1)
	if got := scales()[0]; got != 2 {
		t.Errorf("after a smaller input: got scale %v, want 2: the history has 896", got)
	}
	if got := scales()[2]; float32(got) != 1/float32(57344) {
		t.Errorf("of gradients of 1: got scale %v, want 1/57344", got)
	}
	y, err := call(true, 896)[0].Float64s()
	if err != nil {
		t.Fatal(err)
	}
	k, err := float8Of(t, l, "kernel").Float64s()
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 { // 1/16 is half the spacing of E4M3 at 1; the rest are roundings to bfloat16
		if want := 896 * k[i]; !(math.Abs(y[i]-want) <= math.Abs(want)*(1./16+1./128)) {
			t.Errorf("element %d: got %v, want about %v", i, y[i], want)
		}
	}
}
