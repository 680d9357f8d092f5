package doctor_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/doctor"
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/optimizers"
	"github.com/mezzo-ml/mezzo/policy"
)

func TestExamineErrors(t *testing.T) {
	sick := &patients[0]
	m := sick.compiled(t)
	examine := func(m *keras.Model, b keras.Batch, c doctor.Config) error {
		_, err := doctor.Examine(t.Context(), m, b, c)
		return err
	}
	for want, err := range map[string]error{
		"the model is nil":                   examine(nil, standard(), doctor.Config{}),
		"the model is not compiled":          examine(keras.Sequential(&layers.Dense{Units: 2}), standard(), doctor.Config{}),
		`Prefer: policy: unknown policy "x"`: examine(m, standard(), doctor.Config{Prefer: []string{"x"}}),
		"Trials is -1, want":                 examine(m, standard(), doctor.Config{Trials: -1}),
		"Tolerance is -1, want":              examine(m, standard(), doctor.Config{Tolerance: -1}),
		"want float32[? 64]":                 examine(m, keras.Batch{X: normal(1, 1, 0, 4, 3), Y: classes(2, 4, 10)}, doctor.Config{}),
		"the batch has no X":                 examine(m, keras.Batch{}, doctor.Config{}),
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got error %v, want %s", err, want)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := doctor.Examine(ctx, m, standard(), doctor.Config{}); !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled context: got error %v", err)
	}
}

// TestLostUpdates: Adam's steps of 1e-4 are below the spacing of most bfloat16 weights.
func TestLostUpdates(t *testing.T) {
	for p, want := range map[string]doctor.Kind{"bfloat16": doctor.LostUpdates, "mixed_bfloat16": doctor.Healthy, "float16": doctor.Healthy} {
		old := policy.SetGlobal(p)
		m := keras.Sequential(&layers.Dense{Units: 64, Activation: "relu"}, &layers.Dense{Units: 10})
		err := m.Compile(keras.CompileConfig{Loss: crossentropy, Optimizer: &optimizers.Adam{LearningRate: 1e-4}})
		if err != nil {
			t.Fatal(err)
		}
		r, err := doctor.Examine(t.Context(), m, standard(), doctor.Config{})
		policy.SetGlobal(old)
		if err != nil {
			t.Fatal(err)
		}
		if r.Kind != want || (p == "bfloat16") != (r.Lost["dense/kernel"] > 0.5) {
			t.Errorf("%s: got %v, %v lost, want %s", p, r, r.Lost, want)
		}
	}
}
