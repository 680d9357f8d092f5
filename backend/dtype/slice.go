package dtype

import (
	"fmt"
	"math"
	"unsafe"
)

// Element is a Go type that elements in memory can be viewed as. The uint16
// kind serves Float16 and BFloat16; there is no bool, since a byte other than
// 0 and 1 is no Go bool.
type Element interface {
	~uint8 | ~uint16 | ~uint32 | ~uint64 | ~int8 | ~int16 | ~int32 | ~int64 | ~float32 | ~float64
}

// View returns b as a slice of T, sharing memory. It panics when the length of
// b is not a multiple of T's size. The address of b need not be a multiple of
// it on processors that read unaligned words, amd64 and arm64 among them; that
// of a slice from make always is.
func View[T Element](b []byte) []T {
	size := int(unsafe.Sizeof(*new(T)))
	if len(b)%size != 0 {
		panic(fmt.Errorf("dtype: got %d bytes, want a multiple of %d", len(b), size))
	}
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/size)
}

// check panics unless b holds exactly n elements of d.
func check(n int, b []byte, d DType) {
	if d.Size() == 0 {
		panic(unknown(d))
	}
	if len(b) != n*d.Size() {
		panic(fmt.Errorf("dtype: got %d bytes for %d elements of %v, want %d", len(b), n, d, n*d.Size()))
	}
}

// ToF32 converts the elements of src, of type d, to float32. Like the other
// conversions of slices it panics when the lengths disagree or d is Invalid,
// and dst and src must not overlap.
func ToF32(dst []float32, src []byte, d DType) {
	check(len(dst), src, d)
	switch d {
	case Float32:
		copy(dst, View[float32](src))
	case Int64:
		roundInts(dst, View[int64](src))
	default:
		toFloat(dst, src, d)
	}
}

// ToF64 converts the elements of src, of type d, to float64.
func ToF64(dst []float64, src []byte, d DType) {
	check(len(dst), src, d)
	switch d {
	case Float64:
		copy(dst, View[float64](src))
	case Int64:
		convert(dst, View[int64](src))
	default:
		toFloat(dst, src, d)
	}
}

// ToI64 converts the elements of src, of type d, to int64.
func ToI64(dst []int64, src []byte, d DType) {
	check(len(dst), src, d)
	switch d {
	case Bool:
		fromBools(dst, src)
	case Uint8:
		convert(dst, src)
	case Int8:
		convert(dst, View[int8](src))
	case Int32:
		convert(dst, View[int32](src))
	case Int64:
		copy(dst, View[int64](src))
	case Float16:
		for i, h := range View[uint16](src) {
			dst[i] = truncate(F16ToF32(h), int64Range)
		}
	case BFloat16:
		for i, h := range View[uint16](src) {
			dst[i] = truncate(BF16ToF32(h), int64Range)
		}
	case Float32:
		truncateAll(dst, View[float32](src), int64Range)
	case Float64:
		truncateAll(dst, View[float64](src), int64Range)
	}
}

// FromF32 converts src to elements of type d in dst.
func FromF32(dst []byte, src []float32, d DType) {
	check(len(src), dst, d)
	switch d {
	case Float16:
		out := View[uint16](dst)[:len(src)]
		for i, x := range src {
			// F16FromF32, which is too large for the compiler to inline.
			u := math.Float32bits(x)
			a, h := u&0x7fffffff, uint16(u>>16)&0x8000
			if a < f16Over {
				h |= f16Round(a)
			} else {
				h |= f16Large(a)
			}
			out[i] = h
		}
	case BFloat16:
		out := View[uint16](dst)[:len(src)]
		for i, x := range src {
			out[i] = BF16FromF32(x)
		}
	case Float32:
		copy(View[float32](dst), src)
	case Float64:
		convert(View[float64](dst), src)
	default:
		fromFloat(dst, src, d)
	}
}

// FromF64 converts src to elements of type d in dst.
func FromF64(dst []byte, src []float64, d DType) {
	check(len(src), dst, d)
	switch d {
	case Float16:
		out := View[uint16](dst)[:len(src)]
		for i, x := range src {
			out[i] = F16FromF64(x)
		}
	case BFloat16:
		out := View[uint16](dst)[:len(src)]
		for i, x := range src {
			out[i] = BF16FromF64(x)
		}
	case Float32:
		convert(View[float32](dst), src)
	case Float64:
		copy(View[float64](dst), src)
	default:
		fromFloat(dst, src, d)
	}
}

// FromI64 converts src to elements of type d in dst.
func FromI64(dst []byte, src []int64, d DType) {
	check(len(src), dst, d)
	switch d {
	case Bool:
		toBools(dst, src)
	case Uint8:
		for i, x := range src {
			dst[i] = uint8(min(max(x, 0), math.MaxUint8))
		}
	case Int8:
		for i, x := range src {
			dst[i] = uint8(min(max(x, math.MinInt8), math.MaxInt8))
		}
	case Int32:
		out := View[int32](dst)[:len(src)]
		for i, x := range src {
			out[i] = int32(min(max(x, math.MinInt32), math.MaxInt32))
		}
	case Int64:
		copy(View[int64](dst), src)
	case Float16:
		out := View[uint16](dst)[:len(src)]
		for i, x := range src {
			out[i] = F16FromF64(oddFloat(x))
		}
	case BFloat16:
		out := View[uint16](dst)[:len(src)]
		for i, x := range src {
			out[i] = BF16FromF64(oddFloat(x))
		}
	case Float32:
		roundInts(View[float32](dst), src)
	case Float64:
		convert(View[float64](dst), src)
	}
}

// roundInts converts to float32 in one rounding, where Go's own conversion on
// a 32-bit processor rounds twice.
func roundInts(dst []float32, src []int64) {
	dst = dst[:len(src)]
	for i, x := range src {
		dst[i] = float32(oddFloat(x))
	}
}

// oddFloat returns a float64 that rounds to a narrower type as x does: x itself
// when it has no more than 53 bits, else x with the eleven lowest gathered
// into the one above them, so that it neither becomes a tie nor ceases to be
// above one.
func oddFloat(x int64) float64 {
	const low = 1<<11 - 1
	if x >= -1<<53 && x <= 1<<53 || x&low == 0 {
		return float64(x)
	}
	return float64(x&^low | (low + 1))
}

// toFloat converts elements of a type that converts to both floats alike.
func toFloat[D float32 | float64](dst []D, src []byte, d DType) {
	switch d {
	case Bool:
		fromBools(dst, src)
	case Uint8:
		convert(dst, src)
	case Int8:
		convert(dst, View[int8](src))
	case Int32:
		convert(dst, View[int32](src))
	case Float16:
		values := f16Values()
		for i, h := range View[uint16](src)[:len(dst)] {
			dst[i] = D(values[h])
		}
	case BFloat16:
		for i, h := range View[uint16](src)[:len(dst)] {
			dst[i] = D(BF16ToF32(h))
		}
	case Float32:
		convert(dst, View[float32](src))
	case Float64:
		convert(dst, View[float64](src))
	}
}

// fromFloat converts floats to the types that are not floating-point.
func fromFloat[S float32 | float64](dst []byte, src []S, d DType) {
	switch d {
	case Bool:
		toBools(dst, src)
	case Uint8:
		truncateAll(dst, src, uint8Range)
	case Int8:
		truncateAll(View[int8](dst), src, int8Range)
	case Int32:
		truncateAll(View[int32](dst), src, int32Range)
	case Int64:
		truncateAll(View[int64](dst), src, int64Range)
	}
}

// number is what a Go conversion converts between.
type number interface {
	uint8 | int8 | int32 | int64 | float32 | float64
}

// convert converts as Go does, which is by the package's rules wherever no
// float becomes an integer, no integer becomes a narrower one and no int64
// becomes a float32.
func convert[D, S number](dst []D, src []S) {
	dst = dst[:len(src)]
	for i, x := range src {
		dst[i] = D(x)
	}
}

func fromBools[D number](dst []D, src []byte) {
	dst = dst[:len(src)]
	for i, b := range src {
		if b != 0 {
			b = 1
		}
		dst[i] = D(b)
	}
}

func toBools[S number](dst []byte, src []S) {
	dst = dst[:len(src)]
	for i, x := range src {
		var b byte
		if x != 0 {
			b = 1
		}
		dst[i] = b
	}
}

// limits are the ends of an integer type's range and the floats beyond which
// it saturates: x < below becomes min and x >= above becomes max.
type limits[I uint8 | int8 | int32 | int64] struct {
	min, max     I
	below, above float64
}

var (
	uint8Range = limits[uint8]{0, math.MaxUint8, 0, 1 << 8}
	int8Range  = limits[int8]{math.MinInt8, math.MaxInt8, math.MinInt8, 1 << 7}
	int32Range = limits[int32]{math.MinInt32, math.MaxInt32, -1 << 31, 1 << 31}
	int64Range = limits[int64]{math.MinInt64, math.MaxInt64, -1 << 63, 1 << 63}
)

// truncate converts a float to an integer by the rules of the package; Go
// leaves a value outside the range to the processor.
func truncate[I uint8 | int8 | int32 | int64, F float32 | float64](x F, r limits[I]) I {
	switch v := float64(x); {
	case v != v:
		return 0
	case v < r.below:
		return r.min
	case v >= r.above:
		return r.max
	}
	return I(x)
}

func truncateAll[I uint8 | int8 | int32 | int64, F float32 | float64](dst []I, src []F, r limits[I]) {
	dst = dst[:len(src)]
	for i, x := range src {
		dst[i] = truncate(x, r)
	}
}
