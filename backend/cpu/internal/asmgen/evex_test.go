package asmgen

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestEncoder holds the bytes against GNU objdump, where there is one, and
// against encodings written down from it.
func TestEncoder(t *testing.T) {
	if got, want := fmt.Sprintf("% x", evex(0x52, 2, 0, 28, 30)), "62 92 1e 40 52 c6"; got != want {
		t.Errorf("VDPBF16PS Z30, Z28, Z0: got %s, want %s", got, want)
	}
	objdump, err := exec.LookPath("objdump")
	if err != nil {
		t.Logf("objdump: %v; only the known encoding was checked", err)
		return
	}
	var code []byte
	var want []string
	for _, r := range [][3]int{{0, 28, 30}, {31, 0, 15}, {7, 8, 16}, {16, 31, 1}, {27, 29, 8}} {
		code = append(code, evex(0x52, 2, r[0], r[1], r[2])...)
		want = append(want, fmt.Sprintf("vdpbf16ps %%zmm%d,%%zmm%d,%%zmm%d", r[2], r[1], r[0]))
	}
	for code1, text := range map[string]string{
		string(vexMemory(0x49, 0, 0, regAX, -1, 0)):       "ldtilecfg (%rax)",
		string(vex(0x49, 0, 0, 0, 0)):                     "tilerelease",
		string(vex(0x49, 3, 5, 0, 0)):                     "tilezero %tmm5",
		string(vexMemory(0x4b, 3, 6, regBX, regR8, 0)):    "tileloadd (%rbx,%r8,1),%tmm6",
		string(vexMemory(0x4b, 3, 1, regR9, regR12, 0)):   "tileloadd (%r9,%r12,1),%tmm1",
		string(vexMemory(0x4b, 2, 3, regDI, regR9, 0)):    "tilestored %tmm3,(%rdi,%r9,1)",
		string(vexMemory(0x4b, 1, 7, regBX, regR8, 2112)): "tileloaddt1 0x840(%rbx,%r8,1),%tmm7",
		string(evex(0x72, 3, 4, 3, 2)):                    "vcvtne2ps2bf16 %zmm2,%zmm3,%zmm4",
		string(vex(0x5c, 2, 2, 7, 5)):                     "tdpbf16ps %tmm7,%tmm5,%tmm2",
		string(prefetchwCode(regDX, 64)):                  "prefetchw 0x40(%rdx)",
	} {
		code = append(code, code1...)
		want = append(want, text)
	}
	path := filepath.Join(t.TempDir(), "code")
	if err := os.WriteFile(path, code, 0o644); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(objdump, "-D", "-b", "binary", "-m", "i386:x86-64", path).CombinedOutput()
	if err != nil {
		t.Skipf("this objdump does not disassemble x86: %s", out)
	}
	for _, w := range want {
		if !strings.Contains(strings.Join(strings.Fields(string(out)), " "), w) {
			t.Errorf("objdump does not show %q:\n%s", w, out)
		}
	}
}
