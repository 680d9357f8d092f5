package saving

import (
	"archive/zip"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strconv"
	"strings"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/op"
	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/internal/aside"
)

// arrayTypes are NumPy's names of element types. It has none for bfloat16;
// what ml_dtypes writes is a type of 2 bytes without a meaning.
var arrayTypes = map[dtype.DType]string{
	dtype.Bool: "|b1", dtype.Uint8: "|u1", dtype.Int32: "<i4", dtype.Int64: "<i8",
	dtype.Float16: "<f2", dtype.BFloat16: "<V2", dtype.Float32: "<f4", dtype.Float64: "<f8",
}

const (
	npyMagic  = "\x93NUMPY"
	maxHeader = 1 << 16
	maxAxes   = 32
)

// SaveNPZ writes the weights of a model, which must be built, as NumPy's
// savez does, by their names: np.load(path)["dense/kernel"]. bfloat16 is what
// ml_dtypes makes of it: `.view(ml_dtypes.bfloat16)`.
func SaveNPZ(path string, m *keras.Model) error {
	ws, err := named(m)
	if err != nil {
		return fileError(path, err)
	}
	return replace(path, func(f aside.File) error {
		z := zip.NewWriter(f)
		for _, w := range ws {
			b, err := w.Bytes()
			if err != nil {
				return err
			}
			out, err := z.CreateHeader(&zip.FileHeader{Name: w.Name() + ".npy", Method: zip.Store, Modified: epoch})
			if err != nil {
				return err
			}
			if _, err := out.Write(append(npyHeader(w.Type()), b...)); err != nil {
				return err
			}
		}
		return z.Close()
	})
}

// npyHeader is the start of an array, a multiple of 64 bytes.
func npyHeader(t op.Type) []byte {
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
	text := fmt.Sprintf("{'descr': '%s', 'fortran_order': False, 'shape': (%s), }", arrayTypes[t.DType], shape)
	const start = len(npyMagic) + 4
	text += strings.Repeat(" ", -(start+len(text)+1)&63) + "\n"
	b := append([]byte(npyMagic), 1, 0)
	return append(binary.LittleEndian.AppendUint16(b, uint16(len(text))), text...)
}

// LoadNPZ sets the weights of a model, which must be built, from a file of
// SaveNPZ or of NumPy's savez or savez_compressed. It must have all of them by
// name, and no others.
func LoadNPZ(path string, m *keras.Model) error {
	_, err := opened(path, func(f *os.File, size int64) (struct{}, error) {
		limit := 0
		for _, w := range m.Weights() {
			limit = max(limit, w.Shape().Size()*dtype.Float64.Size())
		}
		arrays, err := parseNPZ(f, size, int64(limit))
		if err != nil {
			return struct{}{}, err
		}
		return struct{}{}, byName(m, arrays)
	})
	return err
}

// parseNPZ finds the arrays in a file. None may have more than limit bytes.
func parseNPZ(r io.ReaderAt, size, limit int64) (map[string]array, error) {
	a, err := openArchive(r, size)
	if err != nil {
		return nil, err
	}
	out := map[string]array{}
	for file, f := range a.members {
		name, ok := strings.CutSuffix(file, ".npy")
		if !ok {
			return nil, fmt.Errorf("got a member named %q, want arrays, which end in .npy", file)
		}
		typ, at, err := npyType(f)
		if err != nil {
			return nil, fmt.Errorf("array %s: %w", name, err)
		}
		n := int64(typ.DType.Size())
		for _, s := range typ.Shape {
			if s > 0 && n > limit/int64(s) {
				return nil, fmt.Errorf("array %s: %v is larger than any weight of the model", name, typ)
			}
			n *= int64(s)
		}
		out[name] = array{typ, func() ([]byte, error) {
			b, err := npyData(f, at, n)
			if err != nil {
				return nil, fmt.Errorf("array %s: %w", name, err)
			}
			return b, nil
		}}
	}
	return out, nil
}

// npyData reads the n bytes of an array that come after its header.
func npyData(f *zip.File, header, n int64) ([]byte, error) {
	r, err := f.Open()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	if _, err := io.CopyN(io.Discard, r, header); err != nil {
		return nil, err
	}
	b, err := io.ReadAll(io.LimitReader(r, n+1)) // to the end, which checks the checksum
	if err == nil && int64(len(b)) != n {
		err = fmt.Errorf("got another number of bytes than the %d of its shape", n)
	}
	return b, err
}

var npyText = regexp.MustCompile(`^\{'descr': '([^']*)', 'fortran_order': (True|False), 'shape': \(([0-9, ]*)\),? ?\} *\n?$`)

// npyType reads the header of an array, and returns its length too.
func npyType(f *zip.File) (t op.Type, header int64, err error) {
	r, err := f.Open()
	if err != nil {
		return t, 0, err
	}
	defer r.Close()
	start := make([]byte, len(npyMagic)+2)
	if _, err := io.ReadFull(r, start); err != nil || string(start[:len(npyMagic)]) != npyMagic {
		return t, 0, errors.New("it does not start as NumPy's arrays do")
	}
	length := make([]byte, 4)
	if start[len(npyMagic)] == 1 {
		length = length[:2]
	}
	if _, err := io.ReadFull(r, length); err != nil {
		return t, 0, err
	}
	n := binary.LittleEndian.Uint32(append(bytes.Clone(length), 0, 0))
	if n > maxHeader {
		return t, 0, fmt.Errorf("got a header of %d bytes, want at most %d", n, maxHeader)
	}
	text := make([]byte, n)
	if _, err := io.ReadFull(r, text); err != nil {
		return t, 0, err
	}
	m := npyText.FindStringSubmatch(string(text))
	if m == nil {
		return t, 0, fmt.Errorf("got header %q, want one of an array of numbers", text)
	}
	if m[2] == "True" {
		return t, 0, errors.New("it is in Fortran's order; save it with np.ascontiguousarray")
	}
	for d, name := range arrayTypes {
		if m[1] == name || d == dtype.BFloat16 && m[1] == "|V2" {
			t.DType = d
		}
	}
	if t.DType == dtype.Invalid {
		return t, 0, fmt.Errorf("got elements of type %q, which no weight has", m[1])
	}
	for part := range strings.SplitSeq(m[3], ",") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		size, err := strconv.ParseInt(part, 10, 48)
		if err != nil || len(t.Shape) == maxAxes {
			return t, 0, fmt.Errorf("got shape (%s), want at most %d axes of less than 2^47", m[3], maxAxes)
		}
		t.Shape = append(t.Shape, int(size))
	}
	return t, int64(len(start) + len(length) + len(text)), nil
}
