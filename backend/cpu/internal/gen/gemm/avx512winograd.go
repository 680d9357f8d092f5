package gemm

import (
	"fmt"
	"strings"
)

// winogradParams is the signature of a gemm.Transform.
const winogradParams = "n int, x unsafe.Pointer, row int, column int, xs int, d unsafe.Pointer, drow int, dcolumn int, ds int, mask uint"

// The matrices of Winograd's F(2x2, 3x3) with elements 1, 0 and -1, which transform tiles of
// the source and of products.
var (
	winogradSource = [][]int{{1, 0, -1, 0}, {0, 1, 1, 0}, {0, -1, 1, 0}, {0, 1, 0, -1}}
	winogradResult = [][]int{{1, 1, 1, 0}, {0, 1, -1, -1}}
	winogradGrads  = [][]int{{1, 0}, {1, 1}, {1, -1}, {0, -1}} // the transpose of winogradResult
)

// transform writes the product M·X·Mᵀ for tiles X of 32 channels: column by column, so that a
// tile is read once, then row by row.
func (g *gen) transform(name string, m [][]int) {
	p, q := len(m), len(m[0])
	g.text(name, winogradParams, fmt.Sprintf("is a Transform of %d×%d pixels to %d×%d for AVX-512.", q, q, p, p))
	g.block("LOAD_TRANSFORM_ARGS", func() {
		g.ins("MOVQ n+0(FP), CX\nMOVQ x+8(FP), SI\nMOVQ row+16(FP), R8\nMOVQ column+24(FP), R9\nMOVQ xs+32(FP), R10\nMOVQ d+40(FP), DI\nMOVQ drow+48(FP), R11\nMOVQ dcolumn+56(FP), R12\nMOVQ ds+64(FP), R13")
		g.ins("MOVQ mask+72(FP), DX\nKMOVW DX, K1\nSHRQ $16, DX\nKMOVW DX, K2\nVPXORD Z31, Z31, Z31\nTESTQ CX, CX\nJLE done\nPCALIGN $32")
	})
	g.label("tile")
	for half := range 2 {
		if half > 0 {
			g.ins("KORTESTW K2, K2\nJZ next") // there are up to 16 channels
		}
		g.block(fmt.Sprintf("WINOGRAD_%dx%d", p, q), func() { g.transformHalf(m, half) }, "mask", fmt.Sprintf("K%d", half+1), "off", 64*half)
	}
	g.label("next")
	g.ins("ADDQ R10, SI\nADDQ R13, DI\nDECQ CX\nJNZ tile")
	g.label("done")
	g.end()
}

// transformHalf transforms 16 channels.
func (g *gen) transformHalf(m [][]int, half int) {
	p, q := len(m), len(m[0])
	g.ins("LEAQ %d(SI), BX\nLEAQ %d(DI), AX", 64*half, 64*half)
	for column := range q {
		at := places("BX", "R8", q)
		if q > 3 {
			g.ins("LEAQ (BX)(R8*2), DX")
		}
		for row := range q {
			g.ins("VMOVUPS.Z %s, K%d, Z%d", at[row], half+1, 16+row)
		}
		g.block(fmt.Sprintf("WINOGRAD_COLUMN_%dx%d", p, q), func() {
			for i, factors := range m {
				g.combine(factors, func(row int) int { return 16 + row }, i*q+column)
			}
		})
		g.ins("ADDQ R9, BX")
	}
	for i := range p {
		at := places("AX", "R12", p)
		if p > 3 {
			g.ins("LEAQ (AX)(R12*2), DX")
		}
		for j, factors := range m {
			g.combine(factors, func(column int) int { return i*q + column }, 20+j)
			g.ins("VMOVUPS Z%d, K%d, %s", 20+j, half+1, at[j])
		}
		g.ins("ADDQ R11, AX")
	}
}

// places returns n addresses that are the register stride from base on. For the fourth, DX must
// point to the third.
func places(base, stride string, n int) []string {
	return []string{"(" + base + ")", "(" + base + ")(" + stride + "*1)", "(" + base + ")(" + stride + "*2)", "(DX)(" + stride + "*1)"}[:n]
}

// combine adds registers with factors 1, 0 and -1 in register d. Z31 is 0.
func (g *gen) combine(factors []int, reg func(i int) int, d int) {
	first := -1
	for i, f := range factors {
		if f > 0 {
			first = i
			break
		}
	}
	sum, terms := 31, []string{}
	if first >= 0 {
		sum = reg(first)
	}
	for i, f := range factors {
		if i == first || f == 0 {
			continue
		}
		ins := "VADDPS"
		if f < 0 {
			ins = "VSUBPS"
		}
		terms = append(terms, fmt.Sprintf("%s Z%d, Z%d, Z%d", ins, reg(i), sum, d))
		sum = d
	}
	if len(terms) == 0 {
		terms = append(terms, fmt.Sprintf("VMOVAPS Z%d, Z%d", sum, d))
	}
	g.ins("%s", strings.Join(terms, "\n"))
}
