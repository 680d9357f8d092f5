package conv

import (
	"sync/atomic"
	"unsafe"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/exec"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/product"
)

// bf16Split describes the operands of convolutions on tile registers: a bfloat16 as it is, a
// float16 in two bfloat16 pieces, as in package product. A number that is not finite cannot be
// split. Splitting reports it, and fallback then computes the whole result in float32. A part
// of the result may have been written by then, so operands must not share the result's memory.
type bf16Split struct {
	pieces int // bfloat16 numbers that make up an element

	// For two pieces: gemm.Panels.Split, and the kernel in float32.
	splitter func(d unsafe.Pointer, ldd, low int, s unsafe.Pointer, lds, rows, n int, found unsafe.Pointer)
	fallback exec.Kernel
}

// found returns the flag for an element that is not finite, which is at the start of shared
// memory.
func (k *bf16Split) found(r *exec.Run) *uint32 { return (*uint32)(unsafe.Pointer(&r.Shared[0])) }

// clearFound clears the flag. It must be called before operands are split.
func (k *bf16Split) clearFound(r *exec.Run) { clear(r.Shared[:product.FlagBytes]) }

// lost reports whether an element was not finite: fallback must compute the result.
func (k *bf16Split) lost(r *exec.Run) bool {
	return k.pieces > 1 && atomic.LoadUint32(k.found(r)) != 0
}

// split splits rows of n elements, a multiple of 32, into two pieces if the operands are
// float16: the high piece in place, the low piece low bytes after it.
func (k *bf16Split) split(r *exec.Run, d unsafe.Pointer, ld, low, rows, n int) {
	if k.pieces > 1 {
		k.splitter(d, ld, low, d, ld, rows, n, unsafe.Pointer(k.found(r)))
	}
}
