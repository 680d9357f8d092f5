package data_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"testing"

	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/data"
)

// golden is what Keras and TensorFlow make; see testdata/golden.py.
type golden struct {
	Sequences [][]int32
	Pads      []struct {
		MaxLen              int
		Padding, Truncating string
		Want                [][]int32
	}
	Windows []struct {
		N, Length, Stride, Rate int
		Targets, Start, End     *int
		X                       [][]float32
		Y                       []int64
	}
	Splits []struct {
		N           int
		Left, Right float64
		A, B        []int
	}
	Categorical []struct {
		Y    json.RawMessage
		N    int
		Want json.RawMessage
	}
	Interleaved []int
}

func readGolden(t *testing.T) (g golden) {
	t.Helper()
	text, err := os.ReadFile("testdata/golden.json")
	check(t, err)
	check(t, json.Unmarshal(text, &g))
	return g
}

func TestInterleaveGolden(t *testing.T) {
	d := data.Interleave(data.Range(1, 6), 3, 2, func(_ context.Context, x int) (*data.Dataset[int], error) {
		return data.FromSlice([]int{x}).Repeat(x + 1), nil
	})
	if got, want := epoch(t, d, 0), readGolden(t).Interleaved; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestPadSequences(t *testing.T) {
	g := readGolden(t)
	for _, c := range g.Pads {
		got, err := data.PadSequences(g.Sequences, data.PadSequencesOptions[int32]{MaxLen: c.MaxLen, Padding: c.Padding, Truncating: c.Truncating, Value: -1})
		check(t, err)
		want := keras.NewTensor(slices.Concat(c.Want...), len(c.Want), len(c.Want[0]))
		if fmt.Sprint(ints(t, got)) != fmt.Sprint(ints(t, want)) || !got.Type().Equal(want.Type()) {
			t.Errorf("%d, %s, %s: got %v, want %v", c.MaxLen, c.Padding, c.Truncating, got, want)
		}
	}
	got, err := data.PadSequences([][]float32{{1}, {2, 3}}, data.PadSequencesOptions[float32]{})
	check(t, err)
	if want := "float32[2 2]\n[[0 1]\n [2 3]]"; fmt.Sprint(got) != want {
		t.Errorf("got %v, want %s", got, want)
	}
	got, err = data.PadSequences[int32](nil, data.PadSequencesOptions[int32]{})
	check(t, err)
	if want := "int32[0 0]"; got.Type().String() != want {
		t.Errorf("got %v, want %s", got.Type(), want)
	}
	_, err = data.PadSequences(g.Sequences, data.PadSequencesOptions[int32]{Padding: "left"})
	wantError(t, err, `PadSequences: Padding is "left", want pre or post`)
	_, err = data.PadSequences(g.Sequences, data.PadSequencesOptions[int32]{MaxLen: -1})
	wantError(t, err, "PadSequences: MaxLen is -1")
}

func ints(t *testing.T, x *keras.Tensor) []int64 {
	t.Helper()
	v, err := x.Int64s()
	check(t, err)
	return v
}

func TestTimeseries(t *testing.T) {
	noLeaks(t)
	rising := func(n int) *keras.Tensor {
		v := make([]float32, n)
		for i := range v {
			v[i] = float32(10 * i)
		}
		return keras.NewTensor(v, n)
	}
	value := func(p *int) int {
		if p == nil {
			return 0
		}
		return *p
	}
	for i, c := range readGolden(t).Windows {
		var y *keras.Tensor
		if c.Targets != nil {
			v := make([]int32, *c.Targets)
			for k := range v {
				v[k] = int32(k)
			}
			y = keras.NewTensor(v, len(v))
		}
		o := data.TimeseriesOptions{SequenceStride: c.Stride, SamplingRate: c.Rate, BatchSize: -1, StartIndex: value(c.Start), EndIndex: value(c.End)}
		d, err := data.TimeseriesFromArray(rising(c.N), y, c.Length, o)
		check(t, err)
		var xs [][]float32
		var ys []int64
		for _, b := range epoch(t, d, 0) {
			x, err := b.X.Values()
			check(t, err)
			xs = append(xs, x)
			if y != nil {
				ys = append(ys, ints(t, b.Y)...)
			}
		}
		if fmt.Sprint(xs) != fmt.Sprint(c.X) || !slices.Equal(ys, c.Y) || d.Len() != len(c.X) {
			t.Errorf("case %d: got %v, %v, want %v, %v", i, xs, ys, c.X, c.Y)
		}
		o.BatchSize, o.Shuffle = 0, true
		if d, err = data.TimeseriesFromArray(rising(c.N), y, c.Length, o); err != nil {
			t.Fatal(err)
		}
		orders := map[string]bool{}
		for number := range 5 {
			for _, b := range epoch(t, d, number) {
				orders[fmt.Sprint(b.X)] = true
				if want := (keras.Shape{len(c.X), c.Length}); !b.X.Shape().Equal(want) {
					t.Errorf("case %d: got a batch of %v, want %v", i, b.X.Shape(), want)
				}
			}
		}
		if len(c.X) > 3 && len(orders) < 2 {
			t.Errorf("case %d: got one order in 5 epochs", i)
		}
	}
	table, err := data.TimeseriesFromArray(keras.NewTensor(make([]float32, 30), 10, 3), keras.NewTensor(make([]float32, 20), 10, 2), 4, data.TimeseriesOptions{BatchSize: 5})
	check(t, err)
	for _, b := range epoch(t, table.Take(1), 0) {
		if got := fmt.Sprint(b.X.Type(), b.Y.Type()); got != "float32[5 4 3] float32[5 2]" {
			t.Errorf("got %s", got)
		}
	}
	for want, o := range map[string]data.TimeseriesOptions{
		"SequenceStride is 10":                        {SequenceStride: 10},
		"SamplingRate is -1":                          {SamplingRate: -1},
		"BatchSize is -3":                             {BatchSize: -3},
		"StartIndex is 10, want a number of a step":   {StartIndex: 10},
		"EndIndex is 3, want a number of a step afte": {StartIndex: 3, EndIndex: 3},
	} {
		_, err := data.TimeseriesFromArray(rising(10), nil, 2, o)
		wantError(t, err, "TimeseriesFromArray: "+want)
	}
	_, err = data.TimeseriesFromArray(rising(10), nil, 0, data.TimeseriesOptions{})
	wantError(t, err, "TimeseriesFromArray: sequenceLength is 0")
	_, err = data.TimeseriesFromArray(nil, nil, 1, data.TimeseriesOptions{})
	wantError(t, err, "TimeseriesFromArray: x is ")
	if d, err := data.TimeseriesFromArray(rising(3), nil, 4, data.TimeseriesOptions{}); err != nil || d.Len() != 0 {
		t.Errorf("got %d windows, %v, of fewer steps than one has", d.Len(), err)
	}
}

func TestSplitDataset(t *testing.T) {
	for i, c := range readGolden(t).Splits {
		a, b, err := data.SplitDataset(data.Range(0, c.N), c.Left, c.Right)
		check(t, err)
		if x, y := epoch(t, a, 0), epoch(t, b, 0); !slices.Equal(x, c.A) || !slices.Equal(y, c.B) {
			t.Errorf("case %d: got %v and %v, want %v and %v", i, x, y, c.A, c.B)
		}
	}
	for want, s := range map[string][2]float64{
		"SplitDataset: no size given": {},
		"SplitDataset: leftSize is 10, want a share between 0 and 1, or a whole number bel": {10, 0},
		"SplitDataset: rightSize is 1.5":                              {0, 1.5},
		"SplitDataset: sizes 0.6 and 0.6 make 6 and 6 of 10 elements": {0.6, 0.6},
		"SplitDataset: sizes 0.01 and 0 make 0 and 10 of 10 elements": {0.01, 0},
	} {
		_, _, err := data.SplitDataset(data.Range(0, 10), s[0], s[1])
		wantError(t, err, want)
	}
	_, _, err := data.SplitDataset(unknown(3), 0.5, 0)
	wantError(t, err, "SplitDataset: the length of the dataset is not known")
}

func TestToCategorical(t *testing.T) {
	for i, c := range readGolden(t).Categorical {
		var flat []int32
		var rows [][]int32
		var y *keras.Tensor
		if json.Unmarshal(c.Y, &flat) == nil {
			y = keras.NewTensor(flat, len(flat))
		} else {
			check(t, json.Unmarshal(c.Y, &rows))
			y = keras.NewTensor(slices.Concat(rows...), len(rows), len(rows[0]))
		}
		var want [][]float32
		check(t, json.Unmarshal(c.Want, &want))
		got, err := data.ToCategorical(y, c.N)
		check(t, err)
		v, err := got.Values()
		check(t, err)
		if !slices.Equal(v, slices.Concat(want...)) || !got.Shape().Equal(keras.Shape{len(want), len(want[0])}) {
			t.Errorf("case %d: got %v, want %v", i, got, want)
		}
	}
	for want, c := range map[string]struct {
		y []int32
		n int
	}{
		"ToCategorical: label 1 is 3, want 0 to 2":  {[]int32{0, 3}, 3},
		"ToCategorical: label 0 is -1, want 0 to 0": {[]int32{-1, 0}, 0},
		"ToCategorical: got label 2147483647":       {[]int32{1<<31 - 1}, 0},
		"ToCategorical: got 1 labels of -2 classes": {[]int32{0}, -2},
	} {
		_, err := data.ToCategorical(keras.NewTensor(c.y, len(c.y)), c.n)
		wantError(t, err, want)
	}
}

func TestClassWeights(t *testing.T) {
	// sklearn.utils.class_weight.compute_class_weight("balanced",
	// classes=[0, 1, 5], y=[0, 0, 0, 1, 5, 5]): 2/3, 2, 1
	got := data.ClassWeights([]int8{0, 0, 0, 1, 5, 5})
	if want := (map[int]float64{0: 6. / 9, 1: 2, 5: 1}); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got := data.ClassWeights([]int{}); len(got) != 0 {
		t.Errorf("got %v of no labels", got)
	}
}

// TestPadSequencesVector is Keras's test of pad_sequences.
func TestPadSequencesVector(t *testing.T) {
	in := [][]int32{{1}, {1, 2}, {1, 2, 3}}
	for _, c := range []struct {
		o    data.PadSequencesOptions[int32]
		want []int64
	}{
		{data.PadSequencesOptions[int32]{MaxLen: 3}, []int64{0, 0, 1, 0, 1, 2, 1, 2, 3}},
		{data.PadSequencesOptions[int32]{MaxLen: 3, Padding: "post"}, []int64{1, 0, 0, 1, 2, 0, 1, 2, 3}},
		{data.PadSequencesOptions[int32]{MaxLen: 3, Value: 1}, []int64{1, 1, 1, 1, 1, 2, 1, 2, 3}},
		{data.PadSequencesOptions[int32]{MaxLen: 2, Truncating: "pre"}, []int64{0, 1, 1, 2, 2, 3}},
		{data.PadSequencesOptions[int32]{MaxLen: 2, Truncating: "post"}, []int64{0, 1, 1, 2, 1, 2}},
	} {
		x, err := data.PadSequences(in, c.o)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := x.Int64s(); err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%+v: got %v, %v, want %v", c.o, got, err, c.want)
		}
	}
}
