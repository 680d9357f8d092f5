// Package asmtest assembles text for tests of the generators.
package asmtest

import (
	"encoding/hex"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Code returns the machine code that Go's assembler makes of instructions for an
// architecture. definitions are macros that they use.
func Code(t testing.TB, arch, definitions, instructions string) []byte {
	t.Helper()
	const noSplit = "4"
	functions := Functions(t, arch, map[string]string{"a.s": definitions + "\nTEXT ·f(SB), " + noSplit + ", $0-0\n" + instructions}, "a.s")
	code, err := hex.DecodeString(functions["p.f(SB)"])
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
	run := func(args ...string) string {
		t.Helper()
		cmd := exec.Command("go", append([]string{"tool"}, args...)...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GOARCH="+arch, "GOOS=linux")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("go tool %s: %v\n%s", strings.Join(args, " "), err, out)
		}
		return string(out)
	}
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	include := filepath.Join(strings.TrimSpace(string(root)), "pkg", "include")
	run("asm", "-p", "p", "-I", ".", "-I", include, "-o", "a.o", file)
	code := map[string]string{}
	name := ""
	for line := range strings.Lines(run("objdump", "a.o")) {
		fields := strings.Fields(line)
		switch {
		case len(fields) > 1 && fields[0] == "TEXT":
			name = fields[1]
			code[name] = ""
		case len(fields) > 2:
			word := fields[2]
			if arch == "arm64" && len(word) == 8 { // shown as a word
				b, err := hex.DecodeString(word)
				if err != nil {
					t.Fatalf("%v in %q", err, line)
				}
				slices.Reverse(b)
				word = hex.EncodeToString(b)
			}
			code[name] += word
			if last := fields[len(fields)-1]; strings.Contains(last, "]R_") {
				code[name] += " " + last + " "
			}
		}
	}
	return code
}
