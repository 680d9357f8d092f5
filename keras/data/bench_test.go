package data_test

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/data"
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/losses"
)

// mnist makes n pictures of 28 by 28 pixels, as the files of MNIST have them.
func mnist(n int) []data.Labeled[[]byte] {
	rng := rand.New(rand.NewPCG(1, 2))
	all := make([]data.Labeled[[]byte], n)
	for i := range all {
		all[i].Value, all[i].Label = make([]byte, 784), i%10
		for k := range all[i].Value {
			all[i].Value[k] = byte(rng.Uint32())
		}
	}
	return all
}

// scaled is a picture with pixels from 0 to 1.
func scaled(_ context.Context, p data.Labeled[[]byte]) (keras.Batch, error) {
	x := make([]float32, len(p.Value))
	for i, v := range p.Value {
		x[i] = float32(v) / 255
	}
	return keras.Batch{X: keras.NewTensor(x, 784), Y: keras.NewTensor([]int32{int32(p.Label)})}, nil
}

// scaledAll is a batch of them.
func scaledAll(_ context.Context, ps []data.Labeled[[]byte]) (keras.Batch, error) {
	x, y := make([]float32, 0, 784*len(ps)), make([]int32, len(ps))
	for i, p := range ps {
		for _, v := range p.Value {
			x = append(x, float32(v)/255)
		}
		y[i] = int32(p.Label)
	}
	return keras.Batch{X: keras.NewTensor(x, len(ps), 784), Y: keras.NewTensor(y, len(ps))}, nil
}

// turned is a picture turned and scaled by random numbers: work for each
// sample.
func turned(ctx context.Context, p data.Pair[data.Labeled[[]byte], uint64]) (keras.Batch, error) {
	rng := rand.New(rand.NewPCG(p.Second, 0))
	a, b := 1+0.2*rng.Float32(), 0.2*rng.Float32()
	out := data.Labeled[[]byte]{Value: make([]byte, 784), Label: p.First.Label}
	for y := range 28 {
		for x := range 28 {
			u, v := a*float32(x-14)-b*float32(y-14)+14, b*float32(x-14)+a*float32(y-14)+14
			if u >= 0 && v >= 0 && u < 27 && v < 27 {
				i, j := int(u), int(v)
				s, t := u-float32(i), v-float32(j)
				at := p.First.Value[28*j+i:]
				out.Value[28*y+x] = byte((1-t)*((1-s)*float32(at[0])+s*float32(at[1])) + t*((1-s)*float32(at[28])+s*float32(at[29])))
			}
		}
	}
	return scaled(ctx, out)
}

// BenchmarkPipeline reports the samples that shuffled pipelines make in a
// second.
func BenchmarkPipeline(b *testing.B) {
	const n = 20_000
	rows := data.FromSlice(mnist(n)).Shuffle(n, 1)
	zipped := data.Zip(rows, data.Random(1))
	for _, c := range []struct {
		name string
		d    *data.Dataset[keras.Batch]
	}{
		{"scale/Map", data.Map(rows, scaled).Batch(128)},
		{"scale/ParallelMap", data.ParallelMap(rows, 0, scaled).Batch(128)},
		{"scale/ParallelMap of Chunk", data.ParallelMap(data.Chunk(rows, 128, false), 0, scaledAll)},
		{"turn/Map", data.Map(zipped, turned).Batch(128)},
		{"turn/ParallelMap", data.ParallelMap(zipped, 0, turned).Batch(128)},
		{"memory", data.FromDataset(tensors(mnist(n)).Shuffle(n, 1).Batch(128))},
	} {
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				for _, err := range c.d.Batches() {
					check(b, err)
				}
			}
			b.ReportMetric(n*float64(b.N)/b.Elapsed().Seconds(), "samples/s")
		})
	}
}

func tensors(all []data.Labeled[[]byte]) *keras.Pipeline {
	b, _ := scaledAll(background, all)
	return keras.FromTensors(b.X, b.Y, nil)
}

// BenchmarkFit trains the guide's model for an epoch, from samples in memory
// and from pipelines, one after the other.
func BenchmarkFit(b *testing.B) {
	const n = 20_000
	all := mnist(n)
	rows := data.FromSlice(all).Shuffle(n)
	names := []string{"memory", "samples", "chunks"}
	sources := []keras.Dataset{
		tensors(all).Shuffle(n),
		data.ParallelMap(rows, 0, scaled).Batch(128).Prefetch(1),
		data.ParallelMap(data.Chunk(rows, 128, false), 1, scaledAll),
	}
	models := make([]*keras.Model, len(sources))
	spent := make([]time.Duration, len(sources))
	train := func(i int) {
		_, err := models[i].Fit(background, sources[i], keras.FitConfig{BatchSize: 128, Verbose: keras.VerbositySilent})
		check(b, err)
	}
	for i := range models {
		models[i] = keras.Sequential(&layers.Dense{Units: 512, Activation: "relu"}, &layers.Dense{Units: 10})
		check(b, models[i].Compile(keras.CompileConfig{Loss: &losses.SparseCategoricalCrossentropy{FromLogits: true}}))
		train(i)
	}
	for b.Loop() {
		for i := range models {
			start := time.Now()
			train(i)
			spent[i] += time.Since(start)
		}
	}
	for i, name := range names {
		b.ReportMetric(spent[i].Seconds()*1e3/float64(b.N), "ms/epoch:"+name)
	}
}
