// Package tensorboard writes event files that TensorBoard reads: scalars,
// histograms, texts and models. The Keras callback of that name is
// callbacks.TensorBoard; this is what it and training loops of one's own write
// with.
//
// An event file is a sequence of records, each a length, a protocol buffer and
// checksums of both (TensorFlow: tensorflow/core/lib/io/record_writer.h,
// tensorflow/core/util/event.proto; tensors as TensorFlow 2 writes them).
package tensorboard

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/mezzo-ml/mezzo/keras/internal/tfrecord"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/mezzo-ml/mezzo/keras/exponents"
)

// Writer appends to one event file. It is not safe for use by several
// goroutines.
type Writer struct {
	path string
	file *os.File
	buf  *bufio.Writer
	err  error // of the first write that failed
	tags map[string]bool
	now  func() time.Time
}

// files numbers the event files of this process: their names must differ.
var files atomic.Int64

// Create makes a directory, if there is none, and an event file in it, which
// has a name of its own: runs that go on in one directory are shown as one.
// The name of the directory is the name of the run.
func Create(dir string) (*Writer, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("tensorboard: %w", err)
	}
	host, err := os.Hostname()
	if err != nil {
		host = "localhost"
	}
	name := fmt.Sprintf("events.out.tfevents.%d.%s.%d.%d.v2", time.Now().Unix(), host, os.Getpid(), files.Add(1)-1)
	path := filepath.Join(dir, name)
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("tensorboard: %w", err)
	}
	w := &Writer{path: path, file: f, buf: bufio.NewWriter(f), tags: map[string]bool{}, now: time.Now}
	w.event(0, appendString(nil, 3, "brain.Event:2"))
	return w, w.Flush()
}

// Path is the name of the file.
func (w *Writer) Path() string { return w.path }

// Scalar writes a number, in float32 as TensorBoard keeps it.
func (w *Writer) Scalar(tag string, step int64, value float64) error {
	t := tensor(dtFloat)
	t = protowire.AppendTag(t, 5, protowire.BytesType) // float_val, packed
	t = protowire.AppendBytes(t, binary.LittleEndian.AppendUint32(nil, math.Float32bits(float32(value))))
	return w.value(tag, step, "scalars", nil, classScalar, t)
}

// Text writes a text, in Markdown.
func (w *Writer) Text(tag string, step int64, text string) error {
	return w.value(tag, step, "text", nil, classTensor, appendString(tensor(dtString), 8, text))
}

// Model writes the architecture of a model, as saving.ToJSON returns it, for
// the conceptual graph.
func (w *Writer) Model(tag string, step int64, config []byte) error {
	return w.value(tag, step, "graph_keras_model", []byte("1"), classTensor, appendBytes(tensor(dtString), 8, config))
}

// Histogram writes how many of some numbers are in each of 30 equal parts of
// their range. Numbers that are not finite have no place there and are left
// out.
func (w *Writer) Histogram(tag string, step int64, values []float32) error {
	return w.Buckets(tag, step, buckets(values))
}

// Exponents writes how many of some numbers are in each binade, 2^e to
// 2^(e+1), e being the axis: what of them a float type can hold. Zeros and what
// is not finite are left out. The axis reaches from -24 to 16 at least: these
// are the limits of float16, whose numbers begin at 2^-24, have all their digits
// from 2^-14 on, and end below 2^16. Those of bfloat16 are -133, -126 and 128.
func (w *Writer) Exponents(tag string, step int64, h *exponents.Histogram) error {
	return w.Buckets(tag, step, binades(h))
}

// Bucket is a part of a histogram.
type Bucket struct{ Left, Right, Count float64 }

// Buckets writes a histogram of parts of one's own, in ascending order.
func (w *Writer) Buckets(tag string, step int64, all []Bucket) error {
	var content []byte
	for _, b := range all {
		for _, x := range [...]float64{b.Left, b.Right, b.Count} {
			content = binary.LittleEndian.AppendUint64(content, math.Float64bits(x))
		}
	}
	return w.value(tag, step, "histograms", nil, classTensor, appendBytes(tensor(dtDouble, len(all), 3), 4, content))
}

// Flush hands what was written to the operating system.
func (w *Writer) Flush() error {
	if w.err == nil {
		w.err = w.buf.Flush()
	}
	return w.wrapped()
}

// Close flushes and closes the file.
func (w *Writer) Close() error {
	err := w.Flush()
	if w.file == nil {
		return err
	}
	if e := w.file.Close(); err == nil && e != nil {
		err = fmt.Errorf("tensorboard: %w", e)
	}
	w.file, w.err = nil, errors.New("the writer is closed")
	return err
}

func (w *Writer) wrapped() error {
	if w.err == nil {
		return nil
	}
	return fmt.Errorf("tensorboard: %s: %w", w.path, w.err)
}

// Types of tensors (DataType of types.proto) and classes of data (DataClass of
// summary.proto).
const (
	dtFloat, dtDouble, dtString = 1, 2, 7
	classScalar, classTensor    = 1, 2
)

// tensor is the head of a TensorProto.
func tensor(dtype uint64, shape ...int) []byte {
	var dims []byte
	for _, n := range shape {
		dims = appendBytes(dims, 2, appendVarint(nil, 1, uint64(n)))
	}
	return appendBytes(appendVarint(nil, 1, dtype), 2, dims)
}

// value writes an event with one value of a summary. What a tag is shown as is
// said once in each file.
func (w *Writer) value(tag string, step int64, plugin string, content []byte, class uint64, tensor []byte) error {
	v := appendString(nil, 1, tag)
	if !w.tags[tag] {
		w.tags[tag] = true
		data := appendString(nil, 1, plugin)
		if content != nil {
			data = appendBytes(data, 2, content)
		}
		v = appendBytes(v, 9, appendVarint(appendBytes(nil, 1, data), 4, class))
	}
	v = appendBytes(v, 8, tensor)
	return w.event(step, appendBytes(nil, 5, appendBytes(nil, 1, v)))
}

// event writes an Event of which what is given.
func (w *Writer) event(step int64, what []byte) error {
	b := protowire.AppendTag(nil, 1, protowire.Fixed64Type)
	b = protowire.AppendFixed64(b, math.Float64bits(float64(w.now().UnixNano())/1e9))
	if step != 0 {
		b = appendVarint(b, 2, uint64(step))
	}
	if w.err == nil {
		_, w.err = w.buf.Write(tfrecord.Append(nil, append(b, what...)))
	}
	return w.wrapped()
}

func appendVarint(b []byte, field protowire.Number, x uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(b, field, protowire.VarintType), x)
}

func appendBytes(b []byte, field protowire.Number, x []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, field, protowire.BytesType), x)
}

func appendString(b []byte, field protowire.Number, x string) []byte {
	return protowire.AppendString(protowire.AppendTag(b, field, protowire.BytesType), x)
}
