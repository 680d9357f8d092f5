// Package tensortest, without compatibility promise, helps tests: it reads the
// golden files of keras/testdata/golden, compares tensors with them, and
// checks gradients against finite differences.
//
// Main types: [File] is a golden file, [Case] one of its cases, [Array] the
// elements of one tensor.
//
// Rules: every helper stops the test where something does not fit; tolerances
// are multiples of dtype.Tolerance. Importers import a device as well.
package tensortest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/op"
	"github.com/mezzo-ml/mezzo/backend/tensor"
)

// File is a golden file; its README describes the format.
type File struct {
	Keras, TensorFlow    string           // versions it was made with
	Variables, Gradients map[string]Array // optimizers.json only
	Cases                []Case
}

// Case is one computation of Keras with everything that went in and came out.
type Case struct {
	Name    string
	Config  map[string]json.RawMessage // class_name, and Keras's snake_case arguments
	Policy  string
	Inputs  map[string]Array
	Weights map[string]Array
	Outputs map[string]Array
}

// Array is a tensor of a golden file. Data are in row-major order.
type Array struct {
	DType dtype.DType
	Shape []int
	Data  []float64
}

// Load reads a golden file.
func Load(t testing.TB, path string) *File {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var f File
	if err := json.Unmarshal(data, &f); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	if len(f.Cases) == 0 {
		t.Fatalf("%s: got no cases, want at least one", path)
	}
	return &f
}

// UnmarshalJSON reads {"dtype": …, "shape": […], "data": […]}, where numbers
// that are not finite are strings.
func (a *Array) UnmarshalJSON(b []byte) error {
	var raw struct {
		DType string
		Shape []int
		Data  []any
	}
	if err := json.Unmarshal(b, &raw); err != nil {
		return err
	}
	d, err := dtype.Parse(raw.DType)
	if err != nil {
		return err
	}
	*a = Array{DType: d, Shape: raw.Shape, Data: make([]float64, len(raw.Data))}
	if n := op.Shape(a.Shape).Size(); n != len(a.Data) {
		return fmt.Errorf("got %d elements, want %d for shape %v", len(a.Data), n, op.Shape(a.Shape))
	}
	for i, x := range raw.Data {
		switch x := x.(type) {
		case float64:
			a.Data[i] = x
		case bool:
			if x {
				a.Data[i] = 1
			}
		case string:
			v, ok := map[string]float64{"NaN": math.NaN(), "Infinity": math.Inf(1), "-Infinity": math.Inf(-1)}[x]
			if !ok {
				return fmt.Errorf("element %d: got %q, want a number, NaN, Infinity or -Infinity", i, x)
			}
			a.Data[i] = v
		default:
			return fmt.Errorf("element %d: got %v, want a number", i, x)
		}
	}
	return nil
}

// Of returns an array of data, rounded to d.
func Of(d dtype.DType, data []float64, shape ...int) Array {
	b := make([]byte, d.Size()*len(data))
	dtype.FromF64(b, data, d)
	a := Array{DType: d, Shape: shape, Data: make([]float64, len(data))}
	dtype.ToF64(a.Data, b, d)
	return a
}

// As returns the elements rounded to d.
func (a Array) As(d dtype.DType) Array { return Of(d, a.Data, a.Shape...) }

// Largest returns the largest magnitude of the elements.
func (a Array) Largest() (m float64) {
	for _, x := range a.Data {
		m = max(m, math.Abs(x))
	}
	return m
}

// Tensor returns the elements on the device.
func (a Array) Tensor() *tensor.Tensor {
	b := make([]byte, a.DType.Size()*len(a.Data))
	dtype.FromF64(b, a.Data, a.DType)
	return tensor.FromBytes(op.Type{DType: a.DType, Shape: a.Shape}, b)
}

// Tensor returns an input, weight or output by name, or nil if there is none.
func (c *Case) Tensor(name string) *tensor.Tensor {
	for _, m := range []map[string]Array{c.Inputs, c.Weights, c.Outputs} {
		if a, ok := m[name]; ok {
			return a.Tensor()
		}
	}
	return nil
}

// Class returns the class_name of the case.
func (c *Case) Class() string {
	var s string
	_ = json.Unmarshal(c.Config["class_name"], &s) // "" if there is none
	return s
}

// Configure sets the fields of the struct at dst to the arguments in the
// case's config, but for class_name and the names in skip: label_smoothing
// sets LabelSmoothing. An argument without a field stops the test.
func (c *Case) Configure(t testing.TB, dst any, skip ...string) {
	t.Helper()
	fields := map[string]json.RawMessage{}
	for k, v := range c.Config {
		fields[strings.ReplaceAll(k, "_", "")] = v // encoding/json ignores case
	}
	for _, k := range append(skip, "class_name") {
		delete(fields, strings.ReplaceAll(k, "_", ""))
	}
	b, err := json.Marshal(fields)
	if err != nil {
		t.Fatal(err)
	}
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	if err := dec.Decode(dst); err != nil {
		t.Fatalf("%s: config: %v", c.Name, err)
	}
}
