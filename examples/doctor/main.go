// Command doctor shows what the precision doctor finds in four sick models, and examines
// models of .keras files:
//
//	go run ./examples/doctor -patient own_norm -report r.html
//	go run ./examples/doctor -model m.keras -data x.npz -policy mixed_float16 -report r.html
//
// With -search it looks for the policies under which training is the fastest, or the
// smallest, and still as good as in float32:
//
//	go run ./examples/doctor -model m.keras -data x.npz -search time
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"os"

	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/data"
	"github.com/mezzo-ml/mezzo/keras/doctor"
	"github.com/mezzo-ml/mezzo/keras/saving"
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/losses"
	"github.com/mezzo-ml/mezzo/optimizers"
	"github.com/mezzo-ml/mezzo/policy"
)

var (
	patientName = flag.String("patient", "all", "own_norm, attention, raw_targets, cancellation or all")
	modelPath   = flag.String("model", "", "a .keras `file` to examine instead")
	dataPath    = flag.String("data", "", "an .npz `file` with the arrays x and y")
	policyName  = flag.String("policy", "mixed_float16", "policy of all layers of that model")
	lossName    = flag.String("loss", "", "loss of that model, by Keras's name; by default told from its last layer")
	samples     = flag.Int("batch", 32, "samples of the data that are examined")
	goal        = flag.String("search", "", "search policies for the least `time` or memory of a step, instead of examining one")
	reportPath  = flag.String("report", "", "a `file` to write the report to, .html, .json or .txt; with all patients the last one's; of -search as JSON")
)

func main() {
	log.SetFlags(0)
	flag.Parse()
	if err := run(context.Background()); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	if *modelPath != "" {
		m, x, y, err := load()
		if err != nil {
			return err
		}
		return look(ctx, m, x, y)
	}
	found := false
	for _, p := range patients {
		if *patientName != "all" && *patientName != p.name {
			continue
		}
		found = true
		fmt.Printf("%s: %s\n", p.name, p.what)
		policy.SetGlobal(p.policy)
		m, err := p.build()
		if err != nil {
			return err
		}
		if err := m.Compile(keras.CompileConfig{Optimizer: &optimizers.Adam{}, Loss: p.loss}); err != nil {
			return err
		}
		b := p.batch()
		if err := look(ctx, m, b.X, b.Y); err != nil {
			return err
		}
		fmt.Println()
	}
	if !found {
		return fmt.Errorf("-patient: got %q, want own_norm, attention, raw_targets, cancellation or all", *patientName)
	}
	return nil
}

// look examines the first step on the data, or searches policies.
func look(ctx context.Context, m *keras.Model, x, y *keras.Tensor) error {
	if *goal != "" {
		return search(ctx, m, keras.FromTensors(x, y, nil).Batch(*samples))
	}
	n := min(*samples, x.Dim(0))
	return examine(ctx, m, keras.Batch{X: x.Slice(0, 0, n), Y: y.Slice(0, 0, n)})
}

// search prints the policies that are worth a choice, and writes them to -report.
func search(ctx context.Context, m *keras.Model, data keras.Dataset) error {
	r, err := doctor.Search(ctx, m, data, doctor.SearchConfig{Goal: doctor.Goal(*goal), Force: true})
	if err != nil {
		return err
	}
	fmt.Print(r)
	if *reportPath == "" {
		return nil
	}
	b, err := json.MarshalIndent(r, "", "\t")
	if err != nil {
		return err
	}
	return os.WriteFile(*reportPath, append(b, '\n'), 0o666)
}

// examine prints the report on a step, and writes it to -report.
func examine(ctx context.Context, m *keras.Model, b keras.Batch) error {
	r, err := doctor.Examine(ctx, m, b, doctor.Config{})
	if err != nil {
		return err
	}
	fmt.Print(r)
	if *reportPath == "" {
		return nil
	}
	return r.Save(*reportPath)
}

// load reads the model and the data, and compiles the model under -policy.
func load() (m *keras.Model, x, y *keras.Tensor, err error) {
	if *dataPath == "" {
		return nil, nil, nil, fmt.Errorf("-model needs -data: an .npz file with the arrays x and y")
	}
	arrays, err := data.LoadNPZ(*dataPath)
	if err != nil {
		return nil, nil, nil, err
	}
	x, y = cmp.Or(arrays["x"], arrays["x_train"]), cmp.Or(arrays["y"], arrays["y_train"])
	if x == nil || y == nil || x.Rank() == 0 || y.Rank() == 0 {
		return nil, nil, nil, fmt.Errorf("%s: want arrays x and y of samples", *dataPath)
	}
	n := min(x.Dim(0), y.Dim(0))
	if min(n, *samples) < 1 {
		return nil, nil, nil, fmt.Errorf("%s: got no samples, or -batch %d", *dataPath, *samples)
	}
	x, y = x.Slice(0, 0, n), y.Slice(0, 0, n)
	stored, err := saving.Load(*modelPath)
	if err != nil {
		return nil, nil, nil, err
	}
	// The layers of a file name the policies that they were saved with.
	if m, err = stored.CloneUnder(*policyName, policy.Map{".*": *policyName}, true); err != nil {
		return nil, nil, nil, err
	}
	loss, err := lossOf(m, y)
	if err != nil {
		return nil, nil, nil, err
	}
	return m, x, y, m.Compile(keras.CompileConfig{Optimizer: &optimizers.Adam{}, Loss: loss})
}

// lossOf is -loss, or tells the loss from the activation of the last layer.
func lossOf(m *keras.Model, y *keras.Tensor) (losses.Loss, error) {
	if *lossName != "" {
		return losses.Get(*lossName)
	}
	activation := ""
	if all := m.Layers(); len(all) > 0 {
		switch l := all[len(all)-1].(type) {
		case *layers.Dense:
			activation = cmp.Or(l.Activation, "linear")
		case *layers.Activation:
			activation = l.Activation
		case *layers.Softmax:
			activation = "softmax"
		}
	}
	switch classes := !y.DType().IsFloat(); {
	case activation == "softmax" && classes:
		return &losses.SparseCategoricalCrossentropy{}, nil
	case activation == "softmax":
		return &losses.CategoricalCrossentropy{}, nil
	case activation == "sigmoid":
		return &losses.BinaryCrossentropy{}, nil
	case activation == "linear" && classes:
		return &losses.SparseCategoricalCrossentropy{FromLogits: true}, nil
	}
	return nil, fmt.Errorf("the last layer does not tell the loss: name one with -loss, such as -loss mean_squared_error")
}
