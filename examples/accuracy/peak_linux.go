package main

import (
	"os"
	"syscall"
)

// peak is the memory, in MiB, that a process which has ended held at most.
func peak(s *os.ProcessState) float64 {
	u, ok := s.SysUsage().(*syscall.Rusage)
	if !ok {
		return 0
	}
	return float64(u.Maxrss) / 1024
}
