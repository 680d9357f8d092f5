package tensor

import (
	"context"
	"fmt"
	"math"
	"unsafe"

	"github.com/x448/float16"

	"github.com/mezzo-ml/mezzo/backend"
	"github.com/mezzo-ml/mezzo/backend/driver"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// Element is a Go type that a tensor's elements can be given and read as.
// dtype.BFloat is bfloat16, float16.Float16 is float16.
type Element interface {
	bool | uint8 | int8 | int32 | int64 | float16.Float16 | dtype.BFloat | float32 | float64
}

func elementType[T Element]() dtype.DType {
	var z T
	switch any(z).(type) {
	case bool:
		return dtype.Bool
	case uint8:
		return dtype.Uint8
	case int8:
		return dtype.Int8
	case int32:
		return dtype.Int32
	case int64:
		return dtype.Int64
	case float16.Float16:
		return dtype.Float16
	case dtype.BFloat:
		return dtype.BFloat16
	case float32:
		return dtype.Float32
	}
	return dtype.Float64
}

// New returns a tensor of a copy of data, in row-major order; without a shape it takes
// one element. It panics with *Error if the number of elements does not match the
// shape. Its errors call it NewTensor, its name in keras.
func New[T Element](data []T, shape ...int) *Tensor {
	t := op.Type{DType: elementType[T](), Shape: Shape(shape).Clone()}
	if err := complete(t); err != nil {
		panic(&Error{Op: "NewTensor", Err: err})
	}
	switch n := t.Shape.Size(); {
	case n == len(data):
	case len(shape) == 0:
		Fail("NewTensor", "%d elements and no shape given, want shape %d for a vector", len(data), len(data))
	default:
		Fail("NewTensor", "%d elements given, %v takes %d", len(data), t, n)
	}
	return FromBytes(t, asBytes(data))
}

// FromBytes returns a tensor of a copy of data: the elements in row-major
// order, little-endian. It panics with *Error when the size is wrong.
func FromBytes(t op.Type, data []byte) *Tensor {
	if err := complete(t); err != nil {
		panic(&Error{Op: "FromBytes", Err: err})
	}
	if len(data) != t.Bytes() {
		Fail("FromBytes", "%d bytes given, %v takes %d", len(data), t, t.Bytes())
	}
	s, err := allocate(t.Bytes())
	if err == nil {
		err = s.buf.CopyIn(data)
	}
	if err != nil {
		panic(&Error{Op: "FromBytes", Err: err})
	}
	return fromStorage(t, s)
}

// complete is an error for shapes that no elements can have.
func complete(t op.Type) error {
	if !t.Shape.Known() {
		return fmt.Errorf("shape %v has a negative axis", []int(t.Shape))
	}
	return t.Check()
}

func fromStorage(t op.Type, s *storage) *Tensor {
	return &Tensor{op: op.Param, typ: t, data: s, seq: sequence.Add(1), argument: -1}
}

func allocate(bytes int) (*storage, error) {
	d, err := backend.Default()
	if err != nil {
		return nil, err
	}
	buf, err := d.Alloc(bytes)
	if err != nil {
		return nil, err
	}
	return &storage{buf: buf, device: d}, nil
}

func asBytes[T Element](data []T) []byte {
	if len(data) == 0 {
		return nil
	}
	var z T
	return unsafe.Slice((*byte)(unsafe.Pointer(&data[0])), len(data)*int(unsafe.Sizeof(z)))
}

// Scalar returns a constant of one element.
func Scalar(dt dtype.DType, v float64) *Tensor { return Full(dt, v) }

// Full returns a constant tensor with v everywhere, rounded to dt.
func Full(dt dtype.DType, v float64, shape ...int) *Tensor {
	t := Record(op.Const, op.Attr{DType: dt, Value: v})
	if len(shape) == 0 {
		return t
	}
	return t.BroadcastTo(shape...)
}

// Zeros returns a constant tensor of zeros.
func Zeros(dt dtype.DType, shape ...int) *Tensor { return Full(dt, 0, shape...) }

// Ones returns a constant tensor of ones.
func Ones(dt dtype.DType, shape ...int) *Tensor { return Full(dt, 1, shape...) }

// Iota returns 0, 1, 2 … along the last axis, repeated over the others.
func Iota(dt dtype.DType, shape ...int) *Tensor {
	return Record(op.Iota, op.Attr{DType: dt, Dims: Shape(shape).Clone()})
}

// RandomUniform returns float32 numbers in [0, 1), a function of state
// (int64[2]: seed and counter) and stream alone: Philox4x32-10.
func RandomUniform(state *Tensor, stream uint64, shape ...int) *Tensor {
	return Record(op.RandomUniform, op.Attr{Dims: Shape(shape).Clone(), Stream: stream}, state)
}

// RandomKeep returns which elements of a shape a dropout of a rate keeps, a
// function of state and stream alone: see [op.DropDraw].
func RandomKeep(state *Tensor, stream uint64, rate float64, shape ...int) *Tensor {
	bits, bound := op.DropDraw(rate)
	u := Record(op.RandomUniform, op.Attr{Dims: Shape(shape).Clone(), Stream: stream, Bits: int8(bits)}, state)
	return u.GreaterEqual(Scalar(u.DType(), bound))
}

// RandomNormal returns float32 numbers of mean 0 and standard deviation 1, a
// function of state and stream alone, by Box and Muller's method: at most
// √(48·ln 2) ≈ 5.8 in magnitude. It takes two streams of RandomUniform: stream
// and the next.
func RandomNormal(state *Tensor, stream uint64, shape ...int) *Tensor {
	u, v := RandomUniform(state, stream, shape...), RandomUniform(state, stream+1, shape...)
	// u < 1, so the logarithm is of at least 2⁻²⁴.
	radius := u.Neg().AddScalar(1).Log().MulScalar(-2).Sqrt()
	return radius.Mul(v.MulScalar(2 * math.Pi).Cos())
}

// Eval computes the tensors that are not computed yet, as one program.
func Eval(ctx context.Context, ts ...*Tensor) (err error) {
	defer Catch(&err)
	needs(ctx, "Eval")
	var roots []*Tensor
	for _, t := range ts {
		for _, p := range t.Unpack() {
			switch {
			case p.err != nil:
				return p.err
			case p.data != nil:
				continue
			case p.symbolic || !p.typ.Shape.Known():
				return &Error{Path: p.path, Op: "Eval", Err: fmt.Errorf("%v has no data: it belongs to a model under construction", p.typ)}
			case p.trace != nil && !p.trace.eager:
				return &Error{Path: p.path, Op: "Eval", Err: fmt.Errorf("%v has no data inside a Function; return it to read it", p.typ)}
			case p.variable != nil:
				if p.data, err = p.variable.ensure(ctx); err != nil {
					return err
				}
				continue
			}
			roots = append(roots, p)
		}
	}
	if len(roots) == 0 {
		return nil
	}
	c := newCapture(nil)
	for _, t := range roots {
		c.output(t, -1)
	}
	d, err := backend.Default()
	if err != nil {
		return err
	}
	prog, plan, err := backend.Compile(ctx, d, c.graph, ir.Options{})
	if err != nil {
		return err
	}
	var read []*Variable
	for _, s := range c.sources {
		if s.data == nil {
			if _, err := s.variable.ensure(ctx); err != nil {
				return err
			}
			read = append(read, s.variable)
		}
	}
	defer lockAll(read, false)()
	in := make([]driver.Buffer, len(c.sources))
	for i, s := range c.sources {
		st := s.data
		if st == nil {
			st = s.variable.store.Load()
		}
		if err := st.held(); err != nil {
			return &Error{Op: "Eval", Err: err}
		}
		in[i] = st.buf
	}
	out := make([]driver.Buffer, len(roots))
	data := make([]*storage, len(roots))
	for i := range roots {
		if data[i], err = allocate(plan.Outputs[i].Type.Bytes()); err != nil {
			return err
		}
		out[i] = data[i].buf
	}
	if err := prog.Run(ctx, in, out); err != nil {
		return err
	}
	for i, t := range roots {
		t.data = data[i]
	}
	return nil
}

// Bytes computes t if needed and returns a copy of its elements in row-major
// order, little-endian.
func (t *Tensor) Bytes() ([]byte, error) {
	if err := t.readable(); err != nil {
		return nil, err
	}
	b := make([]byte, t.typ.Bytes())
	return b, t.data.buf.CopyOut(b)
}

func (t *Tensor) readable() error {
	if t.parts != nil {
		return &Error{Op: "read", Err: fmt.Errorf("a tuple of %d tensors has no elements of its own; use Unpack", len(t.parts))}
	}
	if err := Eval(context.Background(), t); err != nil {
		return err
	}
	if err := t.data.held(); err != nil {
		return &Error{Op: "read", Err: err}
	}
	return nil
}

// host returns the elements without a copy where the device allows it.
func host(buf driver.Buffer, n int) ([]byte, error) {
	if h, ok := buf.(driver.HostBuffer); ok {
		return h.Data()[:n], nil
	}
	b := make([]byte, n)
	return b, buf.CopyOut(b)
}

// copy returns the first n bytes in memory of their own.
func (s *storage) copy(n int) (*storage, error) {
	if err := s.held(); err != nil {
		return nil, err
	}
	fresh, err := allocate(n)
	if err != nil {
		return nil, err
	}
	if c, ok := fresh.buf.(driver.Copier); ok {
		return fresh, c.CopyFrom(s.buf, n)
	}
	b, err := host(s.buf, n)
	if err != nil {
		return nil, err
	}
	return fresh, fresh.buf.CopyIn(b)
}

// Values computes t if needed and returns its elements as float32, in
// row-major order.
func (t *Tensor) Values() ([]float32, error) {
	if err := t.readable(); err != nil {
		return nil, err
	}
	b, err := host(t.data.buf, t.typ.Bytes())
	if err != nil {
		return nil, err
	}
	out := make([]float32, t.typ.Shape.Size())
	dtype.ToF32(out, b, t.typ.DType)
	return out, nil
}

// Float64s computes t if needed and returns its elements as float64.
func (t *Tensor) Float64s() ([]float64, error) {
	if err := t.readable(); err != nil {
		return nil, err
	}
	b, err := host(t.data.buf, t.typ.Bytes())
	if err != nil {
		return nil, err
	}
	out := make([]float64, t.typ.Shape.Size())
	dtype.ToF64(out, b, t.typ.DType)
	return out, nil
}

// Int64s computes t if needed and returns its elements as int64; floats are
// truncated.
func (t *Tensor) Int64s() ([]int64, error) {
	if err := t.readable(); err != nil {
		return nil, err
	}
	b, err := host(t.data.buf, t.typ.Bytes())
	if err != nil {
		return nil, err
	}
	out := make([]int64, t.typ.Shape.Size())
	dtype.ToI64(out, b, t.typ.DType)
	return out, nil
}

// Item computes t if needed and returns its only element.
func (t *Tensor) Item() (float64, error) {
	if n := t.typ.Shape.Size(); t.parts == nil && t.err == nil && n != 1 {
		return 0, &Error{Op: "Item", Err: fmt.Errorf("%v has %d elements, want 1", t.typ, n)}
	}
	v, err := t.Float64s()
	if err != nil {
		return 0, err
	}
	return v[0], nil
}

// HostBytes returns the elements of a computed tensor without a copy, for readers
// that promise not to change them, or an error when t is not computed or its
// memory is out of the processor's reach. The memory of a batch that was read
// this way is not used again.
func HostBytes(t *Tensor) ([]byte, error) {
	if t.data == nil || t.data.lease != nil {
		if err := t.readable(); err != nil {
			return nil, err
		}
		t.data.keep()
	}
	h, ok := t.data.buf.(driver.HostBuffer)
	if !ok {
		return nil, &Error{Op: "Host", Err: fmt.Errorf("the memory of device %q is out of the processor's reach; use Bytes", t.data.device.Name())}
	}
	return h.Data()[:t.typ.Bytes()], nil
}

// Overwrite replaces the elements of a computed tensor that nothing else
// reads, or has recorded: how data pipelines fill batches. It is for tensors
// made by New, FromBytes, Uninitialized or a Pool only.
func Overwrite(t *Tensor, fill func(dst []byte) error) error {
	if t.data == nil || t.op != op.Param || t.variable != nil {
		return &Error{Op: "Overwrite", Err: fmt.Errorf("%v does not own its data", t.typ)}
	}
	if err := t.data.held(); err != nil {
		return &Error{Op: "Overwrite", Err: err}
	}
	return t.data.fill(t.typ.Bytes(), fill)
}

// fill lets f write the first bytes.
func (s *storage) fill(bytes int, f func(dst []byte) error) error {
	if b, ok := s.buf.(driver.DirectWriter); ok {
		return b.Fill(bytes, f)
	}
	b := make([]byte, bytes)
	if err := f(b); err != nil {
		return err
	}
	return s.buf.CopyIn(b)
}

// Uninitialized returns a tensor of zeros with its own memory, to be filled with
// Overwrite.
func Uninitialized(dt dtype.DType, shape ...int) (*Tensor, error) {
	t := op.Type{DType: dt, Shape: Shape(shape).Clone()}
	if err := complete(t); err != nil {
		return nil, &Error{Op: "Uninitialized", Err: err}
	}
	s, err := allocate(t.Bytes())
	if err != nil {
		return nil, err
	}
	return fromStorage(t, s), nil
}
