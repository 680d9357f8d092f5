// Package a64 writes vector instructions of arm64 for the generators of
// assembly: those that Go's assembler has in its form, the others as a word
// with what a disassembler shows in a comment.
//
// Main types: [Ins] is one instruction's line; [Shift], [Ext] and [ByElement]
// are those with a number.
//
// Encodings are those of the Arm Architecture Reference Manual, sections C7.2
// and C8. The test holds every word of the generated files against a
// disassembler, where there is one.
package a64

import (
	"fmt"
	"strings"
)

// form is an instruction: its bits without registers, and how the lanes of its
// operands are arranged, the result first. Those that Go knows have its name.
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

	"FADD.2D": {0x4e60d400, d2, ""}, "FMLA.2D": {0x4e60cc00, d2, "VFMLA"},
	"FCMEQ.2D": {0x4e60e400, d2, ""}, "FCMGT.2D": {0x6ee0e400, d2, ""},
	"FADDP.D": {0x7e70d800, "D 2D", ""}, // of a vector to a number

	"FCVTL": {0x0e217800, "4S 4H", ""}, "FCVTN": {0x0e216800, "4H 4S", ""},
	"FCVTL.2D": {0x0e617800, "2D 2S", ""}, "FCVTL2.2D": {0x4e617800, "2D 4S", ""},

	"ADD": {0x4ea08400, s4, "VADD"}, "SUB": {0x6ea08400, s4, "VSUB"},
	"CMTST": {0x4ea08c00, s4, "VCMTST"}, "CMGT": {0x4ea03400, s4, ""}, "CMEQ": {0x6ea08c00, s4, "VCMEQ"},
	"CMHS.8H": {0x6e603c00, "8H 8H 8H", ""}, // not less, without signs
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
	"USHLL": {0x2f10a400, "4S 4H", ""}, "USHLL.8H": {0x2f08a400, "8H 8B", ""}, // by 0
	"SHLL":  {0x2e613800, "4S 4H", ""}, // by 16
	"UMULL": {0x2ea0c000, "2D 2S 2S", ""}, "UMULL2": {0x6ea0c000, "2D 4S 4S", ""},
	"UMAXV": {0x6eb0a800, "S 4S", ""}, "UMINV": {0x6eb1a800, "S 4S", ""},
}

// Ins is the line of an instruction by its name, with a suffix where it comes
// in several arrangements, and its registers, the result first.
func Ins(name string, regs ...int) string {
	f, ok := forms[name]
	lanes := strings.Fields(f.lanes)
	if !ok || len(lanes) != len(regs) {
		panic(fmt.Sprintf("a64: no instruction %s of %d registers", name, len(regs)))
	}
	if f.known != "" {
		operands := make([]string, len(regs))
		for i, r := range regs {
			l := lanes[i]
			operands[len(regs)-1-i] = fmt.Sprintf("V%d.%s%s", r, l[len(l)-1:], l[:len(l)-1])
		}
		return f.known + " " + strings.Join(operands, ", ")
	}
	code, operands := f.code, make([]string, len(regs))
	for i, r := range regs {
		code |= uint32(r) << []int{0, 5, 16}[i]
		operands[i] = fmt.Sprintf("V%d.%s", r, lanes[i])
		if len(lanes[i]) == 1 { // a number
			operands[i] = fmt.Sprintf("%s%d", lanes[i], r)
		}
	}
	base, _, _ := strings.Cut(name, ".")
	switch base {
	case "SHLL":
		operands = append(operands, "$16")
	case "USHLL":
		operands = append(operands, "$0")
	}
	return word(code, base+" "+strings.Join(operands, ", "))
}

func word(code uint32, text string) string { return fmt.Sprintf("WORD $0x%08x // %s", code, text) }

// ByElement is the line of FMLA with one element of the last register for all
// lanes.
func ByElement(to, x, y, element int) string {
	code := 0x4f801000 | uint32(element&1)<<21 | uint32(element>>1)<<11 | uint32(y)<<16 | uint32(x)<<5 | uint32(to)
	return word(code, fmt.Sprintf("FMLA V%d.4S, V%d.4S, V%d.S[%d]", to, x, y, element))
}

// Shift is the line of a shift of four lanes by a number: SHL, USHR or SSHR.
func Shift(name string, to, from, by int) string {
	switch name {
	case "SHL":
		return fmt.Sprintf("VSHL $%d, V%d.S4, V%d.S4", by, from, to)
	case "USHR":
		return fmt.Sprintf("VUSHR $%d, V%d.S4, V%d.S4", by, from, to)
	}
	return word(0x4f000400|uint32(64-by)<<16|uint32(from)<<5|uint32(to), fmt.Sprintf("%s V%d.4S, V%d.4S, $%d", name, to, from, by))
}

// Ext is the line that takes 16 bytes from two registers, from a byte of the
// first on.
func Ext(to, first, second, from int) string {
	return fmt.Sprintf("VEXT $%d, V%d.B16, V%d.B16, V%d.B16", from, second, first, to)
}

// Move is the line that copies a register.
func Move(to, from int) string { return fmt.Sprintf("VMOV V%d.B16, V%d.B16", from, to) }

// StorePair is the line that stores two registers at an address, a multiple of
// 16 bytes after a pointer, past the caches if that is of use.
func StorePair(first, second, pointer, offset int) string {
	return word(0xac000000|uint32(offset/16&0x7f)<<15|uint32(second)<<10|uint32(pointer)<<5|uint32(first),
		strings.Replace(fmt.Sprintf("STNP Q%d, Q%d, [X%d, $%d]", first, second, pointer, offset), ", $0]", "]", 1))
}
