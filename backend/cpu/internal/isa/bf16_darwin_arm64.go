package isa

import "syscall"

// hasBF16 reports whether the processor multiplies bfloat16.
func hasBF16() bool {
	has, err := syscall.SysctlUint32("hw.optional.arm.FEAT_BF16")
	return err == nil && has != 0
}
