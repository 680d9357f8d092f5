package gemm

import (
	"math/bits"
	"unsafe"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/vec"
	"github.com/mezzo-ml/mezzo/backend/dtype"
)

// widenBy makes conversions of the loops of package vec.
func widenBy(v *vec.Set) [elements]Convert {
	by := func(load vec.Load) Convert {
		return func(d, s unsafe.Pointer, n int) {
			load(unsafe.Slice((*float32)(d), n), unsafe.Slice((*uint16)(s), n))
		}
	}
	return [elements]Convert{F16: by(v.FromF16), BF16: by(v.FromBF16), RoundF16: func(d, s unsafe.Pointer, n int) {
		v.RoundF16(unsafe.Slice((*float32)(d), n), unsafe.Slice((*float32)(s), n))
	}}
}

// narrowBy makes conversions of the loops of package vec.
func narrowBy(v *vec.Set) [elements]Convert {
	by := func(store vec.Store) Convert {
		return func(d, s unsafe.Pointer, n int) {
			store(unsafe.Slice((*uint16)(d), n), unsafe.Slice((*float32)(s), n))
		}
	}
	return [elements]Convert{F16: by(v.ToF16), BF16: by(v.ToBF16)}
}

// ElementOf returns the element that a float type is.
var ElementOf = map[dtype.DType]Element{dtype.Float32: F32, dtype.Float16: F16, dtype.BFloat16: BF16}

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
			from := s // where no lane is left, a pointer behind the last would point outside of the operand
			if load>>n != 0 {
				from = unsafe.Add(s, n*lds)
			}
			rest(unsafe.Add(d, 4*n), ldd, from, lds, k, load>>n, store>>n)
		}
	}
}
