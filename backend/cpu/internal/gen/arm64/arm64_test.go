package arm64

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/gen/asmtest"
)

// TestKnown compares the words of a few calls with encodings from the manual.
func TestKnown(t *testing.T) {
	cases := []struct {
		got, want string
		word      uint32
	}{
		{Ins("FADD", 1, 2, 3), "FADD_S4(3, 2, 1)", 0x4e23d441},
		{Ins("FCVTL", 31, 30), "FCVTL_S4(30, 31)", 0x0e217bdf},
		{Ins("FADDP.D", 0, 4), "FADDP_D(4, 0)", 0x7e70d880},
		{Ins("EOR", 1, 2, 3), "VEOR V3.B16, V2.B16, V1.B16", 0x6e231c41},
		{Shift("SSHR", 4, 5, 31), "SSHR_S4(31, 5, 4)", 0x4f2104a4},
		{StorePair(0, 1, 2, 32), "STNP(0, 1, 32, 2)", 0xac010440},
		{Ext(1, 2, 3, 8), "VEXT $8, V3.B16, V2.B16, V1.B16", 0x6e034041},
		{Ins("SHLL", 9, 8), "SHLL_S4(8, 9)", 0x2e613909},
		{Ins("UMAXV", 28, 27), "UMAXV_S(27, 28)", 0x6eb0ab7c},
		{Ins("FCMGT.2D", 3, 1, 16), "FCMGT_D2(16, 1, 3)", 0x6ef0e423},
		{Ins("FSUB.2D", 1, 2, 3), "FSUB_D2(3, 2, 1)", 0x4ee3d441},
		{Ins("FMUL.2D", 1, 2, 3), "FMUL_D2(3, 2, 1)", 0x6e63dc41},
		{DotByElement(1, 2, 3, 3), "SDOT_LANE(3, 3, 2, 1)", 0x4fa3e841},
		{ByElement(1, 10, 29, 3), "FMLA_LANE(29, 3, 10, 1)", 0x4fbd1941},
	}
	var text strings.Builder
	for _, c := range cases {
		text.WriteString("\t" + c.got + "\n")
	}
	code := asmtest.Code(t, "arm64", definitions(), text.String())
	if len(code) < 4*len(cases) {
		t.Fatalf("%d bytes of code, want %d", len(code), 4*len(cases))
	}
	for i, c := range cases {
		if c.got != c.want {
			t.Errorf("got %s, want %s", c.got, c.want)
		}
		if got := binary.LittleEndian.Uint32(code[4*i:]); got != c.word {
			t.Errorf("%s: got %#08x, want %#08x", c.got, got, c.word)
		}
	}
}

func definitions() string {
	var s strings.Builder
	for _, e := range Encodings() {
		s.WriteString(e.Text)
	}
	return s.String()
}

// comment matches the definition of a macro: its meaning and its parameters.
var comment = regexp.MustCompile(`^// \S+ is (.*)\.\n#define [A-Z0-9_]+\((.*)\)`)

// TestDisassembler assembles a call of every macro and compares it with a disassembler,
// if one is installed.
func TestDisassembler(t *testing.T) {
	var text strings.Builder
	var want []string
	call := func(name, means, params string, args map[string]int) {
		var list []string
		for _, p := range strings.Split(params, ", ") {
			list = append(list, fmt.Sprint(args[p]))
			means = regexp.MustCompile(`([VDSQX#\[])`+p+`\b`).ReplaceAllString(means, fmt.Sprintf("${1}%d", args[p]))
		}
		fmt.Fprintf(&text, "\t%s(%s)\n", name, strings.Join(list, ", "))
		want = append(want, means)
	}
	for _, e := range Encodings() {
		m := comment.FindStringSubmatch(e.Text)
		if m == nil {
			t.Fatalf("no comment of %s: %s", e.Name, e.Text)
		}
		for i := range 4 {
			call(e.Name, m[1], m[2], map[string]int{"d": 1 + i, "n": 10, "m": 29 - i, "lane": i, "by": 1 + 10*i, "first": 7 + i, "second": 30, "offset": 32 + 16*i, "base": 2 + i})
		}
	}
	code := asmtest.Code(t, "arm64", definitions(), text.String())
	mc, err := exec.LookPath("llvm-mc")
	if err != nil {
		t.Logf("llvm-mc: %v; only the known encodings were checked", err)
		return
	}
	var hex bytes.Buffer
	for i := range len(want) {
		w := code[4*i:]
		fmt.Fprintf(&hex, "0x%02x 0x%02x 0x%02x 0x%02x\n", w[0], w[1], w[2], w[3])
	}
	cmd := exec.Command(mc, "--disassemble", "--triple=aarch64", "--mattr=+bf16,+dotprod,+fullfp16")
	cmd.Stdin = &hex
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
	if len(got) != len(want) {
		t.Fatalf("%d instructions of %d:\n%s", len(got), len(want), out)
	}
	for i := range want {
		if g, w := normal(got[i]), normal(want[i]); g != w {
			t.Errorf("%q, and the comment says %q", g, w)
		}
	}
}

// normal removes the differences between assemblers from an instruction.
func normal(text string) string {
	text = strings.ReplaceAll(strings.ToLower(text), "\t", " ")
	return strings.Join(strings.Fields(text), " ")
}
