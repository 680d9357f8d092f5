package cpu

import (
	"runtime/debug"
	"unsafe"

	"golang.org/x/sys/windows"

	"github.com/mezzo-ml/mezzo/backend/op"
)

// memoryStatus is MEMORYSTATUSEX of the Windows API.
type memoryStatus struct {
	length, load                                 uint32
	physical, freePhysical                       uint64
	pageFile, freePageFile, virtual, freeVirtual uint64
	freeExtended                                 uint64
}

var globalMemoryStatus = windows.NewLazySystemDLL("kernel32.dll").NewProc("GlobalMemoryStatusEx")

// memoryBounds returns the bounds of the process's memory in bytes; 0 is no bound.
func memoryBounds() []int {
	bounds := []int{int(min(debug.SetMemoryLimit(-1), op.Limit))}
	s := memoryStatus{length: uint32(unsafe.Sizeof(memoryStatus{}))}
	if ok, _, _ := globalMemoryStatus.Call(uintptr(unsafe.Pointer(&s))); ok != 0 {
		bounds = append(bounds, int(min(s.physical, op.Limit)))
	}
	return bounds
}
