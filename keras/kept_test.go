package keras

import (
	"context"
	"fmt"
	"iter"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/mezzo-ml/mezzo/backend"
	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/keras/internal/pipeline"
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/layers/preprocessing"
	"github.com/mezzo-ml/mezzo/losses"
	"github.com/mezzo-ml/mezzo/optimizers"
)

// TestKeptByLoop: what a loop keeps of batches does not change with the batches
// that follow. For random pipelines see TestKeptBatches of package data.
func TestKeptByLoop(t *testing.T) {
	double := Sequential(&layers.Dense{Units: 1, KernelInitializer: "ones"})
	check(t, double.Build(1))
	for name, p := range map[string]*Pipeline{
		"in memory":  FromTensors(NewTensor(rising(6), 6, 1), nil, nil).Batch(2),
		"generated":  generator(3, true, 2, 1).Map(func(b Batch) (Batch, error) { return b, nil }),
		"stream":     FromTensors(NewTensor(rising(6), 6, 1), nil, nil).Map(func(b Batch) (Batch, error) { return b, nil }).Batch(2),
		"prefetched": FromTensors(NewTensor(rising(6), 6, 1), nil, nil).Batch(2).Prefetch(1),
	} {
		var bs []Batch
		var tenfold, predictions []*Tensor
		for b, err := range p.Batches() {
			check(t, err)
			bs = append(bs, b)
			tenfold = append(tenfold, b.X.MulScalar(10))
			predictions = append(predictions, double.Call(b.X))
		}
		for i, b := range bs {
			x := []float64{float64(2 * i), float64(2*i + 1)}
			if name == "generated" {
				x = []float64{float64(i), float64(i)}
			}
			wantNear(t, name+": kept", values(t, b.X), x, 0)
			wantNear(t, name+": ten times", values(t, tenfold[i]), []float64{10 * x[0], 10 * x[1]}, 0)
			wantNear(t, name+": prediction", values(t, predictions[i]), x, 1)
		}
	}
}

// wantHandedBack reads kept batches that a reader has handed back: an error
// that says so, and what to do.
func wantHandedBack(t *testing.T, what string, kept []Batch, want ...float64) {
	t.Helper()
	for i, b := range kept {
		for _, x := range []*Tensor{b.X, b.X.Neg().Neg()} {
			v, err := x.Float64s()
			switch {
			case i < len(kept)-1 && (err == nil || !strings.Contains(err.Error(), "handed back to its dataset") || !strings.Contains(err.Error(), "keep a Clone")):
				t.Errorf("%s: batch %d: got %v, %v, want an error that names the cure", what, i, v, err)
			case err == nil && v[0] != want[i]:
				t.Errorf("%s: batch %d: got %v, want %v", what, i, v, want[i])
			}
		}
	}
}

// TestHandedBack: what Fit, Evaluate, PredictDataset, Adapt and Each have handed
// back is an error to read for callbacks and datasets of users that kept it; a
// Clone stays.
func TestHandedBack(t *testing.T) {
	newModel := func() *Model { return line(t) }
	batches := func() *Pipeline {
		return FromTensors(NewTensor(rising(18), 6, 3), NewTensor(rising(6), 6, 1), nil).Batch(2)
	}
	firsts := []float64{0, 6, 12}
	var kept, clones []Batch
	keep := func(b Batch) Batch {
		c, err := b.Clone()
		check(t, err)
		kept, clones = append(kept, b), append(clones, c)
		return b
	}
	each := func(d Dataset) error {
		sum := &owned{tensor.NewVariable("sum", Float32, nil, nil)}
		return Function(func(b Batch) none { sum.v.Assign(sum.v.Value().Add(b.X.Sum())); return none{} }, sum).Each(background, d.Batches())
	}
	custom := mapped(batches(), keep)
	for name, f := range map[string]func() error{
		"callback": func() error {
			_, err := newModel().Fit(background, batches(), silent(FitConfig{Callbacks: []Callback{{BatchEnd: func(_ context.Context, r *Run) error { keep(r.Batch); return nil }}}}))
			return err
		},
		"callback, prefetched, shuffled": func() error {
			firsts = nil
			_, err := newModel().Fit(background, batches().Shuffle(3).Prefetch(2), silent(FitConfig{Callbacks: []Callback{{BatchBegin: func(_ context.Context, r *Run) error {
				firsts = append(firsts, values(t, keep(r.Batch).X)[0])
				return nil
			}}}}))
			return err
		},
		"Fit":            func() error { _, err := newModel().Fit(background, custom, silent(FitConfig{})); return err },
		"Evaluate":       func() error { _, err := newModel().Evaluate(background, custom); return err },
		"PredictDataset": func() error { _, err := newModel().PredictDataset(background, custom); return err },
		"Adapt":          func() error { return Adapt(background, &preprocessing.Normalization{}, custom) },
		"Each":           func() error { return each(custom) },
	} {
		kept, clones, firsts = nil, nil, []float64{0, 6, 12}
		check(t, f())
		if len(kept) != 3 {
			t.Errorf("%s: got %d batches, want 3", name, len(kept))
		}
		if !strings.Contains(name, "prefetched") { // there the order tells when memory is used again
			wantHandedBack(t, name, kept, firsts...)
		}
		for i, b := range clones {
			if v := values(t, b.X); v[0] != firsts[i] || v[5] != firsts[i]+5 {
				t.Errorf("%s: clone %d: got %v, want from %v on", name, i, v, firsts[i])
			}
		}
	}

	// What was kept before stays, however often it is used.
	kept = nil
	for b := range batches().Batches() {
		kept = append(kept, b)
	}
	all := FromGenerator(func() iter.Seq2[Batch, error] {
		return func(yield func(Batch, error) bool) {
			for i := range 2 * len(kept) {
				if !yield(kept[i/2], nil) {
					return
				}
			}
		}
	}, true)
	fit(t, newModel(), all.Shuffle(2), FitConfig{Epochs: 3})
	check(t, each(all))
	check(t, each(mapped(all, func(b Batch) Batch { return b })))
	for i, b := range kept {
		if v := values(t, b.X); v[0] != float64(6*i) {
			t.Errorf("kept before: batch %d: got %v, want from %d on", i, v, 6*i)
		}
	}
}

type owned struct{ v *tensor.Variable }

func (o *owned) Variables() []*tensor.Variable { return []*tensor.Variable{o.v} }

// TestTurns: until the next batch is asked for a batch that was handed back may
// be read, and run on, as often as one likes.
func TestTurns(t *testing.T) {
	sum := &owned{tensor.NewVariable("sum", Float32, nil, nil)}
	add := Function(func(b Batch) none { sum.v.Assign(sum.v.Value().Add(b.X.Sum())); return none{} }, sum)
	check(t, add.Each(background, func(yield func(Batch, error) bool) {
		for b := range counted(6).Batch(2).Batches() {
			for range 3 {
				if !yield(b, nil) {
					return
				}
				values(t, b.X)
			}
		}
	}))
	if got, err := sum.v.Item(); err != nil || got != 45 {
		t.Errorf("got %v, %v, want 3 times 15", got, err)
	}
	var last *Tensor
	for b := range counted(6).Batch(2).Batches() {
		b.Release()
		b.Release()
		wantNear(t, "released", values(t, b.X.AddScalar(1)), []float64{values(t, b.X)[0] + 1, values(t, b.X)[1] + 1}, 0)
		if last != nil {
			if _, err := last.Float64s(); err == nil {
				t.Error("got no error of what was recorded of a batch that was released")
			}
		}
		last = b.X.AddScalar(1)
	}
	// The memory that FromTensors reads is not used again.
	var parts []*Pipeline
	for b := range counted(6).Batch(2).Batches() {
		parts = append(parts, FromTensors(b.X, nil, nil))
		b.Release()
	}
	for i, p := range parts {
		got, _ := rows(t, p)
		wantNear(t, "rows of a batch", got, []float64{float64(2 * i), float64(2*i + 1)}, 0)
	}
}

// TestRing pins that batches are refilled, not made anew, for Mezzo's own
// readers.
func TestRing(t *testing.T) {
	for name, p := range map[string]*Pipeline{
		"in memory": counted(60).Shuffle(60).Batch(4).Prefetch(1),
		"stream":    generator(60, false).Batch(4).Prefetch(1),
	} {
		seen := map[*Tensor]bool{}
		open := p.elements()
		for b, err := range open(pipeline.Start{Context: background}, 1) {
			check(t, err)
			seen[b.X] = true
		}
		if len(seen) > 3 { // the reader's, one on the way, one being filled
			t.Errorf("%s: got %d tensors for 15 batches, want at most 3", name, len(seen))
		}
	}
}

// garbage returns what each of 256 more batches leaves: objects, and bytes.
func garbage(t *testing.T, run func(batches int)) (objects, bytes float64) {
	t.Helper()
	count := func(n int) (objects, bytes uint64) {
		objects, bytes = 1<<63, 1<<63
		for range 5 { // other goroutines count too
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			run(n)
			runtime.ReadMemStats(&after)
			objects, bytes = min(objects, after.Mallocs-before.Mallocs), min(bytes, after.TotalAlloc-before.TotalAlloc)
		}
		return objects, bytes
	}
	run(64)
	o, b := count(64)
	o2, b2 := count(320)
	return (float64(o2) - float64(o)) / 256, (float64(b2) - float64(b)) / 256
}

// TestGarbage: batches of Fit, Evaluate and Adapt leave nothing; those of loops
// that hand them back leave a header for each tensor.
func TestGarbage(t *testing.T) {
	if backend.Skipping() {
		t.Skip("tests what MEZZO_SKIP leaves out")
	}
	const size, width = 8, 1024 // 32 KiB a batch
	n := 320 * size
	x, y := NewTensor(make([]float32, n*width), n, width), NewTensor(make([]float32, n), n, 1)
	m := Sequential(&layers.Dense{Units: 1})
	check(t, m.Compile(CompileConfig{Loss: &losses.MeanSquaredError{}, Optimizer: &optimizers.SGD{}}))
	samples := FromTensors(x, y, nil)
	two := FromTensors(Tuple(x, x), y, nil)
	step := Function(func(b Batch) *Tensor {
		in := b.X.Unpack()[0]
		l := (&losses.MeanSquaredError{}).Call(b.Y, m.Call(in, Training))
		m.Optimizer().ApplyGradients(Gradients(l, m.TrainableVariables()), m.TrainableVariables())
		return l
	}, m, m.Optimizer())
	fit := func(d Dataset, callbacks ...Callback) {
		_, err := m.Fit(background, d, silent(FitConfig{Callbacks: callbacks}))
		check(t, err)
	}
	const header = 704 // bytes of a tensor and what it needs
	for _, c := range []struct {
		name           string
		run            func(batches int)
		objects, bytes float64
	}{
		{"Fit", func(k int) { fit(samples.Take(k * size).Batch(size)) }, 0, 0},
		{"Fit, prefetched", func(k int) { fit(samples.Take(k * size).Batch(size).Prefetch(2)) }, 0, 0},
		{"Fit, a callback that sees batches", func(k int) {
			fit(samples.Take(k*size).Batch(size), Callback{BatchEnd: func(context.Context, *Run) error { return nil }})
		}, 2, 2 * header},
		{"Fit, batches shuffled", func(k int) { fit(samples.Take(k * size).Batch(size).Shuffle(4)) }, 2, 2 * header},
		{"Evaluate", func(k int) { _, err := m.Evaluate(background, samples.Take(k*size).Batch(size)); check(t, err) }, 0, 0},
		{"Each", func(k int) { check(t, step.Each(background, samples.Take(k*size).Batch(size).Batches())) }, 2, 2 * header},
		{"Each, prefetched", func(k int) {
			check(t, step.Each(background, samples.Take(k*size).Batch(size).Prefetch(1).Epoch(background, 1, 0)))
		}, 2, 2 * header},
		{"Each, a tuple", func(k int) { check(t, step.Each(background, two.Take(k*size).Batch(size).Batches())) }, 5, 4*header + 64},
		{"Run and Release", func(k int) {
			for b, err := range samples.Take(k * size).Batch(size).Batches() {
				check(t, err)
				check(t, step.Run(background, b))
				b.Release()
			}
		}, 2, 2 * header},
	} {
		o, b := garbage(t, c.run)
		if o > c.objects+0.2 || b > c.bytes+64 {
			t.Errorf("%s: a batch leaves %.2f objects and %.0f bytes, want at most %v and %v", c.name, o, b, c.objects, c.bytes)
		}
	}
}

// TestOrderOfNext: rings are used again in the order of their age, also when
// sizes differ.
func TestOrderOfNext(t *testing.T) {
	var text []string
	stack := stacker(2)
	seen := map[*Tensor]int{}
	for i, n := range []int{2, 2, 2, 3, 2, 2, 3} {
		var group []Batch
		for range n {
			group = append(group, Batch{X: NewTensor([]float32{float32(i)}, 1)})
		}
		b, err := stack(group)
		check(t, err)
		if _, ok := seen[b.X]; !ok {
			seen[b.X] = len(seen)
		}
		text = append(text, fmt.Sprint(seen[b.X]))
	}
	if want := []string{"0", "1", "0", "2", "0", "3", "4"}; !slices.Equal(text, want) {
		t.Errorf("got tensors %v, want %v", text, want)
	}
}
