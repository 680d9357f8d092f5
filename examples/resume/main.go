// Command resume shows that a training that is killed goes on as if it had not
// been: it trains a digit classifier once without a break, and once in
// processes that kill themselves every few steps, and prints the SHA-256 of
// the weights of both ways.
package main

import (
	"context"
	"crypto/sha256"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"github.com/mezzo-ml/mezzo/examples/interrupt"
	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/callbacks"
	"github.com/mezzo-ml/mezzo/keras/checkpoint"
	"github.com/mezzo-ml/mezzo/keras/datasets/digits"
	"github.com/mezzo-ml/mezzo/keras/metrics"
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/losses"
	"github.com/mezzo-ml/mezzo/optimizers"
	"github.com/mezzo-ml/mezzo/policy"
)

var (
	policyName = flag.String("policy", "mixed_float16", "policy: mixed_float16, mixed_bfloat16 or float32")
	epochs     = flag.Int("epochs", 3, "epochs")
	every      = flag.Int("every", 4, "steps between checkpoints")
	kill       = flag.Int("kill", 7, "steps after which a process kills itself; with -dir, which trains instead of comparing, 0: never")
)

func main() { interrupt.Main(run) }

func run(ctx context.Context) error {
	if _, err := policy.Parse(*policyName); err != nil {
		return err
	}
	policy.SetGlobal(*policyName)
	if dir := interrupt.Dir(); dir != "" {
		sum, err := train(ctx, &checkpoint.Directory{Path: dir}, *kill)
		if err == nil {
			fmt.Println("weights:", sum)
		}
		return err
	}
	if *kill < *every {
		return fmt.Errorf("got -kill %d, -every %d: want at least a checkpoint before a process dies", *kill, *every)
	}
	whole, err := train(ctx, nil, 0)
	if err != nil {
		return err
	}
	fmt.Println("without a break:", whole)

	tmp, err := os.MkdirTemp("", "resume")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	self, err := os.Executable()
	if err != nil {
		return err
	}
	for kills := 0; ; kills++ {
		child := exec.CommandContext(ctx, self, "-policy", *policyName, "-epochs", fmt.Sprint(*epochs), "-every", fmt.Sprint(*every),
			"-kill", fmt.Sprint(*kill), "-dir", tmp)
		child.Stderr = os.Stderr
		out, err := child.Output()
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil && child.ProcessState.ExitCode() >= 0: // it was not killed
			return err
		}
		_, sum, done := strings.Cut(string(out), "weights: ")
		if !done {
			continue
		}
		sum = strings.TrimSpace(sum)
		fmt.Printf("killed %d times:  %s\n", kills, sum)
		if sum != whole {
			return fmt.Errorf("the weights differ")
		}
		return nil
	}
}

// train trains, from the newest checkpoint if there is one, and returns the
// SHA-256 of the weights. With die it kills the process after so many steps.
func train(ctx context.Context, c keras.Checkpointer, die int) (string, error) {
	data, _, err := digits.Load()
	if err != nil {
		return "", err
	}
	model := keras.Sequential(
		&layers.Dense{Units: 32, Activation: "relu"},
		&layers.Dropout{Rate: 0.2},
		&layers.Dense{Units: 10},
	)
	err = model.Compile(keras.CompileConfig{
		Loss:      &losses.SparseCategoricalCrossentropy{FromLogits: true},
		Optimizer: &optimizers.Adam{UseEMA: true},
		Metrics:   []metrics.Metric{&metrics.SparseCategoricalAccuracy{Name: "accuracy"}},
	})
	if err != nil {
		return "", err
	}
	hooks := callbacks.List(&callbacks.ReduceLROnPlateau{Patience: 1})
	if die > 0 {
		hooks = append(hooks, keras.Callback{BatchEnd: func(context.Context, *keras.Run) error {
			if die--; die > 0 {
				return nil
			}
			self, err := os.FindProcess(os.Getpid())
			if err != nil {
				return err
			}
			self.Kill() // SIGKILL: nothing can be tidied up
			select {}
		}})
	}
	_, err = model.Fit(ctx, data.Take(4096), keras.FitConfig{
		BatchSize:       256,
		Epochs:          *epochs,
		ValidationSplit: 0.25,
		Callbacks:       hooks,
		Checkpoint:      c,
		SaveEvery:       *every,
		Verbose:         keras.VerbositySilent,
	})
	if err != nil {
		return "", err
	}
	sum := sha256.New()
	for _, w := range model.Weights() {
		b, err := w.Bytes()
		if err != nil {
			return "", err
		}
		sum.Write(b)
	}
	return fmt.Sprintf("%x", sum.Sum(nil)), nil
}
