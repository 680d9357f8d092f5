//go:build !amd64 && !arm64

package isa

// Levels returns the levels that the processor supports.
func Levels() []Level { return []Level{Portable} }

// HasBitMatrices returns false: they are instructions of AVX-512.
func HasBitMatrices() bool { return false }
