package onnx

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/op"
	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/internal/atomicfile"
	"github.com/mezzo-ml/mezzo/keras/saving"
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/losses"
	"github.com/mezzo-ml/mezzo/optimizers"
)

func exampleOf(t testing.TB, name, under string) (*keras.Model, []op.Type) {
	t.Helper()
	for _, e := range examples() {
		if e.name == name {
			return e.model(t, under), e.types()
		}
	}
	t.Fatalf("no example %s", name)
	return nil, nil
}

// file writes a node with its initializers as a file.
func file(inputs, outputs []*valueInfo, nodes []*nodeProto, initializers ...*tensorProto) []byte {
	p := &modelProto{irVersion: IRVersion, producer: "test", opsets: []opset{{"", Opset}}, graph: &graphProto{name: "g", nodes: nodes, inputs: inputs, outputs: outputs, initializers: initializers}}
	var b bytes.Buffer
	if err := p.write(&b); err != nil {
		panic(err)
	}
	return b.Bytes()
}

func floatInput(name string, sample ...int) *valueInfo {
	v := &valueInfo{name: name, typ: typeFloat, dims: []dim{{name: "N"}}}
	for _, d := range sample {
		v.dims = append(v.dims, dim{size: int64(d)})
	}
	return v
}

func predict(t testing.TB, m *keras.Model, x *keras.Tensor) []float64 {
	t.Helper()
	y, err := m.Predict(context.Background(), x)
	if err != nil {
		t.Fatal(err)
	}
	v, err := y.Unpack()[0].Float64s()
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func reread(t testing.TB, m *keras.Model, o ImportOptions) *keras.Model {
	t.Helper()
	var b bytes.Buffer
	if err := Write(&b, m, ExportOptions{}); err != nil {
		t.Fatal(err)
	}
	n, err := Read(&b, o)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestFineTune cuts an imported network before its head, adds another one, freezes the
// network, trains, unfreezes it, and trains under a mixed policy.
func TestFineTune(t *testing.T) {
	m, types := exampleOf(t, "cnn", "float32")
	for _, under := range []string{"float32", "mixed_float16", "mixed_bfloat16"} {
		base := reread(t, m, ImportOptions{Outputs: []string{"dense/MatMul"}, DType: under, Name: "base"})
		l := base.Layers()[0]
		in := keras.Input(types[0].Shape[1:]...)
		full, err := keras.NewModel(in, keras.Apply(&layers.Dense{Units: 3, DType: "float32"}, keras.Apply(l, in)))
		if err != nil {
			t.Fatal(err)
		}
		layers.BaseOf(l).SetTrainable(false)
		if n := len(full.TrainableVariables()); n != 2 {
			t.Errorf("%s: %d weights are trainable while the base is frozen, want 2", under, n)
		}
		layers.BaseOf(l).SetTrainable(true)
		if n, all := len(full.TrainableVariables()), len(full.Weights()); all-n != 2 { // moving statistics
			t.Errorf("%s: %d of %d weights are trainable, want all but 2", under, n, all)
		}
		if err := full.Compile(keras.CompileConfig{Optimizer: &optimizers.Adam{LearningRate: 0.01}, Loss: &losses.SparseCategoricalCrossentropy{FromLogits: true}}); err != nil {
			t.Fatal(err)
		}
		b := keras.Batch{X: sample(types, 6), Y: keras.NewTensor([]int32{0, 1, 2, 0, 1, 2}, 6)}
		kernel := l.(*Graph).weights["conv2d/kernel"]
		before, err := kernel.Float64s()
		if err != nil {
			t.Fatal(err)
		}
		var first, last float64
		for i := range 12 {
			logs, err := full.TrainOnBatch(context.Background(), b)
			if err != nil {
				t.Fatal(err)
			}
			if last = logs.Get("loss"); i == 0 {
				first = last
			}
		}
		if !(last < 0.8*first) {
			t.Errorf("%s: the loss went from %v to %v", under, first, last)
		}
		after, err := kernel.Float64s()
		if err != nil {
			t.Fatal(err)
		}
		if fmt.Sprint(before) == fmt.Sprint(after) {
			t.Errorf("%s: training did not change the first kernel", under)
		}
	}
}

// TestUnderPolicies: an imported model under another policy is near the original.
func TestUnderPolicies(t *testing.T) {
	for _, e := range examples() {
		m := e.model(t, "float32")
		want := predict(t, m, sample(e.types(), 3))
		for _, under := range []string{"mixed_float16", "mixed_bfloat16", "float64"} {
			got := predict(t, reread(t, m, ImportOptions{DType: under}), sample(e.types(), 3))
			most := 0.0
			for _, v := range want {
				most = max(most, math.Abs(v))
			}
			within := map[string]float64{"mixed_float16": 0.02, "mixed_bfloat16": 0.1, "float64": 1e-5}[under]
			for i := range got {
				if d := math.Abs(got[i] - want[i]); !(d <= within*most) {
					t.Errorf("%s under %s: got %v, want %v", e.name, under, got[i], want[i])
				}
			}
		}
	}
}

// TestSaveImported saves an imported model as .keras and loads it, and clones it under
// another policy.
func TestSaveImported(t *testing.T) {
	m, types := exampleOf(t, "residual", "float32")
	n := reread(t, m, ImportOptions{})
	path := filepath.Join(t.TempDir(), "m.keras")
	if err := saving.Save(path, n); err != nil {
		t.Fatal(err)
	}
	loaded, err := saving.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	x := sample(types, 3)
	if got, want := predict(t, loaded, x), predict(t, m, x); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %v, want %v", got, want)
	}
	c, err := n.CloneUnder("mixed_bfloat16", nil, false)
	if err != nil {
		t.Fatal(err)
	}
	if d := layers.BaseOf(c.Layers()[0]).ComputeDType(); d != keras.BFloat16 {
		t.Errorf("the clone computes in %v", d)
	}
	predict(t, c, x)
	for _, f := range []struct {
		name       string
		save, load func(path string, m *keras.Model) error
	}{
		{"m.weights.h5", func(p string, m *keras.Model) error { return saving.SaveWeights(p, m) }, func(p string, m *keras.Model) error { return saving.LoadWeights(p, m) }},
		{"m.safetensors", func(p string, m *keras.Model) error { return saving.SaveSafetensors(p, m) }, func(p string, m *keras.Model) error { return saving.LoadSafetensors(p, m) }},
		{"m.npz", func(p string, m *keras.Model) error { return saving.SaveNPZ(p, m) }, func(p string, m *keras.Model) error { return saving.LoadNPZ(p, m) }},
	} {
		path := filepath.Join(t.TempDir(), f.name)
		other := reread(t, m, ImportOptions{})
		if err := errors.Join(other.SetSeed(1), f.save(path, n), f.load(path, other)); err != nil {
			t.Fatal(err)
		}
		if got, want := predict(t, other, x), predict(t, m, x); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: got %v, want %v", f.name, got, want)
		}
	}
	// An imported model is exported as any other.
	again := reread(t, loaded, ImportOptions{})
	if got, want := predict(t, again, x), predict(t, m, x); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("exported again: got %v, want %v", got, want)
	}
}

// TestExternalData writes weights to a second file, and refuses places outside of the
// directory.
func TestExternalData(t *testing.T) {
	m, types := keras.Sequential(&layers.Dense{Units: 50}), []op.Type{parseType("float32[3 100]")}
	if err := m.Build(100); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "m.onnx")
	for _, write := range []func() error{
		func() error { return Export(path, m, ExportOptions{ExternalData: true}) },
		func() error { return export(atomicfile.System{}, path, m, ExportOptions{}, 10_000) }, // as if a file could be no larger
	} {
		if err := write(); err != nil {
			t.Fatal(err)
		}
		if info, err := os.Stat(path + ".data"); err != nil || info.Size() < 4096 {
			t.Errorf("the data: %v, %v", info, err)
		}
		n, err := Import(path, ImportOptions{})
		if err != nil {
			t.Fatal(err)
		}
		x := sample(types, 3)
		if got, want := predict(t, n, x), predict(t, m, x); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("got %v, want %v", got, want)
		}
		os.Remove(path + ".data")
	}
	if err := export(atomicfile.System{}, path, m, ExportOptions{}, 100); err == nil || !strings.Contains(err.Error(), "the graph alone takes") {
		t.Errorf("got error %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "weights"), make([]byte, 100), 0o644); err != nil {
		t.Fatal(err)
	}
	inner := filepath.Join(dir, "inner")
	if err := os.Mkdir(inner, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(dir, "weights"), filepath.Join(inner, "link")); err != nil {
		t.Log(err)
	}
	if err := os.WriteFile(filepath.Join(inner, "few"), make([]byte, 10), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		at   location
		want string
	}{
		{location{"../weights", 0, 24}, "escapes"},
		{location{filepath.Join(dir, "weights"), 0, 24}, "escapes"},
		{location{"link", 0, 24}, "escapes"},
		{location{"none", 0, 24}, "no such file"},
		{location{"few", 0, 24}, "its elements are bytes 0 to 24 of \"few\", which has 10"},
		{location{"few", -8, 24}, "its elements are bytes"},
		{location{"few", 0, 8}, "it has 8 bytes of elements, want 24"},
		{location{".", 0, 24}, "a directory"},
	} {
		data := file([]*valueInfo{floatInput("x", 3)}, []*valueInfo{{name: "y", typ: typeFloat}}, []*nodeProto{{op: "MatMul", in: []string{"x", "w"}, out: []string{"y"}}},
			&tensorProto{name: "w", typ: typeFloat, dims: []int64{3, 2}, external: &c.at})
		path := filepath.Join(inner, "m.onnx")
		if err := os.WriteFile(path, data, 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := Import(path, ImportOptions{}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: got error %v, want %s", c.at, err, c.want)
		}
		if _, err := Read(bytes.NewReader(data), ImportOptions{}); err == nil || !strings.Contains(err.Error(), "lies in another file; use Import") {
			t.Errorf("got error %v", err)
		}
	}
}

type failing struct{ atomicfile.System }

func (failing) Rename(string, string) error { return errors.New("no") }

// TestExportFails: after an error there is the old file.
func TestExportFails(t *testing.T) {
	m, _ := exampleOf(t, "mlp", "float32")
	dir := t.TempDir()
	path := filepath.Join(dir, "m.onnx")
	if err := os.WriteFile(path, []byte("old"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := export(failing{}, path, m, ExportOptions{}, maxMessage); err == nil {
		t.Error("no error")
	}
	if b, err := os.ReadFile(path); err != nil || string(b) != "old" {
		t.Errorf("got %q, %v", b, err)
	}
	if all, err := os.ReadDir(dir); err != nil || len(all) != 1 {
		t.Errorf("got %v, %v", all, err)
	}
}

// TestExportErrors has what cannot be exported.
func TestExportErrors(t *testing.T) {
	m, _ := exampleOf(t, "mlp", "mixed_bfloat16")
	free := keras.Named("x", keras.Input(keras.Unknown, 4))
	open, err := keras.NewModel(free, keras.Apply(&layers.Dense{Units: 2}, free))
	if err != nil {
		t.Fatal(err)
	}
	stateful, err := keras.NewModel(free, keras.Apply(&layers.LSTM{Units: 2, Stateful: true}, free))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		m    *keras.Model
		o    ExportOptions
		want string
	}{
		{keras.Sequential(&layers.Dense{Units: 2}), ExportOptions{}, "onnx: model sequential: it is not built; call it on data or Build it first"},
		{m, ExportOptions{Precision: "bfloat16"}, `onnx: model functional: Precision is "bfloat16": ONNX Runtime has no bfloat16 arithmetic on processors, and ONNX's Conv takes none; want "float32" or "float16"`},
		{m, ExportOptions{Precision: "int8"}, `onnx: model functional: Precision is "int8", want "float32" or "float16"`},
		{m, ExportOptions{Batch: -1}, "onnx: model functional: Batch is -1, want a size, or 0 for any"},
		{m, ExportOptions{Shapes: map[string][]int{"z": {1}}}, `onnx: model functional: Shapes has an input "z"; the model has ["input_layer"]`},
		{m, ExportOptions{ExternalData: true}, "onnx: Write: external data lie in a second file; use Export"},
		{open, ExportOptions{}, `onnx: model functional: input "x" is float32[? ? 4]: the exported graph has fixed sizes except for the batch; give them in ExportOptions.Shapes`},
		{open, ExportOptions{Shapes: map[string][]int{"x": {3}}}, `onnx: model functional: Shapes of input "x" is [3], want the shape of a sample of float32[? ? 4]`},
		{stateful, ExportOptions{Shapes: map[string][]int{"x": {3, 4}}, Batch: 2}, "onnx: model functional: it assigns lstm/state_0 when it is called: a graph of ONNX has no state"},
	} {
		if err := Write(io.Discard, c.m, c.o); err == nil || err.Error() != c.want {
			t.Errorf("got error %v, want %s", err, c.want)
		}
	}
	// With sizes it can.
	var b bytes.Buffer
	if err := Write(&b, open, ExportOptions{Shapes: map[string][]int{"x": {3, 4}}, Batch: 2, Metadata: map[string]string{"author": "me"}}); err != nil {
		t.Fatal(err)
	}
	p, err := decodeModel(b.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(p.graph.inputs[0].dims, p.metadata); got != "[{2 } {3 } {4 }] [{mezzo.precision float32} {author me}]" {
		t.Errorf("got %s", got)
	}
}

// TestImportErrors has files that are not read.
func TestImportErrors(t *testing.T) {
	x, y := []*valueInfo{floatInput("x", 3)}, []*valueInfo{{name: "y", typ: typeFloat}}
	node := func(kind string, in ...string) *nodeProto {
		return &nodeProto{name: "n", op: kind, in: in, out: []string{"y"}}
	}
	w := &tensorProto{name: "w", typ: typeFloat, dims: []int64{3, 2}, raw: make([]byte, 24)}
	old := &modelProto{irVersion: 3, opsets: []opset{{"", 6}}, graph: &graphProto{nodes: []*nodeProto{node("Relu", "x")}, inputs: x, outputs: y}}
	var oldFile bytes.Buffer
	if err := old.write(&oldFile); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		data []byte
		o    ImportOptions
		want string
	}{
		{[]byte("PK\x03\x04 no"), ImportOptions{}, "it is no ONNX file: its bytes are no protocol buffer message"},
		{nil, ImportOptions{}, "it is no ONNX file: it has no graph"},
		{oldFile.Bytes(), ImportOptions{}, "it is written for operator set 6, want 7 to 23"},
		{file(x, y, []*nodeProto{{name: "a", op: "TopK", in: []string{"x"}, out: []string{"t"}}, {name: "b", op: "TopK", in: []string{"t"}, out: []string{"u"}}, {op: "FusedMatMul", domain: "com.microsoft", in: []string{"u"}, out: []string{"y"}}}), ImportOptions{},
			`operations that are not supported: TopK (2: "a b"), com.microsoft.FusedMatMul (1: "")`},
		{file(x, y, []*nodeProto{node("Relu", "z")}), ImportOptions{}, `node "n" (Relu): input "z" is not computed before it`},
		{file(x, y, []*nodeProto{node("Relu", "x"), node("Relu", "x")}), ImportOptions{}, `node "n" (Relu): result "y" is computed twice`},
		{file(x, y, []*nodeProto{node("Relu", "x")}), ImportOptions{Outputs: []string{"q"}}, `output "q" is no value of the graph`},
		{file(x, y, []*nodeProto{node("Relu", "x")}), ImportOptions{Shapes: map[string][]int{"q": {1}}}, `Shapes has an input "q"; the file has none of this name`},
		{file(x, y, []*nodeProto{node("MatMul", "w", "x")}, w), ImportOptions{}, `node "n" (MatMul): MatMul: inner dimensions differ`},
		{file(x, y, []*nodeProto{node("MatMul", "x")}), ImportOptions{}, `node "n" (MatMul): input 1 is missing`},
		{file(x, y, []*nodeProto{node("MatMul", "x", "w")}, &tensorProto{name: "w", typ: typeFloat, dims: []int64{1 << 40, 1 << 40}, raw: make([]byte, 24)}), ImportOptions{}, `initializer "w": shape [1099511627776 1099511627776] is too large`},
		{file(x, y, []*nodeProto{node("MatMul", "x", "w")}, &tensorProto{name: "w", typ: typeFloat, dims: []int64{3, 2}, raw: make([]byte, 20)}), ImportOptions{}, `initializer "w": it has 20 bytes of elements, want 24 for shape [3 2] of FLOAT`},
		{file(x, y, []*nodeProto{node("Identity", "w")}, &tensorProto{name: "w", typ: typeString}), ImportOptions{}, `initializer "w": its elements are STRING, which is not supported`},
		{file(x, y, []*nodeProto{node("ReduceSum", "x")}), ImportOptions{}, `the first axis of result "y", float32[1 1], is not the batch; leave it out by ImportOptions.Outputs`},
		{file(x, y, []*nodeProto{node("Identity", "w")}, w), ImportOptions{}, "it has no input that its outputs depend on"},
	} {
		_, err := Read(bytes.NewReader(c.data), c.o)
		if err == nil || !strings.HasPrefix(err.Error(), "onnx: Read: ") || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got error %v, want %s", err, c.want)
		}
	}
	_, err := Read(bytes.NewReader(file(x, y, []*nodeProto{node("TopK", "x")})), ImportOptions{})
	var missing *UnsupportedError
	if !errors.As(err, &missing) || len(missing.Operations) != 1 || missing.Operations[0].Operation != "TopK" {
		t.Errorf("got error %v", err)
	}
	if _, err := Import(filepath.Join(t.TempDir(), "none.onnx"), ImportOptions{}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got error %v", err)
	}
}

// TestFixedBatch: a file for one size of the batch says so when it gets another one.
func TestFixedBatch(t *testing.T) {
	in := []*valueInfo{{name: "x", typ: typeFloat, dims: []dim{{size: 2}, {size: 6}}}}
	to := &tensorProto{name: "to", typ: typeInt64, dims: []int64{2}, raw: []byte{4, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0}}
	m, err := Read(bytes.NewReader(file(in, []*valueInfo{{name: "y", typ: typeFloat}}, []*nodeProto{{name: "n", op: "Reshape", in: []string{"x", "to"}, out: []string{"y"}}}, to)), ImportOptions{})
	if err != nil {
		t.Fatal(err)
	}
	types := []op.Type{parseType("float32[2 6]")}
	if got := predict(t, m, sample(types, 2)); len(got) != 12 {
		t.Errorf("got %v", got)
	}
	if _, err := m.Predict(context.Background(), sample(types, 3)); err == nil || !strings.Contains(err.Error(), "got a batch of 3; the file was written for a batch of 2 alone") {
		t.Errorf("got error %v", err)
	}
}

// TestPredictFromGoroutines: an imported model predicts batches of several sizes at once.
func TestPredictFromGoroutines(t *testing.T) {
	m, types := exampleOf(t, "residual", "float32")
	n := reread(t, m, ImportOptions{})
	var all sync.WaitGroup
	for i := range 6 {
		all.Go(func() {
			x := sample(types, 1+i%3)
			got, err := n.Predict(context.Background(), x)
			if err != nil {
				t.Error(err)
				return
			}
			want, err := m.Predict(context.Background(), x)
			if err != nil {
				t.Error(err)
				return
			}
			if d := distance(t, got, want); d > 0 {
				t.Errorf("a batch of %d differs by %v", 1+i%3, d)
			}
		})
	}
	all.Wait()
}

// TestSamePlan: the transpositions of the file cancel, so that an imported model runs the
// operations that the original runs.
func TestSamePlan(t *testing.T) {
	for _, name := range []string{"mlp", "cnn", "transformer"} {
		m, types := exampleOf(t, name, "float32")
		var counts [2]map[string]int
		for i, n := range []*keras.Model{m, reread(t, m, ImportOptions{})} {
			f := keras.Function(func(x *keras.Tensor) *keras.Tensor { return n.Call(x) }, n)
			g, err := f.Plan(sample(types, 3))
			if err != nil {
				t.Fatal(err)
			}
			counts[i] = map[string]int{}
			for _, v := range g.Values {
				counts[i][v.Op.String()]++
			}
		}
		if !maps.Equal(counts[0], counts[1]) {
			t.Errorf("%s: the plan of the imported model has %v, want %v", name, counts[1], counts[0])
		}
	}
}

// TestExportQuantized: a statically quantized convolution is exported with its kernel in
// int8, between nodes that quantize and dequantize. What they compute in floats differs by
// rounding alone, unless a number lies between two integers: none does here.
func TestExportQuantized(t *testing.T) {
	m := keras.Sequential(
		&layers.Conv2D{Filters: 5, KernelSize: layers.PerAxis{3}, Padding: "same", Activation: "relu"}, &layers.BatchNormalization{},
		&layers.Conv2D{Filters: 4, KernelSize: layers.PerAxis{2}, Strides: layers.PerAxis{2}, UseBias: new(false)}, &layers.Flatten{}, &layers.Dense{Units: 3})
	x := sample([]op.Type{parseType("float32[4 7 8 3]")}, 4)
	if err := m.Build(7, 8, 3); err != nil {
		t.Fatal(err)
	}
	if err := m.QuantizeStatic(context.Background(), keras.FromTensors(x, nil, nil).Batch(2), keras.CalibrationConfig{Filters: []string{"conv"}}); err != nil {
		t.Fatal(err)
	}
	roundTrip(t, "quantized", m, ExportOptions{}, x, 1e-6)
	var b bytes.Buffer
	if err := Write(&b, m, ExportOptions{}); err != nil {
		t.Fatal(err)
	}
	p, err := decodeModel(b.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	int8s := 0
	for _, i := range p.graph.initializers {
		if i.typ == typeInt8 && len(i.dims) == 4 {
			int8s++
		}
	}
	if int8s != 2 {
		t.Errorf("%d kernels are int8, want 2", int8s)
	}
}

// TestExportQuantizedForm: the file has the form that runtimes turn into convolutions of
// integers. Every operand of a Conv is dequantized next to it, by constants; batch
// normalization is in the steps of the kernels, and where the result is quantized, directly or
// behind ReLU and maximum pooling, the bias is int32 with the step of the sums.
func TestExportQuantizedForm(t *testing.T) {
	normalized := func() *layers.BatchNormalization {
		return &layers.BatchNormalization{GammaInitializer: "random_normal", BetaInitializer: "random_normal"}
	}
	m := keras.Sequential(
		&layers.Conv2D{Filters: 5, KernelSize: layers.PerAxis{3}, Padding: "same", UseBias: new(false)}, normalized(), &layers.ReLU{}, &layers.MaxPooling2D{},
		&layers.Conv2D{Filters: 4, KernelSize: layers.PerAxis{3}, Activation: "relu", BiasInitializer: "random_normal"},
		&layers.DepthwiseConv2D{KernelSize: layers.PerAxis{2}, Padding: "same", UseBias: new(false)}, normalized(), &layers.ReLU{},
		&layers.Conv2D{Filters: 3, KernelSize: layers.PerAxis{1}}, normalized(), &layers.Flatten{}, &layers.Dense{Units: 3})
	x := sample([]op.Type{parseType("float32[4 9 8 3]")}, 4)
	if err := m.Build(9, 8, 3); err != nil {
		t.Fatal(err)
	}
	if err := m.QuantizeStatic(context.Background(), keras.FromTensors(x, nil, nil).Batch(2), keras.CalibrationConfig{Filters: []string{"conv"}}); err != nil {
		t.Fatal(err)
	}
	// The bias is rounded to a step of the sums, a number between two integers may become
	// either, and a step is 1/255 of a range.
	roundTrip(t, "quantized", m, ExportOptions{}, x, 1e-2)
	var b bytes.Buffer
	if err := Write(&b, m, ExportOptions{}); err != nil {
		t.Fatal(err)
	}
	p, err := decodeModel(b.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	from, readers, constants := map[string]*nodeProto{}, map[string]int{}, map[string]*tensorProto{}
	for _, i := range p.graph.initializers {
		constants[i.name] = i
	}
	for _, n := range p.graph.nodes {
		for _, s := range n.in {
			readers[s]++
		}
		for _, s := range n.out {
			if from[s] = n; n.op == "Constant" {
				constants[s] = n.attr("value").t
			}
		}
		if slices.Contains([]string{"Mul", "Sub", "Reciprocal"}, n.op) {
			t.Errorf("%s is left", n.name)
		}
	}
	constant := func(name string, typ int64) *tensorProto {
		c := constants[name]
		if c == nil || int64(c.typ) != typ {
			t.Fatalf("%s is no constant of %s", name, typeName(typ))
		}
		return c
	}
	dequantized := func(name string) *nodeProto {
		n := from[name]
		if n == nil || n.op != "DequantizeLinear" || readers[name] != 1 {
			t.Fatalf("%s is not dequantized for one reader", name)
		}
		return n
	}
	convs := 0
	for _, n := range p.graph.nodes {
		if n.op != "Conv" {
			continue
		}
		convs++
		input, kernel := dequantized(n.in[0]), dequantized(n.in[1])
		q := from[input.in[0]]
		if q == nil || q.op != "QuantizeLinear" || !slices.Equal(q.in[1:], input.in[1:]) {
			t.Errorf("%s: the input is not quantized as it is dequantized", n.name)
		}
		constant(input.in[2], typeUint8)
		step := dtype.View[float32](constant(input.in[1], typeFloat).raw)[0]
		if w := constant(kernel.in[0], typeInt8); len(w.dims) != 4 || kernel.attr("axis").i != 0 {
			t.Errorf("%s: the kernels are %v", n.name, w.dims)
		}
		steps := dtype.View[float32](constant(kernel.in[1], typeFloat).raw)
		if zeros := constant(kernel.in[2], typeInt8).raw; !bytes.Equal(zeros, make([]byte, len(steps))) {
			t.Errorf("%s: the kernels' zero points are %v", n.name, zeros)
		}
		if last := convs == 4; last {
			constant(n.in[2], typeFloat)
			continue
		}
		bias := dequantized(n.in[2])
		constant(bias.in[0], typeInt32)
		for o, s := range dtype.View[float32](constant(bias.in[1], typeFloat).raw) {
			if s != step*steps[o] || !(s > 0) {
				t.Errorf("%s: step %d of the bias is %v, want %v times %v", n.name, o, s, step, steps[o])
			}
		}
	}
	if convs != 4 {
		t.Errorf("%d convolutions, want 4", convs)
	}
}
