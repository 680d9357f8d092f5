//go:build !amd64 && !arm64

package gemm

// BytesOf returns the kernels on 8-bit integers for products of m rows.
func BytesOf(int) *Bytes { return PortableBytes }

// allBytes returns all kernels that the processor has, for tests.
func allBytes() []*Bytes { return []*Bytes{PortableBytes} }
