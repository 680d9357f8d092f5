//go:build !linux

package isa

// useAMX returns false: only Linux has a documented way to request the tile registers.
func useAMX() bool { return false }
