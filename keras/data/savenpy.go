package data

import (
	"fmt"
	"maps"
	"slices"

	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/internal/atomicfile"
	"github.com/mezzo-ml/mezzo/keras/internal/npy"
)

// SaveNPY writes an array as NumPy does (numpy.save). NumPy has no bfloat16:
// such an array is written as ml_dtypes writes it, and read with
// `.view(ml_dtypes.bfloat16)`. The file gets its name when it is complete.
func SaveNPY(path string, t *keras.Tensor) error {
	return saveArrays(path, func(f atomicfile.File) error {
		b, err := bytesOf(t)
		if err != nil {
			return err
		}
		if _, err := f.Write(npy.Header(t.Type())); err != nil {
			return err
		}
		_, err = f.Write(b)
		return err
	})
}

// SaveNPZ writes arrays by name, sorted, as NumPy does (numpy.savez); see
// SaveNPY.
func SaveNPZ(path string, arrays map[string]*keras.Tensor) error {
	return saveArrays(path, func(f atomicfile.File) error {
		z := npy.NewArchive(f)
		for _, name := range slices.Sorted(maps.Keys(arrays)) {
			b, err := bytesOf(arrays[name])
			if err == nil {
				err = z.Add(name, arrays[name].Type(), b)
			}
			if err != nil {
				return fmt.Errorf("array %s: %w", name, err)
			}
		}
		return z.Close()
	})
}

func bytesOf(t *keras.Tensor) ([]byte, error) {
	if t == nil || t.IsTuple() {
		return nil, fmt.Errorf("got no tensor or several, want one")
	}
	return t.Bytes()
}

func saveArrays(path string, write func(atomicfile.File) error) error {
	if err := atomicfile.Write(atomicfile.System{}, path, write); err != nil {
		return fmt.Errorf("%s: cannot save: %w", path, err)
	}
	return nil
}
