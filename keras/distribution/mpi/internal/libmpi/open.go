//go:build (linux && !android) || darwin

package libmpi

import (
	"errors"
	"fmt"
	"runtime"

	"github.com/ebitengine/purego"
)

// Open loads the first library of names that is there: names of files, which the system
// searches, or paths. The error says what was tried. Loading a library that is no MPI
// library is an error, and no other is tried.
func Open(names ...string) (*Library, error) {
	// The C library keeps the text of an error for the thread that got it: a goroutine that
	// moves to another one between dlopen and dlerror finds none.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var tried []error
	for _, name := range names {
		// RTLD_GLOBAL: Open MPI loads components that look for its symbols.
		h, err := purego.Dlopen(name, purego.RTLD_NOW|purego.RTLD_GLOBAL)
		if err != nil {
			tried = append(tried, err)
			continue
		}
		return bind(name, h)
	}
	return nil, fmt.Errorf("no MPI library: %w", errors.Join(tried...))
}

// bind looks up what is called of the library with handle h.
func bind(name string, h uintptr) (*Library, error) {
	symbol := func(name string) uintptr {
		p, err := purego.Dlsym(h, name)
		if err != nil {
			return 0
		}
		return p
	}
	l := &Library{Path: name}
	var err error
	if l.abi, err = detect(name, symbol); err != nil {
		return nil, err
	}
	for f, to := range l.names() {
		if *to = symbol(f); *to == 0 {
			return nil, fmt.Errorf("%s has no %s", name, f)
		}
	}
	libc := "libc.so.6"
	if runtime.GOOS == "darwin" {
		libc = "/usr/lib/libSystem.B.dylib"
	}
	if h, err := purego.Dlopen(libc, purego.RTLD_NOW); err == nil {
		l.exit, _ = purego.Dlsym(h, "exit")
	}
	return l, nil
}

// Exit ends the process through the C library, which runs the functions that libraries
// have registered with atexit: MPICH 5 takes leave of its launcher there. os.Exit and
// the end of main do not run them, and the launcher then kills the other processes. It
// returns only if there is no C library.
func (l *Library) Exit(code int) {
	if l.exit != 0 {
		call(l.exit, uintptr(uint32(code)))
	}
}

// call calls a C function with integers and pointers. What the pointers point to is on
// the heap, and reachable until call returns, because of the directive: it holds for
// arguments of the form uintptr(unsafe.Pointer(p)).
//
//go:uintptrescapes
func call(f uintptr, args ...uintptr) uintptr {
	r, _, _ := purego.SyscallN(f, args...)
	return r
}
