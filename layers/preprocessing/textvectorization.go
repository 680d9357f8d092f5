package preprocessing

import (
	"encoding/json"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/layers"
)

// NGrams are the numbers of neighbouring tokens that are joined. In JSON it
// has Keras's form: n for {1, 2, …, n}, else a list.
type NGrams []int

// MarshalJSON implements json.Marshaler.
func (n NGrams) MarshalJSON() ([]byte, error) {
	for i, w := range n {
		if w != i+1 {
			return json.Marshal([]int(n))
		}
	}
	if len(n) == 0 {
		return []byte("null"), nil
	}
	return json.Marshal(len(n))
}

// maxNGram is more tokens than any text joins.
const maxNGram = 1 << 10

// UnmarshalJSON implements json.Unmarshaler.
func (n *NGrams) UnmarshalJSON(data []byte) error {
	var one int
	if json.Unmarshal(data, &one) != nil {
		return json.Unmarshal(data, (*[]int)(n))
	}
	if one < 1 || one > maxNGram {
		return fmt.Errorf("got %d, want a number from 1 to %d", one, maxNGram)
	}
	*n = nil
	for i := range one {
		*n = append(*n, i+1)
	}
	return nil
}

// TextVectorization turns texts into the numbers of their words: it makes each
// text uniform, splits it, joins neighbours to n-grams, and looks all up in a
// vocabulary that is given or learned by Adapt. It is a StringEncoder.
//
// In OutputMode int, 0 is padding and 1 a token out of the vocabulary, which
// starts at 2; texts are padded or cut to OutputSequenceLength tokens. Other
// modes are those of StringLookup, with a text for a sample, and have 0 for
// tokens out of the vocabulary.
//
// As in TensorFlow, letters and white space beyond ASCII stay as they are.
//
// Shapes: texts [batch] or [batch 1], with Split none tokens [batch n] → int:
// [batch length]; others: [batch size], one_hot: [batch length size].
type TextVectorization struct {
	MaxTokens            int       // the largest size, special tokens included; default: any
	Standardize          string    `default:"lower_and_strip_punctuation"` // or lower, strip_punctuation, none
	Split                string    `default:"whitespace"`                  // or character, none
	Ngrams               NGrams    // default: tokens as they are
	OutputMode           string    `default:"int"` // or one_hot, multi_hot, count, tf_idf
	OutputSequenceLength int       // for int; default: that of the longest text of a batch
	PadToMaxTokens       bool      // vectors have MaxTokens places
	Vocabulary           []string  // default: from Adapt
	IDFWeights           []float64 // inverse document frequencies of Vocabulary, for tf_idf; default: from Adapt
	Encoding             string    `default:"utf-8"` // the only one
	Name, DType          string

	layers.Base
	inner StringLookup
}

// Config returns the fields Name and DType.
func (t *TextVectorization) Config() layers.Config {
	return layers.Config{Name: t.Name, DType: t.DType}
}

// noText is the token that counts nowhere.
var noText = ""

// lookup checks the fields and returns the lookup of tokens.
func (t *TextVectorization) lookup() (*StringLookup, error) {
	c := layers.Defaults(*t)
	standards, splits := []string{"lower_and_strip_punctuation", "lower", "strip_punctuation", "none"}, []string{"whitespace", "character", "none"}
	switch {
	case !slices.Contains(standards, c.Standardize):
		return nil, fmt.Errorf("Standardize is %q, want one of %q", c.Standardize, standards)
	case !slices.Contains(splits, c.Split):
		return nil, fmt.Errorf("Split is %q, want one of %q", c.Split, splits)
	case c.OutputSequenceLength < 0:
		return nil, fmt.Errorf("OutputSequenceLength is %d, want a positive number", c.OutputSequenceLength)
	case c.OutputSequenceLength > 0 && c.OutputMode != "int":
		return nil, fmt.Errorf("OutputSequenceLength is set with OutputMode %q, want int for it", c.OutputMode)
	}
	for _, n := range c.Ngrams {
		if n < 1 || n > maxNGram {
			return nil, fmt.Errorf("Ngrams is %v, want numbers from 1 to %d", []int(c.Ngrams), maxNGram)
		}
	}
	l := &t.inner
	l.MaxTokens, l.MaskToken, l.OutputMode, l.PadToMaxTokens = c.MaxTokens, &noText, c.OutputMode, c.PadToMaxTokens
	l.Vocabulary, l.IDFWeights, l.Encoding = c.Vocabulary, c.IDFWeights, c.Encoding
	return l, nil
}

// table is that of the tokens.
func (t *TextVectorization) table() (*table[string], error) {
	l, err := t.lookup()
	if err != nil {
		return nil, err
	}
	return l.table()
}

// Tokens lists the vocabulary by index, special tokens included.
func (t *TextVectorization) Tokens() ([]string, error) {
	kept, err := t.table()
	if err != nil {
		return nil, fmt.Errorf("layer %s: Tokens: %w", layerLabel(t), err)
	}
	return kept.all(), nil
}

// Frequencies lists the inverse document frequencies by index, special tokens
// included; none but for OutputMode tf_idf.
func (t *TextVectorization) Frequencies() ([]float64, error) {
	kept, err := t.table()
	if err != nil {
		return nil, fmt.Errorf("layer %s: Frequencies: %w", layerLabel(t), err)
	}
	return slices.Clone(kept.idf), nil
}

// Build checks the fields.
func (t *TextVectorization) Build(in ...layers.Shape) error {
	kept, err := t.table()
	if err != nil {
		return err
	}
	t.inner.encoding = kept.encoding(true)
	return t.CheckInput(in...)
}

// CheckInput requires one input.
func (t *TextVectorization) CheckInput(in ...layers.Shape) error {
	return checkIndices(t.inner.encoding.mode, in)
}

// Adapt makes Vocabulary, and for tf_idf IDFWeights, of the tokens of all
// texts, as StringLookup's does; each text is a document. Call it before the
// layer is used.
func (t *TextVectorization) Adapt(batches ...Strings) error { return t.AdaptSeq(given(batches)) }

// AdaptSeq implements StringAdapter.
func (t *TextVectorization) AdaptSeq(batches iter.Seq2[Strings, error]) error {
	return adaptStrings(t, batches, func() (*StringLookup, error) {
		l, err := t.lookup()
		if err == nil {
			err = l.lookup().adaptable(&t.Base, l.adapted)
		}
		return l, err
	}, func(c *counts[string], b Strings) error {
		rows, err := t.split(b)
		for _, row := range rows {
			c.add(row)
		}
		return err
	}, func(l *StringLookup) { t.Vocabulary, t.IDFWeights = l.Vocabulary, l.IDFWeights })
}

// Encode implements StringEncoder: the indices of the tokens of each text,
// padded with 0 in OutputMode int, in others with -1.
//
// Shapes: texts [batch] or [batch 1], tokens [batch n] → [batch length].
func (t *TextVectorization) Encode(in ...Strings) (*tensor.Tensor, error) {
	return encodeWith(t, in, 1, 1, 2, func() ([]int64, layers.Shape, error) {
		l, err := t.lookup()
		if err != nil {
			return nil, nil, err
		}
		rows, err := t.split(in[0])
		if err != nil {
			return nil, nil, err
		}
		c := layers.Defaults(*t)
		length, pad := c.OutputSequenceLength, int64(0)
		if length == 0 {
			for _, row := range rows {
				length = max(length, len(row))
			}
		}
		if c.OutputMode != "int" {
			length, pad = max(length, 1), -1 // the largest of nothing is no number
		}
		ids := slices.Repeat([]int64{pad}, len(rows)*length)
		for i, row := range rows {
			found, err := l.find(row[:min(len(row), length)])
			if err != nil {
				return nil, nil, err
			}
			copy(ids[i*length:], found)
		}
		return ids, layers.Shape{len(rows), length}, nil
	})
}

// split returns the tokens of each text.
func (t *TextVectorization) split(s Strings) ([][]string, error) {
	if err := s.check(1, 2); err != nil {
		return nil, err
	}
	c := layers.Defaults(*t)
	n := 1
	if len(s.Shape) == 2 {
		n = s.Shape[1]
	}
	if c.Split != "none" && n != 1 {
		return nil, fmt.Errorf("got texts %v with Split %q, want [batch] or [batch 1]", s.Shape, c.Split)
	}
	rows := make([][]string, s.Shape[0])
	for i := range rows {
		var row []string
		for _, text := range s.Data[i*n : (i+1)*n] {
			text = standardized(text, c.Standardize)
			switch c.Split {
			case "whitespace":
				row = append(row, strings.FieldsFunc(text, asciiSpace)...)
			case "character":
				for _, r := range text {
					row = append(row, string(r))
				}
			default:
				row = append(row, text)
			}
		}
		rows[i] = joined(row, c.Ngrams)
	}
	return rows, nil
}

func asciiSpace(r rune) bool { return r == ' ' || r >= '\t' && r <= '\r' }

// standardized makes ASCII letters small, leaves punctuation of ASCII out, or
// both.
func standardized(text, how string) string {
	lower, strip := strings.HasPrefix(how, "lower"), strings.HasSuffix(how, "strip_punctuation")
	if !lower && !strip {
		return text
	}
	out := make([]byte, 0, len(text))
	for i := range len(text) {
		b := text[i]
		letter := b|0x20 >= 'a' && b|0x20 <= 'z'
		switch {
		case strip && b > ' ' && b < 0x7f && !letter && (b < '0' || b > '9'):
		case lower && letter:
			out = append(out, b|0x20)
		default:
			out = append(out, b)
		}
	}
	return string(out)
}

// joined returns the n-grams of the widths, with a space between tokens.
func joined(tokens []string, widths NGrams) []string {
	if len(widths) == 0 {
		return tokens
	}
	var out []string
	for _, w := range widths {
		for i := 0; i+w <= len(tokens); i++ {
			out = append(out, strings.Join(tokens[i:i+w], " "))
		}
	}
	return out
}

// Call computes the layer on the indices of tokens.
func (t *TextVectorization) Call(_ layers.Pass, x *tensor.Tensor) *tensor.Tensor {
	return t.inner.encoding.of(integers(x), nil, t.ComputeDType())
}
