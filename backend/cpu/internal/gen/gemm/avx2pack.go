package gemm

import "fmt"

// avx2Kinds are the loads of eight elements as float32.
var avx2Kinds = []struct {
	name, doc string
	bytes     int // of an element
	load      func(at string, y int) string
}{
	{"F32", "float32", 4, func(at string, y int) string { return fmt.Sprintf("VMOVUPS %s, Y%d", at, y) }},
	{"F16", "float16, made float32", 2, func(at string, y int) string { return fmt.Sprintf("VCVTPH2PS %s, Y%d", at, y) }},
	{"BF16", "bfloat16, made float32", 2, func(at string, y int) string {
		return fmt.Sprintf("VPMOVZXWD %s, Y%[2]d\nVPSLLD $16, Y%[2]d, Y%[2]d", at, y)
	}},
}

// avx2Packing writes the transposition of eight lanes at a time: squares of eight steps are
// transposed within the halves of registers, in pairs and then in fours of numbers, and the
// halves are exchanged at the end.
func (g *gen) avx2Packing() {
	rows := []string{"(SI)", "(SI)(R8*1)", "(SI)(R8*2)", "(SI)(R10*1)", "(BX)", "(BX)(R8*1)", "(BX)(R8*2)", "(BX)(R10*1)"}
	for _, kind := range avx2Kinds {
		g.text("transpose"+kind.name+"AVX2", "d unsafe.Pointer, ldd int, s unsafe.Pointer, lds int, k int",
			fmt.Sprintf("packs eight lanes of %s:\nd[p*ldd+j] = s[j*lds+p] for p < k, a multiple of 8.", kind.doc))
		g.block("LOAD_TRANSPOSE_ARGS", func() {
			g.ins("MOVQ d+0(FP), DI\nMOVQ ldd+8(FP), R9\nMOVQ s+16(FP), SI\nMOVQ lds+24(FP), R8\nMOVQ k+32(FP), CX")
			g.ins("TESTQ CX, CX\nJZ done\nLEAQ (R8)(R8*2), R10\nLEAQ (SI)(R8*4), BX\nLEAQ (R9)(R9*2), R11")
		})
		g.label("loop")
		for j, at := range rows {
			g.ins("%s", kind.load(at, j))
		}
		g.macro("TRANSPOSE_8_AVX2", func() {
			for j := 0; j < 8; j += 2 { // pairs: 8 to 15
				g.ins("VUNPCKLPS Y%[2]d, Y%[1]d, Y%[3]d\nVUNPCKHPS Y%[2]d, Y%[1]d, Y%[4]d", j, j+1, 8+j, 9+j)
			}
			for h := 0; h < 2; h++ { // fours: 0 to 7
				for i := range 2 {
					low, high, to := 8+4*h+i, 10+4*h+i, 4*h+2*i
					g.ins("VSHUFPS $0x44, Y%[2]d, Y%[1]d, Y%[3]d\nVSHUFPS $0xEE, Y%[2]d, Y%[1]d, Y%[4]d", low, high, to, to+1)
				}
			}
			for p := range 4 {
				g.ins("VPERM2F128 $0x20, Y%[2]d, Y%[1]d, Y%[3]d\nVPERM2F128 $0x31, Y%[2]d, Y%[1]d, Y%[4]d", p, 4+p, 8+p, 12+p)
			}
		})
		g.block("STORE_8_AVX2", func() {
			for h := range 2 {
				for i, at := range []string{"(DI)", "(DI)(R9*1)", "(DI)(R9*2)", "(DI)(R11*1)"} {
					g.ins("VMOVUPS Y%d, %s", 8+4*h+i, at)
				}
				g.ins("LEAQ (DI)(R9*4), DI")
			}
		})
		g.ins("ADDQ $%[1]d, SI\nADDQ $%[1]d, BX\nSUBQ $8, CX\nJNZ loop", 8*kind.bytes)
		g.label("done")
		g.end()
	}
}
