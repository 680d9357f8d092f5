//go:build !amd64 && !arm64

package gemm

// AllBytes returns the kernels on 8-bit integers: those in Go.
func AllBytes() []*Bytes { return []*Bytes{PortableBytes} }
