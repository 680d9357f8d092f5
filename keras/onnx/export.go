package onnx

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/internal/atomicfile"
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/policy"
)

// Opset and IRVersion are what Export writes: version 17 of the operators and 8 of the
// format, which runtimes have read since 2022.
const (
	Opset     = 17
	IRVersion = 8
)

// maxMessage is the size of a protocol buffer message that readers accept.
const maxMessage = 2<<30 - 1

// ExportOptions are the options of Export and Write. The zero value is the default.
type ExportOptions struct {
	// Precision is the type of the arithmetic: "float32", the default, or "float16". A
	// model with another policy is cloned: under "float32" every layer computes in
	// float32, under "float16" those that compute in float32 keep the policy
	// mixed_float16. bfloat16 is an error.
	Precision string

	// Batch fixes the size of the batch; 0 leaves it open.
	Batch int

	// Shapes fixes axes without a size, other than the batch: the shape of a sample,
	// by the name of the input.
	Shapes map[string][]int

	// ExternalData writes the weights to a second file, path + ".data". Export does so
	// whenever the file would have 2 GiB or more. Write does not accept it.
	ExternalData bool

	// Metadata is added to the file's metadata_props.
	Metadata map[string]string
}

// Export writes the model, in inference, as an ONNX file. It is written under another
// name, brought to the disk and renamed, so that there is never a part of it at path.
// Weights keep their paths as names of initializers, except for those of recurrent
// layers, which have ONNX's layout; nodes have the paths of their layers, inputs and
// outputs the model's names. The model must be built.
func Export(path string, m *keras.Model, o ExportOptions) error {
	return export(atomicfile.System{}, path, m, o, maxMessage)
}

func export(fs atomicfile.FS, path string, m *keras.Model, o ExportOptions, limit int64) error {
	p, err := lowered(m, o)
	if err != nil {
		return err
	}
	size := p.size()
	data := path + ".data"
	if o.ExternalData || size > limit {
		if err := atomicfile.Write(fs, data, func(f atomicfile.File) error { return p.writeData(f, filepath.Base(data)) }); err != nil {
			return fmt.Errorf("onnx: Export: %s: %w", data, err)
		}
		size = p.size()
	}
	if size > limit {
		return fmt.Errorf("onnx: Export: the graph alone takes %d bytes, more than the 2 GiB of a file", size)
	}
	if err := atomicfile.Write(fs, path, func(f atomicfile.File) error { return p.write(f) }); err != nil {
		return fmt.Errorf("onnx: Export: %s: %w", path, err)
	}
	return nil
}

// Write writes the file that Export makes to w. A model of 2 GiB or more is an error:
// its weights need a second file.
func Write(w io.Writer, m *keras.Model, o ExportOptions) error {
	if o.ExternalData {
		return errors.New("onnx: Write: external data lie in a second file; use Export")
	}
	p, err := lowered(m, o)
	if err != nil {
		return err
	}
	if size := p.size(); size > maxMessage {
		return fmt.Errorf("onnx: Write: the file would have %d bytes, more than 2 GiB; use Export", size)
	}
	if err := p.write(w); err != nil {
		return fmt.Errorf("onnx: Write: %w", err)
	}
	return nil
}

// lowered returns the model as ONNX.
func lowered(m *keras.Model, o ExportOptions) (p *modelProto, err error) {
	name := m.Name()
	defer func() {
		if err != nil {
			err = fmt.Errorf("onnx: model %s: %w", name, err)
		}
	}()
	defer tensor.Catch(&err)
	if !m.Built() {
		return nil, fmt.Errorf("%w; call it on data or Build it first", keras.ErrNotBuilt)
	}
	if m, err = underPrecision(m, o.Precision); err != nil {
		return nil, err
	}
	e, err := newExporter(m, o)
	if err != nil {
		return nil, err
	}
	if err := e.lower(); err != nil {
		return nil, err
	}
	return e.proto(m, o), nil
}

// underPrecision returns m, or a clone of it whose layers compute in the types that
// precision allows.
func underPrecision(m *keras.Model, precision string) (*keras.Model, error) {
	var allowed []dtype.DType
	var byPath policy.Map
	name := ""
	switch precision {
	case "", "float32":
		allowed, name, byPath = []dtype.DType{dtype.Float32}, "float32", policy.Map{".*": "float32"}
	case "float16", "mixed_float16":
		allowed, name = []dtype.DType{dtype.Float32, dtype.Float16}, "mixed_float16"
	case "bfloat16", "mixed_bfloat16":
		return nil, errors.New(`Precision is "bfloat16": ONNX Runtime has no bfloat16 arithmetic on processors, and ONNX's Conv takes none; want "float32" or "float16"`)
	default:
		return nil, fmt.Errorf(`Precision is %q, want "float32" or "float16"`, precision)
	}
	fits, has16 := true, false
	for _, l := range everyLayer(m) {
		b := layers.BaseOf(l)
		if len(b.Weights()) == 0 && b.Policy().Name == "" {
			continue
		}
		d := b.ComputeDType()
		fits = fits && slices.Contains(allowed, d) && !strings.Contains(b.Policy().Name, "float8")
		has16 = has16 || d == dtype.Float16
	}
	if fits && (has16 || name == "float32") {
		return m, nil
	}
	if name != "float32" { // layers that name a type keep it if it is float32
		byPath = policy.Map{}
		for _, l := range everyLayer(m) {
			if b := layers.BaseOf(l); b.ComputeDType() != dtype.Float32 && l.Config().DType != "" {
				byPath[b.Path()] = name
			}
		}
	}
	return m.CloneUnder(name, byPath, true)
}

// everyLayer lists the layers of m and the layers in them.
func everyLayer(m *keras.Model) (all []layers.Layer) {
	var add func(l layers.Layer)
	add = func(l layers.Layer) {
		all = append(all, l)
		for _, s := range layers.BaseOf(l).Sublayers() {
			add(s)
		}
	}
	for _, l := range m.Layers() {
		add(l)
	}
	return all
}

// proto puts the parts of the file together.
func (e *exporter) proto(m *keras.Model, o ExportOptions) *modelProto {
	p := &modelProto{irVersion: IRVersion, producer: producer, graph: e.g, opsets: []opset{{"", Opset}}}
	precision := o.Precision
	if precision == "" {
		precision = "float32"
	}
	p.metadata = []property{{"mezzo.precision", precision}}
	var fixed []string
	for _, v := range m.NonTrainableVariables() {
		if name := e.initializerOf[v]; name != "" {
			fixed = append(fixed, name)
		}
	}
	if fixed != nil {
		p.metadata = append(p.metadata, property{fixedKey, strings.Join(fixed, "\n")})
	}
	for _, k := range sortedKeys(o.Metadata) {
		p.metadata = append(p.metadata, property{k, o.Metadata[k]})
	}
	return p
}

// producer is the producer_name of files that Export writes.
const producer = "mezzo"

// fixedKey is the key of the names of weights that are not trainable.
const fixedKey = "mezzo.non_trainable"

// sections returns what p consists of: bytes, and the elements of initializers between
// them.
func (p *modelProto) sections() (parts [][]byte) {
	before, after := p.encodeAround()
	head, tail := p.graph.encodeAround()
	inner := [][]byte{head}
	for _, t := range p.graph.initializers {
		h := t.header()
		size := len(h)
		if t.external == nil {
			h = protowire.AppendVarint(protowire.AppendTag(h, 9, protowire.BytesType), uint64(len(t.raw)))
			size = len(h) + len(t.raw)
		}
		lead := protowire.AppendVarint(protowire.AppendTag(nil, 5, protowire.BytesType), uint64(size))
		inner = append(inner, append(lead, h...))
		if t.external == nil {
			inner = append(inner, t.raw)
		}
	}
	inner = append(inner, tail)
	before = protowire.AppendVarint(protowire.AppendTag(before, 7, protowire.BytesType), uint64(total(inner)))
	return append(append([][]byte{before}, inner...), after)
}

func total(parts [][]byte) (n int64) {
	for _, b := range parts {
		n += int64(len(b))
	}
	return n
}

// size is the number of bytes of the file.
func (p *modelProto) size() int64 { return total(p.sections()) }

func (p *modelProto) write(w io.Writer) error {
	for _, b := range p.sections() {
		if _, err := w.Write(b); err != nil {
			return err
		}
	}
	return nil
}

// externalAlign is where tensors begin in a file of external data: as pages do, so that
// readers can map it.
const externalAlign = 4096

// writeData writes the elements of the initializers to w, which has the given name, and
// leaves their places in them.
func (p *modelProto) writeData(w io.Writer, name string) error {
	var at int64
	for _, t := range p.graph.initializers {
		if pad := -at & (externalAlign - 1); pad > 0 {
			if _, err := w.Write(make([]byte, pad)); err != nil {
				return err
			}
			at += pad
		}
		if _, err := w.Write(t.raw); err != nil {
			return err
		}
		t.external = &location{name, at, int64(len(t.raw))}
		at += int64(len(t.raw))
	}
	return nil
}
