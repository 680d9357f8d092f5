package amd64

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/gen/asmtest"
)

// TestEncodings assembles calls of all macros and compares the bytes with GNU objdump,
// if it is installed, and one call with its encoding in the manual.
func TestEncodings(t *testing.T) {
	var definitions strings.Builder
	for _, e := range Encodings() {
		definitions.WriteString(e.Text)
	}
	calls := map[string]string{
		Prefetchw(64, DX):         "prefetchw 0x40(%rdx)",
		PrefetchwAX(2048, DI, 2):  "prefetchw 0x800(%rdi,%rax,4)",
		PrefetchwAX(1024, SI, 1):  "prefetchw 0x400(%rsi,%rax,2)",
		TileLoad(6, BX, R8, 0):    "tileloadd (%rbx,%r8,1),%tmm6",
		TileLoad(1, R9, R12, 0):   "tileloadd (%r9,%r12,1),%tmm1",
		TileLoad(7, BX, R8, 2112): "tileloadd 0x840(%rbx,%r8,1),%tmm7",
		TileLoad(2, AX, R11, 64):  "tileloadd 0x40(%rax,%r11,1),%tmm2",
		TileStore(3, DI, R9, 0):   "tilestored %tmm3,(%rdi,%r9,1)",
		TileStore(5, SI, R9, 64):  "tilestored %tmm5,0x40(%rsi,%r9,1)",
		TDPBF16PS(2, 5, 7):        "tdpbf16ps %tmm7,%tmm5,%tmm2",
		TDPBSSD(2, 5, 7):          "tdpbssd %tmm7,%tmm5,%tmm2",
		"TILEZERO(5)":             "tilezero %tmm5",
		"TILERELEASE":             "tilerelease",
		"LDTILECFG_AX":            "ldtilecfg (%rax)",
		VCVTNE2PS2BF16(2, 3, 4):   "vcvtne2ps2bf16 %zmm2,%zmm3,%zmm4",
		VCVTNE2PS2BF16(18, 31, 9): "vcvtne2ps2bf16 %zmm18,%zmm31,%zmm9",
		VCVTNEPS2BF16(3, 3):       "vcvtneps2bf16 %zmm3,%ymm3",
		VCVTNEPS2BF16(12, 12):     "vcvtneps2bf16 %zmm12,%ymm12",
		VCVTNEPS2BF16(30, 17):     "vcvtneps2bf16 %zmm30,%ymm17",
		VDPBF16PS(4, 3, 2):        "vdpbf16ps %zmm2,%zmm3,%zmm4",
	}
	for _, r := range [][3]int{{0, 28, 30}, {31, 0, 15}, {7, 8, 16}, {16, 31, 1}, {27, 29, 8}} {
		calls[VDPBF16PS(r[0], r[1], r[2])] = fmt.Sprintf("vdpbf16ps %%zmm%d,%%zmm%d,%%zmm%d", r[2], r[1], r[0])
	}
	for _, e := range Encodings() {
		if strings.HasPrefix(e.Name, "NUM_") {
			continue
		}
		called := false
		for call := range calls {
			name, _, _ := strings.Cut(call, "(")
			called = called || name == e.Name
		}
		if !called {
			t.Errorf("%s is not tested", e.Name)
		}
	}
	if got := fmt.Sprintf("% x", asmtest.Code(t, "amd64", definitions.String(), "\t"+VDPBF16PS(0, 28, 30)+"\n")); got != "62 92 1e 40 52 c6" {
		t.Errorf("VDPBF16PS Z30, Z28, Z0: got %s", got)
	}
	var text strings.Builder
	for call := range calls {
		text.WriteString("\t" + call + "\n")
	}
	code := asmtest.Code(t, "amd64", definitions.String(), text.String())
	objdump, err := exec.LookPath("objdump")
	if err != nil {
		t.Logf("objdump: %v; only the known encoding was checked", err)
		return
	}
	path := filepath.Join(t.TempDir(), "code")
	if err := os.WriteFile(path, code, 0o644); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(objdump, "-D", "-b", "binary", "-m", "i386:x86-64", path).CombinedOutput()
	if err != nil {
		t.Skipf("this objdump does not disassemble x86: %s", out)
	}
	for call, want := range calls {
		if !strings.Contains(strings.Join(strings.Fields(string(out)), " "), want) {
			t.Errorf("objdump does not show %q for %s:\n%s", want, call, out)
		}
	}
}
