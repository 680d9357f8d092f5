package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/mezzo-ml/mezzo/examples/models"
	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/layers"
)

// predictions lists the rows of Model.Predict: models as people serve them, by batches of
// 1, 8 and 64. Products alone count as work.
func predictions() []row {
	var rows []row
	for _, batch := range []int{1, 8, 64} {
		rows = append(rows,
			predictMLP(batch), predictCNN(batch), predictText(batch), predictBiGRU(batch),
			predictTransformer(batch), predictResNet(batch), predictMobileNet(batch),
		)
	}
	return append(rows, predictWideMLP(1), predictUNet(1), predictBERT(1), predictBERT(8))
}

// quantization is how -int8 quantizes a model: "" not at all, "dynamic" the inputs of
// products as they come, "static" those of convolutions by calibration, too.
func quantization(convolutions bool) string {
	switch {
	case !*int8s:
		return ""
	case convolutions:
		return "static"
	}
	return "dynamic"
}

// convolutional is the models with convolutions.
var convolutional = []string{"cnn", "text", "resnet20", "mobilenet", "unet"}

// predict makes a row of Model.Predict for batch samples, each of macs multiplications;
// make returns the model and a batch.
func predict(name string, batch, macs int, s spec, make func() (*keras.Model, *keras.Tensor, error)) row {
	s["kind"], s["batch"], s["model"], s["int8"] = "predict", batch, name, quantization(slices.Contains(convolutional, name))
	return row{
		name: fmt.Sprintf("predict-%s-b%d", name, batch), spec: s, flops: 2 * float64(batch*macs),
		build: func(ctx context.Context) (func() error, error) {
			m, x, err := make()
			if err != nil {
				return nil, err
			}
			if *int8s {
				if _, err := m.Predict(ctx, x); err != nil { // builds it
					return nil, err
				}
				if err := m.QuantizeStatic(ctx, keras.FromTensors(x, nil, nil).Batch(batch), keras.CalibrationConfig{}); err != nil {
					return nil, err
				}
			}
			return func() error {
				y, err := m.Predict(ctx, x)
				if err != nil {
					return err
				}
				y.Release()
				return nil
			}, nil
		},
	}
}

func predictMLP(batch int) row { return predictDense("mlp", batch, 784, 512, 512, 10) }

// predictWideMLP is limited by the memory that its 20 million weights are read from.
func predictWideMLP(batch int) row { return predictDense("mlp4096", batch, 784, 4096, 4096, 10) }

func predictDense(name string, batch int, sizes ...int) row {
	macs := 0
	for i, n := range sizes[1:] {
		macs += sizes[i] * n
	}
	return predict(name, batch, macs, spec{"sizes": sizes}, func() (*keras.Model, *keras.Tensor, error) {
		m := keras.Sequential()
		for i, units := range sizes[1:] {
			l := &layers.Dense{Units: units, Activation: "relu"}
			if i == len(sizes)-2 {
				l.Activation = ""
			}
			if err := m.Add(l); err != nil {
				return nil, nil, err
			}
		}
		return m, samples(batch, 10, sizes[0]).X, nil
	})
}

func predictCNN(batch int) row {
	macs := 28*28*9*32 + 14*14*9*32*64 + 49*64*10
	return predict("cnn", batch, macs, spec{"size": 28, "filters": []int{32, 64}, "padding": "same"}, func() (*keras.Model, *keras.Tensor, error) {
		m := keras.Sequential(
			&layers.Conv2D{Filters: 32, KernelSize: layers.PerAxis{3}, Padding: "same", Activation: "relu"},
			&layers.MaxPooling2D{},
			&layers.Conv2D{Filters: 64, KernelSize: layers.PerAxis{3}, Padding: "same", Activation: "relu"},
			&layers.MaxPooling2D{},
			&layers.Flatten{},
			&layers.Dense{Units: 10},
		)
		return m, samples(batch, 10, 28, 28, 1).X, nil
	})
}

// predictText is Kim's network for sentences (2014) with windows of five words.
func predictText(batch int) row {
	const words, steps, width, filters = 20000, 128, 64, 128
	macs := (steps-4)*5*width*filters + filters*64
	return predict("text", batch, macs, spec{"words": words, "steps": steps, "width": width, "filters": filters}, func() (*keras.Model, *keras.Tensor, error) {
		m := keras.Sequential(
			&layers.Embedding{InputDim: words, OutputDim: width},
			&layers.Conv1D{Filters: filters, KernelSize: layers.PerAxis{5}, Activation: "relu"},
			&layers.GlobalMaxPooling1D{},
			&layers.Dense{Units: 64, Activation: "relu"},
			&layers.Dense{Units: 2},
		)
		return m, indices(1, words-1, batch, steps), nil
	})
}

func predictBiGRU(batch int) row {
	const words, steps, width, units = 20000, 64, 64, 64
	macs := steps * 2 * (width + units) * 3 * units
	return predict("bigru", batch, macs, spec{"words": words, "steps": steps, "width": width, "units": units}, func() (*keras.Model, *keras.Tensor, error) {
		m := keras.Sequential(
			&layers.Embedding{InputDim: words, OutputDim: width},
			&layers.Bidirectional{Layer: &layers.GRU{Units: units}},
			&layers.Dense{Units: 2},
		)
		return m, indices(1, words-1, batch, steps), nil
	})
}

// predictTransformer is an encoder of two layers, normalized before each part, and the
// mean over the steps.
func predictTransformer(batch int) row {
	const words, steps, hidden, heads, depth = 20000, 64, 128, 4, 2
	macs := depth * steps * (12*hidden*hidden + 2*steps*hidden)
	return predict("transformer", batch, macs, spec{"words": words, "steps": steps, "hidden": hidden, "heads": heads, "layers": depth}, func() (*keras.Model, *keras.Tensor, error) {
		in := keras.InputOf(keras.Int32, steps)
		x := keras.Apply(&layers.Embedding{InputDim: words, OutputDim: hidden}, in)
		for range depth {
			y := keras.Apply(&layers.LayerNormalization{}, x)
			x = keras.Apply(&layers.Add{}, x, keras.Apply(&layers.MultiHeadAttention{NumHeads: heads, KeyDim: hidden / heads}, y, y))
			y = keras.Apply(&layers.LayerNormalization{}, x)
			y = keras.Apply(&layers.Dense{Units: 4 * hidden, Activation: "gelu"}, y)
			x = keras.Apply(&layers.Add{}, x, keras.Apply(&layers.Dense{Units: hidden}, y))
		}
		x = keras.Apply(&layers.GlobalAveragePooling1D{}, keras.Apply(&layers.LayerNormalization{}, x))
		m, err := keras.NewModel(in, keras.Apply(&layers.Dense{Units: 2}, x))
		return m, indices(1, words-1, batch, steps), err
	})
}

// convolve is a convolution of k×k without bias, its batch normalization, and a ReLU if
// there is to be one.
func convolve(x *keras.Tensor, filters, k, stride int, relu bool) *keras.Tensor {
	x = keras.Apply(&layers.Conv2D{Filters: filters, KernelSize: layers.PerAxis{k}, Strides: layers.PerAxis{stride}, Padding: "same", UseBias: new(false)}, x)
	return normalized(x, relu)
}

func normalized(x *keras.Tensor, relu bool) *keras.Tensor {
	if x = keras.Apply(&layers.BatchNormalization{}, x); relu {
		x = keras.Apply(&layers.Activation{Activation: "relu"}, x)
	}
	return x
}

// classifier is a model that classifies by the mean of x over the pixels.
func classifier(in, x *keras.Tensor, classes int) (*keras.Model, error) {
	return keras.NewModel(in, keras.Apply(&layers.Dense{Units: classes}, keras.Apply(&layers.GlobalAveragePooling2D{}, x)))
}

// predictResNet is ResNet-20 of He et al. 2015 for images of 32x32 pixels, with 1x1
// convolutions where the number of channels changes.
func predictResNet(batch int) row {
	macs := 32*32*9*16*(3+6*16) + 16*16*32*(9*16+16+9*32*5) + 8*8*64*(9*32+32+9*64*5) + 64*10
	return predict("resnet20", batch, macs, spec{}, func() (*keras.Model, *keras.Tensor, error) {
		in := keras.Input(32, 32, 3)
		x := convolve(in, 16, 3, 1, true)
		for stage, filters := range []int{16, 32, 64} {
			for block := range 3 {
				shortcut, stride := x, 1
				if stage > 0 && block == 0 {
					stride = 2
					shortcut = convolve(x, filters, 1, stride, false)
				}
				x = convolve(convolve(x, filters, 3, stride, true), filters, 3, 1, false)
				x = keras.Apply(&layers.Activation{Activation: "relu"}, keras.Apply(&layers.Add{}, x, shortcut))
			}
		}
		m, err := classifier(in, x, 10)
		return m, samples(batch, 10, 32, 32, 3).X, err
	})
}

// separable is the filters and strides of predictMobileNet's separable convolutions.
var separable = [][2]int{{32, 1}, {64, 2}, {64, 1}, {128, 2}, {128, 1}, {256, 2}, {256, 1}, {256, 1}, {512, 2}, {512, 1}}

// predictMobileNet is separable convolutions as in Howard et al. 2017, half as wide and
// less deep, for images of 96x96 pixels.
func predictMobileNet(batch int) row {
	size, channels := 48, 16
	macs := size * size * 9 * 3 * channels
	for _, b := range separable {
		size /= b[1]
		macs += size * size * channels * (9 + b[0])
		channels = b[0]
	}
	return predict("mobilenet", batch, macs, spec{"separable": separable}, func() (*keras.Model, *keras.Tensor, error) {
		in := keras.Input(96, 96, 3)
		x := convolve(in, 16, 3, 2, true)
		for _, b := range separable {
			x = keras.Apply(&layers.DepthwiseConv2D{KernelSize: layers.PerAxis{3}, Strides: layers.PerAxis{b[1]}, Padding: "same", UseBias: new(false)}, x)
			x = convolve(normalized(x, true), b[0], 1, 1, true)
		}
		m, err := classifier(in, x, 100)
		return m, samples(batch, 100, 96, 96, 3).X, err
	})
}

func predictUNet(batch int) row {
	u := models.BobRoss
	s := spec{"size": u.Size, "filters": u.Filters, "depth": u.Depth, "classes": u.Classes}
	macs := 0
	for _, n := range u.MACs() {
		macs += n
	}
	return predict("unet", batch, macs, s, func() (*keras.Model, *keras.Tensor, error) {
		m, err := u.Model()
		return m, samples(batch, u.Classes, u.Size, u.Size, 3).X, err
	})
}

func predictBERT(batch int) row {
	c, tokens := models.BERTSmall, 128
	s := spec{"tokens": tokens, "vocabulary": c.Vocabulary, "positions": c.Positions, "types": c.Types, "hidden": c.Hidden,
		"layers": c.Layers, "heads": c.Heads, "intermediate": c.Intermediate, "dropout": c.Dropout}
	return predict("bert", batch, c.MACs(tokens), s, func() (*keras.Model, *keras.Tensor, error) {
		m, err := c.Span(tokens)
		return m, keras.Tuple(indices(1, c.Vocabulary-1, batch, tokens), indices(0, c.Types, batch, tokens)), err
	})
}
