package exec

import "syscall"

// yieldThread gives the processor to another thread that waits for it. The
// call is too short to tell the Go scheduler about.
func yieldThread() { syscall.RawSyscall(syscall.SYS_SCHED_YIELD, 0, 0, 0) }
