package data_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/data"
)

// words are samples of so many steps, with the number of the sample in them.
func words(lengths ...int) *data.Dataset[keras.Batch] {
	var all []keras.Batch
	for i, n := range lengths {
		x := slices.Repeat([]float32{float32(i + 1)}, n)
		all = append(all, keras.Batch{X: keras.NewTensor(x, n), Y: keras.NewTensor(x, n)})
	}
	return data.FromSlice(all)
}

func TestBucketByLength(t *testing.T) {
	d := data.BucketByLength(words(3, 9, 4, 1, 10, 5, 2, 8, 4), data.Buckets{Lengths: []int{4, 10}, BatchSizes: []int{3, 2}, XValue: -1, PadY: true})
	show := func(seq func(func(keras.Batch, error) bool)) (all []string) {
		for b, err := range seq {
			check(t, err)
			x, err := b.X.Values()
			check(t, err)
			var firsts []float32
			n := b.X.Dim(1)
			for i := range b.X.Dim(0) {
				firsts = append(firsts, x[i*n])
			}
			all = append(all, fmt.Sprint(b.X.Shape(), b.Y.Shape(), firsts, x[n-1]))
		}
		return all
	}
	want := []string{"[3 4] [3 4] [1 3 4] -1", "[2 10] [2 10] [2 5] -1", "[2 10] [2 10] [6 8] -1", "[2 4] [2 4] [7 9] -1"}
	for skip := range len(want) + 1 {
		if got := show(d.Epoch(background, 0, skip)); !slices.Equal(got, want[skip:]) {
			t.Errorf("after %d batches: got %q, want %q", skip, got, want[skip:])
		}
	}
	one := data.BucketByLength(words(1, 2, 3), data.Buckets{Lengths: []int{2, 4}, BatchSizes: []int{2}, DropRemainder: true})
	if got := show(one.Batches()); !slices.Equal(got, []string{"[2 2] [2 2] [1 2] 0"}) {
		t.Errorf("without the remainder: got %q", got)
	}
	byY := data.Buckets{Lengths: []int{3}, BatchSizes: []int{1}, Length: func(b keras.Batch) int { return b.Y.Dim(0) }}
	if got := show(data.BucketByLength(words(2), byY).Batches()); !slices.Equal(got, []string{"[1 3] [1 2] [1] 0"}) {
		t.Errorf("by Y: got %q", got)
	}
	for want, b := range map[string]data.Buckets{
		"BucketByLength: sample 1: it has length 9, want at most 4":                                         {Lengths: []int{4}, BatchSizes: []int{2}},
		"BucketByLength: Lengths is [4 4], want ascending positive numbers":                                 {Lengths: []int{4, 4}, BatchSizes: []int{2}},
		"BucketByLength: Lengths is [], want ascending positive numbers":                                    {BatchSizes: []int{2}},
		"BucketByLength: BatchSizes is [], want one positive number, or one for each of the 1 lengths":      {Lengths: []int{4}},
		"BucketByLength: BatchSizes is [2 0 1], want one positive number, or one for each of the 1 lengths": {Lengths: []int{4}, BatchSizes: []int{2, 0, 1}},
		"BucketByLength: BatchSizes is [0], want one positive number, or one for each of the 2 lengths":     {Lengths: []int{4, 5}, BatchSizes: []int{0}},
	} {
		_, err := data.BucketByLength(words(3, 9), b).Collect(background)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got error %v, want %s", err, want)
		}
	}
}
