package isa

import "syscall"

// useAMX requests permission for the tile registers from the system and reports whether
// it was granted: Linux requires this because they enlarge the state of threads. The
// processor must have AMX-BF16.
func useAMX() bool {
	const (
		archPrctl  = 158
		permission = 0x1023 // ARCH_REQ_XCOMP_PERM
		tileData   = 18
	)
	_, _, errno := syscall.RawSyscall(archPrctl, permission, tileData, 0)
	return errno == 0
}
