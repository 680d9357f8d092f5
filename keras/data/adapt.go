package data

import (
	"context"
	"fmt"
	"math"
	"reflect"
	"strings"

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

// rowsOfAdapt is the number of rows that Keras's adapt takes at once of a dataset of
// rows.
const rowsOfAdapt = 32

// AdaptColumns computes what the features of a table learn from an epoch of rows,
// structs as for Columns (Keras: FeatureSpace.adapt(dataset)). If ctx ends or the
// dataset fails, the space does not change.
func AdaptColumns[T any](ctx context.Context, s *preprocessing.FeatureSpace, rows *Dataset[T]) error {
	if rows.Len() == Infinite {
		return fmt.Errorf("AdaptColumns: the dataset has no end; use Take")
	}
	return s.AdaptSeq(func(yield func(preprocessing.Columns, error) bool) {
		for chunk, err := range Chunk(rows, rowsOfAdapt, false).All(ctx) {
			var c preprocessing.Columns
			if err == nil {
				c, err = Columns(chunk)
			}
			if !yield(c, err) || err != nil {
				return
			}
		}
	})
}

// Columns returns the columns of rows, structs as CSV reads them: a column for each
// exported field that is a string, bool, integer or float, by the name in its tag
// `csv`, or else its own. Fields with the tag "-" are left out.
func Columns[T any](rows []T) (preprocessing.Columns, error) {
	t := reflect.TypeFor[T]()
	if t.Kind() != reflect.Struct {
		return nil, fmt.Errorf("Columns: rows are %v, want structs", t)
	}
	out, all := preprocessing.Columns{}, reflect.ValueOf(rows)
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("csv"), ",")
		if !f.IsExported() || name == "-" {
			continue
		}
		if name == "" {
			name = f.Name
		}
		column := func(j int) reflect.Value { return all.Index(j).Field(i) }
		switch k := f.Type.Kind(); {
		case k == reflect.String:
			out[name] = columnOf(len(rows), func(j int) string { return column(j).String() })
		case k == reflect.Bool:
			out[name] = columnOf(len(rows), func(j int) bool { return column(j).Bool() })
		case k == reflect.Float32, k == reflect.Float64:
			out[name] = columnOf(len(rows), func(j int) float64 { return column(j).Float() })
		case k >= reflect.Int && k <= reflect.Int64:
			out[name] = columnOf(len(rows), func(j int) int64 { return column(j).Int() })
		case k >= reflect.Uint && k <= reflect.Uint64:
			for j := range rows {
				if v := column(j).Uint(); v > math.MaxInt64 {
					return nil, fmt.Errorf("Columns: field %s of row %d is %d, want at most %d", f.Name, j, v, math.MaxInt64)
				}
			}
			out[name] = columnOf(len(rows), func(j int) int64 { return int64(column(j).Uint()) })
		default:
			return nil, fmt.Errorf("Columns: field %s of %v is %v, want a string, bool, integer or float", f.Name, t, f.Type)
		}
	}
	return out, nil
}

func columnOf[V any](n int, at func(int) V) []V {
	all := make([]V, n)
	for i := range all {
		all[i] = at(i)
	}
	return all
}
