package keras

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/losses"
	"github.com/mezzo-ml/mezzo/optimizers"
	"github.com/mezzo-ml/mezzo/policy"
)

// blocks is a residual network whose blocks are models, computed again in the
// backward pass, with an Input of the type of what they are applied to, and one
// with an Input that is float32 under every policy.
func blocks(t *testing.T) *Model {
	t.Helper()
	const units = 8
	x := Input(units)
	y := Apply(&layers.Dense{Units: units}, x)
	for i := range 3 {
		in := InputOf(y.DType(), y.Shape()[1:]...)
		if i == 2 {
			in = Input(units)
		}
		h := Apply(&layers.LayerNormalization{}, in)
		h = Apply(&layers.Dense{Units: 3 * units, Activation: "gelu"}, h)
		h = Apply(&layers.Dense{Units: units}, h)
		m, err := NewModel(in, Apply(&layers.Add{}, in, h))
		check(t, err)
		y = Apply(layers.Remat(m.Layer()), y)
	}
	m, err := NewModel(x, Apply(&layers.Dense{Units: 2}, y))
	check(t, err)
	return m
}

// TestCloneNested: a clone under another policy is the model that would have
// been built under it, to the bit, and so is the memory that MaxBatch plans.
func TestCloneNested(t *testing.T) {
	SkipRace(t)
	const rows = 16
	policies := []string{"float32", "mixed_float16", "mixed_bfloat16"}
	b := Batch{X: NewTensor(numbers(rows*8), rows, 8), Y: NewTensor(numbers(rows*2), rows, 2)}
	compile := func(m *Model) {
		t.Helper()
		check(t, m.Compile(CompileConfig{Optimizer: &optimizers.Adam{}, Loss: &losses.MeanSquaredError{}}))
	}
	for _, from := range policies {
		underPolicy(t, from)
		m := blocks(t)
		compile(m)
		start, err := m.GetWeights()
		check(t, err)
		for _, to := range policies {
			what := fmt.Sprintf("%s cloned under %s", from, to)
			underPolicy(t, to)
			want := blocks(t)
			compile(want)
			c, err := m.Clone(to)
			check(t, err)
			compile(c)
			var state [2][]byte
			var logs [2]Logs
			var plans [2]MemoryPlan
			for i, x := range []*Model{c, want} {
				check(t, x.SetWeights(start))
				plans[i], err = x.PlanMemory(b)
				check(t, err)
				for range 2 {
					logs[i], err = x.TrainOnBatch(background, b)
					check(t, err)
				}
				y, err := x.Predict(background, b.X)
				check(t, err)
				data, err := y.Bytes()
				check(t, err)
				state[i] = append(data, flat(bits(t, x))...)
			}
			if string(state[0]) != string(state[1]) || logs[0].Get("loss") != logs[1].Get("loss") {
				t.Errorf("%s: got losses %v, built under it %v: other bits", what, logs[0], logs[1])
			}
			if plans[0] != plans[1] {
				t.Errorf("%s: got memory %v, want %v", what, plans[0], plans[1])
			}
			got, err := m.MaxBatch(b, 1<<20, to)
			check(t, err)
			most, err := want.MaxBatch(b, 1<<20, "")
			check(t, err)
			if got != most {
				t.Errorf("%s: got a batch of at most %d, want %d", what, got, most)
			}
		}
	}
}

func flat(all [][]byte) (out []byte) {
	for _, b := range all {
		out = append(out, b...)
	}
	return out
}

// TestCloneWrapped: a model in a wrapper is cloned with it.
func TestCloneWrapped(t *testing.T) {
	for _, name := range []string{"float32", "mixed_float16", "mixed_bfloat16"} {
		underPolicy(t, name)
		m := Sequential(&layers.TimeDistributed{Layer: Sequential(&layers.Dense{Units: 3}).Layer()})
		check(t, m.Build(4, 5))
		c, err := m.Clone(name)
		check(t, err)
		w, err := m.GetWeights()
		check(t, err)
		check(t, c.SetWeights(w))
		x := NewTensor(numbers(2*4*5), 2, 4, 5)
		var y [2]*Tensor
		for i, m := range []*Model{m, c} {
			y[i], err = m.Predict(background, x)
			check(t, err)
		}
		if got, want := values(t, y[1]), values(t, y[0]); !slices.Equal(got, want) {
			t.Errorf("%s: got %v, want %v", name, got, want)
		}
	}
}

// TestCloneWrappedPolicies: a model in a wrapper whose Input has the type of
// what the model is applied to has it in a clone under another policy too.
func TestCloneWrappedPolicies(t *testing.T) {
	const rows, steps, units = 3, 4, 8
	inner := func(like *Tensor) layers.Layer {
		in := InputOf(like.DType(), units)
		h := Apply(&layers.LayerNormalization{}, in)
		m, err := NewModel(in, Apply(&layers.Add{}, in, Apply(&layers.Dense{Units: units}, h)))
		check(t, err)
		return m.Layer()
	}
	wrappers := map[string]func(like *Tensor) layers.Layer{
		"TimeDistributed": func(like *Tensor) layers.Layer { return &layers.TimeDistributed{Layer: inner(like)} },
		"around": func(like *Tensor) layers.Layer {
			return layers.Remat(&castingWrapper{Layer: &layers.TimeDistributed{Layer: inner(like)}})
		},
		"within": func(like *Tensor) layers.Layer {
			return &layers.TimeDistributed{Layer: &castingWrapper{Layer: inner(like)}}
		},
	}
	build := func(wrap func(*Tensor) layers.Layer) *Model {
		x := Input(steps, units)
		y := Apply(&layers.Dense{Units: units}, x)
		m, err := NewModel(x, Apply(&layers.Dense{Units: 2}, Apply(wrap(y), y)))
		check(t, err)
		return m
	}
	x := NewTensor(numbers(rows*steps*units), rows, steps, units)
	policies := []string{"float32", "mixed_float16", "mixed_bfloat16"}
	for name, wrap := range wrappers {
		for _, from := range policies {
			underPolicy(t, from)
			m := build(wrap)
			start, err := m.GetWeights()
			check(t, err)
			for _, to := range policies {
				underPolicy(t, to)
				want := build(wrap)
				underPolicy(t, from)
				c, err := m.Clone(to)
				check(t, err)
				var y [2][]float64
				for i, one := range []*Model{c, want} {
					check(t, one.SetWeights(start))
					p, err := one.Predict(background, x)
					check(t, err)
					y[i] = values(t, p)
				}
				if !slices.Equal(y[0], y[1]) {
					t.Errorf("%s: %s cloned under %s is not the model built under it", name, from, to)
				}
			}
		}
	}
}

// castingWrapper applies a layer to its input in the compute type.
type castingWrapper struct {
	layers.Base
	Layer layers.Layer
}

func (w *castingWrapper) Config() layers.Config { return layers.Config{} }

func (w *castingWrapper) Build(in ...Shape) error { return w.AddBuilt("inner", w.Layer, in...) }

func (w *castingWrapper) CheckInput(...Shape) error { return nil }

func (w *castingWrapper) Call(p layers.Pass, x *Tensor) *Tensor { return layers.Apply(w.Layer, p, x) }

// TestCloneWrappedFails: an error in a model in a wrapper is that of Clone.
func TestCloneWrappedFails(t *testing.T) {
	for _, built := range []bool{true, false} {
		x := Input(5)
		inner, err := NewModel(x, Apply(&onlyFloat32{}, x))
		check(t, err)
		m := Sequential(&layers.TimeDistributed{Layer: inner.Layer()})
		if built {
			check(t, m.Build(4, 5))
		}
		if _, err := m.Clone("mixed_float16"); err == nil || !strings.Contains(err.Error(), "only float32") {
			t.Errorf("built %v: got error %v, want that of the layer", built, err)
		}
	}
}

// onlyFloat32 is a layer that does not build under other policies.
type onlyFloat32 struct{ layers.Base }

func (l *onlyFloat32) Config() layers.Config { return layers.Config{} }

func (l *onlyFloat32) Build(...Shape) error {
	if l.ComputeDType() != Float32 {
		return errors.New("only float32")
	}
	return nil
}

func (l *onlyFloat32) Call(_ layers.Pass, x *Tensor) *Tensor { return x }

// TestCloneShared: a layer in two wrappers, and outside of them, is one layer
// in the clone.
func TestCloneShared(t *testing.T) {
	d := &layers.Dense{Units: 5}
	x := Input(4, 5)
	y := Apply(&layers.TimeDistributed{Layer: d}, x)
	y = Apply(&layers.TimeDistributed{Layer: d}, y)
	m, err := NewModel(x, Apply(d, y))
	check(t, err)
	c, err := m.Clone("")
	check(t, err)
	if got, want := c.CountParams(), m.CountParams(); got != want {
		t.Errorf("got %d parameters, want %d", got, want)
	}
}

// TestCloneUnder: a clone under a map is the model that would have been built under
// it with these weights, to the bit, and the layers of layers can be named.
func TestCloneUnder(t *testing.T) {
	const rows, steps, units = 4, 5, 16
	build := func() *Model {
		x := Input(steps, units)
		y := Apply(&layers.MultiHeadAttention{NumHeads: 2, KeyDim: 8, Name: "attention"}, x, x)
		y = Apply(&layers.BatchNormalization{Name: "norm"}, y)
		y = Apply(&layers.Dense{Units: units, Name: "ff_1", Activation: "relu"}, y)
		y = Apply(&layers.Dense{Units: units, Name: "ff_2", DType: "mixed_float16"}, y)
		y = Apply(&layers.Dropout{Rate: 0.5, Name: "drop"}, y)
		m, err := NewModel(x, Apply(&layers.Dense{Units: 3, Name: "out"}, y))
		check(t, err)
		return m
	}
	x := NewTensor(numbers(rows*steps*units), rows, steps, units)
	for _, general := range []string{"mixed_float16", "mixed_bfloat16", "float32", "bfloat16"} {
		underPolicy(t, "mixed_float16")
		m := build()
		check(t, m.Compile(CompileConfig{Optimizer: &optimizers.SGD{}, Loss: &losses.MeanSquaredError{}}))
		check(t, m.TrainStep(t.Context(), Batch{X: x, Y: NewTensor(numbers(rows*steps*3), rows, steps, 3)}))
		by := policy.Map{"ff_.*": "float32", "attention/query": "bfloat16"}
		clone, err := m.CloneUnder(general, by, false)
		check(t, err)
		underPolicy(t, general)
		old := policy.SetGlobalMap(by)
		want := build()
		policy.SetGlobalMap(old)
		check(t, copyVariables(want.Variables(), m.Variables()))
		for i, l := range clone.Layers() {
			if got, want := layers.BaseOf(l).Policy(), layers.BaseOf(want.Layers()[i]).Policy(); got != want {
				t.Errorf("%s: %s has %v, want %v", general, layers.BaseOf(l).Path(), got, want)
			}
		}
		got, err := clone.Predict(t.Context(), x)
		check(t, err)
		truth, err := want.Predict(t.Context(), x)
		check(t, err)
		if !slices.Equal(values(t, got), values(t, truth)) {
			t.Errorf("%s: the clone predicts %v, a model built under the map %v", general, got, truth)
		}
		if !same(bits(t, clone), bits(t, want)) {
			t.Errorf("%s: the clone has another state than the model", general)
		}
		query := layers.BaseOf(clone.Layers()[0]).Sublayers()[0]
		for l, want := range map[layers.Layer]string{query: "bfloat16", clone.Layers()[0]: general, clone.Layers()[2]: "float32", clone.Layers()[3]: "mixed_float16"} {
			if b := layers.BaseOf(l); b.Policy().Name != want {
				t.Errorf("%s: %s has %v, want %s", general, b.Path(), b.Policy(), want)
			}
		}
		forced, err := m.CloneUnder("", by, true)
		check(t, err)
		for i, want := range []string{"mixed_float16", "mixed_float16", "float32", "float32", "mixed_float16"} {
			if b := layers.BaseOf(forced.Layers()[i]); b.Policy().Name != want {
				t.Errorf("by force: %s has %v, want %s", b.Path(), b.Policy(), want)
			}
		}
	}
	m := build()
	_, err := m.CloneUnder("float8", nil, false)
	wantError(t, err, `model functional: CloneUnder: policy: unknown policy "float8"; did you mean "mixed_float8"? want mixed_float16, mixed_bfloat16, mixed_float32, mixed_float8, auto_float16, auto_bfloat16 or a float type such as float32`)
	_, err = m.CloneUnder("", policy.Map{"ff_[": "float32"}, false)
	wantError(t, err, "model functional: CloneUnder: policy: the key \"ff_[\" of a map is no regular expression: error parsing regexp: missing closing ]: `[`")
	_, err = m.CloneUnder("", policy.Map{"ff_.*": "float32", ".*_1": "float16"}, false)
	wantError(t, err, `layer ff_1: Build: policy: the layer at "ff_1" matches two keys of the map, ".*_1" (float16) and "ff_.*" (float32); write keys that exclude each other`)
	_, err = Sequential(&layers.Dense{Units: 2}).CloneUnder("", nil, false)
	wantError(t, err, "model sequential: CloneUnder: the model is not built; call it on data, or build it with Input")
}
