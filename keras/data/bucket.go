package data

import (
	"fmt"
	"iter"
	"slices"

	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/internal/pipeline"
)

// Buckets has the settings of BucketByLength.
type Buckets struct {
	// Lengths are the lengths to which samples are padded, ascending. A sample
	// belongs to the first that is at least its own length. A sample longer
	// than the last is an error. Required.
	Lengths []int
	// BatchSizes is the batch size, one for all or one for each of Lengths;
	// longer samples need more memory. Required.
	BatchSizes []int
	// Length is the length of a sample; default: the size of axis 0 of its X.
	Length func(keras.Batch) int
	// PadY also pads axis 0 of Y, for targets with a label for each step.
	PadY bool

	XValue, YValue float64 // what is put behind the elements of a sample; default: 0

	DropRemainder bool // leave out, at the end, what does not fill a batch
}

// BucketByLength groups samples of similar length into batches (tf.data:
// bucket_by_sequence_length with pad_to_bucket_boundary). All samples of a
// batch are padded to the smallest of Buckets.Lengths that holds them. So a
// model gets few different shapes, each of which compiles one program, and
// little padding.
//
// A batch is yielded as soon as enough samples of its bucket were read.
// Incomplete batches come at the end, the shortest first.
func BucketByLength(d *Dataset[keras.Batch], b Buckets) *Dataset[keras.Batch] {
	if err := b.check(); err != nil {
		return from(Unknown, pipeline.Failing[keras.Batch](fmt.Errorf("BucketByLength: %w", err)))
	}
	return from(Unknown, func(at pipeline.Start, hold pipeline.Hold) iter.Seq2[keras.Batch, error] {
		start := at
		start.Skip = 0 // which samples make a batch depends on those before
		return pipeline.Past(func(yield func(keras.Batch, error) bool) {
			waiting := make([][]keras.Batch, len(b.Lengths))
			stack := hooks.Stacker(hold)
			pass := func(i int) bool {
				y, err := b.batch(i, waiting[i], stack)
				clear(waiting[i])
				waiting[i] = waiting[i][:0]
				return yield(y, err) && err == nil
			}
			read := 0
			for x, err := range d.open(start, pipeline.Forever) {
				if err != nil {
					yield(keras.Batch{}, err)
					return
				}
				i, err := b.of(x)
				if err != nil {
					yield(keras.Batch{}, fmt.Errorf("BucketByLength: sample %d: %w", read, err))
					return
				}
				read++
				if waiting[i] = append(waiting[i], x); len(waiting[i]) == b.size(i) && !pass(i) {
					return
				}
			}
			for i := range waiting {
				if len(waiting[i]) > 0 && !b.DropRemainder && !pass(i) {
					return
				}
			}
		}, at.Skip)
	}).of(pipeline.Batches)
}

func (b *Buckets) check() error {
	if len(b.Lengths) == 0 || b.Lengths[0] < 1 || !slices.IsSorted(b.Lengths) || len(slices.Compact(slices.Clone(b.Lengths))) != len(b.Lengths) {
		return fmt.Errorf("Lengths is %v, want ascending positive numbers", b.Lengths)
	}
	if n := len(b.BatchSizes); n == 0 || n != 1 && n != len(b.Lengths) || slices.Min(b.BatchSizes) < 1 {
		return fmt.Errorf("BatchSizes is %v, want one positive number, or one for each of the %d lengths", b.BatchSizes, len(b.Lengths))
	}
	return nil
}

// size is the batch size of bucket i.
func (b *Buckets) size(i int) int { return b.BatchSizes[min(i, len(b.BatchSizes)-1)] }

// of is the bucket of a sample.
func (b *Buckets) of(x keras.Batch) (int, error) {
	n := 0
	switch {
	case b.Length != nil:
		n = b.Length(x)
	case x.X == nil || x.X.Unpack()[0].Rank() == 0:
		return 0, fmt.Errorf("X has no axis, want one for the length, or set Length")
	default:
		n = x.X.Unpack()[0].Dim(0)
	}
	i, _ := slices.BinarySearch(b.Lengths, n)
	if i == len(b.Lengths) {
		return 0, fmt.Errorf("it has length %d, want at most %d", n, b.Lengths[i-1])
	}
	return i, nil
}

// batch pads and stacks samples of bucket i.
func (b *Buckets) batch(i int, samples []keras.Batch, stack func([]keras.Batch) (keras.Batch, error)) (keras.Batch, error) {
	p := Padding{XValue: b.XValue, YValue: b.YValue, X: sized(samples[0].X, b.Lengths[i])}
	if b.PadY {
		p.Y = sized(samples[0].Y, b.Lengths[i])
	}
	if err := p.samples(samples); err != nil {
		return keras.Batch{}, err
	}
	return stack(samples)
}

// sized is the shape of samples like t with n elements on axis 0 and as many as
// the largest of the batch on the others, or nil.
func sized(t *keras.Tensor, n int) keras.Shape {
	if t == nil || t.Unpack()[0].Rank() == 0 {
		return nil
	}
	s := slices.Repeat(keras.Shape{Unknown}, t.Unpack()[0].Rank())
	s[0] = n
	return s
}
