package scenario

import (
	"fmt"
	"go/format"
	"math"
	"reflect"
	"slices"
	"strings"

	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/checkpoint"
	"github.com/mezzo-ml/mezzo/keras/saving"
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/losses"
	"github.com/mezzo-ml/mezzo/optimizers"
)

// program is a random program: a model, an optimizer, and what is done with
// them in turn. Each part of Ops makes sense without the others, so that a
// program that fails can be made shorter.
type program struct {
	Seed      uint64
	Policy    string
	Input     []int // shape of a sample
	Words     int   // of an input that is indices; 0: floats
	Blocks    []block
	Optimizer rule
	Ops       []action
}

// block is a layer. What A and B are depends on Kind.
type block struct {
	Kind string
	A, B int
	Name string // activation, padding
}

// rule is an optimizer.
type rule struct {
	Class      string
	Rate       float64
	EMA        bool
	Overwrite  int     // EMAOverwriteFrequency
	Clip       float64 // GlobalClipNorm
	Accumulate int
	Scaled     bool // in a LossScaleOptimizer also where the policy needs none
}

// action is one thing that a program does with one of its models.
type action struct {
	Do    string
	Model int // modulo the number of models
	Rows  int
	Batch int
	Times int
	Data  uint64 // seed
	Name  string
}

const (
	labels     = 5 // classes of random programs
	mostModels = 3 // of a program; another clone is not made
)

// layer makes the layer of a block, and says how it is called: "" on its input,
// "self" on its input twice, "add" with its input added to its result.
func (b block) layer() (l layers.Layer, call string) {
	switch b.Kind {
	case "dense":
		return &layers.Dense{Units: b.A, Activation: b.Name}, ""
	case "residual":
		return &layers.Dense{Units: b.A, Activation: b.Name}, "add"
	case "batchnorm":
		return &layers.BatchNormalization{Momentum: new(0.7)}, ""
	case "layernorm":
		return &layers.LayerNormalization{}, ""
	case "rmsnorm":
		return &layers.RMSNormalization{}, ""
	case "dropout":
		return &layers.Dropout{Rate: float64(b.A) / 100}, ""
	case "embedding":
		return &layers.Embedding{InputDim: b.A, OutputDim: b.B, MaskZero: b.Name == "mask"}, ""
	case "lstm":
		return &layers.LSTM{Units: b.A, ReturnSequences: b.Name == "all"}, ""
	case "gru":
		return &layers.GRU{Units: b.A, ReturnSequences: b.Name == "all"}, ""
	case "rnn":
		return &layers.SimpleRNN{Units: b.A, ReturnSequences: b.Name == "all"}, ""
	case "both":
		return &layers.Bidirectional{Layer: &layers.GRU{Units: b.A, ReturnSequences: b.Name == "all"}}, ""
	case "attention":
		return &layers.MultiHeadAttention{NumHeads: b.A, KeyDim: b.B, UseCausalMask: b.Name == "causal"}, "self"
	case "distributed":
		return &layers.TimeDistributed{Layer: &layers.Dense{Units: b.A, Activation: b.Name}}, ""
	case "conv1d":
		return &layers.Conv1D{Filters: b.A, KernelSize: layers.PerAxis{b.B}, Padding: b.Name, Activation: "relu"}, ""
	case "conv2d":
		return &layers.Conv2D{Filters: b.A, KernelSize: layers.PerAxis{b.B}, Padding: b.Name, Activation: "relu"}, ""
	case "strided":
		return &layers.Conv2D{Filters: b.A, KernelSize: layers.PerAxis{b.B}, Padding: b.Name, Strides: layers.PerAxis{2}}, ""
	case "depthwise":
		return &layers.DepthwiseConv2D{KernelSize: layers.PerAxis{b.B}, Padding: "same", Activation: b.Name}, ""
	case "separable":
		return &layers.SeparableConv2D{Filters: b.A, KernelSize: layers.PerAxis{b.B}, Padding: "same"}, ""
	case "transposed":
		return &layers.Conv2DTranspose{Filters: b.A, KernelSize: layers.PerAxis{b.B}, Strides: layers.PerAxis{2}, Padding: "same"}, ""
	case "maxpool":
		return &layers.MaxPooling2D{PoolSize: layers.PerAxis{2}, Padding: "same"}, ""
	case "avgpool":
		return &layers.AveragePooling2D{PoolSize: layers.PerAxis{2}, Padding: "same"}, ""
	case "maxpool1d":
		return &layers.MaxPooling1D{PoolSize: layers.PerAxis{2}, Padding: "same"}, ""
	case "globalavg1d":
		return &layers.GlobalAveragePooling1D{}, ""
	case "globalmax1d":
		return &layers.GlobalMaxPooling1D{}, ""
	case "globalavg2d":
		return &layers.GlobalAveragePooling2D{}, ""
	case "flatten":
		return &layers.Flatten{}, ""
	}
	panic("there is no block " + b.Kind)
}

// build makes the model that a program begins with.
func (p program) build(r *run) *keras.Model {
	in := keras.Input(p.Input...)
	if p.Words > 0 {
		in = keras.InputOf(keras.Int32, p.Input...)
	}
	x := in
	for _, b := range p.Blocks {
		l, call := b.layer()
		switch call {
		case "self":
			x = keras.Apply(l, x, x)
		case "add":
			x = keras.Apply(&layers.Add{}, x, keras.Apply(l, x))
		default:
			x = keras.Apply(l, x)
		}
	}
	return r.model(in, x)
}

// optimizer makes a new optimizer. With halves it accumulates twice as many
// gradients.
func (u rule) optimizer(halves bool) optimizers.Optimizer {
	var made optimizers.Optimizer
	switch u.Class {
	case "SGD":
		made = &optimizers.SGD{LearningRate: u.Rate}
	case "momentum":
		made = &optimizers.SGD{LearningRate: u.Rate, Momentum: 0.9}
	case "Adam":
		made = &optimizers.Adam{LearningRate: u.Rate}
	case "AdamW":
		made = &optimizers.AdamW{LearningRate: u.Rate}
	case "RMSprop":
		made = &optimizers.RMSprop{LearningRate: u.Rate}
	case "Adagrad":
		made = &optimizers.Adagrad{LearningRate: u.Rate}
	case "Nadam":
		made = &optimizers.Nadam{LearningRate: u.Rate}
	case "Adamax":
		made = &optimizers.Adamax{LearningRate: u.Rate}
	case "Lamb":
		made = &optimizers.Lamb{LearningRate: u.Rate}
	default:
		panic("there is no optimizer " + u.Class)
	}
	accumulate := u.Accumulate
	if halves {
		accumulate = 2 * max(1, u.Accumulate)
	}
	fields := reflect.ValueOf(made).Elem()
	fields.FieldByName("UseEMA").SetBool(u.EMA)
	if u.EMA {
		fields.FieldByName("EMAMomentum").SetFloat(0.8)
	}
	fields.FieldByName("EMAOverwriteFrequency").SetInt(int64(u.Overwrite))
	fields.FieldByName("GlobalClipNorm").SetFloat(u.Clip)
	fields.FieldByName("GradientAccumulationSteps").SetInt(int64(accumulate))
	if u.Scaled {
		return &optimizers.LossScaleOptimizer{Inner: made, InitialScale: 4096, DynamicGrowthSteps: 3}
	}
	return made
}

// samples returns n samples of a program's input.
func (p program) samples(r *run, seed uint64, n int) *keras.Pipeline {
	if p.Words > 0 {
		return texts(seed, n, p.Input[0], p.Words, labels)
	}
	return r.points(seed, n, labels, p.Input...)
}

// live is a model of a program that runs, and what goes with it.
type live struct {
	model  *keras.Model
	step   stepper
	read   reader
	kept   []*keras.Tensor
	format string // of the file that it was saved to
}

// formats are the files that weights are saved in.
var formats = []string{"ckpt", "safetensors", "npz", "weights.h5"}

// program runs a random program. What it does is in terms of methods that
// [program.code] prints calls of.
func (r *run) program(p program) {
	models := []*live{{model: compile(p.build(r), p.Optimizer.optimizer(r.halves))}}
	add := func(m *keras.Model) {
		models = append(models, &live{model: compile(m, p.Optimizer.optimizer(r.halves))})
	}
	for _, a := range p.Ops {
		i := a.Model % len(models)
		l := models[i]
		m := l.model
		data := func() *keras.Pipeline { return p.samples(r, a.Data, a.Rows) }
		batch := func() keras.Batch { return cut(data(), a.Rows) }
		switch a.Do {
		case "train":
			for range a.Times {
				r.train(m, batch())
			}
		case "fit":
			r.fit(m, data(), keras.FitConfig{BatchSize: a.Batch, Epochs: a.Times, Seed: a.Data, ValidationData: p.samples(r, a.Data+1, a.Rows).Batch(a.Batch)})
		case "evaluate":
			r.evaluate(m, data().Batch(a.Batch))
		case "predict":
			for range a.Times {
				r.predict(m, batch().X)
			}
		case "step":
			if l.step == nil {
				l.step = r.stepper(m)
			}
			r.step(l.step, batch(), a.Times)
		case "read":
			if l.read == nil {
				l.read = r.reader(m)
			}
			r.read(l.read, batch(), a.Times)
		case "rate":
			check(optimizers.SetLearningRate(m.Optimizer(), p.Optimizer.Rate/float64(a.Times)))
		case "swap":
			r.swapped(m, data().Batch(a.Batch))
		case "skip":
			r.skip(m, batch())
		case "keep":
			l.kept = must(m.GetWeights())
		case "put":
			if l.kept != nil {
				check(m.SetWeights(l.kept))
			}
		case "save":
			l.format = a.Name
			r.save(m, fmt.Sprintf("m%d.%s", i, a.Name))
		case "load":
			if l.format != "" {
				r.load(m, fmt.Sprintf("m%d.%s", i, l.format))
			}
		case "clone":
			if len(models) < mostModels {
				add(r.clone(m, a.Name))
			}
		case "freeze":
			freeze(m, a.Times)
			compile(m, p.Optimizer.optimizer(r.halves))
			l.step = nil
		case "unfreeze":
			m.SetTrainable(true)
			compile(m, p.Optimizer.optimizer(r.halves))
			l.step = nil
		case "seed":
			check(m.SetSeed(a.Data))
			r.built(m)
		case "honest":
			r.honest(m, data().Batch(a.Batch), batch().X)
		default:
			panic("there is no action " + a.Do)
		}
	}
	for _, l := range models {
		r.next()
		r.weights(l.model)
		r.state(l.model.Optimizer())
	}
}

// stepper is a custom training step, and reader a loss that changes nothing.
type (
	stepper func(keras.Batch) float64
	reader  func(keras.Batch) float64
)

// stepper makes a custom training step of a model, with an optimizer of its
// own.
func (r *run) stepper(m *keras.Model) stepper {
	var o optimizers.Optimizer = &optimizers.SGD{LearningRate: 0.02, Momentum: 0.5}
	if slices.ContainsFunc(m.Layers(), func(l layers.Layer) bool { return layers.BaseOf(l).ComputeDType() == keras.Float16 }) {
		o = &optimizers.LossScaleOptimizer{Inner: o, InitialScale: 1024}
	}
	loss := &losses.SparseCategoricalCrossentropy{FromLogits: true}
	f := keras.Function(func(b keras.Batch) *keras.Tensor {
		l := loss.Call(b.Y, m.Call(b.X, keras.Training))
		update(o, l, m.TrainableVariables())
		return l
	}, m, o)
	return func(b keras.Batch) float64 { return must(must(f.Call(background, b)).Item()) }
}

// step calls a custom training step some times.
func (r *run) step(f stepper, b keras.Batch, times int) {
	r.next()
	for range times {
		r.value("step's loss", f(b))
	}
}

// reader makes a Function that computes a model's loss.
func (r *run) reader(m *keras.Model) reader {
	loss := &losses.SparseCategoricalCrossentropy{FromLogits: true}
	f := keras.Function(func(b keras.Batch) *keras.Tensor { return loss.Call(b.Y, m.Call(b.X)) })
	return func(b keras.Batch) float64 { return must(must(f.Call(background, b)).Item()) }
}

// read calls a Function that only reads some times.
func (r *run) read(f reader, b keras.Batch, times int) {
	r.next()
	var first float64
	for i := range times {
		v := f(b)
		if i == 0 {
			first = v
		}
		r.value("read loss", v)
		r.sameNumbers("loss and loss again", []float64{first}, []float64{v})
	}
}

// swapped evaluates with the moving averages, and checks that the weights come
// back.
func (r *run) swapped(m *keras.Model, d keras.Dataset) {
	before := bytesOf(m)
	check(optimizers.SwapEMA(m.Optimizer()))
	r.evaluate(m, d)
	check(optimizers.SwapEMA(m.Optimizer()))
	r.same("weights before and after the averages were swapped in and out", before, bytesOf(m))
	r.evaluate(m, d)
}

// skip trains on a batch with an infinite number. Models that do not scale their
// loss would not survive that.
func (r *run) skip(m *keras.Model, b keras.Batch) {
	if _, ok := m.Optimizer().(*optimizers.LossScaleOptimizer); !ok || b.X.DType() != keras.Float32 {
		return
	}
	b.X = infinite(b.X)
	r.next()
	r.update(m, b)
	s := must(m.StepResult())
	r.exact("steps", float64(s.AppliedSteps), float64(s.SkippedSteps), s.LossScale)
}

func (r *run) save(m *keras.Model, file string) {
	switch {
	case strings.HasSuffix(file, ".ckpt"):
		check(checkpoint.SaveWeights(r.file(file), m))
	case strings.HasSuffix(file, ".safetensors"):
		check(saving.SaveSafetensors(r.file(file), m))
	case strings.HasSuffix(file, ".npz"):
		check(saving.SaveNPZ(r.file(file), m))
	default:
		check(saving.SaveWeights(r.file(file), m))
	}
}

func (r *run) load(m *keras.Model, file string) {
	switch {
	case strings.HasSuffix(file, ".ckpt"):
		check(checkpoint.LoadWeights(r.file(file), m))
	case strings.HasSuffix(file, ".safetensors"):
		check(saving.LoadSafetensors(r.file(file), m))
	case strings.HasSuffix(file, ".npz"):
		check(saving.LoadNPZ(r.file(file), m))
	default:
		check(saving.LoadWeights(r.file(file), m))
	}
}

// clone returns a copy of a model with its weights, under a policy; "" is its
// own.
func (r *run) clone(m *keras.Model, policy string) *keras.Model {
	c := must(m.Clone(policy))
	check(c.SetWeights(must(m.GetWeights())))
	return c
}

// freeze freezes one layer, not the last one with weights.
func freeze(m *keras.Model, i int) {
	ls := slices.DeleteFunc(slices.Clone(m.Layers()), func(l layers.Layer) bool { return len(layers.BaseOf(l).Weights()) == 0 })
	if len(ls) > 1 {
		layers.BaseOf(ls[i%(len(ls)-1)]).SetTrainable(false)
	}
}

// size is the size of the perturbations that tolerances are measured with.
func (p program) size() float64 {
	has := func(kinds ...string) bool {
		return slices.ContainsFunc(p.Blocks, func(b block) bool { return slices.Contains(kinds, b.Kind) })
	}
	under := func(name string) bool {
		return p.Policy == name || slices.ContainsFunc(p.Ops, func(a action) bool { return a.Name == name })
	}
	switch {
	case under("mixed_bfloat16") && has("lstm", "gru", "rnn", "both", "attention"):
		return coarse
	case under("mixed_float16") && has("attention"):
		return coarse16
	}
	return perturbation
}

// code prints the program as a scenario.
func (p program) code(name string) string {
	var b strings.Builder
	f := func(format string, args ...any) { fmt.Fprintf(&b, "\t"+format+"\n", args...) }
	fmt.Fprintf(&b, "{%q, %v, func(r *run) { // under %s\n", name, p.size() == coarse, p.Policy)
	input := fmt.Sprintf("keras.Input(%s)", ints(p.Input))
	samples := func(seed uint64, n int) string {
		return fmt.Sprintf("r.points(%d, %d, %d, %s)", seed, n, labels, ints(p.Input))
	}
	if p.Words > 0 {
		input = fmt.Sprintf("keras.InputOf(keras.Int32, %s)", ints(p.Input))
		samples = func(seed uint64, n int) string {
			return fmt.Sprintf("texts(%d, %d, %d, %d, %d)", seed, n, p.Input[0], p.Words, labels)
		}
	}
	f("in := %s", input)
	from, define := "in", ":="
	for _, b := range p.Blocks {
		l, call := b.layer()
		switch call {
		case "self":
			f("x %s keras.Apply(%s, %s, %s)", define, literal(l), from, from)
		case "add":
			f("x %s keras.Apply(&layers.Add{}, %s, keras.Apply(%s, %s))", define, from, literal(l), from)
		default:
			f("x %s keras.Apply(%s, %s)", define, literal(l), from)
		}
		from, define = "x", "="
	}
	optimizer := literal(p.Optimizer.optimizer(false))
	f("m0 := compile(r.model(in, x), %s)", optimizer)
	type known struct {
		step, steps, read, kept bool // steps: its variable is declared
		format                  string
	}
	models := []*known{{}}
	for _, a := range p.Ops {
		i := a.Model % len(models)
		l, m := models[i], fmt.Sprintf("m%d", i)
		data := samples(a.Data, a.Rows)
		batch := fmt.Sprintf("cut(%s, %d)", data, a.Rows)
		times := func() {
			if a.Times > 1 {
				f("for range %d {", a.Times)
			}
		}
		end := func() {
			if a.Times > 1 {
				f("}")
			}
		}
		switch a.Do {
		case "train":
			times()
			f("r.train(%s, %s)", m, batch)
			end()
		case "fit":
			f("r.fit(%s, %s, keras.FitConfig{BatchSize: %d, Epochs: %d, Seed: %d, ValidationData: %s.Batch(%d)})", m, data, a.Batch, a.Times, a.Data, samples(a.Data+1, a.Rows), a.Batch)
		case "evaluate":
			f("r.evaluate(%s, %s.Batch(%d))", m, data, a.Batch)
		case "predict":
			times()
			f("r.predict(%s, %s.X)", m, batch)
			end()
		case "step":
			if !l.step {
				f("step%d %s r.stepper(%s)", i, assign(l.steps), m)
				l.step, l.steps = true, true
			}
			f("r.step(step%d, %s, %d)", i, batch, a.Times)
		case "read":
			if !l.read {
				l.read = true
				f("read%d := r.reader(%s)", i, m)
			}
			f("r.read(read%d, %s, %d)", i, batch, a.Times)
		case "rate":
			f("check(optimizers.SetLearningRate(%s.Optimizer(), %v))", m, p.Optimizer.Rate/float64(a.Times))
		case "swap":
			f("r.swapped(%s, %s.Batch(%d))", m, data, a.Batch)
		case "skip":
			f("r.skip(%s, %s)", m, batch)
		case "keep":
			f("kept%d %s must(%s.GetWeights())", i, assign(l.kept), m)
			if !l.kept {
				f("_ = kept%d", i) // it may never be set
			}
			l.kept = true
		case "put":
			if l.kept {
				f("check(%s.SetWeights(kept%d))", m, i)
			}
		case "save":
			l.format = a.Name
			f("r.save(%s, \"%s.%s\")", m, m, a.Name)
		case "load":
			if l.format != "" {
				f("r.load(%s, \"%s.%s\")", m, m, l.format)
			}
		case "clone":
			if len(models) < mostModels {
				f("m%d := compile(r.clone(%s, %q), %s)", len(models), m, a.Name, optimizer)
				models = append(models, &known{})
			}
		case "freeze":
			f("freeze(%s, %d)", m, a.Times)
			f("compile(%s, %s)", m, optimizer)
			l.step = false
		case "unfreeze":
			f("%s.SetTrainable(true)", m)
			f("compile(%s, %s)", m, optimizer)
			l.step = false
		case "seed":
			f("check(%s.SetSeed(%d))", m, a.Data)
			f("r.built(%s)", m)
		case "honest":
			f("r.honest(%s, %s.Batch(%d), %s.X)", m, data, a.Batch, batch)
		}
	}
	for i := range models {
		f("r.next()")
		f("r.weights(m%d)", i)
		f("r.state(m%d.Optimizer())", i)
	}
	b.WriteString("}},\n")
	const begin, end = "package p\n\nvar x = []scenario{\n", "}\n"
	if source, err := format.Source([]byte(begin + b.String() + end)); err == nil {
		return strings.TrimPrefix(strings.TrimSuffix(string(source), end), begin)
	}
	return b.String()
}

func assign(declared bool) string {
	if declared {
		return "="
	}
	return ":="
}

func ints(x []int) string {
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(x), " ", ", "), "[]")
}

// literal prints a value as Go: structs by their exported fields that are set.
func literal(x any) string { return literalOf(reflect.ValueOf(x)) }

func literalOf(v reflect.Value) string {
	switch v.Kind() {
	case reflect.Interface:
		return literalOf(v.Elem())
	case reflect.Pointer:
		if v.Elem().Kind() == reflect.Struct {
			return "&" + literalOf(v.Elem())
		}
		return "new(" + literalOf(v.Elem()) + ")"
	case reflect.Struct:
		var fields []string
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.IsExported() && !v.Field(i).IsZero() {
				fields = append(fields, f.Name+": "+literalOf(v.Field(i)))
			}
		}
		return v.Type().String() + "{" + strings.Join(fields, ", ") + "}"
	case reflect.Slice:
		var elements []string
		for i := range v.Len() {
			elements = append(elements, literalOf(v.Index(i)))
		}
		return v.Type().String() + "{" + strings.Join(elements, ", ") + "}"
	case reflect.String:
		return fmt.Sprintf("%q", v.String())
	case reflect.Float64:
		if f := v.Float(); f == math.Trunc(f) {
			return fmt.Sprintf("%.1f", f)
		}
	}
	return fmt.Sprint(v.Interface())
}
