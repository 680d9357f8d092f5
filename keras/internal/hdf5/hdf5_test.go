package hdf5_test

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/mezzo-ml/mezzo/keras/internal/hdf5"
)

// golden is a file that h5py has written; see testdata/golden.py.
func golden(t testing.TB, name string) []byte {
	t.Helper()
	f, err := os.Open(filepath.Join("testdata", name+".gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func read(b []byte) (*hdf5.Group, error) { return hdf5.Read("f.h5", bytes.NewReader(b), int64(len(b))) }

func mustRead(t testing.TB, b []byte) *hdf5.Group {
	t.Helper()
	g, err := read(b)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func elements[T any](t *testing.T, d *hdf5.Dataset) []T {
	t.Helper()
	b, err := d.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	var zero T
	out := make([]T, len(b)/binary.Size(zero))
	if err := binary.Read(bytes.NewReader(b), binary.LittleEndian, out); err != nil {
		t.Fatal(err)
	}
	return out
}

func equal[T comparable](t *testing.T, d *hdf5.Dataset, typ hdf5.Type, shape []int, want ...T) {
	t.Helper()
	if d == nil {
		t.Fatal("the dataset is missing")
	}
	if d.Type != typ || !slices.Equal(d.Shape, shape) {
		t.Errorf("got %v%v, want %v%v", d.Type, d.Shape, typ, shape)
	}
	if got := elements[T](t, d); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestGoldenTypes(t *testing.T) {
	for _, name := range []string{"types.h5", "latest.h5"} {
		t.Run(name, func(t *testing.T) {
			checkTypes(t, mustRead(t, golden(t, name)))
		})
	}
}

func checkTypes(t *testing.T, g *hdf5.Group) {
	t.Helper()
	floats, integers := g.Group("floats"), g.Group("integers")
	shape := []int{2, 3}
	f64 := []float64{0, 1, 2.5, -3, 0.1, 5}
	var f32 []float32
	for _, x := range f64 {
		f32 = append(f32, float32(x))
	}
	equal(t, floats.Datasets["float64"], hdf5.Float64, shape, f64...)
	equal(t, floats.Datasets[">f8"], hdf5.Float64, shape, f64...)
	equal(t, floats.Datasets["float32"], hdf5.Float32, shape, f32...)
	equal(t, floats.Datasets[">f4"], hdf5.Float32, shape, f32...)
	equal[uint16](t, floats.Datasets["float16"], hdf5.Float16, shape, 0, 0x3c00, 0x4100, 0xc200, 0x2e66, 0x4500)
	equal[int32](t, integers.Datasets["int32"], hdf5.Int32, []int{4}, 0, 1, 2, 200)
	equal[int32](t, integers.Datasets[">i4"], hdf5.Int32, []int{4}, 0, 1, 2, 200)
	equal[int64](t, integers.Datasets["int64"], hdf5.Int64, []int{4}, 0, 1, 2, 200)
	equal[uint8](t, integers.Datasets["uint8"], hdf5.Uint8, []int{4}, 0, 1, 2, 200)
	equal[uint32](t, integers.Datasets["uint32"], hdf5.Uint32, []int{4}, 0, 1, 2, 200)
	equal[uint16](t, g.Datasets["bfloat16"], hdf5.Opaque16, shape, 0, 0x3f80, 0x4020, 0xc040, 0x3dcd, 0x40a0)
	if got := g.Datasets["bfloat16"].Attrs["dtype"].Strings; !slices.Equal(got, []string{"bfloat16"}) {
		t.Errorf("attribute dtype: got %q, want bfloat16", got)
	}
	equal[uint8](t, g.Datasets["bool"], hdf5.Bool, []int{3}, 1, 0, 1)
	equal[float32](t, g.Datasets["scalar"], hdf5.Float32, nil, 7)
	equal[float32](t, g.Datasets["empty"], hdf5.Float32, []int{0, 3})
	for name, want := range map[string][]string{"text": {"grün"}, "nothing": {""}, "list": {"a", "", "ccc"}} {
		if got := g.Attrs[name].Strings; !slices.Equal(got, want) {
			t.Errorf("attribute %s: got %q, want %q", name, got, want)
		}
	}
	if g.Group("deep/er/and/deeper") == nil || g.Group("deep/no") != nil {
		t.Error("groups below groups are not those of the file")
	}
}

func TestGoldenAttributes(t *testing.T) {
	g := mustRead(t, golden(t, "types.h5"))
	if got := g.Attrs["fixed"]; !slices.Equal(got.Strings, []string{"ab", "c"}) || got.Type.Class != hdf5.Text {
		t.Errorf("fixed: got %v", got)
	}
	if got := g.Attrs["number"]; got.Type != hdf5.Int32 || !bytes.Equal(got.Data, []byte{5, 0, 0, 0}) {
		t.Errorf("number: got %v", got)
	}
}

func TestGoldenManyMembers(t *testing.T) {
	g := mustRead(t, golden(t, "many.h5"))
	if len(g.Datasets) != 1200 {
		t.Fatalf("got %d datasets, want 1200", len(g.Datasets))
	}
	for i := range int32(1200) {
		equal(t, g.Datasets[fmt.Sprint("d", i)], hdf5.Int32, nil, i)
	}
}

// TestRoundTrip writes what h5py has written and reads it again.
func TestRoundTrip(t *testing.T) {
	from := mustRead(t, golden(t, "types.h5"))
	delete(from.Attrs, "fixed")
	delete(from.Attrs, "number")
	for i := range 2500 { // three levels
		from.Require("many").Datasets[fmt.Sprint(i)] = hdf5.NewDataset(hdf5.Int32, nil, binary.LittleEndian.AppendUint32(nil, uint32(i)))
	}
	b := write(t, from)
	g := mustRead(t, b)
	checkTypes(t, g)
	for i := range int32(2500) {
		equal(t, g.Group("many").Datasets[fmt.Sprint(i)], hdf5.Int32, nil, i)
	}
	if again := write(t, g); !bytes.Equal(again, b) {
		t.Error("writing what was read gave another file")
	}
}

// buffer is a file in memory.
type buffer struct{ b []byte }

func (w *buffer) WriteAt(b []byte, at int64) (int, error) {
	if n := int(at) + len(b); n > len(w.b) {
		w.b = append(w.b, make([]byte, n-len(w.b))...)
	}
	return copy(w.b[at:], b), nil
}

func write(t testing.TB, g *hdf5.Group) []byte {
	t.Helper()
	var w buffer
	if err := hdf5.Write(&w, g); err != nil {
		t.Fatal(err)
	}
	return w.b
}

func TestOpen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.h5")
	if err := os.WriteFile(path, golden(t, "types.h5"), 0o600); err != nil {
		t.Fatal(err)
	}
	g, closeFile, err := hdf5.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	equal[float32](t, g.Datasets["scalar"], hdf5.Float32, nil, 7)
	if err := closeFile(); err != nil {
		t.Fatal(err)
	}
	if _, _, err := hdf5.Open(t.TempDir()); err == nil {
		t.Error("a directory was opened")
	}
}

func TestRefused(t *testing.T) {
	for name, want := range map[string]hdf5.Error{
		"chunked.h5":  {Object: "/c", Message: "compressed"},
		"soft.h5":     {Object: "/", Message: `"b" is a soft link`},
		"cycle.h5":    {Object: "/a/c", Message: "linked twice"},
		"external.h5": {Object: "/", Message: "soft"},
	} {
		_, err := read(golden(t, name))
		var got *hdf5.Error
		if !errors.As(err, &got) {
			t.Errorf("%s: got error %v, want *hdf5.Error", name, err)
		} else if got.File != "f.h5" || got.Object != want.Object || !strings.Contains(got.Message, want.Message) {
			t.Errorf("%s: got %+v, want %+v", name, *got, want)
		}
	}
}

// TestTruncated cuts a file anywhere: there is an error, and it is typed.
func TestTruncated(t *testing.T) {
	b := golden(t, "types.h5")
	for n := 0; n < len(b); n += 1 + n/97 {
		_, err := read(b[:n])
		var typed *hdf5.Error
		if !errors.As(err, &typed) {
			t.Fatalf("%d bytes of %d: got error %v, want *hdf5.Error", n, len(b), err)
		}
	}
}

// TestHugeShape gives a dataset a shape that is larger than the file.
func TestHugeShape(t *testing.T) {
	g := hdf5.NewGroup()
	g.Datasets["w"] = hdf5.NewDataset(hdf5.Float32, []int{2, 3}, make([]byte, 24))
	b := write(t, g)
	shape := binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, 2), 3)
	at := bytes.Index(b, shape)
	for _, huge := range [][2]uint64{{1 << 40, 3}, {1 << 32, 1 << 32}, {math.MaxInt64, 2}, {math.MaxUint64, 1}} {
		binary.LittleEndian.PutUint64(b[at:], huge[0])
		binary.LittleEndian.PutUint64(b[at+8:], huge[1])
		_, err := read(b)
		var typed *hdf5.Error
		if !errors.As(err, &typed) || typed.Object != "/w" {
			t.Errorf("shape %v: got error %v, want one about /w", huge, err)
		}
	}
}

func TestWriteErrors(t *testing.T) {
	for name, change := range map[string]func(*hdf5.Group){
		"slash":     func(g *hdf5.Group) { g.Groups["a/b"] = hdf5.NewGroup() },
		"both":      func(g *hdf5.Group) { g.Groups["d"] = hdf5.NewGroup() },
		"length":    func(g *hdf5.Group) { g.Datasets["d"].Shape = []int{3} },
		"type":      func(g *hdf5.Group) { g.Datasets["d"].Type = hdf5.Type{Class: hdf5.Float, Size: 3} },
		"attribute": func(g *hdf5.Group) { g.Attrs["a"] = hdf5.Attr{Type: hdf5.Int32, Data: make([]byte, 4)} },
	} {
		g := hdf5.NewGroup()
		g.Datasets["d"] = hdf5.NewDataset(hdf5.Float32, []int{1}, make([]byte, 4))
		change(g)
		if err := hdf5.Write(&buffer{}, g); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// FuzzRead reads anything: it ends without a panic, takes memory in proportion
// to the file, and what it reads can be written and read again.
func FuzzRead(f *testing.F) {
	for _, name := range []string{"types.h5", "latest.h5", "chunked.h5", "cycle.h5"} {
		f.Add(golden(f, name))
	}
	small := hdf5.NewGroup()
	small.Attrs["name"] = hdf5.StringAttr("dense")
	small.Require("layers/dense/vars").Datasets["0"] = hdf5.NewDataset(hdf5.Float16, []int{2}, make([]byte, 4))
	f.Add(write(f, small))
	f.Fuzz(func(t *testing.T, b []byte) {
		g, err := read(b)
		if err != nil {
			var typed *hdf5.Error
			if !errors.As(err, &typed) {
				t.Fatalf("got error %v, want *hdf5.Error", err)
			}
			return
		}
		var visit func(g *hdf5.Group)
		visit = func(g *hdf5.Group) {
			for _, d := range g.Datasets {
				got, err := d.Bytes()
				if err != nil || len(got) != d.Size() || len(got) > len(b) {
					t.Fatalf("%v%v: got %d bytes of a file of %d, error %v", d.Type, d.Shape, len(got), len(b), err)
				}
			}
			for _, sub := range g.Groups {
				visit(sub)
			}
		}
		visit(g)
		var w buffer
		if hdf5.Write(&w, g) != nil {
			return // of types that are only read
		}
		again, err := read(w.b)
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(again.Names(), g.Names()) {
			t.Fatalf("got members %q after writing, want %q", again.Names(), g.Names())
		}
	})
}
