package saving

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/mezzo-ml/mezzo/keras/internal/hdf5"
	"github.com/mezzo-ml/mezzo/keras/internal/safeio"
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/layers/preprocessing"
)

// Where Keras has the class, and those of parts of its configs.
const (
	spaceClass    = "FeatureSpace"
	spaceModule   = "keras.src.layers.preprocessing.feature_space"
	spaceIdentity = "TFDIdentity" // its layer of features that stay as they are
)

// SaveFeatureSpace writes a FeatureSpace, which must be adapted if it has to be, as
// Keras's FeatureSpace.save does; path ends in ".keras". A model that begins with
// the layer needs no such file: Save includes it.
func SaveFeatureSpace(path string, s *preprocessing.FeatureSpace) error {
	if !strings.HasSuffix(path, ".keras") {
		return fmt.Errorf("saving: got file name %q, want one that ends in .keras, as Keras does", path)
	}
	description, root, vocabularies, err := describeSpace(s)
	if err != nil {
		return fileError(path, err)
	}
	return content{config: description, weights: root, vocabularies: vocabularies}.save(path)
}

// describeSpace returns the members of a file.
func describeSpace(s *preprocessing.FeatureSpace) (description []byte, root *hdf5.Group, vocabularies map[string]string, err error) {
	fail := func(err error) ([]byte, *hdf5.Group, map[string]string, error) { return nil, nil, nil, err }
	if err := s.Adapted(); err != nil {
		return fail(err)
	}
	if err := s.EnsureBuilt(); err != nil {
		return fail(err)
	}
	features, build, count := map[string]any{}, map[string]any{}, counter{}
	vocabularies = map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(s.Features)) {
		f, err := s.FeatureOf(name)
		if err != nil {
			return fail(err)
		}
		o, err := layerObject(f.Preprocessor)
		if err != nil {
			return fail(fmt.Errorf("feature %q: %w", name, err))
		}
		build[name] = map[string]any{"input_shape": []any{nil, 1}}
		if slices.Contains(withVocabulary, o.Class) {
			build[name] = map[string]any{}
		}
		if o.Class == "Identity" {
			o.Module, o.Class, o.RegisteredName = spaceModule, spaceIdentity, spaceIdentity
		}
		takeVocabulary(o, "preprocessors/"+count.next(o.Class), vocabularies)
		o.BuildConfig = build[name]
		if f.DType == "int64" {
			f.DType = "int32" // what Keras's own features of integers have
		}
		features[name] = &object{Module: spaceModule, Class: "Feature", RegisteredName: "Feature",
			Config: map[string]any{"dtype": f.DType, "preprocessor": o, "output_mode": f.OutputMode}}
	}
	c := layers.Defaults(*s)
	crosses := []any{}
	for _, x := range c.Crosses {
		if len(x.Features) != 2 {
			return fail(fmt.Errorf("cross %q has %d features, want 2: Keras has no other crosses", x.Name(), len(x.Features)))
		}
		if x.Dim == 0 {
			x.Dim = c.CrossingDim
		}
		if x.OutputMode == "" {
			x.OutputMode = "one_hot"
		}
		crosses = append(crosses, &object{Module: spaceModule, Class: "Cross", RegisteredName: "Cross",
			Config: map[string]any{"feature_names": x.Features, "crossing_dim": x.Dim, "output_mode": x.OutputMode}})
	}
	o := &object{Module: "keras.utils", Class: spaceClass, BuildConfig: build, Config: map[string]any{
		"features": features, "output_mode": c.OutputMode, "crosses": crosses, "crossing_dim": c.CrossingDim,
		"hashing_dim": c.HashingDim, "num_discretization_bins": c.NumDiscretizationBins}}
	if description, err = json.Marshal(o); err != nil {
		return fail(err)
	}
	all, err := placesOfSpace(s, slices.Sorted(maps.Keys(s.Features)))
	if err != nil {
		return fail(err)
	}
	if root, err = treeOf(all); err != nil {
		return fail(err)
	}
	return description, root, vocabularies, nil
}

// placesOfSpace lists what Keras writes for the layers of features, which are in the
// order of its config.
func placesOfSpace(s *preprocessing.FeatureSpace, names []string) ([]place, error) {
	w := &walk{found: []place{{name: "feature_space"}}, seen: map[layers.Layer]bool{}}
	count := counter{}
	for _, name := range names {
		f, err := s.FeatureOf(name)
		if err != nil {
			return nil, err
		}
		class := layers.Class(f.Preprocessor)
		if class == "Identity" {
			class = spaceIdentity
		}
		if err := w.layer("preprocessors/"+count.next(class), f.Preprocessor); err != nil {
			return nil, err
		}
	}
	return w.found, nil
}

// LoadFeatureSpace reads a file of SaveFeatureSpace or of Keras's FeatureSpace.save.
// Layers of features must be of classes that this module has. The space is built,
// and has what it had learned.
func LoadFeatureSpace(path string) (*preprocessing.FeatureSpace, error) {
	return opened(path, func(f *os.File, size int64) (*preprocessing.FeatureSpace, error) { return readSpace(path, f, size) })
}

func readSpace(path string, r io.ReaderAt, size int64) (*preprocessing.FeatureSpace, error) {
	a, err := openArchive(r, size)
	if err != nil {
		return nil, err
	}
	text, err := a.config(0)
	if err != nil {
		return nil, err
	}
	weights, n, err := a.weights()
	if err != nil {
		return nil, err
	}
	s, names, err := a.rebuildSpace(text, &weightFile{r: weights, size: n})
	if err == nil {
		err = s.EnsureBuilt()
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", configFile, err)
	}
	root, err := hdf5.Read(path+"/"+weightsFile, weights, n)
	if err == nil {
		err = setSpace(s, names, root)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", weightsFile, err)
	}
	return s, s.Adapted()
}

// setSpace sets the weights of a space from those of a file.
func setSpace(s *preprocessing.FeatureSpace, names []string, root *hdf5.Group) error {
	all, err := placesOfSpace(s, names)
	if err != nil {
		return err
	}
	saved, err := arraysAt(root, all, "the feature space")
	if err != nil {
		return err
	}
	ws := s.Weights()
	values, err := valuesOf(ws, saved)
	if err != nil {
		return err
	}
	data := make([][]byte, len(ws))
	for i, w := range ws {
		if data[i], err = values[i].Cast(w.DType()).Bytes(); err != nil {
			return err
		}
	}
	return layers.SetBytesOf(ws, data)
}

// rebuildSpace makes the space that config.json describes, and lists its features
// in the order that they have there, in which Keras counts their layers.
func (a *archive) rebuildSpace(text []byte, weights *weightFile) (*preprocessing.FeatureSpace, []string, error) {
	o, err := parseObject(text)
	if err != nil {
		return nil, nil, err
	}
	if o.Class != spaceClass {
		return nil, nil, fmt.Errorf("got an object of class %s, want %s; Load reads models", safeio.Quote(o.Class), spaceClass)
	}
	names, err := keysOf(text, "config", "features")
	if err != nil {
		return nil, nil, err
	}
	if len(names) > maxLayers {
		return nil, nil, fmt.Errorf("got %d features, want at most %d", len(names), maxLayers)
	}
	features, count := map[string]preprocessing.Feature{}, counter{}
	given, _ := o.Config["features"].(map[string]any)
	for _, name := range names {
		f, err := a.featureFrom(given[name], count, weights)
		if err != nil {
			return nil, nil, fmt.Errorf("feature %s: %w", safeio.Quote(name), err)
		}
		features[name] = f
	}
	rest := maps.Clone(o.Config)
	delete(rest, "features")
	crosses, _ := rest["crosses"].([]any)
	plain := make([]any, len(crosses))
	for i, x := range crosses {
		c, err := decode(x)
		if err != nil {
			return nil, nil, fmt.Errorf("crosses: entry %d: %w", i, err)
		}
		plain[i] = c.Config
	}
	rest["crosses"] = plain
	raw, err := json.Marshal(map[string]any{"class_name": spaceClass, "config": rest})
	if err != nil {
		return nil, nil, err
	}
	l, err := layers.UnmarshalConfig(raw)
	if err != nil {
		return nil, nil, err
	}
	s := l.(*preprocessing.FeatureSpace)
	s.Features = features
	return s, names, nil
}

// featureFrom makes a feature of Keras's object. count is of the layers of features
// before it.
func (a *archive) featureFrom(given any, count counter, weights *weightFile) (f preprocessing.Feature, err error) {
	o, err := decode(given)
	if err != nil {
		return f, err
	}
	for name, to := range map[string]*string{"dtype": &f.DType, "output_mode": &f.OutputMode} {
		if err := field(o.Config, name, to); err != nil {
			return f, err
		}
	}
	layer, err := decode(o.Config["preprocessor"])
	if err != nil {
		return f, fmt.Errorf("preprocessor: %w", err)
	}
	if err := a.giveVocabulary(layer.Config, layer.Class, "preprocessors/"+count.next(layer.Class), weights); err != nil {
		return f, err
	}
	if layer.Class == spaceIdentity {
		layer.Class = "Identity"
	}
	f.Preprocessor, err = fromKeras(layer, func(name string) string { return name })
	return f, err
}

// keysOf lists the keys of an object within others, by their names, in the order of
// the text.
func keysOf(text []byte, within ...string) ([]string, error) {
	for _, name := range within {
		var fields map[string]json.RawMessage
		if err := json.Unmarshal(text, &fields); err != nil {
			return nil, err
		}
		text = fields[name]
	}
	d := json.NewDecoder(bytes.NewReader(text))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, fmt.Errorf("%s: want an object", strings.Join(within, ": "))
	}
	var keys []string
	seen := map[string]bool{}
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return nil, err
		}
		name, _ := t.(string)
		if seen[name] {
			return nil, fmt.Errorf("%s: got %s twice", strings.Join(within, ": "), safeio.Quote(name))
		}
		keys, seen[name] = append(keys, name), true
		var skipped json.RawMessage
		if err := d.Decode(&skipped); err != nil {
			return nil, err
		}
	}
	return keys, nil
}
