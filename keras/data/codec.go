package data

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/op"
	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/keras"
)

// Samples returns the Codec of samples and batches of tensors.
func Samples() Codec[keras.Batch] { return Codec[keras.Batch]{encodeBatch, decodeBatch} }

// A batch is, for X, Y and Weight, the number of tensors (0: nil, 255: one that
// is no tuple), and of each its element type, rank, axes and elements.
const alone = 255

func encodeBatch(b keras.Batch) ([]byte, error) {
	var out []byte
	for _, t := range []*keras.Tensor{b.X, b.Y, b.Weight} {
		switch {
		case t == nil:
			out = append(out, 0)
			continue
		case !t.IsTuple():
			out = append(out, alone)
		case t.Len() >= alone || t.Len() == 0:
			return nil, fmt.Errorf("a tuple of %d tensors, want 1 to %d", t.Len(), alone-1)
		default:
			out = append(out, byte(t.Len()))
		}
		for _, p := range t.Unpack() {
			data, err := p.Bytes()
			if err != nil {
				return nil, err
			}
			out = append(out, byte(p.DType()), byte(p.Rank()))
			for _, n := range p.Shape() {
				out = binary.AppendUvarint(out, uint64(n))
			}
			out = append(out, data...)
		}
	}
	return out, nil
}

func decodeBatch(b []byte) (out keras.Batch, err error) {
	defer tensor.Catch(&err)
	r := &decoder{b: b}
	for _, to := range []**keras.Tensor{&out.X, &out.Y, &out.Weight} {
		n := r.byte()
		if n == 0 {
			continue
		}
		count := n
		if n == alone {
			count = 1
		}
		parts := make([]*keras.Tensor, count)
		for i := range parts {
			if parts[i] = r.tensor(); r.err != nil {
				return keras.Batch{}, r.err
			}
		}
		if *to = parts[0]; n != alone {
			*to = keras.Tuple(parts...)
		}
	}
	if r.err == nil && len(r.b) > 0 {
		r.err = fmt.Errorf("got %d bytes after the tensors", len(r.b))
	}
	return out, r.err
}

// decoder reads a batch; after an error it reads zeros.
type decoder struct {
	b   []byte
	err error
}

var errShort = errors.New("truncated: got no whole batch")

func (r *decoder) byte() int {
	if len(r.b) == 0 {
		r.err = errShort
		return 0
	}
	x := r.b[0]
	r.b = r.b[1:]
	return int(x)
}

func (r *decoder) tensor() *keras.Tensor {
	t := op.Type{DType: dtype.DType(r.byte())}
	if t.DType.Size() == 0 {
		r.err = fmt.Errorf("got element type %d, which there is not", t.DType)
		return nil
	}
	for range r.byte() {
		n, k := binary.Uvarint(r.b)
		if k <= 0 || n > 1<<47 {
			r.err = errShort
			return nil
		}
		r.b = r.b[k:]
		t.Shape = append(t.Shape, int(n))
	}
	limit, size := len(r.b)/t.DType.Size(), 1
	if slices.Contains(t.Shape, 0) {
		size = 0
	}
	for _, n := range t.Shape {
		if size > 0 && n > limit/size {
			r.err = errShort
			return nil
		}
		size *= n
	}
	if size > limit || r.err != nil {
		r.err = errShort
		return nil
	}
	bytes := size * t.DType.Size()
	x := tensor.FromBytes(t, r.b[:bytes])
	r.b = r.b[bytes:]
	return x
}
