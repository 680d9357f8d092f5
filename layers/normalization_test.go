package layers_test

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/backend/tensor/tensortest"
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/layers/layertest"
)

func apply(l layers.Layer, p layers.Pass, x *tensor.Tensor) (err error) {
	defer tensor.Catch(&err)
	layers.Apply(l, p, x)
	return nil
}

func errorsAs(err error, target **tensor.Error) bool { return errors.As(err, target) }

func contains(err error, s string) bool { return strings.Contains(err.Error(), s) }

// build builds l on a placeholder.
func build(t *testing.T, l layers.Layer, shape ...int) {
	t.Helper()
	if err := apply(l, layers.Pass{}, tensor.Placeholder(dtype.Float32, shape...)); err != nil {
		t.Fatal(err)
	}
}

// TestStatistics compares moving statistics of 100,000 float16 numbers with
// float64: they are kept in float32, so far better than the epsilon of float16
// that summing in 16 bits would miss by a lot.
func TestStatistics(t *testing.T) {
	const n = 100_000
	r := rand.New(rand.NewPCG(1, 2))
	data := make([]float64, n)
	for i := range data {
		data[i] = 100 + 3*r.NormFloat64() // a mean far above the deviation cancels
	}
	x := tensortest.Of(dtype.Float16, data, n, 1)
	var mean, variance float64
	for _, v := range x.Data {
		mean += v / n
	}
	for _, v := range x.Data {
		variance += (v - mean) * (v - mean) / n
	}
	l := &layers.BatchNormalization{Momentum: new(0.), DType: "mixed_float16"}
	y, err := layertest.Function(l, true).Call(context.Background(), x.Tensor())
	if err != nil {
		t.Fatal(err)
	}
	if y.DType() != dtype.Float16 {
		t.Errorf("got %v, want float16", y.Type())
	}
	for i, want := range []float64{mean, variance} {
		w := l.NonTrainableWeights()[i]
		got, err := w.Item()
		if err != nil {
			t.Fatal(err)
		}
		if math.Abs(got-want) > dtype.Float16.Epsilon()*want/2 {
			t.Errorf("%s: got %v, want %v", w.Name(), got, want)
		}
	}
	out, err := y.Float64s()
	if err != nil {
		t.Fatal(err)
	}
	for i, v := range x.Data {
		want := (v - mean) / math.Sqrt(variance+1e-3)
		if !tensortest.Within(dtype.Float16, out[i], want, 1) {
			t.Fatalf("element %d: got %v, want %v", i, out[i], want)
		}
	}
}

// TestFrozenBatchNormalization: a layer that is not trainable uses its moving
// statistics and leaves them, whatever Training says.
func TestFrozenBatchNormalization(t *testing.T) {
	l := &layers.BatchNormalization{Epsilon: new(0.)}
	l.SetTrainable(false)
	f := layertest.Function(l, true)
	x := tensor.New([]float32{1, 2, 3, 4}, 4, 1)
	build(t, l, -1, 1)
	mean, variance := l.Weights()[2], l.Weights()[3]
	if err := errors.Join(mean.Set([]float64{3}), variance.Set([]float64{4})); err != nil {
		t.Fatal(err)
	}
	y, err := f.Call(context.Background(), x)
	if err != nil {
		t.Fatal(err)
	}
	tensortest.Close(t, "y", y, tensortest.Of(dtype.Float32, []float64{-1, -0.5, 0, 0.5}, 4, 1), 1)
	tensortest.Close(t, "moving_mean", mean.Variable.Value(), tensortest.Of(dtype.Float32, []float64{3}, 1), 0)
	tensortest.Close(t, "moving_variance", variance.Variable.Value(), tensortest.Of(dtype.Float32, []float64{4}, 1), 0)
}

// TestSharedBatchNormalization: called twice in a step, the second call starts
// from the statistics of the first.
func TestSharedBatchNormalization(t *testing.T) {
	l := &layers.BatchNormalization{Momentum: new(0.5)}
	build(t, l, -1, 1)
	f := tensor.Function(func(x *tensor.Tensor) *tensor.Tensor {
		p := layers.Pass{Training: true}
		return layers.Apply(l, p, x).Add(layers.Apply(l, p, x.MulScalar(2)))
	}, l)
	if _, err := f.Call(context.Background(), tensor.New([]float32{1, 3}, 2, 1)); err != nil {
		t.Fatal(err)
	}
	// Means 2 and 4: (0·½ + 2·½)·½ + 4·½; variances 1 and 4: (1·½ + 1·½)·½ + 4·½.
	tensortest.Close(t, "moving_mean", l.Weights()[2].Variable.Value(), tensortest.Of(dtype.Float32, []float64{2.5}, 1), 1)
	tensortest.Close(t, "moving_variance", l.Weights()[3].Variable.Value(), tensortest.Of(dtype.Float32, []float64{2.5}, 1), 1)
}

// TestNormalizationBeyondFloat16: inputs that float16 cannot hold are
// normalized all the same.
func TestNormalizationBeyondFloat16(t *testing.T) {
	x := tensor.New([]float32{70000, 70000, 70000, 70000, 60000, 70000, 80000, 90000}, 2, 4)
	l := &layers.LayerNormalization{DType: "mixed_float16", BetaInitializer: "constant(0.5)"}
	y, err := layertest.Function(l, true).Call(context.Background(), x)
	if err != nil {
		t.Fatal(err)
	}
	s := math.Sqrt(5) // of the second row: mean 75000, deviation 5000·√5
	want := []float64{0.5, 0.5, 0.5, 0.5, 0.5 - 3/s, 0.5 - 1/s, 0.5 + 1/s, 0.5 + 3/s}
	tensortest.Close(t, "y", y, tensortest.Of(dtype.Float64, want, 2, 4), 1)
}

// TestAverageBeyondFloat16: a sum that float16 cannot hold has a mean that it
// can.
func TestAverageBeyondFloat16(t *testing.T) {
	l := &layers.Average{DType: "mixed_float16"}
	x := tensor.New([]float32{60000, -60000}, 1, 2)
	y, err := layertest.Function(l, false).Call(context.Background(), tensor.Tuple(x, x))
	if err != nil {
		t.Fatal(err)
	}
	tensortest.Close(t, "y", y, tensortest.Of(dtype.Float16, []float64{60000, -60000}, 1, 2), 0)
}
