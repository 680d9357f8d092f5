package onnx

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/op"
	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/layers"
	_ "github.com/mezzo-ml/mezzo/layers/preprocessing"
)

var exportDir = flag.String("export", "", "directory for the exported layers, for testdata/check.py")

// layerCase is a layer and the types that it is applied to, as in testdata/layers.json.
type layerCase struct {
	Name  string
	In    []string
	Layer json.RawMessage

	f func(x []*keras.Tensor) *keras.Tensor // in place of Layer
}

// layerCases returns those of testdata/layers.json, and functions.
func layerCases(t testing.TB) (all []layerCase) {
	t.Helper()
	b, err := os.ReadFile("testdata/layers.json")
	if err == nil {
		err = json.Unmarshal(b, &all)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range functions() {
		all = append(all, layerCase{Name: c.name, In: c.in, f: c.f})
	}
	return all
}

// parseType reads a type as it is printed: "float32[3 5]".
func parseType(s string) (t op.Type) {
	name, rest, _ := strings.Cut(s, "[")
	t.DType, _ = dtype.Parse(name)
	for _, f := range strings.Fields(strings.Trim(rest, "]")) {
		var n int
		fmt.Sscan(f, &n)
		t.Shape = append(t.Shape, n)
	}
	return t
}

func (c layerCase) types() (all []op.Type) {
	for _, s := range c.In {
		all = append(all, parseType(s))
	}
	return all
}

func (c layerCase) model() (*keras.Model, error) {
	var l layers.Layer = &function{f: c.f}
	if c.f == nil {
		var err error
		if l, err = layers.UnmarshalConfig(c.Layer); err != nil {
			return nil, err
		}
	}
	var in []*keras.Tensor
	for _, t := range c.types() {
		in = append(in, keras.InputOf(t.DType, t.Shape[1:]...))
	}
	m, err := keras.NewModel(group(in), keras.Apply(l, in...))
	if err != nil {
		return nil, err
	}
	return m, randomize(m)
}

// randomize gives weights that begin as zeros or ones other values.
func randomize(m *keras.Model) error {
	for i, w := range m.Weights() {
		if !w.DType().IsFloat() || len(w.Shape()) > 1 && !strings.Contains(w.Name(), "gamma") {
			continue
		}
		v, err := w.Float64s()
		if err != nil {
			return err
		}
		r := random{uint32(i + 1)}
		for k := range v {
			v[k] += 0.25 * (1 + r.next()) // positive: variances are among them
		}
		if err := w.Set(v); err != nil {
			return err
		}
	}
	return nil
}

// group makes a tuple of several tensors.
func group(all []*keras.Tensor) *keras.Tensor {
	if len(all) == 1 {
		return all[0]
	}
	return tensor.Tuple(all...)
}

// random is a generator of numbers between -1 and 1.
type random struct{ state uint32 }

func (r *random) next() float64 {
	r.state = r.state*1664525 + 1013904223
	return float64(r.state>>8)/(1<<23) - 1
}

// sample makes inputs of types with a batch of n: numbers around 0, or small indices.
func sample(types []op.Type, n int) *keras.Tensor {
	var all []*keras.Tensor
	for i, t := range types {
		t.Shape = t.Shape.Clone()
		t.Shape[0] = n
		r := random{uint32(i+1) * 7919}
		v := make([]float64, t.Shape.Size())
		for k := range v {
			v[k] = 2 * r.next()
			if !t.DType.IsFloat() {
				v[k] = float64(int(r.next()*1.5 + 1.5)) // 0, 1, 2
			}
		}
		raw := make([]byte, t.Bytes())
		dtype.FromF64(raw, v, t.DType)
		all = append(all, tensor.FromBytes(t, raw))
	}
	return group(all)
}

// dumped is an array in the manifest that check.py reads.
type dumped struct {
	Name, DType, File string
	Shape             []int
}

type dump struct {
	Name, File string
	Tolerance  float64
	Runs       []run
}

type run struct{ In, Out []dumped }

// dumpRun writes the inputs and outputs of a call of m.
func dumpRun(t testing.TB, dir, base string, m *keras.Model, x *keras.Tensor) (r run) {
	t.Helper()
	y, err := m.Predict(context.Background(), x)
	if err != nil {
		t.Fatalf("%s: %v", base, err)
	}
	write := func(kind string, names []string, all []*keras.Tensor) (list []dumped) {
		for i, a := range all {
			b, err := a.Bytes()
			if err != nil {
				t.Fatal(err)
			}
			file := fmt.Sprintf("%s.%d.%s%d", base, x.Unpack()[0].Dim(0), kind, i)
			if err := os.WriteFile(filepath.Join(dir, file), b, 0o644); err != nil {
				t.Fatal(err)
			}
			name := ""
			if names != nil {
				name = names[i]
			}
			list = append(list, dumped{name, a.DType().String(), file, a.Shape()})
		}
		return list
	}
	return run{write("x", m.InputNames(), x.Unpack()), write("y", nil, y.Unpack())}
}

// exports writes a model with two calls, of a batch of n and of one, to dir.
func exports(t testing.TB, dir, name string, m *keras.Model, o ExportOptions, types []op.Type) (dump, error) {
	t.Helper()
	base := strings.Map(func(r rune) rune {
		if strings.ContainsRune(" ,/:()", r) {
			return '_'
		}
		return r
	}, name)
	d := dump{Name: name, File: base + ".onnx"}
	if err := Export(filepath.Join(dir, d.File), m, o); err != nil {
		return d, err
	}
	for _, n := range []int{types[0].Shape[0], 1} {
		d.Runs = append(d.Runs, dumpRun(t, dir, base, m, sample(types, n)))
	}
	return d, nil
}

func writeManifest(t testing.TB, dir string, all []dump) {
	t.Helper()
	b, err := json.MarshalIndent(all, "", " ")
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "manifest.json"), b, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// exportFolder makes the folder of -export. Without it the test is skipped.
func exportFolder(t *testing.T) string {
	if *exportDir == "" {
		t.Skip("no -export")
	}
	if err := os.MkdirAll(*exportDir, 0o755); err != nil {
		t.Fatal(err)
	}
	return *exportDir
}

// TestExportLayers writes each case with -export: what testdata/check.py compares with
// ONNX Runtime.
func TestExportLayers(t *testing.T) {
	dir := exportFolder(t)
	var all []dump
	for _, c := range layerCases(t) {
		m, err := c.model()
		if err != nil {
			t.Errorf("%s: %v", c.Name, err)
			continue
		}
		d, err := exports(t, dir, c.Name, m, ExportOptions{}, c.types())
		if err != nil {
			t.Errorf("%s: %v", c.Name, err)
			continue
		}
		all = append(all, d)
	}
	writeManifest(t, dir, all)
}

// TestEveryClass: testdata/layers.json has a case of each class of layers.
func TestEveryClass(t *testing.T) {
	have := map[string]bool{}
	for _, c := range layerCases(t) {
		if c.f != nil {
			continue
		}
		l, err := layers.UnmarshalConfig(c.Layer)
		if err != nil {
			t.Fatal(err)
		}
		have[layers.Class(l)] = true
	}
	for _, class := range layers.Classes() {
		if !have[class] && class != "Graph" {
			t.Errorf("testdata/layers.json has no %s", class)
		}
	}
}
