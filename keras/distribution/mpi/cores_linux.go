package mpi

import (
	"math/bits"
	"runtime"
	"syscall"
	"unsafe"
)

// cores returns the cores that this process may use, and how many it could use if its
// launcher had not bound it: those that the machine and the cgroup allow. The calling
// goroutine is locked to its thread.
func cores() (own []int, possible int) {
	mask, ok := affinity()
	if !ok {
		return nil, 0
	}
	for i, m := range mask {
		for ; m != 0; m &= m - 1 {
			own = append(own, i*64+bits.TrailingZeros64(m))
		}
	}
	// On a thread that ends with the goroutine: the binding of no other one changes.
	done := make(chan int)
	go func() {
		runtime.LockOSThread()
		var all [len(mask)]uint64
		for i := range all {
			all[i] = ^uint64(0)
		}
		n := 0
		if _, _, e := syscall.RawSyscall(syscall.SYS_SCHED_SETAFFINITY, 0, unsafe.Sizeof(all), uintptr(unsafe.Pointer(&all))); e == 0 {
			if mask, ok := affinity(); ok {
				for _, m := range mask {
					n += bits.OnesCount64(m)
				}
			}
		}
		done <- n
	}()
	return own, <-done
}

// affinity returns the mask of the calling thread.
func affinity() (mask [64]uint64, ok bool) {
	_, _, e := syscall.RawSyscall(syscall.SYS_SCHED_GETAFFINITY, 0, unsafe.Sizeof(mask), uintptr(unsafe.Pointer(&mask)))
	return mask, e == 0
}
