package exec

import (
	"bytes"
	"fmt"
	"unsafe"

	"github.com/mezzo-ml/mezzo/backend"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
)

// Checking reports whether runs check themselves, as under MEZZO_DEBUG=check and in
// tests: memory has guards, buffers are compared with their contents at the same
// version, and packed copies with their operands.
var Checking = backend.DebugFromEnv().Check

// CheckingPacked is Checking for packed copies, which are then packed in each run.
var CheckingPacked = Checking

// When Checking, the memory of kernels lies between guards, bytes that must not change,
// and begins as NaNs. Assembly has no bounds checks: without guards an out-of-bounds
// store corrupts other memory and shows much later.

// guardBytes is the bytes of a guard, a multiple of ir.Align.
const guardBytes = 16 * ir.Align

// guardNaNs are NaNs of every type.
var guardNaNs = bytes.Repeat([]byte{0xFF}, ir.Align)

var guardPattern = bytes.Repeat([]byte{0xA5}, guardBytes)

// Aligned returns n zero bytes that start at a multiple of ir.Align. Go
// promises only the alignment of the element type.
func Aligned(n int) []byte {
	room := 0
	if Checking {
		room = guardBytes
	}
	b := make([]byte, n+ir.Align-1+2*room)
	off := room + int(-uintptr(unsafe.Pointer(unsafe.SliceData(b)))&(ir.Align-1))
	copy(b[off-room:off], guardPattern)
	copy(b[off+n:off+n+room], guardPattern)
	return b[off : off+n : off+n]
}

// dirty fills memory whose contents are undefined with NaNs if there are guards or
// arenas are not reused, so that a kernel that reads it is found.
func dirty(b []byte) []byte {
	if Checking || !backend.Keeps(backend.Arenas) {
		for n := copy(b, guardNaNs); n < len(b); {
			n += copy(b[n:], b[:n])
		}
	}
	return b
}

// checkGuards panics if the guards of memory from Aligned were overwritten. name
// describes the memory and the last kernel.
func checkGuards(b []byte, name func() string) {
	if !Checking || len(b) == 0 {
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

// CheckGuards checks the memory of a run after the step of the value at pos.
func (r *Run) CheckGuards(pos int) {
	for i, b := range [][]byte{r.arena, r.Shared, r.worker.Scratch} {
		checkGuards(b, func() string {
			v := r.Plan.Graph.Values[pos]
			return fmt.Sprintf("%v %v with %s", v.Op, v.Type, []string{"the arena", "shared memory", "scratch memory"}[i])
		})
	}
}

// Constant returns the elements of a Const.
func Constant(v *ir.Value) []byte {
	data := Aligned(v.Type.Bytes())
	if v.Attr.Data != nil {
		copy(data, v.Attr.Data)
		return data
	}
	Fill(data, v.Type.DType, v.Attr.Value)
	return data
}

// Fill sets all elements of data to x.
func Fill(data []byte, d dtype.DType, x float64) {
	if len(data) == 0 {
		return
	}
	dtype.FromF64(data[:d.Size()], []float64{x}, d)
	Repeat(data, d.Size())
}

// Repeat copies the first n bytes of b over the rest.
func Repeat(b []byte, n int) {
	for ; n > 0 && n < len(b); n *= 2 {
		copy(b[n:], b[:n])
	}
}
