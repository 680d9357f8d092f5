package data

import (
	"bufio"
	"context"
	"fmt"
	"iter"
	"os"
	"sync/atomic"

	"github.com/mezzo-ml/mezzo/keras/internal/atomicfile"
	"github.com/mezzo-ml/mezzo/keras/internal/pipeline"
)

// Cache keeps the elements in memory once all were read (tf.data: cache).
// Every epoch then has the elements of epoch 0, so Shuffle, and Map with
// Random, must come after it.
func (d *Dataset[T]) Cache() *Dataset[T] {
	var kept atomic.Pointer[[]T]
	return from(d.n, func(at pipeline.Start, _ pipeline.Hold) iter.Seq2[T, error] {
		return func(yield func(T, error) bool) {
			all := kept.Load()
			if all == nil && at.Skip > 0 { // it is not read from the beginning
				at.Epoch = 0
				d.open(at, pipeline.Forever)(yield)
				return
			}
			if all != nil {
				if len(*all) < at.Skip {
					var none T
					yield(none, pipeline.Short(len(*all), at.Skip))
					return
				}
				for _, x := range (*all)[at.Skip:] {
					if !yield(x, nil) {
						return
					}
				}
				return
			}
			var read []T
			for x, err := range d.open(pipeline.Start{Context: at.Context}, pipeline.Forever) {
				if err == nil {
					read = append(read, x)
				}
				if !yield(x, err) || err != nil {
					return
				}
			}
			kept.CompareAndSwap(nil, &read)
		}
	}).of(d.form)
}

// Codec writes elements to files and reads them back, such as Bytes and
// Samples. Decode must return an error for any data that Encode did not write.
type Codec[T any] struct {
	Encode func(x T) ([]byte, error)
	Decode func(b []byte) (T, error)
}

// Bytes returns the Codec of byte slices.
func Bytes() Codec[[]byte] {
	same := func(b []byte) ([]byte, error) { return b, nil }
	return Codec[[]byte]{same, same}
}

// CacheFile stores the elements in a TFRecord file, encoded by codec (tf.data:
// cache with a filename). The file gets its name when all elements have been
// read. From then on they are read from it, also by later programs. Remove it
// when the data changes.
func (d *Dataset[T]) CacheFile(path string, codec Codec[T]) *Dataset[T] {
	return from(d.n, func(at pipeline.Start, _ pipeline.Hold) iter.Seq2[T, error] {
		return func(yield func(T, error) bool) {
			if _, err := os.Stat(path); err == nil {
				decode := func(_ context.Context, b []byte) (T, error) { return codec.Decode(b) }
				Map(TFRecord(path), decode).open(at, pipeline.Forever)(yield)
				return
			}
			if at.Skip > 0 {
				at.Epoch = 0
				d.open(at, pipeline.Forever)(yield)
				return
			}
			if err := d.fill(at, path, codec, yield); err != nil && err != errLeft {
				var none T
				yield(none, err)
			}
		}
	}).of(d.form)
}

var errLeft = fmt.Errorf("the reader has left")

// fill writes the file of a CacheFile while its elements are read. It returns
// errLeft when the reader has gone, or was given an error already.
func (d *Dataset[T]) fill(at pipeline.Start, path string, codec Codec[T], yield func(T, error) bool) error {
	left := false
	err := atomicfile.Write(atomicfile.System{}, path, func(f atomicfile.File) error {
		buffer := bufio.NewWriterSize(f, 1<<20)
		w := NewTFRecordWriter(buffer)
		for x, err := range d.open(pipeline.Start{Context: at.Context}, pipeline.Forever) {
			if err == nil {
				var b []byte
				if b, err = codec.Encode(x); err == nil {
					err = w.Write(b)
				}
				if err != nil {
					return err
				}
			}
			if !yield(x, err) || err != nil {
				left = true
				return errLeft
			}
		}
		return buffer.Flush()
	})
	switch {
	case left:
		return errLeft
	case err != nil:
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}
