package asmgen

import (
	"encoding/binary"
	"fmt"
	"strings"
)

// Instructions that Go's assembler does not know are written as bytes, with
// what a disassembler shows in a comment. EVEX is their prefix: Intel SDM
// volume 2, section 2.7.

// evex encodes an instruction on 512-bit registers: opcode of map 0F38 with
// prefix pp (2 for F3, 3 for F2) and W0. reg and rm are the fields of ModRM,
// vvvv the third operand, 0 where there is none.
func evex(opcode, pp byte, reg, vvvv, rm int) []byte {
	not := func(x, bit int) byte { return byte(^x>>bit) & 1 }
	return []byte{
		0x62,
		not(reg, 3)<<7 | not(rm, 4)<<6 | not(rm, 3)<<5 | not(reg, 4)<<4 | 2,
		byte(^vvvv&15)<<3 | 1<<2 | pp,
		2<<5 | not(vvvv, 4)<<3,
		opcode,
		0xc0 | byte(reg&7)<<3 | byte(rm&7),
	}
}

// bytesOf is the line of assembly for encoded bytes.
func bytesOf(code []byte, comment string) string {
	var b strings.Builder
	for i, c := range code {
		if i > 0 {
			b.WriteString("; ")
		}
		fmt.Fprintf(&b, "BYTE $0x%02x", c)
	}
	return b.String() + " // " + comment
}

// vdpbf16ps adds to zmm acc the dot products of pairs of bfloat16 in x and y.
func vdpbf16ps(acc, x, y int) string {
	return bytesOf(evex(0x52, 2, acc, x, y), fmt.Sprintf("VDPBF16PS Z%d, Z%d, Z%d", y, x, acc))
}

// General registers by their number in encodings.
const (
	regAX  = 0
	regDX  = 2
	regBX  = 3
	regSI  = 6
	regDI  = 7
	regR8  = 8
	regR9  = 9
	regR11 = 11
	regR12 = 12
)

var regNames = map[int]string{regAX: "AX", regDX: "DX", regBX: "BX", regSI: "SI", regDI: "DI", regR8: "R8", regR9: "R9", regR11: "R11", regR12: "R12"}

// vex encodes an instruction on registers with the prefix VEX of map 0F38:
// Intel SDM volume 2, section 2.3. No register is above 7.
func vex(opcode, pp byte, reg, vvvv, rm int) []byte {
	return []byte{0xc4, 0xe2, byte(^vvvv&15)<<3 | pp, opcode, 0xc0 | byte(reg<<3) | byte(rm)}
}

// vexMemory is vex with the address base + index + disp instead of a register,
// or base + disp if index is negative. Base is neither BP nor R13.
func vexMemory(opcode, pp byte, reg, base, index, disp int) []byte {
	code := []byte{0xc4, 0xe2, 0x78 | pp, opcode, byte(reg << 3)}
	if base > 7 {
		code[1] &^= 0x20
	}
	if index < 0 {
		code[4] |= byte(base & 7)
	} else {
		if index > 7 {
			code[1] &^= 0x40
		}
		code[4] |= 4
		code = append(code, byte(index&7)<<3|byte(base&7))
	}
	if disp != 0 {
		code[4] |= 0x80
		code = binary.LittleEndian.AppendUint32(code, uint32(disp))
	}
	return code
}

// prefetchw fetches the line disp bytes behind base, which is not above 7, in
// order to write it. Processors without the instruction do nothing instead.
func prefetchw(base, disp int) string {
	return bytesOf(prefetchwCode(base, disp), fmt.Sprintf("PREFETCHW %d(%s)", disp, regNames[base]))
}

func prefetchwCode(base, disp int) []byte {
	return binary.LittleEndian.AppendUint32([]byte{0x0f, 0x0d, 0x88 | byte(base)}, uint32(disp))
}

// tileMove loads or stores a tile register: rows that are the register stride
// apart, from disp bytes behind base on.
type tileMove func(tile, base, stride, disp int) string

func tileLoad(tile, base, stride, disp int) string {
	return bytesOf(vexMemory(0x4b, 3, tile, base, stride, disp), fmt.Sprintf("TILELOADD %d(%s)(%s*1), TMM%d", disp, regNames[base], regNames[stride], tile))
}

func tileStore(tile, base, stride, disp int) string {
	return bytesOf(vexMemory(0x4b, 2, tile, base, stride, disp), fmt.Sprintf("TILESTORED TMM%d, %d(%s)(%s*1)", tile, disp, regNames[base], regNames[stride]))
}

// tdpbf16ps adds the product of tiles x and y, of pairs of bfloat16, to acc.
func tdpbf16ps(acc, x, y int) string {
	return bytesOf(vex(0x5c, 2, acc, y, x), fmt.Sprintf("TDPBF16PS TMM%d, TMM%d, TMM%d", y, x, acc))
}
