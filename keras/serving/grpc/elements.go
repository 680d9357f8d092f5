package servinggrpc

import (
	"encoding/binary"
	"fmt"
	"math"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/keras"
)

// elements reads the typed values of a tensor, at most as many as its shape has.
type elements struct {
	dtype keras.DType
	most  int
	data  []byte // little-endian; may be that of the message
}

// count returns how many have been read.
func (e *elements) count() int { return len(e.data) / e.dtype.Size() }

// add reads a repeated field of values, packed or not.
func (e *elements) add(f field) error {
	if e.dtype == dtype.Float32 || e.dtype == dtype.Float64 {
		return e.addFloats(f)
	}
	n := f.count()
	if n > e.most-e.count() {
		return fmt.Errorf("got more than %d elements", e.most)
	}
	if e.data == nil {
		e.data = make([]byte, 0, n*e.dtype.Size())
	}
	return f.integers(func(v uint64) error {
		fits := true
		switch i := int64(v); e.dtype {
		case dtype.Bool:
			e.data = append(e.data, byte(min(v, 1)))
		case dtype.Uint8:
			fits = v <= math.MaxUint8
			e.data = append(e.data, byte(v))
		case dtype.Int32:
			fits = int64(int32(i)) == i
			e.data = binary.LittleEndian.AppendUint32(e.data, uint32(v))
		case dtype.Int64:
			e.data = binary.LittleEndian.AppendUint64(e.data, v)
		default: // the bits of 16-bit floats, in TensorFlow's messages
			fits = v <= math.MaxUint16
			e.data = binary.LittleEndian.AppendUint16(e.data, uint16(v))
		}
		if !fits {
			return fmt.Errorf("got %d, want a value of type %s", int64(v), e.dtype)
		}
		return nil
	})
}

// addFloats reads floats, whose packed bytes are those of the tensor.
func (e *elements) addFloats(f field) error {
	size, typ := 4, protowire.Fixed32Type
	if e.dtype == dtype.Float64 {
		size, typ = 8, protowire.Fixed64Type
	}
	n := 1
	if f.typ == protowire.BytesType {
		n = len(f.bytes) / size
		if len(f.bytes)%size != 0 {
			return fmt.Errorf("protobuf: field %d has %d bytes, want a multiple of %d", f.number, len(f.bytes), size)
		}
	} else if err := f.want(typ); err != nil {
		return err
	}
	switch {
	case n > e.most-e.count():
		return fmt.Errorf("got more than %d elements", e.most)
	case f.typ == typ && size == 4:
		e.data = binary.LittleEndian.AppendUint32(e.data, uint32(f.value))
	case f.typ == typ:
		e.data = binary.LittleEndian.AppendUint64(e.data, f.value)
	case e.data == nil:
		e.data = f.bytes[:len(f.bytes):len(f.bytes)] // appending to it copies it
	default:
		e.data = append(e.data, f.bytes...)
	}
	return nil
}

// appendTyped appends a tensor's elements as a packed field of its type.
func (m *message) appendTyped(number protowire.Number, d keras.DType, data []byte) {
	if d == dtype.Float32 || d == dtype.Float64 {
		m.blob(number, data)
		return
	}
	var packed []byte
	for ; len(data) > 0; data = data[d.Size():] {
		var v uint64
		switch d {
		case dtype.Bool, dtype.Uint8:
			v = uint64(data[0])
		case dtype.Int32:
			v = uint64(int64(int32(binary.LittleEndian.Uint32(data))))
		case dtype.Int64:
			v = binary.LittleEndian.Uint64(data)
		default:
			v = uint64(binary.LittleEndian.Uint16(data))
		}
		packed = protowire.AppendVarint(packed, v)
	}
	m.blob(number, packed)
}

// elementsOf returns the elements of a shape, which has passed TensorSpec.Check.
func elementsOf(shape []int) int {
	n := 1
	for _, d := range shape {
		n *= d
	}
	return n
}
