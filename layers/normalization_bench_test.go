package layers_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/policy"
)

// BenchmarkNormalization reports the time of normalizations and of their
// gradients by input and weights, and the rate for the bytes that have to be
// moved: input and result, and input, gradient and gradient once each.
func BenchmarkNormalization(b *testing.B) {
	for _, c := range []struct {
		name  string
		make  func() layers.Layer
		shape []int
	}{
		{"layer", func() layers.Layer { return &layers.LayerNormalization{} }, []int{8192, 768}},
		{"rms", func() layers.Layer { return &layers.RMSNormalization{} }, []int{8192, 768}},
		{"batch", func() layers.Layer { return &layers.BatchNormalization{} }, []int{128, 28, 28, 64}},
		{"group", func() layers.Layer { return &layers.GroupNormalization{Groups: new(8)} }, []int{128, 28, 28, 64}},
		{"softmax", func() layers.Layer { return &layers.Softmax{} }, []int{1024, 8192}},
	} {
		for _, p := range []string{"float32", "mixed_bfloat16", "mixed_float16"} {
			b.Run(fmt.Sprintf("%s/%s/forward", c.name, p), func(b *testing.B) { benchNormalization(b, p, c.make(), c.shape, false) })
			b.Run(fmt.Sprintf("%s/%s/gradient", c.name, p), func(b *testing.B) { benchNormalization(b, p, c.make(), c.shape, true) })
		}
	}
}

func benchNormalization(b *testing.B, p string, l layers.Layer, shape []int, backward bool) {
	defer policy.SetGlobal(policy.SetGlobal(p))
	d := map[string]dtype.DType{"float32": dtype.Float32, "mixed_bfloat16": dtype.BFloat16, "mixed_float16": dtype.Float16}[p]
	draw := func(seed int64) *tensor.Tensor {
		t := tensor.RandomUniform(tensor.New([]int64{seed, 0}, 2), 0, shape...).Cast(d)
		if err := tensor.Eval(context.Background(), t); err != nil {
			b.Fatal(err)
		}
		return t
	}
	x, g := draw(1), draw(2)
	f := tensor.Function(func(in []*tensor.Tensor) []*tensor.Tensor {
		y := layers.Apply(l, layers.Pass{Training: true}, in[0])
		if !backward {
			return []*tensor.Tensor{y}
		}
		var at []*tensor.Tensor
		for _, w := range layers.BaseOf(l).Weights() {
			if w.Trainable() {
				at = append(at, w.Variable.Value())
			}
		}
		return tensor.GradientsAt(tensor.SumAs(y.Mul(in[1]), dtype.Float32), append(at, in[0])...)
	}, layers.BaseOf(l))
	var times []float64
	run := func() {
		out, err := f.Call(context.Background(), []*tensor.Tensor{x, g})
		if err != nil {
			b.Fatal(err)
		}
		for _, t := range out {
			t.Release()
		}
	}
	run()
	for b.Loop() {
		start := time.Now()
		run()
		times = append(times, time.Since(start).Seconds())
	}
	slices.Sort(times)
	units := 2
	if backward {
		units = 3
	}
	median := times[len(times)/2]
	b.ReportMetric(1e3*median, "ms")
	b.ReportMetric(float64(units*x.Type().Bytes())/median/1e9, "GB/s")
	b.ReportMetric(0, "ns/op")
}
