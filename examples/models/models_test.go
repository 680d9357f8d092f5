package models_test

import (
	"context"
	"runtime"
	"strings"
	"testing"

	"github.com/mezzo-ml/mezzo/examples/models"
	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/losses"
	"github.com/mezzo-ml/mezzo/optimizers"
	"github.com/mezzo-ml/mezzo/policy"
)

// TestDigitsCNN compares the numbers of weights with those of the models in
// PyTorch that these follow.
func TestDigitsCNN(t *testing.T) {
	for filters, want := range map[[2]int]int{{8, 16}: 9098, {420, 1000}: 4275210} {
		model := models.DigitsCNN(filters)
		if err := model.Build(784); err != nil {
			t.Fatal(err)
		}
		if got := model.CountParams(); got != want {
			t.Errorf("%v: got %d parameters, want %d", filters, got, want)
		}
	}
}

// trainable is the number of weights that an optimizer moves: what PyTorch
// calls parameters.
func trainable(m *keras.Model) int {
	n := 0
	for _, v := range m.TrainableVariables() {
		n += v.Shape().Size()
	}
	return n
}

func TestUNet(t *testing.T) {
	model, err := models.BobRoss.Model()
	if err != nil {
		t.Fatal(err)
	}
	if got := trainable(model); got != 7703497 {
		t.Errorf("got %d trainable weights, want 7,703,497", got)
	}
	if got := model.OutputTypes()[0].Shape; !got[1:].Equal(keras.Shape{164, 164, 9}) {
		t.Errorf("got output %v, want [? 164 164 9]", got)
	}
	sum := 0
	for _, n := range models.BobRoss.MACs() {
		sum += n
	}
	if sum < 21.56e9 || sum > 21.58e9 {
		t.Errorf("got %d multiplications, want 21.57 billion", sum)
	}
	if _, err := (models.UNet{Size: 40, Filters: 2, Depth: 2, Classes: 2}).Model(); err == nil {
		t.Error("a UNet of depth 2 for 40x40 pixels: got no error")
	}
}

func TestBERT(t *testing.T) {
	model, err := models.BERTBase.Model(128)
	if err != nil {
		t.Fatal(err)
	}
	if got := model.CountParams(); got != 109482240 {
		t.Errorf("got %d weights, want 109,482,240", got)
	}
	if got := models.BERTBase.MACs(128); got != 11173625856 { // 11.17 billion
		t.Errorf("got %d multiplications", got)
	}
	span, err := models.BERTBase.Span(128)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	if err := model.Summary(&b); err != nil || !strings.Contains(b.String(), "109,482,240") {
		t.Errorf("the summary does not say 109,482,240, or %v:\n%s", err, b.String())
	}
	// Without the pooler, which a Span does not use, and with its own head.
	if got, want := span.CountParams(), 109482240-(768*768+768)+2*1536+2; got != want {
		t.Errorf("got %d weights, want %d", got, want)
	}
}

// TestBERTMemory plans a training step of the large network, two gigabytes of
// weights, slots and activations, and allocates next to nothing of it.
func TestBERTMemory(t *testing.T) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	model, err := models.BERTBase.Span(128)
	if err != nil {
		t.Fatal(err)
	}
	err = model.Compile(keras.CompileConfig{Optimizer: &optimizers.AdamW{}, Loss: &losses.SparseCategoricalCrossentropy{FromLogits: true}})
	if err != nil {
		t.Fatal(err)
	}
	x, y := keras.NewTensor(make([]int32, 2*128), 2, 128), keras.NewTensor(make([]int32, 2), 2)
	plan, err := model.PlanMemory(keras.Batch{X: keras.Tuple(x, x), Y: keras.Tuple(y, y)})
	if err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	if got, want := plan.Weights, keras.Bytes(4*model.CountParams()); got < want || got > want+1<<20 {
		t.Errorf("got %d bytes of weights, want 4 for each of %d and little more", got, model.CountParams())
	}
	if plan.Peak < 3*plan.Weights {
		t.Errorf("got a peak of %d bytes, want more than weights and two slots for each", plan.Peak)
	}
	if got := after.TotalAlloc - before.TotalAlloc; got > 64<<20 {
		t.Errorf("planning allocated %d bytes, want less than 64 MiB", got)
	}
}

// TestBERTRematMemory: with Remat, too, mixed precision needs less: half of the
// activations, and no second copy of the weights. Weights, slots and gradients, 1661 MiB,
// are the same under all policies.
func TestBERTRematMemory(t *testing.T) {
	const steps = 128
	for n, most := range map[int]float64{64: 0.91, 256: 0.7} {
		full := keras.Bytes(0)
		for _, name := range []string{"float32", "mixed_bfloat16", "mixed_float16"} {
			defer policy.SetGlobal(policy.SetGlobal(name))
			b := models.BERTBase
			b.Remat = true
			model, err := b.Span(steps)
			if err != nil {
				t.Fatal(err)
			}
			err = model.Compile(keras.CompileConfig{Optimizer: &optimizers.AdamW{}, Loss: &losses.SparseCategoricalCrossentropy{FromLogits: true}})
			if err != nil {
				t.Fatal(err)
			}
			x, y := keras.NewTensor(make([]int32, n*steps), n, steps), keras.NewTensor(make([]int32, n), n)
			plan, err := model.PlanMemory(keras.Batch{X: keras.Tuple(x, x), Y: keras.Tuple(y, y)})
			if err != nil {
				t.Fatal(err)
			}
			if full == 0 {
				full = plan.Peak
			} else if ratio := float64(plan.Peak) / float64(full); ratio > most {
				t.Errorf("batch %d, %s: got %.3f of float32's memory, want at most %v: %v", n, name, ratio, most, plan)
			}
		}
	}
}

// TestBERTRemat: with Remat a step keeps less, and padding is still not
// attended to.
func TestBERTRemat(t *testing.T) {
	const steps = 64
	ctx := context.Background()
	var kept [2]keras.Bytes
	for i, remat := range []bool{false, true} {
		b := models.BERT{Vocabulary: 50, Positions: steps, Types: 2, Hidden: 32, Layers: 4, Heads: 2, Intermediate: 128, Remat: remat}
		model, err := b.Span(steps)
		if err != nil {
			t.Fatal(err)
		}
		err = model.Compile(keras.CompileConfig{Optimizer: &optimizers.AdamW{}, Loss: &losses.SparseCategoricalCrossentropy{FromLogits: true}})
		if err != nil {
			t.Fatal(err)
		}
		tokens, types := make([]int32, 4*steps), make([]int32, 4*steps)
		for k := range tokens {
			if k%steps < 40 { // the rest is padding
				tokens[k] = int32(1 + k*7%49)
			}
		}
		x, y := keras.NewTensor(tokens, 4, steps), keras.NewTensor([]int32{1, 2, 3, 4}, 4)
		batch := keras.Batch{X: keras.Tuple(x, keras.NewTensor(types, 4, steps)), Y: keras.Tuple(y, y)}
		plan, err := model.PlanMemory(batch)
		if err != nil {
			t.Fatal(err)
		}
		kept[i] = plan.Activation
		if err := model.TrainStep(ctx, batch); err != nil {
			t.Fatal(err)
		}
		var starts [2][]float32
		for j := range starts {
			if j == 1 {
				for k := range types {
					if tokens[k] == 0 {
						types[k] = 1
					}
				}
			}
			out, err := model.Predict(ctx, keras.Tuple(x, keras.NewTensor(types, 4, steps)))
			if err != nil {
				t.Fatal(err)
			}
			if starts[j], err = out.Unpack()[0].Values(); err != nil {
				t.Fatal(err)
			}
		}
		changed := false
		for k := range starts[0] {
			same := starts[0][k] == starts[1][k]
			if tokens[k] != 0 && !same {
				t.Fatalf("Remat %t: start of token %d is %v, with other padding %v", remat, k, starts[0][k], starts[1][k])
			}
			changed = changed || !same
		}
		if !changed {
			t.Errorf("Remat %t: nothing depends on the types of padding, not even what is computed there", remat)
		}
	}
	if kept[1] > kept[0]*6/10 {
		t.Errorf("got %d bytes of activations with Remat, %d without; want at most 6/10", kept[1], kept[0])
	}
}

func TestRossmann(t *testing.T) {
	model, err := models.Rossmann(models.RossmannCategories, len(models.RossmannNumbers))
	if err != nil {
		t.Fatal(err)
	}
	if got := trainable(model); got != 811618 {
		t.Errorf("got %d trainable weights, want 811,618", got)
	}
}
