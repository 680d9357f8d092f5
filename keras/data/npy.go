package data

import (
	"archive/zip"
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/op"
	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/internal/npy"
	"github.com/mezzo-ml/mezzo/keras/internal/safeio"
)

// LoadNPY reads a .npy file (numpy.load). Element types that Mezzo does not
// have are converted: int8, int16 and uint16 to int32, uint32 to int64.
func LoadNPY(path string) (*keras.Tensor, error) {
	f, size, err := safeio.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	t, err := readNPY(bufio.NewReaderSize(f, 1<<18), size)
	if err != nil {
		return nil, safeio.Short(fmt.Errorf("%s: %w", path, err))
	}
	return t, nil
}

// maxNPZ is how many bytes LoadNPZ makes of compressed arrays.
const maxNPZ = 1 << 30

// LoadNPZ reads the arrays of a file of NumPy's savez or savez_compressed, by
// name; see LoadNPY. All arrays together may have at most maxBytes bytes, by
// default 1 GiB or the size of the file if that is larger. The limit protects
// against small files that decompress to a very large size.
func LoadNPZ(path string, maxBytes ...keras.Bytes) (map[string]*keras.Tensor, error) {
	f, size, err := safeio.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	limit := max(maxNPZ, size)
	if len(maxBytes) > 0 {
		limit = int64(maxBytes[0])
	}
	all, err := readNPZ(f, size, limit)
	if err != nil {
		return nil, safeio.Short(fmt.Errorf("%s: %w", path, err))
	}
	return all, nil
}

func readNPZ(f io.ReaderAt, size, limit int64) (map[string]*keras.Tensor, error) {
	members, err := safeio.Zip(f, size)
	if err != nil {
		return nil, err
	}
	all := map[string]*keras.Tensor{}
	for _, file := range slices.Sorted(maps.Keys(members)) {
		name, ok := strings.CutSuffix(file, ".npy")
		if !ok {
			return nil, fmt.Errorf("got a member named %s, want arrays, which end in .npy", safeio.Quote(file))
		}
		t, err := member(members[file], limit)
		if err != nil {
			return nil, fmt.Errorf("array %s: %w", safeio.Text(name), err)
		}
		limit -= int64(t.Type().Bytes())
		all[name] = t
	}
	return all, nil
}

func member(z *zip.File, limit int64) (*keras.Tensor, error) {
	r, err := z.Open()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return readNPY(r, limit)
}

// foreign are NumPy's element types that are no types of Mezzo: what they
// become, and how one element is read.
var foreign = map[string]struct {
	to    dtype.DType
	width int
	get   func([]byte) int64
}{
	"i1": {dtype.Int32, 1, func(b []byte) int64 { return int64(int8(b[0])) }},
	"i2": {dtype.Int32, 2, func(b []byte) int64 { return int64(int16(binary.LittleEndian.Uint16(b))) }},
	"u2": {dtype.Int32, 2, func(b []byte) int64 { return int64(binary.LittleEndian.Uint16(b)) }},
	"u4": {dtype.Int64, 4, func(b []byte) int64 { return int64(binary.LittleEndian.Uint32(b)) }},
}

// native are those that may come with their bytes in the other order.
var native = map[string]dtype.DType{
	"i4": dtype.Int32, "i8": dtype.Int64, "f2": dtype.Float16, "f4": dtype.Float32, "f8": dtype.Float64,
}

// readNPY reads an array whose elements take at most limit bytes.
func readNPY(r io.Reader, limit int64) (t *keras.Tensor, err error) {
	defer tensor.Catch(&err)
	a, err := npy.ReadHeader(r)
	if err != nil {
		return nil, err
	}
	if len(a.Descr) < 2 {
		return nil, fmt.Errorf("got elements of type %s, want numbers", safeio.Quote(a.Descr))
	}
	kind := a.Descr[1:]
	from, isForeign := foreign[kind]
	to, width := a.DType, a.DType.Size()
	switch {
	case isForeign:
		to, width = from.to, from.width
	case to == dtype.Invalid && a.Descr[0] == '>' && native[kind] != dtype.Invalid:
		to = native[kind]
		width = to.Size()
	case to == dtype.Invalid:
		return nil, fmt.Errorf("got elements of type %s, want bools, integers of up to 64 bits (signed) or 32 (unsigned), or floats of 16 to 64", safeio.Quote(a.Descr))
	}
	// Widened, it may have four times as many.
	if _, err := a.Bytes(max(width, to.Size()), min(limit*int64(max(to.Size()/width, 1)), math.MaxInt)); err != nil {
		return nil, err
	}
	n, err := a.Bytes(width, limit)
	if err != nil {
		return nil, err
	}
	b, err := npy.ReadData(r, n)
	if err != nil {
		return nil, err
	}
	if a.Descr[0] == '>' {
		for e := range slices.Chunk(b, width) {
			slices.Reverse(e)
		}
	}
	if isForeign {
		values := make([]int64, len(b)/width)
		for i := range values {
			values[i] = from.get(b[i*width:])
		}
		b = make([]byte, len(values)*to.Size())
		dtype.FromI64(b, values, to)
	}
	if to == dtype.Bool && slices.ContainsFunc(b, func(x byte) bool { return x > 1 }) {
		return nil, errors.New("got a bool that is neither 0 nor 1")
	}
	shape := op.Shape(a.Shape)
	if a.Column && len(shape) > 1 {
		b = rowMajor(b, shape, to.Size())
	}
	return tensor.FromBytes(op.Type{DType: to, Shape: shape}, b), nil
}

// rowMajor puts the elements of an array whose first axis changes fastest into
// the other order.
func rowMajor(b []byte, shape op.Shape, width int) []byte {
	out := make([]byte, len(b))
	strides := make([]int, len(shape))
	step := width
	for i, n := range shape {
		strides[i] = step
		step *= n
	}
	at := make([]int, len(shape))
	for i := 0; i < len(out); i += width {
		from := 0
		for k, x := range at {
			from += x * strides[k]
		}
		copy(out[i:i+width], b[from:])
		for k := len(at) - 1; k >= 0; k-- {
			if at[k]++; at[k] < shape[k] {
				break
			}
			at[k] = 0
		}
	}
	return out
}
