package servinggrpc

import (
	"errors"
	"fmt"
	"math"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
)

// field is a field of a message: bytes, or a number.
type field struct {
	number protowire.Number
	typ    protowire.Type
	bytes  []byte // of the message, not a copy
	value  uint64
}

// fields calls each for the fields of a message, in their order.
func fields(b []byte, each func(f field) error) error {
	for len(b) > 0 {
		number, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return malformed(n)
		}
		b = b[n:]
		f := field{number: number, typ: typ}
		switch typ {
		case protowire.BytesType:
			f.bytes, n = protowire.ConsumeBytes(b)
		case protowire.VarintType:
			f.value, n = protowire.ConsumeVarint(b)
		case protowire.Fixed32Type:
			var v uint32
			v, n = protowire.ConsumeFixed32(b)
			f.value = uint64(v)
		case protowire.Fixed64Type:
			f.value, n = protowire.ConsumeFixed64(b)
		default: // a group, of no message here
			n = protowire.ConsumeFieldValue(number, typ, b)
		}
		if n < 0 {
			return malformed(n)
		}
		if err := each(f); err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

func malformed(n int) error { return fmt.Errorf("protobuf: %w", protowire.ParseError(n)) }

func (f field) want(typ protowire.Type) error {
	if f.typ != typ {
		return fmt.Errorf("protobuf: field %d has wire type %d, want %d", f.number, f.typ, typ)
	}
	return nil
}

// message calls each for the fields of a message in the field.
func (f field) message(each func(f field) error) error {
	if err := f.want(protowire.BytesType); err != nil {
		return err
	}
	return fields(f.bytes, each)
}

func (f field) text() (string, error) {
	if err := f.want(protowire.BytesType); err != nil {
		return "", err
	}
	if !utf8.Valid(f.bytes) {
		return "", fmt.Errorf("protobuf: field %d is not UTF-8", f.number)
	}
	return string(f.bytes), nil
}

// blob returns the bytes of the field; not nil, so that it can be told from none.
func (f field) blob() ([]byte, error) {
	if err := f.want(protowire.BytesType); err != nil {
		return nil, err
	}
	if f.bytes == nil {
		return []byte{}, nil
	}
	return f.bytes, nil
}

func (f field) integer() (int64, error) { return int64(f.value), f.want(protowire.VarintType) }

// count returns how many integers a repeated field has, packed or not.
func (f field) count() int {
	if f.typ == protowire.VarintType {
		return 1
	}
	n := 0
	for _, c := range f.bytes {
		if c < 0x80 { // the last byte of a varint
			n++
		}
	}
	return n
}

// integers calls each for the integers of a repeated field, packed or not.
func (f field) integers(each func(v uint64) error) error {
	if f.typ == protowire.VarintType {
		return each(f.value)
	}
	if err := f.want(protowire.BytesType); err != nil {
		return err
	}
	for b := f.bytes; len(b) > 0; {
		v, n := protowire.ConsumeVarint(b)
		if n < 0 {
			return malformed(n)
		}
		if err := each(v); err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

// maxAxes bounds shapes, and most the inputs and outputs that a request lists.
const (
	maxAxes = 32
	maxList = 1024
)

// appendAxis appends an axis of a shape.
func appendAxis(shape []int, d int64) ([]int, error) {
	if d < 0 || d > math.MaxInt32 {
		return nil, fmt.Errorf("a shape has an axis of %d, want 0 to %d", d, math.MaxInt32)
	}
	if len(shape) == maxAxes {
		return nil, fmt.Errorf("a shape has more than %d axes", maxAxes)
	}
	return append(shape, int(d)), nil
}

var errList = errors.New("more than 1024 inputs or outputs")

// appendBounded appends to a list of a request.
func appendBounded[T any](all []T, one T) ([]T, error) {
	if len(all) == maxList {
		return nil, errList
	}
	return append(all, one), nil
}

// message is a message that is written.
type message []byte

// text writes a field, unless the text is empty.
func (m *message) text(number protowire.Number, s string) {
	if s != "" {
		*m = protowire.AppendString(protowire.AppendTag(*m, number, protowire.BytesType), s)
	}
}

func (m *message) blob(number protowire.Number, b []byte) {
	*m = protowire.AppendBytes(protowire.AppendTag(*m, number, protowire.BytesType), b)
}

func (m *message) integer(number protowire.Number, v int) {
	*m = protowire.AppendVarint(protowire.AppendTag(*m, number, protowire.VarintType), uint64(int64(v)))
}

// flag writes a field that is true, and nothing for false.
func (m *message) flag(number protowire.Number, v bool) {
	if v {
		m.integer(number, 1)
	}
}

// shape writes a packed field; unknown axes are -1.
func (m *message) shape(number protowire.Number, shape []int) {
	var packed []byte
	for _, d := range shape {
		packed = protowire.AppendVarint(packed, uint64(int64(d)))
	}
	m.blob(number, packed)
}
