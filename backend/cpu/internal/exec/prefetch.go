package exec

import (
	"unsafe"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/tiling"
)

// PrefetchPiece is the bytes that kernels prefetch at a time, every four steps.
const PrefetchPiece = 128

// PrefetchList lists memory to prefetch: for each part n pieces, stride bytes apart.
type PrefetchList struct {
	parts [8]struct {
		data          unsafe.Pointer
		at, stride, n int
	}
	N, Next int
}

// Add appends n pieces of data, stride bytes apart, from offset at on.
func (f *PrefetchList) Add(data []byte, at, stride, n int) {
	if f.N == len(f.parts) || at < 0 || at >= len(data) || stride <= 0 {
		return
	}
	p := &f.parts[f.N]
	p.data, p.at, p.stride, p.n = unsafe.Pointer(unsafe.SliceData(data)), at, stride, min(n, tiling.CeilDiv(len(data)-at, stride))
	f.N++
}

// Take returns the address of the next n pieces and their distance, or nil if none are
// left.
func (f *PrefetchList) Take(n int) (unsafe.Pointer, int) {
	if f.Next >= f.N {
		return nil, 0
	}
	p := &f.parts[f.Next]
	at := unsafe.Add(p.data, p.at)
	if p.n -= n; p.n > 0 {
		p.at += n * p.stride
	} else {
		f.Next++
	}
	return at, p.stride
}
