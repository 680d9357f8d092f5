package cpu

import (
	"unsafe"

	"github.com/mezzo-ml/mezzo/backend/dtype"
)

// sizeOf is the bytes of a T.
func sizeOf[T dtype.Element]() int { return int(unsafe.Sizeof(*new(T))) }

// viewOf is the first n elements of b.
func viewOf[T dtype.Element](b []byte, n int) []T { return dtype.View[T](b[:n*sizeOf[T]()]) }

// bytesOf is the memory of x.
func bytesOf[T dtype.Element](x []T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), len(x)*sizeOf[T]())
}

// realView returns elements of a float type as T, which is float64 for
// float64 and float32 for the others: the memory itself where it can, else
// converted into conv.
func realView[T real](data []byte, d dtype.DType, conv []T) []T {
	if d.Size() == sizeOf[T]() {
		return dtype.View[T](data)
	}
	conv = conv[:len(data)/d.Size()]
	toF32(any(conv).([]float32), data, d)
	return conv
}

// storeReal converts x to elements of type d.
func storeReal[T real](data []byte, x []T, d dtype.DType) {
	switch x := any(x).(type) {
	case []float32:
		fromF32(data, x, d)
	case []float64:
		dtype.FromF64(data, x, d)
	}
}
