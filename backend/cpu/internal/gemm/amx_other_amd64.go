//go:build !linux

package gemm

// UseAMX reports whether the system gives the tile registers to this process:
// no system but Linux has a documented way to ask.
func UseAMX() bool { return false }
