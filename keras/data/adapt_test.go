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
		make   func() layers.StringAdapter
		tokens func(layers.StringAdapter) ([]string, error)
		adapt  func(layers.StringAdapter) error
	}{
		"TextVectorization": {func() layers.StringAdapter { return &layers.TextVectorization{MaxTokens: 20} },
			func(l layers.StringAdapter) ([]string, error) { return l.(*layers.TextVectorization).Tokens() },
			func(l layers.StringAdapter) error {
				return l.(*layers.TextVectorization).Adapt(layers.StringsOf(texts...))
			}},
		"StringLookup": {func() layers.StringAdapter { return &layers.StringLookup{} },
			func(l layers.StringAdapter) ([]string, error) { return l.(*layers.StringLookup).Tokens() },
			func(l layers.StringAdapter) error { return l.(*layers.StringLookup).Adapt(layers.StringsOf(texts...)) }},
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
