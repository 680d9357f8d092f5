// Package kernels is the device code of Mezzo: its sources, in the part of
// CUDA C++ that needs no header, the PTX that NVRTC 11.8 makes of them, and the
// cubins that ptxas 11.8 makes of that.
//
// functions.cu has what each element-wise operation means, for package ptx;
// the other files have the kernels. As C++ for the host, with the fake
// driver's emu.h before them, the same sources run in tests.
//
//	MEZZO_NVRTC=.../libnvrtc.so.11.2 go test -tags cuda ./backend/cuda/kernels -run Generate -generate
//	MEZZO_PTXAS=.../ptxas MEZZO_PTXAS_NEWEST=.../ptxas go test -tags cuda ./backend/cuda/kernels -run Assemble -generate
//
// write first the PTX and then the cubins anew, with lists of the sources that were compiled,
// and of the assemblers that have taken the PTX, for which GPUs; without -generate the tests
// check that they are up to date, and that the assemblers take the PTX: with -short, by
// those lists, but for short units and for cubins.
// The packages nvidia-cuda-nvrtc-cu11, nvidia-cuda-nvcc-cu11 and nvidia-cuda-nvcc of PyPI
// have the tools.
package kernels

import (
	"compress/gzip"
	"embed"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// Sources are the files of device code.
//
//go:embed *.h *.cu
var Sources embed.FS

//go:embed *.ptx.gz *.cubin.gz
var compiled embed.FS

// Architectures are the virtual architectures for which there is PTX, newest
// first: a device takes the first one that is not newer than itself.
var Architectures = []int{80, 70}

// Machines are the GPUs for which there are cubins, newest first, which the
// driver has not to compile: each is for all of its major version from itself
// on. The others' kernels are compiled when they are first loaded.
var Machines = []int{90, 80}

// units are the texts that are compiled, each with the files that it is made
// of. A program loads those that it calls kernels of, so related kernels lie
// together; functions is for package ptx.
var units = map[string][]string{
	"attention":  {"types.h", "fold.h", "tensor.h", "random.h", "attention.h", "attention.cu"},
	"collective": {"types.h", "collective.cu"},
	"columns":    {"types.h", "columns.cu"},
	"dense":      {"types.h", "fold.h", "dense.cu"},
	"eight":      {"types.h", "eight.h", "eight.cu"},
	"functions":  {"types.h", "eight.h", "functions.cu"},
	"gemm":       {"types.h", "fold.h", "window.h", "tensor.h", "tile.h", "gemm.cu", "resize.cu", "im2col.cu"},
	"move":       {"types.h", "random.h", "move.cu", "random.cu"},
	"recurrent":  {"types.h", "fold.h", "recurrent.cu"},
	"reduce":     {"types.h", "fold.h", "reduce.cu"},
	"rows":       {"types.h", "fold.h", "rows.cu"},
	"window":     {"types.h", "fold.h", "window.h", "window.cu"},
}

// Units are the names of the compilation units that have kernels, sorted.
func Units() []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(units)), func(u string) bool { return u == "functions" })
}

// Files are the sources of all units that have kernels, headers first: what
// one unit of C++ for the host is made of.
func Files() []string {
	var headers, sources []string
	for _, u := range Units() {
		for _, name := range units[u] {
			list := &sources
			if strings.HasSuffix(name, ".h") {
				list = &headers
			}
			if !slices.Contains(*list, name) {
				*list = append(*list, name)
			}
		}
	}
	return append(headers, sources...)
}

var entryPattern = regexp.MustCompile(`\.entry (\w+)\(`)

// index says which unit a kernel is in.
var index = sync.OnceValues(func() (map[string]string, error) {
	m := map[string]string{}
	for _, u := range Units() {
		for _, a := range Architectures { // newer ones have kernels of their own
			text, err := PTX(u, a)
			if err != nil {
				return nil, err
			}
			for _, e := range entryPattern.FindAllStringSubmatch(text, -1) {
				m[e[1]] = u
			}
		}
	}
	return m, nil
})

// UnitOf is the unit that has a kernel.
func UnitOf(kernel string) (string, error) {
	m, err := index()
	if err != nil {
		return "", err
	}
	if m[kernel] == "" {
		return "", fmt.Errorf("no kernel %s in the units %v", kernel, Units())
	}
	return m[kernel], nil
}

// PTX returns the compiled text of a unit for the newest architecture that is
// not newer than a compute capability, given as 10·major+minor.
func PTX(unit string, capability int) (string, error) {
	for _, a := range Architectures {
		if a <= capability {
			return unpack(fmt.Sprintf("%s_%d.ptx.gz", unit, a))
		}
	}
	return "", fmt.Errorf("compute capability %d.%d is not supported, want 7.0 or newer", capability/10, capability%10)
}

// Images are what a device may load for a unit, best first: the cubin, if there
// is one for its compute capability, and the PTX.
func Images(unit string, capability int) ([]string, error) {
	var images []string
	for _, m := range Machines {
		if m <= capability && m/10 == capability/10 {
			cubin, err := unpack(fmt.Sprintf("%s_%d.cubin.gz", unit, m))
			if err != nil {
				return nil, err
			}
			images = append(images, cubin)
			break
		}
	}
	text, err := PTX(unit, capability)
	return append(images, text), err
}

// unpack is a compiled file.
func unpack(name string) (string, error) {
	f, err := compiled.Open(name)
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
