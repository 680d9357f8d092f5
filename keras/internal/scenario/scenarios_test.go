package scenario

import (
	"context"
	"errors"
	"math"
	"slices"

	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/callbacks"
	"github.com/mezzo-ml/mezzo/keras/checkpoint"
	"github.com/mezzo-ml/mezzo/keras/metrics"
	"github.com/mezzo-ml/mezzo/keras/saving"
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/losses"
	"github.com/mezzo-ml/mezzo/optimizers"
)

// scenario is a whole program. Sizes are odd, so that loops have tails. Some
// layers have more than 64 KiB of weights also in 16 bits (300×116 = 34,800
// elements): smaller ones are not kept packed from run to run.
type scenario struct {
	name      string
	recurrent bool // whether it has recurrent layers
	run       func(r *run)
}

const (
	features = 300
	units    = 116
	classes  = 7
)

var scenarios = slices.Concat(trainings, wholeFiles, customLoops, architectures)

// mlp is a classifier with a wide layer and a narrow one.
func (r *run) mlp() *keras.Model {
	return r.build(keras.Sequential(
		&layers.Dense{Units: units, Activation: "relu"},
		&layers.Dense{Units: classes},
	), features)
}

func adam(rate float64) *optimizers.Adam { return &optimizers.Adam{LearningRate: rate} }

// trainings are about what Fit and its relatives do in turn.
var trainings = []scenario{
	{"fit with validation, three epochs", false, func(r *run) {
		m := compile(r.mlp(), adam(0.002))
		r.fit(m, r.points(1, 83, classes, features), keras.FitConfig{BatchSize: 32, Epochs: 3, ValidationData: r.points(2, 61, classes, features)})
		r.predict(m, r.input(3, 31, features))
	}},
	{"fit and evaluate, three times", false, func(r *run) {
		m := compile(r.mlp(), adam(0.002))
		train, test := r.points(1, 64, classes, features), r.points(2, 93, classes, features).Batch(31)
		for range 3 {
			r.fit(m, train, keras.FitConfig{BatchSize: 32})
			r.evaluate(m, test)
			r.honest(m, test, r.input(3, 17, features))
		}
	}},
	{"fit and evaluate, nothing written in between", false, func(r *run) {
		m := compile(r.mlp(), &optimizers.RMSprop{LearningRate: 0.001})
		train, test := r.points(1, 64, classes, features), r.points(2, 62, classes, features).Batch(31)
		for range 3 {
			r.fit(m, train, keras.FitConfig{BatchSize: 32})
			r.evaluate(m, test)
			r.evaluate(m, test)
		}
	}},
	{"predict between steps", false, func(r *run) {
		m := compile(r.mlp(), adam(0.002))
		x := r.input(3, 33, features)
		for i, b := range batches(r.points(1, 96, classes, features).Batch(16)) {
			r.train(m, b)
			if i%3 > 0 {
				r.predict(m, x)
			}
		}
		r.fresh(m, x)
	}},
	{"test on batch between steps", false, func(r *run) {
		m := compile(r.mlp(), &optimizers.SGD{LearningRate: 0.05, Momentum: 0.9, Nesterov: true})
		test := cut(r.points(2, 25, classes, features), 25)
		for _, b := range batches(r.points(1, 80, classes, features).Batch(16)) {
			r.train(m, b)
			for _, l := range must(m.TestOnBatch(background, test)) {
				l.Name = "test " + l.Name
				r.log(l)
			}
		}
	}},
	{"batches of 1 to 257 rows", false, func(r *run) {
		m := compile(r.mlp(), adam(0.001))
		all := r.points(1, 257, classes, features)
		for _, n := range []int{31, 1, 16, 7, 128, 257, 16, 256, 7, 31, 1} {
			r.train(m, cut(all, n))
			r.evaluate(m, all.Take(96).Batch(max(n/2, 1)))
			r.predict(m, cut(all, n).X)
		}
	}},
	{"predictions of 1 to 257 rows", false, func(r *run) {
		m := compile(r.mlp(), adam(0.001))
		all := r.points(1, 257, classes, features)
		for range 3 {
			r.train(m, cut(all, 64))
			for _, n := range []int{257, 16, 17, 256, 1, 128, 31} {
				r.predict(m, cut(all, n).X)
			}
		}
		r.fresh(m, cut(all, 31).X)
	}},
	{"learning rate changed", false, func(r *run) {
		m := compile(r.mlp(), &optimizers.SGD{LearningRate: 0.1})
		train, test := r.points(1, 64, classes, features), r.points(2, 31, classes, features)
		r.fit(m, train, keras.FitConfig{ValidationData: test})
		for _, rate := range []float64{0.01, 0.3} {
			check(optimizers.SetLearningRate(m.Optimizer(), rate))
			r.value("rate", must(optimizers.CurrentLearningRate(m.Optimizer())))
			r.fit(m, train, keras.FitConfig{ValidationData: test})
		}
		r.fit(m, train, keras.FitConfig{Epochs: 3, ValidationData: test, Callbacks: callbacks.List(
			&callbacks.LearningRateScheduler{Schedule: func(epoch int, rate float64) float64 { return rate / float64(1+epoch) }})})
	}},
	{"schedule and clipping", false, func(r *run) {
		m := compile(r.mlp(), &optimizers.Adam{GlobalClipNorm: 0.5,
			Schedule: &optimizers.CosineDecay{InitialLearningRate: 0.004, DecaySteps: 7}})
		r.fit(m, r.points(1, 71, classes, features), keras.FitConfig{BatchSize: 20, Epochs: 2, ValidationData: r.points(2, 40, classes, features)})
		r.evaluate(m, r.points(2, 40, classes, features).Batch(20))
	}},
	{"reduce the rate on a plateau", false, func(r *run) {
		m := compile(r.mlp(), &optimizers.SGD{LearningRate: 0.05})
		r.fit(m, r.points(1, 64, classes, features), keras.FitConfig{Epochs: 4, ValidationData: r.points(2, 48, classes, features), Callbacks: callbacks.List(
			&callbacks.ReduceLROnPlateau{Patience: 1, MinDelta: new(0.8), Factor: 0.5})})
	}},
	{"accumulated gradients", false, func(r *run) {
		m := compile(r.mlp(), &optimizers.Adam{LearningRate: 0.002, GradientAccumulationSteps: 3})
		test := r.points(2, 37, classes, features).Batch(37)
		for i, b := range batches(r.points(1, 128, classes, features).Batch(16)) {
			r.train(m, b)
			if i%2 == 1 { // also within a window
				r.evaluate(m, test)
			}
		}
		r.fit(m, r.points(1, 96, classes, features), keras.FitConfig{BatchSize: 16, Epochs: 2, ValidationData: r.points(2, 37, classes, features)})
	}},
	{"skipped steps", false, func(r *run) {
		o := &optimizers.LossScaleOptimizer{Inner: adam(0.002), InitialScale: 1024, DynamicGrowthSteps: 2}
		m := r.build(keras.Sequential(&layers.Dense{Units: units, Activation: "relu"}, &layers.BatchNormalization{}, &layers.Dense{Units: classes}), features)
		compile(m, o)
		test := r.points(2, 45, classes, features).Batch(45)
		for i, b := range batches(r.points(1, 144, classes, features).Batch(24)) {
			if i == 1 || i == 3 {
				before := bytesOf(m, o.Inner)
				b.X = infinite(b.X)
				r.next()
				check(m.TrainStep(background, b))
				r.same("variables before and after a skipped step", before, bytesOf(m, o.Inner))
			} else {
				r.train(m, b)
			}
			s := must(m.StepResult())
			r.exact("step", float64(s.AppliedSteps), float64(s.SkippedSteps), s.LossScale)
			r.evaluate(m, test)
		}
		r.weights(m)
		r.state(o)
	}},
	{"batches that are not finite, skipped or refused", false, func(r *run) {
		noise := r.noise
		r.noise = nil // the same first weights in all
		made := func(action keras.NonFinite) *keras.Model {
			m := r.build(keras.Sequential(&layers.Dense{Units: units, Activation: "relu"}, &layers.BatchNormalization{},
				&layers.Dropout{Rate: 0.1, Seed: new(int64(2))}, &layers.Dense{Units: classes}), features)
			check(m.Compile(keras.CompileConfig{
				Optimizer: &optimizers.Adam{LearningRate: 0.002, UseEMA: true, EMAMomentum: 0.9},
				Loss:      &losses.SparseCategoricalCrossentropy{FromLogits: true},
				NonFinite: action,
			}))
			return m
		}
		whole, skips, fails := made(keras.NonFiniteApply), made(keras.NonFiniteSkip), made(keras.NonFiniteError)
		r.noise = noise
		test := r.points(2, 45, classes, features).Batch(45)
		for i, b := range batches(r.points(1, 144, classes, features).Batch(24)) {
			switch i {
			case 2:
				b.X = infinite(b.X)
			case 4:
				b.Weight = keras.NewTensor(make([]float32, b.X.Dim(0)), b.X.Dim(0)).MulScalar(math.NaN())
			default:
				for _, m := range []*keras.Model{whole, skips, fails} {
					r.train(m, b)
				}
				continue
			}
			before := bytesOf(skips, skips.Optimizer())
			check(skips.TrainStep(background, b))
			r.same("variables before and after a step that is skipped", before, bytesOf(skips, skips.Optimizer()))
			before = bytesOf(fails, fails.Optimizer())
			r.truth("a step that is not finite is an error", fails.TrainStep(background, b) != nil)
			r.same("variables before and after a step that is refused", before, bytesOf(fails, fails.Optimizer()))
			r.exact("skipped", float64(must(skips.StepResult()).SkippedSteps-must(whole.StepResult()).SkippedSteps))
			r.evaluate(skips, test)
		}
		want := bytesOf(whole, whole.Optimizer())
		r.same("variables of a training that skipped batches and of one that never saw them", want, bytesOf(skips, skips.Optimizer()))
		r.same("variables of a training that refused batches and of one that never saw them", want, bytesOf(fails, fails.Optimizer()))
		r.weights(skips)
		r.honest(skips, test, r.input(3, 20, features))
	}},
	{"moving averages swapped in and out", false, func(r *run) {
		m := compile(r.mlp(), &optimizers.Adam{LearningRate: 0.003, UseEMA: true, EMAMomentum: 0.7})
		train, test := r.points(1, 64, classes, features), r.points(2, 55, classes, features).Batch(55)
		for range 3 {
			r.fit(m, train, keras.FitConfig{})
			before := r.evaluate(m, test)
			r.evaluate(m, test)
			check(optimizers.SwapEMA(m.Optimizer()))
			r.evaluate(m, test)
			r.evaluate(m, test)
			check(optimizers.SwapEMA(m.Optimizer()))
			r.sameNumbers("evaluation before and after the averages were swapped in and out", numbers(before), numbers(r.evaluate(m, test)))
		}
		check(optimizers.FinalizeVariables(m.Optimizer()))
		r.evaluate(m, test)
		r.honest(m, test, r.input(3, 19, features))
	}},
	{"averages that overwrite the weights", false, func(r *run) {
		m := compile(r.mlp(), &optimizers.SGD{LearningRate: 0.05, UseEMA: true, EMAMomentum: 0.8, EMAOverwriteFrequency: 3})
		r.fit(m, r.points(1, 80, classes, features), keras.FitConfig{BatchSize: 16, Epochs: 2, ValidationData: r.points(2, 33, classes, features),
			Callbacks: callbacks.List(&callbacks.SwapEMAWeights{})})
		r.predict(m, r.input(3, 33, features))
	}},
	{"freeze, fit, unfreeze, fit", false, func(r *run) {
		base := keras.Sequential(&layers.Dense{Units: units, Activation: "tanh"}, &layers.BatchNormalization{}).Named("base")
		m := r.build(keras.Sequential(base.Layer(), &layers.Dense{Units: classes}), features)
		train, test, x := r.points(1, 64, classes, features), r.points(2, 48, classes, features).Batch(24), r.input(3, 21, features)
		base.SetTrainable(false)
		compile(m, adam(0.01))
		before := bytesOf(base)
		r.fit(m, train, keras.FitConfig{Epochs: 2, ValidationData: test})
		r.same("the frozen part before and after fit", before, bytesOf(base))
		r.predict(base, x)
		base.SetTrainable(true)
		compile(m, adam(0.001))
		r.fit(m, train, keras.FitConfig{Epochs: 2, ValidationData: test})
		r.predict(base, x)
		base.SetTrainable(false)
		compile(m, adam(0.001))
		r.fit(m, train, keras.FitConfig{ValidationData: test})
		r.honest(m, test, x)
	}},
	{"early stopping restores the best weights", false, func(r *run) {
		m := compile(r.mlp(), &optimizers.SGD{LearningRate: 0.3})
		stop := &callbacks.EarlyStopping{Patience: 1, MinDelta: 0.3, RestoreBestWeights: true}
		test := r.points(2, 62, classes, features)
		h := r.fit(m, r.points(1, 64, classes, features), keras.FitConfig{Epochs: 6, ValidationData: test.Batch(31), Callbacks: callbacks.List(stop)})
		r.exact("best epoch", float64(stop.BestEpoch))
		best := must(m.Evaluate(background, test.Batch(31)))
		r.sameNumbers("val_loss of the best epoch and loss of the restored weights", h.Get("val_loss")[stop.BestEpoch:stop.BestEpoch+1], []float64{best.Get("loss")})
		r.evaluate(m, test.Batch(31))
	}},
	{"class weights and sample weights", false, func(r *run) {
		m := r.mlp()
		check(m.Compile(keras.CompileConfig{Optimizer: adam(0.002), Loss: &losses.SparseCategoricalCrossentropy{FromLogits: true}}))
		x, y := r.arrays(1, 67, classes, features)
		w := random(5, 67)
		for i := range w {
			w[i] *= w[i]
		}
		d := keras.FromTensors(x, y, keras.NewTensor(w, 67))
		for range 2 {
			r.fit(m, d, keras.FitConfig{BatchSize: 16, Epochs: 2, ValidationSplit: 0.3})
			r.evaluate(m, d.Batch(67))
			r.fit(m, keras.FromTensors(x, y, nil), keras.FitConfig{BatchSize: 16, ClassWeight: map[int]float64{0: 0.25, 3: 2}, ValidationSplit: 0.3})
		}
	}},
	{"weights set between evaluations", false, func(r *run) {
		m := compile(r.mlp(), adam(0.002))
		test, x := r.points(2, 40, classes, features).Batch(20), r.input(3, 40, features)
		first := must(m.GetWeights())
		logs := r.evaluate(m, test)
		r.evaluate(m, test)
		r.fit(m, r.points(1, 64, classes, features), keras.FitConfig{})
		trained := must(m.GetWeights())
		y := r.predict(m, x)
		for range 2 {
			check(m.SetWeights(first))
			r.sameNumbers("evaluation with the first weights set again", numbers(logs), numbers(r.evaluate(m, test)))
			r.evaluate(m, test)
			check(m.SetWeights(trained))
			r.same("prediction with the trained weights set again", y, r.predict(m, x))
		}
		check(m.SetSeed(5))
		r.evaluate(m, test)
		for _, w := range m.Weights() {
			check(w.Reset())
		}
		r.evaluate(m, test)
	}},
	{"two models of one structure in turn", false, func(r *run) {
		a, b := compile(r.mlp(), adam(0.002)), compile(r.mlp(), adam(0.002))
		check(b.SetSeed(3))
		r.built(b)
		x := r.input(3, 31, features)
		for _, d := range batches(r.points(1, 96, classes, features).Batch(32)) {
			r.train(a, d)
			before := r.predict(b, x)
			r.predict(a, x)
			r.same("prediction of a model while another one trains", before, r.predict(b, x))
			r.train(b, d)
		}
		r.fresh(a, x)
		r.fresh(b, x)
	}},
	{"results kept while others are released", false, func(r *run) {
		m := compile(r.mlp(), adam(0.002))
		x, b := r.input(3, 31, features), cut(r.points(1, 32, classes, features), 32)
		y := must(m.Predict(background, x))
		want := must(y.Bytes())
		for range 3 {
			z := must(m.Predict(background, x))
			r.tensor("result", z)
			z.Release()
			r.train(m, b)
			r.same("a result kept over later runs", want, must(y.Bytes()))
		}
	}},
	{"interrupted and gone on with", false, func(r *run) {
		m := compile(r.mlp(), adam(0.002))
		train, test := r.points(1, 96, classes, features), r.points(2, 31, classes, features).Batch(31)
		ctx, cancel := context.WithCancel(background)
		_, err := m.Fit(ctx, train, keras.FitConfig{BatchSize: 16, Epochs: 4, Verbose: keras.VerbositySilent, ValidationData: test, Callbacks: []keras.Callback{{
			BatchEnd: func(_ context.Context, k *keras.Run) error {
				if k.Epoch == 1 && k.Step == 3 {
					cancel()
				}
				return nil
			}}}})
		r.truth("Fit reports that its context ended", errors.Is(err, context.Canceled))
		r.evaluate(m, test)
		r.fit(m, train, keras.FitConfig{BatchSize: 16, ValidationData: test})
		r.honest(m, test, r.input(3, 20, features))
	}},
	{"shuffled, repeated and prefetched data", false, func(r *run) {
		m := compile(r.mlp(), adam(0.002))
		d := r.points(1, 75, classes, features).Shuffle(30, 4).Batch(16).Prefetch(2)
		r.fit(m, d, keras.FitConfig{Epochs: 4, StepsPerEpoch: 3, ValidationData: r.points(2, 33, classes, features).Batch(8), ValidationSteps: 3, ValidationFreq: 2})
		r.predict(m, r.input(3, 33, features))
	}},
}

// infinite returns x with infinity as its first element.
func infinite(x *keras.Tensor) *keras.Tensor {
	v := must(x.Values())
	v[0] = float32(math.Inf(1))
	return keras.NewTensor(v, x.Shape()...)
}

// wholeFiles are about what goes through files.
var wholeFiles = []scenario{
	{"weights saved and loaded in between", false, func(r *run) {
		m := compile(r.mlp(), adam(0.002))
		train, test, x := r.points(1, 64, classes, features), r.points(2, 50, classes, features).Batch(25), r.input(3, 29, features)
		for i, f := range []struct {
			name       string
			save, load func(string, *keras.Model) error
		}{
			{"w.ckpt", checkpoint.SaveWeights, checkpoint.LoadWeights},
			{"w.safetensors", saving.SaveSafetensors, saving.LoadSafetensors},
			{"w.npz", saving.SaveNPZ, saving.LoadNPZ},
			{"w.weights.h5", func(p string, m *keras.Model) error { return saving.SaveWeights(p, m) }, func(p string, m *keras.Model) error { return saving.LoadWeights(p, m) }},
		} {
			y := r.predict(m, x)
			r.predict(m, x)
			check(f.save(r.file(f.name), m))
			r.fit(m, train, keras.FitConfig{Epochs: 1 + i%2})
			r.evaluate(m, test)
			check(f.load(r.file(f.name), m))
			r.same("prediction when saved and when loaded, "+f.name, y, r.predict(m, x))
			r.fit(m, train, keras.FitConfig{})
		}
		r.fresh(m, x)
	}},
	{"a whole model saved, loaded, trained on", false, func(r *run) {
		m := compile(r.mlp(), adam(0.002))
		train, test, x := r.points(1, 64, classes, features), r.points(2, 50, classes, features).Batch(25), r.input(3, 29, features)
		for range 2 {
			r.fit(m, train, keras.FitConfig{ValidationData: test})
			y := r.predict(m, x)
			check(saving.Save(r.file("m.keras"), m))
			copied := compile(must(saving.Load(r.file("m.keras"))), adam(0.002))
			r.same("prediction of a model and of what was loaded", y, r.predict(copied, x))
			r.fit(m, train, keras.FitConfig{})
			r.same("prediction of a copy after the original was trained on", y, r.predict(copied, x))
			m = copied
		}
	}},
	{"resumed and uninterrupted", false, func(r *run) {
		make := func() *keras.Model {
			return compile(r.mlp(), &optimizers.Adam{LearningRate: 0.002, UseEMA: true, EMAMomentum: 0.9})
		}
		train, test, x := r.points(1, 70, classes, features), r.points(2, 31, classes, features), r.input(3, 31, features)
		config := keras.FitConfig{BatchSize: 16, Epochs: 3, ValidationData: test, Seed: 5}
		noise := r.noise
		r.noise = nil // the same first weights in both
		whole := make()
		r.fit(whole, train, config)
		config.Checkpoint, config.SaveEvery, config.Epochs = &checkpoint.Directory{Path: r.file("state")}, 2, 1
		first := make()
		r.fit(first, train, config)
		r.evaluate(first, test.Batch(31))
		config.Epochs = 3
		second := make()
		r.noise = noise
		r.predict(second, x)
		r.predict(second, x)
		r.fit(second, train, config)
		r.same("weights of a resumed training and of one that was not interrupted", bytesOf(whole, whole.Optimizer()), bytesOf(second, second.Optimizer()))
		r.same("their predictions", r.predict(whole, x), r.predict(second, x))
	}},
	{"the best checkpoint", false, func(r *run) {
		m := compile(r.mlp(), &optimizers.SGD{LearningRate: 0.2})
		test := r.points(2, 62, classes, features).Batch(31)
		d := &checkpoint.Directory{Path: r.file("state"), Best: "val_loss"}
		h := r.fit(m, r.points(1, 64, classes, features), keras.FitConfig{Epochs: 4, ValidationData: test, Checkpoint: d, Callbacks: callbacks.List(
			&callbacks.ModelCheckpoint{File: r.file("best.ckpt"), SaveBestOnly: true})})
		for _, file := range []string{d.BestFile(h), r.file("best.ckpt")} {
			check(checkpoint.LoadWeights(file, m))
			r.sameNumbers("least val_loss and loss of the best checkpoint", []float64{slices.Min(h.Get("val_loss"))},
				[]float64{r.evaluate(m, test).Get("loss")})
		}
	}},
	{"optimizer saved and loaded", false, func(r *run) {
		m, o := r.mlp(), adam(0.002)
		compile(m, o)
		train, x := r.points(1, 64, classes, features), r.input(3, 31, features)
		r.fit(m, train, keras.FitConfig{Seed: 1})
		check(checkpoint.SaveVariables(r.file("all.ckpt"), m, m.Optimizer()))
		r.fit(m, train, keras.FitConfig{Seed: 2})
		y := r.predict(m, x)
		check(checkpoint.LoadVariables(r.file("all.ckpt"), m, m.Optimizer()))
		r.fit(m, train, keras.FitConfig{Seed: 2})
		r.same("prediction after an epoch and after the same epoch from a file", y, r.predict(m, x))
	}},
}

// customLoops are about Functions.
var customLoops = []scenario{
	{"two functions, one trains", false, func(r *run) {
		m, o := r.mlp(), r.scaled(adam(0.002))
		loss := &losses.SparseCategoricalCrossentropy{FromLogits: true}
		train := keras.Function(func(b keras.Batch) *keras.Tensor {
			l := loss.Call(b.Y, m.Call(b.X, keras.Training))
			update(o, l, m.TrainableVariables())
			return l
		}, m, o)
		judge := keras.Function(func(b keras.Batch) *keras.Tensor { return loss.Call(b.Y, m.Call(b.X)) })
		test := cut(r.points(2, 43, classes, features), 43)
		for i, b := range batches(r.points(1, 96, classes, features).Batch(16)) {
			r.next()
			r.value("loss", must(must(train.Call(background, b)).Item()))
			for range i % 3 {
				r.value("val_loss", must(must(judge.Call(background, test)).Item()))
			}
		}
		before := must(must(judge.Call(background, test)).Item())
		rewrite(m)
		r.sameNumbers("loss before and after the weights' own bytes were set", []float64{before}, []float64{must(must(judge.Call(background, test)).Item())})
		r.weights(m)
	}},
	{"GAN with two optimizers", false, gan},
	{"a custom loop beside Fit", false, func(r *run) {
		m := compile(r.mlp(), adam(0.002))
		o := r.scaled(&optimizers.SGD{LearningRate: 0.02})
		total := &metrics.Mean{}
		step := keras.Function(func(b keras.Batch) struct{} {
			l := (&losses.SparseCategoricalCrossentropy{FromLogits: true}).Call(b.Y, m.Call(b.X, keras.Training))
			update(o, l, m.TrainableVariables())
			total.Add(l)
			return struct{}{}
		}, m, o, total)
		train, test := r.points(1, 64, classes, features), r.points(2, 38, classes, features).Batch(19)
		for range 2 {
			r.fit(m, train, keras.FitConfig{ValidationData: test})
			r.next()
			check(step.Each(background, train.Batch(20).Batches()))
			r.value("loss", must(total.Result()))
			r.evaluate(m, test)
			r.predict(m, r.input(3, 31, features))
		}
		r.honest(m, test, r.input(3, 31, features))
	}},
	{"a function that takes weights from another model", false, func(r *run) { // a target network
		online, target := r.mlp(), r.mlp()
		check(target.SetWeights(must(online.GetWeights())))
		o := r.scaled(adam(0.002))
		step := keras.Function(func(x *keras.Tensor) *keras.Tensor {
			l := online.Call(x, keras.Training).Sub(target.Call(x).MulScalar(0.9).AddScalar(0.1)).Square().Mean()
			update(o, l, online.TrainableVariables())
			return l
		}, online, o)
		follow := keras.Function(func(rate *keras.Tensor) struct{} {
			for i, v := range target.TrainableVariables() {
				v.Assign(v.Value().Add(online.TrainableVariables()[i].Value().Sub(v.Value()).Mul(rate)))
			}
			return struct{}{}
		}, target)
		for i := range 5 {
			x := r.input(uint64(i), 32, features)
			r.next()
			r.value("loss", must(must(step.Call(background, x)).Item()))
			if i%2 == 1 {
				check(follow.Run(background, keras.NewTensor([]float32{0.3})))
			}
			r.predict(target, x)
			r.predict(online, x)
		}
		r.weights(target)
		r.fresh(target, r.input(9, 31, features))
	}},
	{"variables assigned by hand", false, func(r *run) {
		m := r.mlp()
		x := r.input(3, 30, features)
		shrink := keras.Function(func(f *keras.Tensor) struct{} {
			for _, v := range m.TrainableVariables() {
				v.Assign(v.Value().Mul(f))
			}
			return struct{}{}
		}, m)
		for i := range 4 {
			r.predict(m, x)
			r.predict(m, x)
			check(shrink.Run(background, keras.NewTensor([]float32{0.5 + 0.25*float32(i)})))
		}
		y := r.predict(m, x)
		rewrite(m)
		r.same("prediction before and after the weights' own bytes were set", y, r.predict(m, x))
		r.weights(m)
	}},
	{"gradients of inputs", false, func(r *run) { // adversarial examples: training on what the weights give
		m := compile(r.mlp(), adam(0.003))
		loss := &losses.SparseCategoricalCrossentropy{FromLogits: true}
		x := r.input(2, 24, features)
		v := keras.Function(func(b keras.Batch) *keras.Tensor {
			g := gradientAt(loss.Call(b.Y, m.Call(b.X)), b.X)
			return b.X.Add(g.MulScalar(3))
		})
		for _, b := range batches(r.points(1, 72, classes, features).Batch(24)) {
			b.X = must(v.Call(background, b))
			r.next()
			r.tensor("moved", b.X)
			r.train(m, b)
			r.predict(m, x)
		}
		r.fresh(m, x)
	}},
}

func gan(r *run) {
	const noise, size = 140, 260
	generator := r.build(keras.Sequential(&layers.Dense{Units: size, Activation: "relu"}, &layers.BatchNormalization{}, &layers.Dense{Units: size, Activation: "tanh"}), noise)
	critic := r.build(keras.Sequential(&layers.Dense{Units: 140, Activation: "leaky_relu"}, &layers.Dense{Units: 1}), size)
	og, oc := r.scaled(adam(0.001)), r.scaled(&optimizers.RMSprop{LearningRate: 0.0005})
	loss := &losses.BinaryCrossentropy{FromLogits: true}
	judge := func(logits *keras.Tensor, real bool) *keras.Tensor {
		target := 0.0
		if real {
			target = 0.9
		}
		return loss.Call(logits.MulScalar(0).AddScalar(target), logits)
	}
	type pair struct{ Real, Noise *keras.Tensor }
	trainCritic := keras.Function(func(p pair) *keras.Tensor {
		l := judge(critic.Call(p.Real, keras.Training), true).Add(judge(critic.Call(generator.Call(p.Noise), keras.Training), false))
		update(oc, l, critic.TrainableVariables())
		return l
	}, critic, oc)
	trainGenerator := keras.Function(func(z *keras.Tensor) *keras.Tensor {
		l := judge(critic.Call(generator.Call(z, keras.Training)), true)
		update(og, l, generator.TrainableVariables())
		return l
	}, generator, og)
	z := keras.NewTensor(r.perturb(random(8, 21*noise)), 21, noise)
	for i := range 5 {
		p := pair{r.input(uint64(i), 33, size), keras.NewTensor(r.perturb(random(uint64(100+i), 33*noise)), 33, noise)}
		r.next()
		r.value("critic's loss", must(must(trainCritic.Call(background, p)).Item()))
		r.value("generator's loss", must(must(trainGenerator.Call(background, p.Noise)).Item()))
		for range 1 + i%2 {
			r.predict(generator, z)
		}
		r.predict(critic, p.Real)
	}
	r.weights(generator)
	r.weights(critic)
	r.fresh(generator, z)
}
