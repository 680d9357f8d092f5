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
	"github.com/mezzo-ml/mezzo/layers"
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
		var learned, given *layers.StringLookup
		var words *layers.TextVectorization
		var integers *layers.IntegerLookup
		for _, l := range m.Layers() {
			switch l := l.(type) {
			case *layers.StringLookup:
				if l.OutputMode == "multi_hot" {
					given = l
				} else {
					learned = l
				}
			case *layers.TextVectorization:
				words = l
			case *layers.IntegerLookup:
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
		encode := func(l layers.StringEncoder, s []string, shape ...int) *keras.Tensor {
			ids, err := l.Encode(layers.Strings{Data: s, Shape: shape})
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
