package models_test

import (
	"testing"

	"github.com/mezzo-ml/mezzo/examples/models"
	"github.com/mezzo-ml/mezzo/keras"
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
	// Without the pooler, which a Span does not use, and with its own head.
	if got, want := span.CountParams(), 109482240-(768*768+768)+2*1536+2; got != want {
		t.Errorf("got %d weights, want %d", got, want)
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
