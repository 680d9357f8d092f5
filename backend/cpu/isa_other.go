//go:build !amd64 && !arm64

package cpu

// isaLevels are the levels that the processor supports.
func isaLevels() []isa { return []isa{isaPortable} }
