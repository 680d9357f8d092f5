package cpu

import "github.com/mezzo-ml/mezzo/backend/dtype"

// domain is the type that registers hold and loops compute in.
type domain uint8

const (
	inF32  domain = iota // float16, bfloat16, float32
	inF64                // float64
	inI64                // uint8, int32, int64
	inBool               // bool
)

func domainOf(d dtype.DType) domain {
	switch {
	case d == dtype.Bool:
		return inBool
	case d.IsInt():
		return inI64
	case d == dtype.Float64:
		return inF64
	}
	return inF32
}

// size is the bytes of an element of a register.
func (d domain) size() int { return [...]int{inF32: 4, inF64: 8, inI64: 8, inBool: 1}[d] }

// native reports whether elements of a type in memory are those of a register.
func native(d dtype.DType) bool { return d.Size() == domainOf(d).size() }

// load converts elements of type d to a register of domain to: that of d, or
// inF32 for integers that are read as float32.
func load(reg, data []byte, d dtype.DType, to domain) {
	switch {
	case to == inF32 && d != dtype.Float32:
		toF32(dtype.View[float32](reg), data, d)
	case native(d):
		copy(reg, data)
	default:
		dtype.ToI64(dtype.View[int64](reg), data, d)
	}
}

// store converts a register to elements of type d, of the same domain.
func store(data, reg []byte, d dtype.DType) {
	switch {
	case native(d):
		copy(data, reg)
	case domainOf(d) == inF32:
		fromF32(data, dtype.View[float32](reg), d)
	default:
		dtype.FromI64(data, dtype.View[int64](reg), d)
	}
}
