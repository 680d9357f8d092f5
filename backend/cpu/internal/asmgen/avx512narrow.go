package asmgen

// narrowLanes writes the routine that brings 32 neighbouring float32 of rows to
// rows of 16-bit floats.
func (g *gen) narrowLanes(e element) {
	g.text("narrowLanes"+string(e)+"AVX512", packParams, "is NarrowLanes to "+string(e)+" for AVX-512.")
	g.ins("MOVQ d+0(FP), DI\nMOVQ ldd+8(FP), R9\nMOVQ s+16(FP), SI\nMOVQ lds+24(FP), R8\nMOVQ k+32(FP), CX\nMOVQ store+48(FP), BX")
	g.ins("KMOVD BX, K7\nKMOVW BX, K1\nSHRQ $16, BX\nKMOVW BX, K2\nTESTQ CX, CX\nJLE done")
	if e == brains {
		for i, c := range []uint32{0x7fff, 1, 1 << 16, 1 << 22} {
			g.ins("MOVL $0x%x, DX\nVPBROADCASTD DX, Z%d", c, 4+i)
		}
	}
	g.label("row")
	for v := range 2 {
		g.ins("VMOVUPS.Z %d(SI), K%d, Z%d", 64*v, v+1, v)
		if e == brains { // to nearest even; a NaN is made quiet
			g.ins("VCMPPS $7, Z%[1]d, Z%[1]d, K3\nVPTESTMD Z6, Z%[1]d, K3, K4\nKNOTW K3, K5\nVPADDD Z4, Z%[1]d, K3, Z%[1]d\nVPADDD Z5, Z%[1]d, K4, Z%[1]d\nVPORD Z7, Z%[1]d, K5, Z%[1]d\nVPSRLD $16, Z%[1]d, Z%[1]d\nVPMOVDW Z%[1]d, Y%[1]d", v)
		} else {
			g.ins("VCVTPS2PH $0, Z%[1]d, Y%[1]d", v)
		}
	}
	g.ins("VINSERTI64X4 $1, Y1, Z0, Z0\nVMOVDQU16 Z0, K7, (DI)\nADDQ R8, SI\nADDQ R9, DI\nDECQ CX\nJNZ row")
	g.label("done")
	g.ins("VZEROUPPER\nRET")
}
