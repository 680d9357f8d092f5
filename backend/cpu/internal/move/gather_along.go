package move

import (
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/exec"
	"github.com/mezzo-ml/mezzo/backend/dtype"
)

// alongGrain is the rows per chunk of TakeAlongAxis and ScatterAlongAxis.
const alongGrain = 1 << 10

// takeAll takes one element of each row lo to hi-1. It reports whether all indices are
// in range.
func (k *Gather) takeAll(r *exec.Run, dst, src []byte, lo, hi int) bool {
	switch k.bytes {
	case 1:
		return takeOf(k, r, dst, src, lo, hi)
	case 2:
		return takeOf(k, r, dtype.View[uint16](dst), dtype.View[uint16](src), lo, hi)
	case 4:
		return takeOf(k, r, dtype.View[uint32](dst), dtype.View[uint32](src), lo, hi)
	}
	return takeOf(k, r, dtype.View[uint64](dst), dtype.View[uint64](src), lo, hi)
}

func takeOf[T dtype.Element](k *Gather, r *exec.Run, dst, src []T, lo, hi int) bool {
	dst, src = dst[lo:hi], src[lo*k.limit:]
	if k.wide {
		return takeEach(dst, src, dtype.View[int64](r.Values[k.pos])[lo:hi], k.limit)
	}
	return takeEach(dst, src, dtype.View[int32](r.Values[k.pos])[lo:hi], k.limit)
}

func takeEach[T dtype.Element, I int32 | int64](dst, src []T, at []I, width int) bool {
	dst = dst[:len(at)]
	for i, a := range at {
		if uint64(a) >= uint64(width) {
			return false
		}
		dst[i] = src[i*width+int(a)]
	}
	return true
}

// putAll writes element i of src to its place in row i of dst, for rows lo to hi-1. It
// reports whether all indices are in range.
func (k *scatterAlongAxis) putAll(r *exec.Run, dst, src []byte, lo, hi int) bool {
	switch k.size {
	case 1:
		return putOf(k, r, dst, src, lo, hi)
	case 2:
		return putOf(k, r, dtype.View[uint16](dst), dtype.View[uint16](src), lo, hi)
	case 4:
		return putOf(k, r, dtype.View[uint32](dst), dtype.View[uint32](src), lo, hi)
	}
	return putOf(k, r, dtype.View[uint64](dst), dtype.View[uint64](src), lo, hi)
}

func putOf[T dtype.Element](k *scatterAlongAxis, r *exec.Run, dst, src []T, lo, hi int) bool {
	if k.wide {
		return putEach(dst, src, dtype.View[int64](r.Values[k.pos])[lo:hi], k.limit)
	}
	return putEach(dst, src, dtype.View[int32](r.Values[k.pos])[lo:hi], k.limit)
}

func putEach[T dtype.Element, I int32 | int64](dst, src []T, at []I, width int) bool {
	src = src[:len(at)]
	for i, a := range at {
		if uint64(a) >= uint64(width) {
			return false
		}
		dst[i*width+int(a)] = src[i]
	}
	return true
}
