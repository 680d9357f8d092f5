package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
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
	d, err := backend.Open(*device)
	if err != nil {
		return err
	}
	if f, ok := d.(interface {
		FusesBiasReLU() (product, convolution bool, err error)
	}); ok {
		product, convolution, err := f.FusesBiasReLU()
		if err != nil {
			return err
		}
		yes := map[bool]string{true: "yes", false: "no"}
		fmt.Fprintf(w, "* a bias and ReLU in one call: product %s, convolution %s\n", yes[product], yes[convolution])
	}
	return nil
}

// outcome is what came of the conformance cases of an operation.
type outcome struct {
	Passed int
	Failed []string // name and error
}

// mostFailures is how many failures of an operation are printed: the first ones say
// what is wrong.
const mostFailures = 5

// conformance runs the cases of the conformance suite, each operation's in a process
// of its own. The suite compares with sums in float32 of what each operation has
// rounded.
func conformance(ctx context.Context, w io.Writer) error {
	fmt.Fprint(w, "## Conformance\n\n")
	type done struct {
		name string
		outcome
		err error
	}
	names, results := operationsWithCases(), make(chan done)
	if len(names) == 0 {
		return errors.New("-cases: no case has such a name")
	}
	next := make(chan string)
	for range *parallel {
		go func() {
			for name := range next {
				r := done{name: name}
				r.err = spawn(ctx, *device, task{Kind: "conformance", Name: name}, &r.outcome, "MEZZO_TF32=0", "MEZZO_CUDA_EPILOGUE=0")
				results <- r
			}
		}()
	}
	go func() {
		for _, name := range names {
			next <- name
		}
		close(next)
	}()
	passed, failed, tried := 0, 0, 0
	for range names {
		r := <-results
		passed += r.Passed
		failed += len(r.Failed)
		switch {
		case r.err != nil:
			failed++
			fmt.Fprintf(w, "* **%s: %v**\n", r.name, r.err)
		case len(r.Failed) > 0:
			fmt.Fprintf(w, "* **%s: %d pass, %d fail**\n", r.name, r.Passed, len(r.Failed))
		case r.Passed > 0:
			fmt.Fprintf(w, "* %s: %d pass\n", r.name, r.Passed)
		}
		for _, f := range r.Failed[:min(len(r.Failed), mostFailures)] {
			fmt.Fprintf(w, "  * %s\n", f)
		}
		if r.Passed+len(r.Failed) > 0 {
			tried++
		}
	}
	fmt.Fprintf(w, "\n%d cases of %d operations pass, %d fail.\n", passed, tried, failed)
	return nil
}

// operationsWithCases are the operations that have cases, in the suite's order.
func operationsWithCases() []string {
	var names []string
	for c := range backendtest.Cases() {
		if name := c.Op.String(); !c.Large && wanted(c.Name()) && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// checkCases is the task of conformance.
func checkCases(_ context.Context, t task) (any, error) {
	d, err := backend.Default()
	if err != nil {
		return nil, err
	}
	var o outcome
	for c := range backendtest.Cases() {
		if c.Op.String() != t.Name || c.Large || !c.SupportedBy(d) || !wanted(c.Name()) {
			continue
		}
		fmt.Fprintln(os.Stderr, caseLine+c.Name())
		if err := c.Test(d); err != nil {
			o.Failed = append(o.Failed, fmt.Sprintf("%s: %v", c.Name(), err))
		} else {
			o.Passed++
		}
	}
	return o, nil
}

func wanted(name string) bool {
	return *cases == "" || slices.ContainsFunc(strings.Split(*cases, ","), func(p string) bool { return strings.HasPrefix(name, p) })
}

// curves trains the guide's model on the device and on the processor.
func curves(ctx context.Context, w io.Writer) error {
	fmt.Fprint(w, "## Loss curves\n\nThe guide's model on built-in digits: loss after each epoch, on the device and on the processor.\n\n")
	head(w, "policy", "device", "losses", "largest difference")
	for p := range strings.SplitSeq(*under, ",") {
		var cpu, gpu []float64
		if err := spawn(ctx, "cpu", task{Kind: "curve", Policy: p}, &cpu); err != nil {
			return err
		}
		err := spawn(ctx, *device, task{Kind: "curve", Policy: p}, &gpu)
		row(w, p, "cpu", numbers(cpu), "")
		if err != nil {
			row(w, p, *device, err.Error(), "")
			continue
		}
		far := 0.0
		for i := range gpu {
			far = max(far, math.Abs(gpu[i]-cpu[i])/cpu[i])
		}
		row(w, p, *device, numbers(gpu), fmt.Sprintf("%.2g %%", 100*far))
	}
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
