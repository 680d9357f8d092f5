package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/data"
	"github.com/mezzo-ml/mezzo/keras/doctor"
	"github.com/mezzo-ml/mezzo/keras/saving"
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/optimizers"
	"github.com/mezzo-ml/mezzo/policy"
)

// TestPatients: each patient is found to have what it has.
func TestPatients(t *testing.T) {
	defer policy.SetGlobal(policy.Global().Name)
	kinds := map[string]doctor.Kind{"own_norm": doctor.Overflow, "attention": doctor.Overflow, "raw_targets": doctor.Scale, "cancellation": doctor.Rounding}
	for _, p := range patients {
		policy.SetGlobal(p.policy)
		m, err := p.build()
		if err != nil {
			t.Fatal(err)
		}
		if err := m.Compile(keras.CompileConfig{Optimizer: &optimizers.SGD{}, Loss: p.loss}); err != nil {
			t.Fatal(err)
		}
		r, err := doctor.Examine(t.Context(), m, p.batch(), doctor.Config{})
		if err != nil {
			t.Fatal(err)
		}
		if r.Kind != kinds[p.name] || !r.Remedy.Verified {
			t.Errorf("%s: got %v, want %s and a remedy", p.name, r, kinds[p.name])
		}
	}
}

// TestModel examines a model of a file.
func TestModel(t *testing.T) {
	dir := t.TempDir()
	*modelPath, *dataPath, *reportPath = filepath.Join(dir, "m.keras"), filepath.Join(dir, "d.npz"), filepath.Join(dir, "r.html")
	defer func() { *modelPath, *dataPath, *reportPath, *lossName = "", "", "", "" }()
	save := func(activation string) {
		t.Helper()
		in := keras.Input(64)
		m, err := keras.NewModel(in, keras.Apply(&layers.Dense{Units: 10, Activation: activation}, in))
		if err != nil {
			t.Fatal(err)
		}
		if err := saving.Save(*modelPath, m); err != nil {
			t.Fatal(err)
		}
	}
	b := classified()
	if err := data.SaveNPZ(*dataPath, map[string]*keras.Tensor{"x": b.X, "y": b.Y}); err != nil {
		t.Fatal(err)
	}
	save("softmax")
	if err := run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if html, err := os.ReadFile(*reportPath); err != nil || !strings.Contains(string(html), "<html") {
		t.Errorf("the report: %v, %.80s", err, html)
	}
	*goal, *samples = "memory", 8
	defer func() { *goal, *samples = "", 32 }()
	if err := run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(*reportPath); err != nil || !strings.Contains(string(text), `"goal": "memory"`) {
		t.Errorf("the result of the search: %v, %.80s", err, text)
	}
	save("relu")
	if err := run(t.Context()); err == nil || !strings.Contains(err.Error(), "with -loss") {
		t.Errorf("got error %v, want one that names -loss", err)
	}
	*dataPath = ""
	if err := run(t.Context()); err == nil || !strings.Contains(err.Error(), "needs -data") {
		t.Errorf("got error %v, want one that names -data", err)
	}
}
