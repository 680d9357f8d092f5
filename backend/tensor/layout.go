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
