package saving

import (
	"archive/zip"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/op"
	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/internal/atomicfile"
	"github.com/mezzo-ml/mezzo/keras/internal/npy"
	"github.com/mezzo-ml/mezzo/keras/internal/safeio"
	"github.com/mezzo-ml/mezzo/layers"
)

// SaveNPZ writes the weights of a model, which must be built, as NumPy's
// savez does, by their names: np.load(path)["dense/kernel"]. bfloat16 is what
// ml_dtypes makes of it: `.view(ml_dtypes.bfloat16)`.
func SaveNPZ(path string, m *keras.Model) error {
	ws, err := named(m)
	if err != nil {
		return fileError(path, err)
	}
	data, err := layers.BytesOf(ws)
	if err != nil {
		return fileError(path, err)
	}
	return replace(path, func(f atomicfile.File) error {
		z := npy.NewArchive(f)
		for i, w := range ws {
			if err := z.Add(w.Name(), w.Type(), data[i]); err != nil {
				return err
			}
		}
		return z.Close()
	})
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
	members, err := safeio.Zip(r, size)
	if err != nil {
		return nil, err
	}
	out := map[string]array{}
	for file, f := range members {
		name, ok := strings.CutSuffix(file, ".npy")
		if !ok {
			return nil, fmt.Errorf("got a member named %s, want arrays, which end in .npy", safeio.Quote(file))
		}
		a, err := npyArray(f, limit)
		if err != nil {
			return nil, fmt.Errorf("array %s: %w", safeio.Text(name), err)
		}
		out[name] = array{a.typ, func() ([]byte, error) {
			b, err := a.bytes()
			if err != nil {
				return nil, fmt.Errorf("array %s: %w", safeio.Text(name), err)
			}
			return b, nil
		}}
	}
	return out, nil
}

// npyArray reads the header of an array.
func npyArray(f *zip.File, limit int64) (out array, err error) {
	r, err := f.Open()
	if err != nil {
		return out, err
	}
	defer r.Close()
	a, err := npy.ReadHeader(r)
	switch {
	case err != nil:
		return out, err
	case a.Column:
		return out, errors.New("it is in Fortran's order; save it with np.ascontiguousarray")
	case a.DType == dtype.Invalid:
		return out, fmt.Errorf("got elements of type %s, which no weight has", safeio.Quote(a.Descr))
	}
	out.typ = op.Type{DType: a.DType, Shape: a.Shape}
	n, err := a.Bytes(a.DType.Size(), limit)
	if err != nil {
		return out, fmt.Errorf("%v is larger than any weight of the model", out.typ)
	}
	out.bytes = func() ([]byte, error) {
		r, err := f.Open()
		if err != nil {
			return nil, err
		}
		defer r.Close()
		if _, err := io.CopyN(io.Discard, r, a.Start); err != nil {
			return nil, err
		}
		return npy.ReadData(r, n)
	}
	return out, nil
}
