package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os/exec"
	"slices"
	"strings"

	"github.com/mezzo-ml/mezzo/backend"
	"github.com/mezzo-ml/mezzo/backend/backendtest"
	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/datasets/digits"
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/losses"
	"github.com/mezzo-ml/mezzo/optimizers"
	"github.com/mezzo-ml/mezzo/policy"
)

// inventory says what the machine has.
func inventory(ctx context.Context, w io.Writer) error {
	fmt.Fprint(w, "## Inventory\n\n")
	for _, d := range keras.Devices() {
		fmt.Fprintf(w, "* %v\n", d)
	}
	fmt.Fprintf(w, "* default: %s\n", policy.EffectiveText())
	smi := exec.CommandContext(ctx, "nvidia-smi", "--query-gpu=name,driver_version,memory.total,memory.free,clocks.max.sm,clocks.max.mem,power.limit", "--format=csv,noheader")
	if out, err := smi.Output(); err == nil {
		for line := range strings.Lines(string(out)) {
			fmt.Fprintf(w, "* nvidia-smi: %s\n", strings.TrimSpace(line))
		}
	} else {
		fmt.Fprintf(w, "* nvidia-smi: %v\n", err)
	}
	_, err := backend.Open(*device)
	return err
}

// outcome is what came of the conformance cases of an operation.
type outcome struct {
	Passed int
	Failed []string // name and error
}

// conformance runs the cases of the conformance suite.
func conformance(ctx context.Context, w io.Writer) error {
	fmt.Fprint(w, "## Conformance\n\n")
	var all map[string]*outcome
	if err := spawn(ctx, *device, task{Kind: "conformance"}, &all); err != nil {
		return err
	}
	passed, failed := 0, 0
	for _, name := range slices.Sorted(maps.Keys(all)) {
		o := all[name]
		passed += o.Passed
		failed += len(o.Failed)
		for _, f := range o.Failed {
			fmt.Fprintf(w, "* **%s**\n", f)
		}
	}
	fmt.Fprintf(w, "\n%d cases of %d operations pass, %d fail.\n", passed, len(all), failed)
	return nil
}

// checkCases is the task of conformance.
func checkCases(_ context.Context, _ task) (any, error) {
	d, err := backend.Default()
	if err != nil {
		return nil, err
	}
	all := map[string]*outcome{}
	for c := range backendtest.Cases() {
		if c.Large || !c.SupportedBy(d) || !wanted(c.Name()) {
			continue
		}
		o := all[c.Op.String()]
		if o == nil {
			o = &outcome{}
			all[c.Op.String()] = o
		}
		if err := c.Test(d); err != nil {
			o.Failed = append(o.Failed, fmt.Sprintf("%s: %v", c.Name(), err))
		} else {
			o.Passed++
		}
	}
	if len(all) == 0 {
		return nil, errors.New("-cases: no case has such a name")
	}
	return all, nil
}

func wanted(name string) bool {
	return *cases == "" || slices.ContainsFunc(strings.Split(*cases, ","), func(p string) bool { return strings.HasPrefix(name, p) })
}

// curves trains the guide's model on the device and on the processor.
func curves(ctx context.Context, w io.Writer) error {
	fmt.Fprint(w, "## Loss curves\n\nThe guide's model on built-in digits: loss after each epoch, on the device and on the processor.\n\n")
	lines := [][]string{{"policy", "device", "losses", "largest difference"}}
	for p := range strings.SplitSeq(*under, ",") {
		var cpu, gpu []float64
		if err := spawn(ctx, "cpu", task{Kind: "curve", Policy: p}, &cpu); err != nil {
			return err
		}
		err := spawn(ctx, *device, task{Kind: "curve", Policy: p}, &gpu)
		lines = append(lines, []string{p, "cpu", numbers(cpu), ""})
		if err != nil {
			lines = append(lines, []string{p, *device, err.Error(), ""})
			continue
		}
		far := 0.0
		for i := range gpu {
			far = max(far, math.Abs(gpu[i]-cpu[i])/cpu[i])
		}
		lines = append(lines, []string{p, *device, numbers(gpu), fmt.Sprintf("%.2g %%", 100*far)})
	}
	table(w, lines)
	return nil
}

func numbers(x []float64) string {
	var s []string
	for _, v := range x {
		s = append(s, fmt.Sprintf("%.4f", v))
	}
	return strings.Join(s, " ")
}

// train is the task of curves: the losses of the epochs.
func train(ctx context.Context, t task) (any, error) {
	policy.SetGlobal(t.Policy)
	units, epochs, batch := 512, 5, 512
	if *small {
		units, epochs, batch = 8, 2, 1024
	}
	model := keras.Sequential(
		&layers.Dense{Units: units, Activation: "relu"},
		&layers.Dense{Units: units, Activation: "relu"},
		&layers.Dense{Units: 10},
		&layers.Activation{Activation: "softmax", DType: "float32"},
	)
	err := model.Compile(keras.CompileConfig{Loss: &losses.SparseCategoricalCrossentropy{}, Optimizer: &optimizers.RMSprop{}})
	if err != nil {
		return nil, err
	}
	data, _, err := digits.Load()
	if err != nil {
		return nil, err
	}
	h, err := model.Fit(ctx, data, keras.FitConfig{BatchSize: batch, Epochs: epochs, Verbose: keras.VerbositySilent})
	if err != nil {
		return nil, err
	}
	return h.Get("loss"), nil
}
