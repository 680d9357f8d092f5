package ptx

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/cuda/kernels"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/op"
)

func library(t *testing.T) *Library { return libraryFor(t, 80) }

func libraryFor(t *testing.T, capability int) *Library {
	text, err := kernels.PTX("functions", capability)
	if err != nil {
		t.Fatal(err)
	}
	l, err := ParseLibrary(text)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// types are all types but int8, which the device refuses.
func types() []dtype.DType {
	return slices.DeleteFunc(dtype.All(), func(d dtype.DType) bool { return d == dtype.Int8 })
}

// TestFunctions: every element-wise operation has a function on every type
// that it takes, and every cast.
func TestFunctions(t *testing.T) {
	l := library(t)
	for _, c := range op.Codes() {
		info := c.Info()
		if info.Class != op.Elementwise || info.Args < 1 || c == op.Identity || c == op.Cast || c == op.ExtraOutput {
			continue
		}
		for _, d := range types() {
			args := make([]op.Type, info.Args)
			for i := range args {
				args[i] = op.Type{DType: d}
			}
			if c == op.Where {
				args[0].DType = dtype.Bool
			}
			if _, err := op.Infer(c, op.Attr{}, args...); err == nil && !l.Has(Name(c, d)) {
				t.Errorf("no function %s", Name(c, d))
			}
		}
	}
	for _, from := range types() {
		for _, to := range types() {
			c := Chain{Name: "k", Dims: []int{5}, Strides: [][]int{{1}}, Results: []int{0}, Body: &op.Body{
				Inputs: []dtype.DType{from}, Code: []op.Instr{{Op: op.Cast, DType: to}},
			}}
			if _, _, err := l.Module([]Chain{c}); err != nil {
				t.Errorf("%v to %v: %v", from, to, err)
			}
		}
	}
}

// TestModule: what is called is declared once and before the kernels; what is
// short is written into them.
func TestModule(t *testing.T) {
	chain := func(name string, c op.Code, d dtype.DType) Chain {
		return Chain{Name: name, Dims: []int{1000}, Strides: [][]int{{1}}, Results: []int{0}, Body: &op.Body{
			Inputs: []dtype.DType{d}, Code: []op.Instr{{Op: c, DType: d}},
		}}
	}
	text, names, err := library(t).Module([]Chain{chain("a", op.Sin, dtype.Float64), chain("b", op.Sin, dtype.Float64), chain("c", op.Exp, dtype.Float16)})
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(text, ".func"); n != strings.Count(text, " Sin_float64\n")+strings.Count(text, " Sin_float64(\n")+1 {
		t.Errorf("%d functions, want Sin_float64 and what it needs, once each", n)
	}
	first := strings.Index(text, ".entry a(")
	if at := strings.LastIndex(text, ".func"); at < 0 || at > first {
		t.Errorf("a function is declared at %d, behind the kernel at %d", at, first)
	}
	if want := []string{"a", "a", "c"}; !slices.Equal(names, want) || strings.Contains(text, ".entry b(") {
		t.Errorf("kernels %v, want %v: chains with one text are one kernel", names, want)
	}
	if strings.Contains(text, "Exp_float32") {
		t.Error("a short function is called, not written into the kernel")
	}
	if _, _, err := library(t).Module([]Chain{chain("d", op.And, dtype.Float32)}); err == nil {
		t.Error("a chain with an operation that has no function: got no error")
	}
}

func TestDivide(t *testing.T) {
	divide := func(x uint32, d int) uint32 {
		magic, shift := Reciprocal(d)
		return (uint32(uint64(x)*magic>>32) + x) >> shift
	}
	for _, d := range []int{2, 3, 5, 7, 10, 33, 64, 641, 65535, 65536, 1<<20 + 7, 1<<29 - 1, 1 << 30} {
		for range 10_000 {
			x := rand.Uint32N(1 << 30)
			if got, want := divide(x, d), x/uint32(d); got != want {
				t.Fatalf("%d/%d: got %d, want %d", x, d, got, want)
			}
		}
		for _, x := range []uint32{0, 1, uint32(d) - 1, uint32(d), uint32(d) + 1, 1<<30 - 1} {
			if got, want := divide(x, d), x/uint32(d); got != want {
				t.Fatalf("%d/%d: got %d, want %d", x, d, got, want)
			}
		}
	}
}

func TestParseLibraryErrors(t *testing.T) {
	for _, text := range []string{
		"",
		".version 7.8\n.target sm_70\n.address_size 64\n.visible .func  (.param .b32 func_retval0) f(\n\t.param .b32 f_param_0\n)\n{\n\tret;\n",
		".version 7.8\n.func g(\n)\n",
	} {
		if _, err := ParseLibrary(text); err == nil {
			t.Errorf("%q: got no error", text)
		}
	}
}

// TestVector: neighbours are computed together where all operands can be read
// so, and only there.
func TestVector(t *testing.T) {
	for _, c := range []struct {
		dims    []int
		strides [][]int
		aligned bool
		want    string // in the kernel; "" where elements are read one by one
	}{
		{[]int{1024}, [][]int{{1}}, true, "ld.global.v4.u16"},
		{[]int{1024}, [][]int{{1}}, false, ""},
		{[]int{1022}, [][]int{{1}}, true, ""},
		{[]int{6, 8}, [][]int{{0, 1}}, true, "ld.global.v4.u16"},
		{[]int{6, 8}, [][]int{{1, 0}}, true, "st.global.v4.u16"},
		{[]int{6, 8}, [][]int{{9, 1}}, true, ""},
		{[]int{6, 8}, [][]int{{1, 6}}, true, ""},
		{nil, [][]int{nil}, true, ""},
	} {
		chain := Chain{Name: "k", Dims: c.dims, Strides: c.strides, Results: []int{0}, Aligned: c.aligned, Body: &op.Body{
			Inputs: []dtype.DType{dtype.Float16}, Code: []op.Instr{{Op: op.Neg, DType: dtype.Float16}},
		}}
		text, _, err := library(t).Module([]Chain{chain})
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(text, "global.v"); got != (c.want != "") || !strings.Contains(text, c.want) {
			t.Errorf("%v, strides %v, aligned %v: want %q in\n%s", c.dims, c.strides, c.aligned, c.want, text)
		}
	}
}

// TestAssemble: NVIDIA's assembler takes chains of every operation on every
// type, element by element and in vectors, predicated and not, and every cast.
func TestAssemble(t *testing.T) {
	ptxas := os.Getenv("MEZZO_PTXAS")
	if ptxas == "" {
		t.Skip("MEZZO_PTXAS does not name the assembler ptxas")
	}
	for _, capability := range []int{70, 90} {
		l := libraryFor(t, capability)
		var chains []Chain
		add := func(inputs []dtype.DType, in op.Instr) {
			for i := range in.Args[:len(inputs)] {
				in.Args[i] = int32(i)
			}
			for _, aligned := range []bool{false, true} {
				c := Chain{
					Name: fmt.Sprint("k", len(chains)), Dims: []int{512, 8}, Results: []int{0}, Aligned: aligned, Predicated: len(chains)%2 == 0,
					Body: &op.Body{Inputs: inputs, Code: []op.Instr{in}},
				}
				for i := range inputs {
					c.Strides = append(c.Strides, [][]int{{8, 1}, {0, 1}, {1, 0}}[(i+len(chains))%3])
				}
				chains = append(chains, c)
			}
		}
		for _, d := range types() {
			for _, c := range op.Codes() {
				info := c.Info()
				if info.Class != op.Elementwise || info.Args < 1 || c == op.Cast || c == op.ExtraOutput || c == op.Fused {
					continue
				}
				types := make([]op.Type, info.Args)
				inputs := make([]dtype.DType, info.Args)
				for i := range types {
					types[i], inputs[i] = op.Type{DType: d}, d
				}
				if c == op.Where {
					types[0].DType, inputs[0] = dtype.Bool, dtype.Bool
				}
				if r, err := op.Infer(c, op.Attr{}, types...); err == nil && (c == op.Identity || l.Has(Name(c, d))) {
					add(inputs, op.Instr{Op: c, DType: r.DType})
				}
			}
			for _, to := range types() {
				add([]dtype.DType{d}, op.Instr{Op: op.Cast, DType: to})
			}
		}
		text, _, err := l.Module(chains)
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(t.TempDir(), "chains.ptx")
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.Command(ptxas, fmt.Sprintf("-arch=sm_%d", capability), "-O1", "-o", os.DevNull, file).CombinedOutput(); err != nil {
			t.Errorf("sm_%d, %d chains: %v\n%.2000s", capability, len(chains), err, out)
		}
	}
}
