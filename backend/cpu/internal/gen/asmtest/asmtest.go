// Package asmtest assembles text for tests of the generators.
package asmtest

import (
	"encoding/hex"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// Code returns the machine code that Go's assembler makes of instructions for an
// architecture. definitions are macros that they use.
func Code(t testing.TB, arch, definitions, instructions string) []byte {
	t.Helper()
	const noSplit = "4"
	functions := Functions(t, arch, map[string]string{"a.s": definitions + "\nTEXT ·f(SB), " + noSplit + ", $0-0\n" + instructions}, "a.s")
	code, err := hex.DecodeString(functions["p.f"])
	if err != nil {
		t.Fatal(err)
	}
	return code
}

// Functions returns the machine code of the functions of a file, in hexadecimal, with
// the relocations. files has the contents of the file and of its includes by name.
func Functions(t testing.TB, arch string, files map[string]string, file string) map[string]string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	include, err := include()
	if err != nil {
		t.Fatal(err)
	}
	// The listing of the assembler has the code; go tool objdump would be compiled first.
	cmd := exec.Command("go", "tool", "asm", "-S", "-p", "p", "-I", ".", "-I", include, "-o", "a.o", file)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOARCH="+arch, "GOOS=linux")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("go tool asm %s: %v\n%s", file, err, out)
	}
	code := parse(string(out))
	for name, text := range code {
		if text == "" {
			t.Fatalf("%s: the listing has no code of %s", file, name)
		}
	}
	return code
}

// include is where Go keeps what assembly includes.
var include = sync.OnceValues(func() (string, error) {
	root, err := exec.Command("go", "env", "GOROOT").Output()
	return filepath.Join(strings.TrimSpace(string(root)), "pkg", "include"), err
})

// parse reads the functions from a listing: after a line "p.f STEXT …" lines of
// instructions, then of 16 bytes each, in hexadecimal behind their offset and as text
// behind that, and then those of relocations.
func parse(listing string) map[string]string {
	const bytes = 16 * len(" 00")
	code := map[string]string{}
	name := ""
	for line := range strings.Lines(listing) {
		inside, ok := strings.CutPrefix(line, "\t")
		if !ok {
			symbol, kind, _ := strings.Cut(line, " ")
			name = ""
			if strings.HasPrefix(kind, "STEXT ") {
				name = symbol
				code[name] = ""
			}
			continue
		}
		first, rest, _ := strings.Cut(inside, " ")
		switch {
		case name == "":
		case first == "rel":
			code[name] += " " + strings.TrimSpace(inside)
		case len(rest) > 2 && rest[2] == ' ': // an instruction has its offset once more
			code[name] += strings.Join(strings.Fields(rest[:min(bytes, len(rest))-1]), "")
		}
	}
	return code
}
