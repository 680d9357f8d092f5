package gemm

import (
	"fmt"
	"strings"
)

// elementKind is an element type of operands.
type elementKind struct {
	name, doc string
	bytes     int // of an element
	load      func(address, k string, z int) string
}

// elementKinds are the element types of operands, with the load of 16 elements, or pairs,
// under mask k as 32-bit lanes: as float32, or as pairs.
var elementKinds = []elementKind{
	{"F32", "float32", 4, func(at, k string, z int) string { return fmt.Sprintf("VMOVUPS.Z %s, %s, Z%d", at, k, z) }},
	{"F16", "float16, made float32", 2, func(at, k string, z int) string { return fmt.Sprintf("VCVTPH2PS.Z %s, %s, Z%d", at, k, z) }},
	{"BF16", "bfloat16, made float32", 2, func(at, k string, z int) string {
		return fmt.Sprintf("VPMOVZXWD.Z %s, %s, Z%d\nVPSLLD $16, Z%d, Z%d", at, k, z, z, z)
	}},
}

// packedKinds are the element types that can be packed: also float32 that is rounded to
// float16.
var packedKinds = append(elementKinds[:len(elementKinds):len(elementKinds)], elementKind{"RoundF16", "float32, rounded to float16", 4, func(at, k string, z int) string {
	return fmt.Sprintf("VMOVUPS.Z %s, %s, Z%d\nVCVTPS2PH $0, Z%d, Y%d\nVCVTPH2PS Y%d, Z%d", at, k, z, z, z, z, z)
}})

const packParams = "d unsafe.Pointer, ldd int, s unsafe.Pointer, lds int, k int, load uint, store uint"

func (g *gen) packing() {
	for _, kind := range packedKinds {
		g.lanes("lanes"+kind.name+"AVX512", kind.doc, kind.bytes, kind.load)
	}
	g.lanePairs()
	for _, kind := range packedKinds {
		g.transpose("transpose"+kind.name+"AVX512", kind.doc, 16*kind.bytes, 16, kind.load)
	}
	g.transpose("transposePairsAVX512", "pairs of bfloat16", 64, 32, func(at, k string, z int) string {
		return fmt.Sprintf("VMOVDQU16.Z %s, %s, Z%d", at, k, z)
	})
}

// packMasks loads the masks of a packing routine: K1 and K2 for loads, K3 and K4 for stores.
func (g *gen) packMasks() {
	g.block("LOAD_PACK_ARGS", func() {
		g.ins("MOVQ d+0(FP), DI\nMOVQ ldd+8(FP), R9\nMOVQ s+16(FP), SI\nMOVQ lds+24(FP), R8\nMOVQ k+32(FP), CX\nMOVQ load+40(FP), AX\nMOVQ store+48(FP), BX")
		g.ins("KMOVW AX, K1\nSHRQ $16, AX\nKMOVW AX, K2\nKMOVW BX, K3\nSHRQ $16, BX\nKMOVW BX, K4")
	})
}

func (g *gen) lanes(name, doc string, bytes int, load func(at, k string, z int) string) {
	g.text(name, packParams, "packs "+doc+", from rows of lanes:\nd[p*ldd+j] = s[p*lds+j] for p < k and j in store, 0 where j is not in load.")
	g.packMasks()
	g.ins("TESTQ CX, CX\nJLE done\nKTESTW K4, K4\nJZ narrow")
	g.label("loop")
	g.ins("%s\n%s", load("(SI)", "K1", 0), load(fmt.Sprintf("%d(SI)", 16*bytes), "K2", 1))
	g.ins("ADDQ R8, SI\nVMOVUPS Z0, K3, (DI)\nVMOVUPS Z1, K4, 64(DI)\nADDQ R9, DI\nDECQ CX\nJNZ loop\nVZEROUPPER\nRET")
	g.label("narrow")
	g.ins("%s", load("(SI)", "K1", 0))
	g.ins("ADDQ R8, SI\nVMOVUPS Z0, K3, (DI)\nADDQ R9, DI\nDECQ CX\nJNZ narrow")
	g.label("done")
	g.end()
}

func (g *gen) lanePairs() {
	g.text("lanesPairsAVX512", packParams, "packs bfloat16 from rows of lanes, two rows to a row of pairs:\nd[p*ldd+2j] = s[2p*lds+j] and d[p*ldd+2j+1] = s[(2p+1)*lds+j] for 2p < k,\nwith 0 for row k.")
	g.packMasks()
	g.ins("LEAQ (R8)(R8*8), R10\nSUBQ $2, CX\nJLT tail")
	g.label("loop")
	for v := range 2 {
		g.ins("VPMOVZXWD.Z %d(SI), K%d, Z%d", 32*v, v+1, v)
		g.ins("VPMOVZXWD.Z %d(SI)(R8*1), K%d, Z%d", 32*v, v+1, 2+v)
		g.ins("VPSLLD $16, Z%[1]d, Z%[1]d\nVPORD Z%[1]d, Z%[2]d, Z%[2]d", 2+v, v)
		g.ins("VMOVDQU32 Z%d, K%d, %d(DI)", v, v+3, 64*v)
	}
	g.ins("PREFETCHT0 (SI)(R8*8)\nPREFETCHT0 (SI)(R10*1)") // the hardware prefetcher does not follow short rows
	g.ins("LEAQ (SI)(R8*2), SI\nADDQ R9, DI\nSUBQ $2, CX\nJGE loop")
	g.label("tail")
	g.ins("ADDQ $2, CX\nJLE done")
	for v := range 2 {
		g.ins("VPMOVZXWD.Z %d(SI), K%d, Z%d\nVMOVDQU32 Z%d, K%d, %d(DI)", 32*v, v+1, v, v, v+3, 64*v)
	}
	g.label("done")
	g.end()
}

// transpose packs up to 16 lanes that are separate rows, 16 elements of the inner dimension at
// a time: rows are loaded, transposed in registers and stored.
func (g *gen) transpose(name, doc string, rowBytes, elements int, load func(at, k string, z int) string) {
	perStep := elements / 16
	g.text(name, packParams, "packs "+doc+", from up to 16 lanes that lie apart:\nd[p*ldd+j] = s[j*lds+p] for j in store, 0 where j is not in load.")
	g.packMasks()
	g.block("BEGIN_TRANSPOSE", func() {
		g.ins("MOVQ load+40(FP), R10\nPOPCNTQ R10, R10") // number of lanes
		g.ins("MOVQ $-1, R11\nKMOVD R11, K1")
		g.ins("TESTQ CX, CX\nJLE done")
		g.label("block")
		// The last block loads only the existing elements.
		g.ins("CMPQ CX, $%d\nJGE whole", elements)
		g.ins("MOVQ $1, R11\nSHLQ CX, R11\nDECQ R11\nKMOVD R11, K1")
		g.label("whole")
		g.ins("MOVQ SI, DX")
	}, "elements", elements)
	g.sharedRows("ZERO_C", "x2", 8, func(i int) {
		for v := range 2 {
			g.ins("VPXORD Z%[1]d, Z%[1]d, Z%[1]d", 2*i+v)
		}
	})
	kind := strings.TrimSuffix(strings.TrimPrefix(name, "transpose"), "AVX512")
	for i := range 16 {
		g.block("LOAD_LANE_"+strings.ToUpper(kind), func() {
			g.ins("CMPQ R10, $%d\nJLE loaded\n%s\nADDQ R8, DX", i, load("(DX)", "K1", i))
		}, "lane", i, "z", fmt.Sprintf("Z%d", i), "y", fmt.Sprintf("Y%d", i))
	}
	g.label("loaded")
	g.block("TRANSPOSE_16x16", g.transpose16)
	g.block("STORE_ALL_LANES", func() {
		for p := range 15 {
			g.block("STORE_LANES", func() {
				g.ins("VMOVUPS Z%d, K3, (DI)\nADDQ R9, DI\nCMPQ CX, $%d\nJLE done", p, (p+1)*perStep)
			}, "z", fmt.Sprintf("Z%d", p), "next", (p+1)*perStep)
		}
		g.ins("VMOVUPS Z15, K3, (DI)\nADDQ R9, DI")
	}, "steps", perStep)
	g.ins("ADDQ $%d, SI\nSUBQ $%d, CX\nJG block", rowBytes, elements)
	g.label("done")
	g.end()
}

// transpose16 transposes Z0 to Z15; it uses the others.
func (g *gen) transpose16() {
	// Exchange elements between pairs of rows, then groups of four, then 128-bit quarters.
	for i := 0; i < 16; i += 2 {
		g.ins("VUNPCKLPS Z%d, Z%d, Z%d\nVUNPCKHPS Z%d, Z%d, Z%d", i+1, i, 16+i, i+1, i, 17+i)
	}
	for i := 0; i < 16; i += 4 {
		a, b, c, d := 16+i, 17+i, 18+i, 19+i
		g.ins("VUNPCKLPD Z%d, Z%d, Z%d\nVUNPCKHPD Z%d, Z%d, Z%d", c, a, i, c, a, i+1)
		g.ins("VUNPCKLPD Z%d, Z%d, Z%d\nVUNPCKHPD Z%d, Z%d, Z%d", d, b, i+2, d, b, i+3)
	}
	for j := range 4 {
		p := 16 + 4*j
		g.ins("VSHUFF32X4 $0x88, Z%d, Z%d, Z%d\nVSHUFF32X4 $0xdd, Z%d, Z%d, Z%d", 4+j, j, p, 4+j, j, p+1)
		g.ins("VSHUFF32X4 $0x88, Z%d, Z%d, Z%d\nVSHUFF32X4 $0xdd, Z%d, Z%d, Z%d", 12+j, 8+j, p+2, 12+j, 8+j, p+3)
	}
	for j := range 4 {
		p := 16 + 4*j
		g.ins("VSHUFF32X4 $0x88, Z%d, Z%d, Z%d\nVSHUFF32X4 $0x88, Z%d, Z%d, Z%d", p+2, p, j, p+3, p+1, 4+j)
		g.ins("VSHUFF32X4 $0xdd, Z%d, Z%d, Z%d\nVSHUFF32X4 $0xdd, Z%d, Z%d, Z%d", p+2, p, 8+j, p+3, p+1, 12+j)
	}
}
