package onnx

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/op"
	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/internal/safeio"
	"github.com/mezzo-ml/mezzo/layers"
)

// ImportOptions are the options of Import and Read. The zero value is the default.
type ImportOptions struct {
	// Outputs are the names of the values that the model returns; by default the
	// file's outputs. Any value of the graph may be one, so that a network can be cut
	// before its head.
	Outputs []string

	// Shapes gives axes that the file leaves open a size: the shape of a sample, by the
	// name of the input.
	Shapes map[string][]int

	// DType is the policy of the layer, by default the global one; "float64" if all
	// weights are DOUBLE.
	DType string

	// Name is the layer's name; default "graph".
	Name string
}

// Import reads an ONNX file as a model of one layer, a Graph. Weights in the file are the
// layer's weights, so the model can be trained. External data must lie in the file's
// directory. Operations that are not supported are one error, *UnsupportedError, that
// lists them all. A damaged file is an error.
func Import(path string, o ImportOptions) (*keras.Model, error) {
	m, err := importFile(path, o)
	if err != nil {
		return nil, safeio.Short(fmt.Errorf("onnx: Import: %s: %w", path, err))
	}
	return m, nil
}

func importFile(path string, o ImportOptions) (*keras.Model, error) {
	f, size, err := safeio.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if size > maxMessage {
		return nil, fmt.Errorf("it has %d bytes, more than the 2 GiB of a protocol buffer message", size)
	}
	data, err := safeio.Read(f, int(size), "the model")
	if err != nil {
		return nil, err
	}
	p, err := decodeModel(data)
	if err != nil {
		return nil, err
	}
	if err := p.graph.readExternal(filepath.Dir(path)); err != nil {
		return nil, err
	}
	return p.model(o)
}

// Read reads an ONNX file, as Import does. External data are an error.
func Read(r io.Reader, o ImportOptions) (*keras.Model, error) {
	m, err := read(r, o)
	if err != nil {
		return nil, safeio.Short(fmt.Errorf("onnx: Read: %w", err))
	}
	return m, nil
}

func read(r io.Reader, o ImportOptions) (*keras.Model, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxMessage+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxMessage {
		return nil, errors.New("it has more than the 2 GiB of a protocol buffer message")
	}
	p, err := decodeModel(data)
	if err != nil {
		return nil, err
	}
	for _, t := range p.graph.initializers {
		if t.external != nil {
			return nil, fmt.Errorf("initializer %s lies in another file; use Import", safeio.Quote(t.name))
		}
	}
	return p.model(o)
}

// readExternal reads the elements that lie in files of dir. Their sum is bounded by the
// sizes of these files: many tensors may not share a few bytes.
func (g *graphProto) readExternal(dir string) error {
	sizes := map[string]int64{}
	var have, want int64
	for _, t := range g.initializers {
		if t.external == nil {
			continue
		}
		err := func() error {
			shape, err := t.shape()
			if err != nil {
				return err
			}
			at := t.external
			length := int64(op.Times(op.Shape(shape).Size(), elementSize(t.typ)))
			if at.length >= 0 && at.length != length {
				return fmt.Errorf("it has %d bytes of elements, want %d for shape %v of %s", at.length, length, op.Shape(shape), typeName(t.typ))
			}
			f, size, err := safeio.OpenIn(dir, at.file)
			if err != nil {
				return err
			}
			defer f.Close()
			if sizes[at.file] == 0 {
				sizes[at.file] = max(size, 1)
				have += size
			}
			if at.offset < 0 || at.offset > size || length > size-at.offset {
				return fmt.Errorf("its elements are bytes %d to %d of %s, which has %d", at.offset, at.offset+length, safeio.Quote(at.file), size)
			}
			if want += length; want > 2*have {
				return fmt.Errorf("the tensors have more than twice the bytes of the files of external data")
			}
			t.raw, err = safeio.Read(io.NewSectionReader(f, at.offset, length), int(length), "external data")
			t.external = nil
			return err
		}()
		if err != nil {
			return fmt.Errorf("initializer %s: %w", safeio.Quote(t.name), err)
		}
	}
	return nil
}

// model makes the model of a file.
func (p *modelProto) model(o ImportOptions) (m *keras.Model, err error) {
	defer tensor.Catch(&err)
	g, err := p.program(o.Outputs)
	if err != nil {
		return nil, err
	}
	stripped, data := p.strip(g)
	l := &Graph{Name: o.Name, DType: o.DType, Outputs: g.outputNames(o.Outputs), Proto: base64.StdEncoding.EncodeToString(stripped)}
	if l.DType == "" && g.doubles() {
		l.DType = "float64"
	}
	var in []*keras.Tensor
	for _, v := range g.inputs {
		t, err := g.input(v, o.Shapes)
		if err != nil {
			return nil, err
		}
		in = append(in, keras.Named(inputName(v.name), t))
	}
	for _, name := range sortedKeys(o.Shapes) {
		if !slices.ContainsFunc(g.inputs, func(v *valueInfo) bool { return v.name == name }) {
			return nil, fmt.Errorf("Shapes has an input %q; the file has none of this name", name)
		}
	}
	if len(in) == 0 {
		return nil, errors.New("it has no input that its outputs depend on")
	}
	x := in[0]
	if len(in) > 1 {
		x = tensor.Tuple(in...)
	}
	m, err = keras.NewModel(x, keras.Apply(l, in...))
	if err != nil {
		return nil, err
	}
	if name := p.graph.name; name != "" {
		m.Named(inputName(name))
	}
	for name, w := range l.weights {
		if err := setWeight(w, data[name], l.program.kernels[name]); err != nil {
			return nil, fmt.Errorf("initializer %s: %w", safeio.Quote(name), err)
		}
	}
	return m, nil
}

// inputName makes a name of the file one that a path can have.
func inputName(s string) string {
	s = strings.Trim(strings.ReplaceAll(s, "/", "."), ".")
	if s == "" {
		return "input"
	}
	return s
}

// setWeight sets a weight to the elements of a tensor, which is a kernel of convolutions
// or not.
func setWeight(w *layers.Weight, t *tensorProto, kernel bool) error {
	if kernel {
		shape, err := t.shape()
		if err != nil {
			return err
		}
		x := tensor.FromBytes(op.Type{DType: elementTypes[t.typ].to, Shape: shape}, t.raw)
		if t.raw, err = x.Transpose(kernelLast(len(shape))...).Bytes(); err != nil {
			return err
		}
	}
	if elements[w.DType()] == t.typ {
		return w.SetBytes(t.raw)
	}
	x := make([]float64, w.Shape().Size())
	dtype.ToF64(x, t.raw, elementTypes[t.typ].to)
	return w.Set(x)
}

// UnsupportedError lists the operations of a file that Import has no counterpart of.
type UnsupportedError struct {
	Operations []Unsupported // sorted by name
}

// Unsupported is an operation that is not supported.
type Unsupported struct {
	Operation string   // "TopK", "com.microsoft.FusedMatMul"
	Count     int      // nodes
	Nodes     []string // the names of the first three
}

// Error implements error.
func (u *UnsupportedError) Error() string {
	var all []string
	for _, x := range u.Operations[:min(len(u.Operations), 40)] {
		s := fmt.Sprintf("%s (%d: %s", safeio.Text(x.Operation), x.Count, safeio.Quote(strings.Join(x.Nodes, " ")))
		if x.Count > len(x.Nodes) {
			s += " …"
		}
		all = append(all, s+")")
	}
	if n := len(u.Operations) - len(all); n > 0 {
		all = append(all, fmt.Sprintf("%d more", n))
	}
	return fmt.Sprintf("operations that are not supported: %s", strings.Join(all, ", "))
}
