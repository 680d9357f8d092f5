package asm

import (
	"strconv"
	"strings"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/gen/asmtest"
)

const head = "\n// func %(x unsafe.Pointer, n int)\nTEXT ·%(SB), 4, $0-16\n"

// unit is two files that share a macro; one also has a macro with a label.
func unit() *Unit {
	u := &Unit{Header: "macros", Docs: map[string]string{"ADD_ROW": "adds a row.", "LOOP": "is a loop.", "TWICE": "is a step twice.", "ADD": "adds.", "SUB": "subtracts."}}
	for i, name := range []string{"a", "b"} {
		f := NewFile(name)
		f.Text(strings.ReplaceAll(head, "%", name))
		f.Line("MOVQ x+0(FP), SI")
		for row := range 4 {
			f.Block("ADD_ROW", func() {
				f.Lines("VMOVUPS 0(SI), Y8\nVMOVUPS 32(SI), Y9")
				f.Line("VADDPS Y8, Y9, Y" + string(rune('0'+row+i)))
			}, Hint{"sum", "Y" + string(rune('0'+row+i))})
			f.Line("ADDQ $64, SI")
		}
		f.Line("RET")
		u.Files = append(u.Files, f)
	}
	f := u.Files[0]
	for i, step := range []string{"ADD", "SUB", "ADD"} {
		name := string(rune('c' + i))
		f.Text(strings.ReplaceAll(head, "%", name))
		f.Line("MOVQ n+8(FP), CX")
		f.Block("LOOP", func() {
			f.Label("loop" + name)
			for u := range 2 {
				f.Macro(step, func() { f.Line(step + "Q $" + string(rune('1'+u)) + ", AX") }, Hint{"u", 1 + u})
			}
			f.Lines("DECQ CX\nJNZ loop" + name)
		}, Hint{"label", "loop" + name}, Hint{"step", step})
		f.Line("RET")
	}
	return u
}

// TestMacros: differences between blocks become parameters, numbers by their common
// factors; macros of several files are in the header; a macro can be an argument.
func TestMacros(t *testing.T) {
	files, err := unit().Write()
	if err != nil {
		t.Fatal(err)
	}
	const header = `// ADD_ROW adds a row.
#define ADD_ROW(sum) \
	VMOVUPS (SI), Y8; \
	VMOVUPS 32(SI), Y9; \
	VADDPS Y8, Y9, sum
`
	if files["macros.h"] != header {
		t.Errorf("the header is\n%swant\n%s", files["macros.h"], header)
	}
	const loop = `
#define LOOP(label, step) \
label: \
	step(1); \
	step(2); \
	DECQ CX; \
	JNZ label
`
	for _, want := range []string{loop, "#define SUB(u) SUBQ $u, AX\n", "\tLOOP(loopd, SUB)\n", "#include \"macros.h\"\n"} {
		if !strings.Contains(files["a.s"], want) {
			t.Errorf("a.s has no\n%s:\n%s", want, files["a.s"])
		}
	}
	plain := unit().Expanded()
	for _, name := range []string{"a.s", "b.s"} {
		want, got := asmtest.Functions(t, "amd64", plain, name), asmtest.Functions(t, "amd64", files, name)
		for f, code := range want {
			if got[f] != code || code == "" {
				t.Errorf("%s: %s is %s with macros and %s without", name, f, got[f], code)
			}
		}
	}
}

// TestFamilies: the comment of macros whose names differ in numbers stands before the first
// one, and no empty line between them.
func TestFamilies(t *testing.T) {
	f := NewFile("a")
	f.Text(strings.ReplaceAll(head, "%", "f"))
	for range 2 {
		for n := range 2 {
			f.Block("STEP_"+strconv.Itoa(n), func() {
				for range 4 + n {
					f.Line("INCQ AX")
				}
			})
		}
	}
	u := &Unit{Docs: map[string]string{"STEP": "is a step."}, Files: []*File{f}}
	files, err := u.Write()
	if err != nil {
		t.Fatal(err)
	}
	const want = `
// STEP_0 is a step.
#define STEP_0 \
	INCQ AX; \
	INCQ AX; \
	INCQ AX; \
	INCQ AX
#define STEP_1 \
	INCQ AX; \
	INCQ AX; \
	INCQ AX; \
	INCQ AX; \
	INCQ AX
`
	if !strings.Contains(files["a.s"], want) {
		t.Errorf("got\n%s", files["a.s"])
	}
}

// TestNumbers: multiples of a parameter, and sums with it, are written in terms of it.
func TestNumbers(t *testing.T) {
	f := NewFile("a")
	f.Text(strings.ReplaceAll(head, "%", "f"))
	for u := range 8 {
		f.Block("STEP", func() {
			f.Line("ADDQ $" + strconv.Itoa(u+1) + ", AX")
			f.Line("MOVQ " + strconv.Itoa(8*u+16) + "(SI), BX")
			f.Line("MOVQ BX, " + strconv.Itoa(8*u+24) + "(DI)")
			f.Line("ADDQ $" + strconv.Itoa(u*u) + ", AX")
		}, Hint{"u", u})
	}
	u := &Unit{Docs: map[string]string{"STEP": "is a step."}, Files: []*File{f}}
	files, err := u.Write()
	if err != nil {
		t.Fatal(err)
	}
	const want = `#define STEP(u, n) \
	ADDQ $(u+1), AX; \
	MOVQ (8*u+16)(SI), BX; \
	MOVQ BX, (8*u+24)(DI); \
	ADDQ $n, AX
`
	if !strings.Contains(files["a.s"], want) || !strings.Contains(files["a.s"], "\tSTEP(3, 9)\n") {
		t.Errorf("got\n%s", files["a.s"])
	}
}

// TestErrors: blocks that differ, macros without documentation or hints, and arguments
// that a function lacks are errors.
func TestErrors(t *testing.T) {
	for _, c := range []struct {
		want string
		body func(f *File)
	}{
		{"differ", func(f *File) {
			f.Block("STEP", func() { f.Lines("ADDQ AX, BX\nRET") })
			f.Block("STEP", func() { f.Lines("SUBQ AX, BX\nRET") })
		}},
		{"no documentation of macros [OTHER]", func(f *File) {
			for range 2 {
				f.Block("OTHER", func() { f.Lines("ADDQ AX, BX\nRET") })
			}
		}},
		{"needs hints", func(f *File) {
			for _, r := range []string{"AX", "BX"} {
				f.Macro("STEP", func() { f.Line("ADDQ " + r + ", CX") })
			}
		}},
		{"within itself", func(f *File) {
			f.Block("STEP", func() { f.Block("STEP", func() { f.Line("RET") }) })
		}},
		{"has no argument y+8(FP)", func(f *File) { f.Line("MOVQ y+8(FP), AX") }},
		{"has no argument n+0(FP)", func(f *File) { f.Line("MOVQ n+0(FP), AX") }},
	} {
		f := NewFile("a")
		f.Text(strings.ReplaceAll(head, "%", "f"))
		c.body(f)
		_, err := (&Unit{Docs: map[string]string{"STEP": "is a step."}, Files: []*File{f}}).Write()
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got %v, want an error with %q", err, c.want)
		}
	}
}

// TestOffsets: arguments have the offsets that Go gives them.
func TestOffsets(t *testing.T) {
	got, err := offsets("dst unsafe.Pointer, first, k0 uint32, s float32, x unsafe.Pointer", "float32")
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]int{"dst": 0, "first": 8, "k0": 12, "s": 16, "x": 24, "ret": 32} {
		if got[name] != want {
			t.Errorf("%s is at %d, want %d", name, got[name], want)
		}
	}
}
