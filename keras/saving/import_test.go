package saving_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/saving"
	"github.com/mezzo-ml/mezzo/layers"
)

// shard makes a safetensors file of float32 tensors with the given shapes,
// whose elements are 0, 1, 2 … plus from.
func shard(shapes map[string][]int, from float32) []byte {
	var header []string
	var data bytes.Buffer
	for _, name := range slices.Sorted(maps.Keys(shapes)) {
		n := 1
		for _, s := range shapes[name] {
			n *= s
		}
		at := data.Len()
		for i := range n {
			binary.Write(&data, binary.LittleEndian, from+float32(i))
		}
		header = append(header, fmt.Sprintf(`%q:{"dtype":"F32","shape":%s,"data_offsets":[%d,%d]}`, name,
			strings.ReplaceAll(fmt.Sprint(shapes[name]), " ", ","), at, data.Len()))
	}
	text := "{" + strings.Join(header, ",") + "}"
	return slices.Concat(binary.LittleEndian.AppendUint64(nil, uint64(len(text))), []byte(text), data.Bytes())
}

// files writes files into a new directory.
func files(t testing.TB, all map[string][]byte) string {
	t.Helper()
	dir := t.TempDir()
	for name, b := range all {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// shards are two files and their index.
func shards() map[string][]byte {
	return map[string][]byte{
		"model.safetensors.index.json":     []byte(`{"metadata":{"total_size":44},"weight_map":{"lin.weight":"model-00001-of-00002.safetensors","both":"model-00001-of-00002.safetensors","head":"model-00002-of-00002.safetensors"}}`),
		"model-00001-of-00002.safetensors": shard(map[string][]int{"lin.weight": {2, 3}, "both": {4}}, 0),
		"model-00002-of-00002.safetensors": shard(map[string][]int{"head": {1}}, 50),
	}
}

func TestReadSafetensors(t *testing.T) {
	dir := files(t, shards())
	for _, path := range []string{dir, filepath.Join(dir, "model.safetensors.index.json")} {
		s, err := saving.ReadSafetensors(path)
		if err != nil {
			t.Fatal(err)
		}
		if got := s.Names(); !slices.Equal(got, []string{"both", "head", "lin.weight"}) || !s.Has("head") || s.Has("tail") {
			t.Errorf("got names %v", got)
		}
		typ, ok := s.Type("lin.weight")
		if _, other := s.Type("tail"); !ok || other || typ.String() != "float32[2 3]" {
			t.Errorf("got type %v, %v", typ, ok)
		}
		x, err := s.Tensor("head")
		if err != nil {
			t.Fatal(err)
		}
		if v, err := x.Values(); err != nil || !slices.Equal(v, []float32{50}) {
			t.Errorf("got %v, %v", v, err)
		}
		if _, err := s.Tensor("tail"); err == nil || !strings.Contains(err.Error(), `no tensor "tail"`) {
			t.Errorf("got error %v", err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if _, err := s.Tensor("head"); err == nil {
			t.Error("got a tensor of a closed file")
		}
	}
}

// TestReadSafetensorsErrors: broken sets of shards, and files of PyTorch.
func TestReadSafetensorsErrors(t *testing.T) {
	const index, one, two = "model.safetensors.index.json", "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
	for name, c := range map[string]struct {
		change func(map[string][]byte)
		within string
	}{
		"no shard":       {func(m map[string][]byte) { delete(m, two) }, "no such file"},
		"tensor missing": {func(m map[string][]byte) { m[two] = shard(nil, 0) }, `has no tensor "head", which the index says it has`},
		"tensor extra":   {func(m map[string][]byte) { m[two] = shard(map[string][]int{"head": {1}, "tail": {1}}, 0) }, `has a tensor "tail", which the index does not list`},
		"outside": {func(m map[string][]byte) {
			m[index] = bytes.ReplaceAll(m[index], []byte(two), []byte("../"+two))
		}, "want a file of the same directory"},
		"no map":  {func(m map[string][]byte) { m[index] = []byte(`{}`) }, "no weight_map"},
		"no JSON": {func(m map[string][]byte) { m[index] = []byte(`{"weight_map":`) }, "unexpected end"},
		"pickle": {func(m map[string][]byte) {
			clear(m)
			m["pytorch_model.bin"] = []byte("PK\x03\x04")
		}, "torch.load('pytorch_model.bin'"},
		"nothing": {func(m map[string][]byte) { clear(m) }, "neither model.safetensors nor"},
	} {
		all := shards()
		c.change(all)
		if s, err := saving.ReadSafetensors(files(t, all)); err == nil || !strings.Contains(err.Error(), c.within) {
			t.Errorf("%s: got %v, error %v, want one with %s", name, s, err, c.within)
		}
	}
	for _, content := range []string{"PK\x03\x04rest of a zip archive", "\x80\x02}q\x00.", "short"} {
		dir := files(t, map[string][]byte{"weights.pt": []byte(content)})
		if _, err := saving.ReadSafetensors(filepath.Join(dir, "weights.pt")); err == nil || !strings.Contains(err.Error(), "weights_only=True") {
			t.Errorf("%q: got error %v, want advice", content, err)
		}
	}
}

// affine is a built model with a weight dense/kernel [3 2] and dense/bias [2].
func affine(t *testing.T) *keras.Model {
	t.Helper()
	m := keras.Sequential(&layers.Dense{Units: 2, Name: "dense", BiasInitializer: "ones"})
	if err := m.Build(3); err != nil {
		t.Fatal(err)
	}
	return m
}

func TestImportSafetensors(t *testing.T) {
	dir := files(t, shards())
	m := affine(t)
	source := func(weight string) saving.Source {
		switch weight {
		case "dense/kernel":
			return saving.Source{Tensor: "lin.weight", Transpose: []int{1, 0}}
		case "dense/bias":
			return saving.Source{Tensor: "both", Parts: 2, Part: 1}
		}
		return saving.Source{}
	}
	r, err := saving.ImportSafetensors(dir, m, saving.ImportOptions{Source: source})
	if err != nil {
		t.Fatal(err)
	}
	if want := "2 weights loaded; 1 tensors left over: head"; r.String() != want {
		t.Errorf("got %q, want %q", r, want)
	}
	for i, want := range [][]float32{{0, 3, 1, 4, 2, 5}, {2, 3}} {
		if v, err := m.Weights()[i].Values(); err != nil || !slices.Equal(v, want) {
			t.Errorf("weight %d: got %v, %v, want %v", i, v, err, want)
		}
	}
	// A part of the weights.
	m = affine(t)
	only := func(weight string) saving.Source {
		if weight == "dense/kernel" {
			return saving.Source{Tensor: "lin.weight", Reshape: true}
		}
		return saving.Source{}
	}
	if _, err := saving.ImportSafetensors(dir, m, saving.ImportOptions{Source: only}); err == nil || !strings.Contains(err.Error(), "for weight dense/bias") {
		t.Errorf("got error %v", err)
	}
	before := must(t, m.Weights()[0])
	if r, err = saving.ImportSafetensors(dir, m, saving.ImportOptions{Source: only, Partial: true}); err != nil {
		t.Fatal(err)
	}
	if want := "1 weights loaded; 1 not in the file: dense/bias; 2 tensors left over: both, head"; r.String() != want {
		t.Errorf("got %q, want %q", r, want)
	}
	if got := must(t, m.Weights()[1]); !slices.Equal(got, []float32{1, 1}) {
		t.Errorf("a weight without a source is %v, want what it was", got)
	}
	if got := must(t, m.Weights()[0]); slices.Equal(got, before) || !slices.Equal(got, []float32{0, 1, 2, 3, 4, 5}) {
		t.Errorf("got %v", got)
	}
	// None of the weights, by name and by a source.
	for want, source := range map[string]func(string) saving.Source{
		`none of the 2 weights is in the file: want tensors such as ["dense/kernel" "dense/bias"], got ["both" "head" "lin.weight"]`: nil,
		`want tensors such as ["bert.dense/kernel" "bert.dense/bias"], got`:                                                          func(w string) saving.Source { return saving.Source{Tensor: "bert." + w} },
		`want tensors such as [], got`: func(string) saving.Source { return saving.Source{} },
	} {
		if r, err := saving.ImportSafetensors(dir, m, saving.ImportOptions{Source: source, Partial: true}); err == nil || !strings.Contains(err.Error(), want) || len(r.Missing) > 0 {
			t.Errorf("got %v, error %v, want one with %s", r, err, want)
		}
	}
	// Errors change nothing.
	before = must(t, m.Weights()[0])
	for within, from := range map[string]saving.Source{
		"got shape [2 3], want [3 2]":            {Tensor: "lin.weight"},
		"want an axis 1 of 2 equal parts":        {Tensor: "lin.weight", Axis: 1, Parts: 2},
		"want an axis 2 of 1 equal parts":        {Tensor: "lin.weight", Axis: 2, Parts: 1},
		"want one of the axes [0 0]":             {Tensor: "lin.weight", Transpose: []int{0, 0}},
		"want one of the axes [0]":               {Tensor: "lin.weight", Transpose: []int{0}},
		"got shape [4], want [3 2]":              {Tensor: "both", Reshape: true},
		`there is no tensor "" for weight dense`: {},
	} {
		_, err := saving.ImportSafetensors(dir, m, saving.ImportOptions{Source: func(string) saving.Source { return from }})
		if err == nil || !strings.Contains(err.Error(), within) {
			t.Errorf("%+v: got error %v, want one with %s", from, err, within)
		}
	}
	if got := must(t, m.Weights()[0]); !slices.Equal(got, before) {
		t.Errorf("an error changed a weight to %v", got)
	}
}

// must reads a weight.
func must(t *testing.T, w *layers.Weight) []float32 {
	t.Helper()
	v, err := w.Values()
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// FuzzReadSafetensors opens anything as a file or as an index beside a shard: it
// ends without a panic, and what it finds can be read.
func FuzzReadSafetensors(f *testing.F) {
	all := shards()
	for _, b := range all {
		f.Add(b)
	}
	dir := files(f, all)
	f.Fuzz(func(t *testing.T, b []byte) {
		name := "any.safetensors"
		if len(b) > 0 && b[0] == '{' {
			name = "any.json"
		}
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := saving.ReadSafetensors(path)
		if err != nil {
			return
		}
		defer s.Close()
		for _, name := range s.Names() {
			typ, _ := s.Type(name)
			x, err := s.Tensor(name)
			if err == nil && !x.Shape().Equal(typ.Shape) {
				t.Errorf("%q: got %v, want %v", name, x.Type(), typ)
			}
		}
	})
}
