package preprocessing

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/op"
	"github.com/mezzo-ml/mezzo/backend/suggest"
	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/layers/internal/support"
)

// FeatureSpace encodes the columns of a table: each feature by a preprocessing
// layer of its own, and crosses, which hash combinations of features (Keras:
// keras.utils.FeatureSpace).
//
//	space := &preprocessing.FeatureSpace{
//		Features: map[string]preprocessing.Feature{
//			"age":  {Type: "float_normalized"},
//			"sex":  {Type: "integer_categorical", NumOOVIndices: new(0)},
//			"thal": {Type: "string_categorical"},
//		},
//		Crosses: []preprocessing.Cross{{Features: []string{"sex", "thal"}}},
//	}
//	err := space.Adapt(preprocessing.Columns{"age": ages, "sex": sexes, "thal": thals})
//	model := keras.Sequential(space, &layers.Dense{Units: 1})
//	x, err := space.Encode(columns) // in Pipeline.Map, or before Fit and Predict
//
// Tensors hold numbers only, so there are two steps, as with [StringEncoder]:
// Encode makes numbers of strings and hashes crosses on the host, and the layer
// in the model does the rest. CallColumns is both at once. One file of a model
// that begins with the layer, or one of saving.SaveFeatureSpace, holds what Adapt
// learned.
//
// Shapes: a tuple of one tensor for each feature and then for each cross, both in
// the order of their names, each [batch 1] → concat: [batch size], features and
// then crosses in this order; dict: a tuple in the order of Names.
// Weights: those of Normalization layers, not trainable.
//
// Where a feature has a missing value: "" is a string like others, and NaN is
// encoded as NaN by float types, and as the last bin by float_discretized. Adapt
// refuses NaN.
type FeatureSpace struct {
	Features              map[string]Feature // by their names; required
	Crosses               []Cross
	OutputMode            string `default:"concat"` // or dict
	CrossingDim           int    `default:"32"`     // of crosses without Dim
	HashingDim            int    `default:"32"`     // NumBins of hashed features without it
	NumDiscretizationBins int    `default:"32"`     // NumBins of float_discretized without it
	Name, DType           string

	// Preprocessors has the layer of each feature, in the order of their names.
	// Default: those that Features describe. Adapt and reading a file set it.
	Preprocessors []layers.Layer

	layers.Base
	prepared *preparedFeatures
	learned  bool // by Adapt
}

// Feature says how a column of a table is encoded.
type Feature struct {
	// Type is one of Keras's:
	//
	//   - float: as it is; float_rescaled: by Rescaling; float_normalized: by
	//     Normalization; float_discretized: by Discretization;
	//   - string_categorical, integer_categorical: by StringLookup, IntegerLookup;
	//   - string_hashed, integer_hashed: by Hashing.
	//
	// Features with a Preprocessor have none.
	Type string `json:"type,omitempty"`

	// OutputMode is one_hot or int; for the first three types, and other layers
	// that return floats, float. Default: float for the first three types, else
	// one_hot; with a Preprocessor it is required. A feature with int needs the
	// space's OutputMode dict.
	OutputMode string `json:"output_mode,omitempty"`

	Scale         *float64  `json:"scale,omitempty"`           // of float_rescaled; default: 1
	Offset        float64   `json:"offset,omitempty"`          // of float_rescaled
	NumBins       int       `json:"num_bins,omitempty"`        // of float_discretized and hashed types; default: of the space
	BinBoundaries []float64 `json:"bin_boundaries,omitempty"`  // of float_discretized instead of NumBins; default: from Adapt
	MaxTokens     int       `json:"max_tokens,omitempty"`      // of categorical types; default: any
	NumOOVIndices *int      `json:"num_oov_indices,omitempty"` // of categorical types; default: 1

	// Preprocessor encodes the feature in another way (Keras: FeatureSpace.feature),
	// such as TextVectorization. Adapt adapts it if it is one of the layers above, or
	// TextVectorization, and its state is not given.
	Preprocessor layers.Layer `json:"-"`
	// DType is the type of the column of a feature with a Preprocessor: string,
	// int64 (or int32) or float32. Default: string for a StringEncoder, else float32.
	DType string `json:"dtype,omitempty"`
}

// Cross hashes combinations of features, each with OutputMode one_hot or int, to
// bins, as HashedCrossing does. What is hashed are the indices that the
// preprocessing layers make.
type Cross struct {
	Features   []string `json:"feature_names"`         // two or more
	Dim        int      `json:"crossing_dim"`          // bins; default: CrossingDim of the space
	OutputMode string   `json:"output_mode,omitempty"` // one_hot (default) or int
}

// Name returns the names of the features with "_X_" between them.
func (c Cross) Name() string { return strings.Join(c.Features, "_X_") }

// featureTypes lists Feature.Type with the columns they are of.
var featureTypes = map[string]string{
	"float": floatColumn, "float_rescaled": floatColumn, "float_normalized": floatColumn, "float_discretized": floatColumn,
	"integer_categorical": integerColumn, "integer_hashed": integerColumn,
	"string_categorical": stringColumn, "string_hashed": stringColumn,
}

// Kinds of columns.
const (
	stringColumn  = "string"
	integerColumn = "int64"
	floatColumn   = "float32"
)

// preparedFeatures is what the fields of a FeatureSpace say, checked.
type preparedFeatures struct {
	features []*feature // sorted by name
	crosses  []*cross   // sorted by name
}

type feature struct {
	name, column, mode string
	layer              layers.Layer
}

type cross struct {
	Cross
	of []int // indices of features
}

// spaces guards the field prepared: Encode may run in several goroutines.
var spaces sync.Mutex

// Config returns the fields Name and DType.
func (s *FeatureSpace) Config() layers.Config { return layers.Config{Name: s.Name, DType: s.DType} }

// prepare checks the fields, once, and makes the preprocessors.
func (s *FeatureSpace) prepare() (*preparedFeatures, error) {
	spaces.Lock()
	defer spaces.Unlock()
	if s.prepared != nil {
		return s.prepared, nil
	}
	c := layers.Defaults(*s)
	if len(s.Features) == 0 {
		return nil, errors.New("Features is empty, want at least one feature")
	}
	if c.OutputMode != "concat" && c.OutputMode != "dict" {
		return nil, fmt.Errorf("OutputMode is %q, want concat or dict", c.OutputMode)
	}
	for name, n := range map[string]int{"CrossingDim": c.CrossingDim, "HashingDim": c.HashingDim, "NumDiscretizationBins": c.NumDiscretizationBins} {
		if err := support.Positive(name, n); err != nil {
			return nil, err
		}
	}
	if n := len(s.Preprocessors); n > 0 && n != len(s.Features) {
		return nil, fmt.Errorf("Preprocessors has %d layers, want one for each of the %d features", n, len(s.Features))
	}
	p := &preparedFeatures{}
	made := make([]layers.Layer, 0, len(s.Features))
	for i, name := range slices.Sorted(maps.Keys(s.Features)) {
		given := s.Features[name].Preprocessor
		if len(s.Preprocessors) > 0 {
			if given = s.Preprocessors[i]; given == nil {
				return nil, fmt.Errorf("Preprocessors[%d] is nil, want the layer of feature %q", i, name)
			}
		}
		f, err := c.feature(name, s.Features[name], given)
		if err == nil && c.OutputMode == "concat" && f.mode == "int" {
			err = errors.New("OutputMode is int, want one_hot, or dict as OutputMode of the space")
		}
		if err != nil && len(s.Preprocessors) > 0 {
			err = fmt.Errorf("Preprocessors[%d]: %w", i, err)
		}
		if err != nil {
			return nil, fmt.Errorf("feature %q: %w", name, err)
		}
		p.features, made = append(p.features, f), append(made, f.layer)
	}
	if err := p.cross(c); err != nil {
		return nil, err
	}
	s.Preprocessors, s.prepared = made, p
	return p, nil
}

// feature checks one feature. given is its layer, if there is one.
func (s FeatureSpace) feature(name string, f Feature, given layers.Layer) (*feature, error) {
	if name == "" || strings.Contains(name, "/") {
		return nil, errors.New("want a name without slashes")
	}
	out := &feature{name: name, mode: f.OutputMode, layer: given}
	if f.Preprocessor != nil && f.Type != "" {
		return nil, fmt.Errorf("Type is %q with a Preprocessor, want none with it", f.Type)
	}
	if f.Type == "" && given == nil {
		return nil, fmt.Errorf("Type is empty, want one of %q, or a Preprocessor", slices.Sorted(maps.Keys(featureTypes)))
	}
	var err error
	if f.Type != "" {
		err = out.typed(s, f)
	} else {
		err = out.custom(f)
	}
	if err != nil {
		return nil, err
	}
	if out.mode == "one_hot" {
		if _, err := cardinality(out.layer); errors.Is(err, errNoCardinality) {
			return nil, err
		}
	}
	return out, nil
}

// typed makes the layer of a Type, unless it is given.
func (out *feature) typed(s FeatureSpace, f Feature) error {
	column, ok := featureTypes[f.Type]
	if !ok {
		return suggest.Unknown("Type", f.Type, slices.Sorted(maps.Keys(featureTypes)))
	}
	out.column = column
	if f.DType != "" {
		return fmt.Errorf("DType is %q with Type %q, want it with a Preprocessor alone", f.DType, f.Type)
	}
	categories, bins := strings.HasSuffix(f.Type, "_categorical"), f.NumBins
	modes := []string{"one_hot", "int"}
	switch f.Type {
	case "float", "float_rescaled", "float_normalized":
		modes = []string{"float"}
	}
	if out.mode == "" {
		out.mode = modes[0]
	}
	rescaled, discretized, hashed := f.Type == "float_rescaled", f.Type == "float_discretized", strings.HasSuffix(f.Type, "_hashed")
	switch {
	case !slices.Contains(modes, out.mode):
		return fmt.Errorf("OutputMode is %q with Type %q, want one of %q", out.mode, f.Type, modes)
	case !rescaled && (f.Scale != nil || f.Offset != 0):
		return fmt.Errorf("Scale or Offset is set with Type %q, want float_rescaled for them", f.Type)
	case !discretized && len(f.BinBoundaries) > 0:
		return fmt.Errorf("BinBoundaries is set with Type %q, want float_discretized for it", f.Type)
	case !discretized && !hashed && f.NumBins != 0:
		return fmt.Errorf("NumBins is set with Type %q, want float_discretized or a hashed type for it", f.Type)
	case discretized && f.NumBins != 0 && len(f.BinBoundaries) > 0:
		return errors.New("NumBins and BinBoundaries are set, want one of them")
	case f.NumBins < 0:
		return fmt.Errorf("NumBins is %d, want a positive number", f.NumBins)
	case !categories && (f.MaxTokens != 0 || f.NumOOVIndices != nil):
		return fmt.Errorf("MaxTokens or NumOOVIndices is set with Type %q, want a categorical type for them", f.Type)
	}
	if out.layer != nil {
		return nil
	}
	name := out.name + "_preprocessor"
	switch f.Type {
	case "float":
		out.layer = &layers.Identity{Name: name}
	case "float_rescaled":
		scale := 1.
		if f.Scale != nil {
			scale = *f.Scale
		}
		out.layer = &Rescaling{Scale: scale, Offset: f.Offset, Name: name}
	case "float_normalized":
		out.layer = &Normalization{Name: name}
	case "float_discretized":
		if bins == 0 && len(f.BinBoundaries) == 0 {
			bins = s.NumDiscretizationBins
		}
		out.layer = &Discretization{NumBins: bins, BinBoundaries: f.BinBoundaries, Name: name}
	case "integer_categorical":
		out.layer = &IntegerLookup{MaxTokens: f.MaxTokens, NumOOVIndices: f.NumOOVIndices, Name: name}
	case "string_categorical":
		out.layer = &StringLookup{MaxTokens: f.MaxTokens, NumOOVIndices: f.NumOOVIndices, Name: name}
	default:
		if bins == 0 {
			bins = s.HashingDim
		}
		out.layer = &Hashing{NumBins: bins, Name: name}
	}
	return nil
}

// custom checks a feature with a layer and without a Type.
func (out *feature) custom(f Feature) error {
	_, encodes := out.layer.(StringEncoder)
	switch out.column = f.DType; {
	case f.DType == "" && encodes:
		out.column = stringColumn
	case f.DType == "":
		out.column = floatColumn
	case f.DType == "int32":
		out.column = integerColumn
	}
	_, hashes := out.layer.(*Hashing)
	switch {
	case !slices.Contains([]string{stringColumn, integerColumn, floatColumn}, out.column):
		return fmt.Errorf("DType is %q, want string, int32, int64 or float32", f.DType)
	case encodes != (out.column == stringColumn) && !(hashes && out.column == integerColumn):
		return fmt.Errorf("DType is %s with a layer of class %s, want string with layers for strings alone", out.column, layers.Class(out.layer))
	case !slices.Contains([]string{"one_hot", "int", "float"}, out.mode):
		return fmt.Errorf("OutputMode is %q, want one_hot, int or float", out.mode)
	}
	return nil
}

// cross checks the crosses of s, which has its defaults.
func (p *preparedFeatures) cross(s FeatureSpace) error {
	for i, given := range s.Crosses {
		c := &cross{Cross: given}
		fail := func(format string, args ...any) error {
			return fmt.Errorf("Crosses[%d] %q: %w", i, c.Name(), fmt.Errorf(format, args...))
		}
		if c.Dim == 0 {
			c.Dim = s.CrossingDim
		}
		if c.OutputMode == "" {
			c.OutputMode = "one_hot"
		}
		switch {
		case len(c.Features) < 2:
			return fail("got %d features, want at least 2", len(c.Features))
		case c.Dim < 0:
			return fail("Dim is %d, want a positive number", c.Dim)
		case c.OutputMode != "one_hot" && (c.OutputMode != "int" || s.OutputMode == "concat"):
			return fail("OutputMode is %q, want one_hot, or int if that of the space is dict", c.OutputMode)
		case slices.ContainsFunc(p.crosses, func(x *cross) bool { return x.Name() == c.Name() }):
			return fail("it is there twice, want each cross once")
		}
		for _, name := range c.Features {
			k := slices.IndexFunc(p.features, func(f *feature) bool { return f.name == name })
			if k < 0 {
				return fail("there is no feature %q, want names of Features", name)
			}
			f := p.features[k]
			if f.mode == "float" || !f.indexed() {
				return fail("feature %q has no indices, want features that are categorical, hashed or discretized", name)
			}
			c.of = append(c.of, k)
		}
		p.crosses = append(p.crosses, c)
	}
	slices.SortFunc(p.crosses, func(a, b *cross) int { return strings.Compare(a.Name(), b.Name()) })
	return nil
}

// Names lists the outputs in their order: the features and then the crosses,
// each sorted.
func (s *FeatureSpace) Names() ([]string, error) {
	p, err := s.prepare()
	if err != nil {
		return nil, fmt.Errorf("layer %s: %w", layerLabel(s), err)
	}
	return p.names(), nil
}

func (p *preparedFeatures) names() (all []string) {
	for _, f := range p.features {
		all = append(all, f.name)
	}
	for _, c := range p.crosses {
		all = append(all, c.Name())
	}
	return all
}

// FeatureOf returns the feature of this name as the space encodes it: with its
// layer, the type of its column and its OutputMode, and without a Type (Keras:
// FeatureSpace.preprocessors).
func (s *FeatureSpace) FeatureOf(name string) (Feature, error) {
	p, err := s.prepare()
	if err == nil {
		for _, f := range p.features {
			if f.name == name {
				return Feature{Preprocessor: f.layer, DType: f.column, OutputMode: f.mode}, nil
			}
		}
		err = fmt.Errorf("there is no feature %q, want one of %q", name, slices.Sorted(maps.Keys(s.Features)))
	}
	return Feature{}, fmt.Errorf("layer %s: %w", layerLabel(s), err)
}

// InputTypes returns the types of the tensors that Encode returns for batches of
// any size: what the layer takes in a model.
func (s *FeatureSpace) InputTypes() ([]op.Type, error) {
	p, err := s.prepare()
	if err != nil {
		return nil, fmt.Errorf("layer %s: %w", layerLabel(s), err)
	}
	types := make([]op.Type, 0, len(p.features)+len(p.crosses))
	for _, f := range p.features {
		t := op.Type{DType: dtype.Int64, Shape: op.Shape{op.Unknown, 1}}
		if f.column == floatColumn {
			t.DType = dtype.Float32
		}
		if _, ok := f.layer.(*TextVectorization); ok {
			t.Shape[1] = op.Unknown
		}
		types = append(types, t)
	}
	for range p.crosses {
		types = append(types, op.Type{DType: dtype.Int64, Shape: op.Shape{op.Unknown, 1}})
	}
	return types, nil
}

// errNoCardinality is an error for layers without a known number of categories.
var errNoCardinality = errors.New("OutputMode is one_hot and the number of categories of the layer is not known, want float or int, or a layer with categories")

// cardinality is the number of categories of a layer's result.
func cardinality(l layers.Layer) (int, error) {
	switch l := l.(type) {
	case *StringLookup:
		t, err := l.table()
		if err != nil {
			return 0, err
		}
		return t.size, nil
	case *IntegerLookup:
		t, err := l.lookup().cached(&l.kept)
		if err != nil {
			return 0, err
		}
		return t.size, nil
	case *Discretization:
		// With fewer numbers than bins Adapt finds fewer boundaries. Keras's vectors
		// have NumBins places all the same.
		return max(l.NumBins, len(l.BinBoundaries)+1), nil
	case *Hashing:
		return l.NumBins, nil
	}
	return 0, fmt.Errorf("a layer of class %s: %w", layers.Class(l), errNoCardinality)
}

// Build checks the fields and adds the layers of the features.
func (s *FeatureSpace) Build(in ...layers.Shape) error {
	p, err := s.prepare()
	if err != nil {
		return err
	}
	s.SetAutocast(false) // raw numbers need not fit into 16 bits
	if err := s.CheckInput(in...); err != nil {
		return err
	}
	for _, f := range p.features {
		if r, ok := f.layer.(*Rescaling); ok && r.DType == "" && s.ComputeDType().Size() < dtype.Float32.Size() {
			r.DType = "float32" // or it would round the numbers before it rescales them
		}
		s.AddLayer(f.name+"_preprocessor", f.layer)
		if f.mode == "one_hot" {
			if _, err := cardinality(f.layer); err != nil {
				return fmt.Errorf("feature %q: %w", f.name, err)
			}
		}
	}
	return nil
}

// CheckInput requires one input for each feature and each cross.
func (s *FeatureSpace) CheckInput(in ...layers.Shape) error {
	p, err := s.prepare()
	if err != nil {
		return err
	}
	names := p.names()
	if len(in) != len(names) {
		return fmt.Errorf("got %d inputs, want %d, those that Encode makes of %q", len(in), len(names), names)
	}
	for i, shape := range in {
		column := i >= len(p.features)
		if !column {
			switch p.features[i].layer.(type) {
			case *layers.Identity, *Rescaling, *Normalization, *Discretization, *StringLookup, *IntegerLookup, *Hashing:
				column = true
			}
		}
		if len(shape) != 2 || column && shape[1] != 1 && shape[1] != tensor.Unknown {
			return fmt.Errorf("input %d, %q, is %v, want [batch 1], as Encode returns it", i, names[i], shape)
		}
	}
	return nil
}

// Call computes the layer on x, what Encode returned.
func (s *FeatureSpace) Call(pass layers.Pass, x *tensor.Tensor) *tensor.Tensor {
	p, err := s.prepare()
	if err != nil {
		tensor.Fail("Call", "%w", err)
	}
	d, parts := s.ComputeDType(), x.Unpack()
	var out []*tensor.Tensor
	encoded := func(name, mode string, y *tensor.Tensor, n int) {
		switch {
		case mode == "one_hot":
			y = encoding{mode: "multi_hot", n: n}.of(support.Indices(y), nil, d)
		case mode == "float" && !y.DType().IsFloat() || mode == "int" && y.DType().IsFloat():
			tensor.Fail("Call", "feature %q: got %v of its layer, want OutputMode %s for floats alone", name, y.Type(), "float")
		case mode == "float":
			y = y.Cast(d)
		}
		out = append(out, y)
	}
	for i, f := range p.features {
		n := 0
		if f.mode == "one_hot" {
			if n, err = cardinality(f.layer); err != nil {
				tensor.Fail("Call", "feature %q: %w", f.name, err)
			}
		}
		encoded(f.name, f.mode, layers.Apply(f.layer, pass, parts[i]), n)
	}
	for i, c := range p.crosses {
		encoded(c.Name(), c.OutputMode, integers(parts[len(p.features)+i]), c.Dim)
	}
	if layers.Defaults(*s).OutputMode == "dict" {
		return tensor.Tuple(out...)
	}
	return tensor.Concat(-1, out...)
}
