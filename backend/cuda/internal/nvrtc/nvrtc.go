//go:build cuda && linux

// Package nvrtc calls NVIDIA's run-time compiler, which only the generator of
// the kernels and its test need; it is loaded, not linked.
package nvrtc

/*
#cgo LDFLAGS: -ldl
#include <dlfcn.h>
#include <stdlib.h>

typedef struct {
	int (*create)(void **, const char *, const char *, int, const char *const *, const char *const *);
	int (*compile)(void *, int, const char *const *);
	int (*log_size)(void *, size_t *);
	int (*log)(void *, char *);
	int (*ptx_size)(void *, size_t *);
	int (*ptx)(void *, char *);
	int (*destroy)(void **);
} nvrtc;

static const char *nvrtc_open(const char *path, nvrtc *n) {
	void *l = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!l) return dlerror();
	*(void **)&n->create = dlsym(l, "nvrtcCreateProgram");
	*(void **)&n->compile = dlsym(l, "nvrtcCompileProgram");
	*(void **)&n->log_size = dlsym(l, "nvrtcGetProgramLogSize");
	*(void **)&n->log = dlsym(l, "nvrtcGetProgramLog");
	*(void **)&n->ptx_size = dlsym(l, "nvrtcGetPTXSize");
	*(void **)&n->ptx = dlsym(l, "nvrtcGetPTX");
	*(void **)&n->destroy = dlsym(l, "nvrtcDestroyProgram");
	return n->create && n->compile && n->ptx ? NULL : "not the library of NVRTC";
}

// nvrtc_compile returns PTX, or, with *failed set, the compiler's messages.
static char *nvrtc_compile(nvrtc *n, const char *source, const char *name, int count, const char **options, int *failed) {
	void *p = NULL;
	size_t size = 0;
	char *text;
	n->create(&p, source, name, 0, NULL, NULL);
	*failed = n->compile(p, count, options);
	(*failed ? n->log_size : n->ptx_size)(p, &size);
	text = calloc(size + 1, 1);
	(*failed ? n->log : n->ptx)(p, text);
	n->destroy(&p);
	return text;
}
*/
import "C"

import (
	"errors"
	"fmt"
	"unsafe"
)

// Compiler is a loaded library.
type Compiler struct{ n C.nvrtc }

// Open loads the library: libnvrtc.so.11.2 is that of CUDA 11.8.
func Open(path string) (*Compiler, error) {
	p := C.CString(path)
	defer C.free(unsafe.Pointer(p))
	c := &Compiler{}
	if e := C.nvrtc_open(p, &c.n); e != nil {
		return nil, errors.New("nvrtc: " + C.GoString(e))
	}
	return c, nil
}

// Compile makes PTX of CUDA C++. name is that of the source in messages.
func (c *Compiler) Compile(source, name string, options ...string) ([]byte, error) {
	s, n := C.CString(source), C.CString(name)
	defer C.free(unsafe.Pointer(s))
	defer C.free(unsafe.Pointer(n))
	list := make([]*C.char, len(options)+1)
	for i, o := range options {
		list[i] = C.CString(o)
		defer C.free(unsafe.Pointer(list[i]))
	}
	var failed C.int
	text := C.nvrtc_compile(&c.n, s, n, C.int(len(options)), &list[0], &failed)
	defer C.free(unsafe.Pointer(text))
	if failed != 0 {
		return nil, fmt.Errorf("nvrtc: %s", C.GoString(text))
	}
	return []byte(C.GoString(text)), nil
}
