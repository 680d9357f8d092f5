package saving_test

import (
	"archive/zip"
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/saving"
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/losses"
	"github.com/mezzo-ml/mezzo/optimizers"
	"github.com/mezzo-ml/mezzo/policy"
)

// model is a functional model with two inputs, two outputs, a layer that is
// called twice, and models within it. Keras has its layers in another order.
func model(t testing.TB) *keras.Model {
	t.Helper()
	x, y := keras.Input(4), keras.Input(4)
	shared := &layers.Dense{Units: 5, Activation: "relu", KernelRegularizer: "l2(l2=0.02)"}
	a := keras.Apply(shared, keras.Apply(&layers.Dense{Units: 4, KernelInitializer: "random_normal(stddev=0.5, seed=3)"}, x))
	b := keras.Apply(shared, y)
	sum := keras.Apply(&layers.BatchNormalization{}, keras.Apply(&layers.Add{}, b, a))
	stack := keras.Sequential(&layers.Dense{Units: 3}, &layers.Dropout{Rate: 0.5}, &layers.LayerNormalization{})
	u := keras.Input(3)
	inner, err := keras.NewModel(u, keras.Apply(&layers.Dense{Units: 2, DType: "float32"}, keras.Apply(stack.Layer(), u)))
	if err != nil {
		t.Fatal(err)
	}
	head := keras.Apply(inner.Named("head").Layer(), keras.Apply(&layers.Dense{Units: 3}, sum))
	m, err := keras.NewModel(keras.Tuple(x, y), keras.Tuple(head, sum))
	if err != nil {
		t.Fatal(err)
	}
	return m.Named("net")
}

func data() *keras.Tensor {
	return keras.Tuple(
		keras.NewTensor([]float32{.1, .2, .3, .4, -1, 2, -3, 4}, 2, 4),
		keras.NewTensor([]float32{1, 2, 3, 4, 5, -6, 7, 8}, 2, 4))
}

func outputs(t testing.TB, m *keras.Model, x *keras.Tensor) (all []float32) {
	t.Helper()
	for _, y := range m.Call(x).Unpack() {
		v, err := y.Values()
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, v...)
	}
	return all
}

// under runs f with a global policy.
func under[T any](name string, f func() T) T {
	defer policy.SetGlobal(policy.SetGlobal(name))
	return f()
}

// seeded is model with other weights.
func seeded(t testing.TB, seed uint64) *keras.Model {
	t.Helper()
	m := model(t)
	if err := m.SetSeed(seed); err != nil {
		t.Fatal(err)
	}
	return m
}

func TestSaveLoad(t *testing.T) {
	for _, name := range []string{"float32", "mixed_float16", "mixed_bfloat16", "bfloat16", "float16", "float64"} {
		m := under(name, func() *keras.Model { return seeded(t, 7) })
		path := filepath.Join(t.TempDir(), "m.keras")
		if err := saving.Save(path, m); err != nil {
			t.Fatal(err)
		}
		again, err := saving.Load(path)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got, want := outputs(t, again, data()), outputs(t, m, data()); !slices.Equal(got, want) {
			t.Errorf("%s: got %v, want %v", name, got, want)
		}
		if again.Name() != "net" || len(again.Layers()) != len(m.Layers()) {
			t.Errorf("%s: got model %s of %d layers, want net of %d", name, again.Name(), len(again.Layers()), len(m.Layers()))
		}
	}
}

// TestWriteRead: without a file, as with one.
func TestWriteRead(t *testing.T) {
	m := under("mixed_float16", func() *keras.Model { return seeded(t, 7) })
	var b bytes.Buffer
	if err := saving.Write(&b, m); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "m.keras")
	if err := os.WriteFile(path, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	want := outputs(t, m, data())
	fromFile, err := saving.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	again, err := saving.Read(bytes.NewReader(b.Bytes()), int64(b.Len()), saving.WithMaxConfig(1<<20))
	if err != nil {
		t.Fatal(err)
	}
	for _, got := range []*keras.Model{fromFile, again} {
		if got := outputs(t, got, data()); !slices.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
	}
	if _, err := saving.Read(bytes.NewReader(b.Bytes()[:100]), 100); err == nil || !strings.HasPrefix(err.Error(), "saving: it is no .keras file") {
		t.Errorf("got error %v, want one about the file", err)
	}
	if err := saving.Write(&b, keras.Sequential(&layers.Dense{Units: 2})); err == nil || !strings.Contains(err.Error(), "not built") {
		t.Errorf("got error %v, want one about a model that is not built", err)
	}
}

// TestFormats keeps weights in each format, under one policy, and loads them
// under another.
func TestFormats(t *testing.T) {
	for _, format := range []struct {
		file string
		save func(string, *keras.Model) error
		load func(string, *keras.Model) error
	}{
		{"m.weights.h5", saveWeights, loadWeights},
		{"m.keras", func(p string, m *keras.Model) error { return saving.Save(p, m) }, loadWeights},
		{"m.safetensors", saving.SaveSafetensors, saving.LoadSafetensors},
		{"m.npz", saving.SaveNPZ, saving.LoadNPZ},
	} {
		for _, p := range []string{"float32", "float16", "bfloat16", "float64"} {
			m := under(p, func() *keras.Model { return seeded(t, 7) })
			path := filepath.Join(t.TempDir(), format.file)
			if err := format.save(path, m); err != nil {
				t.Fatal(err)
			}
			if left, _ := filepath.Glob(filepath.Dir(path) + "/*"); len(left) != 1 {
				t.Errorf("%s: got files %q, want one", format.file, left)
			}
			for _, to := range []string{p, "float64"} {
				other := under(to, func() *keras.Model { return seeded(t, 8) })
				if err := format.load(path, other); err != nil {
					t.Fatalf("%s from %s to %s: %v", format.file, p, to, err)
				}
				for i, w := range other.Weights() {
					got, err := w.Float64s()
					if err != nil {
						t.Fatal(err)
					}
					if want, _ := m.Weights()[i].Float64s(); !slices.Equal(got, want) {
						t.Errorf("%s from %s to %s: %s: got %v, want %v", format.file, p, to, w.Name(), got, want)
					}
				}
			}
		}
	}
}

func saveWeights(path string, m *keras.Model) error { return saving.SaveWeights(path, m) }
func loadWeights(path string, m *keras.Model) error { return saving.LoadWeights(path, m) }

func TestWithPolicy(t *testing.T) {
	m32 := filepath.Join(t.TempDir(), "m.keras")
	if err := saving.Save(m32, under("mixed_float16", func() *keras.Model { return seeded(t, 1) })); err != nil {
		t.Fatal(err)
	}
	p, err := policy.Parse("mixed_bfloat16")
	if err != nil {
		t.Fatal(err)
	}
	m, err := saving.Load(m32, saving.WithPolicy(p))
	if err != nil {
		t.Fatal(err)
	}
	counts := map[string]int{}
	var count func(ls []layers.Layer)
	count = func(ls []layers.Layer) {
		for _, l := range ls {
			if inner := keras.ModelOf(l); inner != nil {
				count(inner.Layers())
				continue
			}
			counts[layers.BaseOf(l).Policy().Name]++
		}
	}
	count(m.Layers())
	if counts["float32"] != 1 || counts["mixed_bfloat16"] != 8 || len(counts) != 2 {
		t.Errorf("got layers of policies %v, want 8 of mixed_bfloat16, and the float32 one", counts)
	}
}

// TestMixedFloat32: a file keeps the policy mixed_float32 and every bit of its float64
// weights, and loads under float32.
func TestMixedFloat32(t *testing.T) {
	ctx := context.Background()
	x, y := keras.NewTensor([]float32{1, 2, 3, 4, 5, 6}, 2, 3), keras.NewTensor([]float32{1, 0}, 2, 1)
	build := func() *keras.Model {
		m := keras.Sequential(&layers.Dense{Units: 4, Activation: "tanh"}, &layers.BatchNormalization{}, &layers.Dense{Units: 1})
		if err := m.Compile(keras.CompileConfig{Loss: &losses.MeanSquaredError{}, Optimizer: &optimizers.Adam{}}); err != nil {
			t.Fatal(err)
		}
		if err := m.TrainStep(ctx, keras.Batch{X: x, Y: y}); err != nil {
			t.Fatal(err)
		}
		return m
	}
	weights := func(m *keras.Model) (all []float64) {
		for _, w := range m.Weights() {
			x, err := w.Float64s()
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, x...)
		}
		return all
	}
	m := under("mixed_float32", build)
	path := filepath.Join(t.TempDir(), "m.keras")
	if err := saving.Save(path, m); err != nil {
		t.Fatal(err)
	}
	again, err := saving.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	for i, l := range again.Layers() {
		if got, want := layers.BaseOf(l).Policy(), layers.BaseOf(m.Layers()[i]).Policy(); got != want || got.Name != "mixed_float32" {
			t.Errorf("layer %d has policy %v, want %v", i, got, want)
		}
	}
	want := weights(m)
	if got := weights(again); !slices.Equal(got, want) {
		t.Errorf("got weights %v, want %v", got, want)
	}
	single, err := policy.Parse("float32")
	if err != nil {
		t.Fatal(err)
	}
	if again, err = saving.Load(path, saving.WithPolicy(single)); err != nil {
		t.Fatal(err)
	}
	different := false
	for i, x := range weights(again) {
		different = different || want[i] != x
		if x != float64(float32(want[i])) {
			t.Errorf("weight %d is %v under float32, want %v rounded", i, x, want[i])
		}
	}
	if !different {
		t.Error("no weight has more bits than float32")
	}
}

// TestWithPolicyMap: keys reach layers of nested models, the weights are those of the
// file, and the predictions those of a model whose layers name these policies.
func TestWithPolicyMap(t *testing.T) {
	build := func(last, out string) *keras.Model {
		in := keras.Input(6)
		h := keras.Apply(&layers.Dense{Units: 5, Name: "inner", Activation: "tanh"}, in)
		inner, err := keras.NewModel(in, keras.Apply(&layers.Dense{Units: 4, Name: "last", DType: last}, h))
		if err != nil {
			t.Fatal(err)
		}
		x := keras.Input(6)
		m, err := keras.NewModel(x, keras.Apply(&layers.Dense{Units: 3, Name: "out", DType: out}, keras.Apply(inner.Named("encoder").Layer(), x)))
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	m := under("mixed_float16", func() *keras.Model { return build("", "") })
	path := filepath.Join(t.TempDir(), "m.keras")
	if err := saving.Save(path, m); err != nil {
		t.Fatal(err)
	}
	by := policy.Map{"encoder/.*t": "float64", "out": "float32"}
	got, err := saving.Load(path, saving.WithPolicyMap(by))
	if err != nil {
		t.Fatal(err)
	}
	encoder := keras.ModelOf(got.Layers()[0]).Layers()
	for l, want := range map[layers.Layer]string{encoder[0]: "mixed_float16", encoder[1]: "float64", got.Layers()[1]: "float32"} {
		if b := layers.BaseOf(l); b.Policy().Name != want {
			t.Errorf("%s has %v, want %s", b.Path(), b.Policy(), want)
		}
	}
	want := under("mixed_float16", func() *keras.Model { return build("float64", "float32") })
	weights, err := m.GetWeights()
	if err == nil {
		err = want.SetWeights(weights)
	}
	if err != nil {
		t.Fatal(err)
	}
	x := keras.NewTensor([]float32{1, -2, 3, 0.5, 0.25, -1}, 1, 6)
	a, err := got.Predict(t.Context(), x)
	if err != nil {
		t.Fatal(err)
	}
	b, err := want.Predict(t.Context(), x)
	if err != nil {
		t.Fatal(err)
	}
	av, err := a.Values()
	if err != nil {
		t.Fatal(err)
	}
	bv, err := b.Values()
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(av, bv) {
		t.Errorf("the loaded model predicts %v, one whose layers name these policies %v", av, bv)
	}
	if _, err := saving.Load(path, saving.WithPolicyMap(policy.Map{"out": "float8"})); err == nil || !strings.Contains(err.Error(), `unknown policy "float8"`) {
		t.Errorf("an unknown policy: got error %v", err)
	}
}

// TestOptimizer goes on with a training from a file.
func TestOptimizer(t *testing.T) {
	for name, make := range map[string]func() optimizers.Optimizer{
		"Adam": func() optimizers.Optimizer { return &optimizers.Adam{LearningRate: 0.1} },
		"MultiOptimizer": func() optimizers.Optimizer {
			return &optimizers.MultiOptimizer{OptimizerMap: optimizers.OptimizerMap{
				Default: &optimizers.Adam{LearningRate: 0.1},
				Entries: []optimizers.OptimizerEntry{{Variables: "dense/.*", Optimizer: &optimizers.ScheduleFreeAdamW{LearningRate: 0.1}}},
			}}
		},
	} {
		t.Run(name, func(t *testing.T) { testOptimizer(t, make) })
	}
}

func testOptimizer(t *testing.T, optimizer func() optimizers.Optimizer) {
	step := func(m *keras.Model) {
		t.Helper()
		ds := keras.FromTensors(keras.NewTensor([]float32{1, 2, 3, 4, 5, 6}, 2, 3), keras.NewTensor([]float32{1, 2}, 2, 1), nil)
		if _, err := m.Fit(context.Background(), ds, keras.FitConfig{Epochs: 1, Verbose: keras.VerbositySilent}); err != nil {
			t.Fatal(err)
		}
	}
	fresh := func(p string) *keras.Model {
		return under(p, func() *keras.Model {
			m := keras.Sequential(&layers.Dense{Units: 2, Activation: "tanh"}, &layers.Dense{Units: 1})
			if err := m.Compile(keras.CompileConfig{Loss: &losses.MeanSquaredError{}, Optimizer: optimizer()}); err != nil {
				t.Fatal(err)
			}
			step(m)
			return m
		})
	}
	m := fresh("float32")
	step(m)
	path := filepath.Join(t.TempDir(), "m.weights.h5")
	if err := saving.SaveWeights(path, m, saving.WithOptimizer(m.Optimizer())); err != nil {
		t.Fatal(err)
	}
	other, scaled := fresh("float32"), fresh("mixed_float16")
	for _, o := range []*keras.Model{other, scaled} {
		if err := saving.LoadWeights(path, o, saving.WithOptimizer(o.Optimizer())); err != nil {
			t.Fatal(err)
		}
		if n, err := optimizers.Iterations(o.Optimizer()); err != nil || n < 1 {
			t.Errorf("got %d iterations, error %v", n, err)
		}
	}
	step(m)
	step(other)
	for i, w := range m.Weights() {
		got, _ := other.Weights()[i].Values()
		want, err := w.Values()
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s after another step: got %v, want %v, error %v", w.Name(), got, want, err)
		}
	}
	if err := saving.LoadWeights(path, other, saving.WithOptimizer(&optimizers.SGD{})); err == nil {
		t.Error("the state was loaded into SGD")
	}
}

// TestMismatch loads into models that differ: nothing changes.
func TestMismatch(t *testing.T) {
	build := func(ls ...layers.Layer) *keras.Model {
		m := keras.Sequential(ls...)
		if err := m.Build(3); err != nil {
			t.Fatal(err)
		}
		return m
	}
	from := build(&layers.Dense{Units: 2, Name: "a"}, &layers.Dense{Units: 2, Name: "b"})
	dir := t.TempDir()
	for _, format := range []struct {
		file string
		save func(string, *keras.Model) error
		load func(string, *keras.Model) error
	}{
		{"m.weights.h5", saveWeights, loadWeights},
		{"m.safetensors", saving.SaveSafetensors, saving.LoadSafetensors},
		{"m.npz", saving.SaveNPZ, saving.LoadNPZ},
	} {
		path := filepath.Join(dir, format.file)
		if err := format.save(path, from); err != nil {
			t.Fatal(err)
		}
		for _, m := range []*keras.Model{
			build(&layers.Dense{Units: 2, Name: "a"}),
			build(&layers.Dense{Units: 2, Name: "a"}, &layers.Dense{Units: 3, Name: "b"}),
			build(&layers.Dense{Units: 2, Name: "a"}, &layers.Dense{Units: 2, Name: "b", UseBias: new(false)}),
			build(&layers.Dense{Units: 2, Name: "a"}, &layers.Dense{Units: 2, Name: "b"}, &layers.Dense{Units: 2, Name: "c"}),
		} {
			before := outputs(t, m, keras.NewTensor([]float32{1, 2, 3}, 1, 3))
			err := format.load(path, m)
			if err == nil || !strings.Contains(err.Error(), path) {
				t.Errorf("%s: got error %v, want one that names the file", format.file, err)
			}
			if after := outputs(t, m, keras.NewTensor([]float32{1, 2, 3}, 1, 3)); !slices.Equal(before, after) {
				t.Errorf("%s: weights changed although loading failed", format.file)
			}
		}
		if err := format.load(path, keras.Sequential(&layers.Dense{Units: 2})); err == nil {
			t.Errorf("%s: loaded into a model that is not built", format.file)
		}
		if err := format.save(filepath.Join(dir, "no", format.file), from); err == nil {
			t.Errorf("%s: saved to a directory that does not exist", format.file)
		}
	}
}

// member is a file in an archive.
type member struct {
	name   string
	data   []byte
	method uint16
}

func archive(t testing.TB, members ...member) []byte {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for _, m := range members {
		w, err := z.CreateHeader(&zip.FileHeader{Name: m.name, Method: m.method})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(m.data); err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func saved(t testing.TB) (config, weights []byte) {
	t.Helper()
	m := keras.Sequential(&layers.Dense{Units: 2})
	if err := m.Build(3); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "m.keras")
	if err := saving.Save(path, m); err != nil {
		t.Fatal(err)
	}
	z, err := zip.OpenReader(path)
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	read := func(name string) []byte {
		var b bytes.Buffer
		f, err := z.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := b.ReadFrom(f); err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}
	return read("config.json"), read("model.weights.h5")
}

// TestHostileArchives refuses what no writer of models makes.
func TestHostileArchives(t *testing.T) {
	config, weights := saved(t)
	good := []member{{"config.json", config, zip.Store}, {"model.weights.h5", weights, zip.Store}}
	with := func(more ...member) []byte { return archive(t, append(slices.Clone(good), more...)...) }
	damaged := with()
	damaged[bytes.Index(damaged, []byte("TREE"))+9] ^= 1
	for want, b := range map[string][]byte{
		"":                                with(),
		"points out of the archive":       with(member{"../evil", nil, zip.Store}),
		`"/etc/passwd", which points out`: with(member{"/etc/passwd", nil, zip.Store}),
		`\\evil", which points out`:       with(member{`..\evil`, nil, zip.Store}),
		"two members":                     with(good[0]),
		"it has no member config.json":    archive(t, good[1]),
		"it has no member model.weights":  archive(t, good[0]),
		"model.weights.h5 is compressed":  archive(t, good[0], member{"model.weights.h5", make([]byte, 64<<20), zip.Deflate}),
		"config.json: got 67108865 bytes": archive(t, member{"config.json", make([]byte, 64<<20+1), zip.Deflate}, good[1]),
		"checksum error":                  damaged,
		"no .keras file":                  []byte("not a zip"),
	} {
		path := filepath.Join(t.TempDir(), "m.keras")
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := saving.Load(path)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("got error %v, want one with %q", err, want)
		}
	}
}

// TestConfigErrors loads descriptions that are wrong.
func TestConfigErrors(t *testing.T) {
	config, weights := saved(t)
	for _, c := range []struct{ from, to, want string }{
		{`"Dense"`, `"Conv9D"`, `class Conv9D is not registered`},
		{`"units":2`, `"units":"two"`, `field "units"`},
		{`"units":2`, `"units":3`, `got float32[3 2], want float32[3 3]`},
		{`"units":2`, `"units":2,"lora_rank":4`, `unknown field "lora_rank"`},
		{`"units":2`, `"units":2,"renorm":null`, ``},
		{`"units":2`, `"units":1000000000`, `want float32[3 1000000000]`},
		{`"units":2`, `"units":4611686018427387904`, `dense`},
		{`"Sequential"`, `"Lambda"`, `want Sequential or Functional`},
		{`[null,3]`, `[null,-3]`, `want a positive integer or null`},
		{`"float32"`, `"float33"`, `float33`},
	} {
		changed := bytes.ReplaceAll(config, []byte(c.from), []byte(c.to))
		if bytes.Equal(changed, config) {
			t.Fatalf("config.json has no %s: %s", c.from, config)
		}
		path := filepath.Join(t.TempDir(), "m.keras")
		b := archive(t, member{"config.json", changed, zip.Store}, member{"model.weights.h5", weights, zip.Store})
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := saving.Load(path)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s for %s: got error %v, want one with %q", c.to, c.from, err, c.want)
		}
	}
}

// custom is a layer that UnmarshalConfig does not know.
type custom struct {
	Name, DType string
	layers.Base
}

func (c *custom) Config() layers.Config                             { return layers.Config{Name: c.Name, DType: c.DType} }
func (c *custom) Build(...layers.Shape) error                       { return nil }
func (c *custom) Call(_ layers.Pass, x *keras.Tensor) *keras.Tensor { return x }

func TestSaveErrors(t *testing.T) {
	dir := t.TempDir()
	m := keras.Sequential(&layers.Dense{Units: 2}, &custom{})
	for _, err := range []error{
		saving.Save(filepath.Join(dir, "a.keras"), m),
		saving.SaveWeights(filepath.Join(dir, "a.weights.h5"), m),
		saving.SaveNPZ(filepath.Join(dir, "a.npz"), m),
		saving.SaveSafetensors(filepath.Join(dir, "a.safetensors"), m),
	} {
		if err == nil || !strings.Contains(err.Error(), "not built") {
			t.Errorf("got error %v, want one about a model that is not built", err)
		}
	}
	if err := m.Build(3); err != nil {
		t.Fatal(err)
	}
	if err := saving.Save(filepath.Join(dir, "a.keras"), m); err == nil || !strings.Contains(err.Error(), "class custom is not registered") {
		t.Errorf("got error %v, want one about the class", err)
	}
	for _, err := range []error{saving.Save(filepath.Join(dir, "a.h5"), m), saving.SaveWeights(filepath.Join(dir, "a.h5"), m)} {
		if err == nil || !strings.Contains(err.Error(), "ends in .") {
			t.Errorf("got error %v, want one about the file's name", err)
		}
	}
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Errorf("got files %v, want none", left)
	}
}

// addConfigs adds the config.json of each .keras file in an archive.
func addConfigs(f *testing.F, path string) {
	z, err := zip.OpenReader(path)
	if err != nil {
		f.Fatal(err)
	}
	defer z.Close()
	n := 0
	for _, member := range z.File {
		if !strings.HasSuffix(member.Name, ".keras") {
			continue
		}
		b := memberOf(f, &z.Reader, member.Name)
		inner, err := zip.NewReader(bytes.NewReader(b), int64(len(b)))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(memberOf(f, inner, "config.json"))
		n++
	}
	if n == 0 {
		f.Fatalf("%s has no .keras files", path)
	}
}

// FuzzLoad rebuilds models from anything as config.json: it ends without a
// panic.
func FuzzLoad(f *testing.F) {
	config, weights := saved(f)
	f.Add(config)
	small := filepath.Join(f.TempDir(), "m.keras")
	x, y := keras.Input(3), keras.Input(3)
	inner, err := keras.NewModel(x, keras.Apply(&layers.Dense{Units: 3}, x))
	if err != nil {
		f.Fatal(err)
	}
	once := keras.Apply(inner.Layer(), y)
	m, err := keras.NewModel(y, keras.Apply(&layers.Add{}, y, once, keras.Apply(inner.Layer(), once)))
	if err != nil {
		f.Fatal(err)
	}
	if err := saving.Save(small, m); err != nil {
		f.Fatal(err)
	}
	z, err := zip.OpenReader(small)
	if err != nil {
		f.Fatal(err)
	}
	defer z.Close()
	r, err := z.Open("config.json")
	if err != nil {
		f.Fatal(err)
	}
	var b bytes.Buffer
	if _, err := b.ReadFrom(r); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes())
	for _, name := range []string{"graphs", "nested", "transfer"} {
		addConfigs(f, "testdata/"+name+".zip")
	}
	f.Fuzz(func(t *testing.T, config []byte) {
		if !json.Valid(config) {
			return
		}
		path := filepath.Join(t.TempDir(), "m.keras")
		if err := os.WriteFile(path, archive(t, member{"config.json", config, zip.Store}, member{"model.weights.h5", weights, zip.Store}), 0o600); err != nil {
			t.Fatal(err)
		}
		if m, err := saving.Load(path); err == nil && !m.Built() {
			t.Fatal("got a model that is not built, and no error")
		}
	})
}
