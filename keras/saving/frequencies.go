package saving

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/op"
	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/keras/internal/hdf5"
)

// The inverse document frequencies of a lookup with OutputMode tf_idf are among
// the weights in Keras's files, by a name and not by a number, also when the
// config has them.

// frequenciesName is the dataset, and the field in a config.
const frequenciesName = "idf_weights"

// frequent is a layer that may have them.
type frequent interface{ Frequencies() ([]float64, error) }

// putFrequencies writes those of a layer.
func putFrequencies(root *hdf5.Group, p place) {
	if p.frequencies == nil {
		return
	}
	var data []byte
	for _, f := range p.frequencies {
		data = binary.LittleEndian.AppendUint32(data, math.Float32bits(float32(f)))
	}
	root.Require(p.path + "/vars").Datasets[frequenciesName] = hdf5.NewDataset(hdf5.Float32, []int{len(p.frequencies)}, data)
}

// takeFrequencies removes those of a layer from what was read, so that variables
// remain. They must be those that the layer has.
func takeFrequencies(root *hdf5.Group, p place) error {
	if p.frequencies == nil {
		return nil
	}
	got, err := frequenciesIn(root, p.path, len(p.frequencies)+maxWords)
	if err != nil {
		return fmt.Errorf("layer %s: %w", p.name, err)
	}
	if len(got) != len(p.frequencies) {
		return fmt.Errorf("layer %s: got %d numbers in %s, want %d as the layer has", p.name, len(got), frequenciesName, len(p.frequencies))
	}
	for i, want := range p.frequencies {
		// Sums and logarithms in float32 there, in float64 here.
		if !(math.Abs(got[i]-want) <= 8*dtype.Float32.Epsilon()*math.Abs(want)) {
			return fmt.Errorf("layer %s: number %d in %s is %v, want %v as in the layer's IDFWeights", p.name, i, frequenciesName, got[i], want)
		}
	}
	delete(root.Group(p.path+"/vars").Datasets, frequenciesName)
	return nil
}

// frequenciesIn reads those of the layer at path, which may be at most so many.
func frequenciesIn(root *hdf5.Group, path string, most int) ([]float64, error) {
	var d *hdf5.Dataset
	if g := root.Group(path + "/vars"); g != nil {
		d = g.Datasets[frequenciesName]
	}
	if d == nil {
		return nil, fmt.Errorf("there is no %s/vars/%s", path, frequenciesName)
	}
	a, err := arrayOf(d)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", frequenciesName, err)
	}
	if !a.typ.DType.IsFloat() || len(a.typ.Shape) != 1 || a.typ.Shape[0] > most {
		return nil, fmt.Errorf("%s: got %v, want a list of at most %d floats", frequenciesName, a.typ, most)
	}
	b, err := a.bytes()
	if err != nil {
		return nil, err
	}
	return tensor.FromBytes(op.Type{DType: a.typ.DType, Shape: a.typ.Shape}, b).Float64s()
}

// weightFile is a file of weights that is read when something in it is needed.
type weightFile struct {
	r    io.ReaderAt
	size int64
	root *hdf5.Group
}

func (w *weightFile) frequencies(path string, most int) (all []float64, err error) {
	if w.root == nil {
		if w.root, err = hdf5.Read(weightsFile, w.r, w.size); err != nil {
			return nil, fmt.Errorf("%s: %w", weightsFile, err)
		}
	}
	if all, err = frequenciesIn(w.root, path, most); err != nil {
		return nil, fmt.Errorf("%s: %w", weightsFile, err)
	}
	return all, nil
}
