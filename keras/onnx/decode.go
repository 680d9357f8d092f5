package onnx

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/mezzo-ml/mezzo/keras/internal/safeio"
)

// Limits of a file. Its structs take a small multiple of its bytes, so a file that is
// large because of its weights needs limits for the rest of it.
const (
	maxNodes  = 200_000
	maxInputs = 4096 // of a node, and of a graph
	maxAttrs  = 64   // of a node
	maxRank   = 32
	maxText   = 1 << 16 // bytes of a name
)

var errWire = errors.New("it is no ONNX file: its bytes are no protocol buffer message")

// fields calls f for each field of a message. For a varint and fixed numbers v is the
// number, for the others b is the content, a part of data.
func fields(data []byte, f func(n protowire.Number, v uint64, b []byte) error) error {
	for len(data) > 0 {
		n, typ, size := protowire.ConsumeTag(data)
		if size < 0 {
			return errWire
		}
		data = data[size:]
		var v uint64
		var b []byte
		switch typ {
		case protowire.VarintType:
			v, size = protowire.ConsumeVarint(data)
		case protowire.Fixed32Type:
			var x uint32
			x, size = protowire.ConsumeFixed32(data)
			v = uint64(x)
		case protowire.Fixed64Type:
			v, size = protowire.ConsumeFixed64(data)
		case protowire.BytesType:
			b, size = protowire.ConsumeBytes(data)
			if b == nil {
				b = []byte{}
			}
		default: // groups, which onnx.proto does not use
			return errWire
		}
		if size < 0 {
			return errWire
		}
		data = data[size:]
		if err := f(n, v, b); err != nil {
			return err
		}
	}
	return nil
}

// numbers calls f for the numbers in a repeated field, which are packed in b, or v.
func numbers(v uint64, b []byte, bits int, f func(v uint64)) error {
	if b == nil {
		f(v)
		return nil
	}
	for len(b) > 0 {
		var size int
		switch bits {
		case 32:
			var x uint32
			x, size = protowire.ConsumeFixed32(b)
			v = uint64(x)
		case 64:
			v, size = protowire.ConsumeFixed64(b)
		default:
			v, size = protowire.ConsumeVarint(b)
		}
		if size < 0 {
			return errWire
		}
		b = b[size:]
		f(v)
	}
	return nil
}

// text returns a name.
func text(b []byte) (string, error) {
	if len(b) > maxText {
		return "", fmt.Errorf("a name has %d bytes, more than %d", len(b), maxText)
	}
	return string(b), nil
}

func decodeModel(data []byte) (*modelProto, error) {
	m := &modelProto{}
	err := fields(data, func(n protowire.Number, v uint64, b []byte) (err error) {
		switch n {
		case 1:
			m.irVersion = int64(v)
		case 2:
			m.producer, err = text(b)
		case 3:
			m.version, err = text(b)
		case 7:
			if m.graph != nil {
				return errors.New("it has two graphs")
			}
			m.graph, err = decodeGraph(b)
		case 8:
			var o opset
			err = fields(b, func(n protowire.Number, v uint64, b []byte) (err error) {
				switch n {
				case 1:
					o.domain, err = text(b)
				case 2:
					o.version = int64(v)
				}
				return err
			})
			if len(m.opsets) >= maxAttrs {
				return fmt.Errorf("it has more than %d operator sets", maxAttrs)
			}
			m.opsets = append(m.opsets, o)
		case 14:
			var p property
			if p, err = decodeProperty(b); err == nil && len(m.metadata) < maxInputs {
				m.metadata = append(m.metadata, p)
			}
		}
		return err
	})
	if err == nil && m.graph == nil {
		err = errors.New("it is no ONNX file: it has no graph")
	}
	return m, err
}

func decodeProperty(data []byte) (p property, err error) {
	err = fields(data, func(n protowire.Number, v uint64, b []byte) error {
		switch n {
		case 1:
			p.key = string(b[:min(len(b), maxText)])
		case 2:
			p.value = string(b)
		}
		return nil
	})
	return p, err
}

func decodeGraph(data []byte) (*graphProto, error) {
	g := &graphProto{}
	err := fields(data, func(n protowire.Number, v uint64, b []byte) (err error) {
		switch n {
		case 1:
			if len(g.nodes) >= maxNodes {
				return fmt.Errorf("it has more than %d nodes", maxNodes)
			}
			var node *nodeProto
			if node, err = decodeNode(b); err != nil {
				return fmt.Errorf("node %d: %w", len(g.nodes), err)
			}
			g.nodes = append(g.nodes, node)
		case 2:
			g.name, err = text(b)
		case 5:
			if len(g.initializers) >= maxNodes {
				return fmt.Errorf("it has more than %d initializers", maxNodes)
			}
			var t *tensorProto
			if t, err = decodeTensor(b); err != nil {
				return fmt.Errorf("initializer %d: %w", len(g.initializers), err)
			}
			g.initializers = append(g.initializers, t)
		case 11, 12:
			var info *valueInfo
			if info, err = decodeValueInfo(b); err != nil {
				return err
			}
			list := &g.inputs
			if n == 12 {
				list = &g.outputs
			}
			if len(*list) >= maxNodes {
				return fmt.Errorf("it has more than %d inputs or outputs", maxNodes)
			}
			*list = append(*list, info)
		case 15:
			g.sparse++
		}
		return err
	})
	return g, err
}

func decodeNode(data []byte) (*nodeProto, error) {
	x := &nodeProto{}
	err := fields(data, func(n protowire.Number, v uint64, b []byte) (err error) {
		switch n {
		case 1, 2:
			list := &x.in
			if n == 2 {
				list = &x.out
			}
			if len(*list) >= maxInputs {
				return fmt.Errorf("it has more than %d inputs or outputs", maxInputs)
			}
			var s string
			s, err = text(b)
			*list = append(*list, s)
		case 3:
			x.name, err = text(b)
		case 4:
			x.op, err = text(b)
		case 5:
			if len(x.attrs) >= maxAttrs {
				return fmt.Errorf("it has more than %d attributes", maxAttrs)
			}
			var a *attribute
			a, err = decodeAttribute(b)
			x.attrs = append(x.attrs, a)
		case 7:
			x.domain, err = text(b)
			if x.domain == "ai.onnx" {
				x.domain = ""
			}
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", safeio.Quote(x.op), safeio.Quote(x.name), err)
	}
	return x, nil
}

func decodeAttribute(data []byte) (*attribute, error) {
	a := &attribute{}
	err := fields(data, func(n protowire.Number, v uint64, b []byte) (err error) {
		switch n {
		case 1:
			a.name, err = text(b)
		case 2:
			a.f = math.Float32frombits(uint32(v))
			a.kind = max(a.kind, kindFloat)
		case 3:
			a.i = int64(v)
			a.kind = max(a.kind, kindInt)
		case 4:
			a.s = string(b)
			a.kind = max(a.kind, kindString)
		case 5:
			a.t, err = decodeTensor(b)
			a.kind = max(a.kind, kindTensor)
		case 6: // a graph is not decoded: nothing here computes one
			a.kind = max(a.kind, kindGraph)
		case 7:
			err = numbers(v, b, 32, func(v uint64) { a.floats = append(a.floats, math.Float32frombits(uint32(v))) })
			a.kind = max(a.kind, kindFloats)
		case 8:
			err = numbers(v, b, 0, func(v uint64) { a.ints = append(a.ints, int64(v)) })
			a.kind = max(a.kind, kindInts)
		case 9:
			a.strings = append(a.strings, string(b))
			a.kind = max(a.kind, kindStrings)
		case 20:
			a.kind = int64(v)
		}
		return err
	})
	if err == nil && a.kind == kindTensor && a.t == nil {
		err = fmt.Errorf("attribute %s has no tensor", safeio.Quote(a.name))
	}
	return a, err
}

// decodeTensor reads a TensorProto. Elements in raw_data stay a part of data; those of
// the other fields are converted. Whether there are as many as dims says is checked by
// size.
func decodeTensor(data []byte) (*tensorProto, error) {
	t := &tensorProto{}
	var wide []uint64 // elements of int32_data, int64_data and uint64_data
	var floats, doubles []byte
	external := false
	where := &location{length: -1}
	err := fields(data, func(n protowire.Number, v uint64, b []byte) (err error) {
		switch n {
		case 1:
			err = numbers(v, b, 0, func(v uint64) { t.dims = append(t.dims, int64(v)) })
			if len(t.dims) > maxRank {
				return fmt.Errorf("it has more than %d axes", maxRank)
			}
		case 2:
			t.typ = int64(v)
		case 4:
			err = numbers(v, b, 32, func(v uint64) { floats = binary.LittleEndian.AppendUint32(floats, uint32(v)) })
		case 5, 7, 11:
			err = numbers(v, b, 0, func(v uint64) { wide = append(wide, v) })
		case 6:
			t.strings = append(t.strings, string(b))
		case 8:
			t.name, err = text(b)
		case 9:
			t.raw = b
		case 10:
			err = numbers(v, b, 64, func(v uint64) { doubles = binary.LittleEndian.AppendUint64(doubles, v) })
		case 13:
			var p property
			if p, err = decodeProperty(b); err != nil {
				return err
			}
			switch p.key {
			case "location":
				where.file = p.value
			case "offset":
				_, err = fmt.Sscan(p.value, &where.offset)
			case "length":
				_, err = fmt.Sscan(p.value, &where.length)
			}
		case 14:
			external = v == 1
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("tensor %s: %w", safeio.Quote(t.name), err)
	}
	switch {
	case external:
		t.external, t.raw = where, nil
	case t.raw != nil:
	case len(floats) > 0:
		t.raw = floats
	case len(doubles) > 0:
		t.raw = doubles
	case len(wide) > 0:
		size := elementSize(t.typ)
		for _, v := range wide {
			var one [8]byte
			binary.LittleEndian.PutUint64(one[:], v)
			t.raw = append(t.raw, one[:max(size, 0)]...)
		}
	}
	return t, nil
}

func decodeValueInfo(data []byte) (*valueInfo, error) {
	v := &valueInfo{noRank: true, other: "nothing"}
	err := fields(data, func(n protowire.Number, _ uint64, b []byte) (err error) {
		switch n {
		case 1:
			v.name, err = text(b)
		case 2:
			err = fields(b, func(n protowire.Number, _ uint64, b []byte) error {
				switch n {
				case 1:
					v.other = ""
					return v.decodeTensorType(b)
				case 4:
					v.other = "a sequence"
				case 5:
					v.other = "a map"
				case 8:
					v.other = "a sparse tensor"
				case 9:
					v.other = "optional"
				}
				return nil
			})
		}
		return err
	})
	return v, err
}

func (v *valueInfo) decodeTensorType(data []byte) error {
	return fields(data, func(n protowire.Number, x uint64, b []byte) error {
		switch n {
		case 1:
			v.typ = int64(x)
		case 2:
			v.noRank, v.dims = false, nil
			return fields(b, func(n protowire.Number, _ uint64, b []byte) error {
				if n != 1 {
					return nil
				}
				d := dim{size: -1}
				err := fields(b, func(n protowire.Number, x uint64, b []byte) (err error) {
					switch n {
					case 1:
						d.size = int64(x)
					case 2:
						d.name, err = text(b)
					}
					return err
				})
				if len(v.dims) >= maxRank {
					return fmt.Errorf("%s has more than %d axes", safeio.Quote(v.name), maxRank)
				}
				v.dims = append(v.dims, d)
				return err
			})
		}
		return nil
	})
}
