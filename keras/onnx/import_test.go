package onnx

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/op"
	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/keras"
)

// roundTrip exports m, imports the file and compares the predictions of both, which must
// have the same bits, or differ by at most within of the largest output.
func roundTrip(t testing.TB, name string, m *keras.Model, o ExportOptions, x *keras.Tensor, within float64) {
	t.Helper()
	var b bytes.Buffer
	if err := Write(&b, m, o); err != nil {
		t.Errorf("%s: %v", name, err)
		return
	}
	n, err := Read(&b, ImportOptions{})
	if err != nil {
		t.Errorf("%s: %v", name, err)
		return
	}
	want, err := m.Predict(context.Background(), x)
	if err != nil {
		t.Fatal(err)
	}
	got, err := n.Predict(context.Background(), x)
	if err != nil {
		t.Errorf("%s: %v", name, err)
		return
	}
	if got.Len() != want.Len() {
		t.Errorf("%s: got %d outputs, want %d", name, got.Len(), want.Len())
		return
	}
	for i, y := range got.Unpack() {
		w := want.Unpack()[i]
		if !y.Type().Equal(w.Type()) {
			t.Errorf("%s: output %d is %v, want %v", name, i, y.Type(), w.Type())
			continue
		}
		a, errA := y.Bytes()
		b, errB := w.Bytes()
		if errA != nil || errB != nil {
			t.Fatal(errA, errB)
		}
		if d := distance(t, y, w); !bytes.Equal(a, b) && (within == 0 || d > within) {
			t.Errorf("%s: output %d differs by up to %v, want at most %v", name, i, d, within)
		}
	}
}

func TestImportLayers(t *testing.T) {
	for _, c := range layerCases(t) {
		m, err := c.model()
		if err != nil {
			t.Fatal(err)
		}
		roundTrip(t, c.Name, m, ExportOptions{}, sample(c.types(), c.types()[0].Shape[0]), 0)
	}
}

var (
	importDir   = flag.String("import", "", "directory with files that testdata/models.py wrote")
	importUnder = flag.String("policy", "", "policy of the imported models")
)

// TestImportDir compares imported models with ONNX Runtime.
func TestImportDir(t *testing.T) {
	if *importDir == "" {
		t.Skip("no -import")
	}
	b, err := os.ReadFile(filepath.Join(*importDir, "manifest.json"))
	var all []dump
	if err == nil {
		err = json.Unmarshal(b, &all)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range all {
		m, err := Import(filepath.Join(*importDir, d.File), ImportOptions{DType: *importUnder})
		if err != nil {
			t.Errorf("%s: %v", d.Name, err)
			continue
		}
		worst := 0.0
		for _, r := range d.Runs {
			var in []*keras.Tensor
			for _, a := range r.In {
				in = append(in, a.read(t))
			}
			y, err := m.Predict(context.Background(), group(in))
			if err != nil {
				t.Errorf("%s: %v", d.Name, err)
				continue
			}
			if y.Len() != len(r.Out) {
				t.Errorf("%s: got %d outputs, want %d", d.Name, y.Len(), len(r.Out))
				continue
			}
			for i, got := range y.Unpack() {
				want := r.Out[i].read(t)
				if !got.Type().Equal(want.Type()) {
					t.Errorf("%s: output %d is %v, want %v", d.Name, i, got.Type(), want.Type())
					continue
				}
				worst = max(worst, distance(t, got, want))
			}
		}
		t.Logf("%-36s %8d weights, largest difference %.2g", d.Name, m.CountParams(), worst)
		if !(worst <= d.Tolerance) && *importUnder == "" {
			t.Errorf("%s: differs by %v, want at most %v", d.Name, worst, d.Tolerance)
		}
	}
}

func (a dumped) read(t testing.TB) *keras.Tensor {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(*importDir, a.File))
	if err != nil {
		t.Fatal(err)
	}
	d, err := dtype.Parse(a.DType)
	if err != nil {
		t.Fatal(err)
	}
	return tensor.FromBytes(op.Type{DType: d, Shape: a.Shape}, b)
}

// distance is the largest difference of x and y, by the largest element of y.
func distance(t testing.TB, x, y *keras.Tensor) float64 {
	t.Helper()
	a, err := x.Float64s()
	if err != nil {
		t.Fatal(err)
	}
	b, err := y.Float64s()
	if err != nil {
		t.Fatal(err)
	}
	diff, most := 0.0, 1e-30
	for i := range a {
		if d := math.Abs(a[i] - b[i]); !(d <= diff) {
			diff = d
		}
		most = max(most, math.Abs(b[i]))
	}
	return diff / most
}
