package simt

import (
	"encoding/binary"
	"fmt"
	"sort"
	"sync"
)

// Region is an allocation of global memory.
type Region struct {
	Base uint64
	Data []byte
}

// find is the memory of an access, or nil.
func (w *worker) find(a uint64, bytes int) []byte {
	if r := &w.last; a-r.Base < uint64(len(r.Data)) {
		if a-r.Base+uint64(bytes) > uint64(len(r.Data)) {
			return nil
		}
		return r.Data[a-r.Base:]
	}
	r := w.region(a)
	if r.Data == nil || a-r.Base+uint64(bytes) > uint64(len(r.Data)) {
		return nil
	}
	w.last = r
	return r.Data[a-r.Base:]
}

// region is the allocation, or the variables of the module, that begin at a or before.
func (w *worker) region(a uint64) Region {
	if a >= globalWindow {
		return Region{globalWindow, w.k.module.data}
	}
	if i := sort.Search(len(w.Memory), func(i int) bool { return w.Memory[i].Base > a }); i > 0 {
		return w.Memory[i-1]
	}
	return Region{}
}

// outOfBounds says where an address of global memory lies.
func (w *worker) outOfBounds(a uint64, bytes int) error {
	r := w.region(a)
	if r.Data == nil || a>>40 != r.Base>>40 {
		return &addressError{fmt.Sprintf("global address %#x of %d bytes is not allocated", a, bytes)}
	}
	return &addressError{fmt.Sprintf("global address %#x of %d bytes is out of bounds: it is %d bytes behind the start of an allocation of %d bytes", a, bytes, a-r.Base, len(r.Data))}
}

// addressError is an access that a GPU reports as an illegal address.
type addressError struct{ text string }

func (e *addressError) Error() string { return e.text }

// alignmentError is one that it reports as misaligned.
type alignmentError struct{ text string }

func (e *alignmentError) Error() string { return e.text }

// orderedAccess is held during volatile accesses and atomic operations.
var orderedAccess sync.Mutex

// now marks what a lane does to shared memory.
func (w *warp) now(l int) mark { return now(w.b.barriers, w.converged, w.number*width+l) }

// resolve is the memory of an access of global or local memory, or by a generic
// address; onShared says that it is in shared memory, at a.
func (w *warp) resolve(in *instruction, l int, a uint64, bytes int) (data []byte, at uint64, onShared bool, err error) {
	s := in.space
	if s == generic {
		switch a & windowMask {
		case sharedWindow:
			return nil, a &^ windowMask, true, nil
		case localWindow:
			s, a = local, a&^windowMask
		}
	}
	if s == shared {
		return nil, a, true, nil
	}
	if a%uint64(bytes) != 0 {
		return nil, 0, false, &alignmentError{fmt.Sprintf("address %#x is not aligned to %d bytes", a, bytes)}
	}
	if s == local {
		n := uint64(w.b.k.local)
		if a+uint64(bytes) > n || a > n {
			return nil, 0, false, &addressError{fmt.Sprintf("local address %#x of %d bytes is out of bounds: a thread has %d bytes", a, bytes, n)}
		}
		return w.local[uint64(l)*n+a:], a, false, nil
	}
	if data = w.b.find(a, bytes); data == nil {
		return nil, 0, false, w.b.outOfBounds(a, bytes)
	}
	return data, a, false, nil
}

// access executes ld and st.
func (w *warp) access(in *instruction, mask uint32) error {
	if in.how == ordered {
		orderedAccess.Lock()
		defer orderedAccess.Unlock()
	}
	base := *w.row(in.a)
	n := len(in.list)
	if in.kind == loads {
		n++
	}
	bytes := n * in.bytes
	by := w.now(0)
	for l := range width {
		if mask>>l&1 == 0 {
			continue
		}
		a := base[l] + in.offset
		var data []byte
		switch r := &w.b.last; {
		case in.space == global && a&uint64(bytes-1) == 0 && a-r.Base < uint64(len(r.Data)) && a-r.Base+uint64(bytes) <= uint64(len(r.Data)):
			data = r.Data[a-r.Base:]
		case in.space == shared:
			var err error
			if data, err = w.onShared(in, l, a, bytes, by|mark(l)); err != nil {
				return w.fault(in, l, "%w", err)
			}
		default:
			var err error
			var onShared bool
			if data, a, onShared, err = w.resolve(in, l, a, bytes); err == nil && onShared {
				data, err = w.onShared(in, l, a, bytes, by|mark(l))
			}
			if err != nil {
				return w.fault(in, l, "%w", err)
			}
		}
		switch {
		case in.kind == stores:
			for i, r := range in.list {
				putElement(data[i*in.bytes:], in.bytes, w.row(r)[l])
			}
		case n == 1 && in.bytes == 4 && !in.signed:
			w.registers[in.d][l] = uint64(binary.LittleEndian.Uint32(data))
		default:
			w.registers[in.d][l] = in.element(data)
			for i, r := range in.list {
				w.registers[r][l] = in.element(data[(i+1)*in.bytes:])
			}
		}
	}
	return nil
}

// onShared checks an access of shared memory, and returns the memory.
func (w *warp) onShared(in *instruction, l int, a uint64, bytes int, by mark) ([]byte, error) {
	s := w.b.shared
	if in.kind == loads {
		if g := a >> s.shift; bytes == s.granule && a&uint64(bytes-1) == 0 && g < uint64(len(s.readers)) {
			// The frequent case: written before the last barrier, and not read by others since then.
			m, r := s.writers[g], s.readers[g]
			if m != never && m&(outside|flying) == 0 && (m^by)&epochs != 0 && (r == by || (r^by)&epochs != 0) {
				s.readers[g] = by
				return s.data[a:], nil
			}
		}
		if err := s.read(a, bytes, by); err != nil {
			return nil, err
		}
		return s.data[a:], nil
	}
	if err := s.inside(a, bytes); err != nil {
		return nil, err
	}
	changes := false
	for i, r := range in.list {
		v := w.row(r)[l] & maskOf(in.bytes)
		changes = changes || getElement(s.data[a+uint64(i*in.bytes):], in.bytes) != v
	}
	return s.data[a:], s.write(a, bytes, by, changes)
}

// element is an element as it lies in the register that a load writes.
func (in *instruction) element(data []byte) uint64 {
	u := getElement(data, in.bytes)
	if in.signed {
		shift := 64 - 8*in.bytes
		u = uint64(int64(u<<shift) >> shift)
	}
	return u & in.mask
}

func getElement(data []byte, bytes int) uint64 {
	switch bytes {
	case 1:
		return uint64(data[0])
	case 2:
		return uint64(binary.LittleEndian.Uint16(data))
	case 4:
		return uint64(binary.LittleEndian.Uint32(data))
	}
	return binary.LittleEndian.Uint64(data)
}

func putElement(data []byte, bytes int, u uint64) {
	switch bytes {
	case 1:
		data[0] = byte(u)
	case 2:
		binary.LittleEndian.PutUint16(data, uint16(u))
	case 4:
		binary.LittleEndian.PutUint32(data, uint32(u))
	default:
		binary.LittleEndian.PutUint64(data, u)
	}
}

// swap is an atomic operation: lane by lane.
func (w *warp) swap(in *instruction, mask uint32) error {
	orderedAccess.Lock()
	defer orderedAccess.Unlock()
	base, b, c := *w.row(in.a), *w.row(in.b), *w.row(in.c)
	for l := range width {
		if mask>>l&1 == 0 {
			continue
		}
		data, _, _, err := w.resolve(in, l, base[l]+in.offset, in.bytes)
		if err != nil {
			return w.fault(in, l, "%w", err)
		}
		before := getElement(data, in.bytes)
		switch {
		case in.how == exchange:
			putElement(data, in.bytes, b[l])
		case before == b[l]&maskOf(in.bytes):
			putElement(data, in.bytes, c[l])
		}
		w.registers[in.d][l] = before
		if in.how == compareExchange {
			w.b.swaps++
		}
	}
	return nil
}
