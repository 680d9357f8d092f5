package scenario

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/optimizers"
	"github.com/mezzo-ml/mezzo/policy"
)

// TestRowsOfSteps: what the forward pass of a training step computes for a sample has the bits
// that Predict computes for it in another batch. The step changes its weights, so it keeps no
// packed operands.
func TestRowsOfSteps(t *testing.T) {
	if !*every {
		t.Skip("trains every layer under three policies: with -every")
	}
	const most = 33
	for _, c := range rowsCases() {
		if c.large || c.from > 0 || strings.Contains(c.name, "batch normalization") || c.name == "residual blocks" {
			continue // these normalize by their batch
		}
		for _, name := range rowsPolicies() {
			t.Run(c.name+" "+name, func(t *testing.T) {
				defer policy.SetGlobal(policy.SetGlobal(name))
				m, x := c.make(), samples(c, most)
				whole := predicted(t, m, x, c, 0, most)
				row, weights := len(whole)/most, m.TrainableVariables()
				if len(weights) == 0 {
					return
				}
				o := &optimizers.SGD{LearningRate: 1e-30, AllowUnscaledLoss: true}
				step := keras.Function(func(x *tensor.Tensor) *tensor.Tensor {
					y := m.Call(x, keras.Training)
					o.ApplyGradients(keras.Gradients(y.Mul(y).Mean(), weights), weights)
					return y
				}, m, o)
				for _, n := range []int{1, 2, 5, 16, most} {
					y, err := step.Call(t.Context(), input(c, x, most-n, n))
					if err != nil {
						t.Fatal(err)
					}
					got, err := y.Bytes()
					if err != nil {
						t.Fatal(err)
					}
					if !bytes.Equal(got, whole[(most-n)*row:]) {
						t.Errorf("a step of %d samples differs from a prediction of %d", n, most)
					}
				}
			})
		}
	}
}

// TestRowsOfRandomLayers: TestRows for layers of random sizes.
func TestRowsOfRandomLayers(t *testing.T) {
	if !*every {
		t.Skip("TestRows has layers of fixed sizes: with -every")
	}
	rng := rand.New(rand.NewPCG(25, 2))
	size := func(most int) int { // half of them below 64
		n := 1 + rng.IntN(most)
		if rng.IntN(2) == 0 {
			n = 1 + rng.IntN(min(n, 64))
		}
		return n
	}
	one := func(l layers.Layer) func() *keras.Model { return func() *keras.Model { return keras.Sequential(l) } }
	kinds := []func() ([]int, func() *keras.Model){
		func() ([]int, func() *keras.Model) { return []int{size(9000)}, one(&layers.Dense{Units: size(1200)}) },
		func() ([]int, func() *keras.Model) {
			return []int{size(20), size(3000)}, one(&layers.Dense{Units: size(300), Activation: "relu"})
		},
		func() ([]int, func() *keras.Model) {
			window, stride := []int{1 + rng.IntN(4), 1 + rng.IntN(4)}, 1+rng.IntN(2)
			return []int{4 + size(16), 4 + size(16), size(200)}, one(&layers.Conv2D{Filters: size(200), KernelSize: window, Strides: []int{stride, stride}})
		},
		func() ([]int, func() *keras.Model) {
			return []int{size(6), size(6), size(200)}, one(&layers.Conv2D{Filters: size(100), KernelSize: []int{3, 3}, Padding: "same", Activation: "relu"})
		},
		func() ([]int, func() *keras.Model) {
			return []int{size(10), size(10), size(100)}, one(&layers.Conv2DTranspose{Filters: size(100), KernelSize: []int{3, 3}, Padding: "same"})
		},
		func() ([]int, func() *keras.Model) {
			return []int{size(60), size(300)}, one(&layers.Conv1D{Filters: size(200), KernelSize: []int{1 + rng.IntN(5)}, Padding: "same"})
		},
		func() ([]int, func() *keras.Model) {
			return []int{size(8), size(300)}, one(&layers.GRU{Units: size(400)})
		},
		func() ([]int, func() *keras.Model) {
			return []int{size(20), size(20), size(100)}, one(&layers.GlobalAveragePooling2D{})
		},
	}
	for i := range 10 * len(kinds) {
		var c rowsCase
		c.in, c.make = kinds[i%len(kinds)]()
		name := rowsPolicies()[rng.IntN(len(rowsPolicies()))]
		t.Run(fmt.Sprint(i, c.in, name), func(t *testing.T) {
			defer policy.SetGlobal(policy.SetGlobal(name))
			const most = 60
			m, x := c.make(), samples(c, most)
			whole := predicted(t, m, x, c, 0, most)
			row := len(whole) / most
			for _, n := range []int{1, 2, 5, 16, 29} {
				at := rng.IntN(most - n)
				if got := predicted(t, m, x, c, at, n); !bytes.Equal(got, whole[at*row:(at+n)*row]) {
					t.Errorf("%d samples from %d on differ from those of a batch of %d", n, at, most)
				}
			}
		})
	}
}
