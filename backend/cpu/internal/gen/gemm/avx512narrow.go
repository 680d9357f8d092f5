package gemm

import (
	"fmt"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/gen/amd64"
)

// narrowLanes writes the routine that rounds 32 adjacent float32 of each row to a 16-bit type.
func (g *gen) narrowLanes(e element) {
	g.narrowStart("narrowLanes"+string(e)+"AVX512", "is NarrowLanes to "+string(e)+" for AVX-512.", e)
	if e == bfloat16s {
		g.narrowBFloat16()
	} else {
		g.ins("VCVTPS2PH $0, Z0, Y0\nVCVTPS2PH $0, Z1, Y1\nVINSERTI64X4 $1, Y1, Z0, Z0")
	}
	g.narrowEnd()
}

// narrowNative is narrowLanes to bfloat16 by the instruction for it, which flushes subnormal
// numbers to zero: rows with subnormal numbers are converted without it.
func (g *gen) narrowNative() {
	g.narrowStart("narrowLanesBF16AVX512BF16", "is NarrowLanes to BF16 for AVX512-BF16.", bfloat16s)
	g.ins("VFPCLASSPSZ $0x20, Z0, K3\nVFPCLASSPSZ $0x20, Z1, K4\nKORTESTW K3, K4\nJNZ subnormal")
	g.ins("%s", amd64.VCVTNE2PS2BF16(0, 1, 0))
	g.label("store")
	g.narrowEnd()
	g.label("subnormal")
	g.narrowBFloat16()
	g.ins("JMP store")
}

// narrowStart loads a row to Z0 and Z1; K7 masks what is stored.
func (g *gen) narrowStart(name, doc string, e element) {
	g.text(name, packParams, doc)
	g.ins("MOVQ d+0(FP), DI\nMOVQ ldd+8(FP), R9\nMOVQ s+16(FP), SI\nMOVQ lds+24(FP), R8\nMOVQ k+32(FP), CX\nMOVQ store+48(FP), BX")
	g.ins("KMOVD BX, K7\nKMOVW BX, K1\nSHRQ $16, BX\nKMOVW BX, K2\nTESTQ CX, CX\nJLE done")
	if e == bfloat16s {
		g.bfloat16Constants(narrowConstants)
	}
	g.label("row")
	g.ins("VMOVUPS.Z (SI), K1, Z0\nVMOVUPS.Z 64(SI), K2, Z1")
}

// bfloat16Constants loads the constants of roundBFloat16 to four registers from first on.
func (g *gen) bfloat16Constants(first int) {
	z := func(i int) string { return fmt.Sprintf("Z%d", first+i) }
	g.block("BF16_CONSTANTS", func() {
		for i, c := range []uint32{0x7fff, 1, 1 << 16, 1 << 22} {
			g.ins("MOVL $0x%x, DX\nVPBROADCASTD DX, %s", c, z(i))
		}
	}, "bias", z(0), "one", z(1), "odd", z(2), "quiet", z(3))
}

// roundBFloat16 rounds register v to nearest even; the result is in the upper half of each
// lane, and a NaN is made quiet. The constants are in registers from first on.
func (g *gen) roundBFloat16(v, first int) {
	z := func(i int) string { return fmt.Sprintf("Z%d", first+i) }
	g.block("ROUND_BF16", func() {
		g.ins("VCMPPS $7, Z%[1]d, Z%[1]d, K3\nVPTESTMD %[4]s, Z%[1]d, K3, K4\nKNOTW K3, K5\nVPADDD %[2]s, Z%[1]d, K3, Z%[1]d\nVPADDD %[3]s, Z%[1]d, K4, Z%[1]d\nVPORD %[5]s, Z%[1]d, K5, Z%[1]d", v, z(0), z(1), z(2), z(3))
	}, "z", fmt.Sprintf("Z%d", v), "bias", z(0), "one", z(1), "odd", z(2), "quiet", z(3))
}

// narrowConstants is the first register of the constants of narrowBFloat16.
const narrowConstants = 4

// narrowBFloat16 rounds Z0 and Z1 to Z0.
func (g *gen) narrowBFloat16() { g.block("NARROW_BF16", g.narrowBoth) }

func (g *gen) narrowBoth() {
	for v := range 2 {
		g.roundBFloat16(v, narrowConstants)
		g.ins("VPSRLD $16, Z%[1]d, Z%[1]d\nVPMOVDW Z%[1]d, Y%[1]d", v)
	}
	g.ins("VINSERTI64X4 $1, Y1, Z0, Z0")
}

// narrowEnd stores a row from Z0, goes to the next row, and returns after the last.
func (g *gen) narrowEnd() {
	g.ins("VMOVDQU16 Z0, K7, (DI)\nADDQ R8, SI\nADDQ R9, DI\nDECQ CX\nJNZ row")
	g.label("done")
	g.end()
}
