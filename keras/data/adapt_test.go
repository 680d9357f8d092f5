package data_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"

	"github.com/mezzo-ml/mezzo/keras/data"
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/layers/preprocessing"
)

// TestAdapt: a dataset teaches a vocabulary as its texts at once do, and not at
// all when it fails or the context ends.
func TestAdapt(t *testing.T) {
	noLeaks(t)
	var texts []string
	for i := range 300 {
		texts = append(texts, fmt.Sprintf("word%d word%d, WORD%d! other", i%7, i%31, i%3))
	}
	for name, c := range map[string]struct {
		make   func() preprocessing.StringAdapter
		tokens func(preprocessing.StringAdapter) ([]string, error)
		adapt  func(preprocessing.StringAdapter) error
	}{
		"TextVectorization": {func() preprocessing.StringAdapter { return &preprocessing.TextVectorization{MaxTokens: 20} },
			func(l preprocessing.StringAdapter) ([]string, error) {
				return l.(*preprocessing.TextVectorization).Tokens()
			},
			func(l preprocessing.StringAdapter) error {
				return l.(*preprocessing.TextVectorization).Adapt(preprocessing.StringsOf(texts...))
			}},
		"StringLookup": {func() preprocessing.StringAdapter { return &preprocessing.StringLookup{} },
			func(l preprocessing.StringAdapter) ([]string, error) { return l.(*preprocessing.StringLookup).Tokens() },
			func(l preprocessing.StringAdapter) error {
				return l.(*preprocessing.StringLookup).Adapt(preprocessing.StringsOf(texts...))
			}},
	} {
		direct, streamed := c.make(), c.make()
		check(t, c.adapt(direct))
		want, err := c.tokens(direct)
		check(t, err)
		read := 0
		check(t, data.Adapt(background, streamed, data.FromSlice(texts).Progress(func(done, _ int) { read = done }).Prefetch(3)))
		if got, err := c.tokens(streamed); err != nil || !slices.Equal(got, want) || read != len(texts) {
			t.Errorf("%s: got %q, %v after %d texts, want %q after %d", name, got, err, read, want, len(texts))
		}
		broken := errors.New("disk")
		failing := data.FromGenerator(func(context.Context, int) iter.Seq2[string, error] {
			return func(yield func(string, error) bool) {
				if yield("some words", nil) {
					yield("", broken)
				}
			}
		})
		l := c.make()
		if err := data.Adapt(background, l, failing); !errors.Is(err, broken) || !strings.HasPrefix(err.Error(), "layer "+layers.SnakeClass(l)+": Adapt: ") {
			t.Errorf("%s: got %v, want the error of the dataset", name, err)
		}
		ended, cancel := context.WithCancel(background)
		cancel()
		if err := data.Adapt(ended, l, data.FromSlice(texts)); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: got %v, want context.Canceled", name, err)
		}
		if _, err := c.tokens(l); err == nil {
			t.Errorf("%s: it has learned from what failed", name)
		}
		wantError(t, data.Adapt(background, l, data.FromSlice(texts).Repeat()), "Adapt: the dataset has no end; use Take")
	}
}
