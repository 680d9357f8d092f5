package keras

import (
	"fmt"
	"slices"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/layers"
)

func dense(units int) *layers.Dense { return &layers.Dense{Units: units} }

func newModel(t testing.TB, in, out *Tensor) *Model {
	t.Helper()
	m, err := NewModel(in, out)
	check(t, err)
	return m
}

func weightNames(m *Model) []string {
	var out []string
	for _, w := range m.Weights() {
		out = append(out, w.Name())
	}
	return out
}

func layerNames(m *Model) []string {
	var out []string
	for _, l := range m.Layers() {
		out = append(out, layers.BaseOf(l).LayerName())
	}
	return out
}

func TestBuildErrors(t *testing.T) {
	in := Input(4)
	other := Input(3)
	shared := dense(2)
	Apply(shared, Input(4))
	for name, c := range map[string]struct {
		in, out *Tensor
		want    string
	}{
		"layer":                {in, Apply(&layers.Dense{Name: "head"}, in), "layer head: Build: Units is 0, want a positive number"},
		"kept on":              {in, Apply(dense(3), Apply(dense(2), Apply(&layers.Dense{Units: -1, Name: "first"}, in))), "layer first: Build: Units is -1, want a positive number"},
		"in a tuple":           {in, Tuple(Apply(dense(2), in), Apply(&layers.Dropout{Rate: 2}, in)), "layer dropout: Build: Rate is 2, want a number from 0 to 1"},
		"input":                {Input(4, 0), Apply(dense(2), Input(4, 0)), "Input: shape [4 0] has an axis of size 0, want positive sizes"},
		"other shape":          {other, Apply(shared, other), "layer dense: Call: the last axis of input [? 3] is 3, want 4"},
		"merge":                {in, Apply(&layers.Add{}, in, Input(4, 2, 5)), "layer add: Build: inputs [[? 4] [? 4 2 5]] do not broadcast, want equal sizes or 1 in each axis after the batch"},
		"no input":             {in, Apply(dense(2)), "Apply: no input given"},
		"nil":                  {in, nil, "NewModel: an input or output is nil"},
		"not an Input":         {Apply(dense(2), in), Apply(dense(2), in), "model functional: input 0, float32[? 2], is not an Input"},
		"operation":            {in, Apply(dense(2), in.MulScalar(2)), "model functional: an output depends on float32[? 4], which operation Mul made outside of a layer; a model is made of layers, such as Rescaling, Add, or one of your own"},
		"operation at the end": {in, Apply(dense(2), in).MulScalar(2), "model functional: an output depends on float32[? 2], which operation Mul made outside of a layer; a model is made of layers, such as Rescaling, Add, or one of your own"},
		"missing Input":        {in, Apply(&layers.Concatenate{}, in, other), "model functional: an output depends on an Input of type float32[? 3] that is not among the model's inputs"},
		"constant":             {in, NewTensor([]float32{1}, 1), "model functional: output 0, float32[1], does not come from an Input; make it with Apply"},
		"same name": {in, Apply(&layers.Dense{Units: 2, Name: "head"}, Apply(&layers.Dense{Units: 2, Name: "head"}, in)),
			`model functional: two layers are named "head"; names in a model are unique`},
	} {
		_, err := NewModel(c.in, c.out)
		t.Run(name, func(t *testing.T) { wantError(t, err, c.want) })
	}

	wantError(t, Sequential().Build(4), "model sequential: it has no layers")
	wantError(t, Sequential(dense(2), nil).Build(4), "model sequential: layer 1 is nil")
	wantError(t, Sequential(dense(2), &layers.Dense{Name: "head"}).Build(4), "layer head: Build: Units is 0, want a positive number")
	wantError(t, Sequential(dense(2)).Build(0), "Input: shape [0] has an axis of size 0, want positive sizes")
	built := Sequential(dense(2))
	check(t, built.Build(4))
	check(t, built.Build(4)) // does nothing
	wantError(t, built.Add(dense(2)), "model sequential: Add: the model is built; add layers before it sees data")
	_, err := built.GetLayer("head")
	wantError(t, err, `model sequential: GetLayer: no layer "head"; have ["dense"]`)
	_, err = built.GetLayer("dense_1")
	wantError(t, err, `model sequential: GetLayer: no layer "dense_1"; did you mean "dense"? have ["dense"]`)
	_, err = built.Predict(background, tensor.Scalar(Float32, 1))
	wantError(t, err, "model sequential: Predict: the input is the scalar float32[]; axis 0 counts samples")
	_, err = Sequential(dense(2)).Predict(background, tensor.Scalar(Float32, 1))
	wantError(t, err, "model sequential: the input is the scalar float32[]; axis 0 counts samples")
	_, err = built.Predict(background, NewTensor(rising(4), 4))
	wantError(t, err, "model sequential: input 0 is float32[4], want float32[? 4]; give a sample its batch axis with ExpandDims(0)")
	_, err = built.Predict(background, NewTensor(rising(6), 2, 3))
	wantError(t, err, "model sequential: input 0 is float32[2 3], want float32[? 4]")
	_, err = built.Predict(background, Tuple(NewTensor(rising(4), 1, 4), NewTensor(rising(4), 1, 4)))
	wantError(t, err, "model sequential: it has 1 inputs, got 2")
	_, err = built.Predict(background, Input(0))
	wantError(t, err, "Input: shape [0] has an axis of size 0, want positive sizes")
}

func TestAutoNames(t *testing.T) {
	x := Input(4)
	a := Apply(&layers.Dense{Units: 4, Name: "dense_1"}, Apply(dense(4), x))
	y := Apply(dense(4), Apply(&layers.BatchNormalization{}, Apply(dense(4), a)))
	want := []string{"dense", "dense_1", "dense_2", "batch_normalization", "dense_3"}
	if got := layerNames(newModel(t, x, y)); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	// Another model counts anew.
	z := Input(4)
	if got := layerNames(newModel(t, z, Apply(dense(2), z))); !slices.Equal(got, want[:1]) {
		t.Errorf("got %q, want %q", got, want[:1])
	}
	s := Sequential(dense(2), dense(3), &layers.Dense{Units: 1, Name: "head"}, dense(1))
	check(t, s.Build(4))
	if got, want := layerNames(s), []string{"dense", "dense_1", "head", "dense_2"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, want := weightNames(s)[2], "dense_1/kernel"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestNamesMeet joins branches whose layers were numbered apart.
func TestNamesMeet(t *testing.T) {
	a, b := Input(3), Input(3)
	shared := dense(2)
	left, right := Apply(dense(2), a), Apply(dense(2), b)
	ls, rs := Apply(shared, left), Apply(shared, right)
	m := newModel(t, Tuple(a, b), Apply(dense(1), Apply(&layers.Concatenate{}, ls, rs)))
	if got, want := layerNames(m), []string{"dense", "dense_1", "dense_2", "concatenate", "dense_3"}; !slices.Equal(slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(want))) {
		t.Errorf("got %q, want the names %q", got, want)
	}
	for _, l := range m.Layers() {
		if d, ok := l.(*layers.Dense); ok && d.Weights()[0].Name() != d.LayerName()+"/kernel" {
			t.Errorf("layer %s has weight %s", d.LayerName(), d.Weights()[0].Name())
		}
	}
	// Branches that never meet belong to one model all the same.
	c, d := Input(3), Input(3)
	m = newModel(t, Tuple(c, d), Tuple(Apply(dense(2), c), Apply(dense(2), d)))
	if got, want := layerNames(m), []string{"dense", "dense_1"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	// A name that was given stays; the numbered one yields.
	e, f := Input(3), Input(3)
	m = newModel(t, Tuple(e, f), Apply(&layers.Add{}, Apply(dense(2), e), Apply(&layers.Dense{Units: 2, Name: "dense"}, f)))
	if got, want := layerNames(m), []string{"dense_1", "dense", "add"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestSharedLayer(t *testing.T) {
	x, y := Input(3), Input(3)
	shared := &layers.Dense{Units: 1, KernelInitializer: "ones"}
	m := newModel(t, Tuple(x, y), Apply(&layers.Subtract{}, Apply(shared, x), Apply(shared, y)))
	if got, want := weightNames(m), []string{"dense/kernel", "dense/bias"}; !slices.Equal(got, want) {
		t.Errorf("got weights %q, want %q", got, want)
	}
	if m.CountParams() != 4 {
		t.Errorf("got %d parameters, want 4", m.CountParams())
	}
	p, err := m.Predict(background, Tuple(NewTensor(rising(6), 2, 3), NewTensor(make([]float32, 6), 2, 3)))
	check(t, err)
	wantNear(t, "prediction", values(t, p), []float64{3, 12}, 1)
}

func TestNested(t *testing.T) {
	in := Input(4)
	encoder := newModel(t, in, Apply(dense(2), Apply(dense(3), in))).Named("encoder")
	a, b := Input(4), Input(4)
	l := encoder.Layer()
	m := newModel(t, Tuple(a, b), Apply(dense(1), Apply(&layers.Concatenate{}, Apply(l, a), Apply(l, b))))
	want := []string{"encoder/dense/kernel", "encoder/dense/bias", "encoder/dense_1/kernel", "encoder/dense_1/bias", "dense/kernel", "dense/bias"}
	if got := weightNames(m); !slices.Equal(got, want) {
		t.Errorf("got weights %q, want %q", got, want)
	}
	if l != encoder.Layer() {
		t.Error("Layer gives another layer each time")
	}
	// The same weights inside and out.
	before := weightsOf(t, m)[0]
	check(t, m.SetSeed(7))
	if after := weightsOf(t, m)[0]; slices.Equal(before, after) || !slices.Equal(after, weightsOf(t, encoder)[0]) {
		t.Errorf("got %v outside and %v inside after SetSeed, %v before", after, weightsOf(t, encoder)[0], before)
	}
	// A model of the same program has the same weights.
	in2 := Input(4)
	encoder2 := newModel(t, in2, Apply(dense(2), Apply(dense(3), in2))).Named("encoder")
	a2, b2 := Input(4), Input(4)
	m2 := newModel(t, Tuple(a2, b2), Apply(dense(1), Apply(&layers.Concatenate{}, Apply(encoder2.Layer(), a2), Apply(encoder2.Layer(), b2))))
	check(t, m2.SetSeed(7))
	if !same(bits(t, m), bits(t, m2)) {
		t.Error("two models of one program and seed have different weights")
	}

	// Sequential in Sequential, not built before; two without names.
	s := Sequential(Sequential(dense(3)).Layer(), Sequential(dense(2), dense(2)).Layer(), dense(1))
	check(t, s.Build(4))
	want = []string{"sequential/dense/kernel", "sequential/dense/bias", "sequential_1/dense/kernel", "sequential_1/dense/bias",
		"sequential_1/dense_1/kernel", "sequential_1/dense_1/bias", "dense/kernel", "dense/bias"}
	if got := weightNames(s); !slices.Equal(got, want) {
		t.Errorf("got weights %q, want %q", got, want)
	}
	s.SetTrainable(false)
	if got := s.TrainableVariables(); len(got) != 0 {
		t.Errorf("got %d trainable variables in a frozen model", len(got))
	}
	_, err := NewModel(a, Apply(Sequential(dense(3), &layers.Dense{Name: "bad"}).Named("inner").Layer(), a))
	wantError(t, err, "layer inner/bad: Build: Units is 0, want a positive number")
}

// TestNestedTrains trains a nested model like the same layers side by side.
func TestNestedTrains(t *testing.T) {
	flat := Sequential(dense(4), &layers.BatchNormalization{}, dense(1))
	nested := Sequential(Sequential(dense(4), &layers.BatchNormalization{}).Layer(), dense(1))
	for _, m := range []*Model{flat, nested} {
		check(t, m.Build(3))
		check(t, m.Compile(lineConfig()))
	}
	ws, err := flat.GetWeights()
	check(t, err)
	check(t, nested.SetWeights(ws))
	for _, m := range []*Model{flat, nested} {
		fit(t, m, regression(40), FitConfig{Epochs: 2, BatchSize: 8})
	}
	if !same(bits(t, flat), bits(t, nested)) {
		t.Error("the nested model learned something else")
	}
}

func TestInputsAreCast(t *testing.T) {
	x := Input(2)
	m := newModel(t, x, Apply(&layers.Dense{Units: 1, KernelInitializer: "ones"}, x))
	lazy := func() *Model { return Sequential(&layers.Dense{Units: 1, KernelInitializer: "ones"}) }
	for name, c := range map[string]struct {
		m    *Model
		x    *Tensor
		want float64
	}{
		"uint8":          {m, NewTensor([]uint8{200, 100}, 1, 2), 300},
		"int32":          {m, NewTensor([]int32{-200, 100}, 1, 2), -100},
		"float64":        {m, NewTensor([]float64{1, 2}, 1, 2), 3},
		"float16":        {m, NewTensor([]float32{1, 2}, 1, 2).Cast(Float16), 3},
		"uint8, lazy":    {lazy(), NewTensor([]uint8{200, 100}, 1, 2), 300},
		"float64, lazy":  {lazy(), NewTensor([]float64{1, 2}, 1, 2), 3},
		"bfloat16, lazy": {lazy(), NewTensor([]float32{1, 2}, 1, 2).Cast(BFloat16), 3},
	} {
		p, err := c.m.Predict(background, c.x)
		check(t, err)
		if v, err := p.Item(); v != c.want || p.DType() != Float32 || err != nil {
			t.Errorf("%s: got %v, %v, want float32 %v", name, p, err, c.want)
		}
	}
	// Indices are not floats: what takes them says so.
	_, err := lazy().Predict(background, NewTensor([]int32{1, 2}, 1, 2))
	wantError(t, err, "layer dense: Call: got int32[? 2], want floats; Cast the data, or use keras.Input(…), which is for floats")
}

func TestOutputDType(t *testing.T) {
	for name, d := range map[string]DType{"mixed_float16": Float16, "mixed_bfloat16": BFloat16, "float16": Float16, "float32": Float32, "float64": Float64} {
		underPolicy(t, name)
		x := NewTensor(rising(6), 2, 3)
		want := d
		if d.Is16() {
			want = Float32
		}
		for keep, want := range map[bool]DType{false: want, true: d} {
			m := Sequential(dense(2), dense(1))
			if keep {
				m.KeepOutputDType()
			}
			p, err := m.Predict(background, x)
			check(t, err)
			if p.DType() != want || m.OutputTypes()[0].DType != want {
				t.Errorf("%s, keep %v: got %v, OutputTypes %v, want %v", name, keep, p.Type(), m.OutputTypes(), want)
			}
			if got := m.Call(x); got.DType() != want {
				t.Errorf("%s, keep %v: got %v of Call, want %v", name, keep, got.Type(), want)
			}
		}
	}
}

func TestSeveralInputsAndOutputs(t *testing.T) {
	a, b := Input(2), InputOf(Int32, 1)
	h := Apply(dense(3), a)
	m := newModel(t, Tuple(a, b), Tuple(Apply(dense(1), h), h, b))
	if got := fmt.Sprint(m.InputTypes(), m.OutputTypes()); got != "[float32[? 2] int32[? 1]] [float32[? 1] float32[? 3] int32[? 1]]" {
		t.Errorf("got types %s", got)
	}
	p, err := m.Predict(background, Tuple(NewTensor(rising(4), 2, 2), NewTensor([]int32{7, 8}, 2, 1)))
	check(t, err)
	if !p.IsTuple() || p.Len() != 3 || !slices.Equal(values(t, p.Unpack()[2]), []float64{7, 8}) {
		t.Errorf("got %v", p)
	}
	_, err = m.Predict(background, NewTensor(rising(4), 2, 2))
	wantError(t, err, "model functional: it has 2 inputs, got 1")
}

func TestCall(t *testing.T) {
	m := Sequential(dense(2), &layers.Dropout{Rate: 0.5})
	x := NewTensor(rising(6), 2, 3)
	plain := values(t, m.Call(x))
	p, err := m.Predict(background, x)
	check(t, err)
	if !slices.Equal(plain, values(t, p)) {
		t.Errorf("got %v of Call and %v of Predict", plain, p)
	}
	// In a Function a Training call drops; outside it does too.
	f := Function(func(x *Tensor) *Tensor { return m.Call(x, Training) }, m)
	y, err := f.Call(background, x)
	check(t, err)
	z, err := f.Call(background, x)
	check(t, err)
	if slices.Equal(values(t, y), plain) && slices.Equal(values(t, z), plain) {
		t.Errorf("got %v twice with Training, nothing dropped", plain)
	}
	err = catch(func() { m.Call(NewTensor(rising(4), 1, 4)) })
	wantError(t, err, "model sequential: input 0 is float32[1 4], want float32[? 3]")
}

func TestSetWeights(t *testing.T) {
	m := Sequential(dense(2))
	_, err := m.GetWeights()
	wantError(t, err, "model sequential: GetWeights: it is not built; call it on data or Build it first")
	wantError(t, m.SetWeights(nil), "model sequential: SetWeights: it is not built; call it on data or Build it first")
	check(t, m.Build(3))
	ws, err := m.GetWeights()
	check(t, err)
	before := bits(t, m)
	wantError(t, m.SetWeights(ws[:1]), "model sequential: SetWeights: 1 tensors given, it has 2 weights")
	wantError(t, m.SetWeights([]*Tensor{NewTensor(rising(6), 3, 2), NewTensor(rising(3), 3)}),
		"model sequential: SetWeights: weight dense/bias is float32[2], got float32[3]")
	wantError(t, m.SetWeights([]*Tensor{ws[0], nil}), "model sequential: SetWeights: weight dense/bias is float32[2], got nothing")
	if !same(before, bits(t, m)) {
		t.Error("a SetWeights that failed changed weights")
	}
	check(t, m.SetWeights([]*Tensor{NewTensor([]int32{1, 2, 3, 4, 5, 6}, 3, 2), NewTensor([]float64{.5, .25}, 2)}))
	if got := fmt.Sprint(weightsOf(t, m)); got != "[[1 2 3 4 5 6] [0.5 0.25]]" {
		t.Errorf("got %s", got)
	}
	check(t, m.SetWeights(ws))
	if !same(before, bits(t, m)) {
		t.Error("GetWeights and SetWeights do not give the bits back")
	}
}

func TestSetSeed(t *testing.T) {
	build := func(seed ...uint64) *Model {
		m := Sequential(dense(4), &layers.Dropout{Rate: 0.5}, dense(1))
		for _, s := range seed {
			check(t, m.SetSeed(s))
		}
		check(t, m.Build(3))
		return m
	}
	plain := bits(t, build())
	if !same(plain, bits(t, build())) || !same(plain, bits(t, build(0))) {
		t.Error("the same program gives other weights; the seed is 0 unless set")
	}
	if same(plain, bits(t, build(1))) {
		t.Error("the seed does not matter")
	}
	m := build()
	bits(t, m) // weights exist
	check(t, m.SetSeed(1))
	if !same(bits(t, m), bits(t, build(1))) {
		t.Error("SetSeed after building gives other weights than before")
	}
}

// TestNestedIndices: a Sequential that is not built takes what the model around
// it has for it, integers too.
func TestNestedIndices(t *testing.T) {
	for _, wrap := range []func(layers.Layer) layers.Layer{
		func(l layers.Layer) layers.Layer { return l },
		func(l layers.Layer) layers.Layer { return &layers.TimeDistributed{Layer: l} },
	} {
		inner := Sequential(&layers.Embedding{InputDim: 5, OutputDim: 2}, &layers.Flatten{})
		m := Sequential(wrap(inner.Layer()), &layers.Flatten{}, dense(1))
		if _, err := m.Predict(background, NewTensor([]int32{0, 1, 4, 3, 2, 1, 0, 4}, 2, 2, 2)); err != nil {
			t.Fatal(err)
		}
		if got := inner.InputTypes()[0].DType; got != Int32 {
			t.Errorf("got a nested model for %v, want int32", got)
		}
	}
}

// TestCallArgs: a model keeps the arguments of calls, and so do its clones.
func TestCallArgs(t *testing.T) {
	in := InputOf(Int32, 3)
	e := &layers.ReversibleEmbedding{InputDim: 5, OutputDim: 4}
	m := newModel(t, in, Apply(layers.With(e, layers.Args{Reverse: true}), Apply(e, in)))
	stack := Sequential(&layers.Embedding{InputDim: 5, OutputDim: 4}, layers.With(&layers.ReversibleEmbedding{InputDim: 5, OutputDim: 4}, layers.Args{Reverse: true}))
	for _, m := range []*Model{m, stack} {
		x := NewTensor([]int32{0, 4, 2}, 1, 3)
		y, err := m.Predict(background, x)
		check(t, err)
		if want := (Shape{1, 3, 5}); !y.Shape().Equal(want) {
			t.Fatalf("got %v, want %v", y.Shape(), want)
		}
		c, err := m.Clone("")
		check(t, err)
		ws, err := m.GetWeights()
		check(t, err)
		check(t, c.SetWeights(ws))
		again, err := c.Predict(background, x)
		check(t, err)
		wantNear(t, "a clone", values(t, again), values(t, y), 0)
	}
	if got := layerNames(m); !slices.Equal(got, []string{"reversible_embedding"}) {
		t.Errorf("got layers %q, want one", got)
	}
}
