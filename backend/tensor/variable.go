package tensor

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/mezzo-ml/mezzo/backend/driver"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// Variable is a name bound to a tensor: a weight, a moving average, an
// optimizer's slot, a metric's total. Its type never changes.
//
// Recording on one variable is for one goroutine at a time.
type Variable struct {
	name      string
	typ       op.Type
	trainable bool
	statistic bool
	init      func(dst []float64) error
	constrain func(*Tensor) *Tensor
	partition *Partition // of whose parts it is one; nil: it is a whole
	whole     op.Type

	in     atomic.Pointer[domain]  // see domain
	store  atomic.Pointer[storage] // its elements; nil until first needed
	mu     sync.Mutex              // of value and making
	value  *Tensor                 // outside a Function: the current value, handed out as a snapshot
	making *making                 // of the first value, or nil

	shadows []*shadow // copies in 16 bits, of the types that Functions cast to
	folded  []*shadow // the variable as a kernel and its bias, with what follows folded in

	// While a Function is recorded:
	leaf  *Tensor // the value at the start of the step
	bound *Tensor // the value now

	latest *Tensor // what Value last returned after an assignment in the step
}

// NewVariable returns a variable. init fills in the initial value when it is first
// needed; nil means zeros. It panics with *Error if the shape is not known or exceeds
// any memory.
func NewVariable(name string, dt dtype.DType, shape Shape, init func(dst []float64) error) *Variable {
	t := op.Type{DType: dt, Shape: shape.Clone()}
	if err := complete(t); err != nil {
		panic(&Error{Op: "variable " + name, Err: err})
	}
	return &Variable{name: name, typ: t, init: init, trainable: true}
}

// NewState returns a variable that no gradient updates.
func NewState(name string, dt dtype.DType, shape Shape, init func(dst []float64) error) *Variable {
	v := NewVariable(name, dt, shape, init)
	v.trainable = false
	return v
}

// Name is the path: "dense_1/kernel".
func (v *Variable) Name() string { return v.name }

// SetName renames v; for whoever owns it.
func (v *Variable) SetName(name string) { v.name = name }

// Type is the element type and shape.
func (v *Variable) Type() op.Type { return v.typ }

// DType is the element type it is stored in.
func (v *Variable) DType() dtype.DType { return v.typ.DType }

// Shape lists the sizes of the axes. It must not be changed.
func (v *Variable) Shape() Shape { return v.typ.Shape }

// Trainable reports whether optimizers should update v.
func (v *Variable) Trainable() bool { return v.trainable }

// SetTrainable says whether optimizers should update v.
func (v *Variable) SetTrainable(on bool) { v.trainable = on }

// Statistic reports whether v is state that a forward pass moves, such as the
// moving mean of batch normalization or the state of random numbers. A step
// that an optimizer skips leaves statistics as they were.
func (v *Variable) Statistic() bool { return v.statistic }

// SetStatistic declares v a statistic.
func (v *Variable) SetStatistic(on bool) { v.statistic = on }

// Constraint returns the function that optimizers apply to v after each update, or nil.
func (v *Variable) Constraint() func(*Tensor) *Tensor { return v.constrain }

// SetConstraint sets the function that optimizers apply to v after each update.
func (v *Variable) SetConstraint(f func(*Tensor) *Tensor) { v.constrain = f }

// SetInitializer replaces the initializer. It has no effect once the value exists; see
// Reset.
func (v *Variable) SetInitializer(init func(dst []float64) error) { v.init = init }

// Value is the value of v now. Gradients end at it, also where v was assigned earlier in
// the same recording: see Gradients.
func (v *Variable) Value() *Tensor {
	tr := current()
	switch {
	case tr == nil: // v may be bound in the recording of another goroutine
	case v.bound == nil && !tr.eager:
		return tr.leafOf(v)
	case v.bound == nil:
	case v.bound == v.leaf || !v.typ.DType.IsFloat():
		return v.bound
	default:
		return v.reassigned()
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.value == nil {
		v.value = &Tensor{op: op.Param, typ: v.typ, variable: v, seq: sequence.Add(1), argument: -1}
	}
	return v.value
}

// leafOf is the value of a variable that the Function does not list. It is not the tensor
// that is handed out elsewhere, which keeps its elements when a step that runs meanwhile
// assigns v: the recording would have them for good.
func (tr *trace) leafOf(v *Variable) *Tensor {
	leaf := tr.leaves[v]
	if leaf == nil {
		if tr.leaves == nil {
			tr.leaves = map[*Variable]*Tensor{}
		}
		leaf = &Tensor{op: op.Param, typ: v.typ, variable: v, seq: sequence.Add(1), trace: tr, argument: -1}
		tr.leaves[v] = leaf
	}
	return leaf
}

// reassigned is the value of v after an assignment of this recording, as a leaf: that v
// was assigned says nothing about how a loss depends on it. In the graph it is the
// assigned value itself.
func (v *Variable) reassigned() *Tensor {
	if u := v.latest; u != nil && u.args[0] == v.bound {
		return u
	}
	b := v.bound
	v.latest = &Tensor{op: op.Identity, typ: b.typ, args: []*Tensor{b}, seq: sequence.Add(1), path: b.path, trace: b.trace, data: b.data,
		symbolic: b.symbolic, argument: -1, stop: true, assigned: v}
	return v.latest
}

// Assign rebinds v to t inside a Function: when the step succeeds, v has the
// value of t. It panics with *Error outside, and when the types differ.
func (v *Variable) Assign(t *Tensor) {
	if t.err != nil {
		panic(&Error{Op: "Assign", Err: fmt.Errorf("variable %s: %w", v.name, t.err)})
	}
	if t.parts != nil || !t.typ.Equal(v.typ) {
		Fail("Assign", "variable %s is %v, got %v", v.name, v.typ, t.describe())
	}
	v.assignable("Assign").assign(v, t)
}

// assignable returns the recording that the calling goroutine is in, which
// alone may assign v, and fails where there is none.
func (v *Variable) assignable(where string) *trace {
	tr := current()
	if tr == nil {
		Fail(where, "variable %s is assigned outside a Function; record it in a keras.Function that lists the variable's owner, or use Set", v.name)
	}
	return tr
}

// Set writes elements at once, outside Functions; v keeps its type and the
// data are rounded to it.
func (v *Variable) Set(data []float64) error {
	if n := v.typ.Shape.Size(); n != len(data) {
		return fmt.Errorf("variable %s: %d elements given, %v takes %d", v.name, len(data), v.typ, n)
	}
	b := make([]byte, v.typ.Bytes())
	dtype.FromF64(b, data, v.typ.DType)
	return v.SetBytes(b)
}

// SetBytes writes elements given in the variable's own type, little-endian.
func (v *Variable) SetBytes(b []byte) error {
	return SetBytesOf([]*Variable{v}, [][]byte{b})
}

// overwrite writes all elements; the caller has v's domain alone, and b has their
// size.
func (v *Variable) overwrite(b []byte) error {
	v.mu.Lock()
	if v.value == nil && v.making == nil && v.store.Load() == nil { // no initial value has been read, and b replaces it completely
		s, err := allocate(len(b))
		if err != nil {
			v.mu.Unlock()
			return fmt.Errorf("variable %s: %w", v.name, err)
		}
		v.store.Store(s)
	}
	v.mu.Unlock()
	if err := v.own(); err != nil {
		return err
	}
	return v.store.Load().buf.CopyIn(b)
}

// Reset gives v its first value again, drawn anew by its initializer.
func (v *Variable) Reset() error {
	if current() != nil && v.leaf != nil {
		return fmt.Errorf("variable %s: Reset inside a Function; use Assign", v.name)
	}
	if v.store.Load() == nil {
		return nil
	}
	defer lockAll([]*Variable{v}, true)()
	if err := v.own(); err != nil {
		return err
	}
	return v.initialize(v.store.Load())
}

// Bytes returns a copy of the elements, little-endian. Like everything that
// reads elements it is an error inside a Function.
func (v *Variable) Bytes() ([]byte, error) {
	if current() != nil {
		return nil, v.unreadable()
	}
	all, err := BytesOf(v)
	if err != nil {
		return nil, err
	}
	return all[0], nil
}

// Float64s returns a copy of the elements.
func (v *Variable) Float64s() ([]float64, error) {
	b, err := v.Bytes()
	if err != nil {
		return nil, err
	}
	out := make([]float64, v.typ.Shape.Size())
	dtype.ToF64(out, b, v.typ.DType)
	return out, nil
}

// Values returns a copy of the elements as float32.
func (v *Variable) Values() ([]float32, error) {
	b, err := v.Bytes()
	if err != nil {
		return nil, err
	}
	out := make([]float32, v.typ.Shape.Size())
	dtype.ToF32(out, b, v.typ.DType)
	return out, nil
}

// unreadable is why v cannot be read inside a Function.
func (v *Variable) unreadable() error {
	return Readable("variable " + v.name)
}

// Item returns the only element without allocating.
func (v *Variable) Item() (float64, error) {
	if current() != nil {
		return 0, v.unreadable()
	}
	if v.typ.Shape.Size() != 1 {
		return 0, fmt.Errorf("variable %s: %v has not one element", v.name, v.typ)
	}
	if _, err := v.ensure(context.Background()); err != nil {
		return 0, err
	}
	d := v.domain().lock(false)
	defer d.unlock(false)
	b, err := host(v.store.Load().buf, v.typ.Bytes())
	if err != nil {
		return 0, err
	}
	var x [1]float64
	dtype.ToF64(x[:], b, v.typ.DType)
	return x[0], nil
}

// initialize writes the first value to s, which has the memory for it.
func (v *Variable) initialize(s *storage) error {
	n := v.typ.Shape.Size()
	f := func(data []float64) error {
		if v.init != nil {
			if err := v.init(data); err != nil {
				return fmt.Errorf("variable %s: %w", v.name, err)
			}
		}
		return s.fill(v.typ.Bytes(), func(dst []byte) error {
			dtype.FromF64(dst, data, v.typ.DType)
			return nil
		})
	}
	if _, ok := s.buf.(driver.HostBuffer); ok { // then the device counts the memory of the process
		all, err := allocate(op.Times(8, n))
		if err != nil {
			return fmt.Errorf("variable %s, %v: its first value, in float64: %w", v.name, v.typ, err)
		}
		err = all.fill(8*n, func(dst []byte) error { return f(dtype.View[float64](dst)) })
		all.buf.Free()
		return err
	}
	return f(make([]float64, n))
}

// making is a first value that is being made.
type making struct {
	done  chan struct{} // closed when the rest is there
	store *storage
	err   error
}

// make makes the first value.
func (v *Variable) make() (*storage, error) {
	s, err := allocate(v.typ.Bytes())
	if err != nil {
		return nil, fmt.Errorf("variable %s, %v: %w", v.name, v.typ, err)
	}
	if err := v.initialize(s); err != nil {
		s.buf.Free()
		return nil, err
	}
	return s, nil
}

// longMaking is how many elements take so long to make that a context may end
// meanwhile.
const longMaking = 1 << 16

// ensure computes the initial value if there is none yet. If the context ends first, it
// returns its error; the value is still computed, for the next call.
//
// An initial value may depend on other variables, so the caller must hold no domain.
func (v *Variable) ensure(ctx context.Context) (*storage, error) {
	if s := v.store.Load(); s != nil {
		return s, nil
	}
	v.mu.Lock()
	if s := v.store.Load(); s != nil {
		v.mu.Unlock()
		return s, nil
	}
	m := v.making
	if m == nil {
		m = &making{done: make(chan struct{})}
		v.making = m
		f := func() {
			defer func() { // whatever the initializer does
				v.mu.Lock()
				defer v.mu.Unlock()
				if v.making = nil; m.err == nil {
					v.store.Store(m.store)
				}
				close(m.done)
			}()
			m.err = fmt.Errorf("variable %s: its initializer did not return", v.name)
			m.store, m.err = v.make()
		}
		if ctx.Done() == nil || v.typ.Shape.Size() < longMaking {
			v.mu.Unlock()
			f()
			return m.store, m.err
		}
		go f()
	}
	v.mu.Unlock()
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-m.done:
		return m.store, m.err
	}
}

// own makes sure that the memory of v is its alone, so that it may be
// overwritten: a tensor that was handed out as the value keeps the old one.
// The caller has v's domain alone, and v a value.
func (v *Variable) own() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.value == nil {
		return nil
	}
	s := v.store.Load()
	fresh, err := s.copy(v.typ.Bytes())
	if err != nil {
		return fmt.Errorf("variable %s: %w", v.name, err)
	}
	v.adopt(fresh)
	return nil
}

// adopt makes s the memory of v. A tensor that was handed out as the value
// keeps the old one.
func (v *Variable) adopt(s *storage) {
	if v.value != nil {
		v.value.data, v.value.variable, v.value = v.store.Load(), nil, nil
	}
	v.store.Store(s)
}
