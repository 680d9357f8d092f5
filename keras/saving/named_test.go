package saving_test

import (
	"path/filepath"
	"slices"
	"testing"

	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/saving"
	"github.com/mezzo-ml/mezzo/layers"
)

// TestNamedInputs: the names of inputs are in files, and those that are not
// given stay Keras's.
func TestNamedInputs(t *testing.T) {
	a, b := keras.Input(2), keras.Named("ages", keras.Input(3))
	functional, err := keras.NewModel(keras.Tuple(a, b), keras.Apply(&layers.Concatenate{}, a, b))
	check(t, err)
	sequential := keras.Sequential(&layers.Dense{Units: 1})
	check(t, sequential.BuildOn(keras.Named("sizes", keras.Input(4))))
	plain := keras.Sequential(&layers.Dense{Units: 1})
	check(t, plain.Build(4))
	for _, c := range []struct {
		m    *keras.Model
		want []string
	}{
		{functional, []string{"input_layer", "ages"}},
		{sequential, []string{"sizes"}},
		{plain, []string{"input_layer"}},
	} {
		path := filepath.Join(t.TempDir(), "m.keras")
		check(t, saving.Save(path, c.m))
		m, err := saving.Load(path)
		check(t, err)
		if got := m.InputNames(); !slices.Equal(got, c.want) {
			t.Errorf("%s: got inputs %q, want %q", c.m.Name(), got, c.want)
		}
	}
}
