package data

import (
	"bufio"
	"compress/gzip"
	"compress/zlib"
	"context"
	"fmt"
	"io"
	"iter"

	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/internal/pipeline"
	"github.com/mezzo-ml/mezzo/keras/internal/safeio"
	"github.com/mezzo-ml/mezzo/keras/internal/tfrecord"
)

// TFRecordOptions has the settings of TFRecordFiles.
type TFRecordOptions struct {
	Compression string      // "", "GZIP" or "ZLIB"
	MaxRecord   keras.Bytes // bytes of a record; default: 1 GiB, or 64 MiB in compressed files
}

// TFRecord returns the records of TFRecord files, one file after the other,
// and checks their checksums (tf.data.TFRecordDataset). See ParseExample.
func TFRecord(paths ...string) *Dataset[[]byte] { return TFRecordFiles(paths, TFRecordOptions{}) }

// TFRecordFiles is TFRecord with options, for compressed files and larger
// records.
func TFRecordFiles(paths []string, o TFRecordOptions) *Dataset[[]byte] {
	if o.MaxRecord == 0 {
		o.MaxRecord = 1 << 30
		if o.Compression != "" {
			o.MaxRecord = 64 << 20 // a thousand bytes may be packed into one
		}
	}
	return FlatMap(FromSlice(paths), func(_ context.Context, path string) (*Dataset[[]byte], error) {
		return fromFile(path, func(at pipeline.Start, f io.Reader, yield func([]byte, error) bool) error {
			return records(f, o, yield)
		}), nil
	})
}

// fromFile is the dataset of what read finds in a file: elements that it
// yields, or an error, which is given the name of the file.
func fromFile[T any](path string, read func(at pipeline.Start, f io.Reader, yield func(T, error) bool) error) *Dataset[T] {
	return generated(func(ctx context.Context, epoch int) iter.Seq2[T, error] {
		return func(yield func(T, error) bool) {
			var none T
			f, _, err := safeio.Open(path)
			if err != nil {
				yield(none, err)
				return
			}
			defer f.Close()
			left := false
			err = read(pipeline.Start{Context: ctx, Epoch: epoch}, f, func(x T, err error) bool {
				if err == nil {
					if err = pipeline.Ended(ctx); err != nil {
						x = none
					}
				}
				left = !yield(x, err) || err != nil
				return !left
			})
			if err != nil && !left {
				yield(none, safeio.Short(fmt.Errorf("%s: %w", path, err)))
			}
		}
	})
}

// records yields the records of a file until there are none, or the reader has
// left.
func records(f io.Reader, o TFRecordOptions, yield func([]byte, error) bool) error {
	r, err := decompress(bufio.NewReaderSize(f, 1<<18), o.Compression)
	if err != nil {
		return err
	}
	for i := 0; ; i++ {
		b, err := tfrecord.Read(r, int64(o.MaxRecord))
		switch {
		case err == io.EOF:
			return nil
		case err != nil:
			return fmt.Errorf("record %d: %w", i, err)
		}
		if !yield(b, nil) {
			return nil
		}
	}
}

// decompress returns the content of a file.
func decompress(r io.Reader, compression string) (io.Reader, error) {
	switch compression {
	case "":
		return r, nil
	case "GZIP":
		return gzip.NewReader(r)
	case "ZLIB":
		return zlib.NewReader(r)
	}
	return nil, fmt.Errorf("Compression is %q, want GZIP, ZLIB or nothing", compression)
}

// TFRecordWriter writes records as TensorFlow does (tf.io.TFRecordWriter).
type TFRecordWriter struct {
	w   io.Writer
	buf []byte
}

// NewTFRecordWriter returns a writer of records to w, which should be buffered,
// and compressed if the file is to be.
func NewTFRecordWriter(w io.Writer) *TFRecordWriter { return &TFRecordWriter{w: w} }

// Write writes a record.
func (w *TFRecordWriter) Write(data []byte) error {
	w.buf = tfrecord.Append(w.buf[:0], data)
	_, err := w.w.Write(w.buf)
	return err
}
