//go:build !linux && !darwin

package isa

// hasBF16 reports whether the processor multiplies bfloat16; here the system
// does not say.
func hasBF16() bool { return false }
