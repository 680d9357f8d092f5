package layers_test

import (
	"context"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/op"
	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/backend/tensor/tensortest"
	"github.com/mezzo-ml/mezzo/keras/doctor/doctortest"
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/layers/layertest"
	"github.com/mezzo-ml/mezzo/policy"
)

func f32(shape ...int) op.Type { return op.Type{DType: dtype.Float32, Shape: shape} }

// layerCase is a layertest.Case that literals need no names of fields for.
type layerCase layertest.Case

// everyLayer has at least one case for each class of package layers.
func everyLayer() (all []layertest.Case) {
	seed := int64(7)
	image, pair := []op.Type{f32(3, 4, 5, 2)}, []op.Type{f32(3, 4), f32(3, 4)}
	three := []op.Type{f32(3, 2, 4), f32(3, 1, 4), f32(3, 4)}
	cases := []layerCase{
		{"dense", func() layers.Layer { return &layers.Dense{Units: 4} }, []op.Type{f32(3, 5)}},
		{"dense, all fields", func() layers.Layer {
			return &layers.Dense{Units: 4, Activation: "tanh", UseBias: new(true), Name: "head",
				KernelInitializer: "he_normal", BiasInitializer: "random_normal(stddev=0.5)",
				KernelRegularizer: "l2", BiasRegularizer: "l1", ActivityRegularizer: "l2",
				KernelConstraint: "max_norm(3)", BiasConstraint: "non_neg"}
		}, []op.Type{f32(3, 5)}},
		{"dense, no bias", func() layers.Layer { return &layers.Dense{Units: 3, UseBias: new(false), Activation: "softmax"} }, []op.Type{f32(3, 5)}},
		{"dense, rank 4", func() layers.Layer { return &layers.Dense{Units: 3, Activation: "sigmoid"} }, image},
		{"activation", func() layers.Layer { return &layers.Activation{Activation: "gelu"} }, image},
		{"activation, float32", func() layers.Layer { return &layers.Activation{Activation: "softmax", DType: "float32"} }, []op.Type{f32(3, 5)}},
		{"dropout", func() layers.Layer { return &layers.Dropout{Rate: 0.4} }, image},
		{"dropout, fields", func() layers.Layer { return &layers.Dropout{Rate: 0.4, NoiseShape: []int{-1, 1, 1, 2}, Seed: &seed} }, image},
		{"dropout, all", func() layers.Layer { return &layers.Dropout{Rate: 1} }, image},
		{"flatten", func() layers.Layer { return &layers.Flatten{} }, image},
		{"flatten, channels first", func() layers.Layer { return &layers.Flatten{DataFormat: "channels_first"} }, image},
		{"flatten, batch alone", func() layers.Layer { return &layers.Flatten{} }, []op.Type{f32(3)}},
		{"reshape", func() layers.Layer { return &layers.Reshape{TargetShape: []int{10, -1, 2}} }, image},
		{"permute", func() layers.Layer { return &layers.Permute{Dims: []int{3, 1, 2}} }, image},
		{"repeat vector", func() layers.Layer { return &layers.RepeatVector{N: 3} }, []op.Type{f32(3, 4)}},
		{"add", func() layers.Layer { return &layers.Add{} }, three},
		{"subtract", func() layers.Layer { return &layers.Subtract{} }, pair},
		{"multiply", func() layers.Layer { return &layers.Multiply{} }, three},
		{"average", func() layers.Layer { return &layers.Average{} }, three},
		{"maximum", func() layers.Layer { return &layers.Maximum{} }, three},
		{"minimum", func() layers.Layer { return &layers.Minimum{} }, three},
		{"concatenate", func() layers.Layer { return &layers.Concatenate{} }, []op.Type{f32(3, 4), f32(3, 2), f32(3, 1)}},
		{"concatenate, axis 1", func() layers.Layer { return &layers.Concatenate{Axis: new(1)} }, []op.Type{f32(3, 1, 4), f32(3, 2, 4)}},
		{"batch normalization", func() layers.Layer { return &layers.BatchNormalization{} }, []op.Type{f32(6, 3)}},
		{"batch normalization, fields", func() layers.Layer {
			return &layers.BatchNormalization{Axis: new(1), Momentum: new(0.5), Epsilon: new(0.01), Scale: new(false),
				BetaInitializer: "random_normal", BetaRegularizer: "l2"}
		}, image},
		{"layer normalization", func() layers.Layer { return &layers.LayerNormalization{} }, []op.Type{f32(6, 5)}},
		{"layer normalization, fields", func() layers.Layer {
			return &layers.LayerNormalization{Axis: []int{-1, 1}, Epsilon: new(0.01), Center: new(false), GammaInitializer: "random_uniform"}
		}, image},
		{"identity", func() layers.Layer { return &layers.Identity{} }, image},
		{"relu", func() layers.Layer { return &layers.ReLU{MaxValue: new(1.5), NegativeSlope: 0.1, Threshold: 0.2} }, image},
		{"leaky relu", func() layers.Layer { return &layers.LeakyReLU{} }, image},
		{"elu", func() layers.Layer { return &layers.ELU{} }, image},
		{"softmax", func() layers.Layer { return &layers.Softmax{Axis: []int{1}} }, image},
		{"prelu", func() layers.Layer { return &layers.PReLU{AlphaInitializer: "random_uniform", SharedAxes: []int{1, 2}} }, image},
	}
	for _, c := range slices.Concat(cases, moreLayers(), attentionLayers(), convLayers(), recurrentCases()) {
		all = append(all, layertest.Case(c))
	}
	return all
}

// TestEveryLayer runs layertest on every class.
func TestEveryLayer(t *testing.T) {
	layertest.Classes(t, everyLayer())
	for _, c := range everyLayer() {
		t.Run(c.Name, func(t *testing.T) { layertest.Run(t, c.Make, c.In...) })
	}
}

func TestMistakes(t *testing.T) {
	layertest.Mistakes(t, everyLayer(), accepted, layertest.MistakesOptions{})
}

func TestAbsurdSizes(t *testing.T) { layertest.Sizes(t, everyLayer()) }

func TestErrors(t *testing.T) {
	many := func(shapes ...[]int) []op.Type {
		var all []op.Type
		for _, s := range shapes {
			all = append(all, f32(s...))
		}
		return all
	}
	for _, c := range []struct {
		layer layers.Layer
		in    []op.Type
		want  string
	}{
		{&layers.Dense{Units: -1}, nil, "layer dense: Build: Units is -1, want a positive number"},
		{&layers.Dense{}, nil, "layer dense: Build: Units is 0, want a positive number"},
		{&layers.Dense{Units: 2, DType: "float8", Name: "head"}, nil, `layer head: Build: policy: unknown policy "float8"; did you mean "mixed_float8"? want mixed_float16, mixed_bfloat16, mixed_float32, mixed_float8, auto_float16, auto_bfloat16 or a float type such as float32`},
		{&layers.Dense{Units: 2}, many([]int{-1}), "layer dense: Build: input [?] has 1 axes, want at least 2"},
		{&layers.Dense{Units: 2}, many([]int{3, -1}), "layer dense: Build: axis 1 of input [3 ?] has no size, want one: weights depend on it"},
		{&layers.Dense{Units: 2}, many([]int{3, 2}, []int{3, 2}), "layer dense: Build: got 2 inputs, want one tensor"},
		{&layers.Dropout{Rate: 1.5}, nil, "layer dropout: Build: Rate is 1.5, want a number from 0 to 1"},
		{&layers.Dropout{Rate: math.NaN()}, nil, "layer dropout: Build: Rate is NaN, want a number from 0 to 1"},
		{&layers.Dropout{Rate: .5, NoiseShape: []int{1}}, nil, "layer dropout: Build: NoiseShape is [1], want 2 axes as input [? 4] has"},
		{&layers.Dropout{Rate: .5, NoiseShape: []int{1, 3}}, nil, "layer dropout: Build: NoiseShape is [1 3], want 1, -1 or the size of the input in each axis of [? 4]"},
		{&layers.Dropout{Rate: .5}, []op.Type{{DType: dtype.Int32, Shape: op.Shape{2, 3}}}, "layer dropout: Call: got int32[2 3], want floats; Cast the data, or use keras.Input(…), which is for floats"},
		{&layers.Flatten{DataFormat: "last"}, nil, `layer flatten: Build: DataFormat is "last", want channels_last or channels_first`},
		{&layers.Flatten{}, many([]int{-1, -1, 3}), "layer flatten: Build: input [? ? 3] has axes without a size, want sizes for all but the batch"},
		{&layers.Reshape{TargetShape: []int{3}}, nil, "layer reshape: Build: TargetShape is [3], want a shape of 4 elements as input [? 4] has"},
		{&layers.Reshape{TargetShape: []int{3, -1}}, nil, "layer reshape: Build: TargetShape is [3 -1], want a shape of 4 elements as input [? 4] has"},
		{&layers.Reshape{TargetShape: []int{-1, -1}}, nil, "layer reshape: Build: TargetShape is [-1 -1], want sizes, and -1 at most once"},
		{&layers.Permute{Dims: []int{0, 1}}, nil, "layer permute: Build: Dims is [0 1], want each of 1 to 2 once"},
		{&layers.Permute{Dims: []int{2, 1}}, nil, "layer permute: Build: input [? 4] has 1 axes after the batch, want 2 as Dims [2 1] has"},
		{&layers.RepeatVector{}, nil, "layer repeat_vector: Build: N is 0, want a positive number"},
		{&layers.Add{}, nil, "layer add: Build: got 1 input, want a tuple of at least 2 tensors"},
		{&layers.Add{}, many([]int{-1, 3}, []int{-1, 4}), "layer add: Build: inputs [[? 3] [? 4]] do not broadcast, want equal sizes or 1 in each axis after the batch"},
		{&layers.Multiply{}, many([]int{2, 3}, []int{1, 3}), "layer multiply: Build: inputs [[2 3] [1 3]] do not broadcast, want equal sizes or 1 in each axis after the batch"},
		{&layers.Subtract{}, many([]int{2}, []int{2}, []int{2}), "layer subtract: Build: got 3 inputs, want a tuple of 2"},
		{&layers.Concatenate{}, many([]int{2, 3, 4}, []int{2, 2, 4}), "layer concatenate: Build: inputs [[2 3 4] [2 2 4]] do not fit, want shapes that are equal but for axis -1"},
		{&layers.Concatenate{Axis: new(2)}, many([]int{2, 3}, []int{2, 2}), "layer concatenate: Build: Axis is 2, want an axis of input [2 3]"},
		{&layers.BatchNormalization{Momentum: new(1.5)}, nil, "layer batch_normalization: Build: Momentum is 1.5, want a number from 0 to 1"},
		{&layers.BatchNormalization{Epsilon: new(-1.)}, nil, "layer batch_normalization: Build: Epsilon is -1, want a number from 0"},
		{&layers.BatchNormalization{Axis: new(2)}, nil, "layer batch_normalization: Build: Axis is 2, want an axis of input [? 4]"},
		{&layers.LayerNormalization{Axis: []int{1, -1}}, nil, "layer layer_normalization: Build: Axis is [1 -1], want each axis of input [? 4] once"},
		{&layers.LayerNormalization{Axis: []int{}}, nil, "layer layer_normalization: Build: Axis is [], want at least one axis of input [? 4]"},
		{&layers.LayerNormalization{Axis: []int{3}}, nil, "layer layer_normalization: Build: Axis is [3], want axes of input [? 4]"},
		{&layers.ReLU{MaxValue: new(-1.)}, nil, "layer re_lu: Build: MaxValue is -1, want a number from 0"},
		{&layers.Softmax{Axis: []int{2}}, nil, "layer softmax: Build: Axis is [2], want axes of input [? 4]"},
		{&layers.PReLU{SharedAxes: []int{0}}, nil, "layer p_re_lu: Build: SharedAxes is [0], want axes from 1 of input [? 4]"},
	} {
		layertest.BadField(t, c.layer, c.want, c.in...)
	}
	// Names that other packages know: the text that follows is theirs.
	for _, l := range []layers.Layer{
		&layers.Dense{Units: 2, Activation: "rleu"},
		&layers.Dense{Units: 2, KernelInitializer: "rleu"},
		&layers.Dense{Units: 2, BiasRegularizer: "rleu"},
		&layers.Dense{Units: 2, KernelConstraint: "rleu"},
		&layers.Dense{Units: 2, ActivityRegularizer: "rleu"},
		&layers.Activation{Activation: "rleu"},
		&layers.BatchNormalization{MovingMeanInitializer: "rleu"},
	} {
		err := apply(l, layers.Pass{}, tensor.Placeholder(dtype.Float32, -1, 4))
		var at *tensor.Error
		if err == nil || !errorsAs(err, &at) || at.Op != "Build" || !contains(err, `"rleu"`) {
			t.Errorf("%s: got error %v, want one of Build that names rleu", layers.Class(l), err)
		}
	}
}

// TestOtherShape uses layers again with inputs they were not built for.
func TestOtherShape(t *testing.T) {
	for _, c := range []struct {
		layer        layers.Layer
		first, other []int
		want         string // "": fits
	}{
		{&layers.Dense{Units: 2}, []int{2, 3}, []int{2, 4}, "layer dense: Call: the last axis of input [2 4] is 4, want 3"},
		{&layers.Dense{Units: 2}, []int{2, 3}, []int{7, 5, 3}, ""},
		{&layers.BatchNormalization{}, []int{2, 3}, []int{2, 3, 3}, "layer batch_normalization: Call: input [2 3 3] has 3 axes, want 2 as in [2 3]"},
		{&layers.BatchNormalization{}, []int{2, 3, 3}, []int{2, 5, 3}, ""},
		{&layers.LayerNormalization{Axis: []int{1}}, []int{2, 3, 3}, []int{2, 5, 3}, "layer layer_normalization: Call: axis 1 of input [2 5 3] is 5, want 3"},
		{&layers.Reshape{TargetShape: []int{3, 1}}, []int{2, 3}, []int{2, 4}, "layer reshape: Call: TargetShape is [3 1], want a shape of 4 elements as input [2 4] has"},
		{&layers.Flatten{}, []int{2, 3}, []int{2, 4, 5}, ""},
		{&layers.PReLU{}, []int{2, 3}, []int{2, 4}, "layer p_re_lu: Call: axis 1 of input [2 4] is 4, want 3"},
	} {
		if err := apply(c.layer, layers.Pass{}, tensor.Placeholder(dtype.Float32, c.first...)); err != nil {
			t.Fatal(err)
		}
		err := apply(c.layer, layers.Pass{}, tensor.Placeholder(dtype.Float32, c.other...))
		if c.want == "" && err != nil || c.want != "" && fmt.Sprint(err) != c.want {
			t.Errorf("%s: got error %v, want %s", layers.Class(c.layer), err, c.want)
		}
	}
}

// TestPolicies checks who decides on a layer's policy.
func TestPolicies(t *testing.T) {
	defer policy.SetGlobal(policy.SetGlobal("mixed_float16"))
	defer policy.SetGlobalMap(policy.SetGlobalMap(map[string]string{"exact": "float64"}))
	for _, c := range []struct{ name, dtype, want string }{
		{"plain", "", "mixed_float16"},
		{"exact", "", "float64"},
		{"exact", "float32", "float32"},
	} {
		l := &layers.Dense{Units: 2, Name: c.name, DType: c.dtype}
		x := tensor.Placeholder(dtype.Float32, -1, 3)
		y := layers.Apply(l, layers.Pass{}, x)
		if p := l.Policy(); p.Name != c.want || y.DType() != p.Compute || l.Weights()[0].DType() != p.Variable {
			t.Errorf("%+v: got %v, output %v, kernel %v", c, p, y.Type(), l.Weights()[0].DType())
		}
	}
	// Resolved once: a later change of the global policy means nothing.
	l := &layers.Dense{Units: 2}
	layers.Apply(l, layers.Pass{}, tensor.Placeholder(dtype.Float32, -1, 3))
	policy.SetGlobal("float32")
	if y := layers.Apply(l, layers.Pass{}, tensor.Placeholder(dtype.Float32, -1, 3)); y.DType() != dtype.Float16 {
		t.Errorf("after a change of the global policy: got %v, want float16", y.Type())
	}
}

// TestDropout checks the share that is kept, its scale, and that each call and
// each step draws another mask.
func TestDropout(t *testing.T) {
	const n, rate = 100_000, 0.3
	for _, name := range []string{"float32", "mixed_float16", "mixed_bfloat16"} {
		l := &layers.Dropout{Rate: rate, DType: name}
		build(t, l, n)
		twice := tensor.Function(func(x *tensor.Tensor) []*tensor.Tensor {
			return []*tensor.Tensor{
				layers.Apply(l, layers.Pass{Training: true}, x),
				layers.Apply(l, layers.Pass{Training: true}, x)}
		}, l)
		var masks [][]float64
		for range 2 {
			ys, err := twice.Call(context.Background(), tensor.Ones(dtype.Float32, n))
			if err != nil {
				t.Fatal(err)
			}
			for _, y := range ys {
				data, err := y.Float64s()
				if err != nil {
					t.Fatal(err)
				}
				masks = append(masks, data)
			}
		}
		for i, mask := range masks {
			kept := 0
			for _, v := range mask {
				switch v {
				case 0:
				case float64(l.ComputeDType().Round(1 / (1 - rate))):
					kept++
				default:
					t.Fatalf("%s: got %v, want 0 or 1/(1-rate)", name, v)
				}
			}
			// Five standard deviations of a binomial distribution.
			if want, d := n*(1-rate), 5*math.Sqrt(n*rate*(1-rate)); math.Abs(float64(kept)-want) > d {
				t.Errorf("%s: mask %d keeps %d, want %v ± %v", name, i, kept, want, d)
			}
			for j, other := range masks[:i] {
				if slices.Equal(mask, other) {
					t.Errorf("%s: masks %d and %d are equal, want others", name, j, i)
				}
			}
		}
	}
}

func TestDropoutNoiseShape(t *testing.T) {
	l := &layers.Dropout{Rate: 0.5, NoiseShape: []int{-1, 1}}
	build(t, l, -1, 3)
	y, err := layertest.Function(l, true).Call(context.Background(), tensor.Ones(dtype.Float32, 64, 3))
	if err != nil {
		t.Fatal(err)
	}
	data, err := y.Values()
	if err != nil {
		t.Fatal(err)
	}
	rows := map[float32]int{}
	for r := range 64 {
		row := data[3*r : 3*r+3]
		if row[0] != row[1] || row[0] != row[2] {
			t.Fatalf("row %d: got %v, want one decision for the row", r, row)
		}
		rows[row[0]]++
	}
	if rows[0] == 0 || rows[2] == 0 { // each has a chance of 2⁻⁶⁴
		t.Errorf("got rows %v, want some of 0 and some of 2", rows)
	}
}

// TestActivityRegularizer: the penalty of the output, divided by the batch
// size, reaches whoever collects losses.
func TestActivityRegularizer(t *testing.T) {
	l := &layers.Dense{Units: 1, UseBias: new(false), KernelInitializer: "ones", ActivityRegularizer: "l2(0.5)"}
	build(t, l, -1, 2)
	f := tensor.Function(func(x *tensor.Tensor) *tensor.Tensor {
		var losses []*tensor.Tensor
		layers.Apply(l, layers.Pass{Training: true}.Collect(&losses), x)
		if len(losses) != 1 {
			t.Fatalf("got %d losses, want 1", len(losses))
		}
		return losses[0]
	}, l)
	y, err := f.Call(context.Background(), tensor.New([]float32{1, 2, 3, 4}, 2, 2))
	if err != nil {
		t.Fatal(err)
	}
	tensortest.Close(t, "loss", y, tensortest.Of(dtype.Float32, []float64{0.5 * (9 + 49) / 2}), 1)
}

// TestHealthy examines steps of training with every class.
func TestHealthy(t *testing.T) { doctortest.Layers(t, 1, everyLayer()) }
