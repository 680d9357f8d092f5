package preprocessing_test

import (
	"context"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/layers/layertest"
	"github.com/mezzo-ml/mezzo/layers/preprocessing"
)

// BenchmarkAugment measures layers that change images, 16 of 224×224 pixels and
// 3 channels, float32, in images per second.
func BenchmarkAugment(b *testing.B) {
	const batch = 16
	x := tensor.RandomUniform(tensor.New([]int64{1, 1}, 2), 0, batch, 224, 224, 3).MulScalar(255)
	if _, err := tensor.HostBytes(x); err != nil {
		b.Fatal(err)
	}
	all := []func() layers.Layer{
		func() layers.Layer { return &preprocessing.RandomFlip{} },
		func() layers.Layer { return &preprocessing.RandomRotation{Factor: preprocessing.Factor{0.1}} },
	}
	for _, make := range append(all, augmentations([]float64{0, 255}, "channels_last")...) {
		l := make()
		if e, ok := l.(*preprocessing.ContrastLimitedAdaptiveHistogramEqualization); ok {
			e.TileGridSize = nil
		}
		if e, ok := l.(*preprocessing.AugMix); ok {
			e.NumChains, e.ChainDepth = 0, 0
		}
		b.Run(layers.Class(l), func(b *testing.B) {
			f := layertest.Function(l, true)
			for b.Loop() {
				y, err := f.Call(context.Background(), x)
				if err != nil {
					b.Fatal(err)
				}
				y.Release()
			}
			b.ReportMetric(float64(batch*b.N)/b.Elapsed().Seconds(), "images/s")
		})
	}
}
