package models_test

import (
	"testing"

	"github.com/mezzo-ml/mezzo/examples/models"
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
