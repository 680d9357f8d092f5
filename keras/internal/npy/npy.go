// Package npy is NumPy's format of arrays: a magic word, a header that is a
// Python dictionary, and the elements (numpy.lib.format).
package npy

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/op"
	"github.com/mezzo-ml/mezzo/keras/internal/safeio"
)

// types are NumPy's names of element types. It has none for bfloat16; what
// ml_dtypes writes is a type of 2 bytes without a meaning.
var types = map[dtype.DType]string{
	dtype.Bool: "|b1", dtype.Uint8: "|u1", dtype.Int8: "|i1", dtype.Int32: "<i4", dtype.Int64: "<i8",
	dtype.Float16: "<f2", dtype.BFloat16: "<V2", dtype.Float32: "<f4", dtype.Float64: "<f8",
}

const (
	magic     = "\x93NUMPY"
	maxHeader = 1 << 16
	maxAxes   = 32
)

// Header is the start of the file of an array, a multiple of 64 bytes. The
// elements follow, in row-major order and little-endian.
func Header(t op.Type) []byte {
	var shape string // as Python writes tuples: "", "3,", "3, 4"
	for i, n := range t.Shape {
		if i > 0 {
			shape += " "
		}
		shape += strconv.Itoa(n) + ","
	}
	if len(t.Shape) > 1 {
		shape = strings.TrimSuffix(shape, ",")
	}
	text := fmt.Sprintf("{'descr': '%s', 'fortran_order': False, 'shape': (%s), }", types[t.DType], shape)
	const start = len(magic) + 4
	text += strings.Repeat(" ", -(start+len(text)+1)&63) + "\n"
	b := append([]byte(magic), 1, 0)
	return append(binary.LittleEndian.AppendUint16(b, uint16(len(text))), text...)
}

var headerText = regexp.MustCompile(`^\{'descr': '([^']*)', 'fortran_order': (True|False), 'shape': \(([0-9, ]*)\),? ?\} *\n?$`)

// Array is what the header of a file says.
type Array struct {
	Descr  string // NumPy's name of the element type
	DType  dtype.DType
	Shape  op.Shape
	Column bool  // the first axis is the one that changes fastest
	Start  int64 // length of the header
}

// ReadHeader reads the header of an array. Its DType is Invalid if Mezzo has
// none of that name.
func ReadHeader(r io.Reader) (a Array, err error) {
	start := make([]byte, len(magic)+2)
	if _, err := io.ReadFull(r, start); err != nil || string(start[:len(magic)]) != magic {
		return a, errors.New("it does not start as NumPy's arrays do")
	}
	length := make([]byte, 4)
	if start[len(magic)] == 1 {
		length = length[:2]
	}
	if _, err := io.ReadFull(r, length); err != nil {
		return a, err
	}
	n := binary.LittleEndian.Uint32(append(bytes.Clone(length), 0, 0))
	if n > maxHeader {
		return a, fmt.Errorf("got a header of %d bytes, want at most %d", n, maxHeader)
	}
	text := make([]byte, n)
	if _, err := io.ReadFull(r, text); err != nil {
		return a, err
	}
	m := headerText.FindStringSubmatch(string(text))
	if m == nil {
		return a, fmt.Errorf("got header %s, want one of an array of numbers", safeio.Quote(text))
	}
	a.Descr, a.Column = m[1], m[2] == "True"
	for d, name := range types {
		if m[1] == name || d == dtype.BFloat16 && m[1] == "|V2" {
			a.DType = d
		}
	}
	for part := range strings.SplitSeq(m[3], ",") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		size, err := strconv.ParseInt(part, 10, 48)
		if err != nil || len(a.Shape) == maxAxes {
			return a, fmt.Errorf("got shape (%s), want at most %d axes of less than 2^47", safeio.Text(m[3]), maxAxes)
		}
		a.Shape = append(a.Shape, int(size))
	}
	a.Start = int64(len(start) + len(length) + len(text))
	return a, nil
}

// Bytes is how many bytes the elements take, each width of them, or an error
// when they are more than limit.
func (a Array) Bytes(width int, limit int64) (int64, error) {
	n := int64(width)
	for _, s := range a.Shape {
		if s == 0 {
			return 0, nil
		}
	}
	for _, s := range a.Shape {
		if n > limit/int64(s) {
			return 0, fmt.Errorf("%s%v has more than %d bytes", safeio.Text(a.Descr), a.Shape, limit)
		}
		n *= int64(s)
	}
	return n, nil
}

// ReadData reads the n bytes of elements that come after the header, to the end
// of the file, which makes archives check their checksum.
func ReadData(r io.Reader, n int64) ([]byte, error) {
	b, err := safeio.Read(r, int(n), "bytes of data")
	if err != nil {
		return nil, err
	}
	switch more, err := r.Read(make([]byte, 1)); {
	case more > 0:
		return nil, fmt.Errorf("got another number of bytes than the %d of its shape", n)
	case err != nil && err != io.EOF:
		return nil, err
	}
	return b, nil
}
