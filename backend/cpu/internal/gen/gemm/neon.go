package gemm

import (
	"fmt"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/gen/asm"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/gen/arm64"
)

// neon writes the kernels for arm64: tiles of 8 rows and three vectors take 24 of the 32
// registers.
func neon() *gen {
	g := &gen{file: asm.NewFile("neon_arm64"), doc: "// Kernels for Advanced SIMD. Those on pairs need its products of bfloat16.\n\n"}
	const rows, vectors = 8, 3
	for _, kind := range []struct {
		name  string
		write func(name string, rows, vectors int, inner bool)
	}{{"f32", g.neonTile}, {"pairs", g.neonPairs}} {
		for _, inner := range []bool{false, true} {
			form := "Rows"
			if inner {
				form = "Inner"
			}
			name := func(mr int) string { return fmt.Sprintf("%sNEON%s%dx%d", kind.name, form, mr, 4*vectors) }
			for mr := 1; mr <= rows; mr++ {
				kind.write(name(mr), mr, vectors, inner)
			}
			g.table("Kernel", 1, fmt.Sprintf("%sNEON%s%d", kind.name, form, 4*vectors), rows, name)
		}
	}
	g.neonPeak("f32PeakNEON", "FMLA")
	g.neonPeak("pairsPeakNEON", "BFMMLA")
	g.neonPacking()
	g.neonVectorProducts()
	return g
}

// neonText begins a kernel.
func (g *gen) neonText(name string, rows, vectors int, inner bool) {
	how := "a[i*lda+p]"
	if inner {
		how = "a[p*lda+i]"
	}
	g.text(name, kernelParams, fmt.Sprintf("is a Kernel of %d rows and %d columns: Σ %s·b[p*ldb+j].", rows, 4*vectors, how))
}

// neonBegin loads the arguments of a kernel: R0 is the count, R1 and up point to A (to each
// row, or to the first), and R10 points to B.
func (g *gen) neonBegin(rows int, inner bool) {
	g.block("LOAD_ROWS_ARGS", func() {
		g.ins("MOVD k+0(FP), R0\nMOVD a+8(FP), R1\nMOVD lda+16(FP), R9\nMOVD b+24(FP), R10\nMOVD ldb+32(FP), R11")
	})
	if !inner {
		g.macro(fmt.Sprintf("POINT_ROWS_%d", rows), func() {
			for i := 1; i < rows; i++ {
				g.ins("ADD R9, R%d, R%d", i, i+1)
			}
		})
	}
}

// neonTile writes a kernel. V0 and up are the sums, V24 and up B, V27 and up elements of A,
// which products read by element: broadcasting them would compete with the multiplications on
// some processors.
func (g *gen) neonTile(name string, rows, vectors int, inner bool) {
	g.neonText(name, rows, vectors, inner)
	if inner { // the elements of A are loaded differently
		g.neonTileBody(rows, vectors, inner)
		return
	}
	g.block("KERNEL_ROWS", func() { g.neonTileBody(rows, vectors, inner) }, "point", fmt.Sprintf("POINT_ROWS_%d", rows), "zero", fmt.Sprintf("ZERO_V_%d", rows*vectors), "fma", fmt.Sprintf("FMA_ROWS_NEON_%d", rows), "add", fmt.Sprintf("ADD_S_%d", rows), "store", fmt.Sprintf("STORE_C_%d", rows))
}

func (g *gen) neonTileBody(rows, vectors int, inner bool) {
	g.neonBegin(rows, inner)
	g.neonZero(rows * vectors)
	group := func(first int) string { return fmt.Sprintf("[V%d.S4, V%d.S4, V%d.S4]", first, first+1, first+2) }
	g.ins("CBZ R0, sum")
	g.label("loop")
	g.ins("VLD1 (R10), %s\nADD R11, R10, R10", group(24))
	products := func(row, a, element int) {
		g.block("FMA_LANES", func() {
			for v := range vectors {
				g.ins("%s", arm64.ByElement(row*vectors+v, 24+v, a, element))
			}
		}, "a", a, "acc", row*vectors, "lane", element)
	}
	if inner {
		// Adjacent elements in registers of four, of two and of one.
		var counts []int
		for left := rows; left > 0; left -= counts[len(counts)-1] {
			counts = append(counts, map[int]int{1: 1, 2: 2, 3: 2}[left])
			if left >= 4 {
				counts[len(counts)-1] = 4
			}
		}
		first := 0
		for i, n := range counts {
			g.ins("%s %d(R1), F%d", map[int]string{1: "FMOVS", 2: "FMOVD", 4: "FMOVQ"}[n], 4*first, 27+i)
			first += n
		}
		g.ins("ADD R9, R1, R1")
		first = 0
		for i, n := range counts {
			for e := range n {
				products(first+e, 27+i, e)
			}
			first += n
		}
	} else {
		g.sharedRows("FMA_ROWS_NEON", "", rows, func(i int) {
			a := 27 + i%5
			g.block("FMA_ROW_NEON", func() {
				g.ins("FMOVS.P 4(R%d), F%d", i+1, a)
				products(i, a, 0)
			}, "row", fmt.Sprintf("R%d", i+1), "a", a, "fa", fmt.Sprintf("F%d", a), "acc", i*vectors)
		})
	}
	g.ins("SUBS $1, R0, R0\nBNE loop")
	g.block("END_C", func() {
		g.label("sum")
		g.ins("MOVD s+40(FP), R1\nCBZ R1, store\nMOVD lds+48(FP), R9")
		g.sharedRows("ADD_S", "", rows, func(i int) {
			g.block("ADD_S_ROW", func() {
				g.ins("VLD1 (R1), %s\nADD R9, R1, R1", group(24))
				for v := range vectors {
					acc := i*vectors + v
					g.ins("%s", arm64.Ins("FADD", acc, acc, 24+v))
				}
			}, "acc", i*vectors)
		})
		g.label("store")
		g.ins("MOVD d+56(FP), R1\nMOVD ldd+64(FP), R9")
		g.sharedRows("STORE_C", "", rows, func(i int) {
			g.ins("VST1 %s, (R1)\nADD R9, R1, R1", group(i*vectors))
		})
		g.ins("RET")
	}, "add", fmt.Sprintf("ADD_S_%d", rows), "store", fmt.Sprintf("STORE_C_%d", rows))
}

// neonZero clears the first n registers.
func (g *gen) neonZero(n int) {
	g.sharedRows("ZERO_V", "", n, func(i int) { g.ins("%s", arm64.Ins("EOR", i, i, i)) })
}

// neonPeak writes a loop of products on registers, to measure the peak rate.
func (g *gen) neonPeak(name, product string) {
	g.text(name, "n int", fmt.Sprintf("does n times 48 %s on registers.", product))
	g.ins("MOVD n+0(FP), R0")
	g.neonZero(32)
	g.label("loop")
	for i := range 48 {
		g.ins("%s", arm64.Ins(product, i%24, 24+i%3, 27+i%5))
	}
	g.ins("SUBS $1, R0, R0\nBNE loop\nRET")
}
