package data

import (
	"context"
	"fmt"

	"github.com/mezzo-ml/mezzo/layers/preprocessing"
)

// Adapt computes the vocabulary of a layer from the texts of an epoch (Keras:
// layer.adapt(dataset)):
//
//	err := data.Adapt(ctx, words, data.Lines("corpus.txt").Progress(bar.Update))
//
// Only the vocabulary is kept in memory. If ctx ends or the dataset fails, the
// layer does not change. For layers of numbers use keras.Adapt.
func Adapt(ctx context.Context, l preprocessing.StringAdapter, texts *Dataset[string]) error {
	if texts.Len() == Infinite {
		return fmt.Errorf("Adapt: the dataset has no end; use Take")
	}
	return l.AdaptSeq(func(yield func(preprocessing.Strings, error) bool) {
		for text, err := range texts.All(ctx) {
			if !yield(preprocessing.StringsOf(text), err) || err != nil {
				return
			}
		}
	})
}
