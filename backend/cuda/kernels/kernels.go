// Package kernels is the device code of Mezzo: its sources, in the part of
// CUDA C++ that needs no header, and the PTX that NVRTC 11.8 makes of them.
//
// functions.cu has what each element-wise operation means, for package ptx;
// the other files have the kernels. As C++ for the host, with the fake
// driver's emu.h before them, the same sources run in tests.
//
//	KERAS_NVRTC=.../libnvrtc.so.11.2 go test -tags cuda ./backend/cuda/kernels -generate
//
// writes the PTX anew; without -generate the test checks that it is up to date.
// KERAS_PTXAS=.../ptxas has it assembled for each GPU as well. The packages
// nvidia-cuda-nvrtc-cu11 and nvidia-cuda-nvcc-cu11 of PyPI have both tools.
package kernels

import (
	"compress/gzip"
	"embed"
	"fmt"
	"io"
)

// Sources are the files of device code.
//
//go:embed *.h *.cu
var Sources embed.FS

//go:embed *.ptx.gz
var compiled embed.FS

// Architectures are the virtual architectures for which there is PTX, newest
// first: a device takes the first one that is not newer than itself.
var Architectures = []int{80, 70}

// files are the parts of each of the two texts that are compiled.
var files = map[string][]string{
	"functions": {"types.h", "functions.cu"},
	"kernels":   {"types.h", "reduce.cu", "rows.cu", "move.cu", "random.cu", "matmul.cu", "window.cu"},
}

// Units are the compilation units with the names of their files, types.h left
// out of all but the first.
func Units() map[string][]string { return files }

// PTX returns the compiled text of a unit for the newest architecture that is
// not newer than a compute capability, given as 10·major+minor.
func PTX(unit string, capability int) (string, error) {
	for _, a := range Architectures {
		if a > capability {
			continue
		}
		f, err := compiled.Open(fmt.Sprintf("%s_%d.ptx.gz", unit, a))
		if err != nil {
			return "", err
		}
		defer f.Close()
		z, err := gzip.NewReader(f)
		if err != nil {
			return "", err
		}
		text, err := io.ReadAll(z)
		return string(text), err
	}
	return "", fmt.Errorf("compute capability %d.%d is not supported, want 7.0 or newer", capability/10, capability%10)
}
