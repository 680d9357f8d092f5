package gemm

import (
	"math/bits"
	"unsafe"
)

// transposeBy is Set.Transpose by a routine for squares of so many lanes and steps.
func transposeBy(e Element, lanes int, transpose func(d unsafe.Pointer, ldd int, s unsafe.Pointer, lds int, k int)) Pack {
	step := 1 // elements to a number of 32 bits
	if e == Pairs {
		step = 2
	}
	rest := portable.Transpose[e]
	return func(d unsafe.Pointer, ldd int, s unsafe.Pointer, lds int, k int, load, store uint) {
		n := bits.Len(load&store) / lanes * lanes
		whole := k / step / lanes * lanes
		for j := 0; j < n; j += lanes {
			transpose(unsafe.Add(d, 4*j), ldd, unsafe.Add(s, j*lds), lds, whole)
		}
		if left := k - whole*step; left > 0 && n > 0 {
			all := uint(1)<<n - 1
			rest(unsafe.Add(d, whole*ldd), ldd, unsafe.Add(s, whole*step*e.Size()), lds, left, all, all)
		}
		if store>>n != 0 {
			rest(unsafe.Add(d, 4*n), ldd, unsafe.Add(s, n*lds), lds, k, load>>n, store>>n)
		}
	}
}
