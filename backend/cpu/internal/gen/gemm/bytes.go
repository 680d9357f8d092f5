package gemm

import (
	"fmt"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/gen/amd64"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/gen/arm64"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/gen/asm"
)

// bytesParams is the signature of kernels on 8-bit integers; package gemm documents it at
// its type BytesKernel.
const bytesParams = "taps unsafe.Pointer, n, k int, a unsafe.Pointer, lda int, b unsafe.Pointer, d unsafe.Pointer, ldd, columns int"

// byteUnroll is the groups of four elements of the inner dimension in an iteration of the
// loop.
const byteUnroll = 4

// prefetchDistanceBytes is the distance in bytes at which panels are prefetched: the hardware
// prefetcher stops at every page, and a product of one row is limited by memory.
const prefetchDistanceBytes = 4096

// avx512VNNI writes the kernels for AVX512-VNNI.
func avx512VNNI() *gen {
	g := &gen{file: asm.NewFile("vnni_amd64"), doc: "// Kernels for AVX512-VNNI.\n\n"}
	for _, rows := range vnniRows {
		g.vnni(fmt.Sprintf("bytesVNNI%d", rows), rows)
	}
	return g
}

// vnniRows are the numbers of rows with a kernel.
var vnniRows = []int{1, 4, 8, 12}

// vnni writes a kernel of uint8 by int8: two accumulators for each row.
func (g *gen) vnni(name string, rows int) {
	g.text(name, bytesParams, fmt.Sprintf("is a BytesKernel of %d rows of uint8.", rows))
	bases := rowBases[:(rows+2)/3]
	g.loadBytesArgs()
	g.ins("VMOVDQU32 (BX), Z0\nVMOVDQU32 64(BX), Z1\nADDQ $128, BX")
	for i := 1; i < rows; i++ {
		g.block("START_BYTES", func() { g.ins("VMOVDQA32 Z0, Z%d\nVMOVDQA32 Z1, Z%d", 2*i, 2*i+1) })
	}
	g.nextTap()
	if len(bases) > 1 {
		g.macro(fmt.Sprintf("POINT_A_%d", len(bases)), func() {
			for i := 1; i < len(bases); i++ {
				g.ins("LEAQ (%s)(R12*2), %s\nADDQ R12, %s", bases[i-1], bases[i], bases[i])
			}
		})
	}
	g.label("loop")
	for u := range byteUnroll {
		g.block(fmt.Sprintf("DOT_BYTES_STEP_%d", rows), func() {
			if rows == 1 { // the panel is read once
				g.ins("VPBROADCASTD %d(AX), Z31\nPREFETCHT0 %d(BX)\nPREFETCHT0 %d(BX)", 4*u, 128*u+prefetchDistanceBytes, 128*u+64+prefetchDistanceBytes)
				g.ins("VPDPBUSD %d(BX), Z31, Z0\nVPDPBUSD %d(BX), Z31, Z1", 128*u, 128*u+64)
				return
			}
			g.block("LOAD_BYTES", func() {
				g.ins("VMOVDQU32 %d(BX), Z28\nVMOVDQU32 %d(BX), Z29\nPREFETCHT0 %d(BX)\nPREFETCHT0 %d(BX)", 128*u, 128*u+64, 128*u+prefetchDistanceBytes, 128*u+64+prefetchDistanceBytes)
			}, "at", 128*u)
			for i := range rows {
				a := fmt.Sprintf("%d(%s)%s", 4*u, bases[i/3], []string{"", "(R12*1)", "(R12*2)"}[i%3])
				g.block("DOT_BYTES", func() {
					g.ins("VPBROADCASTD %s, Z%[2]d\nVPDPBUSD Z28, Z%[2]d, Z%[3]d\nVPDPBUSD Z29, Z%[2]d, Z%[4]d", a, 30+i%2, 2*i, 2*i+1)
				})
			}
		}, "a", 4*u, "at", 128*u)
	}
	for _, base := range bases {
		g.ins("ADDQ $%d, %s", 4*byteUnroll, base)
	}
	g.ins("ADDQ $%d, BX\nSUBQ $%d, CX\nJNZ loop\nDECQ R11\nJNZ tap", 128*byteUnroll, byteUnroll)
	for i := range rows {
		g.block("STORE_BYTES", func() { g.ins("VMOVDQU32 Z%d, (DI)\nVMOVDQU32 Z%d, 64(DI)\nADDQ R8, DI", 2*i, 2*i+1) })
	}
	g.end()
}

// loadBytesArgs loads the arguments of a kernel for amd64 but for those that nextTap loads.
func (g *gen) loadBytesArgs() {
	g.block("LOAD_BYTES_ARGS", func() {
		g.ins("MOVQ taps+0(FP), R10\nMOVQ n+8(FP), R11\nMOVQ lda+32(FP), R12\nMOVQ b+40(FP), BX\nMOVQ d+48(FP), DI\nMOVQ ldd+56(FP), R8")
	})
}

// nextTap begins the loop over taps: it points AX to the rows at the next of them.
func (g *gen) nextTap() {
	g.label("tap")
	g.block("NEXT_TAP", func() {
		g.ins("MOVQ a+24(FP), AX\nADDQ (R10), AX\nADDQ $8, R10\nMOVQ k+16(FP), CX")
	})
}

// bytesAVX2 writes a kernel of one row. It widens both operands to int16: products of uint8
// by int8 saturate at 16 bits (VPMADDUBSW). A register has two sums each of four columns.
// More rows would share nothing but the widening, which wordsAVX2 does not need. The panel
// is prefetched, as it is read once.
func (g *gen) bytesAVX2(name string) {
	g.text(name, bytesParams, "is a BytesKernel of a row of int8.")
	g.loadBytesArgs()
	g.ins("LEAQ 128(BX), SI")
	g.zeroWords(8)
	g.nextTap()
	g.label("loop")
	g.ins("VPBROADCASTD (AX), X12\nVPMOVSXBW X12, Y12")
	g.ins("PREFETCHT0 %d(SI)\nPREFETCHT0 %d(SI)", prefetchDistanceBytes, prefetchDistanceBytes+64)
	for c := range 8 {
		g.block("MADD_BYTES", func() {
			g.ins("VPMOVSXBW %d(SI), Y14\nVPMADDWD Y14, Y12, Y15\nVPADDD Y15, Y%[2]d, Y%[2]d", 16*c, c)
		})
	}
	g.ins("ADDQ $4, AX\nADDQ $128, SI\nDECQ CX\nJNZ loop\nDECQ R11\nJNZ tap")
	for c := 0; c < 8; c += 2 {
		g.storePair(c, 16*c)
	}
	g.end()
}

// zeroWords clears the first sums.
func (g *gen) zeroWords(n int) {
	g.block(fmt.Sprintf("ZERO_WORDS_%d", n), func() {
		for i := range n {
			g.ins("VPXOR Y%[1]d, Y%[1]d, Y%[1]d", i)
		}
	})
}

// storePair stores the sums of eight columns, which are in register c and the next one.
func (g *gen) storePair(c, at int) {
	g.block("STORE_BYTES_PAIR", func() {
		g.ins("VPHADDD Y%d, Y%[2]d, Y%[2]d\nVPERMQ $0xd8, Y%[2]d, Y%[2]d\nVPADDD %[3]d(BX), Y%[2]d, Y%[2]d\nVMOVDQU Y%[2]d, %[3]d(DI)", c+1, c, at)
	})
}

// wordsAVX2 writes a kernel of int16, eight columns after the other: what it loads of the
// panel, which may lie in L2, serves all rows. Registers have two sums each of four columns.
func (g *gen) wordsAVX2(name string, rows int) {
	g.text(name, bytesParams, fmt.Sprintf("is a BytesKernel of %d rows of int16.", rows))
	g.loadBytesArgs()
	g.ins("LEAQ 128(BX), DX\nMOVQ columns+64(FP), R9")
	if rows > 3 {
		g.ins("LEAQ (R12)(R12*2), R13")
	}
	g.label("columns")
	g.ins("MOVQ taps+0(FP), R10\nMOVQ n+8(FP), R11")
	g.zeroWords(2 * rows)
	g.nextTap()
	g.label("loop")
	g.ins("VMOVDQU (DX), Y8\nVMOVDQU 32(DX), Y9")
	for i := range rows {
		g.block("MADD_WORDS", func() {
			x := 10 + 2*(i%3)
			g.ins("VPBROADCASTQ (AX)%s, Y%d", []string{"", "(R12*1)", "(R12*2)", "(R13*1)"}[i], x)
			g.ins("VPMADDWD Y8, Y%[1]d, Y%[2]d\nVPMADDWD Y9, Y%[1]d, Y%[1]d\nVPADDD Y%[2]d, Y%[3]d, Y%[3]d\nVPADDD Y%[1]d, Y%[4]d, Y%[4]d", x, x+1, 2*i, 2*i+1)
		})
	}
	g.ins("ADDQ $8, AX\nADDQ $64, DX\nDECQ CX\nJNZ loop\nDECQ R11\nJNZ tap\nMOVQ DI, AX")
	for i := range rows {
		if i > 0 {
			g.ins("ADDQ R8, DI")
		}
		g.storePair(2*i, 0)
	}
	g.ins("LEAQ 32(AX), DI\nADDQ $32, BX\nSUBQ $8, R9\nJGT columns")
	g.end()
}

// widenAVX2 writes the conversion of int8 to int16.
func (g *gen) widenAVX2() {
	g.text("widenAVX2", "dst, x unsafe.Pointer, n int", "converts n int8 to int16, n a multiple of 32. X may be the second half of dst.")
	g.ins("MOVQ dst+0(FP), DI\nMOVQ x+8(FP), SI\nMOVQ n+16(FP), CX")
	g.label("loop")
	g.ins("VPMOVSXBW (SI), Y0\nVPMOVSXBW 16(SI), Y1\nVMOVDQU Y0, (DI)\nVMOVDQU Y1, 32(DI)")
	g.ins("ADDQ $32, SI\nADDQ $64, DI\nSUBQ $32, CX\nJNZ loop")
	g.end()
}

// bytesAMX writes a kernel of 32 rows of int8. Tile registers 0 to 3 are the sums, 4 and 5
// tiles of A, 6 and 7 of the panel: 16 groups of four steps.
func (g *gen) bytesAMX(name string) {
	g.text(name, bytesParams, "is a BytesKernel of 32 rows of int8, where k is a multiple of 16.")
	g.loadBytesArgs()
	g.ins("MOVQ R8, R9\nXORQ R8, R8")
	for i := range 4 { // all rows of a tile are the same
		g.ins("%s", amd64.TileLoad(i, amd64.BX, amd64.R8, 64*(i%2)))
	}
	g.ins("ADDQ $128, BX\nLEAQ 64(BX), SI\nMOVQ $128, R8")
	g.nextTap()
	g.ins("MOVQ R12, DX\nSHLQ $4, DX\nADDQ AX, DX\nSHRQ $4, CX")
	g.label("loop")
	g.ins("%s\n%s", amd64.TileLoad(6, amd64.BX, amd64.R8, 0), amd64.TileLoad(4, amd64.AX, amd64.R12, 0))
	g.ins("%s\n%s", amd64.TDPBSSD(0, 4, 6), amd64.TileLoad(7, amd64.SI, amd64.R8, 0))
	g.ins("%s\n%s", amd64.TDPBSSD(1, 4, 7), amd64.TileLoad(5, amd64.DX, amd64.R12, 0))
	g.ins("%s\n%s", amd64.TDPBSSD(2, 5, 6), amd64.TDPBSSD(3, 5, 7))
	g.ins("ADDQ $64, AX\nADDQ $64, DX\nADDQ $2048, BX\nADDQ $2048, SI\nDECQ CX\nJNZ loop\nDECQ R11\nJNZ tap")
	g.ins("%s\n%s", amd64.TileStore(0, amd64.DI, amd64.R9, 0), amd64.TileStore(1, amd64.DI, amd64.R9, 64))
	g.ins("MOVQ R9, R11\nSHLQ $4, R11\nADDQ R11, DI")
	g.ins("%s\n%s", amd64.TileStore(2, amd64.DI, amd64.R9, 0), amd64.TileStore(3, amd64.DI, amd64.R9, 64))
	g.ins("RET")
}

// neonDot writes the kernels on int8 for arm64: dot products of four bytes. Two rows share
// the loads of a panel.
func neonDot() *gen {
	g := &gen{file: asm.NewFile("dot_arm64"), doc: "// Kernels on 8-bit integers, by the dot products of Advanced SIMD (FEAT_DotProd).\n\n"}
	g.text("bytesNEON2", bytesParams, "is a BytesKernel of two rows of int8, where k is a multiple of 4.")
	line := func(first int) string {
		return fmt.Sprintf("[V%d.S4, V%d.S4, V%d.S4, V%d.S4]", first, first+1, first+2, first+3)
	}
	g.ins("MOVD taps+0(FP), R6\nMOVD n+8(FP), R7\nMOVD a+24(FP), R8\nMOVD lda+32(FP), R9\nMOVD b+40(FP), R3\nMOVD d+48(FP), R4\nMOVD ldd+56(FP), R5")
	g.ins("VLD1 (R3), %s\nVLD1.P 64(R3), %s\nVLD1 (R3), %s\nVLD1.P 64(R3), %s", line(0), line(8), line(4), line(12))
	g.label("tap")
	g.ins("MOVD.P 8(R6), R1\nADD R8, R1\nADD R9, R1, R2\nMOVD k+16(FP), R0")
	g.label("loop")
	g.ins("VLD1.P 16(R1), [V24.B16]\nVLD1.P 16(R2), [V25.B16]")
	for u := range 4 {
		g.block("SDOT_STEP", func() {
			g.ins("VLD1.P 64(R3), %s\nVLD1.P 64(R3), %s", line(16), line(20))
			for c := range 8 {
				g.block("SDOT_COLUMNS", func() {
					g.ins("%s\n%s", arm64.DotByElement(c, 16+c, 24, u), arm64.DotByElement(8+c, 16+c, 25, u))
				}, "c", c)
			}
		}, "step", u)
	}
	g.ins("SUBS $4, R0\nBNE loop\nSUBS $1, R7\nBNE tap\nADD R4, R5")
	for _, half := range []int{0, 4} {
		g.ins("VST1.P %s, 64(R4)\nVST1.P %s, 64(R5)", line(half), line(8+half))
	}
	g.ins("RET")
	return g
}
