package keras

import (
	"slices"
	"strings"
	"testing"

	"github.com/mezzo-ml/mezzo/layers"
)

// TestNamed: names of inputs are in the summary and in clones, and are unique.
func TestNamed(t *testing.T) {
	a, b, c := Input(2), Named("ages", Input(3)), Input(4)
	m := newModel(t, Tuple(a, b, c), Apply(&layers.Concatenate{}, a, b, c))
	want := []string{"input_layer", "ages", "input_layer_1"}
	if got := m.InputNames(); !slices.Equal(got, want) {
		t.Errorf("got inputs %q, want %q", got, want)
	}
	other, err := m.Clone("")
	check(t, err)
	if got := other.InputNames(); !slices.Equal(got, want) {
		t.Errorf("a clone has inputs %q, want %q", got, want)
	}
	var s strings.Builder
	check(t, m.Summary(&s))
	if !strings.Contains(s.String(), "ages (Input)") {
		t.Errorf("the summary does not name the input:\n%s", s.String())
	}
	x, y := Named("x", Input(1)), Named("x", Input(1))
	_, err = NewModel(Tuple(x, y), Apply(&layers.Add{}, x, y))
	wantError(t, err, `model functional: an input is named "x" as another input or a layer; names in a model are unique`)
	_, err = NewModel(x, Named("z", Apply(&layers.Dense{Units: 1}, x)))
	wantError(t, err, `Named: "z" is to be the name of float32[? 1], which is not an Input`)
}

// TestTensors: samples come back from a dataset in memory, in parts, and from a
// generator.
func TestTensors(t *testing.T) {
	x := NewTensor(rising(12), 4, 3)
	y := NewTensor([]int32{1, 2, 3, 4}, 4)
	p := FromTensors(Tuple(x, x), y, nil)
	for name, c := range map[string]struct {
		p     *Pipeline
		x, y  []float64
		shape Shape
	}{
		"in memory": {p, values(t, x), []float64{1, 2, 3, 4}, Shape{4, 3}},
		"part":      {p.Skip(1).Take(2), values(t, x)[3:9], []float64{2, 3}, Shape{2, 3}},
		"batches":   {p.Batch(3), values(t, x), []float64{1, 2, 3, 4}, Shape{4, 3}},
		"generator": {FromGenerator(p.Batch(3).Batches, true), values(t, x), []float64{1, 2, 3, 4}, Shape{4, 3}},
	} {
		gotX, gotY, weight, err := c.p.Tensors()
		check(t, err)
		for _, part := range gotX.Unpack() {
			if !slices.Equal(values(t, part), c.x) || !part.Shape().Equal(c.shape) {
				t.Errorf("%s: got X %v, want %v %v", name, part, c.shape, c.x)
			}
		}
		if gotX.Len() != 2 || !slices.Equal(values(t, gotY), c.y) || weight != nil {
			t.Errorf("%s: got %d parts of X, Y %v, weight %v, want 2, %v, none", name, gotX.Len(), gotY, weight, c.y)
		}
	}
	if _, _, _, err := p.Take(0).Batch(1).Tensors(); err == nil {
		t.Error("an empty dataset: got no error")
	}
}
