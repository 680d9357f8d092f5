package examples_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"

	"github.com/mezzo-ml/mezzo/examples/models"
	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/datasets/digits"
	"github.com/mezzo-ml/mezzo/keras/doctor"
	"github.com/mezzo-ml/mezzo/keras/saving"
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/layers/preprocessing"
	"github.com/mezzo-ml/mezzo/losses"
	"github.com/mezzo-ml/mezzo/optimizers"
	"github.com/mezzo-ml/mezzo/policy"
)

// snippetVariable names the snippet that this test program runs in place of the
// tests: TestDocs does so for pages that show what one prints.
const snippetVariable = "MEZZO_TEST_SNIPPET"

var ctx = context.Background()

// snippets are pieces of code that pages show with their output, where no
// example is that program. A page may leave out what it does not need.
var snippets = map[string]func() error{
	"setPolicy":       setPolicy,
	"unknownDevice":   unknownDevice,
	"effective":       effective,
	"tensorFloat32":   tensorFloat32,
	"slowProcessor":   slowProcessor,
	"summary":         summary,
	"headNote":        headNote,
	"skippedSteps":    skippedSteps,
	"lossScaleGroups": lossScaleGroups,
	"adaptiveFloat8":  adaptiveFloat8,
	"atTheFloor":      atTheFloor,
	"memoryPlan":      memoryPlan,
	"nonFinite":       nonFinite,
	"sickStep":        sickStep,
	"healedStep":      healedStep,
	"replayedStep":    replayedStep,
	"changedStep":     changedStep,
	"searchPolicies":  searchPolicies,
	"fromPyTorch":     fromPyTorch,
	"debugNonFinite":  debugNonFinite,
	"explain":         explain,
	"serve":           serve,
	"keptBatch":       keptBatch,
	"events":          events,
}

// runSnippetOf is what TestMain does in such a process.
func runSnippetOf(name string) int {
	f, ok := snippets[name]
	if !ok {
		fmt.Printf("there is no snippet %q\n", name)
		return 1
	}
	if err := f(); err != nil {
		fmt.Println(err)
		return 1
	}
	return 0
}

func setPolicy() error {
	policy.SetGlobal("mixed_float16")
	p := policy.Global()
	fmt.Println("Compute dtype:", p.Compute, " Variable dtype:", p.Variable)
	return nil
}

// unknownDevice runs under MEZZO_DEVICE.
func unknownDevice() error {
	_, err := policy.Effective()
	fmt.Println(err)
	return nil
}

func effective() error {
	fmt.Println(policy.EffectiveText())
	return nil
}

func tensorFloat32() error {
	policy.SetTF32(true)
	x := keras.NewTensor([]float32{1.2345678, 1.0001}, 2, 1)
	y, err := x.MatMul(keras.NewTensor([]float32{1}, 1, 1)).Values()
	if err != nil {
		return err
	}
	fmt.Println(y)
	fmt.Println(policy.EffectiveText())
	return nil
}

// slowProcessor trains two models under a policy that the processor has no arithmetic for.
func slowProcessor() error {
	policy.SetGlobal("mixed_float16")
	for range 2 {
		model := keras.Sequential(&layers.Dense{Units: 1})
		if err := model.Compile(keras.CompileConfig{Optimizer: &optimizers.SGD{}, Loss: &losses.MeanSquaredError{}}); err != nil {
			return err
		}
		data := keras.FromTensors(keras.NewTensor([]float32{0.1, 0.2}, 2, 1), keras.NewTensor([]float32{0.1, 0.2}, 2, 1), nil)
		if _, err := model.Fit(ctx, data, keras.FitConfig{}); err != nil {
			return err
		}
	}
	return nil
}

// guide is the model of examples/guide.
func guide(units int) (*keras.Model, error) {
	inputs := keras.Input(784)
	x := keras.Apply(&layers.Dense{Units: units, Activation: "relu", Name: "dense_1"}, inputs)
	x = keras.Apply(&layers.Dense{Units: units, Activation: "relu", Name: "dense_2"}, x)
	x = keras.Apply(&layers.Dense{Units: 10, Name: "dense_logits"}, x)
	outputs := keras.Apply(&layers.Activation{Activation: "softmax", DType: "float32", Name: "predictions"}, x)
	model, err := keras.NewModel(inputs, outputs)
	if err != nil {
		return nil, err
	}
	return model, model.Compile(keras.CompileConfig{Loss: &losses.SparseCategoricalCrossentropy{}, Optimizer: &optimizers.RMSprop{}})
}

// batchOf are n blank pictures with labels.
func batchOf(n int) keras.Batch {
	return keras.Batch{X: keras.NewTensor(make([]float32, n*784), n, 784), Y: keras.NewTensor(make([]int32, n), n)}
}

func summary() error {
	policy.SetGlobal("mixed_float16")
	model, err := guide(64)
	if err != nil {
		return err
	}
	return model.Summary(os.Stdout)
}

func headNote() error {
	policy.SetGlobal("mixed_float16")
	model := keras.Sequential(
		&layers.Dense{Units: 64, Activation: "relu"},
		&layers.Dense{Units: 10, Activation: "softmax"},
	)
	if err := model.Build(784); err != nil {
		return err
	}
	return model.Summary(os.Stdout)
}

func skippedSteps() error {
	policy.SetGlobal("mixed_float16")
	model := keras.Sequential(
		&layers.Dense{Units: 64, Activation: "relu"},
		&layers.Dense{Units: 10, Activation: "softmax"},
	)
	optimizer := &optimizers.LossScaleOptimizer{Inner: &optimizers.Adam{}, InitialScale: 1 << 26, MaxScale: 1 << 26}
	err := model.Compile(keras.CompileConfig{Loss: &losses.SparseCategoricalCrossentropy{}, Optimizer: optimizer})
	if err != nil {
		return err
	}
	train, _, err := digits.Load()
	if err != nil {
		return err
	}
	for b, err := range train.Take(8 * 128).Batch(128).Batches() {
		if err != nil {
			return err
		}
		if _, err := model.TrainOnBatch(ctx, b); err != nil {
			return err
		}
		r, err := model.StepResult() // or optimizer.Result()
		if err != nil {
			return err
		}
		fmt.Printf("applied %-5v  next scale %-8.0f  gradient norm %-4.2f  skipped %d\n",
			r.Applied, r.LossScale, r.GradientNorm, r.SkippedSteps)
	}
	return nil
}

// plate is 1,024 samples of 4 numbers, and what they cause: a pressure of about 300 Pa
// and a strain of about 0.0001.
func plate() *keras.Pipeline {
	const n = 1024
	x, pressure, strain := make([]float32, 4*n), make([]float32, n), make([]float32, n)
	for i := range n {
		for j := range 4 {
			x[4*i+j] = float32(math.Sin(float64(7*i*(j+1) + 3*j)))
		}
		a, b, c, d := x[4*i], x[4*i+1], x[4*i+2], x[4*i+3]
		pressure[i], strain[i] = 300*(a*b+c), 1e-4*(c*d-a)
	}
	return keras.FromTensors(keras.NewTensor(x, n, 4), keras.Tuple(keras.NewTensor(pressure, n, 1), keras.NewTensor(strain, n, 1)), nil)
}

// plateErrors are the root mean square errors of the outputs of a model.
func plateErrors(m *keras.Model) (pressure, strain float64, err error) {
	for b, err := range plate().Batch(1024).Batches() {
		if err != nil {
			return 0, 0, err
		}
		found, err := m.Predict(ctx, b.X)
		if err != nil {
			return 0, 0, err
		}
		var errs [2]float64
		for i, y := range found.Unpack() {
			if errs[i], err = y.Sub(b.Y.Unpack()[i]).Square().Mean().Sqrt().Item(); err != nil {
				return 0, 0, err
			}
		}
		pressure, strain = errs[0], errs[1]
	}
	return pressure, strain, nil
}

func lossScaleGroups() error {
	for _, c := range []struct {
		policy string
		groups bool
	}{{"float32", false}, {"mixed_float16", false}, {"mixed_float16", true}} {
		policy.SetGlobal(c.policy)
		tower := func(name string, unit float64) func(x *keras.Tensor) *keras.Tensor {
			m := keras.Sequential(&layers.Dense{Units: 32, Activation: "tanh"}, &layers.Dense{Units: 1}).Named(name)
			return func(x *keras.Tensor) *keras.Tensor {
				return keras.Apply(&preprocessing.Rescaling{Scale: unit, DType: "float32"}, keras.Apply(m.Layer(), x))
			}
		}
		x := keras.Input(4)
		model, err := keras.NewModel(x, keras.Tuple(tower("pressure", 300)(x), tower("strain", 1e-4)(x)))
		if err != nil {
			return err
		}
		optimizer := &optimizers.LossScaleOptimizer{
			Inner:  &optimizers.Adam{LearningRate: 0.01, Epsilon: 1e-15},
			Groups: []optimizers.LossScaleGroup{{Layers: "strain", InitialScale: 1 << 24}},
		}
		if !c.groups {
			optimizer.Groups = nil
		}
		if err := model.Compile(keras.CompileConfig{Loss: &losses.MeanSquaredError{}, Optimizer: optimizer}); err != nil {
			return err
		}
		data := plate()
		if _, err := model.Fit(ctx, data, keras.FitConfig{BatchSize: 64, Epochs: 20, Verbose: keras.VerbositySilent}); err != nil {
			return err
		}
		pressure, strain, err := plateErrors(model)
		if err != nil {
			return err
		}
		fmt.Printf("%-13s  errors %3.0f Pa and %.1e", c.policy, pressure, strain)
		if c.policy == "mixed_float16" {
			r, err := optimizer.Result()
			if err != nil {
				return err
			}
			fmt.Printf("  loss scale %.0f", r.LossScale)
			groups, err := optimizer.GroupScales()
			if err != nil {
				return err
			}
			for _, g := range groups {
				fmt.Printf(", of %s %.0f", g.Layers, g.LossScale)
			}
		}
		fmt.Println()
	}
	return nil
}

// inUnits multiplies the last axis by units, in float32.
type inUnits struct {
	units []float32
	layers.Base
}

func (*inUnits) Config() layers.Config       { return layers.Config{DType: "float32"} }
func (*inUnits) Build(...layers.Shape) error { return nil }
func (l *inUnits) Call(_ layers.Pass, x *keras.Tensor) *keras.Tensor {
	return x.Mul(keras.NewTensor(l.units, 1, len(l.units)))
}

func adaptiveFloat8() error {
	for _, name := range []string{"mixed_bfloat16", "mixed_float8", "mixed_float8_adaptive"} {
		policy.SetGlobal(name)
		x := keras.Input(4)
		h := keras.Apply(&layers.Dense{Units: 64, Activation: "tanh"}, x)
		y := keras.Apply(&inUnits{units: []float32{1e3, 1e-4}}, keras.Apply(&layers.Dense{Units: 2, Name: "head"}, h))
		model, err := keras.NewModel(x, keras.Apply(&models.Unstack{}, y))
		if err != nil {
			return err
		}
		err = model.Compile(keras.CompileConfig{
			Loss:      &losses.MeanSquaredError{},
			Optimizer: &optimizers.Adam{LearningRate: 0.01, Epsilon: 1e-15},
		})
		if err != nil {
			return err
		}
		data := plate()
		if _, err := model.Fit(ctx, data, keras.FitConfig{BatchSize: 64, Epochs: 20, Verbose: keras.VerbositySilent}); err != nil {
			return err
		}
		scores, err := model.Evaluate(ctx, data.Batch(64))
		if err != nil {
			return err
		}
		fmt.Printf("%-21s  errors %3.0f Pa and %.1e\n", name, math.Sqrt(scores[1].Value), math.Sqrt(scores[2].Value))
		if name == "mixed_float8_adaptive" {
			var text bytes.Buffer
			if err := model.Summary(&text); err != nil {
				return err
			}
			for line := range bytes.Lines(text.Bytes()) {
				if i := bytes.Index(line, []byte("Formats")); i >= 0 {
					fmt.Printf("%s", line[i:])
				}
			}
		}
	}
	return nil
}

func atTheFloor() error {
	policy.SetGlobal("mixed_float16")
	model, err := guide(64)
	if err != nil {
		return err
	}
	x := make([]float32, 640*784)
	for i := range x {
		x[i] = 1e6 // beyond float16
	}
	data := keras.FromTensors(keras.NewTensor(x, 640, 784), keras.NewTensor(make([]int32, 640), 640), nil)
	_, err = model.Fit(ctx, data, keras.FitConfig{BatchSize: 64, Epochs: 4, Verbose: keras.VerbositySilent})
	fmt.Println(err)
	return nil
}

func memoryPlan() error {
	batch := batchOf(8192)
	for _, name := range []string{"float32", "mixed_float16", "mixed_bfloat16"} {
		policy.SetGlobal(name)
		model, err := guide(4096)
		if err != nil {
			return err
		}
		fmt.Printf("%-16s", name)
		plan, err := model.PlanMemory(batch)
		fmt.Println(plan)
		if err != nil {
			return err
		}
	}
	return nil
}

// overflowing is a step whose product leaves float16's range.
func overflowing() (*keras.Func[*keras.Tensor, *keras.Tensor], *keras.Tensor) {
	policy.SetGlobal("mixed_float16")
	model := keras.Sequential(&layers.Dense{Units: 8, KernelInitializer: "constant(300)"}, &layers.Dense{Units: 2})
	step := keras.Function(func(x *keras.Tensor) *keras.Tensor { return model.Call(x, keras.Training) }, model)
	x := make([]float32, 4*8)
	for i := range x {
		x[i] = 300
	}
	return step, keras.NewTensor(x, 4, 8)
}

func nonFinite() error {
	step, batch := overflowing()
	first, err := step.FirstNonFinite(ctx, batch)
	fmt.Println(first)
	return err
}

// debugNonFinite runs under MEZZO_DEBUG=nan.
func debugNonFinite() error {
	step, batch := overflowing()
	_, err := step.Call(ctx, batch)
	fmt.Println(err)
	return nil
}

// ownNorm is a layer that a user wrote: each row over the root of its mean square.
type ownNorm struct {
	Name, DType string

	layers.Base
}

func (n *ownNorm) Config() layers.Config { return layers.Config{Name: n.Name, DType: n.DType} }

func (n *ownNorm) Build(...layers.Shape) error { return nil }

func (n *ownNorm) Call(_ layers.Pass, x *keras.Tensor) *keras.Tensor {
	meanSquare := x.Square().MeanKeep(1)
	return x.Div(meanSquare.AddScalar(1e-3).Sqrt())
}

// sickModel has large activations in front of that layer.
func sickModel() (model *keras.Model, batch keras.Batch, err error) {
	defer policy.SetGlobal(policy.SetGlobal("mixed_float16"))
	in := keras.Input(784)
	x := keras.Apply(&layers.Dense{Units: 64, Name: "wide", KernelInitializer: "random_normal(stddev=50, seed=1)"}, in)
	x = keras.Apply(&ownNorm{Name: "own_norm"}, x)
	x = keras.Apply(&layers.Dense{Units: 64, Activation: "relu", Name: "dense"}, x)
	if model, err = keras.NewModel(in, keras.Apply(&layers.Dense{Units: 10, Name: "logits"}, x)); err != nil {
		return nil, batch, err
	}
	train, _, err := digits.Load()
	if err != nil {
		return nil, batch, err
	}
	for batch, err = range train.Take(32).Batch(32).Batches() {
		break
	}
	return model, batch, err
}

var trainable = keras.CompileConfig{Loss: &losses.SparseCategoricalCrossentropy{FromLogits: true}}

func sickStep() error {
	model, batch, err := sickModel()
	if err != nil {
		return err
	}
	if err := model.Compile(trainable); err != nil {
		return err
	}
	report, err := doctor.Examine(ctx, model, batch, doctor.Config{})
	if err != nil {
		return err
	}
	fmt.Print(report)
	return nil
}

// bundled writes a bundle of the third step of a model, and returns the model in its
// first state.
func bundled() (model *keras.Model, done func(), err error) {
	done = func() {}
	model, batch, err := sickModel()
	if err != nil {
		return nil, done, err
	}
	other, err := model.Clone("")
	if err != nil {
		return nil, done, err
	}
	if err := errors.Join(model.Compile(trainable), other.Compile(trainable)); err != nil {
		return nil, done, err
	}
	for range 2 {
		if err := other.TrainStep(ctx, batch); err != nil {
			return nil, done, err
		}
	}
	bundle, err := doctor.Capture(ctx, other, batch)
	if err != nil {
		return nil, done, err
	}
	dir, err := os.MkdirTemp("", "bundle")
	if err != nil {
		return nil, done, err
	}
	done = func() { os.RemoveAll(dir) }
	if err := errors.Join(os.Chdir(dir), os.Mkdir("reports", 0o777)); err != nil {
		return nil, done, err
	}
	return model, done, bundle.Save("reports/bundle-3.mezzo")
}

func replayedStep() error {
	model, done, err := bundled()
	defer done()
	if err != nil {
		return err
	}
	bundle, err := doctor.LoadBundle("reports/bundle-3.mezzo")
	if err != nil {
		return err
	}
	replayed, err := bundle.Replay(ctx, model)
	if err != nil {
		return err
	}
	fmt.Println(replayed)
	return nil
}

func changedStep() error {
	model, done, err := bundled()
	defer done()
	if err != nil {
		return err
	}
	bundle, err := doctor.LoadBundle("reports/bundle-3.mezzo")
	if err != nil {
		return err
	}
	if err := bundle.Restore(model); err != nil {
		return err
	}
	weight := model.TrainableVariables()[1]
	x, err := weight.Float64s()
	if err != nil {
		return err
	}
	x[0] += 0.5
	if err := weight.Set(x); err != nil {
		return err
	}
	replayed, err := bundle.Compare(ctx, model)
	if err != nil {
		return err
	}
	fmt.Println(replayed)
	return nil
}

func healedStep() error {
	model, batch, err := sickModel()
	if err != nil {
		return err
	}
	healed, err := model.CloneUnder("", policy.Map{"own_norm": "float32"}, false)
	if err != nil {
		return err
	}
	if err := healed.Compile(trainable); err != nil {
		return err
	}
	report, err := doctor.Examine(ctx, healed, batch, doctor.Config{})
	if err != nil {
		return err
	}
	fmt.Print(report)
	return nil
}

// byBits is a time that does not depend on the machine: for each weight 4 nanoseconds in
// float32, 2 in 16 bits.
func byBits(_ context.Context, m *keras.Model, _ keras.Batch) (doctor.StepTime, error) {
	t := doctor.StepTime{Layers: map[string]float64{}}
	for _, l := range m.Layers() {
		b := layers.BaseOf(l)
		n := 64
		for _, w := range b.Weights() {
			n += w.Shape().Size()
		}
		x := float64(n*b.ComputeDType().Size()) * 1e-9
		t.Layers[b.Path()] = x
		t.Seconds += x
	}
	return t, nil
}

func searchPolicies() error {
	model, _, err := sickModel()
	if err != nil {
		return err
	}
	train, _, err := digits.Load()
	if err != nil {
		return err
	}
	if err := model.Compile(trainable); err != nil {
		return err
	}
	result, err := doctor.Search(ctx, model, train.Batch(32), doctor.SearchConfig{Policies: []string{"mixed_float16"}, Measure: byBits})
	if err != nil {
		return err
	}
	fmt.Print(result)
	return nil
}

// fromPyTorch is the loop of docs/from-pytorch.md.
func fromPyTorch() error {
	model := keras.Sequential(
		&layers.Dense{Units: 128, Activation: "relu", KernelInitializer: "he_uniform"},
		&layers.Dense{Units: 10},
	)
	criterion := &losses.SparseCategoricalCrossentropy{FromLogits: true}
	scaler := &optimizers.LossScaleOptimizer{
		Inner:        &optimizers.AdamW{LearningRate: 1e-3, WeightDecay: new(0.01), Epsilon: 1e-8, GlobalClipNorm: 1},
		InitialScale: 65536,
	}
	step := keras.Function(func(b keras.Batch) *keras.Tensor {
		var output *keras.Tensor
		keras.Autocast(keras.Float16, func() { output = model.Call(b.X, keras.Training) })
		loss := criterion.Call(b.Y, output)
		params := model.TrainableVariables()
		grads := keras.Gradients(scaler.GetScaledLoss(loss), params)
		scaler.ApplyGradients(scaler.GetUnscaledGradients(grads), params)
		return loss
	}, model, scaler)
	train, _, err := digits.Load()
	if err != nil {
		return err
	}
	loader := train.Shuffle(10000).Batch(64)
	for epoch := range 3 {
		var last *keras.Tensor
		for b, err := range loader.Batches() {
			if err != nil {
				return err
			}
			if last, err = step.Call(ctx, b); err != nil {
				return err
			}
		}
		loss, err := last.Item()
		if err != nil {
			return err
		}
		r, err := scaler.Result()
		if err != nil {
			return err
		}
		fmt.Printf("epoch %d: loss %.3f, scale %v, %d steps skipped\n", epoch, loss, r.LossScale, r.SkippedSteps)
	}
	return nil
}

func explain() error {
	policy.SetGlobal("mixed_float16")
	model := keras.Sequential(
		&layers.Dense{Units: 64, Activation: "relu"},
		&layers.Dense{Units: 10, Activation: "softmax"},
	)
	if err := model.Compile(keras.CompileConfig{Loss: &losses.SparseCategoricalCrossentropy{}}); err != nil {
		return err
	}
	train, _, err := digits.Load()
	if err != nil {
		return err
	}
	for batch, err := range train.Take(128).Batch(128).Batches() {
		if err != nil {
			return err
		}
		return model.Explain(ctx, batch, os.Stdout)
	}
	return nil
}

func handler(model *keras.Model) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var pixels []float32
		err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<16)).Decode(&pixels)
		if err != nil || len(pixels) != 784 {
			http.Error(w, "want a JSON list of 784 numbers", http.StatusBadRequest)
			return
		}
		y, err := model.Predict(r.Context(), keras.NewTensor(pixels, 1, 784))
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		probabilities, err := y.Values()
		y.Release() // its memory is for the next request
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		json.NewEncoder(w).Encode(probabilities)
	}
}

// serve asks the handler for eight digits at once.
func serve() error {
	trained, err := guide(64)
	if err != nil {
		return err
	}
	train, test, err := digits.Load()
	if err != nil {
		return err
	}
	if _, err := trained.Fit(ctx, train, keras.FitConfig{BatchSize: 128, Epochs: 5, Verbose: keras.VerbositySilent}); err != nil {
		return err
	}
	if err := saving.Save("digits.keras", trained); err != nil {
		return err
	}
	model, err := saving.Load("digits.keras")
	if err != nil {
		return err
	}
	server := httptest.NewServer(handler(model))
	defer server.Close()
	var shown, answers [8]int
	failures := make(chan error, len(answers))
	i := 0
	for b, err := range test.Take(len(answers)).Batch(1).Batches() {
		if err != nil {
			return err
		}
		pixels, err := b.X.Values()
		if err != nil {
			return err
		}
		label, err := b.Y.Int64s()
		if err != nil {
			return err
		}
		body, err := json.Marshal(pixels)
		if err != nil {
			return err
		}
		shown[i] = int(label[0])
		go func(answer *int) {
			failures <- func() error {
				r, err := http.Post(server.URL, "application/json", bytes.NewReader(body))
				if err != nil {
					return err
				}
				defer r.Body.Close()
				var p []float64
				if err := json.NewDecoder(r.Body).Decode(&p); err != nil {
					return err
				}
				*answer = slices.Index(p, slices.Max(p))
				return nil
			}()
		}(&answers[i])
		i++
	}
	for range answers {
		if err := <-failures; err != nil {
			return err
		}
	}
	fmt.Println("shown:  ", shown)
	fmt.Println("answers:", answers)
	return nil
}

// keptBatch reads a batch that was handed back two batches before.
func keptBatch() error {
	var kept *keras.Tensor
	for b, err := range keras.FromTensors(keras.NewTensor(make([]float32, 12), 12, 1), nil, nil).Batch(2).Batches() {
		if err != nil {
			return err
		}
		if kept == nil {
			kept = b.X
		}
		b.Release()
	}
	_, err := kept.Values()
	fmt.Println(err)
	return nil
}

func events() error {
	policy.SetGlobal("mixed_float16")
	model, err := guide(8)
	if err != nil {
		return err
	}
	err = model.Compile(keras.CompileConfig{Loss: &losses.SparseCategoricalCrossentropy{},
		Optimizer: &optimizers.LossScaleOptimizer{Inner: &optimizers.SGD{}, InitialScale: 1 << 22}})
	if err != nil {
		return err
	}
	x := make([]float32, 16*784)
	for i := range x {
		x[i] = float32(math.Mod(float64(i), 7)) * 50
	}
	train := keras.FromTensors(keras.NewTensor(x, 16, 784), keras.NewTensor(make([]int32, 16), 16), nil)
	_, err = model.Fit(ctx, train, keras.FitConfig{Logger: slog.New(slog.NewJSONHandler(os.Stderr, nil)), Verbose: keras.VerbositySilent})
	return err
}
