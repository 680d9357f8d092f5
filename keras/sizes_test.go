package keras

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"testing"
	"time"

	"github.com/mezzo-ml/mezzo/backend"
	"github.com/mezzo-ml/mezzo/backend/cpu"
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/layers/preprocessing"
)

var every = flag.Bool("every", false, "try every pair of sizes, not one in three")

// bounded lets the default device take so much more memory for the time of a test.
func bounded(t *testing.T, bytes int) {
	t.Helper()
	d, err := backend.Default()
	check(t, err)
	check(t, SetMemoryLimit(Bytes(d.(*cpu.Device).Held()+bytes))) // other tests hold some
	t.Cleanup(func() { check(t, SetMemoryLimit(0)) })
}

// TestPairsOfSizes: 418 pairs of layers, of which the first has sizes that no
// memory holds, that overflow when they are multiplied, or that take for ever.
// Each ends with an error, or with a result of the shape that the model promised.
// Without -every it is one pair in three.
func TestPairsOfSizes(t *testing.T) {
	SkipRace(t)
	bounded(t, 128<<20)
	image, steps, vector, words := []int{8, 8, 3}, []int{6, 4}, []int{4}, []int{5}
	firsts := []struct {
		name  string
		input []int
		make  func() layers.Layer
	}{
		{"Dense 2^62", vector, func() layers.Layer { return &layers.Dense{Units: 1 << 62} }},
		{"Dense 2^31-1", vector, func() layers.Layer { return &layers.Dense{Units: 1<<31 - 1} }},
		{"Dense 2^21", vector, func() layers.Layer { return &layers.Dense{Units: 1 << 21} }},
		{"RepeatVector 2^36", vector, func() layers.Layer { return &layers.RepeatVector{N: 1 << 36} }},
		{"RepeatVector 2^31-1", vector, func() layers.Layer { return &layers.RepeatVector{N: 1<<31 - 1} }},
		{"RepeatVector 2^20", vector, func() layers.Layer { return &layers.RepeatVector{N: 1 << 20} }},
		{"Embedding 2^31-1 twice", words, func() layers.Layer { return &layers.Embedding{InputDim: 1<<31 - 1, OutputDim: 1<<31 - 1} }},
		{"Embedding 2^20", words, func() layers.Layer { return &layers.Embedding{InputDim: 2, OutputDim: 1 << 20} }},
		{"LSTM 2^31-1", steps, func() layers.Layer { return &layers.LSTM{Units: 1<<31 - 1, ReturnSequences: true} }},
		{"GRU 2^12", steps, func() layers.Layer { return &layers.GRU{Units: 1 << 12, ReturnSequences: true} }},
		{"ZeroPadding2D 2^62", image, func() layers.Layer { return &layers.ZeroPadding2D{Padding: layers.PerAxis{1 << 62}} }},
		{"ZeroPadding2D 2^31-1", image, func() layers.Layer { return &layers.ZeroPadding2D{Padding: layers.PerAxis{1<<31 - 1}} }},
		{"ZeroPadding2D 2^10", image, func() layers.Layer { return &layers.ZeroPadding2D{Padding: layers.PerAxis{1 << 10}} }},
		{"UpSampling2D 2^31-1", image, func() layers.Layer { return &layers.UpSampling2D{Size: layers.PerAxis{1<<31 - 1}} }},
		{"UpSampling2D 2^8", image, func() layers.Layer { return &layers.UpSampling2D{Size: layers.PerAxis{1 << 8}} }},
		{"MaxPooling2D 2^34", image, func() layers.Layer {
			return &layers.MaxPooling2D{PoolSize: layers.PerAxis{1 << 34}, Strides: layers.PerAxis{1}, Padding: "same"}
		}},
		{"AveragePooling2D 2^31-1", image, func() layers.Layer {
			return &layers.AveragePooling2D{PoolSize: layers.PerAxis{1<<31 - 1}, Strides: layers.PerAxis{1}, Padding: "same"}
		}},
		{"Conv2D 2^31-1 filters", image, func() layers.Layer { return &layers.Conv2D{Filters: 1<<31 - 1, KernelSize: layers.PerAxis{3}} }},
		{"Conv2D dilated 2^31-1", image, func() layers.Layer {
			return &layers.Conv2D{Filters: 2, KernelSize: layers.PerAxis{3}, DilationRate: layers.PerAxis{1<<31 - 1}, Padding: "same"}
		}},
	}
	seconds := []func() layers.Layer{
		func() layers.Layer { return &layers.Flatten{} },
		func() layers.Layer { return &layers.Dense{Units: 3} },
		func() layers.Layer { return &layers.Dense{Units: 1<<31 - 1} },
		func() layers.Layer { return &layers.Activation{Activation: "gelu"} },
		func() layers.Layer { return &layers.Softmax{} },
		func() layers.Layer { return &layers.BatchNormalization{} },
		func() layers.Layer { return &layers.LayerNormalization{} },
		func() layers.Layer { return &layers.Dropout{Rate: 0.5} },
		func() layers.Layer { return &layers.RepeatVector{N: 1 << 20} },
		func() layers.Layer { return &layers.Reshape{TargetShape: []int{-1}} },
		func() layers.Layer { return &layers.Reshape{TargetShape: []int{-1, 1<<31 - 1, 1<<31 - 1, 1<<31 - 1}} },
		func() layers.Layer { return &layers.Embedding{InputDim: 4, OutputDim: 4} },
		func() layers.Layer { return &layers.LSTM{Units: 4} },
		func() layers.Layer { return &layers.Bidirectional{Layer: &layers.GRU{Units: 1 << 20}} },
		func() layers.Layer { return &layers.TimeDistributed{Layer: &layers.Dense{Units: 2}} },
		func() layers.Layer { return &layers.Conv1D{Filters: 3, KernelSize: layers.PerAxis{5}} },
		func() layers.Layer { return &layers.Conv2D{Filters: 3, KernelSize: layers.PerAxis{3}} },
		func() layers.Layer {
			return &layers.Conv2DTranspose{Filters: 3, KernelSize: layers.PerAxis{3}, Strides: layers.PerAxis{1<<31 - 1}}
		},
		func() layers.Layer {
			return &layers.MaxPooling2D{PoolSize: layers.PerAxis{1 << 20}, Strides: layers.PerAxis{1}, Padding: "same"}
		},
		func() layers.Layer { return &layers.GlobalAveragePooling2D{} },
		func() layers.Layer { return &layers.ZeroPadding2D{Padding: layers.PerAxis{1<<31 - 1}} },
		func() layers.Layer { return &preprocessing.Resizing{Height: 1<<31 - 1, Width: 1<<31 - 1} },
	}
	counts := map[string]int{}
	for i, f := range firsts {
		for j, second := range seconds {
			if !*every && (i+j)%3 != 0 {
				continue
			}
			s := second()
			outcome, late := pairOfSizes(t, fmt.Sprintf("%s, %T", f.name, s), f.input, f.make(), s)
			counts[outcome]++
			if late > 100*time.Millisecond {
				counts["more than 100 ms after the deadline"]++
				t.Logf("%s, %T: %s, %v after the deadline", f.name, s, outcome, late)
			}
		}
	}
	n := len(firsts) * len(seconds)
	t.Logf("of %d pairs: %v", n, counts)
	if n != 418 {
		t.Errorf("%d pairs, want 418", n)
	}
}

// pairOfSizes predicts with a model of the layers, and returns how that ended and
// how long after its deadline.
func pairOfSizes(t *testing.T, name string, input []int, all ...layers.Layer) (outcome string, late time.Duration) {
	const deadline = 200 * time.Millisecond
	defer func() {
		if p := recover(); p != nil {
			t.Errorf("%s: panic: %v", name, p)
			outcome = "panic"
		}
	}()
	ctx, cancel := context.WithTimeout(background, deadline)
	defer cancel()
	start := time.Now()
	m := Sequential(all...)
	err := m.Build(input...)
	var y *Tensor
	if err == nil {
		y, err = m.Predict(ctx, NewTensor(make([]float32, Shape(input).Size()), append([]int{1}, input...)...))
	}
	late = time.Since(start) - deadline
	if late > 10*time.Second {
		t.Errorf("%s: it ended %v after its deadline: %v", name, late, err)
	}
	var memory *MemoryError
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return "the deadline's error", late
	case errors.As(err, &memory):
		return "a MemoryError", late
	case err != nil:
		return "another error", late
	}
	if b, err := y.Bytes(); err != nil || len(b) != y.Type().Bytes() || y.Type().Check() != nil {
		t.Errorf("%s: a result %v, %v", name, y.Type(), err)
	}
	return "a result", late
}
