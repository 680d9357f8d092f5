//go:build cuda && linux && amd64

package nccl

/*
#cgo LDFLAGS: -ldl
#include <stdlib.h>
#include "shim.h"
*/
import "C"

import (
	"fmt"
	"unsafe"

	"github.com/mezzo-ml/mezzo/backend/cuda/internal/nvlib"
)

// oldest is the first version that graphs may capture, and that sends and receives.
const oldest = 21100

// Library is a loaded NCCL.
type Library struct {
	Path    string
	Version int           // 22703: 2.27.3
	c       *C.mezzo_nccl // in C memory: pointers to it pass into C
}

// Open loads the library. The driver's version is given as 12040 for CUDA 12.4. The
// error says where the library was looked for.
func Open(driver int) (l *Library, err error) {
	err = nvlib.Open("NCCL", driver, []string{"libnccl.so.2"}, func(path string) (err error) {
		l, err = Load(path)
		return err
	})
	return l, err
}

// Load loads the library of a path.
func Load(path string) (*Library, error) {
	p := C.CString(path)
	defer C.free(unsafe.Pointer(p))
	l := &Library{Path: path, c: (*C.mezzo_nccl)(C.calloc(1, C.sizeof_mezzo_nccl))}
	if e := C.mezzo_nccl_open(l.c, p); e != nil {
		C.free(unsafe.Pointer(l.c))
		return nil, fmt.Errorf("NCCL: %s", C.GoString(e))
	}
	if l.Version = int(C.mezzo_nccl_version(l.c)); l.Version < oldest {
		return nil, nvlib.Unfit("is NCCL " + l.String() + ", want 2.11 or newer")
	}
	return l, nil
}

// String is the version: "2.27.3".
func (l *Library) String() string {
	return fmt.Sprintf("%d.%d.%d", l.Version/10000, l.Version/100%100, l.Version%100)
}

// Error is a call that failed.
type Error struct {
	Call string
	Code int    // an ncclResult_t
	Text string // the library's name for it
	Last string // what the library said last, of any call
}

// Error prints "ncclCommInitRank: invalid usage (5): Duplicate GPU detected …".
func (e *Error) Error() string {
	s := fmt.Sprintf("%s: %s (%d)", e.Call, e.Text, e.Code)
	if e.Last != "" {
		s += ": " + e.Last
	}
	return s
}

func (l *Library) check(call string, comm unsafe.Pointer, code C.int) error {
	if code == 0 {
		return nil
	}
	return &Error{call, int(code), C.GoString(C.mezzo_nccl_error_string(l.c, code)), C.GoString(C.mezzo_nccl_last_error(l.c, comm))}
}

// IDBytes is the size of a unique id.
const IDBytes = C.sizeof_mezzo_nccl_id

// UniqueID returns the id of a new group of ranks, which one rank makes for all.
func (l *Library) UniqueID() ([]byte, error) {
	var id C.mezzo_nccl_id
	err := l.check("ncclGetUniqueId", nil, C.mezzo_nccl_unique_id(l.c, &id))
	return C.GoBytes(unsafe.Pointer(&id), IDBytes), err
}

// Comm is a rank of a group. Its calls put work on a stream of the device that was
// current when it was made, and want that device's context current.
type Comm struct {
	l          *Library
	c          unsafe.Pointer
	rank, size int
}

// NewComm joins the group of an id. It waits for the other ranks.
func (l *Library) NewComm(id []byte, rank, size int) (*Comm, error) {
	if len(id) != IDBytes {
		return nil, fmt.Errorf("NCCL: an id of %d bytes, want %d", len(id), IDBytes)
	}
	c := &Comm{l: l, rank: rank, size: size}
	return c, l.check("ncclCommInitRank", nil, C.mezzo_nccl_init(l.c, &c.c, C.int(size), (*C.mezzo_nccl_id)(unsafe.Pointer(&id[0])), C.int(rank)))
}

// Library is the library of the group.
func (c *Comm) Library() *Library { return c.l }

// Close leaves the group. All calls must have ended.
func (c *Comm) Close() error {
	return c.l.check("ncclCommDestroy", nil, C.mezzo_nccl_destroy(c.l.c, c.c))
}

// Abort leaves the group and ends the calls that are under way, whatever they have done.
func (c *Comm) Abort() error {
	return c.l.check("ncclCommAbort", nil, C.mezzo_nccl_abort(c.l.c, c.c))
}

// Failed returns the error of a call that was put on a stream, or of the connection,
// if there is one so far.
func (c *Comm) Failed() error {
	var code C.int
	if err := c.l.check("ncclCommGetAsyncError", c.c, C.mezzo_nccl_async_error(c.l.c, c.c, &code)); err != nil {
		return err
	}
	const inProgress = 7
	if code == inProgress {
		return nil
	}
	return c.l.check("NCCL", c.c, code)
}

// AllToAll sends part i of send, of so many bytes, to rank i, and receives its part for
// this rank as part i of recv. This rank's own part is not copied.
func (c *Comm) AllToAll(stream uintptr, send, recv uint64, bytes int) error {
	return c.l.check("ncclGroupEnd", c.c, C.mezzo_nccl_all_to_all(c.l.c, C.uint64_t(send), C.uint64_t(recv), C.size_t(bytes), C.int(c.rank), C.int(c.size), c.c, C.uintptr_t(stream)))
}

// AllGather receives the bytes at send of rank i as part i of recv.
func (c *Comm) AllGather(stream uintptr, send, recv uint64, bytes int) error {
	return c.l.check("ncclAllGather", c.c, C.mezzo_nccl_all_gather(c.l.c, C.uint64_t(send), C.uint64_t(recv), C.size_t(bytes), c.c, C.uintptr_t(stream)))
}

// AllReduce adds up float32 numbers of all ranks in place, in an order of the library's
// choice.
func (c *Comm) AllReduce(stream uintptr, x uint64, elements int) error {
	return c.l.check("ncclAllReduce", c.c, C.mezzo_nccl_all_reduce(c.l.c, C.uint64_t(x), C.size_t(elements), c.c, C.uintptr_t(stream)))
}
