package main

import "testing"

// TestNetwork compares the numbers of weights with those of the models in
// PyTorch that these follow.
func TestNetwork(t *testing.T) {
	for name, want := range map[string]int{"small": 9098, "big": 4275210} {
		model := network(variants[name])
		if err := model.Build(784); err != nil {
			t.Fatal(err)
		}
		if got := model.CountParams(); got != want {
			t.Errorf("%s: got %d parameters, want %d", name, got, want)
		}
	}
}
