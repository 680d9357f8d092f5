package journal

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"iter"
	"math"
	"os"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/callbacks"
	"github.com/mezzo-ml/mezzo/keras/metrics"
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/losses"
	"github.com/mezzo-ml/mezzo/optimizers"
	"github.com/mezzo-ml/mezzo/policy"
)

// TestMain runs the commands of the program under test if they are asked for: Diff starts the test
// binary so.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "journal-command" {
		os.Args = append(os.Args[:1], os.Args[2:]...)
		Main(program)
		return
	}
	serveBefore = []string{"journal-command"}
	os.Exit(m.Run())
}

const (
	samples      = 44
	stepsOfEpoch = 6
)

// trainings cover policies, optimizers, callbacks that change the training, and data.
var trainings = []string{
	"-policy float32 -optimizer sgd -batched -seed 4",
	"-policy mixed_float16 -optimizer adam -rate",
	"-policy mixed_bfloat16 -optimizer momentum -freeze",
	"-policy float32 -optimizer rmsprop -generator",
	"-policy mixed_float16 -optimizer adam -stepsperepoch 6 -skips",
}

var errKilled = errors.New("killed")

// program is the program under test. Its arguments also plant differences.
func program(args []string) (*Training, error) {
	f := flag.NewFlagSet("program", flag.ContinueOnError)
	policyName := f.String("policy", "mixed_bfloat16", "")
	optimizer := f.String("optimizer", "adam", "")
	units := f.Int("units", 70, "") // more than 32 KiB of weights, which are packed
	activation := f.String("activation", cmp.Or(os.Getenv("MEZZO_TEST_ACTIVATION"), "relu"), "")
	seed := f.Uint64("seed", 0, "")
	epochs := f.Int("epochs", 3, "")
	steps := f.Int("stepsperepoch", 0, "")
	batchedData := f.Bool("batched", false, "")
	generator := f.Bool("generator", false, "")
	rate := f.Bool("rate", false, "")
	skips := f.Bool("skips", false, "")
	drop := f.Float64("drop", 0.2, "")
	freeze := f.Bool("freeze", false, "")
	learning := f.Float64("learning", 0.01, "")
	initial := f.Uint64("initial", 0, "")
	every := f.Int("every", 4, "")
	kill := f.Int("kill", 0, "")
	plant := f.String("plant", "", "")
	at := f.Int("at", 0, "")
	element := f.Int("element", 0, "")
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	policy.SetGlobal(*policyName)
	first := &layers.Dense{Units: *units, Activation: *activation, Name: "first"}
	m := keras.Sequential(
		first,
		&layers.Dropout{Rate: *drop, Name: "drop"},
		&layers.Dense{Units: 130, Activation: *activation, Name: "second"},
		&layers.Dense{Units: 3, Name: "logits"},
	)
	if *initial != 0 {
		if err := layers.SetSeed(first, *initial); err != nil {
			return nil, err
		}
	}
	if *freeze {
		first.SetTrainable(false)
	}
	if *skips {
		*learning = 0.02
	}
	var o optimizers.Optimizer
	switch *optimizer {
	case "sgd":
		o = &optimizers.SGD{LearningRate: *learning}
	case "momentum":
		o = &optimizers.SGD{LearningRate: *learning, Momentum: 0.9}
	case "rmsprop":
		o = &optimizers.RMSprop{LearningRate: *learning}
	default:
		o = &optimizers.Adam{LearningRate: *learning}
	}
	if *skips {
		o = &optimizers.LossScaleOptimizer{Inner: o, InitialScale: 1 << 20, DynamicGrowthSteps: 2, Growth: 8}
	}
	if err := m.Compile(keras.CompileConfig{Optimizer: o, Loss: &losses.SparseCategoricalCrossentropy{FromLogits: true},
		Metrics: []metrics.Metric{&metrics.SparseCategoricalAccuracy{}}}); err != nil {
		return nil, err
	}
	c := keras.FitConfig{BatchSize: 8, Epochs: *epochs, StepsPerEpoch: *steps, SaveEvery: *every, Seed: *seed, Verbose: keras.VerbositySilent}
	var data keras.Dataset = samplesOf(*plant == "sample", *at)
	if *batchedData {
		data = samplesOf(false, 0).Shuffle(samples, *seed).Map(func(b keras.Batch) (keras.Batch, error) { return b, nil }).Batch(8).Prefetch(1)
	}
	if *generator {
		data = keras.FromGenerator(func() iter.Seq2[keras.Batch, error] { return samplesOf(false, 0).Batch(8).Batches() }, true)
	}
	if *rate {
		c.Callbacks = callbacks.List(&callbacks.ReduceLROnPlateau{Monitor: "loss", Patience: 0, MinDelta: new(10.0)})
	}
	if *plant != "" && *plant != "sample" {
		c.Callbacks = append(c.Callbacks, planted(*plant, *at, *element))
	}
	if *kill > 0 {
		left := *kill
		c.Callbacks = append(c.Callbacks, keras.Callback{BatchEnd: func(context.Context, *keras.Run) error {
			if left--; left == 0 {
				return errKilled
			}
			return nil
		}})
	}
	return &Training{Model: m, Data: data, Config: c}, nil
}

// samplesOf are the samples of the training. With other set, one of them has another value.
func samplesOf(other bool, at int) *keras.Pipeline {
	x, y := features(), make([]int32, samples)
	for i := range y {
		y[i] = int32(i * i % 3)
	}
	if other {
		x[at*120+7] += 0.25
	}
	return keras.FromTensors(keras.NewTensor(x, samples, 120), keras.NewTensor(y, samples), nil)
}

func features() []float32 {
	x := make([]float32, 120*samples)
	for i := range x {
		x[i] = float32(math.Sin(float64(i*i%1009))) * 0.5
	}
	return x
}

// inputsOf is the checksum of a batch of rows.
func inputsOf(t testing.TB, rows []int) uint64 {
	t.Helper()
	all := features()
	var x []float32
	var y []int32
	for _, i := range rows {
		x = append(x, all[i*120:(i+1)*120]...)
		y = append(y, int32(i*i%3))
	}
	sum, err := tensor.Checksum(background, keras.NewTensor(x, len(rows), 120), keras.NewTensor(y, len(rows)))
	check(t, err)
	return sum
}

// planted is a callback that changes something before step number at of the training: a
// fault that comes again in every replay.
func planted(what string, at, element int) keras.Callback {
	return keras.Callback{BatchBegin: func(_ context.Context, r *keras.Run) error {
		if r.Epoch*stepsOfEpoch+r.Step+1 != at {
			return nil
		}
		flip := func(b []byte) { b[element%len(b)] ^= 1 << (element % 3) }
		var v *keras.Variable
		switch what {
		case "weight":
			v = r.Model.Variables()[0]
		case "slot":
			for _, o := range r.Model.Optimizer().Variables() {
				if v == nil || o.Shape().Size() > v.Shape().Size() {
					v = o
				}
			}
		case "rate":
			rate, err := optimizers.CurrentLearningRate(r.Model.Optimizer())
			if err != nil {
				return err
			}
			return r.Model.Optimizer().(optimizers.RateSetter).SetLearningRate(rate / 2)
		case "shadow", "packed":
			copies, err := r.Model.StepCopies(r.Batch)
			if err != nil {
				return err
			}
			for _, c := range copies {
				if (c.Type.DType == keras.Uint8) == (what == "packed") {
					flip(c.Data)
					return nil
				}
			}
			return fmt.Errorf("no copy to flip a bit of; there are %d", len(copies))
		}
		b, err := v.Bytes()
		if err != nil {
			return err
		}
		flip(b)
		return v.SetBytes(b)
	}}
}
