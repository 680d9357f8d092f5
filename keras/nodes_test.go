package keras

import (
	"slices"
	"testing"

	"github.com/mezzo-ml/mezzo/layers"
)

// TestLayersOrder compares with what [l.name for l in model.layers] prints in
// Keras 3.15 for the same models, inputs left out.
func TestLayersOrder(t *testing.T) {
	dense := func(name string) layers.Layer { return &layers.Dense{Units: 2, Name: name} }
	order := func(in, out *Tensor) (names []string) {
		t.Helper()
		m, err := NewModel(in, out)
		check(t, err)
		for _, l := range m.Layers() {
			names = append(names, layers.BaseOf(l).LayerName())
		}
		return names
	}
	var got [][]string

	a, b := Input(2), Input(2)
	x := Apply(dense("long3"), Apply(dense("long2"), Apply(dense("long1"), b)))
	sum := Apply(&layers.Add{Name: "add"}, Apply(dense("short"), a), x)
	got = append(got, order(Tuple(a, b), Apply(dense("head"), sum)))

	a = Input(2)
	shared := dense("shared")
	x = Apply(shared, a)
	z := Apply(shared, Apply(dense("mid"), x))
	o1 := Apply(&layers.Concatenate{Name: "cat"}, Apply(dense("side"), a), z)
	o2 := Apply(dense("out2"), x)
	got = append(got, order(a, Tuple(o1, o2)), order(a, Tuple(o2, o1)))

	a = Input(2)
	var parts []*Tensor
	for _, name := range []string{"t0", "t1", "t2", "t3"} {
		parts = append(parts, Apply(dense(name), a))
	}
	u := Apply(&layers.Add{Name: "u"}, parts[3], parts[1])
	got = append(got, order(a, Apply(&layers.Add{Name: "v"}, parts[0], u, parts[2])))

	for i, want := range [][]string{
		{"long1", "long2", "short", "long3", "add", "head"},
		{"shared", "mid", "side", "cat", "out2"},
		{"shared", "mid", "side", "out2", "cat"},
		{"t3", "t1", "t0", "u", "t2", "v"},
	} {
		if !slices.Equal(got[i], want) {
			t.Errorf("model %d: got %q, want %q", i, got[i], want)
		}
	}
}
