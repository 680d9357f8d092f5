// Package amd64 has the instructions of amd64 that Go's assembler does not know, as macros for
// the generated files: [Encodings] returns their definitions, and a function for each
// instruction returns its call.
//
// Arguments of the macros are the numbers of registers, in the order of Go's assembler: the
// result is the last. The encodings are those of the Intel SDM volume 2, sections 2.7 (EVEX)
// and 2.3 (VEX).
package amd64

import (
	"fmt"
	"strings"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/gen/asm"
)

// encoding is a macro: its name, parameters, meaning and bytes. A last element of four bytes
// begins with "LONG ".
type encoding struct {
	name, params, doc string
	bytes             []string
}

// evex returns the bytes of an instruction on 512-bit registers of map 0F38 with W0: opcode
// with prefix pp (2 for F3, 3 for F2); rm, vvvv and reg are parameters or numbers.
func evex(opcode, pp int, rm, vvvv, reg string) []string {
	return []string{
		"0x62",
		fmt.Sprintf("(0xf2^(%[1]s&8)<<4^(%[2]s&16)<<2^(%[2]s&8)<<2^(%[1]s&16))", reg, rm),
		fmt.Sprintf("(0x%02x^(%s&15)<<3)", 0x7c|pp, vvvv),
		fmt.Sprintf("(0x48^(%s&16)>>1)", vvvv),
		fmt.Sprintf("0x%02x", opcode),
		fmt.Sprintf("(0xc0|(%s&7)<<3|(%s&7))", reg, rm),
	}
}

// vex returns the bytes of an instruction of map 0F38 on registers below 8.
func vex(opcode, pp int, rm, vvvv, reg string) []string {
	return []string{"0xc4", "0xe2", fmt.Sprintf("(0x%02x^(%s&15)<<3)", 0x78|pp, vvvv), fmt.Sprintf("0x%02x", opcode), fmt.Sprintf("(0xc0|(%s<<3)|%s)", reg, rm)}
}

// vexMemory is vex with an address of base and index, and a displacement if disp is not empty.
// Base must not be BP or R13.
func vexMemory(opcode, pp int, disp, base, index, reg string) []string {
	code := []string{"0xc4", fmt.Sprintf("(0xe2^(%s&8)<<2^(%s&8)<<3)", base, index), fmt.Sprintf("0x%02x", 0x78|pp), fmt.Sprintf("0x%02x", opcode)}
	if disp == "" {
		return append(code, fmt.Sprintf("(0x04|(%s<<3))", reg), fmt.Sprintf("((%s&7)<<3|(%s&7))", index, base))
	}
	return append(code, fmt.Sprintf("(0x84|(%s<<3))", reg), fmt.Sprintf("((%s&7)<<3|(%s&7))", index, base), "LONG "+disp)
}

var encodings = []encoding{
	{"VDPBF16PS", "x, y, acc", "adds to Zacc the dot products of pairs of bfloat16 in Zy and Zx.", evex(0x52, 2, "x", "y", "acc")},
	{"VCVTNE2PS2BF16", "low, high, to", "rounds Zlow and Zhigh to bfloat16, side by side in Zto.", evex(0x72, 3, "low", "high", "to")},
	{"VCVTNEPS2BF16", "from, to", "rounds Zfrom to bfloat16 in Yto.", evex(0x72, 2, "from", "0", "to")},
	{"TDPBF16PS", "x, y, acc", "adds the product of tiles y and x, of pairs of bfloat16, to tile acc.", vex(0x5c, 2, "y", "x", "acc")},
	{"TDPBSSD", "x, y, acc", "adds the product of tiles y and x, of groups of four int8, to the int32 of tile acc.", vex(0x5e, 3, "y", "x", "acc")},
	{"TILEZERO", "tile", "clears a tile.", vex(0x49, 3, "0", "0", "tile")},
	{"TILERELEASE", "", "gives the tile registers of the thread back.", vex(0x49, 0, "0", "0", "0")},
	{"LDTILECFG_AX", "", "sets up the tile registers of the thread from 64 bytes at (AX).", []string{"0xc4", "0xe2", "0x78", "0x49", "0x00"}},
	{"TILELOADD", "base, stride, tile", "loads rows of a tile that are stride apart.", vexMemory(0x4b, 3, "", "base", "stride", "tile")},
	{"TILELOADD_AT", "disp, base, stride, tile", "is TILELOADD disp bytes behind base.", vexMemory(0x4b, 3, "disp", "base", "stride", "tile")},
	{"TILESTORED", "tile, base, stride", "stores rows of a tile stride apart.", vexMemory(0x4b, 2, "", "base", "stride", "tile")},
	{"TILESTORED_AT", "tile, disp, base, stride", "is TILESTORED disp bytes behind base.", vexMemory(0x4b, 2, "disp", "base", "stride", "tile")},
	{"PREFETCHW", "disp, base", "prefetches the line disp bytes behind base, which is not above 7, for a write. Processors without it do nothing.", []string{"0x0f", "0x0d", "(0x88|base)", "LONG disp"}},
	{"PREFETCHW_AX", "disp, base, shift", "is PREFETCHW behind base plus AX<<shift.", []string{"0x0f", "0x0d", "0x8c", "(shift<<6|base)", "LONG disp"}},
}

// Reg is the number of a general register in encodings.
type Reg int

const (
	AX  Reg = 0
	DX  Reg = 2
	BX  Reg = 3
	SI  Reg = 6
	DI  Reg = 7
	R8  Reg = 8
	R9  Reg = 9
	R11 Reg = 11
	R12 Reg = 12
)

var regNames = map[Reg]string{AX: "AX", DX: "DX", BX: "BX", SI: "SI", DI: "DI", R8: "R8", R9: "R9", R11: "R11", R12: "R12"}

// String returns the macro with the number of a register.
func (r Reg) String() string { return "NUM_" + regNames[r] }

// Encodings returns the definitions of the macros.
func Encodings() []asm.Definition {
	var list []asm.Definition
	for _, e := range encodings {
		var s strings.Builder
		fmt.Fprintf(&s, "// %s %s\n#define %[1]s", e.name, e.doc)
		if e.params != "" {
			fmt.Fprintf(&s, "(%s)", e.params)
		}
		for i, b := range e.bytes {
			if i > 0 {
				s.WriteByte(';')
			}
			if long, ok := strings.CutPrefix(b, "LONG "); ok {
				fmt.Fprintf(&s, " \\\n\tLONG $%s", long)
			} else {
				fmt.Fprintf(&s, " \\\n\tBYTE $%s", b)
			}
		}
		s.WriteByte('\n')
		list = append(list, asm.Definition{Name: e.name, Text: s.String()})
	}
	for _, r := range []Reg{AX, DX, BX, SI, DI, R8, R9, R11, R12} {
		list = append(list, asm.Definition{Name: r.String(), Text: fmt.Sprintf("#define %s %d\n", r, int(r))})
	}
	return list
}

// VDPBF16PS adds to register acc the dot products of pairs of bfloat16 in x and y.
func VDPBF16PS(acc, x, y int) string { return fmt.Sprintf("VDPBF16PS(%d, %d, %d)", y, x, acc) }

// VCVTNE2PS2BF16 rounds registers low and high to bfloat16, side by side in to.
func VCVTNE2PS2BF16(low, high, to int) string {
	return fmt.Sprintf("VCVTNE2PS2BF16(%d, %d, %d)", low, high, to)
}

// VCVTNEPS2BF16 rounds a register to bfloat16 in the lower half of another.
func VCVTNEPS2BF16(from, to int) string { return fmt.Sprintf("VCVTNEPS2BF16(%d, %d)", from, to) }

// Prefetchw prefetches the line disp bytes after base, which must be below 8, with write
// intent.
func Prefetchw(disp int, base Reg) string { return fmt.Sprintf("PREFETCHW(%d, %v)", disp, base) }

// PrefetchwAX is Prefetchw for base plus AX<<shift.
func PrefetchwAX(disp int, base Reg, shift int) string {
	return fmt.Sprintf("PREFETCHW_AX(%d, %v, %d)", disp, base, shift)
}

// TileLoad loads a tile register: rows stride bytes apart, from disp bytes after base on.
func TileLoad(tile int, base, stride Reg, disp int) string {
	if disp != 0 {
		return fmt.Sprintf("TILELOADD_AT(%d, %v, %v, %d)", disp, base, stride, tile)
	}
	return fmt.Sprintf("TILELOADD(%v, %v, %d)", base, stride, tile)
}

// TileStore stores a tile register.
func TileStore(tile int, base, stride Reg, disp int) string {
	if disp != 0 {
		return fmt.Sprintf("TILESTORED_AT(%d, %d, %v, %v)", tile, disp, base, stride)
	}
	return fmt.Sprintf("TILESTORED(%d, %v, %v)", tile, base, stride)
}

// TDPBF16PS adds the product of tiles x and y, of pairs of bfloat16, to acc.
func TDPBF16PS(acc, x, y int) string { return fmt.Sprintf("TDPBF16PS(%d, %d, %d)", y, x, acc) }

// TDPBSSD adds the product of tiles x and y, of groups of four int8, to the int32 of acc.
func TDPBSSD(acc, x, y int) string { return fmt.Sprintf("TDPBSSD(%d, %d, %d)", y, x, acc) }
