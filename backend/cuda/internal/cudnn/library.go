//go:build cuda && linux && amd64

package cudnn

/*
#cgo LDFLAGS: -ldl
#include <stdlib.h>
#include "shim.h"
*/
import "C"

import (
	"fmt"
	"path/filepath"
	"strings"
	"unsafe"

	"github.com/mezzo-ml/mezzo/backend/cuda/internal/nvlib"
)

// Library is a loaded cuDNN.
type Library struct {
	Path    string
	Version [3]int       // 9 10 2
	Runtime int          // of CUDA, that it was built for: 12090 for CUDA 12.9
	c       *C.mezzo_dnn // in C memory: pointers to it pass into C
	parts   []unsafe.Pointer
}

// Open loads the newest library that the driver, whose version is given as
// 12040 for CUDA 12.4, can run. The error says where it was looked for.
func Open(driver int) (l *Library, err error) {
	err = nvlib.Open("cuDNN", driver, []string{"libcudnn.so.9", "libcudnn.so.8"}, func(path string) (err error) {
		l, err = loadFor(driver, path)
		return err
	})
	return l, err
}

// loadFor loads the library of a path if a driver can run it.
func loadFor(driver int, path string) (*Library, error) {
	l, err := Load(path)
	if err == nil && l.Runtime/1000 > driver/1000 {
		err = nvlib.Unfit(fmt.Sprintf("is for CUDA %d", l.Runtime/1000))
		l.unload()
	}
	if err != nil {
		return nil, err
	}
	return l, nil
}

// Load loads the library of a path.
func Load(path string) (*Library, error) {
	l := &Library{Path: path, parts: loadParts(path), c: (*C.mezzo_dnn)(C.calloc(1, C.sizeof_mezzo_dnn))}
	p := C.CString(path)
	defer C.free(unsafe.Pointer(p))
	if e := C.mezzo_dnn_open(l.c, p); e != nil {
		err := fmt.Errorf("cuDNN: %s", C.GoString(e))
		l.unload()
		return nil, err
	}
	l.Runtime = int(C.mezzo_dnn_runtime(l.c))
	v := int(C.mezzo_dnn_version(l.c))
	l.Version = [3]int{v / 1000, v / 100 % 10, v % 100} // 8906: 8.9.6
	if v >= 90000 {
		l.Version = [3]int{v / 10000, v / 100 % 100, v % 100}
	}
	return l, nil
}

// loadParts loads the libraries that a library consists of, where it is given
// with its directory. It would look for them by name alone, and may find those
// of another version, which it then refuses.
func loadParts(path string) []unsafe.Pointer {
	dir, name := filepath.Split(path)
	if dir == "" {
		return nil // where the system's loader finds it, it finds them too
	}
	base, version, _ := strings.Cut(name, ".so.")
	left, err := filepath.Glob(dir + base + "_*.so." + version)
	if err != nil {
		return nil // a directory whose name is a pattern
	}
	var parts []unsafe.Pointer
	for more := true; more; { // they depend on each other
		more = false
		var failed []string
		for _, part := range left {
			p := C.CString(part)
			if h := C.mezzo_dnn_load(p); h != nil {
				parts, more = append(parts, h), true
			} else {
				failed = append(failed, part)
			}
			C.free(unsafe.Pointer(p))
		}
		left = failed
	}
	return parts
}

// unload takes a library back that is not used, so that another one's parts
// can be loaded.
func (l *Library) unload() {
	if l.c.library != nil {
		C.mezzo_dnn_unload(l.c.library)
	}
	for _, p := range l.parts {
		C.mezzo_dnn_unload(p)
	}
	C.free(unsafe.Pointer(l.c))
	l.c = nil
}

// Error is a call that failed.
type Error struct {
	Call   string
	Status int    // a cudnnStatus_t, which versions number differently
	Text   string // the library's name for it
}

// Error prints "cudnnConvolutionForward: CUDNN_STATUS_NOT_SUPPORTED (3000)".
func (e *Error) Error() string { return fmt.Sprintf("%s: %s (%d)", e.Call, e.Text, e.Status) }

func (l *Library) check(call string, status C.int) error {
	if status == 0 {
		return nil
	}
	return &Error{call, int(status), C.GoString(C.mezzo_dnn_error(l.c, status))}
}

// Handle is what the library holds for the device whose context was current
// when it was made.
type Handle struct {
	l      *Library
	c      unsafe.Pointer
	stream uintptr
}

// NewHandle makes a handle for the device whose context is current.
func (l *Library) NewHandle() (*Handle, error) {
	h := &Handle{l: l}
	if err := l.check("cudnnCreate", C.mezzo_dnn_create(l.c, &h.c)); err != nil {
		return nil, err
	}
	return h, nil
}

// use puts what is run from now on on a stream.
func (h *Handle) use(stream uintptr) error {
	if h.stream == stream {
		return nil
	}
	h.stream = stream
	return h.l.check("cudnnSetStream", C.mezzo_dnn_set_stream(h.l.c, h.c, C.uintptr_t(stream)))
}

// Close frees the handle.
func (h *Handle) Close() error { return h.l.check("cudnnDestroy", C.mezzo_dnn_destroy(h.l.c, h.c)) }

// Library is the library of the handle.
func (h *Handle) Library() *Library { return h.l }
