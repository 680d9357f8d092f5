package saving

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/op"
	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/internal/atomicfile"
	"github.com/mezzo-ml/mezzo/keras/internal/hdf5"
	"github.com/mezzo-ml/mezzo/keras/internal/safeio"
	"github.com/mezzo-ml/mezzo/layers"
)

// SaveWeights writes the weights of a model, which must be built, as Keras's
// model.save_weights does; path ends in ".weights.h5". Keras loads the file
// into the same model.
func SaveWeights(path string, m *keras.Model, opts ...Option) error {
	if !strings.HasSuffix(path, ".weights.h5") {
		return fmt.Errorf("saving: got file name %q, want one that ends in .weights.h5, as Keras does", path)
	}
	root, err := weightTree(m, options(opts))
	if err != nil {
		return fileError(path, err)
	}
	return replace(path, func(f atomicfile.File) error { return hdf5.Write(f, root) })
}

// LoadWeights sets the weights of a model, which must be built, from a file of
// SaveWeights or of Keras's model.save_weights, or from a `.keras` file. As in
// Keras, weights are found by the classes of their layers and the order of
// these in the model; names do not count.
func LoadWeights(path string, m *keras.Model, opts ...Option) error {
	_, err := opened(path, func(f *os.File, size int64) (struct{}, error) {
		var r io.ReaderAt = f
		name := path
		if safeio.IsZip(f) {
			name += "/" + weightsFile
			a, err := openArchive(f, size)
			if err != nil {
				return struct{}{}, err
			}
			if r, size, err = a.weights(); err != nil {
				return struct{}{}, err
			}
		}
		return struct{}{}, loadTree(name, r, size, m, options(opts))
	})
	return err
}

// weightTree is the content of a weight file.
func weightTree(m *keras.Model, c config) (*hdf5.Group, error) {
	all, err := places(m)
	if err != nil {
		return nil, err
	}
	root, err := treeOf(all)
	if err != nil || c.optimizer == nil {
		return root, err
	}
	return root, putOptimizer(root, c.optimizer, m, all)
}

// treeOf is the content of a weight file with weights in these places.
func treeOf(all []place) (*hdf5.Group, error) {
	var ws []*layers.Weight
	for _, p := range all {
		ws = append(ws, p.weights...)
	}
	data, err := layers.BytesOf(ws)
	if err != nil {
		return nil, err
	}
	root := hdf5.NewGroup()
	for _, p := range all {
		var vs []value
		for i, w := range p.weights {
			vs = append(vs, value{w.Type(), data[i]})
		}
		data = data[len(p.weights):]
		put(root, p.path, p.name, vs)
		putFrequencies(root, p)
	}
	return root, nil
}

// value is that of a variable in a file.
type value struct {
	typ   op.Type
	bytes []byte
}

// put writes values the way Keras does: numbered, in a group vars.
func put(root *hdf5.Group, path, name string, vs []value) {
	g := root.Require(strings.TrimPrefix(path+"/vars", "/"))
	g.Attrs["name"] = hdf5.StringAttr(name)
	for i, v := range vs {
		d := hdf5.NewDataset(stored[v.typ.DType], v.typ.Shape, v.bytes)
		if v.typ.DType == dtype.BFloat16 {
			d.Attrs["dtype"] = hdf5.StringAttr("bfloat16")
		}
		g.Datasets[strconv.Itoa(i)] = d
	}
}

// stored are the types of elements in HDF5.
var stored = map[dtype.DType]hdf5.Type{
	dtype.Bool: hdf5.Bool, dtype.Uint8: hdf5.Uint8, dtype.Int8: hdf5.Int8, dtype.Int32: hdf5.Int32, dtype.Int64: hdf5.Int64,
	dtype.Float16: hdf5.Float16, dtype.BFloat16: hdf5.Opaque16, dtype.Float32: hdf5.Float32, dtype.Float64: hdf5.Float64,
}

// arrayOf describes a dataset.
func arrayOf(d *hdf5.Dataset) (array, error) {
	for _, dt := range dtype.All() {
		if stored[dt] != d.Type {
			continue
		}
		name := d.Attrs["dtype"].Strings
		if dt == dtype.BFloat16 && !slices.Equal(name, []string{"bfloat16"}) {
			return array{}, fmt.Errorf("got %v with attribute dtype %s, want bfloat16", d.Type, safeio.Text(fmt.Sprintf("%q", name)))
		}
		return array{op.Type{DType: dt, Shape: op.Shape(d.Shape)}, d.Bytes}, nil
	}
	return array{}, fmt.Errorf("got elements of type %v, which no weight has", d.Type)
}

// loadTree sets weights from the content of a weight file.
func loadTree(name string, r io.ReaderAt, size int64, m *keras.Model, c config) error {
	root, err := hdf5.Read(name, r, size)
	if err != nil {
		return err
	}
	all, err := places(m)
	if err != nil {
		return err
	}
	saved, err := arraysAt(root, all, "model "+m.Name())
	if err != nil {
		return err
	}
	if c.optimizer == nil {
		return setWeights(m, saved)
	}
	state, err := readOptimizer(root, c.optimizer, m, all)
	if err != nil {
		return err
	}
	if err := setWeights(m, saved); err != nil {
		return err
	}
	for v, b := range state {
		if err := v.SetBytes(b); err != nil {
			return err
		}
	}
	return nil
}

// arraysAt returns the arrays of the weights in all places of a model or layer,
// which must be all that root has.
func arraysAt(root *hdf5.Group, all []place, owner string) (map[*layers.Weight]array, error) {
	saved := map[*layers.Weight]array{}
	known := map[string]bool{}
	for _, p := range all {
		path := strings.TrimPrefix(p.path+"/vars", "/")
		known[path] = true
		if err := takeFrequencies(root, p); err != nil {
			return nil, err
		}
		arrays, err := arraysOf(root, path, len(p.weights), "layer "+p.name)
		if err != nil {
			return nil, err
		}
		for i, w := range p.weights {
			saved[w] = arrays[i]
		}
	}
	return saved, unknown(root, "", known, owner)
}

// arraysOf returns the n datasets of a group, which may be absent when n is 0.
func arraysOf(root *hdf5.Group, path string, n int, owner string) ([]array, error) {
	g := root.Group(path)
	if g == nil {
		if n == 0 {
			return nil, nil
		}
		return nil, fmt.Errorf("%s: there is no group %s", owner, path)
	}
	if len(g.Datasets) != n {
		return nil, fmt.Errorf("%s: got %d variables in group %s, want %d", owner, len(g.Datasets), path, n)
	}
	out := make([]array, n)
	for i := range out {
		d := g.Datasets[strconv.Itoa(i)]
		if d == nil {
			return nil, fmt.Errorf("%s: group %s has no variable %d", owner, path, i)
		}
		var err error
		if out[i], err = arrayOf(d); err != nil {
			return nil, fmt.Errorf("%s: %s/%d: %w", owner, path, i, err)
		}
	}
	return out, nil
}

// unknown is an error for variables that belong to no layer of owner. The
// optimizer's, and states of random numbers, which Keras does not restore
// either, are let be.
func unknown(g *hdf5.Group, path string, known map[string]bool, owner string) error {
	if len(g.Datasets) > 0 && !known[path] {
		return fmt.Errorf("%s has no layer for group %s; it has the variables %s", owner, safeio.Text(path), safeio.Text(g.Names()))
	}
	for _, name := range g.Names() {
		if path == "" && name == "optimizer" || strings.HasPrefix(name, "seed_generator") {
			continue
		}
		if sub := g.Groups[name]; sub != nil {
			if err := unknown(sub, strings.TrimPrefix(path+"/"+name, "/"), known, owner); err != nil {
				return err
			}
		}
	}
	return nil
}
