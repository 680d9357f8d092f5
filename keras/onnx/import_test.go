package onnx

import (
	"bytes"
	"context"
	"testing"

	"github.com/mezzo-ml/mezzo/keras"
)

// sameBits exports m, imports the file and compares the predictions of both.
func sameBits(t testing.TB, name string, m *keras.Model, o ExportOptions, x *keras.Tensor) {
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
		a, _ := y.Bytes()
		b, _ := w.Bytes()
		if !bytes.Equal(a, b) {
			av, _ := y.Float64s()
			bv, _ := w.Float64s()
			d := 0.0
			for i := range av {
				d = max(d, av[i]-bv[i], bv[i]-av[i])
			}
			t.Errorf("%s: output %d differs by up to %v", name, i, d)
		}
	}
}

func TestImportLayers(t *testing.T) {
	for _, c := range layerCases(t) {
		m, err := c.model()
		if err != nil {
			t.Fatal(err)
		}
		sameBits(t, c.Name, m, ExportOptions{}, sample(c.types(), c.types()[0].Shape[0]))
	}
}
