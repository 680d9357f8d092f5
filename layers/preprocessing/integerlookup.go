package preprocessing

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/layers"
)

// IntegerLookup is StringLookup for integers, int32 or int64. The vocabulary
// is searched on the device, so they need no encoding. An integer that is not
// in the vocabulary gets the index of its remainder when divided by
// NumOOVIndices.
//
// Shapes: as of StringLookup.
type IntegerLookup struct {
	MaxTokens       int       // the largest size, special tokens included; default: any
	NumOOVIndices   *int      `default:"1"` // 0: a number that is not in the vocabulary is an error of the step
	MaskToken       *int64    // a number that stands for nothing; default: none
	OOVToken        *int64    `default:"-1"` // what Invert makes of indices that no token has
	Vocabulary      []int64   // default: from Adapt
	VocabularyDtype string    `default:"int64"` // the only one
	IDFWeights      []float64 // inverse document frequencies of Vocabulary, for tf_idf; default: from Adapt
	Invert          bool      // whether indices become tokens
	OutputMode      string    `default:"int"` // or one_hot, multi_hot, count, tf_idf
	PadToMaxTokens  bool      // vectors have MaxTokens places
	OOVMethod       string    `default:"floormod"` // the only one
	Name, DType     string

	layers.Base
	encoding     encoding
	kept         *table[int64]
	adapted      bool
	keys, values *tensor.Tensor // int64: tokens in order, and their indices; of Invert only values
}

// Config returns the fields Name and DType.
func (l *IntegerLookup) Config() layers.Config { return layers.Config{Name: l.Name, DType: l.DType} }

func (l *IntegerLookup) lookup() lookup[int64] {
	c := layers.Defaults(*l)
	return lookup[int64]{c.MaxTokens, *c.NumOOVIndices, c.MaskToken, *c.OOVToken, c.Vocabulary, c.IDFWeights, c.Invert, c.OutputMode, c.PadToMaxTokens}
}

// Tokens returns the vocabulary by index, special tokens included.
func (l *IntegerLookup) Tokens() ([]int64, error) {
	t, err := l.lookup().cached(&l.kept)
	if err != nil {
		return nil, fmt.Errorf("layer %s: Tokens: %w", layerLabel(l), err)
	}
	return t.all(), nil
}

// Frequencies returns the inverse document frequencies by index, special
// tokens included; nil unless OutputMode is tf_idf.
func (l *IntegerLookup) Frequencies() ([]float64, error) {
	t, err := l.lookup().cached(&l.kept)
	if err != nil {
		return nil, fmt.Errorf("layer %s: Frequencies: %w", layerLabel(l), err)
	}
	return slices.Clone(t.idf), nil
}

// Build checks the fields and sorts the vocabulary.
func (l *IntegerLookup) Build(in ...layers.Shape) error {
	c := layers.Defaults(*l)
	if c.VocabularyDtype != "int64" {
		return fmt.Errorf("VocabularyDtype is %q, want int64", c.VocabularyDtype)
	}
	if c.OOVMethod != "floormod" {
		return fmt.Errorf("OOVMethod is %q, want floormod", c.OOVMethod)
	}
	t, err := l.lookup().cached(&l.kept)
	if err != nil {
		return err
	}
	l.encoding = t.encoding(t.of.dropsMask())
	if l.Invert {
		all := t.all()
		l.values = tensor.New(append(all, t.of.oovToken), len(all)+1)
		return l.CheckInput(in...)
	}
	sorted := slices.Clone(t.tokens)
	if m := t.of.mask; m != nil {
		sorted = append(sorted, *m)
	}
	slices.Sort(sorted)
	// With 2ᵏ-1 keys every search takes k steps and stays within them.
	size := 1
	for size < len(sorted) {
		size = size*2 + 1
	}
	keys, values := make([]int64, size), make([]int64, size)
	for i := range keys {
		keys[i], values[i] = math.MaxInt64, unknown
		if i < len(sorted) {
			keys[i] = sorted[i]
			values[i], _ = t.find(sorted[i], nil)
		}
	}
	l.keys, l.values = tensor.New(keys, size), tensor.New(values, size)
	return l.CheckInput(in...)
}

// unknown is the value of keys that are not in the vocabulary. It is no index,
// so that a step fails where NumOOVIndices is 0.
const unknown = -2

// CheckInput requires one input.
func (l *IntegerLookup) CheckInput(in ...layers.Shape) error {
	return checkIndices(l.encoding.mode, in)
}

// Adapt is StringLookup's for int32 or int64 tensors.
func (l *IntegerLookup) Adapt(batches ...*tensor.Tensor) error {
	c := newCounts[int64]()
	err := l.lookup().adaptable(&l.Base, l.adapted)
	for _, b := range batches {
		var data []int64
		if err == nil && (b.DType() != dtype.Int32 && b.DType() != dtype.Int64 || b.Rank() == 0) {
			err = fmt.Errorf("got %v, want int32 or int64 with at least 1 axis", b.Type())
		}
		if err == nil {
			data, err = b.Int64s()
		}
		if err == nil {
			c.addRows(data, b.Shape())
		}
	}
	if err == nil {
		var words []int64
		var idf []float64
		if words, idf, err = c.vocabulary(l.lookup()); err == nil {
			l.set(words, idf)
		}
	}
	if err != nil {
		return fmt.Errorf("layer %s: Adapt: %w", layerLabel(l), err)
	}
	return nil
}

// set sets what Adapt has learned.
func (l *IntegerLookup) set(words []int64, idf []float64) {
	l.Vocabulary, l.IDFWeights, l.adapted = words, idf, true
}

// Call computes the layer on x.
func (l *IntegerLookup) Call(_ layers.Pass, x *tensor.Tensor) *tensor.Tensor {
	x = integers(x).Cast(dtype.Int64)
	number := func(n int) *tensor.Tensor { return tensor.New([]int64{int64(n)}).Reshape() }
	size := l.values.Dim(0)
	if l.Invert {
		known := x.GreaterEqual(number(0)).And(x.Less(number(size - 1)))
		return l.values.Gather(tensor.Where(known, x, number(size-1)))
	}
	// at is how many keys are below x, found by halves.
	var at *tensor.Tensor
	for half := (size + 1) / 2; half > 0; half /= 2 {
		probe := number(half - 1)
		if at != nil {
			probe = at.Add(probe)
		}
		step := tensor.Where(l.keys.Gather(probe).Less(x), number(half), number(0))
		if at == nil {
			at = step
		} else {
			at = at.Add(step)
		}
	}
	at = at.Minimum(number(size - 1)) // where x is above all keys
	id := l.values.Gather(at)
	oov := number(l.encodingStart())
	switch n := *cmp.Or(l.NumOOVIndices, new(1)); {
	case n == 0:
		oov = number(unknown)
	case n > 1:
		oov = x.Mod(number(n)).Add(oov)
	}
	known := l.keys.Gather(at).Equal(x).And(id.NotEqual(number(unknown)))
	id = tensor.Where(known, id, oov)
	if *cmp.Or(l.NumOOVIndices, new(1)) > 0 && l.encoding.mode == "int" {
		return id // no number is unknown
	}
	return l.encoding.of(id, nil, l.ComputeDType())
}

// encodingStart is the index of the first number out of the vocabulary.
func (l *IntegerLookup) encodingStart() int { return l.lookup().oovStart() }
