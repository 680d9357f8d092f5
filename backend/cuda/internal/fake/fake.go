// Package fake builds a libcuda.so.1 for tests on machines without a GPU: its
// kernels are the product's sources compiled for the host, and an interpreter
// runs the PTX that is written at run time. See driver.cc for what it checks. With
// [Interpret] package simt executes the PTX of all kernels instead.
// Beside it lie a libcublasLt.so.12 that multiplies by three loops, a
// libcudnn.so.9 that convolves by seven, and a libnccl.so.2 that exchanges files.
//
// It needs g++ for x86-64.
package fake

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/mezzo-ml/mezzo/backend/cuda/kernels"
)

//go:embed src
var sources embed.FS

// Libraries beside the driver.
const (
	CublasLt = "libcublasLt.so.12"
	CuDNN    = "libcudnn.so.9"
	NCCL     = "libnccl.so.2"
)

const driver = "libcuda.so.1"

// libraries are their sources.
var libraries = map[string]string{CublasLt: "cublaslt.cc", CuDNN: "cudnn.cc", NCCL: "nccl.cc"}

// BuiltSetting is the environment variable that names a directory with what Build has made
// of these sources: tests of several packages take it from there, and compile nothing.
const BuiltSetting = "FAKECUDA_BUILT"

// built is the path of a library there, if there is such a directory.
func built(library string) (string, bool) {
	dir := os.Getenv(BuiltSetting)
	return filepath.Join(dir, library), dir != ""
}

// Build compiles the driver and the libraries in a directory, and returns the
// driver's path, which belongs into MEZZO_CUDA_DRIVER; the libraries lie beside it.
func Build(dir string) (string, error) {
	if path, ok := built(driver); ok {
		return path, nil
	}
	return build(dir, kernels.Files())
}

// BuildBare is Build of a driver without kernels, for tests of a library alone: four fifths
// of the time are theirs.
func BuildBare(dir string) (string, error) {
	if path, ok := built(driver); ok {
		return path, nil
	}
	return build(dir, nil)
}

// build is Build with kernels of some sources.
func build(dir string, files []string) (string, error) {
	if err := errors.Join(copySources(dir), os.CopyFS(dir, kernels.Sources)); err != nil {
		return "", err
	}
	// Kernels are three texts, which as many compilers read at a time; each has all headers.
	units := []string{"kernels0.cc", "kernels1.cc", "kernels2.cc"}
	var texts [3]strings.Builder
	sources := 0
	for i := range texts {
		texts[i].WriteString("#include \"emu.h\"\n")
	}
	for _, name := range files {
		for i := range texts {
			if strings.HasSuffix(name, ".h") || i == sources%len(texts) {
				fmt.Fprintf(&texts[i], "#include %q\n", name)
			}
		}
		if !strings.HasSuffix(name, ".h") {
			sources++
		}
	}
	for i, name := range units {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(texts[i].String()), 0o644); err != nil {
			return "", err
		}
	}
	path, err := link(dir, driver, append(units, "driver.cc", "streams.cc", "emu.cc", "ptx.cc", "functions.cc")...)
	if err != nil {
		return "", err
	}
	for library, source := range libraries {
		if _, err := link(dir, library, source, driver); err != nil {
			return "", err
		}
	}
	return path, nil
}

// BuildLibrary compiles one of the libraries without the driver, for what
// needs no device, and returns its path.
func BuildLibrary(dir, library string) (string, error) {
	if path, ok := built(library); ok {
		return path, nil
	}
	if err := copySources(dir); err != nil {
		return "", err
	}
	return link(dir, library, libraries[library])
}

func copySources(dir string) error {
	own, err := fs.Sub(sources, "src")
	if err != nil {
		return err
	}
	return os.CopyFS(dir, own)
}

// link makes a library of sources and other libraries, and returns its path. Sources are
// compiled at the same time, as many as there are processors, with -O1: to compile them
// takes longer than what tests run.
func link(dir, library string, files ...string) (string, error) {
	objects, errs := slices.Clone(files), make([]error, len(files))
	turns := make(chan struct{}, runtime.NumCPU())
	var all sync.WaitGroup
	for i, name := range files {
		if base, ok := strings.CutSuffix(name, ".cc"); ok {
			objects[i] = base + ".o"
			all.Go(func() {
				turns <- struct{}{}
				errs[i] = compiler(dir, "-std=c++17", "-O1", "-ffp-contract=off", "-fPIC", "-w", "-c", name)
				<-turns
			})
		}
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		return "", err
	}
	args := append([]string{"-shared", "-Wl,--no-as-needed", "-Wl,-soname," + library, "-Wl,-rpath,$ORIGIN", "-o", library}, objects...)
	return filepath.Join(dir, library), compiler(dir, args...)
}

// compiler runs g++ in a directory.
func compiler(dir string, args ...string) error {
	cmd := exec.Command("g++", args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("fake: g++: %w\n%s", err, out)
	}
	return nil
}
