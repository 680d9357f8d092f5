// Package arm64 has the vector instructions of arm64 for the generators of assembly: those of
// Go's assembler in its syntax, and the others as macros. [Encodings] returns the definitions.
//
// Main functions: [Ins] returns the line of an instruction; [Shift], [Ext] and [ByElement]
// those with a number.
//
// The encodings are those of the Arm Architecture Reference Manual, sections C7.2 and C8. The
// test assembles every macro and compares it with a disassembler, if one is installed.
package arm64

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/gen/asm"
)

// form is an instruction: its bits without registers, and the arrangements of its operands,
// the result first. Instructions that Go's assembler knows have its name.
type form struct {
	code  uint32
	lanes string
	known string
}

// Arrangements of all operands.
const (
	s4 = "4S 4S 4S"
	d2 = "2D 2D 2D"
	b  = "16B 16B 16B"
)

var forms = map[string]form{
	"FADD": {0x4e20d400, s4, ""}, "FSUB": {0x4ea0d400, s4, ""}, "FMUL": {0x6e20dc00, s4, ""}, "FDIV": {0x6e20fc00, s4, ""},
	"FMLA": {0x4e20cc00, s4, "VFMLA"}, "FMLS": {0x4ea0cc00, s4, "VFMLS"}, "FADDP": {0x6e20d400, s4, ""},
	"FCMEQ": {0x4e20e400, s4, ""}, "FCMGE": {0x6e20e400, s4, ""}, "FCMGT": {0x6ea0e400, s4, ""},
	"BFMMLA": {0x6e40ec00, "4S 8H 8H", ""}, // two rows of four by two columns
	"FNEG":   {0x6ea0f800, "4S 4S", ""}, "FSQRT": {0x6ea1f800, "4S 4S", ""}, "SCVTF": {0x4e21d800, "4S 4S", ""}, "FCVTNS": {0x4e21a800, "4S 4S", ""},
	"FRINTN": {0x4e218800, "4S 4S", ""}, "FRINTM": {0x4e219800, "4S 4S", ""}, "FRINTP": {0x4ea18800, "4S 4S", ""},

	"FADD.2D": {0x4e60d400, d2, ""}, "FSUB.2D": {0x4ee0d400, d2, ""}, "FMUL.2D": {0x6e60dc00, d2, ""}, "FMLA.2D": {0x4e60cc00, d2, "VFMLA"},
	"FCMEQ.2D": {0x4e60e400, d2, ""}, "FCMGT.2D": {0x6ee0e400, d2, ""},
	"FADDP.D": {0x7e70d800, "D 2D", ""}, // pairwise sum of a vector, to a scalar

	"FCVTL": {0x0e217800, "4S 4H", ""}, "FCVTN": {0x0e216800, "4H 4S", ""},
	"FCVTL.2D": {0x0e617800, "2D 2S", ""}, "FCVTL2.2D": {0x4e617800, "2D 4S", ""},

	"ADD": {0x4ea08400, s4, "VADD"}, "SUB": {0x6ea08400, s4, "VSUB"},
	"CMTST": {0x4ea08c00, s4, "VCMTST"}, "CMGT": {0x4ea03400, s4, ""}, "CMEQ": {0x6ea08c00, s4, "VCMEQ"},
	"CMHS.8H": {0x6e603c00, "8H 8H 8H", ""}, // unsigned greater or equal
	"AND":     {0x4e201c00, b, "VAND"}, "BIC": {0x4e601c00, b, ""}, "ORR": {0x4ea01c00, b, "VORR"}, "EOR": {0x6e201c00, b, "VEOR"},
	"BSL": {0x6e601c00, b, "VBSL"}, "BIT": {0x6ea01c00, b, "VBIT"}, "BIF": {0x6ee01c00, b, "VBIF"},
	"MVN":  {0x6e205800, "16B 16B", ""},
	"UZP1": {0x4e801800, s4, "VUZP1"}, "UZP2": {0x4e805800, s4, "VUZP2"},
	"TRN1": {0x4e802800, s4, "VTRN1"}, "TRN2": {0x4e806800, s4, "VTRN2"},
	"TRN1.2D": {0x4ec02800, d2, "VTRN1"}, "TRN2.2D": {0x4ec06800, d2, "VTRN2"},
	"TRN1.8H": {0x4e402800, "8H 8H 8H", "VTRN1"}, "TRN2.8H": {0x4e406800, "8H 8H 8H", "VTRN2"},
	"ZIP1": {0x4e803800, s4, "VZIP1"}, "ZIP2": {0x4e807800, s4, "VZIP2"},
	"ZIP1.8H": {0x4e403800, "8H 8H 8H", "VZIP1"}, "ZIP2.8H": {0x4e407800, "8H 8H 8H", "VZIP2"},
	"XTN": {0x0e612800, "4H 4S", ""}, "XTN.8B": {0x0e212800, "8B 8H", ""},
	"USHLL": {0x2f10a400, "4S 4H", ""}, "USHLL.8H": {0x2f08a400, "8H 8B", ""}, // shift by 0
	"SSHLL": {0x0f10a400, "4S 4H", ""}, "SSHLL.8H": {0x0f08a400, "8H 8B", ""}, // shift by 0
	"SHLL":  {0x2e613800, "4S 4H", ""}, // shift by 16
	"UMULL": {0x2ea0c000, "2D 2S 2S", ""}, "UMULL2": {0x6ea0c000, "2D 4S 4S", ""},
	"UMAXV": {0x6eb0a800, "S 4S", ""}, "UMINV": {0x6eb1a800, "S 4S", ""},
}

// Ins returns the line of an instruction. The name has a suffix if the instruction has several
// arrangements; regs has the result first.
func Ins(name string, regs ...int) string {
	f, ok := forms[name]
	lanes := strings.Fields(f.lanes)
	if !ok || len(lanes) != len(regs) {
		panic(fmt.Sprintf("arm64: no instruction %s of %d registers", name, len(regs)))
	}
	if f.known != "" {
		operands := make([]string, len(regs))
		for i, r := range regs {
			l := lanes[i]
			operands[len(regs)-1-i] = fmt.Sprintf("V%d.%s%s", r, l[len(l)-1:], l[:len(l)-1])
		}
		return f.known + " " + strings.Join(operands, ", ")
	}
	operands := make([]string, len(regs))
	for i, r := range regs {
		operands[len(regs)-1-i] = fmt.Sprint(r)
	}
	return fmt.Sprintf("%s(%s)", macro(name, lanes[0]), strings.Join(operands, ", "))
}

// macro returns the name of an instruction's macro, with the arrangement of its result in Go's
// syntax.
func macro(name, lanes string) string {
	base, _, _ := strings.Cut(name, ".")
	return base + "_" + lanes[len(lanes)-1:] + lanes[:len(lanes)-1]
}

// Encodings returns the definitions of the macros. Their arguments are the numbers of
// registers, the result last.
func Encodings() []asm.Definition {
	var list []asm.Definition
	define := func(name, params, word, means string) {
		list = append(list, asm.Definition{Name: name, Text: fmt.Sprintf("// %s is %s.\n#define %[1]s(%[3]s) \\\n\tWORD $(%[4]s)\n", name, means, params, word)})
	}
	for _, name := range slices.Sorted(maps.Keys(forms)) {
		f := forms[name]
		if f.known != "" {
			continue
		}
		lanes := strings.Fields(f.lanes)
		operands := make([]string, len(lanes))
		for i, l := range lanes {
			operands[i] = fmt.Sprintf("V%s.%s", fields[i], l)
			if len(l) == 1 { // a scalar
				operands[i] = l + fields[i]
			}
		}
		base, _, _ := strings.Cut(name, ".")
		switch base {
		case "SHLL":
			operands = append(operands, "#16")
		case "USHLL", "SSHLL":
			operands = append(operands, "#0")
		}
		means := fmt.Sprintf("%s %s", base, strings.Join(operands, ", "))
		word := fmt.Sprintf("0x%08x", f.code)
		var params []string
		for i := range slices.Backward(lanes) {
			word += "|" + fields[i] + []string{"", "<<5", "<<16"}[i]
			params = append(params, fields[i])
		}
		define(macro(name, lanes[0]), strings.Join(params, ", "), word, means)
	}
	define("FMLA_LANE", "m, lane, n, d", "0x4f801000|(lane&1)<<21|(lane>>1)<<11|m<<16|n<<5|d", "FMLA Vd.4S, Vn.4S, Vm.S[lane]")
	define("SDOT_LANE", "m, lane, n, d", "0x4f80e000|(lane&1)<<21|(lane>>1)<<11|m<<16|n<<5|d", "SDOT Vd.4S, Vn.16B, Vm.4B[lane]")
	define("SSHR_S4", "by, n, d", "0x4f000400|(64-by)<<16|n<<5|d", "SSHR Vd.4S, Vn.4S, #by")
	define("STNP", "first, second, offset, base", "0xac000000|(offset/16&0x7f)<<15|second<<10|base<<5|first", "STNP Qfirst, Qsecond, [Xbase, #offset]")
	return list
}

// fields are the parameters of an encoding: the result and the operands.
var fields = []string{"d", "n", "m"}

// ByElement returns the line of FMLA with one element of y for all lanes.
func ByElement(to, x, y, element int) string {
	return fmt.Sprintf("FMLA_LANE(%d, %d, %d, %d)", y, element, x, to)
}

// DotByElement returns the line of SDOT with the four bytes of one element of y for all lanes.
func DotByElement(to, x, y, element int) string {
	return fmt.Sprintf("SDOT_LANE(%d, %d, %d, %d)", y, element, x, to)
}

// Shift returns the line of a shift of four lanes by a constant: SHL, USHR or SSHR.
func Shift(name string, to, from, by int) string {
	switch name {
	case "SHL":
		return fmt.Sprintf("VSHL $%d, V%d.S4, V%d.S4", by, from, to)
	case "USHR":
		return fmt.Sprintf("VUSHR $%d, V%d.S4, V%d.S4", by, from, to)
	}
	return fmt.Sprintf("SSHR_S4(%d, %d, %d)", by, from, to)
}

// Ext returns the line of EXT, which takes 16 bytes of two registers, from byte from of the
// first on.
func Ext(to, first, second, from int) string {
	return fmt.Sprintf("VEXT $%d, V%d.B16, V%d.B16, V%d.B16", from, second, first, to)
}

// Move returns the line that copies a register.
func Move(to, from int) string { return fmt.Sprintf("VMOV V%d.B16, V%d.B16", from, to) }

// StorePair returns the line that stores two registers offset bytes after pointer, a multiple
// of 16, with the non-temporal hint.
func StorePair(first, second, pointer, offset int) string {
	return fmt.Sprintf("STNP(%d, %d, %d, %d)", first, second, offset, pointer)
}
