package libmpi

import (
	"errors"
	"strings"
	"sync"
	"testing"
)

// TestDetect: the binary interface of a library follows from its symbols and its name.
func TestDetect(t *testing.T) {
	ompi := map[string]uintptr{"ompi_mpi_comm_world": 1, "ompi_mpi_byte": 2, "ompi_mpi_float": 3, "ompi_mpi_op_sum": 4, "ompi_mpi_errors_return": 5, "ompi_mpi_info_null": 6}
	intel := map[string]uintptr{"MPIR_Err_return_comm": 1}
	for _, c := range []struct {
		path    string
		symbols map[string]uintptr
		want    string
	}{
		{"libmpi.so.40", ompi, "openmpi"},
		{"/opt/x/libmpi.so", ompi, "openmpi"},
		{"libmpich.so.12", intel, "mpich"},
		{"/opt/intel/libmpi.so", intel, "mpich"},
		{"libmpi.so.12", nil, "mpich"}, // whose internal symbols are hidden
		{"/x/libmpi_abi.so.1", intel, "standard"},
		{"/mpi_abi/libmpi.so.12", intel, "mpich"},
		{"libc.so.6", nil, ""},
		{"libmpi.so.40", map[string]uintptr{"ompi_mpi_comm_world": 1}, ""},
	} {
		a, err := detect(c.path, func(name string) uintptr { return c.symbols[name] })
		if a.name != c.want || (err == nil) != (c.want != "") {
			t.Errorf("%s: got %q, %v, want %q", c.path, a.name, err, c.want)
		}
		if c.want == "openmpi" && (a.world != 1 || a.byte != 2 || a.float != 3 || a.sum != 4 || a.errorsReturn != 5 || a.infoNull != 6) {
			t.Errorf("%s: got %+v", c.path, a)
		}
	}
	if openmpi.world != 0 {
		t.Error("detect has changed the table")
	}
}

// TestOpen: the error names every library that was tried, also while goroutines move
// between threads.
func TestOpen(t *testing.T) {
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 500 {
				_, err := Open("libmpi-a.so", "libmpi-b.so")
				if err == nil || !strings.Contains(err.Error(), "libmpi-a.so") || !strings.Contains(err.Error(), "libmpi-b.so") {
					t.Errorf("got %v", err)
					return
				}
				var e *Error
				if errors.As(err, &e) {
					t.Errorf("got %#v: no function was called", e)
					return
				}
			}
		})
	}
	all.Wait()
}
