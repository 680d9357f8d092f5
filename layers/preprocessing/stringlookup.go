package preprocessing

import (
	"encoding/json"
	"fmt"
	"iter"
	"math"
	"slices"

	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/layers/internal/stringhash"
	"github.com/mezzo-ml/mezzo/layers/internal/support"
)

// Salt is the key of a hash of strings: 1 number for both words of it, or 2.
// Without one the hash is FarmHash's, with one SipHash's.
type Salt []int64

// MarshalJSON implements json.Marshaler: 1 number is no list in Keras.
func (k Salt) MarshalJSON() ([]byte, error) {
	if len(k) == 1 {
		return json.Marshal(k[0])
	}
	return json.Marshal([]int64(k))
}

// hash returns the hash of strings, and an error for other numbers of words.
func (k Salt) hash() (func(string) uint64, error) {
	switch len(k) {
	case 0:
		return stringhash.Farm64, nil
	case 1, 2:
		key := [2]uint64{uint64(k[0]), uint64(k[len(k)-1])}
		return func(s string) uint64 { return stringhash.Sip64(key, s) }, nil
	}
	return nil, fmt.Errorf("Salt is %v, want 1 or 2 numbers", []int64(k))
}

// StringLookup turns strings into their numbers in a vocabulary, which is given
// or learned from data by Adapt: the most frequent tokens, of those of one
// frequency the last in the order of their bytes first. It is a StringEncoder.
//
// The first index is that of MaskToken, if there is one, in OutputMode int;
// in other modes masked places count nowhere. Then come NumOOVIndices indices
// for strings that are not in the vocabulary, which of them is a hash's
// choice, then the vocabulary. Vocabulary may start with these special tokens.
//
// OutputMode int is the index; one_hot a vector for each string; multi_hot has
// 1 for each that occurs along the last axis, count how often it does, and
// tf_idf that times IDFWeights. Vectors are floats of the compute type.
//
// Shapes: strings […] → int: the same; one_hot: [… size], without a last axis
// of size 1; others: [… n] → [… size]. size is that of the vocabulary with
// special tokens, or with PadToMaxTokens MaxTokens.
type StringLookup struct {
	MaxTokens      int       // the largest size, special tokens included; default: any
	NumOOVIndices  *int      `default:"1"` // 0: a string that is not in the vocabulary is an error of Encode
	MaskToken      *string   // a string that stands for nothing; default: none
	OOVToken       string    `default:"[UNK]"` // what strings out of the vocabulary are called
	Vocabulary     []string  // default: from Adapt
	IDFWeights     []float64 // inverse document frequencies of Vocabulary, for tf_idf; default: from Adapt
	Invert         bool      // whether Decode is wanted rather than Encode
	OutputMode     string    `default:"int"` // or one_hot, multi_hot, count, tf_idf
	PadToMaxTokens bool      // vectors have MaxTokens places
	Encoding       string    `default:"utf-8"` // the only one; strings are compared as bytes
	Salt           Salt      // of the hash; default: none
	Name, DType    string

	layers.Base
	encoding encoding
	kept     *table[string]
	adapted  bool
}

// Config returns the fields Name and DType.
func (l *StringLookup) Config() layers.Config { return layers.Config{Name: l.Name, DType: l.DType} }

func (l *StringLookup) lookup() lookup[string] {
	c := layers.Defaults(*l)
	return lookup[string]{c.MaxTokens, *c.NumOOVIndices, c.MaskToken, c.OOVToken, c.Vocabulary, c.IDFWeights, c.Invert, c.OutputMode, c.PadToMaxTokens}
}

// table checks the fields.
func (l *StringLookup) table() (*table[string], error) {
	if e := layers.Defaults(*l).Encoding; e != "utf-8" {
		return nil, fmt.Errorf("Encoding is %q, want utf-8", e)
	}
	return l.lookup().cached(&l.kept)
}

// Tokens lists the vocabulary by index, special tokens included.
func (l *StringLookup) Tokens() ([]string, error) {
	t, err := l.table()
	if err != nil {
		return nil, fmt.Errorf("layer %s: Tokens: %w", layerLabel(l), err)
	}
	return t.all(), nil
}

// Frequencies lists the inverse document frequencies by index, special tokens
// included; none but for OutputMode tf_idf.
func (l *StringLookup) Frequencies() ([]float64, error) {
	t, err := l.table()
	if err != nil {
		return nil, fmt.Errorf("layer %s: Frequencies: %w", layerLabel(l), err)
	}
	return slices.Clone(t.idf), nil
}

// Build checks the fields.
func (l *StringLookup) Build(in ...layers.Shape) error {
	t, err := l.table()
	if err != nil {
		return err
	}
	if _, err := l.Salt.hash(); err != nil {
		return err
	}
	if l.Invert {
		return fmt.Errorf("Invert makes strings, which tensors cannot hold; use Decode")
	}
	l.encoding = t.encoding(t.of.dropsMask())
	return l.CheckInput(in...)
}

// CheckInput requires one input.
func (l *StringLookup) CheckInput(in ...layers.Shape) error { return checkIndices(l.encoding.mode, in) }

// Adapt makes Vocabulary, and for tf_idf IDFWeights, of the tokens in all
// batches. What an earlier Adapt learned is forgotten. For tf_idf the last axis
// of several is a document. Call it before the layer is used.
func (l *StringLookup) Adapt(batches ...Strings) error { return l.AdaptSeq(given(batches)) }

// AdaptSeq implements StringAdapter.
func (l *StringLookup) AdaptSeq(batches iter.Seq2[Strings, error]) error {
	return adaptStrings(l, batches, func() (*StringLookup, error) { return l, l.lookup().adaptable(&l.Base, l.adapted) },
		func(c *counts[string], b Strings) error {
			err := b.check(1, math.MaxInt)
			if err == nil {
				c.addRows(b.Data, b.Shape)
			}
			return err
		}, func(*StringLookup) {})
}

// adaptStrings has the lookup of layer l, which begin returns, learn what add
// counts of each batch, and hands it to done.
func adaptStrings(l layers.Layer, batches iter.Seq2[Strings, error], begin func() (*StringLookup, error), add func(*counts[string], Strings) error, done func(*StringLookup)) error {
	c := newCounts[string]()
	lookup, err := begin()
	if err == nil {
		for b, e := range batches {
			if err = e; err == nil {
				err = add(c, b)
			}
			if err != nil {
				break
			}
		}
	}
	if err == nil {
		err = lookup.learn(c)
	}
	if err != nil {
		return fmt.Errorf("layer %s: Adapt: %w", layerLabel(l), err)
	}
	done(lookup)
	return nil
}

func (l *StringLookup) learn(c *counts[string]) error {
	words, idf, err := c.vocabulary(l.lookup())
	if err == nil {
		l.set(words, idf)
	}
	return err
}

// set sets what Adapt has learned.
func (l *StringLookup) set(words []string, idf []float64) {
	l.Vocabulary, l.IDFWeights, l.adapted = words, idf, true
}

// Encode implements StringEncoder: the index of each string, -1 where the
// place of a mask counts nowhere.
func (l *StringLookup) Encode(in ...Strings) (*tensor.Tensor, error) {
	return encodeWith(l, in, 1, 0, math.MaxInt, func() ([]int64, layers.Shape, error) {
		if l.Invert {
			return nil, nil, fmt.Errorf("Invert is set, want Decode")
		}
		ids, err := l.find(in[0].Data)
		return ids, in[0].Shape, err
	})
}

// find looks tokens up.
func (l *StringLookup) find(tokens []string) ([]int64, error) {
	t, err := l.table()
	if err != nil {
		return nil, err
	}
	hash, err := l.Salt.hash()
	if err != nil {
		return nil, err
	}
	ids := make([]int64, len(tokens))
	for i, w := range tokens {
		ids[i], err = t.find(w, func(w string, n int) int64 { return int64(hash(w) % uint64(n)) })
		if err != nil {
			return nil, fmt.Errorf("string %d: %w", i, err)
		}
	}
	return ids, nil
}

// Decode turns indices into strings, for layers with Invert: those that no
// token has become OOVToken.
func (l *StringLookup) Decode(ids *tensor.Tensor) (Strings, error) {
	fail := func(err error) (Strings, error) {
		return Strings{}, fmt.Errorf("layer %s: Decode: %w", layerLabel(l), err)
	}
	if !l.Invert {
		return fail(fmt.Errorf("Invert is not set, want it"))
	}
	t, err := l.table()
	if err != nil {
		return fail(err)
	}
	data, err := ids.Int64s()
	if err != nil {
		return fail(err)
	}
	all := t.all()
	s := Strings{make([]string, len(data)), ids.Shape().Clone()}
	for i, id := range data {
		s.Data[i] = t.of.oovToken
		if id >= 0 && id < int64(len(all)) {
			s.Data[i] = all[id]
		}
	}
	return s, nil
}

// Call computes the layer on indices.
func (l *StringLookup) Call(_ layers.Pass, x *tensor.Tensor) *tensor.Tensor {
	return l.encoding.of(integers(x), nil, l.ComputeDType())
}

// checkIndices wants one input, with axes that the mode needs.
func checkIndices(mode string, in []layers.Shape) error {
	if _, err := support.Single(in, 0); err != nil {
		return err
	}
	if mode == "int" {
		return nil
	}
	return checkEncoding(mode, in, modes...)
}
