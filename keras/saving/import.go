package saving

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/mezzo-ml/mezzo/backend/op"
	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/internal/safeio"
	"github.com/mezzo-ml/mezzo/layers"
)

// Safetensors is an open safetensors file, or the shards of one checkpoint. It
// holds the headers alone; Tensor reads elements.
type Safetensors struct {
	path   string
	files  []*os.File
	arrays map[string]array
}

// The names of checkpoints in directories of Hugging Face's layout.
const (
	singleFile = "model.safetensors"
	indexFile  = "model.safetensors.index.json"
)

const (
	maxIndex  = 16 << 20 // bytes of an index
	maxShards = 1024
)

// ReadSafetensors opens the safetensors file at path and reads its header. path
// may also be an index of shards, model.safetensors.index.json, or a directory
// with one of the two. A tensor must lie in the shard that the index names, and
// the index must list all tensors of the shards.
//
// Files of PyTorch (.bin, .pt) are refused: they are pickles, programs that run
// when they are read. The error says how to convert them.
func ReadSafetensors(path string) (s *Safetensors, err error) {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		dir := path
		if path, err = checkpointIn(dir); err != nil {
			return nil, fileError(dir, err)
		}
	}
	s = &Safetensors{path: path, arrays: map[string]array{}}
	if strings.HasSuffix(path, ".json") {
		err = s.readShards()
	} else {
		var all map[string]array
		if all, err = s.open(path); err == nil {
			maps.Copy(s.arrays, all)
		}
	}
	if err != nil {
		return nil, errors.Join(fileError(path, err), s.Close())
	}
	return s, nil
}

// checkpointIn returns the path of the checkpoint in a directory.
func checkpointIn(dir string) (string, error) {
	pickled := ""
	for _, name := range []string{singleFile, indexFile, "pytorch_model.bin", "pytorch_model.bin.index.json", "model.pt", "model.pth"} {
		path := filepath.Join(dir, name)
		switch _, err := os.Stat(path); {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return "", err
		case strings.HasPrefix(name, singleFile):
			return path, nil
		case pickled == "":
			pickled = name
		}
	}
	if pickled != "" {
		return "", isPickle(pickled)
	}
	return "", fmt.Errorf("the directory has neither %s nor %s", singleFile, indexFile)
}

// isPickle is the error for a file of PyTorch.
func isPickle(name string) error {
	return fmt.Errorf("%s is a pickle of PyTorch, a program that runs when it is read; convert it once, where you trust it: "+
		`python -c "import torch, safetensors.torch as s; s.save_file({k: v.clone().contiguous() for k, v in torch.load('%[1]s', map_location='cpu', weights_only=True).items()}, '%[2]s')"`,
		name, singleFile)
}

// open opens one file and finds its tensors.
func (s *Safetensors) open(path string) (map[string]array, error) {
	f, size, err := safeio.Open(path)
	if err != nil {
		return nil, err
	}
	s.files = append(s.files, f)
	arrays, err := parseSafetensors(f, size)
	if err != nil {
		start := make([]byte, 2)
		f.ReadAt(start, 0) // a file that is too short is no pickle
		ext := filepath.Ext(path)
		if safeio.IsZip(f) || start[0] == 0x80 && start[1] <= 5 || ext == ".bin" || ext == ".pt" || ext == ".pth" {
			return nil, isPickle(filepath.Base(path))
		}
		return nil, fmt.Errorf("it is no safetensors file, or damaged: %w", err)
	}
	return arrays, nil
}

// readShards reads an index and the headers of its shards.
func (s *Safetensors) readShards() error {
	f, size, err := safeio.Open(s.path)
	if err != nil {
		return err
	}
	defer f.Close()
	if size > maxIndex {
		return fmt.Errorf("index: got %d bytes, want at most %d", size, maxIndex)
	}
	text, err := safeio.Read(f, int(size), "bytes of the index")
	if err != nil {
		return err
	}
	if err := safeio.JSON(text, maxTensorValues, 8); err != nil {
		return fmt.Errorf("index: %w", err)
	}
	var index struct {
		Of map[string]string `json:"weight_map"`
	}
	if err := json.Unmarshal(text, &index); err != nil {
		return fmt.Errorf("index: %w", err)
	}
	if len(index.Of) == 0 {
		return errors.New("index: it has no weight_map")
	}
	shards := map[string]map[string]array{}
	for _, name := range slices.Sorted(maps.Keys(index.Of)) {
		file := index.Of[name]
		if shards[file] == nil {
			if file == "" || file != filepath.Base(file) || safeio.Name(file) != nil {
				return fmt.Errorf("index: got a shard named %s, want a file of the same directory", safeio.Quote(file))
			}
			if len(shards) == maxShards {
				return fmt.Errorf("index: got more than %d shards", maxShards)
			}
			if shards[file], err = s.open(filepath.Join(filepath.Dir(s.path), file)); err != nil {
				return fmt.Errorf("shard %s: %w", safeio.Text(file), err)
			}
		}
		a, ok := shards[file][name]
		if !ok {
			return fmt.Errorf("shard %s has no tensor %s, which the index says it has", safeio.Text(file), safeio.Quote(name))
		}
		s.arrays[name] = a
	}
	for _, file := range slices.Sorted(maps.Keys(shards)) {
		for _, name := range slices.Sorted(maps.Keys(shards[file])) {
			if index.Of[name] != file {
				return fmt.Errorf("shard %s has a tensor %s, which the index does not list there", safeio.Text(file), safeio.Quote(name))
			}
		}
	}
	return nil
}

// Close closes the files.
func (s *Safetensors) Close() error {
	var all []error
	for _, f := range s.files {
		all = append(all, f.Close())
	}
	s.files = nil
	return errors.Join(all...)
}

// Names lists the tensors, sorted.
func (s *Safetensors) Names() []string { return slices.Sorted(maps.Keys(s.arrays)) }

// Has reports whether there is a tensor of this name.
func (s *Safetensors) Has(name string) bool {
	_, ok := s.arrays[name]
	return ok
}

// Type returns the element type and shape of a tensor.
func (s *Safetensors) Type(name string) (t op.Type, ok bool) {
	a, ok := s.arrays[name]
	return op.Type{DType: a.typ.DType, Shape: a.typ.Shape.Clone()}, ok
}

// Tensor reads a tensor.
func (s *Safetensors) Tensor(name string) (*keras.Tensor, error) {
	t, err := s.tensor(name)
	if err != nil {
		return nil, fileError(s.path, err)
	}
	return t, nil
}

func (s *Safetensors) tensor(name string) (*keras.Tensor, error) {
	a, ok := s.arrays[name]
	if !ok {
		return nil, fmt.Errorf("there is no tensor %s", safeio.Quote(name))
	}
	b, err := a.bytes()
	if err != nil {
		return nil, err
	}
	return tensor.FromBytes(a.typ, b), nil
}

// Source says which tensor of a file a weight is read from, and how its
// elements are arranged. The steps are done in the order of the fields.
type Source struct {
	Tensor string // name in the file; "": the weight has no source

	// With Parts > 0 the tensor is cut into Parts equal pieces along Axis, and
	// the source is piece number Part, from 0.
	Axis, Part, Parts int

	Transpose []int // axis i of the result is axis Transpose[i]; nil: as they are

	// Reshape allows other axes than the weight's for the same number of elements,
	// such as [768 768] for a kernel [768 12 64]. Elements keep their order.
	Reshape bool
}

// ImportOptions says how the tensors of a file become weights of a model.
type ImportOptions struct {
	// Source returns the source of a weight, by the weight's name. Default: the
	// tensor of this name.
	Source func(weight string) Source

	// Partial lets weights without a source, or whose source the file does not
	// have, keep their values. Otherwise such a weight is an error. It is always an
	// error if that leaves no weight at all to load.
	Partial bool
}

// ImportReport says what ImportSafetensors did.
type ImportReport struct {
	Loaded  []string // weights that were set, in the order of the model
	Missing []string // weights that kept their values, in the order of the model
	Unused  []string // tensors of the file that no weight was read from, sorted
}

// String returns one line with the counts and the first names.
func (r ImportReport) String() string {
	text := fmt.Sprintf("%d weights loaded", len(r.Loaded))
	for _, list := range []struct {
		what  string
		names []string
	}{{"not in the file", r.Missing}, {"tensors left over", r.Unused}} {
		if n := len(list.names); n > 0 {
			shown := list.names[:min(n, 4)]
			text += fmt.Sprintf("; %d %s: %s", n, list.what, strings.Join(shown, ", "))
			if n > len(shown) {
				text += ", …"
			}
		}
	}
	return text
}

// ImportSafetensors sets weights of a model, which must be built, from a
// safetensors file that another program wrote, with its names and layouts; path
// is as for [ReadSafetensors]. Shapes must agree. Elements are converted to the
// weights' types. If it returns an error no weight has changed.
func ImportSafetensors(path string, m *keras.Model, o ImportOptions) (ImportReport, error) {
	s, err := ReadSafetensors(path)
	if err != nil {
		return ImportReport{}, err
	}
	r, err := s.Import(m, o)
	return r, errors.Join(err, s.Close())
}

// Import is [ImportSafetensors] from an open file.
func (s *Safetensors) Import(m *keras.Model, o ImportOptions) (r ImportReport, err error) {
	if err := built(m); err != nil {
		return r, fileError(s.path, err)
	}
	var ws []*layers.Weight
	var data [][]byte
	used := map[string]bool{}
	for _, w := range m.Weights() {
		from := Source{Tensor: w.Name()}
		if o.Source != nil {
			from = o.Source(w.Name())
		}
		if !s.Has(from.Tensor) {
			if !o.Partial {
				return ImportReport{}, fileError(s.path, fmt.Errorf("there is no tensor %s for weight %s %v", safeio.Quote(from.Tensor), w.Name(), w.Type()))
			}
			r.Missing = append(r.Missing, w.Name())
			continue
		}
		b, err := s.elements(from, w)
		if err != nil {
			return ImportReport{}, fileError(s.path, fmt.Errorf("weight %s %v from tensor %s: %w", w.Name(), w.Type(), safeio.Quote(from.Tensor), err))
		}
		ws, data = append(ws, w), append(data, b)
		used[from.Tensor] = true
		r.Loaded = append(r.Loaded, w.Name())
	}
	if len(r.Loaded) == 0 && len(r.Missing) > 0 {
		return ImportReport{}, fileError(s.path, s.noMatch(r.Missing, o))
	}
	for _, name := range s.Names() {
		if !used[name] {
			r.Unused = append(r.Unused, name)
		}
	}
	if err := layers.SetBytesOf(ws, data); err != nil {
		return ImportReport{}, fileError(s.path, err)
	}
	return r, nil
}

// noMatch is the error for a file that has none of the weights.
func (s *Safetensors) noMatch(weights []string, o ImportOptions) error {
	show := func(names []string) string {
		text := fmt.Sprintf("%q", names[:min(len(names), 3)])
		if len(names) > 3 {
			text += ", …"
		}
		return safeio.Text(text)
	}
	wanted := weights
	if o.Source != nil {
		wanted = nil
		for _, w := range weights {
			if name := o.Source(w).Tensor; name != "" {
				wanted = append(wanted, name)
			}
		}
	}
	return fmt.Errorf("none of the %d weights is in the file: want tensors such as %s, got %s", len(weights), show(wanted), show(s.Names()))
}

// elements returns the elements of w as the source has them, in w's type.
func (s *Safetensors) elements(from Source, w *layers.Weight) (b []byte, err error) {
	defer tensor.Catch(&err)
	have, want := s.arrays[from.Tensor].typ.Shape, w.Shape()
	if from.Parts > 0 {
		if from.Axis < 0 || from.Axis >= len(have) || have[from.Axis]%from.Parts != 0 || from.Part < 0 || from.Part >= from.Parts {
			return nil, fmt.Errorf("got shape %v, want an axis %d of %d equal parts", have, from.Axis, from.Parts)
		}
		have = have.Clone()
		have[from.Axis] /= from.Parts
	}
	if from.Transpose != nil {
		turned := slices.Clone(from.Transpose)
		slices.Sort(turned)
		for i, a := range turned {
			if a != i || len(turned) != len(have) {
				return nil, fmt.Errorf("got shape %v, want one of the axes %v", have, from.Transpose)
			}
		}
		turnedShape := have.Clone()
		for i, a := range from.Transpose {
			turnedShape[i] = have[a]
		}
		have = turnedShape
	}
	if !have.Equal(want) && !(from.Reshape && have.Size() == want.Size()) {
		return nil, fmt.Errorf("got shape %v, want %v", have, want)
	}
	t, err := s.tensor(from.Tensor)
	if err != nil {
		return nil, err
	}
	if from.Parts > 0 {
		n := t.Dim(from.Axis) / from.Parts
		t = t.Slice(from.Axis, from.Part*n, (from.Part+1)*n)
	}
	if from.Transpose != nil {
		t = t.Transpose(from.Transpose...)
	}
	return t.Reshape(want...).Cast(w.DType()).Bytes()
}
