// Package asmtest assembles text for tests of the generators.
package asmtest

import (
	"encoding/hex"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Code returns the machine code of instructions by Go's assembler for an
// architecture. Definitions are macros that they use.
func Code(t *testing.T, arch, definitions, instructions string) []byte {
	t.Helper()
	dir := t.TempDir()
	source, object := filepath.Join(dir, "a.s"), filepath.Join(dir, "a.o")
	text := definitions + "\nTEXT ·f(SB), 4, $0-0\n" + instructions // 4 is NOSPLIT
	if err := os.WriteFile(source, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	run := func(args ...string) string {
		t.Helper()
		cmd := exec.Command("go", append([]string{"tool"}, args...)...)
		cmd.Env = append(os.Environ(), "GOARCH="+arch, "GOOS=linux")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("go tool %s: %v\n%s", strings.Join(args, " "), err, out)
		}
		return string(out)
	}
	run("asm", "-p", "p", "-o", object, source)
	var code []byte
	for line := range strings.Lines(run("objdump", object)) {
		if fields := strings.Fields(line); len(fields) > 2 && strings.HasPrefix(fields[0], "a.s:") {
			b, err := hex.DecodeString(fields[2])
			if err != nil {
				t.Fatalf("%v in %q", err, line)
			}
			if arch == "arm64" { // shown as a word
				for i, j := 0, len(b)-1; i < j; i, j = i+1, j-1 {
					b[i], b[j] = b[j], b[i]
				}
			}
			code = append(code, b...)
		}
	}
	return code
}
