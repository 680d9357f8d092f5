//go:build cuda && linux && amd64

package fake

/*
#cgo LDFLAGS: -ldl
#include <stdint.h>
#include <stdlib.h>
#include "interpret.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"unsafe"

	"github.com/mezzo-ml/mezzo/backend/cuda/internal/fake/simt"
	"github.com/mezzo-ml/mezzo/backend/cuda/kernels"
)

// InterpretSetting is the environment variable that has tests execute the PTX of all
// kernels, if it is 1, instead of the sources compiled for the host.
const InterpretSetting = "FAKECUDA_PTX"

// Interpret has the driver at a path, as Build returns it, run kernels by package
// simt, in this process: it then refuses cubins, as a GPU for which there are none.
func Interpret(driver string) error {
	path := C.CString(driver)
	defer C.free(unsafe.Pointer(path))
	if text := C.mezzo_fake_interpret(path); text != nil {
		return errors.New("fake: " + C.GoString(text))
	}
	return nil
}

// modules are those that the driver has loaded, by their handles, and what has been
// executed of their kernels, by name.
var modules struct {
	sync.Mutex
	list  []*simt.Module
	tally map[string]*Tally
}

// Tally is what was executed of a kernel in this process.
type Tally struct {
	Kernel       string
	Launches     int
	Instructions uint64 // of warps
	Executed     int    // instructions of its text that were
	Total        int    // instructions of its text

	covered []bool
}

// Tallies are those of all kernels that were launched, sorted by name. Chains, whose
// names are not theirs alone, are not among them but for their sum, "chains".
func Tallies() []Tally {
	modules.Lock()
	defer modules.Unlock()
	var list []Tally
	for _, name := range slices.Sorted(maps.Keys(modules.tally)) {
		t := *modules.tally[name]
		for _, c := range t.covered {
			if c {
				t.Executed++
			}
		}
		t.Total = len(t.covered)
		list = append(list, t)
	}
	return list
}

// count notes a launch.
func count(name string, s simt.Statistics) {
	modules.Lock()
	defer modules.Unlock()
	if _, err := kernels.UnitOf(name); err != nil {
		name, s.Covered = "chains", nil
	}
	t := modules.tally[name]
	if t == nil {
		t = &Tally{Kernel: name, covered: make([]bool, len(s.Covered))}
		if modules.tally == nil {
			modules.tally = map[string]*Tally{}
		}
		modules.tally[name] = t
	}
	t.Launches++
	t.Instructions += s.Instructions
	for i, c := range s.Covered {
		t.covered[i] = t.covered[i] || c
	}
}

//export mezzoFakeLoad
func mezzoFakeLoad(text *C.char, handle *C.uint64_t) C.int {
	m, err := simt.Parse(C.GoString(text))
	if err != nil {
		fmt.Fprintln(os.Stderr, "fakecuda:", err)
		const invalidPTX = 218
		return invalidPTX
	}
	modules.Lock()
	defer modules.Unlock()
	modules.list = append(modules.list, m)
	*handle = C.uint64_t(len(modules.list) - 1)
	return 0
}

//export mezzoFakeUnload
func mezzoFakeUnload(handle C.uint64_t) {
	modules.Lock()
	defer modules.Unlock()
	modules.list[handle] = nil
}

// memory is the allocations of the last launch.
var memory struct {
	sync.Mutex
	generation C.uint64_t
	list       []simt.Region
}

// allocations are the device's memory.
func allocations(l *C.mezzo_fake_launch) []simt.Region {
	memory.Lock()
	defer memory.Unlock()
	if memory.generation != l.generation {
		memory.generation, memory.list = l.generation, nil
		for _, a := range unsafe.Slice(l.memory, l.allocations) {
			memory.list = append(memory.list, simt.Region{Base: uint64(uintptr(a.start)), Data: unsafe.Slice((*byte)(a.start), a.bytes)})
		}
	}
	return memory.list
}

//export mezzoFakeRun
func mezzoFakeRun(l *C.mezzo_fake_launch) C.int {
	modules.Lock()
	m := modules.list[l.module]
	modules.Unlock()
	k, err := m.Kernel(C.GoString(l.name))
	if err == nil {
		launch := simt.Launch{Shared: int(l.shared)}
		for i := range 3 {
			launch.Grid[i], launch.Block[i] = int(l.grid[i]), int(l.block[i])
		}
		for _, p := range unsafe.Slice(l.parameters, l.count) {
			launch.Parameters = append(launch.Parameters, uint64(p))
		}
		launch.Memory = allocations(l)
		var s simt.Statistics
		s, err = k.Run(launch)
		count(k.Name, s)
		l.swaps = C.uint64_t(s.Swaps)
		l.instructions = C.uint64_t(s.Instructions)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "fakecuda:", err)
		return C.int(simt.Code(err))
	}
	return 0
}
