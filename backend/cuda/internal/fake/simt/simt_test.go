package simt

import (
	"encoding/binary"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/cuda/kernels"
)

// snippet is a kernel k of the parameters in, out and n around lines of PTX; %t is
// the number of the thread in the grid, %i and %o are the addresses of its 64 bytes of in and
// out.
func snippet(declarations string, lines ...string) string {
	return `
.version 7.8
.target sm_80
.address_size 64
.visible .entry k(.param .u64 k_param_0, .param .u64 k_param_1, .param .u64 k_param_2)
{
	.reg .pred %p<16>;
	.reg .b16 %h<16>;
	.reg .b32 %r<40>;
	.reg .f32 %f<40>;
	.reg .b64 %w<16>;
	.reg .f64 %e<16>;
	.reg .b32 %t, %c;
	.reg .b64 %i, %o, %n, %x;
` + declarations + `
	ld.param.u64 %i, [k_param_0];
	ld.param.u64 %o, [k_param_1];
	ld.param.u64 %n, [k_param_2];
	mov.u32 %t, %tid.x;
	mov.u32 %c, %ctaid.x;
	mov.u32 %r39, %ntid.x;
	mad.lo.s32 %t, %c, %r39, %t;
	mul.wide.u32 %x, %t, 64;
	add.s64 %i, %i, %x;
	add.s64 %o, %o, %x;
` + "\t" + strings.Join(lines, "\n\t") + "\n\tret;\n}\n"
}

// assembled has ptxas, where there is one, check that PTX is valid.
func assembled(t *testing.T, text string) {
	t.Helper()
	ptxas := os.Getenv("MEZZO_PTXAS")
	if ptxas == "" {
		return
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "snippet.ptx")
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(ptxas, "-arch=sm_80", "-O0", "-o", filepath.Join(dir, "snippet.cubin"), file).CombinedOutput(); err != nil {
		t.Errorf("ptxas: %v\n%s\n%s", err, out, text)
	}
}

// Addresses of the operands of snippets.
const inBase, outBase = 1 << 20, 1 << 30

// execute runs a snippet's kernel, and returns what out has become.
func execute(t *testing.T, text string, in []byte, blocks, threads int) ([]byte, Statistics, error) {
	t.Helper()
	assembled(t, text)
	m, err := Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	k, err := m.Kernel("k")
	if err != nil {
		t.Fatal(err)
	}
	out := make([]byte, 64*blocks*threads)
	if in == nil {
		in = make([]byte, len(out))
	}
	s, err := k.Run(Launch{Grid: [3]int{blocks, 1, 1}, Block: [3]int{threads, 1, 1}, Parameters: []uint64{inBase, outBase, uint64(threads)}, Steps: 1 << 20,
		Memory: []Region{{outBase, out}, {inBase, in}}})
	return out, s, err
}

// words are the first numbers of 32 bits that the threads have written.
func words(out []byte) []uint32 {
	list := make([]uint32, len(out)/64)
	for i := range list {
		list[i] = binary.LittleEndian.Uint32(out[64*i:])
	}
	return list
}

// TestCommitted: every kernel that is kept as PTX is decoded.
func TestCommitted(t *testing.T) {
	count, instructions, rows := 0, 0, 0
	for _, a := range kernels.Architectures {
		for _, unit := range append(kernels.Units(), "functions") {
			text, err := kernels.PTX(unit, a)
			if err != nil {
				t.Fatal(err)
			}
			m, err := Parse(text)
			if err != nil {
				t.Fatal(unit, a, err)
			}
			for _, name := range m.Kernels() {
				k, err := m.Kernel(name)
				if err != nil {
					t.Errorf("%s_%d: %v", unit, a, err)
					continue
				}
				count++
				instructions += len(k.code)
				rows = max(rows, k.registers)
			}
		}
	}
	if count < 480 {
		t.Errorf("%d kernels, want at least 480", count)
	}
	t.Logf("%d kernels of %d instructions, at most %d registers", count, instructions, rows)
}

// TestUnknown: what the interpreter does not have is an error that names it.
func TestUnknown(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{snippet("", "tanh.approx.f32 %f1, %f2;"), "tanh.approx.f32"},
		{snippet("", "bar.sync 1;"), "bar.sync 1"},
		{snippet("", "mov.u32 %r1, %nothing;"), "%nothing"},
		{snippet("", "add.s32 %r1, %r2;"), "2 operands, want 3"},
		{snippet("", "bra $nowhere;"), "$nowhere"},
		{snippet("", "call.uni (%r1), nowhere, ();"), "%r1"},
		{snippet("", "ld.global.v8.f32 %f1, [%i];"), "ld.global.v8.f32"},
		{snippet("", "@%p1 bar.sync 0;"), "guard"},
		{"what", "has no end"},
		{".version 7.8\n.visible .entry k(\n)\n{\n", "has no end"},
		{".version 7.8\n.func f(.param .pred p) { ret; }", "want one number"},
		{".version 7.8\nwhat;", "want a function"},
		{".shared .b8 a[9999999];", "want at most"},
	} {
		m, err := Parse(c.text)
		if err == nil {
			_, err = m.Kernel("k")
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got error %v, want one with %q", err, c.want)
		}
	}
}

// faultOf runs a snippet that must fail, and checks the line and the thread.
func faultOf(t *testing.T, text string, threads int, instruction, want string) *Fault {
	t.Helper()
	_, _, err := execute(t, text, nil, 1, threads)
	var f *Fault
	if !errors.As(err, &f) || !strings.Contains(err.Error(), want) {
		t.Fatalf("got error %v, want a fault with %q", err, want)
	}
	line := strings.Split(text, "\n")[f.Line-1]
	if f.Kernel != "k" || !strings.Contains(line, instruction) || !strings.HasPrefix(f.Text, strings.TrimSuffix(strings.TrimSpace(line), ";")) {
		t.Errorf("%v: line %d is %q, want %q", err, f.Line, line, instruction)
	}
	return f
}

// FuzzParse: no text makes the interpreter panic, neither when it is read nor when it
// runs.
func FuzzParse(f *testing.F) {
	f.Add(snippet("", "add.s32 %r1, %r2, 5;", "@%p1 bra $l;", "$l:", "mov.b64 {%r1, %r2}, %w1;", "ld.global.v2.f32 {%f1, %f2}, [%i+8];"))
	f.Add(snippet(".shared .align 16 .b8 s[64];\n.local .align 8 .b8 d[8];", "st.shared.u32 [s+4], %t;", "bar.sync 0;", "ld.local.u32 %r1, [d];", "shfl.sync.bfly.b32 %r1|%p1, %r1, 1, 31, -1;"))
	f.Add(".version 7.8\n.global .align 4 .b8 a[4] = {1, 2, 3, 4};\n.func (.param .b32 r) f(.param .b32 x)\n{\nret;\n}\n.visible .entry k(.param .u64 p)\n{\n.reg .b32 %r<3>;\n" +
		"{\n.param .b32 a0;\nst.param.b32 [a0+0], %r1;\n.param .b32 v;\ncall.uni (v), f, (a0);\nld.param.b32 %r2, [v+0];\n}\nret;\n}\n")
	f.Fuzz(func(t *testing.T, text string) {
		m, err := Parse(text)
		if err != nil {
			return
		}
		for _, name := range m.Kernels() {
			k, err := m.Kernel(name)
			if err != nil || k.registers > 1000 || k.shared.bytes > 1<<16 || k.local > 1<<10 {
				continue
			}
			_, _ = k.Run(Launch{Grid: [3]int{1, 1, 1}, Block: [3]int{33, 1, 1}, Parameters: make([]uint64, k.Parameters), Steps: 200,
				Memory: []Region{{0, make([]byte, 4096)}}})
		}
	})
}
