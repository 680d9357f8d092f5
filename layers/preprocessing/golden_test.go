package preprocessing_test

import (
	"context"
	"slices"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/backend/tensor/tensortest"
	"github.com/mezzo-ml/mezzo/layers/layertest"
	"github.com/mezzo-ml/mezzo/layers/preprocessing"
)

const golden = "../../keras/testdata/golden/"

// TestKeras compares the layers that need no random numbers or strings with Keras.
func TestKeras(t *testing.T) { layertest.Keras(t, golden+"preprocessing.json") }

// TestTrained: every class with weights that training moves is in preprocessing.json.
func TestTrained(t *testing.T) { layertest.Trained(t, golden+"preprocessing.json", everyLayer()) }

// The tests below are vectors of Keras's own unit tests.

// TestCategoryVector is vector 129: counts with weights.
func TestCategoryVector(t *testing.T) {
	tokens := tensor.New([]int32{0, 1, 0, 0, 1, 2, 3, 1}, 4, 2)
	weights := tensor.New([]float32{.1, .2, .1, .1, .2, .3, .4, .2}, 4, 2)
	l := &preprocessing.CategoryEncoding{NumTokens: 6, OutputMode: "count"}
	got, err := layertest.Function(l, false).Call(context.Background(), tensor.Tuple(tokens, weights))
	if err != nil {
		t.Fatal(err)
	}
	tensortest.Close(t, "counts", got, tensortest.Array{Shape: []int{4, 6}, Data: []float64{
		.1, .2, 0, 0, 0, 0,
		.2, 0, 0, 0, 0, 0,
		0, .2, .3, 0, 0, 0,
		0, .2, 0, .4, 0, 0,
	}}, 1)
}

// TestTextVector is vector 128: words of equal frequency are ordered from the last in
// the alphabet.
func TestTextVector(t *testing.T) {
	l := &preprocessing.TextVectorization{OutputSequenceLength: 4}
	if err := l.Adapt(preprocessing.StringsOf("foo bar", "bar baz", "baz bada boom")); err != nil {
		t.Fatal(err)
	}
	ids, err := l.Encode(preprocessing.StringsOf("foo qux bar", "qux baz"))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := ids.Int64s(); err != nil || !slices.Equal(got, []int64{4, 1, 3, 0, 1, 2, 0, 0}) {
		t.Errorf("got %v, %v", got, err)
	}
}
