package data_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"reflect"
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

// tableRow has a field of each kind.
type tableRow struct {
	Age    float32 `csv:"age,default=-1"`
	Sex    uint8   `csv:"sex"`
	Ill    bool
	Thal   string `csv:"thal"`
	Visits int32
	Note   string `csv:"-"`
	other  int
}

// TestColumns: rows become columns by the names that CSV reads them by.
func TestColumns(t *testing.T) {
	rows := []tableRow{{40, 1, true, "fixed", 3, "x", 0}, {50.5, 0, false, "", -2, "y", 0}}
	got, err := data.Columns(rows)
	check(t, err)
	want := preprocessing.Columns{"age": []float64{40, 50.5}, "sex": []int64{1, 0}, "Ill": []bool{true, false}, "thal": []string{"fixed", ""}, "Visits": []int64{3, -2}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	_ = rows[0].other
	if _, err := data.Columns([]int{1}); err == nil || err.Error() != "Columns: rows are int, want structs" {
		t.Errorf("got error %v, want one of the type", err)
	}
	if _, err := data.Columns([]struct{ X []int }{}); err == nil || !strings.Contains(err.Error(), "field X of struct") {
		t.Errorf("got error %v, want one of the field", err)
	}
}

// TestAdaptColumns: a dataset of rows teaches what the columns teach, and nothing
// when it fails.
func TestAdaptColumns(t *testing.T) {
	noLeaks(t)
	var rows []tableRow
	for i := range 100 {
		rows = append(rows, tableRow{Age: float32(i * 37 % 100), Thal: fmt.Sprint("kind", i%3)})
	}
	make := func() *preprocessing.FeatureSpace {
		return &preprocessing.FeatureSpace{Features: map[string]preprocessing.Feature{
			"age": {Type: "float_discretized", NumBins: 4}, "thal": {Type: "string_categorical"}, "Visits": {Type: "float_normalized"}}}
	}
	columns, err := data.Columns(rows)
	check(t, err)
	whole, streamed := make(), make()
	check(t, whole.Adapt(columns))
	check(t, data.AdaptColumns(background, streamed, data.FromSlice(rows)))
	of := func(s *preprocessing.FeatureSpace) []float64 {
		y, err := s.CallColumns(columns)
		check(t, err)
		all, err := y.Float64s()
		check(t, err)
		return all
	}
	if got, want := of(streamed), of(whole); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	broken, failing := errors.New("disk"), make()
	err = data.AdaptColumns(background, failing, data.Map(data.FromSlice(rows), func(_ context.Context, r tableRow) (tableRow, error) {
		if r.Age == 3 {
			return r, broken
		}
		return r, nil
	}))
	if !errors.Is(err, broken) || failing.Adapted() == nil {
		t.Errorf("got error %v, want %v, and a space without a state", err, broken)
	}
	if err := data.AdaptColumns(background, make(), data.FromSlice(rows).Repeat(-1)); err == nil || !strings.Contains(err.Error(), "use Take") {
		t.Errorf("got error %v, want one of the length", err)
	}
}
