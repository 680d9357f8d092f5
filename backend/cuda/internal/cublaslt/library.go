//go:build cuda && linux && amd64

package cublaslt

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

// Library is a loaded cublasLt.
type Library struct {
	Path    string
	Version int         // 120205: 12.2.5
	c       *C.mezzo_lt // in C memory: pointers to it pass into C
}

// newest is the newest major version of CUDA whose cublasLt is known to have
// the interface of shim.h.
const newest = 13

// Open loads the newest library that the driver, whose version is given as
// 12040 for CUDA 12.4, can run. The error says where it was looked for.
func Open(driver int) (l *Library, err error) {
	err = nvlib.Open("cublasLt", driver, names(driver/1000), func(path string) (err error) {
		l, err = Load(path)
		return err
	})
	return l, err
}

// names are those of the libraries that a driver of a version of CUDA can run,
// newest first.
func names(major int) []string {
	var list []string
	for m := min(major, newest); m >= 11; m-- {
		list = append(list, fmt.Sprint("libcublasLt.so.", m))
	}
	return list
}

// Load loads the library of a path.
func Load(path string) (*Library, error) {
	p := C.CString(path)
	defer C.free(unsafe.Pointer(p))
	l := &Library{Path: path, c: (*C.mezzo_lt)(C.calloc(1, C.sizeof_mezzo_lt))}
	if e := C.mezzo_lt_open(l.c, p); e != nil {
		C.free(unsafe.Pointer(l.c))
		return nil, fmt.Errorf("cublasLt: %s", C.GoString(e))
	}
	l.Version = int(C.mezzo_lt_version(l.c))
	return l, nil
}

// Error is a call that failed.
type Error struct {
	Call   string
	Status int // a cublasStatus_t
}

// Error prints "cublasLtMatmul: not supported (15)".
func (e *Error) Error() string {
	text := map[int]string{
		1: "not initialized", 3: "out of memory", 7: "invalid value", 8: "the GPU lacks something it needs",
		13: "the GPU program failed", 14: "an internal operation failed", 15: "not supported",
	}[e.Status]
	if text == "" {
		text = "failed"
	}
	return fmt.Sprintf("%s: %s (%d)", e.Call, text, e.Status)
}

func check(call string, status C.int) error {
	if status == 0 {
		return nil
	}
	return &Error{call, int(status)}
}

// Handle is what the library holds for the device whose context was current
// when it was made.
type Handle struct {
	l *Library
	c unsafe.Pointer
}

// NewHandle makes a handle for the device whose context is current.
func (l *Library) NewHandle() (*Handle, error) {
	h := &Handle{l: l}
	return h, check("cublasLtCreate", C.mezzo_lt_create(l.c, &h.c))
}

// Close frees the handle.
func (h *Handle) Close() error { return check("cublasLtDestroy", C.mezzo_lt_destroy(h.l.c, h.c)) }

// Library is the library of the handle.
func (h *Handle) Library() *Library { return h.l }
