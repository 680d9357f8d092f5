//go:build !linux && !darwin

package isa

// hasBF16 returns false: this system does not tell.
func hasBF16() bool { return false }
