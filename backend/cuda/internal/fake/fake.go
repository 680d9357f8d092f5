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
	"strings"

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

// libraries are their sources.
var libraries = map[string]string{CublasLt: "cublaslt.cc", CuDNN: "cudnn.cc", NCCL: "nccl.cc"}

// Build compiles the driver and the libraries in a directory, and returns the
// driver's path, which belongs into MEZZO_CUDA_DRIVER.
func Build(dir string) (string, error) { return build(dir, kernels.Files()) }

// BuildBare is Build of a driver without kernels, for tests of a library alone: four fifths
// of the time are theirs.
func BuildBare(dir string) (string, error) { return build(dir, nil) }

// build is Build with kernels of some sources.
func build(dir string, files []string) (string, error) {
	if err := errors.Join(copySources(dir), os.CopyFS(dir, kernels.Sources)); err != nil {
		return "", err
	}
	var unit strings.Builder
	unit.WriteString("#include \"emu.h\"\n")
	for _, name := range files {
		fmt.Fprintf(&unit, "#include %q\n", name)
	}
	if err := os.WriteFile(filepath.Join(dir, "kernels.cc"), []byte(unit.String()), 0o644); err != nil {
		return "", err
	}
	const driver = "libcuda.so.1"
	path, err := link(dir, driver, "driver.cc", "streams.cc", "emu.cc", "ptx.cc", "functions.cc", "kernels.cc")
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

// link makes a library of sources and other libraries, and returns its path.
func link(dir, library string, files ...string) (string, error) {
	cmd := exec.Command("g++", append([]string{"-std=c++17", "-O2", "-ffp-contract=off", "-fPIC", "-shared", "-w",
		"-Wl,--no-as-needed", "-Wl,-soname," + library, "-Wl,-rpath,$ORIGIN", "-o", library}, files...)...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("fake: g++: %w\n%s", err, out)
	}
	return filepath.Join(dir, library), nil
}
