package data

import (
	"context"
	"fmt"
	"math"

	"github.com/mezzo-ml/mezzo/backend/op"
	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/keras"
)

// ToCategorical returns one-hot vectors for integer labels from 0
// (keras.utils.to_categorical): float32 of the labels' shape, without a last
// axis of 1, with an axis of size classes added. With classes 0 the size is
// the largest label + 1.
func ToCategorical(labels *keras.Tensor, classes int) (t *keras.Tensor, err error) {
	defer tensor.Catch(&err)
	y, err := labels.Int64s()
	if err != nil {
		return nil, err
	}
	shape := labels.Shape().Clone()
	if n := len(shape); n > 1 && shape[n-1] == 1 {
		shape = shape[:n-1]
	}
	if classes == 0 {
		for _, c := range y {
			if c >= maxClasses {
				return nil, fmt.Errorf("ToCategorical: got label %d, want labels below %d", c, maxClasses)
			}
			classes = max(classes, int(c)+1)
		}
	}
	if classes < 0 || len(y) > math.MaxInt/max(classes, 1) {
		return nil, fmt.Errorf("ToCategorical: got %d labels of %d classes", len(y), classes)
	}
	one := make([]float32, len(y)*classes)
	for i, c := range y {
		if c < 0 || c >= int64(classes) {
			return nil, fmt.Errorf("ToCategorical: label %d is %d, want 0 to %d", i, c, classes-1)
		}
		one[i*classes+int(c)] = 1
	}
	return keras.NewTensor(one, append(shape, classes)...), nil
}

// maxClasses bounds what a label can make ToCategorical allocate.
const maxClasses = 1 << 24

// PadSequencesOptions has the arguments of PadSequences.
type PadSequencesOptions[T tensor.Element] struct {
	MaxLen     int    // default: that of the longest sequence
	Padding    string // where to put Value: "pre" or "post"; default: "pre"
	Truncating string // where to cut what is longer: "pre" or "post"; default: "pre"
	Value      T
}

// PadSequences returns sequences padded or cut to one length, as a tensor
// [len(sequences) MaxLen] (keras.utils.pad_sequences).
func PadSequences[T tensor.Element](sequences [][]T, o PadSequencesOptions[T]) (*keras.Tensor, error) {
	for _, f := range []struct {
		name  string
		value *string
	}{{"Padding", &o.Padding}, {"Truncating", &o.Truncating}} {
		if *f.value == "" {
			*f.value = "pre"
		}
		if *f.value != "pre" && *f.value != "post" {
			return nil, fmt.Errorf("PadSequences: %s is %q, want pre or post", f.name, *f.value)
		}
	}
	if o.MaxLen < 0 {
		return nil, fmt.Errorf("PadSequences: MaxLen is %d, want a positive number, or 0 for the longest sequence", o.MaxLen)
	}
	n := o.MaxLen
	if n == 0 {
		for _, s := range sequences {
			n = max(n, len(s))
		}
	}
	out := make([]T, len(sequences)*n)
	for i := range out {
		out[i] = o.Value
	}
	for i, s := range sequences {
		if over := len(s) - n; over > 0 {
			if o.Truncating == "pre" {
				s = s[over:]
			} else {
				s = s[:n]
			}
		}
		row := out[i*n : (i+1)*n]
		if o.Padding == "pre" {
			row = row[n-len(s):]
		}
		copy(row, s)
	}
	return keras.NewTensor(out, len(sequences), n), nil
}

// TimeseriesOptions has the arguments of TimeseriesFromArray.
type TimeseriesOptions struct {
	SequenceStride int // between the starts of windows; default: 1
	SamplingRate   int // between the steps of a window; default: 1
	BatchSize      int // default: 128; -1: windows one by one
	Shuffle        bool
	Seed           uint64
	StartIndex     int // steps before it are left out
	EndIndex       int // steps from it on are left out; default: none
}

// TimeseriesFromArray returns windows of sequenceLength steps of x, whose axis
// 0 is the time (keras.utils.timeseries_dataset_from_array). The target of the
// window that starts at step i is y[i]; to predict what comes h steps after the
// window, give y from step (sequenceLength-1)·SamplingRate+h on. y may be nil,
// and shorter than x: then there are fewer windows.
func TimeseriesFromArray(x, y *keras.Tensor, sequenceLength int, o TimeseriesOptions) (d *Dataset[keras.Batch], err error) {
	defer tensor.Catch(&err)
	for _, v := range []*int{&o.SequenceStride, &o.SamplingRate} {
		if *v == 0 {
			*v = 1
		}
	}
	if o.BatchSize == 0 {
		o.BatchSize = 128
	}
	steps := 0
	if x != nil && !x.IsTuple() && x.Rank() > 0 {
		steps = x.Dim(0)
	}
	end := o.EndIndex
	if end == 0 {
		end = steps
	}
	for _, f := range []struct {
		name string
		bad  bool
		got  any
		want string
	}{
		{"x", steps == 0, x, "a tensor of steps"},
		{"y", y != nil && (y.IsTuple() || y.Rank() == 0), y, "a tensor of targets"},
		{"sequenceLength", sequenceLength < 1, sequenceLength, "a positive number"},
		{"SequenceStride", o.SequenceStride < 0 || o.SequenceStride >= max(steps, 2), o.SequenceStride, "a positive number below that of the steps"},
		{"SamplingRate", o.SamplingRate < 0 || o.SamplingRate >= max(steps, 2), o.SamplingRate, "a positive number below that of the steps"},
		{"BatchSize", o.BatchSize < -1, o.BatchSize, "a positive number, or -1 for none"},
		{"StartIndex", o.StartIndex < 0 || o.StartIndex >= steps, o.StartIndex, "a number of a step"},
		{"EndIndex", end <= o.StartIndex || end > steps, end, "a number of a step after StartIndex"},
	} {
		if f.bad {
			return nil, fmt.Errorf("TimeseriesFromArray: %s is %v, want %s", f.name, f.got, f.want)
		}
	}
	windows := 0
	if sequenceLength-1 <= steps/o.SamplingRate {
		windows = max(end-o.StartIndex-(sequenceLength-1)*o.SamplingRate, 0)
	}
	if y != nil {
		windows = min(windows, max(y.Dim(0)-o.StartIndex, 0))
	}
	starts := Range(0, (windows+o.SequenceStride-1)/o.SequenceStride)
	if o.Shuffle {
		starts = starts.Shuffle(starts.Len(), o.Seed)
	}
	cut, err := newCutter(x)
	if err != nil {
		return nil, err
	}
	var target *cutter
	if y != nil {
		if target, err = newCutter(y); err != nil {
			return nil, err
		}
	}
	d = Map(starts, func(_ context.Context, i int) (b keras.Batch, err error) {
		defer tensor.Catch(&err)
		i *= o.SequenceStride
		b.X = cut.steps(o.StartIndex+i, sequenceLength, o.SamplingRate)
		if target != nil {
			b.Y = target.steps(o.StartIndex+i, -1, 1)
		}
		return b, nil
	})
	if o.BatchSize > 0 {
		d = d.Batch(o.BatchSize)
	}
	return d, nil
}

// cutter takes steps out of a tensor.
type cutter struct {
	bytes []byte
	step  op.Type
}

func newCutter(t *keras.Tensor) (*cutter, error) {
	b, err := t.Bytes()
	return &cutter{b, op.Type{DType: t.DType(), Shape: t.Shape()[1:].Clone()}}, err
}

// steps returns n steps from start on, or that step alone if n is -1.
func (c *cutter) steps(start, n, rate int) *keras.Tensor {
	size := c.step.Bytes()
	if n < 0 {
		return tensor.FromBytes(c.step, c.bytes[start*size:(start+1)*size])
	}
	out := make([]byte, 0, n*size)
	for i := range n {
		at := (start + i*rate) * size
		out = append(out, c.bytes[at:at+size]...)
	}
	return tensor.FromBytes(op.Type{DType: c.step.DType, Shape: append(op.Shape{n}, c.step.Shape...)}, out)
}

// SplitDataset splits a dataset (keras.utils.split_dataset): left has the
// first elements, right the last ones. A size between 0 and 1 is a share,
// another a number of elements, and 0 is what the other part leaves. To split
// at random, use Shuffle and then Cache first: an order that changes with the
// epoch would mix the parts.
func SplitDataset[T any](d *Dataset[T], leftSize, rightSize float64) (left, right *Dataset[T], err error) {
	n := d.Len()
	if n == Unknown || n == Infinite {
		return nil, nil, fmt.Errorf("SplitDataset: the length of the dataset is not known; Collect it and use FromSlice")
	}
	size := func(name string, s float64) (int, error) {
		switch {
		case s > 0 && s < 1:
			return int(math.RoundToEven(s * float64(n))), nil
		case s == math.Trunc(s) && s >= 0 && s < float64(n):
			return int(s), nil
		}
		return 0, fmt.Errorf("SplitDataset: %s is %v, want a share between 0 and 1, or a whole number below %d", name, s, n)
	}
	a, err := size("leftSize", leftSize)
	if err != nil {
		return nil, nil, err
	}
	b, err := size("rightSize", rightSize)
	switch {
	case err != nil:
		return nil, nil, err
	case leftSize == 0 && rightSize == 0:
		return nil, nil, fmt.Errorf("SplitDataset: no size given")
	case leftSize == 0:
		a = n - b
	case rightSize == 0:
		b = n - a
	}
	if a == 0 || b == 0 || a+b > n {
		return nil, nil, fmt.Errorf("SplitDataset: sizes %v and %v make %d and %d of %d elements", leftSize, rightSize, a, b, n)
	}
	return d.Take(a), d.Skip(n - b), nil
}

// Integer is the type of labels.
type Integer interface {
	~int | ~int8 | ~int16 | ~int32 | ~int64 | ~uint8 | ~uint16 | ~uint32
}

// ClassWeights returns class weights for FitConfig.ClassWeight that balance
// the classes: weight(c) = labels / (classes · count(c)), scikit-learn's
// "balanced".
func ClassWeights[T Integer](labels []T) map[int]float64 {
	counts := map[int]float64{}
	for _, l := range labels {
		counts[int(l)]++
	}
	weights := make(map[int]float64, len(counts))
	for class, n := range counts {
		weights[class] = float64(len(labels)) / (float64(len(counts)) * n)
	}
	return weights
}
