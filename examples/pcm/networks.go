package main

import (
	"math"

	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/metrics"
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/layers/preprocessing"
	"github.com/mezzo-ml/mezzo/losses"
	"github.com/mezzo-ml/mezzo/optimizers"
)

// settings are how a network is trained.
type settings struct {
	epochs, batch int
	optimizer     string  // "sgd" or "adam"
	rate, decay   float64 // learning rate, which falls to rate/decay along half a cosine
	clip          float64 // largest norm of all gradients; 0: any
	units         int     // of the hidden layer
	scale, last   float64 // Crossbar.Scale of the hidden layers, and of the output layer
	converters    float64 // Crossbar.Range of the hidden layers
	seconds       float64 // Crossbar.Seconds
	glorot        bool    // Crossbar.Glorot
}

// A network is what is trained. What goes into an array lies between 0 and 1, or -1 and 1
// in the LSTM.
type network struct {
	settings
	text bool
	// layers returns the layers. hidden and output are arrays, or Dense layers, with so
	// many units; classes are those of the output.
	layers func(s settings, classes int, hidden, output func(units int) layers.Layer) []layers.Layer
}

var networks = map[string]network{
	"mlp": {
		settings: settings{epochs: 5, batch: 32, optimizer: "sgd", rate: 1, decay: 1, units: 250, scale: 8, last: 4, converters: 16, seconds: 1},
		layers: func(s settings, classes int, hidden, output func(units int) layers.Layer) []layers.Layer {
			return []layers.Layer{hidden(s.units), &layers.Activation{Activation: "sigmoid"}, output(classes)}
		},
	},
	"cnn": {
		settings: settings{epochs: 3, batch: 32, optimizer: "sgd", rate: 0.3, decay: 50, units: 12, scale: 16, last: 8, converters: 2, seconds: 0.01, glorot: true},
		layers: func(s settings, classes int, hidden, output func(units int) layers.Layer) []layers.Layer {
			limited := func() layers.Layer { return &layers.ReLU{MaxValue: new(1.0)} }
			return []layers.Layer{&layers.Reshape{TargetShape: []int{28, 28, 1}},
				&Convolution{Size: 5, Array: hidden(s.units)}, limited(), &layers.MaxPooling2D{},
				&Convolution{Size: 3, Array: hidden(2 * s.units)}, limited(), &layers.MaxPooling2D{},
				&layers.Flatten{}, output(classes)}
		},
	},
	"lstm": {
		settings: settings{epochs: 3, batch: 16, optimizer: "adam", rate: 0.03, decay: 20, clip: 1, units: 64, scale: 8, last: 8, converters: 8, seconds: 0.01, glorot: true},
		text:     true,
		layers: func(s settings, classes int, hidden, output func(units int) layers.Layer) []layers.Layer {
			return []layers.Layer{&preprocessing.CategoryEncoding{NumTokens: classes, OutputMode: "one_hot"},
				&layers.RNN{Cell: &LSTM{Units: s.units, Array: hidden(4 * s.units)}, ReturnSequences: true}, output(classes)}
		},
	},
}

// model returns a compiled network that predicts one of some classes, trained for a
// number of steps, and its arrays.
func (n network) model(k kind, classes, steps int, seed uint64) (*keras.Model, []*Crossbar, error) {
	s := n.settings
	var arrays []*Crossbar
	array := func(units int, scale, converters float64) layers.Layer {
		if k.device == nil {
			return &layers.Dense{Units: units}
		}
		c := &Crossbar{Units: units, Device: k.device, Transfer: k.transfer, Scale: scale, Range: converters, Signed: n.text, Glorot: s.glorot, Seconds: s.seconds}
		arrays = append(arrays, c)
		return c
	}
	model := keras.Sequential(n.layers(s, classes,
		func(units int) layers.Layer { return array(units, s.scale, s.converters) },
		func(units int) layers.Layer { return array(units, s.last, 16) })...)
	if err := model.SetSeed(seed); err != nil {
		return nil, nil, err
	}
	var schedule optimizers.Schedule
	if s.decay != 1 {
		schedule = &optimizers.CosineDecay{InitialLearningRate: s.rate, DecaySteps: float64(steps), Alpha: 1 / s.decay}
	}
	var optimizer optimizers.Optimizer = &optimizers.SGD{LearningRate: s.rate, GlobalClipNorm: s.clip, Schedule: schedule}
	if s.optimizer == "adam" {
		optimizer = &optimizers.Adam{LearningRate: s.rate, GlobalClipNorm: s.clip, Schedule: schedule}
	}
	err := model.Compile(keras.CompileConfig{
		Loss:      &losses.SparseCategoricalCrossentropy{FromLogits: true},
		Optimizer: optimizer,
		Metrics:   []metrics.Metric{&metrics.SparseCategoricalAccuracy{Name: "accuracy"}},
		TrainStep: func(m *keras.Model, b keras.Batch) keras.StepLogs {
			predictions, loss := m.ComputeLoss(b, keras.Training)
			optimizers.Minimize(m.Optimizer(), loss, m.TrainableVariables())
			for _, a := range arrays {
				a.Program()
			}
			return m.ComputeMetrics(b, predictions)
		},
	})
	return model, arrays, err
}

// score is what is reported of a dataset: percent of the digits that are recognized, or
// bits per character of a text.
func (n network) score(l keras.Logs) float64 {
	if n.text {
		return l.Get("loss") / math.Ln2
	}
	return 100 * l.Get("accuracy")
}
