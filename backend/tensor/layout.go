package tensor

import (
	"fmt"
	"reflect"
	"slices"
	"unsafe"
)

// layout knows where the tensors are in an argument or result of a Function:
// a *Tensor, a struct or slice of them, nested. It is worked out once, so that
// calls need no reflection and allocate nothing.
type layout struct {
	typ   reflect.Type
	slots []slot
}

type slot struct {
	offset uintptr
	slice  bool // []*Tensor rather than *Tensor
}

var (
	tensorType = reflect.TypeFor[*Tensor]()
	sliceType  = reflect.TypeFor[[]*Tensor]()
)

func layoutOf[T any]() layout {
	l := layout{typ: reflect.TypeFor[T]()}
	l.collect(l.typ, 0)
	return l
}

func (l *layout) collect(t reflect.Type, offset uintptr) {
	switch {
	case t == tensorType:
		l.slots = append(l.slots, slot{offset, false})
	case t == sliceType:
		l.slots = append(l.slots, slot{offset, true})
	case t.Kind() == reflect.Struct:
		for i := range t.NumField() {
			f := t.Field(i)
			l.collect(f.Type, offset+f.Offset)
		}
	default:
		panic(fmt.Sprintf("tensor.Function: arguments and results are *Tensor, []*Tensor and structs of them, not %v in %v", t, l.typ))
	}
}

func ptr[T any](p *T) unsafe.Pointer { return unsafe.Pointer(p) }

// tensors appends all tensors in the value at p, tuples taken apart; nil
// fields are passed over.
func (l *layout) tensors(dst []*Tensor, p unsafe.Pointer) []*Tensor {
	for _, s := range l.slots {
		at := unsafe.Add(p, s.offset)
		if s.slice {
			for _, t := range *(*[]*Tensor)(at) {
				dst = appendParts(dst, t)
			}
			continue
		}
		dst = appendParts(dst, *(**Tensor)(at))
	}
	return dst
}

func appendParts(dst []*Tensor, t *Tensor) []*Tensor {
	switch {
	case t == nil:
		return dst
	case t.parts != nil:
		return append(dst, t.parts...)
	}
	return append(dst, t)
}

// The shape of a value: for each *Tensor whether it is nil, a single one, or a
// tuple and of how many (tuple-n); for each slice its length and then its
// elements.
const (
	noTensor = 0
	single   = 1
	tuple    = -1
)

// shape appends the shape of the value at p.
func (l *layout) shape(dst []int, p unsafe.Pointer) []int {
	for _, s := range l.slots {
		at := unsafe.Add(p, s.offset)
		if !s.slice {
			dst = append(dst, shapeOf(*(**Tensor)(at)))
			continue
		}
		list := *(*[]*Tensor)(at)
		dst = append(dst, len(list))
		for _, t := range list {
			dst = append(dst, shapeOf(t))
		}
	}
	return dst
}

func shapeOf(t *Tensor) int {
	switch {
	case t == nil:
		return noTensor
	case t.parts != nil:
		return tuple - len(t.parts)
	}
	return single
}

// restore fills the value at p with ts in the shape that shape found.
func (l *layout) restore(p unsafe.Pointer, shape []int, ts []*Tensor) {
	take := func() (t *Tensor) {
		switch n := shape[0]; n {
		case noTensor:
		case single:
			t, ts = ts[0], ts[1:]
		default:
			n = tuple - n
			t = &Tensor{parts: append([]*Tensor{}, ts[:n]...), argument: -1}
			ts = ts[n:]
		}
		shape = shape[1:]
		return t
	}
	for _, s := range l.slots {
		at := unsafe.Add(p, s.offset)
		if !s.slice {
			*(**Tensor)(at) = take()
			continue
		}
		var list []*Tensor // none is nil
		if shape[0] > 0 {
			list = make([]*Tensor, shape[0])
		}
		shape = shape[1:]
		for i := range list {
			list[i] = take()
		}
		*(*[]*Tensor)(at) = list
	}
}

// replace returns a copy of the value v, which lies at p, with its tensors
// replaced by ts in the order that tensors lists them.
func (l *layout) replace(v any, p unsafe.Pointer, ts []*Tensor) any {
	c := reflect.New(l.typ)
	c.Elem().Set(reflect.ValueOf(v))
	to := c.UnsafePointer()
	take := func(t *Tensor) *Tensor {
		if t == nil {
			return nil
		}
		if t.parts == nil {
			t, ts = ts[0], ts[1:]
			return t
		}
		u := &Tensor{parts: ts[:len(t.parts):len(t.parts)], argument: -1}
		ts = ts[len(t.parts):]
		return u
	}
	for _, s := range l.slots {
		from, at := unsafe.Add(p, s.offset), unsafe.Add(to, s.offset)
		if !s.slice {
			*(**Tensor)(at) = take(*(**Tensor)(from))
			continue
		}
		old := *(*[]*Tensor)(from)
		fresh := slices.Clone(old) // none stays nil
		for i, t := range old {
			fresh[i] = take(t)
		}
		*(*[]*Tensor)(at) = fresh
	}
	return c.Elem().Interface()
}

// Flatten returns the tensors of a value that a Function takes or returns, tuples taken
// apart, and how they lie in it (JAX: tree_flatten): what Unflatten needs to put tensors
// of the same number back.
func Flatten[T any](v T) (ts []*Tensor, structure []int) {
	l := layoutOf[T]()
	return l.tensors(nil, ptr(&v)), l.shape(nil, ptr(&v))
}

// Unflatten is the inverse of Flatten. It is an error if the structure is not that of a
// T with so many tensors.
func Unflatten[T any](structure []int, ts []*Tensor) (v T, err error) {
	l := layoutOf[T]()
	n, ok := l.count(structure)
	if !ok || n != len(ts) {
		return v, fmt.Errorf("tensor.Unflatten: structure %v with %d tensors is none of %v", structure, len(ts), l.typ)
	}
	l.restore(ptr(&v), structure, ts)
	return v, nil
}

// count returns how many tensors a value of a shape has; ok is false if no value has it.
func (l *layout) count(shape []int) (n int, ok bool) {
	next := func() (k int, ok bool) {
		if len(shape) == 0 {
			return 0, false
		}
		k, shape = shape[0], shape[1:]
		return k, true
	}
	add := func() bool {
		k, ok := next()
		switch {
		case k > single || !ok:
			return false
		case k == single:
			n++
		case k != noTensor:
			if k < tuple-maxTensors {
				return false
			}
			n += tuple - k
		}
		return n <= maxTensors
	}
	for _, s := range l.slots {
		k := 1
		if s.slice {
			if k, ok = next(); !ok || k < 0 || k > len(shape) {
				return 0, false
			}
		}
		for range k {
			if !add() {
				return 0, false
			}
		}
	}
	return n, len(shape) == 0
}

// maxTensors bounds what a structure from outside may ask for.
const maxTensors = 1 << 20
