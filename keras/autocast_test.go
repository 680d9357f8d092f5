package keras_test

import (
	"math"
	"strings"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/op"
	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/losses"
	"github.com/mezzo-ml/mezzo/optimizers"
	"github.com/mezzo-ml/mezzo/policy"
)

// TestAutoPolicy trains the same models in float32, under a mixed policy and under an
// automatic one, and compares what 16 bits do to their gradients.
func TestAutoPolicy(t *testing.T) {
	x := func(seed int, shape ...int) *keras.Tensor {
		n := keras.Shape(shape).Size()
		data := make([]float32, n)
		for i := range data {
			data[i] = float32(math.Sin(float64(seed + i*i%1013)))
		}
		return keras.NewTensor(data, shape...)
	}
	y := make([]int32, 16)
	for i := range y {
		y[i] = int32(i * i % 5)
	}
	for _, c := range []struct {
		name  string
		x     *keras.Tensor
		build func() *keras.Model
	}{
		{"mlp", x(1, 16, 20), func() *keras.Model {
			return keras.Sequential(&layers.Dense{Units: 64, Activation: "relu"}, &layers.LayerNormalization{}, &layers.Dense{Units: 64, Activation: "gelu"}, &layers.Dense{Units: 5})
		}},
		{"cnn", x(2, 16, 12, 12, 3), func() *keras.Model {
			return keras.Sequential(&layers.Conv2D{Filters: 16, KernelSize: layers.PerAxis{3}, Activation: "relu"}, &layers.BatchNormalization{}, &layers.MaxPooling2D{},
				&layers.Conv2D{Filters: 16, KernelSize: layers.PerAxis{3}, Activation: "relu"}, &layers.GlobalAveragePooling2D{}, &layers.Dense{Units: 5})
		}},
		{"lstm", x(3, 16, 7, 8), func() *keras.Model {
			return keras.Sequential(&layers.LSTM{Units: 24, ReturnSequences: true}, &layers.GRU{Units: 24}, &layers.Dense{Units: 5})
		}},
		{"attention", x(4, 16, 6, 16), func() *keras.Model {
			in := keras.Input(6, 16)
			h := keras.Apply(&layers.MultiHeadAttention{NumHeads: 2, KeyDim: 8}, in, in)
			h = keras.Apply(&layers.LayerNormalization{}, keras.Apply(&layers.Add{}, in, h))
			h = keras.Apply(&layers.GlobalAveragePooling1D{}, h)
			m, err := keras.NewModel(in, keras.Apply(&layers.Dense{Units: 5}, h))
			if err != nil {
				t.Fatal(err)
			}
			return m
		}},
	} {
		for _, d := range []dtype.DType{dtype.Float16, dtype.BFloat16} {
			t.Run(c.name+"/"+d.String(), func(t *testing.T) {
				worst := map[string]float64{}
				for _, p := range []string{"mixed_" + d.String(), policy.Auto(d)} {
					old := policy.SetGlobal(p)
					m := c.build()
					if err := m.Build(c.x.Shape()[1:]...); err != nil {
						t.Fatal(err)
					}
					policy.SetGlobal(old)
					if err := m.Compile(keras.CompileConfig{Loss: &losses.SparseCategoricalCrossentropy{FromLogits: true}, Optimizer: &optimizers.Adam{}}); err != nil {
						t.Fatal(err)
					}
					if _, scaled := m.Optimizer().(*optimizers.LossScaleOptimizer); scaled != (d == dtype.Float16) {
						t.Errorf("%s: the loss is scaled: %v", p, scaled)
					}
					b := keras.Batch{X: c.x, Y: keras.NewTensor(y, 16)}
					taps, err := m.Beside(t.Context(), b, tensor.BesideOptions{})
					if err != nil {
						t.Fatal(err)
					}
					narrow := 0
					for _, v := range taps.Values {
						if v.Type.DType == d {
							narrow++
						}
					}
					if narrow < 10 {
						t.Errorf("%s: %d of %d values are %v", p, narrow, len(taps.Values), d)
					}
					if p == policy.Auto(d) {
						checkIslands(t, taps)
					}
					for _, g := range taps.Derivatives[0].Gradients {
						if s := taps.Values[g].Shadow; s != nil {
							worst[p] += s.SquaredError
						}
					}
					for range 5 {
						if _, err := m.TrainOnBatch(t.Context(), b); err != nil {
							t.Fatal(err)
						}
					}
				}
				mixed, auto := math.Sqrt(worst["mixed_"+d.String()]), math.Sqrt(worst[policy.Auto(d)])
				t.Logf("errors of all gradients: %.3g mixed, %.3g automatic", mixed, auto)
				if auto > 1.5*mixed {
					t.Errorf("the automatic policy is off by %.2g, the mixed one by %.2g", auto, mixed)
				}
			})
		}
	}
}

// checkIslands: what the forward pass computes in 16 bits hangs together with a product.
// An island without one would have casts around it and save nothing (Campo, ATC 2022).
func checkIslands(t *testing.T, taps *tensor.Taps) {
	t.Helper()
	island := map[int]int{} // of a value in 16 bits: the first value of its island
	var find func(i int) int
	find = func(i int) int {
		if island[i] != i {
			island[i] = find(island[i])
		}
		return island[i]
	}
	for i, v := range taps.Values {
		if !v.Type.DType.Is16() || v.Op == op.Cast || v.Op == op.Const || strings.HasSuffix(v.Path, "/grad") {
			continue
		}
		island[i] = i
		for _, a := range v.Args {
			if _, ok := island[a]; ok {
				island[find(a)] = find(i)
			}
		}
	}
	products := map[int]int{}
	for i := range island {
		if taps.Values[i].Op.Info().Precision == op.Allow {
			products[find(i)]++
		}
	}
	for i := range island {
		if products[find(i)] == 0 {
			t.Errorf("%s computes in %v, and no product beside it", taps.Values[i].ID, taps.Values[i].Type.DType)
		}
	}
	if len(products) == 0 {
		t.Error("no product computes in 16 bits")
	}
}

// TestLevels trains under each of Apex's levels.
func TestLevels(t *testing.T) {
	x, y := make([]float32, 32*20), make([]int32, 32)
	for i := range x {
		x[i] = float32(math.Sin(float64(i * i % 1013)))
	}
	for i := range y {
		y[i] = int32(i % 5)
	}
	b := keras.Batch{X: keras.NewTensor(x, 32, 20), Y: keras.NewTensor(y, 32)}
	for _, name := range []string{"O0", "O1", "O2", "O3"} {
		level, err := policy.OptLevel(name, policy.LevelOptions{})
		if err != nil {
			t.Fatal(err)
		}
		old := policy.SetGlobal(level.Policy)
		m := keras.Sequential(&layers.Dense{Units: 64, Activation: "relu"}, &layers.BatchNormalization{}, &layers.Dense{Units: 5})
		err = m.Compile(keras.CompileConfig{Loss: &losses.SparseCategoricalCrossentropy{FromLogits: true}, Optimizer: optimizers.ForLevel(&optimizers.SGD{LearningRate: 0.1}, level)})
		if err != nil {
			t.Fatal(err)
		}
		var loss []float64
		for range 30 {
			logs, err := m.TrainOnBatch(t.Context(), b)
			if err != nil {
				t.Fatal(err)
			}
			loss = append(loss, logs.Get("loss"))
		}
		policy.SetGlobal(old)
		if loss[29] > loss[0]/4 {
			t.Errorf("%s: the loss goes from %v to %v, want less than a quarter", name, loss[0], loss[29])
		}
		if d := m.TrainableVariables()[0].DType(); d != map[bool]keras.DType{false: keras.Float32, true: keras.Float16}[name == "O3"] {
			t.Errorf("%s: weights are %v", name, d)
		}
	}
}
