//go:build !linux

package isa

// useAMX reports whether the system gives the tile registers to this process:
// no system but Linux has a documented way to ask.
func useAMX() bool { return false }
