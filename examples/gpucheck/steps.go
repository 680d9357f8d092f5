package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/mezzo-ml/mezzo/backend"
	"github.com/mezzo-ml/mezzo/backend/driver"
	"github.com/mezzo-ml/mezzo/backend/op"
	"github.com/mezzo-ml/mezzo/examples/models"
	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/losses"
	"github.com/mezzo-ml/mezzo/optimizers"
	"github.com/mezzo-ml/mezzo/policy"
)

// spec says what torch_cuda.py is to build for a row: see torch_models.py.
type spec map[string]any

// network is a row of the steps: a model to train, and data for a step of it.
type network struct {
	name  string
	spec  spec
	model func() (*keras.Model, error)
	x, y  func() *keras.Tensor
	loss  losses.Loss
}

// classifier is a network with probabilities of classes on float inputs.
func classifier(name string, batch, classes int, s spec, shape []int, model func() (*keras.Model, error)) network {
	s["batch"] = batch
	return network{
		name: name, spec: s, model: model, loss: &losses.SparseCategoricalCrossentropy{FromLogits: s["model"] == "unet"},
		x: func() *keras.Tensor { return floats(append([]int{batch}, shape...)...) },
		y: func() *keras.Tensor { return indices(0, classes, batch) },
	}
}

func mlpNetwork(name string, batch int, sizes ...int) network {
	s := spec{"model": "mlp", "sizes": sizes}
	return classifier(name, batch, sizes[len(sizes)-1], s, sizes[:1], func() (*keras.Model, error) {
		model := keras.Sequential()
		for i, units := range sizes[1:] {
			l := &layers.Dense{Units: units, Activation: "relu"}
			if i == len(sizes)-2 {
				l.Activation = "softmax"
			}
			if err := model.Add(l); err != nil {
				return nil, err
			}
		}
		return model, nil
	})
}

func cnnNetwork(batch int, filters [2]int) network {
	s := spec{"model": "cnn", "size": 28, "filters": filters, "padding": "same"}
	return classifier(fmt.Sprintf("cnn-b%d", batch), batch, 10, s, []int{784}, func() (*keras.Model, error) { return models.DigitsCNN(filters), nil })
}

func unetNetwork() network {
	u, batch := models.BobRoss, 8
	if *small {
		u, batch = models.UNet{Size: 20, Filters: 2, Depth: 1, Classes: 3}, 1
	}
	s := spec{"model": "unet", "size": u.Size, "filters": u.Filters, "depth": u.Depth, "classes": u.Classes}
	n := classifier("unet", batch, u.Classes, s, []int{u.Size, u.Size, 3}, u.Model)
	n.y = func() *keras.Tensor {
		size, err := u.OutputSize()
		if err != nil {
			panic(err) // a size of this file
		}
		return indices(0, u.Classes, batch, size, size)
	}
	return n
}

func lstmNetwork(units, size, batch int) network {
	s := spec{"model": "recurrent", "cell": "lstm", "size": size, "units": units}
	return classifier("lstm", batch, 10, s, []int{size, size}, func() (*keras.Model, error) {
		return keras.Sequential(&layers.LSTM{Units: units}, &layers.Dense{Units: 10, Activation: "softmax"}), nil
	})
}

func bertNetwork(name string, c models.BERT, tokens, batch int) network {
	return network{
		name: name, loss: &losses.SparseCategoricalCrossentropy{FromLogits: true},
		spec: spec{"model": "bert", "batch": batch, "tokens": tokens, "vocabulary": c.Vocabulary, "positions": c.Positions, "types": c.Types,
			"hidden": c.Hidden, "layers": c.Layers, "heads": c.Heads, "intermediate": c.Intermediate, "dropout": c.Dropout},
		model: func() (*keras.Model, error) { return c.Span(tokens) },
		x: func() *keras.Tensor {
			return keras.Tuple(indices(1, c.Vocabulary-1, batch, tokens), indices(0, c.Types, batch, tokens))
		},
		y: func() *keras.Tensor { return keras.Tuple(indices(0, tokens, batch), indices(0, tokens, batch)) },
	}
}

// networks are the rows of the steps: those of the goals.
func networks() []network {
	if *small {
		tiny := models.BERT{Vocabulary: 50, Positions: 8, Types: 2, Hidden: 8, Layers: 2, Heads: 2, Intermediate: 16, Dropout: 0.1}
		return []network{mlpNetwork("small-mlp", 4, 12, 8, 8, 10), cnnNetwork(2, [2]int{1, 2}), lstmNetwork(4, 6, 2), unetNetwork(), bertNetwork("bert", tiny, 8, 2)}
	}
	return []network{
		mlpNetwork("mlp", 8192, 784, 4096, 4096, 10), cnnNetwork(590, [2]int{420, 1000}), cnnNetwork(1000, [2]int{420, 1000}),
		bertNetwork("bert", models.BERTBase, 128, 32), unetNetwork(), lstmNetwork(128, 28, 128), mlpNetwork("small-mlp", 128, 784, 64, 64, 10),
	}
}

// floats are numbers between ±0.5 that look random.
func floats(shape ...int) *keras.Tensor {
	x := make([]float32, op.Shape(shape).Size())
	for i := range x { // a multiplicative hash
		x[i] = float32(int32(uint32(i+1)*2654435761)) / (1 << 32)
	}
	return keras.NewTensor(x, shape...)
}

// indices are n numbers from first on, in an order that looks random.
func indices(first, n int, shape ...int) *keras.Tensor {
	x := make([]int32, op.Shape(shape).Size())
	for i := range x {
		x[i] = int32(first + int(uint32(i+1)*2654435761>>8)%n)
	}
	return keras.NewTensor(x, shape...)
}

// stepSpecs is what -specs prints.
func stepSpecs() map[string]spec {
	m := map[string]spec{}
	for _, n := range networks() {
		m[n.name] = n.spec
	}
	return m
}

// timing is the result of a step's process.
type timing struct {
	MS    float64     // of a step
	Bytes keras.Bytes // that a step needs, as planned
	Taken keras.Bytes // that the process took of the GPU at most; 0: not known
	Moved keras.Bytes // that the kernels of a step read and write; 0: not known
	Loss  [2]float64
}

// steps times training steps under each policy: as captured graphs, and with
// kernels called one by one.
func steps(ctx context.Context, w io.Writer) error {
	fmt.Fprint(w, "## Training steps\n\nForward, backward and Adam; milliseconds. PyTorch is its fastest setting.\n\n")
	theirs := peers(w)
	head(w, "step", "policy", "graph ms", "calls ms", "plan MiB", "GPU MiB", "moved MiB", "loss", "PyTorch ms", "setting", "Mezzo / PyTorch", "PyTorch eager ms")
	for _, n := range networks() {
		if !named(n.name) {
			continue
		}
		for p := range strings.SplitSeq(*under, ",") {
			t := task{Kind: "step", Name: n.name, Policy: p}
			var graph, calls timing
			line := []string{n.name, p}
			if err := spawn(ctx, *device, t, &graph); err != nil {
				row(w, append(line, err.Error(), "", "", "", "", "", "", "", "", "")...)
				continue
			}
			eager := "–"
			if err := spawn(ctx, *device, t, &calls, "MEZZO_CUDA_GRAPHS=0"); err == nil {
				eager = fmt.Sprintf("%.3f", calls.MS)
			}
			line = append(line, fmt.Sprintf("%.3f", graph.MS), eager, mebibytes(graph.Bytes), mebibytes(graph.Taken), mebibytes(graph.Moved), fmt.Sprintf("%.4g → %.4g", graph.Loss[0], graph.Loss[1]))
			row(w, append(line, peer(theirs[n.name][p], graph.MS)...)...)
		}
	}
	return nil
}

// mebibytes prints a size; "–" what is not known.
func mebibytes(n keras.Bytes) string {
	if n == 0 {
		return "–"
	}
	return fmt.Sprintf("%.1f", float64(n)/(1<<20))
}

// peers reads PyTorch's times: by row, policy and setting. Without them the columns
// are empty.
func peers(w io.Writer) map[string]map[string]map[string]float64 {
	theirs := map[string]map[string]map[string]float64{}
	if *torch == "" {
		return theirs
	}
	data, err := os.ReadFile(*torch)
	if err == nil {
		err = json.Unmarshal(data, &theirs)
	}
	if err != nil {
		fmt.Fprintf(w, "PyTorch's times cannot be read: %v\n\n", err)
	}
	return theirs
}

// peer is the columns of PyTorch.
func peer(settings map[string]float64, ours float64) []string {
	name, best := "", 0.0
	for s, ms := range settings {
		if name == "" || ms < best {
			name, best = s, ms
		}
	}
	if name == "" {
		return []string{"–", "–", "–", "–"}
	}
	eager := "–"
	if ms := settings["eager"]; ms > 0 {
		eager = fmt.Sprintf("%.3f", ms)
	}
	return []string{fmt.Sprintf("%.3f", best), name, fmt.Sprintf("%.2f", ours/best), eager}
}

// timeStep is the task of steps.
func timeStep(ctx context.Context, t task) (any, error) { return timed(ctx, networks(), t) }

// timed times a step of one of the networks.
func timed(ctx context.Context, all []network, t task) (any, error) {
	policy.SetGlobal(t.Policy)
	i := slices.IndexFunc(all, func(n network) bool { return n.name == t.Name })
	if i < 0 {
		return nil, fmt.Errorf("no step %q", t.Name)
	}
	n := all[i]
	model, err := n.model()
	if err != nil {
		return nil, err
	}
	if err := model.Compile(keras.CompileConfig{Optimizer: &optimizers.Adam{}, Loss: n.loss}); err != nil {
		return nil, err
	}
	b := keras.Batch{X: n.x(), Y: n.y()}
	plan, err := model.PlanMemory(b)
	if err != nil {
		return nil, err
	}
	r := timing{Bytes: plan.Peak}
	step := func() error { return model.TrainStep(ctx, b) }
	if err := step(); err != nil {
		return nil, err
	}
	if r.Taken, r.Moved, err = memory(); err != nil { // before evaluations, which have a plan of their own
		return nil, err
	}
	if r.Loss[0], err = evaluated(ctx, model, b); err != nil {
		return nil, err
	}
	if r.MS, err = measure(step); err != nil {
		return nil, err
	}
	r.Loss[1], err = evaluated(ctx, model, b)
	return r, err
}

// memory is the most memory of the GPU that the process had, and what its largest program
// reads and writes.
func memory() (taken, moved keras.Bytes, err error) {
	d, err := backend.Default()
	if err != nil {
		return 0, 0, err
	}
	if p, ok := d.(interface{ PeakBytes() int }); ok {
		taken = keras.Bytes(p.PeakBytes())
	}
	if p, ok := d.(interface{ MovedBytes() int }); ok {
		moved = keras.Bytes(p.MovedBytes())
	}
	return taken, moved, nil
}

// evaluated is the loss on a batch.
func evaluated(ctx context.Context, m *keras.Model, b keras.Batch) (float64, error) {
	logs, err := m.Evaluate(ctx, keras.FromGenerator(func() iter.Seq2[keras.Batch, error] {
		return func(yield func(keras.Batch, error) bool) { yield(b, nil) }
	}, true))
	if err != nil {
		return 0, err
	}
	return logs.Get("loss"), nil
}

// measure is the median of three repetitions, in milliseconds a call: work is
// put on the device's queue and waited for at the end of a repetition.
func measure(call func() error) (float64, error) {
	d, err := backend.Default()
	if err != nil {
		return 0, err
	}
	repeat := func(n int) (time.Duration, error) {
		begin := time.Now()
		for range n {
			if err := call(); err != nil {
				return 0, err
			}
		}
		if w, ok := d.(driver.Synchronizer); ok {
			if err := w.Wait(); err != nil {
				return 0, err
			}
		}
		return time.Since(begin), nil
	}
	if _, err := repeat(3); err != nil { // compiles, and captures
		return 0, err
	}
	n := 1
	for {
		took, err := repeat(n)
		if err != nil {
			return 0, err
		}
		if took >= *duration || n >= 1<<20 || *small {
			break
		}
		n *= 2
	}
	var times []float64
	for range 3 {
		took, err := repeat(n)
		if err != nil {
			return 0, err
		}
		times = append(times, took.Seconds()*1e3/float64(n))
	}
	slices.Sort(times)
	return times[1], nil
}
