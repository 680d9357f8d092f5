package scenario

import (
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/losses"
	"github.com/mezzo-ml/mezzo/optimizers"
	"github.com/mezzo-ml/mezzo/policy"
)

// The digests of TestPortableBits: all that a training leaves, with portable bits, on every
// processor. They change when a model of the test, an initializer, an optimizer or a kernel
// of portable Go rounds differently, which is a change to be mentioned to users.
const (
	portableDigest      = "80bd5186b5b13cde5bdb94f91420c28f0cac0c10aa490f3896af676641f2ec91"
	portableDigestEvery = "b957c3543a18d815155b877fe2700478040f759aa4835ba224b04f95bef45617" // with -every
)

// seedModel is a small version of one of the models that Mezzo's examples train, or a
// recurrent one.
type seedModel struct {
	name      string
	batch     int
	model     func() *keras.Model
	optimizer func() optimizers.Optimizer
	loss      losses.Loss
	data      func(g *rand.Rand, n int) (x, y *keras.Tensor)
}

var sparse = &losses.SparseCategoricalCrossentropy{FromLogits: true}

var seedModels = []seedModel{
	{"MNIST MLP", 24, func() *keras.Model {
		m := keras.Sequential(&layers.Dense{Units: 33, Activation: "relu"}, &layers.Dense{Units: 16, Activation: "relu"}, &layers.Dense{Units: 10})
		check(m.Build(100))
		return m
	}, func() optimizers.Optimizer { return &optimizers.RMSprop{LearningRate: 0.002} }, sparse, pictures(10, 100)},
	{"CNN", 6, func() *keras.Model {
		m := keras.Sequential(
			&layers.Conv2D{Filters: 6, KernelSize: layers.PerAxis{3}, Activation: "relu"}, &layers.MaxPooling2D{},
			&layers.Conv2D{Filters: 9, KernelSize: layers.PerAxis{3}, Activation: "relu"}, &layers.MaxPooling2D{},
			&layers.Flatten{}, &layers.Dropout{Rate: 0.5}, &layers.Dense{Units: 10})
		check(m.Build(14, 14, 1))
		return m
	}, func() optimizers.Optimizer { return &optimizers.Adam{LearningRate: 0.003} }, sparse, pictures(10, 14, 14, 1)},
	{"Rossmann", 24, func() *keras.Model {
		store, day, numbers := keras.InputOf(keras.Int32), keras.InputOf(keras.Int32), keras.Input(9)
		x := keras.Apply(&layers.Concatenate{}, keras.Apply(&layers.Embedding{InputDim: 40, OutputDim: 10}, store),
			keras.Apply(&layers.Embedding{InputDim: 7, OutputDim: 3}, day), numbers)
		x = keras.Apply(&layers.Dropout{Rate: 0.02}, keras.Apply(&layers.Dense{Units: 32, Activation: "relu"}, x))
		x = keras.Apply(&layers.Dense{Units: 17, Activation: "relu"}, x)
		return must(keras.NewModel(keras.Tuple(store, day, numbers), keras.Apply(&layers.Dense{Units: 1, Activation: "sigmoid"}, x)))
	}, func() optimizers.Optimizer { return &optimizers.Adam{LearningRate: 0.002} }, &losses.MeanAbsoluteError{}, func(g *rand.Rand, n int) (x, y *keras.Tensor) {
		stores, days, numbers, sales := make([]int32, n), make([]int32, n), make([]float32, 9*n), make([]float32, n)
		for i := range n {
			stores[i], days[i] = g.Int32N(40), g.Int32N(7)
			sales[i] = float32(stores[i])/64 + float32(days[i])/32
		}
		for i := range numbers {
			numbers[i] = dyadic(g)
		}
		return keras.Tuple(keras.NewTensor(stores, n), keras.NewTensor(days, n), keras.NewTensor(numbers, n, 9)), keras.NewTensor(sales, n, 1)
	}},
	{"U-Net", 2, func() *keras.Model {
		conv := func(x *keras.Tensor, filters int) *keras.Tensor {
			x = keras.Apply(&layers.Conv2D{Filters: filters, KernelSize: layers.PerAxis{3}, Padding: "same", UseBias: new(false)}, x)
			return keras.Apply(&layers.ReLU{}, keras.Apply(&layers.BatchNormalization{}, x))
		}
		in := keras.Input(12, 12, 3)
		side := conv(in, 5)
		x := conv(keras.Apply(&layers.MaxPooling2D{}, side), 8)
		x = keras.Apply(&layers.Conv2DTranspose{Filters: 5, KernelSize: layers.PerAxis{2}, Strides: layers.PerAxis{2}}, x)
		x = conv(keras.Apply(&layers.Concatenate{}, x, side), 5)
		return must(keras.NewModel(in, keras.Apply(&layers.Conv2D{Filters: 2, KernelSize: layers.PerAxis{1}}, x)))
	}, func() optimizers.Optimizer { return &optimizers.SGD{LearningRate: 0.02, Momentum: 0.9} }, sparse, func(g *rand.Rand, n int) (x, y *keras.Tensor) {
		x, _ = pictures(2, 12, 12, 3)(g, n)
		labels := make([]int32, n*12*12)
		for i := range labels {
			labels[i] = int32(i % 12 / 7)
		}
		return x, keras.NewTensor(labels, n, 12, 12)
	}},
	{"BERT", 3, func() *keras.Model {
		tokens := keras.InputOf(keras.Int32, 8)
		x := keras.Apply(&layers.Embedding{InputDim: 30, OutputDim: 24}, tokens)
		for range 2 {
			y := keras.Apply(&layers.MultiHeadAttention{NumHeads: 3, KeyDim: 8, Dropout: 0.1}, x, x)
			x = keras.Apply(&layers.LayerNormalization{Epsilon: new(1e-12)}, keras.Apply(&layers.Add{}, x, y))
			y = keras.Apply(&layers.Dense{Units: 24}, keras.Apply(&layers.Dense{Units: 40, Activation: "gelu"}, x))
			x = keras.Apply(&layers.LayerNormalization{Epsilon: new(1e-12)}, keras.Apply(&layers.Add{}, x, y))
		}
		x = keras.Apply(&layers.Dense{Units: 20, Activation: "tanh"}, keras.Apply(&layers.GlobalAveragePooling1D{}, x))
		return must(keras.NewModel(tokens, keras.Apply(&layers.Dense{Units: 4}, x)))
	}, func() optimizers.Optimizer {
		return &optimizers.AdamW{LearningRate: 0.002, Schedule: &optimizers.CosineDecay{InitialLearningRate: 0.002, DecaySteps: 150, WarmupSteps: 5, WarmupTarget: new(0.004)}}
	}, sparse, func(g *rand.Rand, n int) (x, y *keras.Tensor) {
		words, labels := make([]int32, n*8), make([]int32, n)
		for i := range words {
			words[i] = g.Int32N(30)
			labels[i/8] = words[i] % 4
		}
		return keras.NewTensor(words, n, 8), keras.NewTensor(labels, n)
	}},
	{"LSTM and GRU", 5, func() *keras.Model {
		m := keras.Sequential(&layers.LSTM{Units: 12, ReturnSequences: true}, &layers.GRU{Units: 9}, &layers.Dense{Units: 3})
		check(m.Build(6, 7))
		return m
	}, func() optimizers.Optimizer { return &optimizers.Adam{LearningRate: 0.005} }, sparse, pictures(3, 6, 7)},
}

// dyadic returns a number of few bits, about 0.
func dyadic(g *rand.Rand) float32 { return float32(g.IntN(257)-128) / 64 }

// pictures returns a function that makes samples and their classes.
func pictures(classes int, shape ...int) func(g *rand.Rand, n int) (x, y *keras.Tensor) {
	return func(g *rand.Rand, n int) (x, y *keras.Tensor) {
		data, labels := make([]float32, n*volume(shape)), make([]int32, n)
		for i := range data {
			data[i] = dyadic(g)
		}
		for i := range labels {
			labels[i] = int32(i % classes)
			data[i*volume(shape)+i%classes] += 2
		}
		return keras.NewTensor(data, append([]int{n}, shape...)...), keras.NewTensor(labels, n)
	}
}

// train trains the model from its first weights and returns a digest of its state, its
// optimizer's and its predictions.
func (s *seedModel) train(t *testing.T, name string, steps int) string {
	defer policy.SetGlobal(policy.SetGlobal(name))
	m := s.model()
	check(m.SetSeed(7))
	check(m.Compile(keras.CompileConfig{Optimizer: s.optimizer(), Loss: s.loss}))
	g := rand.New(rand.NewPCG(25, 2))
	var last *keras.Tensor
	for range steps {
		var b keras.Batch
		b.X, b.Y = s.data(g, s.batch)
		check(m.TrainStep(t.Context(), b))
		last = b.X
	}
	h := sha256.New()
	h.Write(bytesOf(m, m.Optimizer()))
	h.Write(must(must(m.Predict(t.Context(), last)).Bytes()))
	return fmt.Sprintf("%x", h.Sum(nil)[:8])
}

// TestPortableBits: with portable bits, trainings of all seed models under three policies
// leave the same state on every instruction set, operating system and architecture that runs
// this test: with its levels, for other architectures in .ci/arm64 and .ci/wasm. There are 5
// steps of each, 200 with -every, and one digest for all.
func TestPortableBits(t *testing.T) {
	defer policy.SetBits(policy.SetBits("portable"))
	steps, want := 5, portableDigest
	if *every {
		steps, want = 200, portableDigestEvery
	}
	var all []string
	for _, s := range seedModels {
		for _, p := range policies {
			all = append(all, fmt.Sprintf("%s, %s: %s", s.name, p, s.train(t, p, steps)))
		}
	}
	if got := fmt.Sprintf("%x", sha256.Sum256([]byte(strings.Join(all, "\n")))); got != want {
		t.Errorf("on %s the digest of %d steps is\n%s, want\n%s; by model and policy:\n%s", keras.Devices()[0].ISA, steps, got, want, strings.Join(all, "\n"))
	}
	if os.Getenv("MEZZO_CPU") != "" {
		return
	}
	words, err := levels()
	if err != nil {
		t.Skip(err) // no processes here
	}
	for i, word := range words[:len(words)-1] {
		c := exec.Command(os.Args[0], "-test.run=^TestPortableBits$", fmt.Sprint("-every=", *every))
		c.Env = append(os.Environ(), "MEZZO_CPU="+word, fmt.Sprint("GOMAXPROCS=", 1+i))
		if said, err := c.CombinedOutput(); err != nil {
			t.Errorf("with MEZZO_CPU=%s: %v\n%s", word, err, said)
		}
	}
}

// TestPortableScenarios: with portable bits, scenarios leave the same trace in portable Go and
// on the highest level, each under one policy: one in eight; with -every one in three and on all
// levels; with -full all.
func TestPortableScenarios(t *testing.T) {
	words, err := levels()
	if err != nil || len(words) < 2 || testing.Short() {
		t.Skip("there is one level, or -short")
	}
	if !*every {
		words = []string{words[0], words[len(words)-1]}
	}
	for i, s := range scenarios {
		p := policies[i%len(policies)]
		switch {
		case *full:
		case *every:
			if i%3 != 0 {
				continue
			}
			p = policies[i/3%len(policies)]
		case i%8 != 3:
			continue
		}
		t.Run(s.name, func(t *testing.T) {
			var tasks []task
			for j, word := range words {
				tasks = append(tasks, task{config{Device: "cpu", Level: word, Bits: "portable", Procs: 1 + j%3}, job{Scenario: s.name, Policy: p}})
			}
			answers := pool.doAll(t, tasks)
			for j, a := range answers {
				if a.Err != "" {
					t.Fatalf("%v: %s", tasks[j].config, a.Err)
				}
				if err := sameBits(answers[0].Records, a.Records); err != nil {
					t.Errorf("%v and %v: %v", tasks[0].config, tasks[j].config, err)
				}
			}
		})
	}
}
