package conv

import (
	"sync/atomic"
	"unsafe"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/exec"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/product"
)

// bf16Split is how convolutions on tile registers take their operands: a
// bfloat16 as it is, a float16 in two pieces, as panelProduct does. What is not
// finite has no pieces. It is noticed where operands are split, and then all is
// computed by fallback, in float32. (So it must not matter that a part of the
// result has been written already: no operand lies where the result does.)
type bf16Split struct {
	pieces int // bfloat16 to a number

	// If there are two: gemm.Panels.Split, and what computes in float32.
	splitter func(d unsafe.Pointer, ldd, low int, s unsafe.Pointer, lds, rows, n int, found unsafe.Pointer)
	fallback exec.Kernel
}

// found is where it is noted that an element is not finite: before all else in
// the shared memory, in FlagBytes.
func (k *bf16Split) found(r *exec.Run) *uint32 { return (*uint32)(unsafe.Pointer(&r.Shared[0])) }

// clearFound comes before operands are split.
func (k *bf16Split) clearFound(r *exec.Run) { clear(r.Shared[:product.FlagBytes]) }

// lost reports whether fallback has to compute the result.
func (k *bf16Split) lost(r *exec.Run) bool {
	return k.pieces > 1 && atomic.LoadUint32(k.found(r)) != 0
}

// split makes two pieces of rows of n elements, a multiple of 32, where there are
// to be two: the first in place, the second low bytes behind it.
func (k *bf16Split) split(r *exec.Run, d unsafe.Pointer, ld, low, rows, n int) {
	if k.pieces > 1 {
		k.splitter(d, ld, low, d, ld, rows, n, unsafe.Pointer(k.found(r)))
	}
}
