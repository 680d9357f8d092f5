package preprocessing

import (
	"fmt"
	"iter"
	"strconv"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/layers"
)

// Strings is an array of strings. Tensors hold numbers only, so strings stay
// on the host until a StringEncoder makes integers of them.
type Strings struct {
	Data  []string     // row-major
	Shape layers.Shape // the batch first
}

// StringsOf returns strings of shape [len(s)].
func StringsOf(s ...string) Strings { return Strings{s, layers.Shape{len(s)}} }

// FormatIntegers returns the elements of x, integers or floats, which are
// truncated, as decimals: what Keras hashes of numbers.
func FormatIntegers(x *tensor.Tensor) (Strings, error) {
	data, err := x.Int64s()
	if err != nil {
		return Strings{}, err
	}
	s := Strings{make([]string, len(data)), x.Shape().Clone()}
	for i, v := range data {
		s.Data[i] = strconv.FormatInt(v, 10)
	}
	return s, nil
}

// check wants as many strings as the shape says, and from low to high axes.
func (s Strings) check(low, high int) error {
	if n := s.Shape.Size(); n != len(s.Data) {
		return fmt.Errorf("got %d strings, want %d for shape %v", len(s.Data), n, s.Shape)
	}
	if r := len(s.Shape); r < low || r > high {
		return fmt.Errorf("strings %v have %d axes, want %d to %d", s.Shape, r, low, high)
	}
	return nil
}

// StringEncoder is a Layer for strings. In a model it takes the integers that
// Encode makes of them, before Fit or in Pipeline.Map:
//
//	lookup := &layers.StringLookup{Vocabulary: words, OutputMode: "multi_hot"}
//	ids, err := lookup.Encode(layers.StringsOf("red", "green"))
//	model := keras.Sequential(lookup, &layers.Dense{Units: 1})
//	…
//
// CallStrings is both steps at once: what a call of Keras's layer gives.
type StringEncoder interface {
	layers.Layer
	// Encode turns strings into the integers that the layer takes in a model,
	// int64. It does not need the layer to be built.
	Encode(in ...Strings) (*tensor.Tensor, error)
}

// StringAdapter is a StringEncoder that learns its vocabulary from data:
// StringLookup, TextVectorization. data.Adapt has it learn from a dataset.
type StringAdapter interface {
	StringEncoder
	// AdaptSeq is Adapt of batches that come one after the other and need not be
	// in memory together. When one is an error, the layer is as it was.
	AdaptSeq(batches iter.Seq2[Strings, error]) error
}

// given yields batches that are there.
func given(batches []Strings) iter.Seq2[Strings, error] {
	return func(yield func(Strings, error) bool) {
		for _, b := range batches {
			if !yield(b, nil) {
				return
			}
		}
	}
}

// CallStrings calls l on strings, outside Functions.
func CallStrings(l StringEncoder, in ...Strings) (y *tensor.Tensor, err error) {
	defer tensor.Catch(&err)
	ids, err := l.Encode(in...)
	if err != nil {
		return nil, err
	}
	if layers.BaseOf(l).LayerName() == "" {
		defer layers.ClearName(l)
	}
	return layers.Apply(l, layers.Pass{}, ids), nil
}

// label is how errors outside of Apply name a layer.
func layerLabel(l layers.Layer) string {
	if p := layers.BaseOf(l).Path(); p != "" {
		return p
	}
	if n := l.Config().Name; n != "" {
		return n
	}
	return layers.SnakeClass(l)
}

// encodeWith runs f, which makes indices of the strings in, each of which has
// from low to high axes, and names the layer in errors.
func encodeWith(l layers.Layer, in []Strings, count, low, high int, f func() ([]int64, layers.Shape, error)) (*tensor.Tensor, error) {
	var err error
	if len(in) != count {
		err = fmt.Errorf("got %d arrays of strings, want %d", len(in), count)
	}
	for _, s := range in {
		if err == nil {
			err = s.check(low, high)
		}
	}
	var ids []int64
	var shape layers.Shape
	if err == nil {
		ids, shape, err = f()
	}
	if err != nil {
		return nil, fmt.Errorf("layer %s: Encode: %w", layerLabel(l), err)
	}
	return tensor.New(ids, shape...), nil
}

// integers wants integers for indices.
func integers(x *tensor.Tensor) *tensor.Tensor {
	if x.DType() != dtype.Int32 && x.DType() != dtype.Int64 {
		tensor.Fail("Call", "got %v, want int32 or int64", x.Type())
	}
	return x
}
