package preprocessing_test

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/op"
	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/backend/tensor/tensortest"
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/layers/internal/stringhash"
	"github.com/mezzo-ml/mezzo/layers/layertest"
	"github.com/mezzo-ml/mezzo/layers/preprocessing"
)

// textCase is what cases of text.json have besides tensors.
type textCase struct {
	Strings, Strings1, Adapt []string
	StringsOut               []string `json:"strings_out"`
	Shape                    []int
	AdaptShape               []int `json:"adapt_shape"`
	VocabularyAfter          []any `json:"vocabulary_after"`
}

// TestKerasText compares hashes, lookups and vectorized text with Keras.
func TestKerasText(t *testing.T) {
	for _, c := range tensortest.Load(t, "../../keras/testdata/golden/text.json").Cases {
		t.Run(c.Name, func(t *testing.T) {
			var given textCase
			config := map[string]any{}
			for k, v := range c.Config {
				config[k] = v
				if string(v) == "null" && (k == "split" || k == "standardize") {
					config[k] = "none"
				}
			}
			raw, err := json.Marshal(c.Config)
			if err == nil {
				err = json.Unmarshal(raw, &given)
			}
			if err != nil {
				t.Fatal(err)
			}
			if c.Class() == "hash" {
				hashes(t, &c, given.Strings)
				return
			}
			for _, k := range []string{"class_name", "strings", "strings1", "adapt", "strings_out", "shape", "adapt_shape", "vocabulary_after"} {
				delete(config, k)
			}
			raw, err = json.Marshal(map[string]any{"class_name": c.Class(), "config": config})
			if err != nil {
				t.Fatal(err)
			}
			l, err := layers.UnmarshalConfig(raw)
			if err != nil {
				t.Fatal(err)
			}
			compareText(t, l, &c, &given)
		})
	}
}

func hashes(t *testing.T, c *tensortest.Case, in []string) {
	const bins = 1<<53 - 111
	for i, s := range in {
		got := stringhash.Farm64(s) % bins
		if c.Name == "sip64" {
			got = stringhash.Sip64([2]uint64{7, 1<<40 + 5}, s) % bins
		}
		if want := uint64(c.Outputs["y"].Data[i]); got != want {
			t.Errorf("%d bytes: got %d, want %d", len(s), got, want)
		}
	}
}

func compareText(t *testing.T, l layers.Layer, c *tensortest.Case, given *textCase) {
	fatal := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	if given.Adapt != nil {
		fatal(l.(interface {
			Adapt(...preprocessing.Strings) error
		}).Adapt(preprocessing.Strings{Data: given.Adapt, Shape: given.AdaptShape}))
	}
	if a, ok := c.Inputs["adapt"]; ok {
		fatal(l.(*preprocessing.IntegerLookup).Adapt(a.Tensor()))
	}
	var tokens []string
	switch l := l.(type) {
	case *preprocessing.IntegerLookup:
		all, err := l.Tokens()
		fatal(err)
		if len(all) != len(given.VocabularyAfter) {
			t.Fatalf("got tokens %v, want %v", all, given.VocabularyAfter)
		}
		for i, w := range given.VocabularyAfter {
			if float64(all[i]) != w {
				t.Errorf("token %d: got %v, want %v", i, all[i], w)
			}
		}
	case interface{ Tokens() ([]string, error) }:
		var err error
		tokens, err = l.Tokens()
		fatal(err)
		if len(tokens) != len(given.VocabularyAfter) {
			t.Fatalf("got tokens %q, want %q", tokens, given.VocabularyAfter)
		}
		for i, w := range given.VocabularyAfter {
			if tokens[i] != w {
				t.Errorf("token %d: got %q, want %q", i, tokens[i], w)
			}
		}
	}
	if given.StringsOut != nil {
		got, err := l.(*preprocessing.StringLookup).Decode(c.Inputs["x"].Tensor())
		fatal(err)
		if !slices.Equal(got.Data, given.StringsOut) {
			t.Errorf("got %q, want %q", got.Data, given.StringsOut)
		}
		return
	}
	var y *tensor.Tensor
	if x, ok := c.Inputs["x"]; ok {
		if _, hash := l.(*preprocessing.Hashing); hash {
			s, err := preprocessing.FormatIntegers(x.Tensor())
			fatal(err)
			y, err = preprocessing.CallStrings(l.(preprocessing.StringEncoder), s)
			fatal(err)
		} else {
			fatal(try(func() { y = layers.Apply(l, layers.Pass{}, x.Tensor()) }))
		}
	} else {
		in := []preprocessing.Strings{{Data: given.Strings, Shape: given.Shape}}
		if given.Strings1 != nil {
			in = append(in, preprocessing.Strings{Data: given.Strings1, Shape: given.Shape})
		}
		var err error
		y, err = preprocessing.CallStrings(l.(preprocessing.StringEncoder), in...)
		fatal(err)
	}
	if mode := string(c.Config["output_mode"]); (mode == "" || mode == `"int"`) != (y.DType() == dtype.Int64) {
		t.Errorf("got %v for mode %q, want int64 for int alone", y.Type(), mode)
	}
	tensortest.Close(t, "y", y, c.Outputs["y"], 1)
}

func try(f func()) (err error) {
	defer tensor.Catch(&err)
	f()
	return nil
}

var words = []string{"a", "b", "c", "d"}

// textLayers are cases of TestEveryLayer, on what Encode makes.
func textLayers() (cases []layerCase) {
	ids := []op.Type{{DType: dtype.Int64, Shape: op.Shape{3, 4}}}
	add := func(name string, make func() layers.Layer) { cases = append(cases, layerCase{name, make, ids}) }
	for _, mode := range []string{"int", "one_hot", "multi_hot", "count", "tf_idf"} {
		var idf []float64
		if mode == "tf_idf" {
			idf = []float64{0.5, 1, 2, 3}
		} else {
			add("hashing, "+mode, func() layers.Layer { return &preprocessing.Hashing{NumBins: 3, OutputMode: mode} })
		}
		add("string lookup, "+mode, func() layers.Layer {
			return &preprocessing.StringLookup{Vocabulary: words, OutputMode: mode, IDFWeights: idf}
		})
		add("integer lookup, "+mode, func() layers.Layer {
			return &preprocessing.IntegerLookup{Vocabulary: []int64{0, 2, 9, 7}, OutputMode: mode, IDFWeights: idf, MaskToken: new(int64(1))}
		})
		add("text vectorization, "+mode, func() layers.Layer {
			return &preprocessing.TextVectorization{Vocabulary: words, OutputMode: mode, IDFWeights: idf, Ngrams: preprocessing.NGrams{1, 2}}
		})
	}
	add("hashed crossing", func() layers.Layer { return &preprocessing.HashedCrossing{NumBins: 3, OutputMode: "one_hot"} })
	return cases
}

func TestTextErrors(t *testing.T) {
	ids := op.Type{DType: dtype.Int64, Shape: op.Shape{op.Unknown, 4}}
	for _, c := range []struct {
		layer layers.Layer
		want  string
	}{
		{&preprocessing.Hashing{}, "layer hashing: Build: NumBins is 0, want a positive number"},
		{&preprocessing.Hashing{NumBins: 2, Salt: preprocessing.Salt{1, 2, 3}}, "layer hashing: Build: Salt is [1 2 3], want 1 or 2 numbers"},
		{&preprocessing.Hashing{NumBins: 2, MaskValue: 0.5}, "layer hashing: Build: MaskValue is 0.5, want a string or an integer"},
		{&preprocessing.Hashing{NumBins: 2, OutputMode: "tf_idf"}, `layer hashing: Build: OutputMode is "tf_idf", want one of ["int" "one_hot" "multi_hot" "count"]`},
		{&preprocessing.HashedCrossing{NumBins: 2, OutputMode: "count"}, `layer hashed_crossing: Build: OutputMode is "count", want int or one_hot`},
		{&preprocessing.StringLookup{}, "layer string_lookup: Build: Vocabulary is empty, want tokens, or Adapt before the layer is used"},
		{&preprocessing.StringLookup{Vocabulary: words, MaxTokens: 1}, "layer string_lookup: Build: MaxTokens is 1, want at least 2"},
		{&preprocessing.StringLookup{Vocabulary: words, MaxTokens: 4}, "layer string_lookup: Build: Vocabulary has 5 tokens with special ones, want at most MaxTokens, 4"},
		{&preprocessing.StringLookup{Vocabulary: words, PadToMaxTokens: true}, "layer string_lookup: Build: PadToMaxTokens is set and MaxTokens is not, want both"},
		{&preprocessing.StringLookup{Vocabulary: words, NumOOVIndices: new(-1)}, "layer string_lookup: Build: NumOOVIndices is -1, want a number from 0 to 1048576"},
		{&preprocessing.StringLookup{Vocabulary: words, OutputMode: "binary"}, `layer string_lookup: Build: OutputMode is "binary", want one of ["int" "one_hot" "multi_hot" "count" "tf_idf"]`},
		{&preprocessing.StringLookup{Vocabulary: words, Invert: true, OutputMode: "count"}, `layer string_lookup: Build: OutputMode is "count" with Invert, want int`},
		{&preprocessing.StringLookup{Vocabulary: words, Invert: true}, "layer string_lookup: Build: Invert makes strings, which tensors cannot hold; use Decode"},
		{&preprocessing.StringLookup{Vocabulary: words, IDFWeights: []float64{1}}, `layer string_lookup: Build: IDFWeights are given with OutputMode "int", want tf_idf for them`},
		{&preprocessing.StringLookup{Vocabulary: words, IDFWeights: []float64{1}, OutputMode: "tf_idf"}, "layer string_lookup: Build: IDFWeights has 1 numbers, want 4 as Vocabulary"},
		{&preprocessing.StringLookup{Vocabulary: []string{"a", "b", "a"}}, `layer string_lookup: Build: Vocabulary has "a" twice, at 0 and 2, want each token once`},
		{&preprocessing.StringLookup{Vocabulary: words, MaskToken: new("b")}, `layer string_lookup: Build: Vocabulary has the special token "b" among others, want it left out, or [b [UNK]] first`},
		{&preprocessing.StringLookup{Vocabulary: words, Encoding: "latin-1"}, `layer string_lookup: Build: Encoding is "latin-1", want utf-8`},
		{&preprocessing.IntegerLookup{Vocabulary: []int64{1}, OOVMethod: "farmhash"}, `layer integer_lookup: Build: OOVMethod is "farmhash", want floormod`},
		{&preprocessing.IntegerLookup{Vocabulary: []int64{1}, VocabularyDtype: "int32"}, `layer integer_lookup: Build: VocabularyDtype is "int32", want int64`},
		{&preprocessing.TextVectorization{Vocabulary: words, Standardize: "upper"}, `layer text_vectorization: Build: Standardize is "upper", want one of ["lower_and_strip_punctuation" "lower" "strip_punctuation" "none"]`},
		{&preprocessing.TextVectorization{Vocabulary: words, Split: ","}, `layer text_vectorization: Build: Split is ",", want one of ["whitespace" "character" "none"]`},
		{&preprocessing.TextVectorization{Vocabulary: words, Ngrams: preprocessing.NGrams{0}}, "layer text_vectorization: Build: Ngrams is [0], want numbers from 1 to 1024"},
		{&preprocessing.TextVectorization{Vocabulary: words, OutputSequenceLength: -2}, "layer text_vectorization: Build: OutputSequenceLength is -2, want a positive number"},
		{&preprocessing.TextVectorization{Vocabulary: words, OutputSequenceLength: 2, OutputMode: "count"}, `layer text_vectorization: Build: OutputSequenceLength is set with OutputMode "count", want int for it`},
	} {
		layertest.BadField(t, c.layer, c.want, ids)
	}
	layertest.BadField(t, &preprocessing.StringLookup{Vocabulary: words}, "layer string_lookup: Call: got float32[? 4], want int32 or int64")

	strict := &preprocessing.StringLookup{Vocabulary: words, NumOOVIndices: new(0)}
	for _, c := range []struct {
		call func() error
		want string
	}{
		{func() error { _, err := strict.Encode(preprocessing.StringsOf("a", "x")); return err },
			`layer string_lookup: Encode: string 1: "x" is not in the vocabulary, want a token of it, or NumOOVIndices of at least 1`},
		{func() error {
			_, err := strict.Encode(preprocessing.Strings{Data: words, Shape: layers.Shape{3}})
			return err
		},
			"layer string_lookup: Encode: got 4 strings, want 3 for shape [3]"},
		{func() error { _, err := strict.Encode(); return err }, "layer string_lookup: Encode: got 0 arrays of strings, want 1"},
		{func() error { return strict.Adapt(preprocessing.StringsOf("a")) }, "layer string_lookup: Adapt: Vocabulary is given, want it left out"},
		{func() error { return new(preprocessing.StringLookup).Adapt() }, "layer string_lookup: Adapt: got no tokens, want some"},
		{func() error { _, err := strict.Decode(tensor.New([]int64{1}, 1)); return err }, "layer string_lookup: Decode: Invert is not set, want it"},
		{func() error { return new(preprocessing.IntegerLookup).Adapt(tensor.New([]float32{1}, 1)) },
			"layer integer_lookup: Adapt: got float32[1], want int32 or int64 with at least 1 axis"},
		{func() error {
			_, err := (&preprocessing.TextVectorization{Vocabulary: words}).Encode(preprocessing.Strings{Data: words, Shape: layers.Shape{2, 2}})
			return err
		}, `layer text_vectorization: Encode: got texts [2 2] with Split "whitespace", want [batch] or [batch 1]`},
		{func() error {
			_, err := (&preprocessing.HashedCrossing{NumBins: 2}).Encode(preprocessing.StringsOf("a"), preprocessing.StringsOf("b", "c"))
			return err
		}, "layer hashed_crossing: Encode: got strings [1] and [2], want equal shapes [batch] or [batch 1]"},
	} {
		if err := c.call(); err == nil || err.Error() != c.want {
			t.Errorf("got error %v, want %s", err, c.want)
		}
	}
	// A number that is in no vocabulary is an error of the step.
	for _, mode := range []string{"int", "count"} {
		l := &preprocessing.IntegerLookup{Vocabulary: []int64{1, 2}, NumOOVIndices: new(0), OutputMode: mode}
		var y *tensor.Tensor
		err := try(func() { y = layers.Apply(l, layers.Pass{}, tensor.New([]int64{1, 5}, 1, 2)) })
		if err == nil {
			_, err = y.Bytes()
		}
		var at *tensor.Error
		if err == nil || errors.As(err, &at) && at.Path != "integer_lookup" || !strings.Contains(err.Error(), "integer_lookup") {
			t.Errorf("%s: got error %v, want one that names the layer", mode, err)
		}
	}
}

// TestTextAdapt: a later Adapt forgets the earlier one, and a layer in use
// refuses it; what was learned is in the config.
func TestTextAdapt(t *testing.T) {
	l := &preprocessing.TextVectorization{OutputSequenceLength: 2}
	for _, text := range []string{"x y", "b a b"} {
		if err := l.Adapt(preprocessing.StringsOf(text)); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := l.Tokens(); err != nil || !slices.Equal(got, []string{"", "[UNK]", "b", "a"}) {
		t.Errorf("got tokens %q, %v", got, err)
	}
	if _, err := preprocessing.CallStrings(l, preprocessing.StringsOf("a")); err != nil {
		t.Fatal(err)
	}
	if l.LayerName() != "" {
		t.Errorf("CallStrings named the layer %q, want that left to its model", l.LayerName())
	}
	if err := l.Adapt(preprocessing.StringsOf("z")); err == nil || err.Error() != "layer text_vectorization: Adapt: the layer is in use, want Adapt before that" {
		t.Errorf("got error %v, want one that the layer is in use", err)
	}
	data, err := layers.MarshalConfig(l)
	if err != nil {
		t.Fatal(err)
	}
	read, err := layers.UnmarshalConfig(data)
	if err != nil {
		t.Fatal(err)
	}
	if got := read.(*preprocessing.TextVectorization).Vocabulary; !slices.Equal(got, []string{"b", "a"}) {
		t.Errorf("got vocabulary %q after reading, want what was learned", got)
	}
}

// FuzzTextVectorization requires an index of each token, for any text.
func FuzzTextVectorization(f *testing.F) {
	f.Add("Foo bar, bar!", uint8(0))
	f.Add("\xff e\u0301 \x00\t", uint8(7))
	f.Fuzz(func(t *testing.T, text string, how uint8) {
		l := &preprocessing.TextVectorization{
			Vocabulary:  words,
			Standardize: []string{"none", "lower", "strip_punctuation", "lower_and_strip_punctuation"}[how%4],
			Split:       []string{"none", "whitespace", "character"}[how/4%3],
		}
		if how >= 128 {
			l.Ngrams = preprocessing.NGrams{1, 2}
		}
		y, err := l.Encode(preprocessing.StringsOf(text, "a"))
		if err != nil {
			t.Fatal(err)
		}
		ids, err := y.Int64s()
		if err != nil {
			t.Fatal(err)
		}
		for i, id := range ids {
			if id < 0 || id > 5 {
				t.Errorf("%q: place %d: got %d, want 0 to 5", text, i, id)
			}
		}
	})
}
