package keras

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/tensor/tensortest"
	"github.com/mezzo-ml/mezzo/keras/metrics"
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/losses"
	"github.com/mezzo-ml/mezzo/optimizers"
)

// goldenModel is the configuration of a case of models.json.
type goldenModel struct {
	layers      []map[string]any
	outputs     []string
	loss        []map[string]any
	lossWeights []float64
	optimizer   map[string]any
	metrics     []string
	lossScale   *struct {
		InitialScale       float64 `json:"initial_scale"`
		DynamicGrowthSteps int     `json:"dynamic_growth_steps"`
	}
	batchSize, steps int
	classWeight      map[int]float64
}

func readGolden(t *testing.T, c *tensortest.Case) *goldenModel {
	t.Helper()
	g := &goldenModel{}
	for name, to := range map[string]any{
		"layers": &g.layers, "outputs": &g.outputs, "loss": &g.loss, "loss_weights": &g.lossWeights, "optimizer": &g.optimizer,
		"metrics": &g.metrics, "loss_scale": &g.lossScale, "batch_size": &g.batchSize, "steps": &g.steps, "class_weight": &g.classWeight,
	} {
		if raw, ok := c.Config[name]; ok {
			check(t, json.Unmarshal(raw, to))
		}
	}
	return g
}

// layer makes a layer from Keras's arguments, whose regularizers and
// constraints are objects where Mezzo has strings.
func goldenLayer(t *testing.T, args map[string]any) layers.Layer {
	t.Helper()
	config := map[string]any{}
	for k, v := range args {
		if k == "class_name" || k == "inputs" {
			continue
		}
		if o, ok := v.(map[string]any); ok {
			switch o["class_name"] {
			case "L1":
				v = fmt.Sprintf("l1(%v)", o["l1"])
			case "L2":
				v = fmt.Sprintf("l2(%v)", o["l2"])
			case "MaxNorm":
				v = fmt.Sprintf("max_norm(%v)", o["max_value"])
			default:
				t.Fatalf("%s: unknown object %v", k, o)
			}
		}
		config[k] = v
	}
	b, err := json.Marshal(map[string]any{"class_name": args["class_name"], "config": config})
	check(t, err)
	l, err := layers.UnmarshalConfig(b)
	check(t, err)
	return l
}

func (g *goldenModel) build(t *testing.T, c *tensortest.Case) *Model {
	t.Helper()
	var ins []*Tensor
	at := map[string]*Tensor{}
	for _, l := range g.layers {
		name := l["name"].(string)
		if l["class_name"] == "Input" {
			var shape []int
			for _, d := range l["shape"].([]any) {
				shape = append(shape, int(d.(float64)))
			}
			at[name] = Input(shape...)
			ins = append(ins, at[name])
			continue
		}
		var x []*Tensor
		for _, from := range l["inputs"].([]any) {
			x = append(x, at[from.(string)])
		}
		at[name] = Apply(goldenLayer(t, l), x...)
	}
	var outs []*Tensor
	for _, o := range g.outputs {
		outs = append(outs, at[o])
	}
	m, err := NewModel(tupleOf(ins), tupleOf(outs))
	check(t, err)
	var first []*Tensor
	for _, w := range m.Weights() {
		first = append(first, c.Weights[w.Name()].Tensor())
	}
	check(t, m.SetWeights(first))
	return m
}

func tupleOf(ts []*Tensor) *Tensor {
	if len(ts) == 1 {
		return ts[0]
	}
	return Tuple(ts...)
}

func (g *goldenModel) compile(t *testing.T, m *Model) {
	t.Helper()
	c := CompileConfig{LossWeights: g.lossWeights}
	rate := g.optimizer["learning_rate"].(float64)
	switch g.optimizer["class_name"] {
	case "RMSprop":
		c.Optimizer = &optimizers.RMSprop{LearningRate: rate}
	case "Adam":
		c.Optimizer = &optimizers.Adam{LearningRate: rate}
	case "SGD":
		momentum, _ := g.optimizer["momentum"].(float64)
		c.Optimizer = &optimizers.SGD{LearningRate: rate, Momentum: momentum}
	}
	if g.lossScale != nil {
		c.Optimizer = &optimizers.LossScaleOptimizer{Inner: c.Optimizer,
			InitialScale: g.lossScale.InitialScale, DynamicGrowthSteps: g.lossScale.DynamicGrowthSteps}
	}
	for _, l := range g.loss {
		switch l["class_name"] {
		case "SparseCategoricalCrossentropy":
			logits, _ := l["from_logits"].(bool)
			c.Losses = append(c.Losses, &losses.SparseCategoricalCrossentropy{FromLogits: logits})
		case "BinaryCrossentropy":
			c.Losses = append(c.Losses, &losses.BinaryCrossentropy{})
		case "MeanSquaredError":
			c.Losses = append(c.Losses, &losses.MeanSquaredError{})
		}
	}
	if g.metrics != nil {
		c.Metrics = []metrics.Metric{&metrics.SparseCategoricalAccuracy{Name: "accuracy"}}
	}
	check(t, m.Compile(c))
}

// part is rows lo … hi-1 of an array.
func part(a tensortest.Array, lo, hi int) *Tensor {
	row := len(a.Data) / a.Shape[0]
	return tensortest.Of(a.DType, a.Data[lo*row:hi*row], append([]int{hi - lo}, a.Shape[1:]...)...).Tensor()
}

// batch is batch i of the case.
func (g *goldenModel) batch(t *testing.T, c *tensortest.Case, i int) (b Batch) {
	t.Helper()
	lo, hi := i*g.batchSize, (i+1)*g.batchSize
	var xs, ys []*Tensor
	for _, l := range g.layers {
		if l["class_name"] == "Input" {
			xs = append(xs, part(c.Inputs["x/"+l["name"].(string)], lo, hi))
		}
	}
	for _, o := range g.outputs {
		ys = append(ys, part(c.Inputs["y/"+o], lo, hi))
	}
	b.X, b.Y = tupleOf(xs), tupleOf(ys)
	if w, ok := c.Inputs["sample_weight"]; ok {
		b.Weight = part(w, lo, hi)
	}
	if g.classWeight != nil {
		var err error
		b.Weight, err = classWeights(b, g.classWeight)
		check(t, err)
	}
	return b
}

// TestGoldenModels trains the models of models.json and compares each step
// with Keras.
//
// Where Mezzo differs on purpose: it rounds to 16 bits once per contraction
// where TensorFlow rounds after each operation, weight gradients stay float32,
// and a cross-entropy on a softmax is computed from its logits. None of that
// shows in float32.
func TestGoldenModels(t *testing.T) {
	for _, c := range tensortest.Load(t, "testdata/golden/models.json").Cases {
		if strings.HasPrefix(c.Name, "vector_") {
			continue // TestVector121, TestVector122
		}
		t.Run(c.Name+"/"+c.Policy, func(t *testing.T) { trainGolden(t, &c) })
	}
}

func trainGolden(t *testing.T, c *tensortest.Case) {
	underPolicy(t, c.Policy)
	g := readGolden(t, c)
	m := g.build(t, c)
	g.compile(t, m)
	if c.Name == "mlp_overflow" {
		overflowGolden(t, c, g, m)
		return
	}
	d := layers.BaseOf(m.Layers()[0]).ComputeDType()
	for i := range g.steps {
		logs, err := m.TrainOnBatch(background, g.batch(t, c, i))
		check(t, err)
		compareLogs(t, fmt.Sprintf("step %d", i+1), c, logs, "loss", "log/", i, d, g.batchSize)
		n, err := optimizers.Iterations(m.Optimizer())
		check(t, err)
		if want := int64(c.Outputs["iterations"].Data[i]); n != want {
			t.Errorf("step %d: got %d iterations, want %d", i+1, n, want)
		}
		if want, ok := c.Outputs["loss_scale"]; ok {
			r, err := m.StepResult()
			check(t, err)
			if r.LossScale != want.Data[i] || !r.Applied {
				t.Errorf("step %d: got %+v, want it applied and the loss scale %v", i+1, r, want.Data[i])
			}
		}
	}
	for _, w := range m.Weights() {
		got, err := w.Float64s()
		check(t, err)
		compareMovement(t, w.Name(), d, g.steps, g.batchSize, c.Weights[w.Name()].Data, got, c.Outputs["final/"+w.Name()].Data)
	}
	first := g.batch(t, c, 0)
	p, err := m.Predict(background, first.X)
	check(t, err)
	for i, name := range g.outputs {
		// One 16-bit rounding for each of up to four layers on the way.
		scale := 4.0
		want := c.Outputs["predict/"+name]
		for k, v := range values(t, p.Unpack()[i]) {
			if !tensortest.Within(d, v, want.Data[k], scale) && math.Abs(v-want.Data[k]) > scale*d.Epsilon() {
				t.Errorf("prediction %s[%d]: got %v, want %v", name, k, v, want.Data[k])
			}
		}
	}
	first.Weight = nil // Keras's test_on_batch had no weights
	logs, err := m.TestOnBatch(background, first)
	check(t, err)
	compareLogs(t, "test", c, logs, "test/loss", "test/", 0, d, g.batchSize)
}

// compareLogs compares the logs of a step with element i of Keras's. The loss
// is a mean of numbers of magnitude 1 that are off by a rounding to d. An
// accuracy may differ by one sample where two classes are as likely in 16 bits.
func compareLogs(t *testing.T, what string, c *tensortest.Case, logs Logs, loss, prefix string, i int, d DType, n int) {
	t.Helper()
	for _, l := range logs {
		name := prefix + l.Name
		if l.Name == "loss" {
			name = loss
		}
		want, ok := c.Outputs[name]
		if !ok {
			t.Errorf("%s: got %v, which Keras does not log", what, l)
			continue
		}
		if l.Name == "accuracy" {
			if slack := 1 / float64(n); math.Abs(l.Value-want.Data[i]) > slack || d == Float32 && l.Value != want.Data[i] {
				t.Errorf("%s: got accuracy %v, want %v", what, l.Value, want.Data[i])
			}
			continue
		}
		if !tensortest.Within(d, l.Value, want.Data[i], 1) {
			t.Errorf("%s: got %s %v, want %v", what, l.Name, l.Value, want.Data[i])
		}
	}
	for name := range c.Outputs {
		if l, ok := strings.CutPrefix(name, prefix); ok && !logs.Has(l) {
			t.Errorf("%s: got %v without %s", what, logs, l)
		}
	}
}

// compareMovement compares how far training has moved a weight: each step adds
// an error of the size of a rounded result, and in 16 bits one sample of a
// batch may fall on the other side of the kink of a relu.
func compareMovement(t *testing.T, name string, d DType, steps, batch int, first, got, want []float64) {
	t.Helper()
	var moved, off float64
	for i := range want {
		moved += (want[i] - first[i]) * (want[i] - first[i])
		off += (got[i] - want[i]) * (got[i] - want[i])
	}
	rel, _ := d.Tolerance()
	limit := float64(steps) * rel
	if d.Is16() {
		limit += 1 / float64(batch)
	}
	if ratio := math.Sqrt(off / moved); !(ratio <= limit) {
		t.Errorf("%s: off by %v of its movement, want at most %v", name, ratio, limit)
	}
}

// overflowGolden starts with a loss scale of 2²⁰. Keras skips the first four
// steps; Mezzo, whose weight gradients are sums in float32 that are never
// rounded to float16, only those in which an activation's gradient overflows.
// What a skipped step means is the same.
func overflowGolden(t *testing.T, c *tensortest.Case, g *goldenModel, m *Model) {
	scale := g.lossScale.InitialScale
	var applied, skipped int64
	good := 0
	for i := range g.steps {
		before := bits(t, m)
		logs, err := m.TrainOnBatch(background, g.batch(t, c, i))
		check(t, err)
		if i == 0 && !tensortest.Within(Float16, logs.Get("loss"), c.Outputs["loss"].Data[0], 1) {
			t.Errorf("step 1: got loss %v, want %v", logs.Get("loss"), c.Outputs["loss"].Data[0])
		}
		r, err := m.StepResult()
		check(t, err)
		if r.Applied {
			applied++
			if good++; good == g.lossScale.DynamicGrowthSteps {
				scale, good = scale*2, 0
			}
		} else {
			skipped++
			scale, good = scale/2, 0
		}
		if r.AppliedSteps != applied || r.SkippedSteps != skipped || r.LossScale != scale {
			t.Errorf("step %d: got %+v, want %d applied, %d skipped, scale %v", i+1, r, applied, skipped, scale)
		}
		if same(before, bits(t, m)) == r.Applied {
			t.Errorf("step %d: applied is %v, and that is not whether weights moved", i+1, r.Applied)
		}
	}
	keras := int64(g.steps) - int64(c.Outputs["iterations"].Data[g.steps-1])
	if skipped < 1 || skipped > keras {
		t.Errorf("got %d steps skipped, want from 1 to Keras's %d", skipped, keras)
	}
}

// TestVector121 is Keras's trainer test of a schedule over three epochs.
func TestVector121(t *testing.T) {
	c := goldenCase(t, "vector_121_schedule_fit")
	m := Sequential(&layers.Dense{Units: 2, KernelInitializer: "ones", BiasInitializer: "ones"})
	adam := &optimizers.Adam{Schedule: &optimizers.ExponentialDecay{InitialLearningRate: 0.05, DecaySteps: 1, DecayRate: 0.9}}
	check(t, m.Compile(CompileConfig{Optimizer: adam, Loss: &losses.MeanSquaredError{}}))
	var running []float64
	x := NewTensor(rising(32), 16, 2)
	h := fit(t, m, FromTensors(x, x, nil), FitConfig{BatchSize: 4, Epochs: 3, Shuffle: new(false), Callbacks: []Callback{{
		BatchEnd: func(_ context.Context, r *Run) error {
			logs, err := r.Read()
			running = append(running, logs.Get("loss"))
			return err
		}}}})
	// 5e-5 as in Keras's test: the rate is a power computed in float32.
	for what, pair := range map[string][2][]float64{
		"epoch loss":   {h.Get("loss"), c.Outputs["epoch_loss"].Data},
		"running loss": {running, c.Outputs["running_loss"].Data},
		"kernel":       {weightsOf(t, m)[0], c.Outputs["final/kernel"].Data},
		"bias":         {weightsOf(t, m)[1], c.Outputs["final/bias"].Data},
	} {
		got, want := pair[0], pair[1]
		if len(got) != len(want) {
			t.Fatalf("%s: got %v, want %v", what, got, want)
		}
		for i := range want {
			if math.Abs(got[i]-want[i]) > 5e-5*math.Abs(want[i]) {
				t.Errorf("%s: got %v, want %v", what, got, want)
				break
			}
		}
	}
	if n, err := adam.Iterations(); n != 12 || err != nil {
		t.Errorf("got %d iterations, %v, want 12", n, err)
	}
}

// TestVector122 is Keras's test of the calls on single batches, one after the
// other on the same weights.
func TestVector122(t *testing.T) {
	c := goldenCase(t, "vector_122_on_batch")
	m := Sequential(&layers.Dense{Units: 3, KernelInitializer: "ones", UseBias: new(false)})
	check(t, m.Compile(CompileConfig{Optimizer: &optimizers.SGD{LearningRate: 0.01}, Loss: &losses.MeanSquaredError{}}))
	w := rising(100)
	for i := range w {
		w[i] /= 50
	}
	ones := make([]float32, 400)
	for i := range ones {
		ones[i] = 1
	}
	x, y, weight := NewTensor(ones, 100, 4), NewTensor(make([]float32, 300), 100, 3), NewTensor(w, 100)
	step := func(name string, f func(context.Context, Batch) (Logs, error), b Batch) {
		t.Helper()
		logs, err := f(background, b)
		check(t, err)
		wantNear(t, name, []float64{logs.Get("loss")}, c.Outputs[name].Data, 1)
	}
	predict := func(name string) {
		t.Helper()
		p, err := m.Predict(background, x)
		check(t, err)
		wantNear(t, name, values(t, p)[:3], c.Outputs[name].Data, 1)
	}
	step("1_train", m.TrainOnBatch, Batch{X: x, Y: y})
	step("2_train", m.TrainOnBatch, Batch{X: x, Y: y})
	step("3_test", m.TestOnBatch, Batch{X: x, Y: y})
	predict("4_predict")
	step("5_train_sample_weight", m.TrainOnBatch, Batch{X: x, Y: y, Weight: weight})
	step("6_test_sample_weight", m.TestOnBatch, Batch{X: x, Y: y, Weight: weight})
	predict("7_predict")
	h := fit(t, m, FromTensors(x, y, nil), FitConfig{BatchSize: 100, ClassWeight: map[int]float64{1: .3, 0: .2}})
	wantNear(t, "8_train_class_weight", h.Get("loss"), c.Outputs["8_train_class_weight"].Data, 1)
	wantNear(t, "final/kernel", weightsOf(t, m)[0], c.Outputs["final/kernel"].Data, 1)
}

// TestVector35 is Keras's test that loss scaling prevents underflow: the
// gradient of the first of fifteen sigmoid layers is below the smallest
// float16.
func TestVector35(t *testing.T) {
	underPolicy(t, "mixed_float16")
	for _, scale := range []bool{false, true} {
		var stack []layers.Layer
		for range 15 {
			stack = append(stack, &layers.Dense{Units: 1, Activation: "sigmoid", KernelInitializer: "ones", UseBias: new(false)})
		}
		m := Sequential(stack...)
		check(t, m.Compile(CompileConfig{Optimizer: &optimizers.SGD{LearningRate: 1e9}, Loss: &losses.MeanSquaredError{}, AutoScaleLoss: &scale}))
		one := NewTensor([]float32{1}, 1, 1)
		fit(t, m, FromTensors(one, one, nil), FitConfig{BatchSize: 1})
		if moved := weightsOf(t, m)[0][0] != 1; moved != scale {
			t.Errorf("scaling is %v: got kernel %v, want it to move if scaled", scale, weightsOf(t, m)[0][0])
		}
	}
}

func goldenCase(t *testing.T, name string) *tensortest.Case {
	t.Helper()
	for _, c := range tensortest.Load(t, "testdata/golden/models.json").Cases {
		if c.Name == name {
			return &c
		}
	}
	t.Fatalf("no case %q", name)
	return nil
}
