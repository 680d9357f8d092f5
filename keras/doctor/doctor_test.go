package doctor_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/doctor"
	"github.com/mezzo-ml/mezzo/layers"
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
