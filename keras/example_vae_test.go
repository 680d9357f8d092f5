package keras_test

import (
	"context"
	"fmt"
	"log"

	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/losses"
	"github.com/mezzo-ml/mezzo/optimizers"
)

// sampling draws z from the normal distribution of a mean and the logarithm of
// a variance.
type sampling struct {
	Name, DType string

	layers.Base
	state *keras.Variable
}

func (s *sampling) Config() layers.Config { return layers.Config{Name: s.Name, DType: s.DType} }

func (s *sampling) Build(...layers.Shape) error {
	s.state = s.AddRandomState(nil)
	return nil
}

func (s *sampling) Call(_ layers.Pass, x *keras.Tensor) *keras.Tensor {
	mean, logVar := x.Unpack()[0], x.Unpack()[1]
	if mean.Symbolic() {
		return mean // the batch has no size yet
	}
	noise := tensor.RandomNormal(layers.NextState(s.state, mean), 0, mean.Shape()...)
	return mean.Add(logVar.MulScalar(0.5).Exp().Mul(noise.CastLike(mean)))
}

// A variational autoencoder: two models that one step trains together.
func ExampleFunction_autoencoder() {
	input := keras.Input(8)
	h := keras.Apply(&layers.Dense{Units: 16, Activation: "relu"}, input)
	mean, logVar := keras.Apply(&layers.Dense{Units: 2}, h), keras.Apply(&layers.Dense{Units: 2}, h)
	encoder, err := keras.NewModel(input, keras.Tuple(mean, logVar, keras.Apply(&sampling{}, mean, logVar)))
	if err != nil {
		log.Fatal(err)
	}
	decoder := keras.Sequential(&layers.Dense{Units: 16, Activation: "relu"}, &layers.Dense{Units: 8}).Named("decoder")

	optimizer := &optimizers.Adam{LearningRate: 0.01}
	reconstruction := &losses.MeanSquaredError{}
	step := keras.Function(func(b keras.Batch) *keras.Tensor {
		parts := encoder.Call(b.X, keras.Training).Unpack()
		mean, logVar, z := parts[0], parts[1], parts[2]
		divergence := mean.Square().Add(logVar.Exp()).Sub(logVar).AddScalar(-1).MulScalar(0.5).Sum(1).Mean()
		loss := reconstruction.Call(b.X, decoder.Call(z, keras.Training)).Add(divergence.MulScalar(0.01))
		vars := append(encoder.TrainableVariables(), decoder.TrainableVariables()...)
		optimizer.ApplyGradients(keras.Gradients(loss, vars), vars)
		return loss
	}, encoder, decoder, optimizer)

	data := make([]float32, 64*8) // on a line through the space of 8 numbers
	for i := range data {
		data[i] = (float32(i/8)/32 - 1) * float32(i%8-3)
	}
	batch := keras.Batch{X: keras.NewTensor(data, 64, 8)}
	var first, last float64
	for i := range 200 {
		loss, err := step.Call(context.Background(), batch)
		if err != nil {
			log.Fatal(err)
		}
		if last, err = loss.Item(); err != nil {
			log.Fatal(err)
		}
		if i == 0 {
			first = last
		}
	}
	fmt.Println("a tenth of the first loss:", last < first/10)
	// Output: a tenth of the first loss: true
}
