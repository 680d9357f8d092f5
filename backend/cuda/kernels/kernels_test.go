//go:build cuda && linux

package kernels

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/cuda/internal/nvrtc"
)

var (
	generate = flag.Bool("generate", false, "write the PTX and the cubins anew")
	only     = flag.String("unit", "", "compile this unit alone")
)

// options are those of a unit: functions are for package ptx, which writes
// them into kernels where each operation rounds to its type.
func options(unit string) []string {
	if unit == "functions" {
		return []string{"--std=c++17", "--relocatable-device-code=true", "--fmad=false"}
	}
	return []string{"--std=c++17"}
}

// source is the text of a compilation unit.
func source(unit string) (string, error) {
	var s strings.Builder
	for _, name := range units[unit] {
		text, err := Sources.ReadFile(name)
		if err != nil {
			return "", err
		}
		s.Write(text)
	}
	return s.String(), nil
}

// pack compresses PTX as it is kept in the tree.
func pack(ptx []byte) ([]byte, error) {
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err := z.Write(ptx); err != nil {
		return nil, err
	}
	err = z.Close()
	return b.Bytes(), err
}

// TestGenerate compiles the sources, and compares with what is in the tree; with
// -short for the newest architecture, and the others by the list of what has been compiled.
func TestGenerate(t *testing.T) {
	library := os.Getenv("MEZZO_NVRTC")
	if library == "" {
		t.Skip("MEZZO_NVRTC does not name the library libnvrtc.so.11.2")
	}
	t.Parallel() // beside the assemblers
	c, err := nvrtc.Open(library)
	if err != nil {
		t.Fatal(err)
	}
	for unit := range units {
		if *only != "" && unit != *only {
			continue
		}
		architectures := Architectures
		if testing.Short() && !*generate {
			for _, a := range architectures {
				checkCompiled(t, unit, a)
			}
			architectures = architectures[:1]
		}
		for _, a := range architectures {
			// One after the other: beside another compilation the result is not
			// always the same.
			t.Run(fmt.Sprintf("%s_%d", unit, a), func(t *testing.T) { compileUnit(t, c, unit, a) })
		}
	}
}

// compileUnit writes or checks the PTX of a unit for an architecture.
func compileUnit(t *testing.T, c *nvrtc.Compiler, unit string, architecture int) {
	text, err := source(unit)
	if err != nil {
		t.Fatal(err)
	}
	ptx, err := c.Compile(text, unit+".cu", append(options(unit), fmt.Sprintf("--gpu-architecture=compute_%d", architecture))...)
	if err != nil {
		t.Fatal(err)
	}
	keep(t, fmt.Sprintf("%s_%d.ptx.gz", unit, architecture), ptx)
	if *generate {
		note(t, compiledFile, compiledKey(unit, architecture), compiledLine(t, unit, architecture, string(ptx)))
	}
}

// compiledFile lists what has been compiled: the unit, the architecture, and the hashes of
// its sources with the options, and of the PTX. -generate writes it.
const compiledFile = "testdata/compiled.txt"

func compiledKey(unit string, architecture int) string {
	return fmt.Sprintf("%s compute_%d ", unit, architecture)
}

// compiledLine is the line of a unit and the PTX that became of it.
func compiledLine(t *testing.T, unit string, architecture int, ptx string) string {
	t.Helper()
	text, err := source(unit)
	if err != nil {
		t.Fatal(err)
	}
	in := sha256.Sum256([]byte(strings.Join(options(unit), " ") + "\n" + text))
	return fmt.Sprintf("%s%x %x", compiledKey(unit, architecture), in, sha256.Sum256([]byte(ptx)))
}

// checkCompiled fails unless the sources of a unit have been compiled to the PTX in the tree.
func checkCompiled(t *testing.T, unit string, architecture int) {
	t.Helper()
	data, err := os.ReadFile(compiledFile)
	if err != nil {
		t.Fatal(err)
	}
	ptx, err := unpack(fmt.Sprintf("%s_%d.ptx.gz", unit, architecture))
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(strings.Split(string(data), "\n"), compiledLine(t, unit, architecture, ptx)) {
		t.Errorf("the sources of %s have not been compiled for compute_%d to the PTX that is kept: run the test with -generate", unit, architecture)
	}
}

// keep writes a compiled file, or checks that it is up to date.
func keep(t *testing.T, name string, data []byte) {
	if *generate {
		z, err := pack(data)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, z, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	kept, err := unpack(name)
	if err != nil {
		t.Fatal(err)
	}
	if kept != string(data) {
		t.Errorf("%s is not what the sources compile to: run the test with -generate", name)
	}
}

// maxRegisters is what a thread may use for two blocks of 256 threads to run
// on a processor at once, or of attention, whose blocks have 128, two or three.
func maxRegisters(kernel string) int {
	switch {
	case strings.HasPrefix(kernel, "attention_key_grad"):
		return 255
	case strings.HasPrefix(kernel, "attention"):
		return 168
	}
	return 128
}

var (
	entryLine    = regexp.MustCompile(`Compiling entry function '(\w+)'`)
	spillLine    = regexp.MustCompile(`(\d+) bytes spill stores, (\d+) bytes spill loads`)
	registerLine = regexp.MustCompile(`Used (\d+) registers`)
)

// TestAssemble: every GPU's assembler takes the kernels, keeps all of their
// variables in registers, needs few enough of those, and makes the cubins that
// are kept. With -short, of GPUs with cubins the newest; others have taken the PTX as it is.
func TestAssemble(t *testing.T) {
	ptxas := os.Getenv("MEZZO_PTXAS")
	if ptxas == "" {
		t.Skip("MEZZO_PTXAS does not name the assembler ptxas")
	}
	t.Parallel()
	models := []int{70, 75, 80, 86, 89, 90}
	if testing.Short() && !*generate {
		checkAssembled(t, "11.8", models...)
		models = models[len(models)-1:]
	}
	assembleAll(t, ptxas, "11.8", 0, models...)
}

// TestNewestAssembler: the newest assembler, which the newest drivers compile PTX with, takes
// the kernels for a GPU for which there is no cubin, and spills no register either, but for
// one of 4 bytes, in which it keeps where threads meet again. With -short, it has taken the
// PTX as it is.
func TestNewestAssembler(t *testing.T) {
	ptxas := os.Getenv("MEZZO_PTXAS_NEWEST")
	if ptxas == "" {
		t.Skip("MEZZO_PTXAS_NEWEST does not name an assembler ptxas of CUDA 13")
	}
	t.Parallel()
	const blackwell = 100
	if testing.Short() && !*generate {
		checkAssembled(t, "13.5", blackwell)
		return
	}
	assembleAll(t, ptxas, "13.5", 4, blackwell)
}

// assembledFile lists what assemblers have taken: their version, the unit, the GPU, and the
// hash of the PTX. -generate writes it.
const assembledFile = "testdata/assembled.txt"

// noteLock guards the lists.
var noteLock sync.Mutex

// assembledLine is the line of a unit for a GPU.
func assembledLine(t *testing.T, version, unit string, sm int) (key, line string) {
	t.Helper()
	text, err := PTX(unit, sm)
	if err != nil {
		t.Fatal(err)
	}
	key = fmt.Sprintf("%s %s sm_%d ", version, unit, sm)
	return key, fmt.Sprintf("%s%x", key, sha256.Sum256([]byte(text)))
}

// checkAssembled fails unless an assembler has taken the PTX of all units for GPUs.
func checkAssembled(t *testing.T, version string, models ...int) {
	t.Helper()
	data, err := os.ReadFile(assembledFile)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(data), "\n")
	for _, unit := range Units() {
		for _, sm := range models {
			if _, line := assembledLine(t, version, unit, sm); !slices.Contains(lines, line) {
				t.Errorf("ptxas %s has not been tried on the PTX of %s for sm_%d: run the test with -generate", version, unit, sm)
			}
		}
	}
}

// note writes a line into a list, in place of the one that begins with its key.
func note(t *testing.T, file, key, line string) {
	t.Helper()
	noteLock.Lock()
	defer noteLock.Unlock()
	data, err := os.ReadFile(file)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	lines := slices.DeleteFunc(strings.Split(string(data), "\n"), func(l string) bool { return l == "" || strings.HasPrefix(l, key) })
	lines = append(lines, line)
	slices.Sort(lines)
	if err := os.WriteFile(file, []byte(strings.Join(lines, "\n")+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
}

// assembleAll has an assembler of a version compile all units for GPUs; a kernel may spill
// so many bytes.
func assembleAll(t *testing.T, ptxas, version string, spills int, models ...int) {
	for _, unit := range Units() {
		for _, sm := range models {
			t.Run(fmt.Sprintf("%s_%d", unit, sm), func(t *testing.T) {
				t.Parallel()
				assemble(t, ptxas, unit, sm, spills)
				if *generate && !t.Failed() {
					key, line := assembledLine(t, version, unit, sm)
					note(t, assembledFile, key, line)
				}
			})
		}
	}
}

// assemble compiles a unit for a GPU; a kernel may spill so many bytes.
func assemble(t *testing.T, ptxas, unit string, sm, spills int) {
	text, err := PTX(unit, sm)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "kernels.ptx")
	cubin := strings.TrimSuffix(file, "ptx") + "cubin"
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(ptxas, "-v", fmt.Sprintf("-arch=sm_%d", sm), "-o", cubin, file).CombinedOutput()
	if err != nil {
		t.Fatalf("%s for sm_%d: %v\n%s", unit, sm, err, out)
	}
	kernel, kernels := "", 0
	for line := range bytes.Lines(out) {
		if m := entryLine.FindSubmatch(line); m != nil {
			kernel = string(m[1])
			kernels++
		} else if m := spillLine.FindSubmatch(line); m != nil {
			if n, _ := strconv.Atoi(string(m[1])); n > spills {
				t.Errorf("%s for sm_%d: %s spills: %s", unit, sm, kernel, m[0])
			}
		} else if m := registerLine.FindSubmatch(line); m != nil {
			if n, _ := strconv.Atoi(string(m[1])); n > maxRegisters(kernel) {
				t.Errorf("%s for sm_%d: %s uses %d registers, want at most %d", unit, sm, kernel, n, maxRegisters(kernel))
			}
		}
	}
	if kernels == 0 {
		t.Errorf("%s for sm_%d: the assembler names no kernel:\n%s", unit, sm, out)
	}
	if slices.Contains(Machines, sm) {
		data, err := os.ReadFile(cubin)
		if err != nil {
			t.Fatal(err)
		}
		keep(t, fmt.Sprintf("%s_%d.cubin.gz", unit, sm), data)
	}
}
