package onnx

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/op"
	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/keras"
)

// operationCase is a file of testdata/ops.json.gz with a call and the results of ONNX
// Runtime.
type operationCase struct {
	Name    string
	Model   []byte
	In, Out []struct {
		DType string
		Shape []int
		Data  []byte
	}
}

func operationCases(t testing.TB) []operationCase {
	t.Helper()
	f, err := os.Open("testdata/ops.json.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	var all struct{ Cases []operationCase }
	if err := json.NewDecoder(z).Decode(&all); err != nil {
		t.Fatal(err)
	}
	return all.Cases
}

// TestOperations compares each operation that Import reads with ONNX Runtime.
func TestOperations(t *testing.T) {
	without := "Constant Shape Size ConstantOfShape Range Swish ai.onnx.ml.ZipMap" // in the files of TestImportDir, or of no data
	for _, c := range operationCases(t) {
		for _, name := range strings.FieldsFunc(c.Name, func(r rune) bool { return strings.ContainsRune(" ,-", r) })[:1] {
			without += " " + name
		}
		m, err := Read(bytes.NewReader(c.Model), ImportOptions{})
		if err != nil {
			t.Errorf("%s: %v", c.Name, err)
			continue
		}
		var in []*keras.Tensor
		for _, a := range c.In {
			in = append(in, fileTensor(t, a.DType, a.Shape, a.Data))
		}
		y, err := m.Predict(context.Background(), group(in))
		if err != nil {
			t.Errorf("%s: %v", c.Name, err)
			continue
		}
		for i, got := range y.Unpack() {
			want := fileTensor(t, c.Out[i].DType, c.Out[i].Shape, c.Out[i].Data)
			if !got.Type().Equal(want.Type()) {
				t.Errorf("%s: got %v, want %v", c.Name, got.Type(), want.Type())
				continue
			}
			if d := distance(t, got, want); !(d <= 1e-6) {
				t.Errorf("%s: differs by %v", c.Name, d)
			}
		}
	}
	tested := strings.Fields(without)
	for name := range operations {
		if !strings.HasPrefix(name, ownDomain+".") && !slices.Contains(tested, name) {
			t.Errorf("no case of testdata/ops.py has %s", name)
		}
	}
}

// fileTensor returns a tensor of NumPy's elements.
func fileTensor(t testing.TB, d string, shape []int, data []byte) *keras.Tensor {
	t.Helper()
	var typ int64
	for id, e := range elementTypes {
		if strings.EqualFold(strings.Replace(e.name, "FLOAT", "FLOAT32", 1), d) || strings.EqualFold(e.name, strings.Replace(d, "float64", "double", 1)) {
			typ = id
		}
	}
	p := &tensorProto{typ: typ, raw: data, dims: sizes64(shape)}
	if _, err := p.shape(); err != nil {
		t.Fatal(d, err)
	}
	to := elementTypes[typ].to
	if to == dtype.Bool {
		return tensor.FromBytes(op.Type{DType: to, Shape: shape}, data)
	}
	return (&constant{proto: p, typ: typ}).tensor(to)
}
