package main

import (
	"context"
	"fmt"

	"github.com/mezzo-ml/mezzo/backend/op"
	"github.com/mezzo-ml/mezzo/examples/models"
	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/losses"
	"github.com/mezzo-ml/mezzo/optimizers"
)

// network is a model to train, and data for a step of it.
type network struct {
	model *keras.Model
	loss  losses.Loss
	batch keras.Batch
}

// step makes a row of a training step: forward, loss, backward, and Adam in
// one pass over the weights. flops counts the products alone: what a step must
// multiply, not what it does besides.
func step(name string, batch int, s spec, flops float64, make func() (network, error)) row {
	s["kind"], s["batch"] = "step", batch
	return row{
		name: fmt.Sprintf("%s-b%d", name, batch), spec: s, flops: flops,
		build: func(ctx context.Context) (func() error, error) {
			n, err := compiled(make)
			if err != nil {
				return nil, err
			}
			return func() error { return n.model.TrainStep(ctx, n.batch) }, nil
		},
		network: func() (network, error) { return compiled(make) },
	}
}

// compiled makes a network and compiles it with Adam.
func compiled(make func() (network, error)) (network, error) {
	n, err := make()
	if err != nil {
		return n, err
	}
	return n, n.model.Compile(keras.CompileConfig{Optimizer: &optimizers.Adam{}, Loss: n.loss})
}

// trainingSteps lists the rows of training steps.
func trainingSteps() []row {
	large := digitsCNN("bigcnn", [2]int{420, 1000}, 128)
	large.onlyPlanned = true // seconds a step
	return []row{
		mlp([]int{784, 64, 64, 10}, 8192),
		mlp([]int{784, 64, 64, 10}, 128),
		mlp([]int{784, 512, 512, 10}, 128),
		mlp([]int{784, 4096, 4096, 10}, 1024),
		cnn(28, [2]int{32, 64}, 128),
		recurrentClassifier("lstm", 128, 28, 128),
		recurrentClassifier("gru", 128, 28, 128),
		recurrentClassifier("rnn", 128, 28, 128),
		recurrentClassifier("custom", 128, 28, 128),
		digitsCNN("bigcnn", [2]int{420, 1000}, 32),
		large,
		unet("unet", models.BobRoss, 1),
		bert("bert-small", models.BERTSmall, 128, 32),
	}
}

// samples is data of a classifier: inputs between ±0.5 and classes.
func samples(batch, classes int, shape ...int) keras.Batch {
	shape = append([]int{batch}, shape...)
	x := make([]float32, op.Shape(shape).Size())
	for i := range x {
		x[i] = float32(i*7919%1000)/1000 - 0.5
	}
	return keras.Batch{X: keras.NewTensor(x, shape...), Y: indices(0, classes, batch)}
}

// indices are n numbers from first on, in an order that looks like none.
func indices(first, n int, shape ...int) *keras.Tensor {
	x := make([]int32, op.Shape(shape).Size())
	for i := range x {
		x[i] = int32(first + i*7919%n)
	}
	return keras.NewTensor(x, shape...)
}

// products sums 2·macs for each layer: as many again for the gradient of its
// weights and, but for the first, whose input has no gradient, of its input.
func products(macs ...int) float64 {
	sum := 0.0
	for i, n := range macs {
		passes := 3.0
		if i == 0 {
			passes = 2
		}
		sum += 2 * passes * float64(n)
	}
	return sum
}

// mlp is a stack of Dense layers of the given sizes, from the features to the
// classes.
func mlp(sizes []int, batch int) row {
	var macs []int
	for i, in := range sizes[:len(sizes)-1] {
		macs = append(macs, batch*in*sizes[i+1])
	}
	last := len(sizes) - 1
	return step(fmt.Sprintf("mlp%d", sizes[1]), batch, spec{"model": "mlp", "sizes": sizes}, products(macs...), func() (network, error) {
		model := keras.Sequential()
		for i, units := range sizes[1:] {
			l := &layers.Dense{Units: units, Activation: "relu"}
			if i+1 == last {
				l.Activation = "softmax"
			}
			if err := model.Add(l); err != nil {
				return network{}, err
			}
		}
		return network{model, &losses.SparseCategoricalCrossentropy{}, samples(batch, sizes[last], sizes[0])}, nil
	})
}

// cnn is two 3x3 convolutions without padding, each with a 2x2 max-pooling,
// and a classifier, on square images of one channel.
func cnn(size int, filters [2]int, batch int) row {
	a := size - 2          // after the first convolution
	b := a/2 - 2           // after the second one
	c := (b / 2) * (b / 2) // pixels that the classifier sees
	flops := products(batch*a*a*9*filters[0], batch*b*b*9*filters[0]*filters[1], batch*c*filters[1]*10)
	return step("cnn", batch, spec{"model": "cnn", "size": size, "filters": filters, "padding": "valid"}, flops, func() (network, error) {
		model := keras.Sequential(
			&layers.Conv2D{Filters: filters[0], KernelSize: layers.PerAxis{3}, Activation: "relu"},
			&layers.MaxPooling2D{},
			&layers.Conv2D{Filters: filters[1], KernelSize: layers.PerAxis{3}, Activation: "relu"},
			&layers.MaxPooling2D{},
			&layers.Flatten{},
			&layers.Dense{Units: 10, Activation: "softmax"},
		)
		return network{model, &losses.SparseCategoricalCrossentropy{}, samples(batch, 10, size, size, 1)}, nil
	})
}

// digitsCNN is the network of examples/mnistcnn: convolutions that keep the
// size of the images, 28x28 and 14x14.
func digitsCNN(name string, filters [2]int, batch int) row {
	flops := products(batch*28*28*9*filters[0], batch*14*14*9*filters[0]*filters[1], batch*49*filters[1]*10)
	return step(name, batch, spec{"model": "cnn", "size": 28, "filters": filters, "padding": "same"}, flops, func() (network, error) {
		return network{models.DigitsCNN(filters), &losses.SparseCategoricalCrossentropy{}, samples(batch, 10, 784)}, nil
	})
}

// unet is the network of examples/unet and a class for every pixel.
func unet(name string, u models.UNet, batch int) row {
	macs := u.MACs()
	for i := range macs {
		macs[i] *= batch
	}
	s := spec{"model": "unet", "size": u.Size, "filters": u.Filters, "depth": u.Depth, "classes": u.Classes}
	return step(name, batch, s, products(macs...), func() (network, error) {
		model, err := u.Model()
		if err != nil {
			return network{}, err
		}
		size, err := u.OutputSize()
		if err != nil {
			return network{}, err
		}
		b := samples(batch, u.Classes, u.Size, u.Size, 3)
		b.Y = indices(0, u.Classes, batch, size, size)
		return network{model, &losses.SparseCategoricalCrossentropy{FromLogits: true}, b}, nil
	})
}

// bert is the network of examples/bert on sequences without padding. Its first
// layer's input, the embeddings, has a gradient. Embeddings and the head of two
// features are not counted.
func bert(name string, c models.BERT, tokens, batch int) row {
	s := spec{"model": "bert", "tokens": tokens, "vocabulary": c.Vocabulary, "positions": c.Positions, "types": c.Types, "hidden": c.Hidden,
		"layers": c.Layers, "heads": c.Heads, "intermediate": c.Intermediate, "dropout": c.Dropout}
	return step(name, batch, s, 3*2*float64(batch*c.MACs(tokens)), func() (network, error) {
		model, err := c.Span(tokens)
		if err != nil {
			return network{}, err
		}
		x := keras.Tuple(indices(1, c.Vocabulary-1, batch, tokens), indices(0, c.Types, batch, tokens))
		y := keras.Tuple(indices(0, tokens, batch), indices(0, tokens, batch))
		return network{model, &losses.SparseCategoricalCrossentropy{FromLogits: true}, keras.Batch{X: x, Y: y}}, nil
	})
}
