package mpi

import (
	"syscall"
	"unsafe"
)

// sigaction is the kernel's struct sigaction on amd64 and arm64.
type sigaction struct {
	handler, flags, restorer uintptr
	mask                     uint64
}

// handlers is how each signal is handled.
type handlers [65]sigaction

// saveHandlers must be called before a library is loaded. UCX, which MPICH and Open MPI
// use, replaces the handlers of SIGSEGV, SIGBUS, SIGFPE and SIGILL: a nil pointer, which
// Go turns into a panic, then ends the process. Others replace SIGUSR1 and SIGHUP.
func saveHandlers() *handlers {
	var h handlers
	for s := 1; s < len(h); s++ {
		syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, uintptr(s), 0, uintptr(unsafe.Pointer(&h[s])), 8, 0, 0)
	}
	return &h
}

// restore puts the handlers back that have changed, and returns their signals.
func (h *handlers) restore() (changed []int) {
	for s := 1; s < len(h); s++ {
		var now sigaction
		syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, uintptr(s), 0, uintptr(unsafe.Pointer(&now)), 8, 0, 0)
		if now.handler != h[s].handler {
			syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, uintptr(s), uintptr(unsafe.Pointer(&h[s])), 0, 8, 0, 0)
			changed = append(changed, s)
		}
	}
	return changed
}
