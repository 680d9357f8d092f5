package cpu

import (
	"runtime/debug"

	"golang.org/x/sys/unix"

	"github.com/mezzo-ml/mezzo/backend/op"
)

// memoryBounds returns the bounds of the process's memory in bytes; 0 is no bound.
func memoryBounds() []int {
	n, err := unix.SysctlUint64("hw.memsize")
	if err != nil {
		n = 0
	}
	return []int{int(min(debug.SetMemoryLimit(-1), op.Limit)), int(min(n, op.Limit))}
}
