package gemm

import (
	"fmt"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/gen/arm64"
)

// The registers of neonPairs for pairs of columns of B, and those for A.
var (
	neonColumns = []int{30, 27, 24, 28, 25, 29}
	neonFree    = [2]int{26, 31}
)

// neonPairs writes a kernel on pairs. BFMMLA multiplies two rows of A by two columns of B,
// four elements of each: two pairs of the inner dimension at a time, which interleaving rows
// of B makes adjacent. A register from V0 on has the sums of two rows and two columns.
func (g *gen) neonPairs(name string, rows, vectors int, inner bool) {
	g.neonText(name, rows, vectors, inner)
	g.neonBegin(rows, inner)
	columns := 2 * vectors // pairs of columns
	g.neonZero((rows + 1) / 2 * columns)
	line := func(first int) string { return fmt.Sprintf("[V%d.S4, V%d.S4, V%d.S4]", first, first+1, first+2) }
	step := func(both bool) {
		load := "LOAD_B_LAST"
		if both {
			load = "LOAD_B_PAIRS"
		}
		g.block(load, func() {
			g.ins("VLD1 (R10), %s", line(24))
			if both {
				g.ins("ADD R11, R10\nVLD1 (R10), %s\nADD R11, R10", line(27))
			} else {
				for v := range vectors {
					g.ins("%s", arm64.Ins("EOR", 27+v, 27+v, 27+v))
				}
			}
			g.ins("%s\n%s", arm64.Ins("ZIP1", 30, 24, 27), arm64.Ins("ZIP2", 27, 24, 27))
			for v := 1; v < vectors; v++ {
				g.ins("%s\n%s", arm64.Ins("ZIP1", 23+v, 24+v, 27+v), arm64.Ins("ZIP2", 27+v, 24+v, 27+v))
			}
		})
		for i := 0; i < rows; i += 2 {
			a, n := neonFree[i/2%2], min(2, rows-i)
			name := fmt.Sprintf("PAIRS_ROWS_%d", n)
			if inner {
				a = neonFree[0]
				name += "_INNER"
			}
			if !both {
				name += "_LAST"
			}
			g.block(name, func() {
				if inner {
					g.neonInnerPairs(4*i, n, both)
				} else {
					g.neonRowPairs(a, i, n, both)
				}
				g.block("BFMMLA_ROWS", func() {
					for c := range columns {
						g.ins("%s", arm64.Ins("BFMMLA", i/2*columns+c, a, neonColumns[c]))
					}
				}, "a", a, "acc", i/2*columns)
			}, "a", a, "acc", i/2*columns, "at", 4*i)
		}
		if inner && both {
			g.ins("ADD R9<<1, R1")
		}
	}
	g.block("LOOP_OF_STEPS", func() {
		g.ins("SUBS $2, R0\nBLT tail")
		g.label("loop")
	})
	step(true)
	g.block("LAST_STEP", func() {
		g.ins("SUBS $2, R0\nBGE loop")
		g.label("tail")
		g.ins("ADDS $2, R0\nBEQ sum")
	})
	step(false)
	g.block(fmt.Sprintf("END_PAIRS_%d", rows), func() { g.neonPairsEnd(rows, vectors, columns, line) })
}

// neonPairsEnd adds s to the sums, stores them as rows, and returns.
func (g *gen) neonPairsEnd(rows, vectors, columns int, line func(first int) string) {
	g.label("sum")
	sums := func(i, v int) int { return i/2*columns + 2*v + i%2 }
	for i := 0; i < rows; i += 2 { // rows of four columns
		g.block("UNPAIR_TWO_ROWS", func() {
			for v := range vectors {
				x, y := sums(i, v), sums(i+1, v)
				g.block("UNPAIR", func() {
					g.ins("%s\n%s\n%s", arm64.Ins("TRN1.2D", 24, x, y), arm64.Ins("TRN2.2D", y, x, y), arm64.Move(x, 24))
				})
			}
		})
	}
	g.ins("MOVD s+40(FP), R1\nCBZ R1, store\nMOVD lds+48(FP), R9")
	g.rows("ADD_S_PAIRS_ROWS", rows, func(i int) {
		g.block("ADD_S_PAIRS", func() {
			g.ins("VLD1 (R1), %s\nADD R9, R1", line(24))
			for v := range vectors {
				g.ins("%s", arm64.Ins("FADD", sums(i, v), sums(i, v), 24+v))
			}
		}, "acc", sums(i, 0))
	})
	g.label("store")
	g.ins("MOVD d+56(FP), R1\nMOVD ldd+64(FP), R9")
	g.rows("STORE_PAIRS_ROWS", rows, func(i int) {
		g.block("STORE_PAIRS", func() {
			for v := range vectors {
				g.ins("FMOVQ F%d, %d(R1)", sums(i, v), 16*v)
			}
			g.ins("ADD R9, R1")
		})
	})
	g.ins("RET")
}

// neonRowPairs loads two pairs, or one and zeros, of row i of A and, if there are two rows, of
// the next.
func (g *gen) neonRowPairs(a, i, rows int, both bool) {
	if both {
		g.ins("FMOVD.P 8(R%d), F%d", i+1, a)
		if rows == 2 {
			g.ins("VLD1.P 8(R%d), V%d.D[1]", i+2, a)
		}
		return
	}
	g.ins("FMOVS (R%d), F%d", i+1, a)
	if rows == 2 {
		g.ins("VLD1 (R%d), V%d.S[2]", i+2, a)
	}
}

// neonInnerPairs is neonRowPairs for a transposed A, whose rows are adjacent.
func (g *gen) neonInnerPairs(offset, rows int, both bool) {
	a, b := neonFree[0], neonFree[1]
	load := map[int]string{1: "FMOVS", 2: "FMOVD"}[rows]
	g.ins("%s %d(R1), F%d", load, offset, a)
	if both {
		g.ins("ADD R9, R1, R12\n%s %d(R12), F%d", load, offset, b)
	} else {
		g.ins("%s", arm64.Ins("EOR", b, b, b))
	}
	g.ins("%s", arm64.Ins("ZIP1", a, a, b))
}
