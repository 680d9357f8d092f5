package keras

import (
	"testing"

	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/losses"
	"github.com/mezzo-ml/mezzo/optimizers"
)

// TestMixedFloat32: under mixed_float32 layers compute in float32, weights and slots
// are float64, losses are not scaled, and a first step's outputs and gradients are
// those of float32.
func TestMixedFloat32(t *testing.T) {
	build := func(name string) (*Model, []float64) {
		underPolicy(t, name)
		m := Sequential(
			&layers.Conv2D{Filters: 3, KernelSize: []int{3, 3}, Activation: "relu"}, &layers.Flatten{},
			&layers.Dense{Units: 5, Activation: "tanh"}, &layers.Dense{Units: 4},
		)
		check(t, m.Compile(CompileConfig{Optimizer: &optimizers.Adam{}, Loss: &losses.SparseCategoricalCrossentropy{FromLogits: true}}))
		x := tensor.New(numbers(2*6*6), 2, 6, 6, 1)
		y, err := m.Predict(background, x)
		check(t, err)
		if y.DType() != Float32 {
			t.Errorf("%s: the output is %v", name, y.DType())
		}
		out := values(t, y)
		check(t, m.TrainStep(background, Batch{X: x, Y: tensor.New([]int32{1, 3}, 2)}))
		return m, out
	}
	m, got := build("mixed_float32")
	single, want := build("float32")
	wantNear(t, "outputs", got, want, 0) // float32 weights are rounded when they are made, float64 ones when they are read
	if m.training.scaler != nil {
		t.Error("the loss is scaled")
	}
	for i, w := range m.Weights() {
		if w.DType() != Float64 || w.Value().DType() != Float32 {
			t.Errorf("weight %s: stored as %v, read as %v", w.Name(), w.DType(), w.Value().DType())
		}
		a, err := w.Float64s()
		check(t, err)
		b, err := single.Weights()[i].Float64s()
		check(t, err)
		// One step of Adam moves a weight by 0.001 times a number that float32 rounds.
		wantNear(t, w.Name(), a, b, 4)
	}
	slots := 0
	for _, v := range m.Optimizer().Variables() {
		if v.DType() == Float64 && len(v.Shape()) > 0 {
			slots++
		}
		if v.DType() == Float32 && len(v.Shape()) > 0 {
			t.Errorf("slot %s is float32", v.Name())
		}
	}
	if slots != 2*len(m.TrainableVariables()) {
		t.Errorf("%d float64 slots, want %d", slots, 2*len(m.TrainableVariables()))
	}
}

// TestMixedFloat32Updates: an update below half the spacing of float32 is kept. It is
// what the policy is for.
func TestMixedFloat32Updates(t *testing.T) {
	after := func(name string) float64 {
		underPolicy(t, name)
		l := &layers.Dense{Units: 1, UseBias: new(false), KernelInitializer: "ones"}
		m := Sequential(l)
		check(t, m.Compile(CompileConfig{Optimizer: &optimizers.SGD{LearningRate: 1e-10}, Loss: &losses.MeanSquaredError{}}))
		for range 8 { // the gradient is 2·(1-0)·1
			check(t, m.TrainStep(background, Batch{X: tensor.Ones(Float32, 4, 1), Y: tensor.Zeros(Float32, 4, 1)}))
		}
		w, err := l.Weights()[0].Float64s()
		check(t, err)
		return w[0]
	}
	if got := after("float32"); got != 1 {
		t.Errorf("float32: got %v, want no change", got)
	}
	// The rate is a float32 number: 8 roundings of it, relative to 16e-10.
	if got, want := 1-after("mixed_float32"), 16e-10; got < want*(1-1e-6) || got > want*(1+1e-6) {
		t.Errorf("mixed_float32: moved by %v, want %v", got, want)
	}
}
