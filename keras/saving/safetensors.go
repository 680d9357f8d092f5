package saving

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/maruel/safetensors"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/op"
	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/internal/aside"
	"github.com/mezzo-ml/mezzo/layers"
)

// tensorTypes are the names of element types in safetensors.
var tensorTypes = map[dtype.DType]safetensors.DType{
	dtype.Bool: safetensors.BOOL, dtype.Uint8: safetensors.U8, dtype.Int32: safetensors.I32, dtype.Int64: safetensors.I64,
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
	return replace(path, func(out aside.File) error { return f.Serialize(out) })
}

// LoadSafetensors sets the weights of a model, which must be built, from a
// safetensors file. It must have all of them by name, and no others.
func LoadSafetensors(path string, m *keras.Model) error {
	_, err := opened(path, func(f *os.File, size int64) (struct{}, error) {
		b := make([]byte, size)
		if _, err := io.ReadFull(f, b); err != nil {
			return struct{}{}, err
		}
		arrays, err := parseSafetensors(b)
		if err != nil {
			return struct{}{}, err
		}
		return struct{}{}, byName(m, arrays)
	})
	return err
}

// parseSafetensors finds the arrays in the content of a file.
func parseSafetensors(b []byte) (map[string]array, error) {
	f, err := safetensors.Parse(b)
	if err != nil {
		return nil, fmt.Errorf("it is no safetensors file, or damaged: %w", err)
	}
	out := map[string]array{}
	for _, t := range f.Tensors {
		if _, dup := out[t.Name]; dup {
			return nil, fmt.Errorf("got two tensors named %q", t.Name)
		}
		typ := op.Type{DType: dtype.Invalid}
		for d, name := range tensorTypes {
			if name == t.DType {
				typ.DType = d
			}
		}
		if typ.DType == dtype.Invalid {
			return nil, fmt.Errorf("tensor %q: got elements of type %s, which no weight has", t.Name, t.DType)
		}
		for _, n := range t.Shape {
			if n > uint64(len(b)) && len(t.Data) > 0 {
				return nil, fmt.Errorf("tensor %q: got shape %v, which is larger than the file", t.Name, t.Shape)
			}
			typ.Shape = append(typ.Shape, int(n))
		}
		out[t.Name] = array{typ, func() ([]byte, error) { return t.Data, nil }}
	}
	return out, nil
}
