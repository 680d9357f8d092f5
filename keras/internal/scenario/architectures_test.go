package scenario

import (
	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/metrics"
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/layers/preprocessing"
	"github.com/mezzo-ml/mezzo/losses"
	"github.com/mezzo-ml/mezzo/optimizers"
)

// gradientAt is the derivative of a loss by a tensor.
func gradientAt(loss, at *keras.Tensor) *keras.Tensor { return tensor.GradientsAt(loss, at)[0] }

// lesson is what most architectures go through: two epochs, predictions and
// evaluations between them, and a comparison with a fresh copy at the end.
func (r *run) lesson(m *keras.Model, train, test *keras.Pipeline, rows int) {
	x := cut(test, rows).X
	r.predict(m, x)
	for range 2 {
		r.fit(m, train, keras.FitConfig{BatchSize: 16, ValidationData: test.Batch(rows)})
		r.predict(m, x)
		r.predict(m, x)
	}
	r.evaluate(m, test.Batch(rows))
	r.fresh(m, x)
}

// swish is a user-defined layer, with a weight, a statistic and a loss.
type swish struct {
	Units int

	layers.Base
	kernel, beta *layers.Weight
	seen         *layers.Weight
}

func (s *swish) Config() layers.Config { return layers.Config{Name: "swish"} }

func (s *swish) Build(in ...layers.Shape) (err error) {
	if s.kernel, err = s.AddWeight("kernel", layers.Shape{in[0][len(in[0])-1], s.Units}, "glorot_uniform", layers.Regularizer("l2(0.001)")); err != nil {
		return err
	}
	if s.beta, err = s.AddWeight("beta", layers.Shape{s.Units}, "ones", layers.KeepDType()); err != nil {
		return err
	}
	s.seen, err = s.AddWeight("seen", layers.Shape{s.Units}, "zeros", layers.NonTrainable(), layers.Statistic(), layers.KeepDType())
	return err
}

func (s *swish) Call(p layers.Pass, x *keras.Tensor) *keras.Tensor {
	y := x.MatMul(s.kernel.Value())
	wide := y.Cast(keras.Float32)
	if p.Training {
		s.seen.Assign(s.seen.Value().MulScalar(0.9).Add(wide.Mean(0).MulScalar(0.1)))
		p.AddLoss(wide.Square().Mean().MulScalar(0.01))
	}
	return wide.Mul(wide.Mul(s.beta.Value()).Sigmoid()).CastLike(y)
}

// architectures are about layers.
var architectures = []scenario{
	{"a layer of one's own", false, func(r *run) {
		m := compile(r.build(keras.Sequential(&swish{Units: units}, &layers.Dense{Units: classes}), features), adam(0.002))
		train, test := r.points(1, 48, classes, features), r.points(2, 31, classes, features)
		for range 2 {
			r.fit(m, train, keras.FitConfig{BatchSize: 16, ValidationData: test})
			r.honest(m, test, cut(test, 31).X)
		}
	}},
	{"batch normalization in both modes", false, func(r *run) {
		m := compile(r.build(keras.Sequential(
			&layers.Dense{Units: units, UseBias: new(false)}, &layers.BatchNormalization{Momentum: new(0.6)}, &layers.Activation{Activation: "relu"},
			&layers.Dense{Units: classes}), features), adam(0.003))
		train, test := r.points(1, 66, classes, features), r.points(2, 37, classes, features)
		r.lesson(m, train, test, 37)
		both := keras.Function(func(x *keras.Tensor) []*keras.Tensor {
			return []*keras.Tensor{m.Call(x), m.Call(x, keras.Training)}
		}, m)
		for range 2 {
			r.next()
			for i, y := range must(both.Call(background, cut(test, 16).X)) {
				r.tensor([]string{"inference", "training"}[i], y)
			}
		}
		r.weights(m)
	}},
	{"dropout, noise, layer normalization", false, func(r *run) {
		m := compile(r.build(keras.Sequential(
			&layers.GaussianNoise{Stddev: 0.1}, &layers.Dense{Units: units}, &layers.LayerNormalization{}, &layers.Activation{Activation: "gelu"},
			&layers.Dropout{Rate: 0.3}, &layers.Dense{Units: classes}), features), adam(0.002))
		r.lesson(m, r.points(1, 66, classes, features), r.points(2, 31, classes, features), 31)
	}},
	{"group, RMS, unit and spectral normalization", false, func(r *run) {
		m := compile(r.build(keras.Sequential(
			&layers.SpectralNormalization{Layer: &layers.Dense{Units: units}}, &layers.GroupNormalization{Groups: new(4)}, &layers.Activation{Activation: "silu"},
			&layers.Dense{Units: 40}, &layers.RMSNormalization{}, &layers.Dense{Units: 24, Activation: "elu"}, &layers.UnitNormalization{}, &layers.Dense{Units: classes}), features), adam(0.002))
		r.lesson(m, r.points(1, 48, classes, features), r.points(2, 19, classes, features), 19)
	}},
	{"regularizers and constraints", false, func(r *run) {
		m := compile(r.build(keras.Sequential(
			&layers.Dense{Units: units, Activation: "softplus", KernelRegularizer: "l2(0.01)", KernelConstraint: "max_norm(1.1)", ActivityRegularizer: "l1(0.001)"},
			&layers.Dense{Units: classes, KernelConstraint: "non_neg", BiasRegularizer: "l1_l2(0.01, 0.01)"}), features), adam(0.002))
		r.lesson(m, r.points(1, 48, classes, features), r.points(2, 31, classes, features), 31)
	}},
	{"softmax and probabilities", false, func(r *run) {
		m := r.build(keras.Sequential(&layers.Dense{Units: units, Activation: "selu"}, &layers.Dense{Units: classes, Activation: "softmax"}), features)
		check(m.Compile(keras.CompileConfig{Optimizer: adam(0.002), Loss: &losses.SparseCategoricalCrossentropy{}, Metrics: []metrics.Metric{&metrics.SparseCategoricalAccuracy{}}}))
		r.lesson(m, r.points(1, 48, classes, features), r.points(2, 31, classes, features), 31)
	}},
	{"regression with several targets", false, func(r *run) {
		m := compileMSE(r.build(keras.Sequential(&layers.Dense{Units: units, Activation: "tanh"}, &layers.Dense{Units: 3}), features),
			&optimizers.Nadam{LearningRate: 0.002})
		r.lesson(m, r.curve(1, 48, features, 3), r.curve(2, 31, features, 3), 31)
	}},
	{"pictures", false, func(r *run) {
		m := compile(r.build(keras.Sequential(
			&layers.Conv2D{Filters: 13, KernelSize: layers.PerAxis{3}, Activation: "relu"}, &layers.MaxPooling2D{PoolSize: layers.PerAxis{2}},
			&layers.Conv2D{Filters: 18, KernelSize: layers.PerAxis{3}, Padding: "same", UseBias: new(false)}, &layers.BatchNormalization{}, &layers.Activation{Activation: "relu"},
			&layers.Flatten{}, &layers.Dense{Units: 60, Activation: "relu"}, &layers.Dense{Units: 5}), 15, 13, 3), adam(0.003))
		r.lesson(m, r.points(1, 35, 5, 15, 13, 3), r.points(2, 17, 5, 15, 13, 3), 17)
	}},
	{"pictures of many channels", false, func(r *run) { // wide enough for Winograd's transforms, and few enough to keep them
		m := compile(r.build(keras.Sequential(
			&layers.Conv2D{Filters: 64, KernelSize: layers.PerAxis{3}, Padding: "same", Activation: "relu"},
			&layers.Conv2D{Filters: 48, KernelSize: layers.PerAxis{3}, Padding: "same", Activation: "relu"},
			&layers.GlobalAveragePooling2D{}, &layers.Dense{Units: 5}), 8, 4, 32), adam(0.003))
		r.lesson(m, r.points(1, 20, 5, 8, 4, 32), r.points(2, 7, 5, 8, 4, 32), 7)
	}},
	{"words of many channels", false, func(r *run) { // the same for windows of one axis
		m := compile(r.build(keras.Sequential(
			&layers.Conv1D{Filters: 64, KernelSize: layers.PerAxis{5}, Activation: "relu"},
			&layers.Conv1D{Filters: 48, KernelSize: layers.PerAxis{3}, Padding: "same", Activation: "relu"},
			&layers.GlobalMaxPooling1D{}, &layers.Dense{Units: 5}), 40, 32), adam(0.003))
		r.lesson(m, r.points(1, 20, 5, 40, 32), r.points(2, 7, 5, 40, 32), 7)
	}},
	{"depthwise and separable convolutions", false, func(r *run) {
		m := compile(r.build(keras.Sequential(
			&layers.DepthwiseConv2D{KernelSize: layers.PerAxis{3}, DepthMultiplier: new(2), Padding: "same", Activation: "relu"},
			&layers.SeparableConv2D{Filters: 20, KernelSize: layers.PerAxis{3}, Strides: layers.PerAxis{2}, Activation: "relu"},
			&layers.AveragePooling2D{PoolSize: layers.PerAxis{2}}, &layers.SpatialDropout2D{Rate: 0.2}, &layers.Flatten{}, &layers.Dense{Units: 5}), 13, 14, 9), adam(0.003))
		r.lesson(m, r.points(1, 35, 5, 13, 14, 9), r.points(2, 17, 5, 13, 14, 9), 17)
	}},
	{"an autoencoder of convolutions", false, func(r *run) {
		m := compileMSE(r.build(keras.Sequential(
			&layers.Conv2D{Filters: 12, KernelSize: layers.PerAxis{3}, Strides: layers.PerAxis{2}, Padding: "same", Activation: "elu"},
			&layers.Conv2DTranspose{Filters: 9, KernelSize: layers.PerAxis{3}, Strides: layers.PerAxis{2}, Padding: "same", Activation: "elu"},
			&layers.UpSampling2D{}, &layers.Conv2D{Filters: 2, KernelSize: layers.PerAxis{3}, Strides: layers.PerAxis{2}, Padding: "same"}), 10, 12, 2), adam(0.003))
		x := r.input(1, 32, 10, 12, 2)
		test := r.input(2, 17, 10, 12, 2)
		r.lesson(m, keras.FromTensors(x, x, nil), keras.FromTensors(test, test, nil), 17)
	}},
	{"sequences of convolutions", false, func(r *run) {
		m := compile(r.build(keras.Sequential(
			&layers.Conv1D{Filters: 24, KernelSize: layers.PerAxis{5}, Padding: "causal", DilationRate: layers.PerAxis{2}, Activation: "relu"},
			&layers.TimeDistributed{Layer: &layers.Dense{Units: 17, Activation: "tanh"}}, &layers.MaxPooling1D{PoolSize: layers.PerAxis{2}}, &layers.Conv1D{Filters: 21, KernelSize: layers.PerAxis{3}, Groups: new(1)},
			&layers.GlobalMaxPooling1D{}, &layers.Dense{Units: 5}), 19, 11), adam(0.003))
		r.lesson(m, r.points(1, 35, 5, 19, 11), r.points(2, 17, 5, 19, 11), 17)
	}},
	{"LSTM", true, func(r *run) {
		m := compile(r.build(keras.Sequential(&layers.LSTM{Units: 96}, &layers.Dense{Units: 5}), 5, 100), adam(0.003))
		r.lesson(m, r.points(1, 48, 5, 5, 100), r.points(2, 31, 5, 5, 100), 31)
	}},
	{"GRU in both directions", true, func(r *run) {
		m := compile(r.build(keras.Sequential(
			&layers.Bidirectional{Layer: &layers.GRU{Units: 60, ReturnSequences: true}}, &layers.GRU{Units: 96, ResetAfter: new(false)}, &layers.Dense{Units: 5}), 6, 20), adam(0.003))
		r.lesson(m, r.points(1, 32, 5, 6, 20), r.points(2, 17, 5, 6, 20), 17)
	}},
	{"a recurrent layer with its own dropout, and cells", true, func(r *run) {
		m := compile(r.build(keras.Sequential(
			&layers.SimpleRNN{Units: 31, ReturnSequences: true, Dropout: 0.2, RecurrentDropout: 0.1},
			&layers.RNN{Cell: &layers.StackedRNNCells{Cells: []layers.Layer{&layers.GRUCell{Units: 19}, &layers.LSTMCell{Units: 23}}}}, &layers.Dense{Units: 5}), 4, 13), adam(0.003))
		r.lesson(m, r.points(1, 24, 5, 4, 13), r.points(2, 9, 5, 4, 13), 9)
	}},
	{"a stateful LSTM", true, func(r *run) {
		lstm := &layers.LSTM{Units: 96, Stateful: true}
		m := compile(r.build(keras.Sequential(lstm, &layers.Dense{Units: 5}), 4, 100), adam(0.003))
		x := cut(r.points(2, 16, 5, 4, 100), 16).X
		for i, b := range batches(r.points(1, 64, 5, 4, 100).Batch(16)) {
			r.train(m, b)
			first := r.predict(m, x)
			r.predict(m, x)
			if i%2 == 1 {
				check(lstm.ResetState())
			}
			_ = first
		}
		check(lstm.ResetState())
		y := r.predict(m, x)
		rewrite(m)
		check(lstm.ResetState())
		r.same("prediction before and after the weights' own bytes were set", y, r.predict(m, x))
	}},
	{"texts with padding", true, func(r *run) {
		m := compile(r.buildOn(keras.Sequential(
			&layers.Embedding{InputDim: 150, OutputDim: 120, MaskZero: true}, &layers.LSTM{Units: 80, ReturnSequences: true}, &layers.GRU{Units: 33}, &layers.Dense{Units: 4}),
			keras.InputOf(keras.Int32, 6)), adam(0.005))
		r.lesson(m, texts(1, 40, 6, 150, 4), texts(2, 17, 6, 150, 4), 17)
	}},
	{"embeddings of which few rows move", false, func(r *run) {
		for _, o := range []optimizers.Optimizer{&optimizers.SGD{LearningRate: 2}, &optimizers.Adagrad{LearningRate: 0.1}, adam(0.01)} {
			m := compile(r.buildOn(keras.Sequential(
				&layers.Embedding{InputDim: 400, OutputDim: 50}, &layers.GlobalAveragePooling1D{}, &layers.Dense{Units: 4}), keras.InputOf(keras.Int32, 5)), o)
			r.lesson(m, texts(1, 33, 5, 60, 4), texts(2, 17, 5, 60, 4), 17)
		}
	}},
	{"a transformer", false, func(r *run) {
		in := keras.InputOf(keras.Int32, 7)
		x := keras.Apply(&layers.Embedding{InputDim: 60, OutputDim: 48}, in)
		a := keras.Apply(&layers.MultiHeadAttention{NumHeads: 3, KeyDim: 16, UseCausalMask: true, Dropout: 0.1}, x, x)
		x = keras.Apply(&layers.LayerNormalization{}, keras.Apply(&layers.Add{}, x, a))
		f := keras.Apply(&layers.Dense{Units: 48}, keras.Apply(&layers.Dense{Units: 720, Activation: "gelu"}, x))
		x = keras.Apply(&layers.LayerNormalization{}, keras.Apply(&layers.Add{}, x, keras.Apply(&layers.Dropout{Rate: 0.1}, f)))
		m := compile(r.model(in, keras.Apply(&layers.Dense{Units: 4}, keras.Apply(&layers.GlobalAveragePooling1D{}, x))), adam(0.002))
		r.lesson(m, texts(1, 33, 7, 60, 4), texts(2, 17, 7, 60, 4), 17)
	}},
	{"predictions of a transformer", false, func(r *run) { // of one sequence and of several
		in := keras.InputOf(keras.Int32, 9)
		x := keras.Apply(&layers.Embedding{InputDim: 60, OutputDim: 64}, in)
		y := keras.Apply(&layers.LayerNormalization{}, x)
		x = keras.Apply(&layers.Add{}, x, keras.Apply(&layers.MultiHeadAttention{NumHeads: 2, KeyDim: 32}, y, y))
		y = keras.Apply(&layers.Dense{Units: 128, Activation: "gelu"}, keras.Apply(&layers.LayerNormalization{}, x))
		x = keras.Apply(&layers.Add{}, keras.Apply(&layers.Dense{Units: 64}, y), x)
		m := compile(r.model(in, keras.Apply(&layers.Dense{Units: 4, Activation: "gelu"}, x)), adam(0.002))
		for _, n := range []int{1, 2, 9} {
			tokens := make([]int32, 9*n)
			for i := range tokens {
				tokens[i] = int32(7 * i % 60)
			}
			r.predict(m, keras.NewTensor(tokens, n, 9))
			r.predict(m, keras.NewTensor(tokens, n, 9))
		}
	}},
	{"attention over a memory", false, func(r *run) {
		q, v := keras.Input(6, 40), keras.Input(9, 40)
		a := keras.Apply(&layers.Attention{UseScale: true}, keras.Apply(&layers.Dense{Units: 24}, q), keras.Apply(&layers.Dense{Units: 24}, v))
		b := keras.Apply(&layers.AdditiveAttention{}, q, v)
		c := keras.Apply(&layers.GroupQueryAttention{HeadDim: 8, NumQueryHeads: 4, NumKeyValueHeads: 2}, q, v)
		y := keras.Apply(&layers.Flatten{}, keras.Apply(&layers.Concatenate{}, a, b, c))
		m := compile(r.model(keras.Tuple(q, v), keras.Apply(&layers.Dense{Units: 5}, y)), adam(0.002))
		data := func(seed uint64, n int) *keras.Pipeline {
			x, labels := r.arrays(seed, n, 5, 6, 40)
			return keras.FromTensors(keras.Tuple(x, r.input(seed+50, n, 9, 40)), labels, nil)
		}
		r.lesson(m, data(1, 33), data(2, 17), 17)
	}},
	{"a layer used twice", false, func(r *run) {
		a, b := keras.Input(features), keras.Input(features)
		shared := &layers.Dense{Units: units, Activation: "relu"}
		x, y := keras.Apply(shared, a), keras.Apply(shared, b)
		m := compile(r.model(keras.Tuple(a, b), keras.Apply(&layers.Dense{Units: classes}, keras.Apply(&layers.Concatenate{}, keras.Apply(&layers.Subtract{}, x, y), keras.Apply(&layers.Multiply{}, x, y)))), adam(0.001))
		data := func(seed uint64, n int) *keras.Pipeline {
			x, labels := r.arrays(seed, n, classes, features)
			return keras.FromTensors(keras.Tuple(x, r.input(seed+50, n, features)), labels, nil)
		}
		r.lesson(m, data(1, 48), data(2, 31), 31)
	}},
	{"a model within a model, a model used twice", false, func(r *run) {
		part := keras.Input(features)
		inner := must(keras.NewModel(part, keras.Apply(&layers.BatchNormalization{}, keras.Apply(&layers.Dense{Units: units, Activation: "relu"}, part)))).Named("inner")
		a := keras.Input(features)
		x := keras.Apply(inner.Layer(), a)
		y := keras.Apply(inner.Layer(), keras.Apply(&preprocessing.Rescaling{Scale: 0.5}, a))
		m := compile(r.model(a, keras.Apply(&layers.Dense{Units: classes}, keras.Apply(&layers.Add{}, x, y))), adam(0.002))
		in := r.input(3, 31, features)
		train, test := r.points(1, 48, classes, features), r.points(2, 31, classes, features)
		for range 2 {
			r.fit(m, train, keras.FitConfig{BatchSize: 16, ValidationData: test})
			r.predict(inner, in)
			r.predict(inner, in)
			r.predict(m, in)
		}
		r.fresh(inner, in)
		r.honest(m, test, in)
	}},
	{"an encoder shared by two models", false, func(r *run) {
		encoder := r.build(keras.Sequential(&layers.Dense{Units: units, Activation: "relu"}).Named("encoder"), features)
		head := func(n int) *keras.Model {
			in := keras.Input(features)
			return r.model(in, keras.Apply(&layers.Dense{Units: n}, keras.Apply(encoder.Layer(), in)))
		}
		a, b := compile(head(classes), adam(0.002)), compileMSE(head(2), adam(0.002))
		x := r.input(3, 31, features)
		for range 3 {
			r.fit(a, r.points(1, 48, classes, features), keras.FitConfig{BatchSize: 24})
			r.predict(b, x)
			r.predict(encoder, x)
			r.fit(b, r.curve(2, 48, features, 2), keras.FitConfig{BatchSize: 24})
			r.predict(a, x)
			r.predict(encoder, x)
		}
		r.fresh(encoder, x)
	}},
	{"a clone and its original", false, func(r *run) {
		a := compile(r.mlp(), adam(0.002))
		x, train := r.input(3, 31, features), r.points(1, 48, classes, features)
		for range 2 {
			r.fit(a, train, keras.FitConfig{})
			b := must(a.Clone(""))
			check(b.SetWeights(must(a.GetWeights())))
			compile(b, adam(0.01))
			y := r.predict(a, x)
			r.same("prediction of a clone with its original's weights", y, r.predict(b, x))
			r.fit(b, train, keras.FitConfig{})
			r.predict(b, x)
			r.same("prediction of the original after its clone was trained", y, r.predict(a, x))
			a = b
		}
	}},
	{"another policy in between", false, func(r *run) {
		m := compile(r.mlp(), adam(0.002))
		x, train, test := r.input(3, 31, features), r.points(1, 48, classes, features), r.points(2, 31, classes, features)
		for _, p := range []string{"mixed_bfloat16", "float32", "mixed_float16", "float32"} {
			r.fit(m, train, keras.FitConfig{ValidationData: test.Batch(31)})
			next := must(m.Clone(p))
			check(next.SetWeights(must(m.GetWeights())))
			m = compile(next, adam(0.002))
			r.predict(m, x)
			r.evaluate(m, test.Batch(31))
		}
		r.fresh(m, x)
	}},
	{"several outputs", false, func(r *run) {
		in := keras.Input(features)
		x := keras.Apply(&layers.Dense{Units: units, Activation: "relu"}, in)
		m := r.model(in, keras.Tuple(keras.Apply(&layers.Dense{Units: classes, Name: "class"}, x), keras.Apply(&layers.Dense{Units: 2, Name: "place"}, x)))
		check(m.Compile(keras.CompileConfig{Optimizer: adam(0.002), LossWeights: []float64{1, 0.25},
			Losses:        []losses.Loss{&losses.SparseCategoricalCrossentropy{FromLogits: true}, &losses.Huber{}},
			OutputMetrics: [][]metrics.Metric{{&metrics.SparseCategoricalAccuracy{}}, {&metrics.MeanAbsoluteError{}}}}))
		data := func(seed uint64, n int) *keras.Pipeline {
			x, labels := r.arrays(seed, n, classes, features)
			return keras.FromTensors(x, keras.Tuple(labels, keras.NewTensor(random(seed, 2*n), n, 2)), nil)
		}
		r.lesson(m, data(1, 48), data(2, 31), 31)
	}},
	{"predictions of separable convolutions", false, func(r *run) { // of one image, of few and of many
		m := compile(r.build(keras.Sequential(
			&layers.Conv2D{Filters: 16, KernelSize: layers.PerAxis{3}, Strides: layers.PerAxis{2}, Padding: "same", Activation: "relu"},
			&layers.DepthwiseConv2D{KernelSize: layers.PerAxis{3}, Padding: "same", UseBias: new(false)}, &layers.BatchNormalization{}, &layers.Activation{Activation: "relu"},
			&layers.Conv2D{Filters: 32, KernelSize: layers.PerAxis{1}, Activation: "relu"}, &layers.SeparableConv2D{Filters: 64, KernelSize: layers.PerAxis{3}, Padding: "same"},
			&layers.GlobalAveragePooling2D{}, &layers.Dense{Units: 5}), 26, 21, 3), adam(0.003))
		r.fit(m, r.points(1, 12, 5, 26, 21, 3), keras.FitConfig{BatchSize: 6})
		for _, n := range []int{1, 2, 9} {
			x := r.input(2, n, 26, 21, 3)
			r.predict(m, x)
			r.predict(m, x)
		}
	}},
	{"computing again instead of keeping", false, func(r *run) {
		m := compile(r.build(keras.Sequential(
			layers.Remat(&layers.Dense{Units: units, Activation: "gelu"}), layers.Remat(&layers.Dense{Units: units, Activation: "silu"}), &layers.Dropout{Rate: 0.2}, &layers.Dense{Units: classes}), features), adam(0.002))
		r.lesson(m, r.points(1, 48, classes, features), r.points(2, 31, classes, features), 31)
	}},
	{"optimizers", false, func(r *run) {
		train, test := r.points(1, 32, classes, features), r.points(2, 31, classes, features).Batch(31)
		for _, o := range []optimizers.Optimizer{
			&optimizers.SGD{LearningRate: 0.05}, &optimizers.SGD{LearningRate: 0.02, Momentum: 0.9}, &optimizers.RMSprop{Momentum: 0.5, Centered: true},
			&optimizers.Adagrad{LearningRate: 0.02}, &optimizers.Adadelta{LearningRate: 1}, &optimizers.Adam{AMSGrad: true}, &optimizers.AdamW{},
			&optimizers.Adamax{LearningRate: 0.005}, &optimizers.Nadam{}, &optimizers.Ftrl{LearningRate: 0.1}, &optimizers.Lion{LearningRate: 0.0003},
			&optimizers.Lamb{LearningRate: 0.005}, &optimizers.Adafactor{LearningRate: 0.01}, &optimizers.Muon{LearningRate: 0.002},
		} {
			m := compile(r.mlp(), o)
			r.fit(m, train, keras.FitConfig{BatchSize: 16})
			r.evaluate(m, test)
			r.fit(m, train, keras.FitConfig{BatchSize: 16})
			r.evaluate(m, test)
		}
	}},
}
