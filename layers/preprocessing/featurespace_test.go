package preprocessing_test

import (
	"encoding/json"
	"math"
	"slices"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/op"
	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/backend/tensor/tensortest"
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/layers/layertest"
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

var _ = tensor.New[int64]
var _ = layertest.Run
