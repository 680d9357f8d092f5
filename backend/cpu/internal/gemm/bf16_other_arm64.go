//go:build !linux && !darwin

package gemm

// HasBF16 reports whether the processor multiplies bfloat16; here the system
// does not say.
func HasBF16() bool { return false }
