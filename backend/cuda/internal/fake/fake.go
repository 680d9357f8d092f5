// Package fake builds a libcuda.so.1 for tests on machines without a GPU: its
// kernels are the product's sources compiled for the host, and an interpreter
// runs the PTX that is written at run time. See driver.cc for what it checks.
// Beside it lies a libcublasLt.so.12 that multiplies by three loops.
//
// It needs g++ for x86-64.
package fake

import (
	"embed"
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

// Build compiles the library in a directory and returns its path, which
// belongs into KERAS_CUDA_DRIVER.
func Build(dir string) (string, error) {
	own, err := fs.Sub(sources, "src")
	if err != nil {
		return "", err
	}
	for _, files := range []fs.FS{own, kernels.Sources} {
		if err := os.CopyFS(dir, files); err != nil {
			return "", err
		}
	}
	var unit strings.Builder
	unit.WriteString("#include \"emu.h\"\n")
	for _, name := range kernels.Files() {
		fmt.Fprintf(&unit, "#include %q\n", name)
	}
	if err := os.WriteFile(filepath.Join(dir, "kernels.cc"), []byte(unit.String()), 0o644); err != nil {
		return "", err
	}
	const driver = "libcuda.so.1"
	if err := link(dir, driver, "driver.cc", "streams.cc", "emu.cc", "ptx.cc", "functions.cc", "kernels.cc"); err != nil {
		return "", err
	}
	return filepath.Join(dir, driver), link(dir, "libcublasLt.so.12", "cublaslt.cc", driver)
}

// link makes a library of sources and other libraries.
func link(dir, library string, files ...string) error {
	cmd := exec.Command("g++", append([]string{"-std=c++17", "-O2", "-ffp-contract=off", "-fPIC", "-shared", "-w",
		"-Wl,-soname," + library, "-Wl,-rpath,$ORIGIN", "-o", library}, files...)...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("fake: g++: %w\n%s", err, out)
	}
	return nil
}
