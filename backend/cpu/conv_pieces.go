package cpu

import (
	"sync/atomic"
	"unsafe"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/exec"
)

// tilePieces is how convolutions on tile registers take their operands: a
// bfloat16 as it is, a float16 in two pieces, as panelProduct does. What is not
// finite has no pieces. It is noticed where operands are split, and then all is
// computed by fallback, in float32. (So it must not matter that a part of the
// result has been written already: no operand lies where the result does.)
type tilePieces struct {
	pieces int // bfloat16 to a number

	// If there are two: gemm.Panels.Split, and what computes in float32.
	splitter func(d unsafe.Pointer, ldd, low int, s unsafe.Pointer, lds, rows, n int, found unsafe.Pointer)
	fallback exec.Kernel
}

// found is where it is noted that an element is not finite: before all else in
// the shared memory, in flagBytes.
func (k *tilePieces) found(r *exec.Run) *uint32 { return (*uint32)(unsafe.Pointer(&r.Shared[0])) }

// clearFound comes before operands are split.
func (k *tilePieces) clearFound(r *exec.Run) { clear(r.Shared[:flagBytes]) }

// lost reports whether fallback has to compute the result.
func (k *tilePieces) lost(r *exec.Run) bool {
	return k.pieces > 1 && atomic.LoadUint32(k.found(r)) != 0
}

// split makes two pieces of rows of n elements, a multiple of 32, where there are
// to be two: the first in place, the second low bytes behind it.
func (k *tilePieces) split(r *exec.Run, d unsafe.Pointer, ld, low, rows, n int) {
	if k.pieces > 1 {
		k.splitter(d, ld, low, d, ld, rows, n, unsafe.Pointer(k.found(r)))
	}
}
