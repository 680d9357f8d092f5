package tensor

import (
	"fmt"
	"reflect"
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

// Shapes of results: for each slot, how many tensors it takes. A single
// tensor is one, a nil field none, a tuple of n is -1-n, a slice of n is n
// (its elements must not be tuples).
const nilTensor = -1 << 31

func (l *layout) shapes(p unsafe.Pointer) []int {
	var out []int
	for _, s := range l.slots {
		at := unsafe.Add(p, s.offset)
		if s.slice {
			out = append(out, len(*(*[]*Tensor)(at)))
			continue
		}
		switch t := *(**Tensor)(at); {
		case t == nil:
			out = append(out, nilTensor)
		case t.parts != nil:
			out = append(out, -1-len(t.parts))
		default:
			out = append(out, 1)
		}
	}
	return out
}

// restore fills the value at p with ts in the shape that shapes found.
func (l *layout) restore(p unsafe.Pointer, shape []int, ts []*Tensor) {
	for i, s := range l.slots {
		at := unsafe.Add(p, s.offset)
		n := shape[i]
		switch {
		case s.slice:
			*(*[]*Tensor)(at) = append([]*Tensor(nil), ts[:n]...)
		case n == nilTensor:
			n = 0
		case n < 0:
			n = -1 - n
			*(**Tensor)(at) = &Tensor{parts: append([]*Tensor(nil), ts[:n]...), argument: -1}
		default:
			*(**Tensor)(at) = ts[0]
		}
		ts = ts[n:]
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
		fresh := make([]*Tensor, len(old))
		for i, t := range old {
			fresh[i] = take(t)
		}
		*(*[]*Tensor)(at) = fresh
	}
	return c.Elem().Interface()
}
