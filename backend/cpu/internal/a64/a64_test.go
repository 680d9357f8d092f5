package a64

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestKnown holds a few words against encodings of the manual.
func TestKnown(t *testing.T) {
	for got, want := range map[string]string{
		Ins("FADD", 1, 2, 3):      "WORD $0x4e23d441 // FADD V1.4S, V2.4S, V3.4S",
		Ins("FCVTL", 31, 30):      "WORD $0x0e217bdf // FCVTL V31.4S, V30.4H",
		Ins("FADDP.D", 0, 4):      "WORD $0x7e70d880 // FADDP D0, V4.2D",
		Ins("EOR", 1, 2, 3):       "VEOR V3.B16, V2.B16, V1.B16",
		Shift("SSHR", 4, 5, 31):   "WORD $0x4f2104a4 // SSHR V4.4S, V5.4S, $31",
		StorePair(0, 1, 2, 32):    "WORD $0xac010440 // STNP Q0, Q1, [X2, $32]",
		Ext(1, 2, 3, 8):           "VEXT $8, V3.B16, V2.B16, V1.B16",
		Ins("SHLL", 9, 8):         "WORD $0x2e613909 // SHLL V9.4S, V8.4H, $16",
		Ins("UMAXV", 28, 27):      "WORD $0x6eb0ab7c // UMAXV S28, V27.4S",
		Ins("FCMGT.2D", 3, 1, 16): "WORD $0x6ef0e423 // FCMGT V3.2D, V1.2D, V16.2D",
	} {
		if got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

var words = regexp.MustCompile(`WORD \$0x([0-9a-f]{8}) // (.*)`)

// TestDisassembler holds every word of the generated files, and of all forms,
// against its comment.
func TestDisassembler(t *testing.T) {
	want := map[string]string{} // by code
	add := func(text string) {
		for _, m := range words.FindAllStringSubmatch(text, -1) {
			if old, ok := want[m[1]]; ok && old != m[2] {
				t.Errorf("%s is %q and %q", m[1], old, m[2])
			}
			want[m[1]] = m[2]
		}
	}
	for name, f := range forms {
		add(Ins(name, []int{1, 10, 29}[:len(strings.Fields(f.lanes))]...))
	}
	for i := range 4 {
		add(ByElement(1, 10, 29, i))
	}
	files, err := filepath.Glob(filepath.Join("..", "*", "*_arm64.s"))
	if err != nil || len(files) == 0 {
		t.Fatalf("generated files: %v, %v", files, err)
	}
	for _, path := range files {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		add(string(text))
	}
	mc, err := exec.LookPath("llvm-mc")
	if err != nil {
		t.Logf("llvm-mc: %v; only the known encodings were checked", err)
		return
	}
	var codes []string
	var bytes strings.Builder
	for code := range want {
		codes = append(codes, code)
		fmt.Fprintf(&bytes, "0x%s 0x%s 0x%s 0x%s\n", code[6:], code[4:6], code[2:4], code[:2])
	}
	cmd := exec.Command(mc, "--disassemble", "--triple=aarch64", "--mattr=+bf16,+fullfp16")
	cmd.Stdin = strings.NewReader(bytes.String())
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Skipf("this llvm-mc does not disassemble arm64: %s", out)
	}
	var got []string
	for line := range strings.Lines(string(out)) {
		if line = strings.TrimSpace(line); line != "" && line[0] != '.' {
			got = append(got, line)
		}
	}
	if len(got) != len(codes) {
		t.Fatalf("%d instructions of %d:\n%s", len(got), len(codes), out)
	}
	for i, code := range codes {
		if g, w := normal(got[i]), normal(want[code]); g != w {
			t.Errorf("%s is %q, and its comment %q", code, got[i], want[code])
		}
	}
}

// normal is an instruction without what assemblers write differently.
func normal(text string) string {
	text = strings.NewReplacer("$", "#", "\t", " ").Replace(strings.ToLower(text))
	return strings.Join(strings.Fields(text), " ")
}
