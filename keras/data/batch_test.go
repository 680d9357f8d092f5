package data_test

import (
	"bytes"
	"context"
	"fmt"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/op"
	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/data"
	"github.com/mezzo-ml/mezzo/keras/internal/pipeline"
)

// texts is what a dataset of batches yields, as text.
func texts(t testing.TB, d *data.Dataset[keras.Batch]) []string {
	t.Helper()
	var all []string
	for b, err := range d.Epoch(background, 0, 0) {
		check(t, err)
		s := fmt.Sprint(b.X)
		if b.Y != nil {
			s += " / " + fmt.Sprint(b.Y)
		}
		all = append(all, s)
	}
	return all
}

func numbered(n int) *data.Dataset[keras.Batch] {
	return data.Map(data.Range(0, n), func(_ context.Context, i int) (keras.Batch, error) { return sample(float32(i), 2), nil })
}

func TestBatch(t *testing.T) {
	noLeaks(t)
	full, last := []string{"float32[2 2]\n[[0 0]\n [1 1]]", "float32[2 2]\n[[2 2]\n [3 3]]"}, "float32[1 2]\n[[4 4]]"
	for name, c := range map[string]struct {
		d    *data.Dataset[keras.Batch]
		want []string
	}{
		"Batch":              {numbered(5).Batch(2), append(full, last)},
		"BatchDropRemainder": {numbered(5).BatchDropRemainder(2), full},
		"held":               {numbered(5).Batch(2).Prefetch(3), append(full, last)},
		"PaddedBatch":        {numbered(5).PaddedBatch(2, data.Padding{}), append(full, last)},
		"Unbatch":            {numbered(5).Batch(3).Unbatch().Batch(2), append(full, last)},
	} {
		if got := texts(t, c.d); fmt.Sprint(got) != fmt.Sprint(c.want) {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
		if n := c.d.Len(); n != len(c.want) && n != data.Unknown {
			t.Errorf("%s: got Len %d, want %d", name, n, len(c.want))
		}
		for skip := range c.want {
			for b, err := range c.d.Epoch(background, 0, skip) {
				check(t, err)
				if got := fmt.Sprint(b.X); got != c.want[skip] {
					t.Errorf("%s: got %s after %d, want %s", name, got, skip, c.want[skip])
				}
				break
			}
		}
	}
	for want, d := range map[string]*data.Dataset[keras.Batch]{
		"Batch: size is 0, want a positive number":                            numbered(5).Batch(0),
		"Batch: sample 1 of the batch is float32[3], the first is float32[2]": numbered(1).Concatenate(data.FromSlice([]keras.Batch{sample(1, 3)})).Batch(2),
		"Batch: sample 1 of the batch is nothing, the first is float32[2]":    numbered(1).Concatenate(data.FromSlice([]keras.Batch{{}})).Batch(2),
	} {
		_, err := d.Collect(background)
		wantError(t, err, want)
	}
	// For this module's readers batches are filled again: the reader's, two on
	// the way, one being filled.
	seen := map[*keras.Tensor]bool{}
	s, _ := pipeline.Shared[keras.Batch]().Dataset(numbered(40).Batch(2).Prefetch(2))
	for b, err := range s.Open(pipeline.Start{Context: background}, 1) {
		check(t, err)
		seen[b.X] = true
	}
	if len(seen) > 4 {
		t.Errorf("got %d tensors for 20 batches, want at most 4", len(seen))
	}
}

func TestPaddedBatch(t *testing.T) {
	i32 := func(v []int32, shape ...int) *keras.Tensor { return keras.NewTensor(v, shape...) }
	ragged := data.FromSlice([]keras.Batch{
		{X: i32([]int32{1, 2, 3, 4, 5, 6}, 3, 2), Y: i32([]int32{1}, 1)},
		{X: i32([]int32{7, 8, 9}, 1, 3), Y: i32([]int32{2, 3}, 2)},
		{X: i32(nil, 0, 2), Y: i32([]int32{4}, 1)},
	})
	for name, c := range map[string]struct {
		p    data.Padding
		want []string
	}{
		"the largest": {data.Padding{}, []string{
			"int32[2 3 3] [1 2 0 3 4 0 5 6 0 7 8 9 0 0 0 0 0 0] / int32[2 2] [1 0 2 3]", "int32[1 0 2] [] / int32[1 1] [4]"}},
		"sizes": {data.Padding{X: keras.Shape{4, -1}, XValue: -1, Y: keras.Shape{3}, YValue: 9}, []string{
			"int32[2 4 3] [1 2 -1 3 4 -1 5 6 -1 -1 -1 -1 7 8 9 -1 -1 -1 -1 -1 -1 -1 -1 -1] / int32[2 3] [1 9 9 2 3 9]",
			"int32[1 4 2] [-1 -1 -1 -1 -1 -1 -1 -1] / int32[1 3] [4 9 9]"}},
		"dropped": {data.Padding{DropRemainder: true}, []string{
			"int32[2 3 3] [1 2 0 3 4 0 5 6 0 7 8 9 0 0 0 0 0 0] / int32[2 2] [1 0 2 3]"}},
	} {
		var got []string
		for b, err := range ragged.PaddedBatch(2, c.p).Epoch(background, 0, 0) {
			check(t, err)
			x, err := b.X.Int64s()
			check(t, err)
			y, err := b.Y.Int64s()
			check(t, err)
			got = append(got, fmt.Sprint(b.X.Type(), " ", x, " / ", b.Y.Type(), " ", y))
		}
		if fmt.Sprint(got) != fmt.Sprint(c.want) {
			t.Errorf("%s: got\n%q, want\n%q", name, got, c.want)
		}
	}
	_, err := ragged.PaddedBatch(2, data.Padding{X: keras.Shape{2, 2}}).Collect(background)
	wantError(t, err, "PaddedBatch: X of sample 0 of the batch: got shape [3 2], want at most [2 2]")
	_, err = ragged.PaddedBatch(2, data.Padding{X: keras.Shape{2}}).Collect(background)
	wantError(t, err, "PaddedBatch: X of sample 0 of the batch: got shape [3 2], want 1 axes")
}

// batches have each element type, tuples and nothing.
func batches() []keras.Batch {
	var all []keras.Batch
	for _, d := range dtype.All() {
		b := make([]byte, 6*d.Size())
		for i := range b {
			b[i] = byte(i % 2)
		}
		all = append(all, keras.Batch{X: tensor.FromBytes(op.Type{DType: d, Shape: op.Shape{3, 2}}, b)})
	}
	x := all[0].X
	return append(all, keras.Batch{X: keras.Tuple(x, all[3].X), Y: keras.Tuple(x), Weight: x}, keras.Batch{Y: x.Reshape(6, 1, 1)}, keras.Batch{},
		keras.Batch{X: keras.NewTensor([]float32{}, 0, 5), Y: tensor.Scalar(keras.Float32, 2)})
}

func TestSamplesCodec(t *testing.T) {
	c := data.Samples()
	for i, b := range batches() {
		coded, err := c.Encode(b)
		check(t, err)
		got, err := c.Decode(coded)
		check(t, err)
		again, err := c.Encode(got)
		check(t, err)
		for _, p := range [][2]*keras.Tensor{{b.X, got.X}, {b.Y, got.Y}, {b.Weight, got.Weight}} {
			if (p[0] == nil) != (p[1] == nil) || p[0] != nil && (p[0].IsTuple() != p[1].IsTuple() || p[0].Len() != p[1].Len()) {
				t.Errorf("batch %d: got %v, want %v", i, got, b)
			}
		}
		if !bytes.Equal(coded, again) {
			t.Errorf("batch %d: got %v, want %v", i, again, coded)
		}
		for n := range coded {
			if _, err := c.Decode(coded[:n]); err == nil {
				t.Errorf("batch %d: got no error for %d of %d bytes", i, n, len(coded))
			}
		}
		_, err = c.Decode(append(coded, 0))
		wantError(t, err, "got 1 bytes after the tensors")
	}
	_, err := c.Decode([]byte{255, 99, 0})
	wantError(t, err, "got element type 99, which there is not")
}

func FuzzSamples(f *testing.F) {
	c := data.Samples()
	for _, b := range batches() {
		coded, err := c.Encode(b)
		check(f, err)
		f.Add(coded)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		x, err := c.Decode(b)
		if err != nil {
			return
		}
		again, err := c.Encode(x)
		check(t, err)
		y, err := c.Decode(again)
		check(t, err)
		third, err := c.Encode(y)
		check(t, err)
		if !bytes.Equal(again, third) {
			t.Errorf("got %v, want %v", third, again)
		}
	})
}
