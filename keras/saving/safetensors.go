package saving

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"

	"github.com/maruel/safetensors"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/op"
	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/internal/atomicfile"
	"github.com/mezzo-ml/mezzo/keras/internal/safeio"
	"github.com/mezzo-ml/mezzo/layers"
)

// tensorTypes are the names of element types in safetensors.
var tensorTypes = map[dtype.DType]safetensors.DType{
	dtype.Bool: safetensors.BOOL, dtype.Uint8: safetensors.U8, dtype.Int8: safetensors.I8, dtype.Int32: safetensors.I32, dtype.Int64: safetensors.I64,
	dtype.Float16: safetensors.F16, dtype.BFloat16: safetensors.BF16, dtype.Float32: safetensors.F32, dtype.Float64: safetensors.F64,
}

// SaveSafetensors writes the weights of a model, which must be built, as a
// safetensors file (github.com/huggingface/safetensors), by their names:
// "dense/kernel".
func SaveSafetensors(path string, m *keras.Model) error {
	ws, err := named(m)
	if err != nil {
		return fileError(path, err)
	}
	// The widest elements first, so that all of them lie at multiples of their
	// size.
	slices.SortStableFunc(ws, func(a, b *layers.Weight) int { return cmp.Compare(b.DType().Size(), a.DType().Size()) })
	data, err := layers.BytesOf(ws)
	if err != nil {
		return fileError(path, err)
	}
	var f safetensors.File
	for i, w := range ws {
		shape := []uint64{} // null for a scalar would be no list
		for _, n := range w.Shape() {
			shape = append(shape, uint64(n))
		}
		f.Tensors = append(f.Tensors, safetensors.Tensor{Name: w.Name(), DType: tensorTypes[w.DType()], Shape: shape, Data: data[i]})
	}
	return replace(path, func(out atomicfile.File) error { return f.Serialize(out) })
}

// LoadSafetensors sets the weights of a model, which must be built, from a
// safetensors file. It must have all of them by name, and no others. See
// [ImportSafetensors] for files with other names.
func LoadSafetensors(path string, m *keras.Model) error {
	_, err := opened(path, func(f *os.File, size int64) (struct{}, error) {
		arrays, err := parseSafetensors(f, size)
		if err != nil {
			return struct{}{}, fmt.Errorf("it is no safetensors file, or damaged: %w", err)
		}
		return struct{}{}, byName(m, arrays)
	})
	return err
}

const (
	maxTensorHeader = 16 << 20 // bytes
	maxTensorValues = 1 << 20  // in it
)

// parseSafetensors finds the arrays in a file: 8 bytes with the length of the
// header, the header, which is JSON, and the tensors one after the other. It
// reads the header alone.
func parseSafetensors(r io.ReaderAt, size int64) (map[string]array, error) {
	start := make([]byte, 8)
	if size < int64(len(start)) {
		return nil, fmt.Errorf("got %d bytes, want %d or more", size, len(start))
	}
	if _, err := r.ReadAt(start, 0); err != nil {
		return nil, err
	}
	n := binary.LittleEndian.Uint64(start)
	if room := uint64(min(size-8, maxTensorHeader)); n > room {
		return nil, fmt.Errorf("header: got %d bytes, want at most %d", n, room)
	}
	text, err := safeio.Read(io.NewSectionReader(r, 8, int64(n)), int(n), "bytes of the header")
	if err == nil {
		err = safeio.JSON(text, maxTensorValues, 8)
	}
	if err != nil {
		return nil, fmt.Errorf("header: %w", err)
	}
	all, err := tensorsIn(text)
	if err != nil {
		return nil, fmt.Errorf("header: %w", err)
	}
	out := map[string]array{}
	slices.SortStableFunc(all, func(a, b tensorInfo) int { return slices.Compare(a.Offsets[:], b.Offsets[:]) })
	room := uint64(size) - 8 - n // of the tensors
	var at uint64
	for _, t := range all {
		known := safeio.Quote(t.name) // in errors
		if _, dup := out[t.name]; dup {
			return nil, fmt.Errorf("got two tensors named %s", known)
		}
		if t.Offsets[0] != at || t.Offsets[1] < at || t.Offsets[1] > room {
			return nil, fmt.Errorf("tensor %s: got offsets %d, want them to start at %d and to end within the %d bytes of the file's tensors", known, t.Offsets, at, room)
		}
		at = t.Offsets[1]
		typ := op.Type{DType: dtype.Invalid}
		for d, name := range tensorTypes {
			if name == t.DType {
				typ.DType = d
			}
		}
		if typ.DType == dtype.Invalid {
			return nil, fmt.Errorf("tensor %s: got elements of type %s, which no weight has", known, safeio.Text(string(t.DType)))
		}
		from, length := 8+n+t.Offsets[0], at-t.Offsets[0]
		want := uint64(typ.DType.Size())
		for _, s := range t.Shape {
			if s > 1<<40 || s > 0 && want > math.MaxInt64/s {
				return nil, fmt.Errorf("tensor %s: got shape %s, which is larger than the file", known, safeio.Text(t.Shape))
			}
			want *= s
			typ.Shape = append(typ.Shape, int(s))
		}
		if length != want {
			return nil, fmt.Errorf("tensor %s: got %d bytes, want %d for %s", known, length, want, safeio.Text(typ))
		}
		out[t.name] = array{typ, func() ([]byte, error) {
			b := make([]byte, length)
			if k, err := r.ReadAt(b, int64(from)); k < len(b) {
				return nil, fmt.Errorf("tensor %s: %w", known, safeio.Error(err, "bytes", k, len(b)))
			}
			return b, nil
		}}
	}
	if at != room {
		return nil, fmt.Errorf("got %d bytes of tensors, want %d as the header says", room, at)
	}
	return out, nil
}

// tensorInfo is what a header says of a tensor.
type tensorInfo struct {
	name    string
	DType   safetensors.DType `json:"dtype"`
	Shape   []uint64          `json:"shape"`
	Offsets [2]uint64         `json:"data_offsets"`
}

// tensorsIn reads a header.
func tensorsIn(text []byte) (all []tensorInfo, err error) {
	d := json.NewDecoder(bytes.NewReader(text))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, errors.Join(errors.New("it is no object"), err)
	}
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return nil, err
		}
		name, _ := t.(string) // of a key it is one
		if name == "__metadata__" {
			var skipped map[string]string
			if err := d.Decode(&skipped); err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			continue
		}
		one := tensorInfo{name: name}
		if err := d.Decode(&one); err != nil {
			return nil, fmt.Errorf("tensor %s: %w", safeio.Quote(name), err)
		}
		all = append(all, one)
	}
	if _, err := d.Token(); err != nil {
		return nil, err
	}
	if rest := bytes.TrimSpace(text[d.InputOffset():]); len(rest) > 0 {
		return nil, fmt.Errorf("got %s after the header's object", safeio.Quote(rest))
	}
	return all, nil
}
