package lanes

import (
	"unsafe"

	"github.com/mezzo-ml/mezzo/backend/dtype"
)

// SizeOf returns the bytes of a T.
func SizeOf[T dtype.Element]() int { return int(unsafe.Sizeof(*new(T))) }

// ViewOf returns the first n elements of b.
func ViewOf[T dtype.Element](b []byte, n int) []T { return dtype.View[T](b[:n*SizeOf[T]()]) }

// BytesOf returns the memory of x.
func BytesOf[T dtype.Element](x []T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), len(x)*SizeOf[T]())
}

// RealView returns elements of a float type as T, which must be float64 for float64 and
// float32 for all others: the memory itself if possible, else converted into conv.
func RealView[T Real](data []byte, d dtype.DType, conv []T) []T {
	if d.Size() == SizeOf[T]() {
		return dtype.View[T](data)
	}
	conv = conv[:len(data)/d.Size()]
	ToF32(any(conv).([]float32), data, d)
	return conv
}

// StoreReal converts x to elements of type d.
func StoreReal[T Real](data []byte, x []T, d dtype.DType) {
	switch x := any(x).(type) {
	case []float32:
		FromF32(data, x, d)
	case []float64:
		dtype.FromF64(data, x, d)
	}
}
