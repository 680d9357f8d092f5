package doctor_test

import (
	"math"
	"path/filepath"
	"testing"

	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/doctor"
	"github.com/mezzo-ml/mezzo/keras/saving"
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/policy"
)

// TestCheckWeights loads weights of a float32 file under other policies.
func TestCheckWeights(t *testing.T) {
	build := func(p string) *keras.Model {
		defer policy.SetGlobal(policy.SetGlobal(p))
		in := keras.Input(2)
		x := keras.Apply(&layers.Dense{Units: 3, Name: "hidden"}, in)
		x = keras.Apply(&layers.BatchNormalization{Name: "norm"}, x) // whose weights are read in float32
		m, err := keras.NewModel(in, keras.Apply(&layers.Dense{Units: 1, Name: "out"}, x))
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	trained := build("float32")
	for name, x := range map[string][]float64{
		"hidden/kernel": {1, 1e-9, -2e-8, 1e-6, 70000, -1e30},
		"hidden/bias":   {65519, 65520, 0},
		"norm/gamma":    {1e-9, 1e9, 1},
		"out/kernel":    {0.5, math.NaN(), math.Inf(-1)},
	} {
		for _, v := range trained.Variables() {
			if v.Name() == name {
				if err := v.Set(x); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	file := filepath.Join(t.TempDir(), "m.weights.h5")
	if err := saving.SaveWeights(file, trained); err != nil {
		t.Fatal(err)
	}
	for p, want := range map[string][]string{
		"mixed_float16": {
			"hidden/kernel in float16: 2 of 6 elements become infinite (up to 1e+30); 2 of 6 elements become 0; 1 of 6 elements are subnormal",
			"hidden/bias in float16: 1 of 3 elements become infinite (up to 6.55e+04)",
			"out/kernel in float16: 2 of 3 elements are not finite",
		},
		"auto_float16": {
			"hidden/kernel in float16: 2 of 6 elements become infinite (up to 1e+30); 2 of 6 elements become 0; 1 of 6 elements are subnormal",
			"out/kernel in float16: 2 of 3 elements are not finite",
		},
		"mixed_bfloat16": {"out/kernel in bfloat16: 2 of 3 elements are not finite"},
		"float32":        {"out/kernel in float32: 2 of 3 elements are not finite"},
	} {
		m := build(p)
		if err := saving.LoadWeights(file, m); err != nil {
			t.Fatal(err)
		}
		all, err := doctor.CheckWeights(m)
		if err != nil {
			t.Fatal(err)
		}
		if len(all) != len(want) {
			t.Errorf("%s: got %v, want %q", p, all, want)
			continue
		}
		for i, w := range all {
			if w.String() != want[i] || w.Bad() != (w.Infinite+w.NonFinite > 0) {
				t.Errorf("%s: got %v, want %s", p, w, want[i])
			}
		}
	}
	if _, err := doctor.CheckWeights(nil); err == nil {
		t.Error("a nil model: got no error")
	}
}
