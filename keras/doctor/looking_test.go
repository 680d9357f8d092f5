package doctor_test

import (
	"bytes"
	"testing"

	"github.com/mezzo-ml/mezzo/backend"
	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/doctor"
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/optimizers"
	"github.com/mezzo-ml/mezzo/policy"
)

// state is the bytes of all variables of the model and its optimizer.
func state(t *testing.T, m *keras.Model) (all []byte) {
	t.Helper()
	for _, v := range append(m.Variables(), m.Optimizer().Variables()...) {
		b, err := v.Bytes()
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, b...)
	}
	return all
}

// TestLooking: examined or not, training changes the same bits, with caches and without.
func TestLooking(t *testing.T) {
	elements := 0
	for _, p := range []string{"mixed_float16", "mixed_bfloat16", "float32"} {
		for _, without := range []string{"", "plans", "all"} {
			t.Run(p+"/"+without, func(t *testing.T) {
				defer policy.SetGlobal(policy.SetGlobal(p))
				skips, err := backend.ParseSkips(without)
				if err != nil {
					t.Fatal(err)
				}
				defer backend.SetSkips(backend.SetSkips(skips))
				var end [2][]byte
				for i, looking := range []bool{false, true} {
					in := keras.Input(64)
					x := dense("in", 128, "relu", in)
					x = keras.Apply(&layers.BatchNormalization{}, x)
					x = keras.Apply(&layers.Dropout{Rate: 0.2}, x)
					x = layerOf("own_norm", ownNorm, x)
					m, err := keras.NewModel(in, dense("logits", 10, "", x))
					if err != nil {
						t.Fatal(err)
					}
					if err := m.Compile(keras.CompileConfig{Loss: crossentropy, Optimizer: &optimizers.Adam{}}); err != nil {
						t.Fatal(err)
					}
					for step := range 6 {
						b := keras.Batch{X: normal(uint64(step), 1, 0, 32, 64), Y: classes(uint64(step), 32, 10)}
						if looking && step < 2 {
							if _, err := doctor.Examine(t.Context(), m, b, doctor.Config{}); err != nil {
								t.Fatal(err)
							}
						}
						if looking {
							if _, err := m.Beside(t.Context(), b, tensor.BesideOptions{}); err != nil {
								t.Fatal(err)
							}
						}
						if _, err := m.TrainOnBatch(t.Context(), b); err != nil {
							t.Fatal(err)
						}
						s := state(t, m)
						end[i] = append(end[i], s...)
						elements += len(s) / 4
					}
				}
				if !bytes.Equal(end[0], end[1]) {
					t.Errorf("looking changes what training computes")
				}
			})
		}
	}
	if want := 600000; elements < want {
		t.Errorf("%d elements were compared, want at least %d", elements, want)
	}
}
