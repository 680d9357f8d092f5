package isa

import "syscall"

// hasBF16 reports whether the processor has bfloat16 products (FEAT_BF16).
func hasBF16() bool {
	has, err := syscall.SysctlUint32("hw.optional.arm.FEAT_BF16")
	return err == nil && has != 0
}
