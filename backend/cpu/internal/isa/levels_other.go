//go:build !amd64 && !arm64

package isa

// Levels returns the levels that the processor supports.
func Levels() []Level { return []Level{Portable} }
