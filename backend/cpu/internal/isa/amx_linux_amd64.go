package isa

import "syscall"

// useAMX asks the system for the tile registers, which it gives to processes
// that ask, and reports whether it did: the state of threads that use them is
// large. The processor must have AMX-BF16.
func useAMX() bool {
	const (
		archPrctl  = 158
		permission = 0x1023 // ARCH_REQ_XCOMP_PERM
		tileData   = 18
	)
	_, _, errno := syscall.RawSyscall(archPrctl, permission, tileData, 0)
	return errno == 0
}
