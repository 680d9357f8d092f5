package gemm

import (
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
