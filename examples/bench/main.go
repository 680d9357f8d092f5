// Command bench times whole training steps of the reference networks under
// each policy and prints milliseconds, GFLOP/s, samples per second and the
// share of the peak arithmetic rate measured around the same repetition.
//
// docs/benchmarks/peers/train.py prints the same rows for PyTorch and Keras.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/mezzo-ml/mezzo/backend/cpu"
	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/losses"
	"github.com/mezzo-ml/mezzo/optimizers"
	"github.com/mezzo-ml/mezzo/policy"
)

var (
	only     = flag.String("rows", "", "rows to run, comma-separated; default: all")
	policies = flag.String("policies", "float32,mixed_bfloat16,mixed_float16", "policies, comma-separated")
	reps     = flag.Int("reps", 9, "repetitions, of which the median is printed")
	least    = flag.Duration("least", 100*time.Millisecond, "shortest repetition")
)

// row is a network and a batch size.
type row struct {
	name  string
	sizes []int // features, hidden units, classes
	batch int
}

var rows = []row{
	{"mlp64-b8192", []int{784, 64, 64, 10}, 8192},
	{"mlp64-b128", []int{784, 64, 64, 10}, 128},
	{"mlp512-b128", []int{784, 512, 512, 10}, 128},
	{"mlp4096-b1024", []int{784, 4096, 4096, 10}, 1024},
}

// flops of a training step: two per multiplication, three products per layer
// but two for the first, whose input has no gradient.
func (r row) flops() float64 {
	sum := 0.
	for i, in := range r.sizes[:len(r.sizes)-1] {
		products := 3.
		if i == 0 {
			products = 2
		}
		sum += 2 * products * float64(r.batch*in*r.sizes[i+1])
	}
	return sum
}

func main() {
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	fmt.Printf("%s; %s\n\n", policy.EffectiveText(), runtime.Version())
	fmt.Println("| row | policy | ms/step | samples/s | GFLOP/s | share of peak |")
	fmt.Println("|---|---|---|---|---|---|")
	for _, r := range rows {
		if *only != "" && !slices.Contains(strings.Split(*only, ","), r.name) {
			continue
		}
		for p := range strings.SplitSeq(*policies, ",") {
			if err := measure(ctx, r, p); err != nil {
				return fmt.Errorf("%s, %s: %w", r.name, p, err)
			}
		}
	}
	return nil
}

func measure(ctx context.Context, r row, name string) error {
	if _, err := policy.Parse(name); err != nil {
		return err
	}
	defer policy.SetGlobal(policy.SetGlobal(name))
	model := keras.Sequential()
	last := len(r.sizes) - 1
	for i, units := range r.sizes[1:] {
		l := &layers.Dense{Units: units, Activation: "relu"}
		if i+1 == last {
			l.Activation = "softmax"
		}
		if err := model.Add(l); err != nil {
			return err
		}
	}
	if err := model.Compile(keras.CompileConfig{Optimizer: &optimizers.Adam{}, Loss: &losses.SparseCategoricalCrossentropy{}}); err != nil {
		return err
	}
	x := make([]float32, r.batch*r.sizes[0])
	for i := range x {
		x[i] = float32(i*7919%1000)/1000 - 0.5
	}
	y := make([]int32, r.batch)
	for i := range y {
		y[i] = int32(i % r.sizes[last])
	}
	batch := keras.Batch{X: keras.NewTensor(x, r.batch, r.sizes[0]), Y: keras.NewTensor(y, r.batch)}
	step := func(n int) (time.Duration, error) {
		start := time.Now()
		for range n {
			if err := model.TrainStep(ctx, batch); err != nil {
				return 0, err
			}
		}
		return time.Since(start), nil
	}
	// Warm up, and find how many steps make a repetition.
	n := 1
	for {
		d, err := step(n)
		if err != nil {
			return err
		}
		if d >= *least || n >= 1<<14 {
			break
		}
		n *= 2
	}
	compute := policy.Global().Compute
	var ms, share []float64
	for range *reps {
		before := cpu.Peak(compute)
		d, err := step(n)
		if err != nil {
			return err
		}
		after := cpu.Peak(compute)
		perStep := d.Seconds() / float64(n)
		ms = append(ms, 1e3*perStep)
		share = append(share, r.flops()/perStep/((before+after)/2))
	}
	slices.Sort(ms)
	slices.Sort(share)
	t := ms[len(ms)/2]
	fmt.Printf("| %s | %s | %.3f | %.0f | %.0f | %.0f %% |\n",
		r.name, name, t, 1e3*float64(r.batch)/t, r.flops()/t/1e6, 100*share[len(share)/2])
	return nil
}
