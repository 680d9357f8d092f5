//go:build !linux && !darwin && !windows

package cpu

import (
	"runtime/debug"

	"github.com/mezzo-ml/mezzo/backend/op"
)

// memoryBounds returns the bounds of the process's memory in bytes; 0 is no bound.
func memoryBounds() []int { return []int{int(min(debug.SetMemoryLimit(-1), op.Limit))} }
