package saving_test

import (
	"archive/zip"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/saving"
	"github.com/mezzo-ml/mezzo/layers/preprocessing"
)

// TestVocabularies reads a model of Keras whose layers learned vocabularies,
// writes it, and reads that: all three make the same of words and texts.
func TestVocabularies(t *testing.T) {
	var want struct {
		Words, Texts  []string
		Numbers       []int64
		Output        []float64
		Learned, Text []string
		Integers      []int64
	}
	text, err := os.ReadFile("testdata/vocabulary.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &want); err != nil {
		t.Fatal(err)
	}
	path, _ := golden(t, "vocabulary")
	again := filepath.Join(t.TempDir(), "again.keras")
	for _, file := range []string{path, again} {
		m, err := saving.Load(file)
		if err != nil {
			t.Fatal(err)
		}
		var learned, given *preprocessing.StringLookup
		var words *preprocessing.TextVectorization
		var integers *preprocessing.IntegerLookup
		for _, l := range m.Layers() {
			switch l := l.(type) {
			case *preprocessing.StringLookup:
				if l.OutputMode == "multi_hot" {
					given = l
				} else {
					learned = l
				}
			case *preprocessing.TextVectorization:
				words = l
			case *preprocessing.IntegerLookup:
				integers = l
			}
		}
		if got, err := learned.Tokens(); err != nil || !slices.Equal(got, want.Learned) {
			t.Errorf("%s: got %q, %v, want %q", learned.LayerName(), got, err, want.Learned)
		}
		if got, err := words.Tokens(); err != nil || !slices.Equal(got, want.Text) {
			t.Errorf("%s: got %q, %v, want %q", words.LayerName(), got, err, want.Text)
		}
		if got, err := integers.Tokens(); err != nil || !slices.Equal(got, want.Integers) {
			t.Errorf("%s: got %v, %v, want %v", integers.LayerName(), got, err, want.Integers)
		}
		encode := func(l preprocessing.StringEncoder, s []string, shape ...int) *keras.Tensor {
			ids, err := l.Encode(preprocessing.Strings{Data: s, Shape: shape})
			if err != nil {
				t.Fatal(err)
			}
			return ids
		}
		y, err := m.Call(keras.Tuple(encode(learned, want.Words, 3, 3), encode(given, want.Words, 3, 3),
			encode(words, want.Texts, 3, 1), keras.NewTensor(want.Numbers, 3, 2))).Float64s()
		if err != nil {
			t.Fatal(err)
		}
		for i, v := range y {
			// Sums of a dozen products of numbers below 1.
			if !(math.Abs(v-want.Output[i]) <= 16*keras.Float32.Epsilon()) {
				t.Errorf("%s: output %d: got %v, want %v", filepath.Base(file), i, v, want.Output[i])
			}
		}
		if file == path {
			if err := saving.Save(again, m); err != nil {
				t.Fatal(err)
			}
		}
	}
	z, err := zip.OpenReader(again)
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	var assets []string
	for _, f := range z.File {
		if strings.HasPrefix(f.Name, "assets/") {
			assets = append(assets, strings.TrimPrefix(f.Name, "assets/layers/"))
		}
	}
	if want := []string{"integer_lookup/vocabulary.txt", "string_lookup/vocabulary.txt",
		"text_vectorization/_lookup_layer/vocabulary.txt", "text_vectorization/vocabulary.txt"}; !slices.Equal(assets, want) {
		t.Errorf("got vocabularies %q, want %q", assets, want)
	}
}

// TestFrequencies does so with a model whose layers have inverse document
// frequencies, learned or given, which Keras keeps among the weights.
func TestFrequencies(t *testing.T) {
	var want struct {
		Words, Texts []string
		Numbers      []int64
		Output       []float64
	}
	text, err := os.ReadFile("testdata/frequencies.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &want); err != nil {
		t.Fatal(err)
	}
	path, _ := golden(t, "frequencies")
	again, weights := filepath.Join(t.TempDir(), "again.keras"), filepath.Join(t.TempDir(), "again.weights.h5")
	for _, file := range []string{path, again} {
		m, err := saving.Load(file)
		if err != nil {
			t.Fatal(err)
		}
		var in []*keras.Tensor
		strings := 0
		for _, l := range m.Layers() {
			switch l := l.(type) {
			case *preprocessing.IntegerLookup:
				continue
			case preprocessing.StringEncoder:
				s := preprocessing.Strings{Data: want.Words, Shape: []int{3, 3}}
				if strings++; strings == 3 {
					s = preprocessing.StringsOf(want.Texts...)
				}
				ids, err := l.Encode(s)
				if err != nil {
					t.Fatal(err)
				}
				in = append(in, ids)
			}
		}
		y, err := m.Call(keras.Tuple(append(in, keras.NewTensor(want.Numbers, 3, 2))...)).Float64s()
		if err != nil {
			t.Fatal(err)
		}
		for i, v := range y {
			// Sums of twenty products of numbers up to 2.
			if !(math.Abs(v-want.Output[i]) <= 64*keras.Float32.Epsilon()) {
				t.Errorf("%s: output %d: got %v, want %v", filepath.Base(file), i, v, want.Output[i])
			}
		}
		if err := saving.SaveWeights(weights, m); err != nil {
			t.Fatal(err)
		}
		if err := saving.LoadWeights(weights, m); err != nil {
			t.Error(err)
		}
		if file == path {
			if err := saving.Save(again, m); err != nil {
				t.Fatal(err)
			}
		}
	}
	// Weights of another model, with other frequencies.
	other := func(idf ...float64) *keras.Model {
		m := keras.Sequential(&preprocessing.IntegerLookup{Vocabulary: []int64{5, 7}, IDFWeights: idf, OutputMode: "tf_idf"})
		if err := m.BuildOn(keras.InputOf(keras.Int64, 2)); err != nil {
			t.Fatal(err)
		}
		return m
	}
	if err := saving.SaveWeights(weights, other(1, 2)); err != nil {
		t.Fatal(err)
	}
	err = saving.LoadWeights(weights, other(1, 3))
	if want := "layer integer_lookup: number 0 in idf_weights is 1.5, want 2 as in the layer's IDFWeights"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got error %v, want %s", err, want)
	}
}
