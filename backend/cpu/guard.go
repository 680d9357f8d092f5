package cpu

import (
	"bytes"
	"fmt"
	"unsafe"

	"github.com/mezzo-ml/mezzo/backend"
	"github.com/mezzo-ml/mezzo/backend/ir"
)

// Under MEZZO_DEBUG=check, and in this package's tests, the memory that kernels
// work in lies between guards, bytes that nobody writes, and begins as NaNs.
// Kernels in assembly have no bounds; what they write elsewhere is the memory of
// others, or of the runtime, and shows in another place and much later.

// guardBytes is the bytes of a guard, a multiple of ir.Align.
const guardBytes = 16 * ir.Align

var guardPattern = bytes.Repeat([]byte{0xA5}, guardBytes)

// aligned returns n zero bytes that start at a multiple of ir.Align. Go
// promises only the alignment of the element type.
func aligned(n int) []byte {
	room := 0
	if checking {
		room = guardBytes
	}
	b := make([]byte, n+ir.Align-1+2*room)
	off := room + int(-uintptr(unsafe.Pointer(unsafe.SliceData(b)))&(ir.Align-1))
	copy(b[off-room:off], guardPattern)
	copy(b[off+n:off+n+room], guardPattern)
	return b[off : off+n : off+n]
}

// dirty fills memory that promises nothing with NaNs, where there are guards and
// where no memory is used again: that of another program would be as bad, but
// not always there.
func dirty(b []byte) []byte {
	if checking || !backend.Keeps(backend.Arenas) {
		for i := range b {
			b[i] = 0xFF
		}
	}
	return b
}

// checkGuards panics if somebody wrote before or behind memory from aligned. name
// says which that is, and who the last kernel was.
func checkGuards(b []byte, name func() string) {
	if !checking || len(b) == 0 {
		return
	}
	p := unsafe.Pointer(unsafe.SliceData(b))
	for _, side := range []struct {
		from  int
		where string
	}{{-guardBytes, "before"}, {len(b), "behind"}} {
		if !bytes.Equal(unsafe.Slice((*byte)(unsafe.Add(p, side.from)), guardBytes), guardPattern) {
			panic(fmt.Sprintf("cpu: %s wrote %s its %d bytes", name(), side.where, len(b)))
		}
	}
}

// checkGuards checks the memory of a run after the step of the value at pos.
func (r *run) checkGuards(pos int) {
	for i, b := range [][]byte{r.arena, r.shared, r.worker.scratch} {
		checkGuards(b, func() string {
			v := r.plan.graph.Values[pos]
			return fmt.Sprintf("%v %v with %s", v.Op, v.Type, []string{"the arena", "shared memory", "scratch memory"}[i])
		})
	}
}
