package preprocessing_test

import (
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/op"
	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/backend/tensor/tensortest"
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/layers/internal/stringhash"
	"github.com/mezzo-ml/mezzo/layers/preprocessing"
)

// spaceCase is the config of a case of featurespace.json.
type spaceCase struct {
	Features       map[string]preprocessing.Feature
	Crosses        []preprocessing.Cross
	OutputMode     string `json:"output_mode"`
	Adapt, Columns map[string]any
	Preprocessors  map[string]map[string]any
	Batch          int
}

// space is the FeatureSpace of a case.
func (c *spaceCase) space(t *testing.T) *preprocessing.FeatureSpace {
	for name, config := range c.Preprocessors {
		class := config["class_name"]
		delete(config, "class_name")
		raw, err := json.Marshal(map[string]any{"class_name": class, "config": config})
		if err != nil {
			t.Fatal(err)
		}
		f := c.Features[name]
		if f.Preprocessor, err = layers.UnmarshalConfig(raw); err != nil {
			t.Fatal(err)
		}
		c.Features[name] = f
	}
	return &preprocessing.FeatureSpace{Features: c.Features, Crosses: c.Crosses, OutputMode: c.OutputMode}
}

// columnsOf makes columns of decoded JSON, in which null is NaN.
func columnsOf(in map[string]any) preprocessing.Columns {
	out := preprocessing.Columns{}
	for name, v := range in {
		all, list := v.([]any)
		if !list {
			all = []any{v}
		}
		texts, floats, ints, whole := []string{}, []float64{}, []int{}, true
		for _, v := range all {
			switch v := v.(type) {
			case string:
				texts = append(texts, v)
			case nil:
				floats, whole = append(floats, math.NaN()), false
			case float64:
				floats, ints, whole = append(floats, v), append(ints, int(v)), whole && v == math.Trunc(v)
			}
		}
		switch {
		case len(texts) > 0 && list:
			out[name] = texts
		case len(texts) > 0:
			out[name] = texts[0]
		case whole && list:
			out[name] = ints
		case whole:
			out[name] = ints[0]
		case list:
			out[name] = floats
		default:
			out[name] = floats[0]
		}
	}
	return out
}

// compareSpace calls a space on the columns of a case.
func compareSpace(t *testing.T, s *preprocessing.FeatureSpace, c *tensortest.Case, given *spaceCase) {
	t.Helper()
	y, err := s.CallColumns(columnsOf(given.Columns))
	if err != nil {
		t.Fatal(err)
	}
	if given.OutputMode != "dict" {
		tensortest.Close(t, c.Name, y, c.Outputs["y"], 2)
		return
	}
	names, err := s.Names()
	if err != nil || len(names) != len(c.Outputs) || y.Len() != len(names) {
		t.Fatalf("got outputs %q and %d tensors, %v, want %d", names, y.Len(), err, len(c.Outputs))
	}
	for i, part := range y.Unpack() {
		want := c.Outputs[names[i]]
		if part.DType().IsFloat() {
			tensortest.Close(t, names[i], part, want, 8) // sums of tf_idf
			continue
		}
		got, err := part.Int64s()
		if err != nil || !slices.Equal(part.Shape(), want.Shape) {
			t.Fatalf("%s: got %v, %v, want shape %v", names[i], part.Type(), err, want.Shape)
		}
		for k, v := range got {
			if float64(v) != want.Data[k] {
				t.Errorf("%s: row %d: got %d, want %v", names[i], k, v, want.Data[k])
			}
		}
	}
}

// TestKerasFeatureSpace adapts spaces to tables and compares what they make of
// other rows, with missing values and ones that are not in the vocabularies.
func TestKerasFeatureSpace(t *testing.T) {
	for _, c := range tensortest.Load(t, golden+"featurespace.json").Cases {
		t.Run(c.Name, func(t *testing.T) {
			var given spaceCase
			raw, err := json.Marshal(c.Config)
			if err == nil {
				err = json.Unmarshal(raw, &given)
			}
			if err != nil {
				t.Fatal(err)
			}
			s := given.space(t)
			if given.Batch == 0 {
				err = s.Adapt(columnsOf(given.Adapt))
			} else {
				err = s.AdaptSeq(func(yield func(preprocessing.Columns, error) bool) {
					more := true
					for from := 0; more; from += given.Batch {
						part := map[string]any{}
						for name, v := range given.Adapt {
							all := v.([]any)
							part[name] = all[from:min(from+given.Batch, len(all))]
							more = from+given.Batch < len(all)
						}
						if !yield(columnsOf(part), nil) {
							return
						}
					}
				})
			}
			if err != nil {
				t.Fatal(err)
			}
			compareSpace(t, s, &c, &given)
		})
	}
}

// everySpace are the cases of everyLayer.
func everySpace() []layerCase {
	ids := op.Type{DType: dtype.Int64, Shape: op.Shape{3, 1}}
	make := func(mode string) func() layers.Layer {
		return func() layers.Layer {
			return &preprocessing.FeatureSpace{
				Features: map[string]preprocessing.Feature{
					"a": {Type: "float_normalized"},
					"b": {Type: "float_rescaled", Scale: new(0.5), Offset: 1},
					"c": {Type: "string_hashed"},
					"d": {Type: "integer_hashed", NumBins: 3},
					"e": {Preprocessor: &preprocessing.StringLookup{Vocabulary: words}, OutputMode: "one_hot"},
				},
				Crosses:    []preprocessing.Cross{{Features: []string{"e", "c"}}},
				OutputMode: mode,
			}
		}
	}
	in := []op.Type{f32(3, 1), f32(3, 1), ids, ids, ids, ids}
	return []layerCase{{"feature space", make(""), in}, {"feature space, dict", make("dict"), in}}
}

// TestFeatureSpaceErrors: each names the layer, the feature, and what is wanted.
func TestFeatureSpaceErrors(t *testing.T) {
	type features = map[string]preprocessing.Feature
	of := func(f preprocessing.Feature) *preprocessing.FeatureSpace {
		return &preprocessing.FeatureSpace{Features: features{"x": f}}
	}
	crossing := func(c preprocessing.Cross, more ...preprocessing.Cross) *preprocessing.FeatureSpace {
		return &preprocessing.FeatureSpace{Features: features{"a": {Type: "integer_hashed"}, "b": {Type: "string_hashed"}, "f": {Type: "float"}},
			Crosses: append(more, c)}
	}
	columns := preprocessing.Columns{"x": []float32{1, 2}, "a": []int{1, 2}, "b": []string{"u", "v"}, "f": []float64{1, 2}}
	for _, c := range []struct {
		space *preprocessing.FeatureSpace
		in    preprocessing.Columns
		want  string
	}{
		{&preprocessing.FeatureSpace{}, columns, `Features is empty, want at least one feature`},
		{of(preprocessing.Feature{}), columns, `feature "x": Type is empty, want one of ["float" "float_discretized" "float_normalized" "float_rescaled" "integer_categorical" "integer_hashed" "string_categorical" "string_hashed"], or a Preprocessor`},
		{of(preprocessing.Feature{Type: "float_normalised"}), columns, `feature "x": unknown Type "float_normalised"; did you mean "float_normalized"? have float, float_discretized, float_normalized, float_rescaled, integer_categorical, integer_hashed, string_categorical, string_hashed`},
		{of(preprocessing.Feature{Type: "float", OutputMode: "one_hot"}), columns, `feature "x": OutputMode is "one_hot" with Type "float", want one of ["float"]`},
		{of(preprocessing.Feature{Type: "float", Scale: new(2.)}), columns, `feature "x": Scale or Offset is set with Type "float", want float_rescaled for them`},
		{of(preprocessing.Feature{Type: "float", NumBins: 2}), columns, `feature "x": NumBins is set with Type "float", want float_discretized or a hashed type for it`},
		{of(preprocessing.Feature{Type: "float", BinBoundaries: []float64{1}}), columns, `feature "x": BinBoundaries is set with Type "float", want float_discretized for it`},
		{of(preprocessing.Feature{Type: "float_discretized", BinBoundaries: []float64{1}, NumBins: 2}), columns, `feature "x": NumBins and BinBoundaries are set, want one of them`},
		{of(preprocessing.Feature{Type: "string_hashed", NumBins: -1}), columns, `feature "x": NumBins is -1, want a positive number`},
		{of(preprocessing.Feature{Type: "string_hashed", MaxTokens: 4}), columns, `feature "x": MaxTokens or NumOOVIndices is set with Type "string_hashed", want a categorical type for them`},
		{of(preprocessing.Feature{Type: "string_hashed", OutputMode: "int"}), columns, `feature "x": OutputMode is int, want one_hot, or dict as OutputMode of the space`},
		{of(preprocessing.Feature{Type: "float", Preprocessor: &layers.Identity{}}), columns, `feature "x": Type is "float" with a Preprocessor, want none with it`},
		{of(preprocessing.Feature{Type: "float", DType: "int32"}), columns, `feature "x": DType is "int32" with Type "float", want it with a Preprocessor alone`},
		{of(preprocessing.Feature{Preprocessor: &layers.Identity{}}), columns, `feature "x": OutputMode is "", want one_hot, int or float`},
		{of(preprocessing.Feature{Preprocessor: &layers.Identity{}, OutputMode: "float", DType: "bool"}), columns, `feature "x": DType is "bool", want string, int32, int64 or float32`},
		{of(preprocessing.Feature{Preprocessor: &preprocessing.StringLookup{}, OutputMode: "one_hot", DType: "int32"}), columns, `feature "x": DType is int64 with a layer of class StringLookup, want string with layers for strings alone`},
		{of(preprocessing.Feature{Preprocessor: &layers.Identity{}, OutputMode: "one_hot"}), columns, `feature "x": a layer of class Identity: OutputMode is one_hot and the number of categories of the layer is not known, want float or int, or a layer with categories`},
		{&preprocessing.FeatureSpace{Features: features{"a/b": {Type: "float"}}}, columns, `feature "a/b": want a name without slashes`},
		{&preprocessing.FeatureSpace{Features: features{"x": {Type: "float"}}, HashingDim: -1}, columns, `HashingDim is -1, want a positive number`},
		{&preprocessing.FeatureSpace{Features: features{"x": {Type: "float"}}, OutputMode: "list"}, columns, `OutputMode is "list", want concat or dict`},
		{crossing(preprocessing.Cross{Features: []string{"a"}}), columns, `Crosses[0] "a": got 1 features, want at least 2`},
		{crossing(preprocessing.Cross{Features: []string{"a", "z"}}), columns, `Crosses[0] "a_X_z": there is no feature "z", want names of Features`},
		{crossing(preprocessing.Cross{Features: []string{"a", "f"}}), columns, `Crosses[0] "a_X_f": feature "f" has no indices, want features that are categorical, hashed or discretized`},
		{crossing(preprocessing.Cross{Features: []string{"a", "b"}, Dim: -2}), columns, `Crosses[0] "a_X_b": Dim is -2, want a positive number`},
		{crossing(preprocessing.Cross{Features: []string{"a", "b"}, OutputMode: "int"}), columns, `Crosses[0] "a_X_b": OutputMode is "int", want one_hot, or int if that of the space is dict`},
		{crossing(preprocessing.Cross{Features: []string{"a", "b"}}, preprocessing.Cross{Features: []string{"a", "b"}}), columns, `Crosses[1] "a_X_b": it is there twice, want each cross once`},
		{of(preprocessing.Feature{Type: "float_normalized"}), columns, `feature "x": the layer Normalization has learned nothing, want Adapt before the space is used`},
		{of(preprocessing.Feature{Type: "string_categorical"}), columns, `feature "x": the layer StringLookup has learned nothing, want Adapt before the space is used`},
		{of(preprocessing.Feature{Type: "string_hashed"}), columns, `column "x": got []float32, want []string`},
		{of(preprocessing.Feature{Type: "integer_hashed"}), columns, `column "x": got []float32, want []int64 or other integers`},
		{of(preprocessing.Feature{Type: "float"}), preprocessing.Columns{"x": "text"}, `column "x": got strings [], want []float32 or other numbers`},
		{of(preprocessing.Feature{Type: "float"}), preprocessing.Columns{"x": tensor.Zeros(dtype.Float32, 3, 2)}, `column "x": got float32[3 2], want []float32 or other numbers of shape [n] or [n 1]`},
		{of(preprocessing.Feature{Type: "float"}), preprocessing.Columns{"y": 1}, `there is no column "x", want one for each feature; have ["y"]`},
		{crossing(preprocessing.Cross{Features: []string{"a", "b"}}), preprocessing.Columns{"a": []int{1}, "b": []string{"u", "v"}, "f": []float64{1}}, `column "b" has 2 rows, want 1 rows as column "a"`},
		{crossing(preprocessing.Cross{Features: []string{"a", "b"}}), preprocessing.Columns{"a": []int{1}, "b": "u", "f": []float64{1}}, `column "b" has a value, want 1 rows as column "a"`},
	} {
		if _, err := c.space.Encode(c.in); err == nil || err.Error() != "layer feature_space: Encode: "+c.want {
			t.Errorf("got error %v\nwant layer feature_space: Encode: %s", err, c.want)
		}
	}
	for want, c := range map[string]struct {
		space *preprocessing.FeatureSpace
		in    preprocessing.Columns
	}{
		`feature "x": row 33 is NaN, want numbers; give missing values one, or leave such rows out`: {of(preprocessing.Feature{Type: "float_normalized"}), preprocessing.Columns{"x": append(make([]float64, 33), math.NaN())}},
		`got no rows, want some`:                      {of(preprocessing.Feature{Type: "float_normalized"}), preprocessing.Columns{"x": []float64{}}},
		`feature "x": got 1 numbers, want at least 2`: {of(preprocessing.Feature{Type: "float_discretized"}), preprocessing.Columns{"x": []float64{1}}},
		`feature "x": NumBins is 1, want at least 2`:  {of(preprocessing.Feature{Type: "float_discretized", NumBins: 1}), columns},
	} {
		if err := c.space.Adapt(c.in); err == nil || err.Error() != "layer feature_space: Adapt: "+want {
			t.Errorf("got error %v\nwant layer feature_space: Adapt: %s", err, want)
		}
	}
	s := of(preprocessing.Feature{Type: "float_normalized"})
	if err := errors.Join(s.Adapt(columns), s.Adapt(columns)); err == nil || err.Error() != "layer feature_space: Adapt: the layer is in use, want Adapt before that" {
		t.Errorf("got error %v, want one that the layer is in use", err)
	}
	hot := of(preprocessing.Feature{Preprocessor: &preprocessing.StringLookup{Vocabulary: words, OutputMode: "one_hot"}, OutputMode: "int"})
	hot.OutputMode = "dict"
	if _, err := hot.CallColumns(preprocessing.Columns{"x": []string{"a"}}); err == nil || !strings.Contains(err.Error(), `feature "x": got float32[1 5] of its layer, want OutputMode float for floats alone`) {
		t.Errorf("got error %v, want one of the mode", err)
	}
}

// TestGivenState: features whose state is given keep it, and crosses may be of three
// features; bins on the host are those of the layer.
func TestGivenState(t *testing.T) {
	s := &preprocessing.FeatureSpace{
		Features: map[string]preprocessing.Feature{
			"a": {Type: "float_discretized", BinBoundaries: []float64{0.1, 1, 2}, OutputMode: "int"},
			"b": {Preprocessor: &preprocessing.StringLookup{Vocabulary: []string{"u", "v"}}, OutputMode: "int"},
			"c": {Type: "integer_categorical", OutputMode: "int"},
		},
		Crosses:    []preprocessing.Cross{{Features: []string{"c", "a", "b"}, Dim: 1000, OutputMode: "int"}},
		OutputMode: "dict",
	}
	in := preprocessing.Columns{"a": []float64{0.1, 0.0999, 2, math.NaN()}, "b": tensorStrings("v", "w", "u", ""), "c": []int{5, 6, 5, 7}}
	if err := s.Adapt(preprocessing.Columns{"a": []float64{math.NaN()}, "b": []string{"x"}, "c": []int{5}}); err != nil {
		t.Fatal(err)
	}
	y, err := s.CallColumns(in)
	if err != nil {
		t.Fatal(err)
	}
	names, _ := s.Names()
	if want := []string{"a", "b", "c", "c_X_a_X_b"}; !slices.Equal(names, want) {
		t.Errorf("got names %q, want %q", names, want)
	}
	var columns [][]int64
	for i, want := range [][]int64{{1, 0, 3, 3}, {2, 0, 1, 0}, {1, 0, 1, 0}} {
		got, err := y.Unpack()[i].Int64s()
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: got %v, %v, want %v", names[i], got, err, want)
		}
		columns = append(columns, got)
	}
	got, err := y.Unpack()[3].Int64s()
	if err != nil {
		t.Fatal(err)
	}
	for r, bin := range got {
		cross := uint64(0xDECAFCAFFE)
		for _, k := range []int{2, 0, 1} {
			cross = stringhash.Cat64(cross, uint64(columns[k][r]))
		}
		if bin != int64(cross%1000) {
			t.Errorf("row %d: got bin %d, want %d", r, bin, cross%1000)
		}
	}
	// Several goroutines may encode.
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			if _, err := s.Encode(in); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

// tensorStrings are strings of shape [n 1].
func tensorStrings(s ...string) preprocessing.Strings {
	return preprocessing.Strings{Data: s, Shape: layers.Shape{len(s), 1}}
}
