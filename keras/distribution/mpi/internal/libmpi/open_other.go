//go:build !((linux && !android) || darwin)

package libmpi

import (
	"errors"
	"runtime"
)

// Open returns an error: on this system no library can be loaded.
func Open(...string) (*Library, error) {
	return nil, errors.New("MPI is supported on Linux and macOS, not on " + runtime.GOOS)
}

// Exit does nothing.
func (l *Library) Exit(int) {}

func call(uintptr, ...uintptr) uintptr { panic("libmpi: no library") }
