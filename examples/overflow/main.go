// Command overflow shows with live numbers why float16 needs loss scaling:
// products that leave its range, a gradient that vanishes, and what a loss
// scale does for it; and what becomes of updates of weights that are stored in 16
// bits. bfloat16 and float32 stand beside it for comparison.
package main

import (
	"context"
	"fmt"
	"log"

	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/ops"
	"github.com/mezzo-ml/mezzo/optimizers"
)

func main() {
	if err := run(); err != nil {
		log.Fatal(err)
	}
}

var types = []keras.DType{keras.Float16, keras.BFloat16, keras.Float32}

func run() error {
	fmt.Println("What fits")
	for _, d := range types {
		fmt.Printf("  %-9v largest %.4g, smallest normal %.4g, smallest %.4g, spacing at 1 %.4g\n",
			d, d.Max(), d.SmallestNormal(), d.SmallestSubnormal(), d.Epsilon())
	}

	fmt.Println("\nOverflow and underflow")
	for _, x := range []float64{256, 1e-5} {
		for _, d := range types {
			y, err := ops.Scalar(d, x).Square().Item()
			if err != nil {
				return err
			}
			fmt.Printf("  %v² in %-9v = %.6g\n", x, d, y)
		}
	}

	fmt.Println("\nA gradient that vanishes: d/dw of 1e-3·(1e-3·(0.01·w)) is 1e-8")
	for _, d := range types {
		for _, scale := range []float64{1, 32768} {
			g, err := gradient(d, scale)
			if err != nil {
				return err
			}
			fmt.Printf("  %-9v loss scale %-6v gradient %.6g\n", d, scale, g)
		}
	}
	fmt.Println("\nWith the loss multiplied by 32768 the float16 gradient passes through the")
	fmt.Println("layers as 0.00032768 and is divided back in float32: nothing is lost.")

	fmt.Println("\nUpdates that are lost: a weight of 1 and 1000 steps of -0.0001")
	for _, d := range types {
		for _, seed := range []*int64{nil, new(int64(1))} {
			if seed != nil && d == keras.Float32 {
				continue // it has the same bits
			}
			w, lost, err := updated(d, seed)
			if err != nil {
				return err
			}
			how := "to nearest"
			if seed != nil {
				how = "at random"
			}
			fmt.Printf("  %-9v rounded %s %3.0f %% of the updates lost, the mean weight is %.4f\n", d, how, 100*lost, w)
		}
	}
	return nil
}

// updated trains 1024 weights that are stored in d. It returns their mean, and the
// share of the updates of the last step that left a weight as it was.
func updated(d keras.DType, seed *int64) (mean, lost float64, err error) {
	w := weight{keras.NewVariable("w", d, keras.Shape{1024}, func(v []float64) error {
		for i := range v {
			v[i] = 1
		}
		return nil
	})}
	sgd := &optimizers.SGD{LearningRate: 1e-4, StochasticRounding: seed, AllowUnscaledLoss: true}
	step := keras.Function(func(struct{}) *keras.Tensor {
		before := w.Value()
		loss := before.Cast(keras.Float32).Sum()
		sgd.ApplyGradients(keras.Gradients(loss, w.Variables()), w.Variables())
		return w.Value().Equal(before).Cast(keras.Float32).Mean()
	}, w, sgd)
	for range 1000 {
		same, err := step.Call(context.Background(), struct{}{})
		if err != nil {
			return 0, 0, err
		}
		if lost, err = same.Item(); err != nil {
			return 0, 0, err
		}
	}
	all, err := w.Float64s()
	for _, v := range all {
		mean += v / float64(len(all))
	}
	return mean, lost, err
}

type weight struct{ *keras.Variable }

func (w weight) Variables() []*keras.Variable { return []*keras.Variable{w.Variable} }

// gradient computes the derivative in d with the loss scaled, and unscales it
// in float32, as LossScaleOptimizer does.
func gradient(d keras.DType, scale float64) (float64, error) {
	w := weight{keras.NewVariable("w", keras.Float32, keras.Shape{}, func(v []float64) error {
		v[0] = 1
		return nil
	})}
	step := keras.Function(func(x *keras.Tensor) *keras.Tensor {
		y := w.Value().Cast(d).Mul(x)         // 0.01·w, in d
		y = y.MulScalar(1e-3).MulScalar(1e-3) // two layers that make it small
		loss := y.Cast(keras.Float32)         // losses are float32
		scaled := loss.MulScalar(scale)       // GetScaledLoss
		g := keras.Gradients(scaled, w.Variables())[0]
		return g.DivScalar(scale) // GetUnscaledGradients
	}, w)
	g, err := step.Call(context.Background(), ops.Scalar(d, 0.01))
	if err != nil {
		return 0, err
	}
	return g.Item()
}
