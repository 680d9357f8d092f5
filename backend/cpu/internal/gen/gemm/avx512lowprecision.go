package gemm

import "fmt"

// lowPrecisionEpilogueParams is the signature of an epilogue of a product of 16 bits; package
// gemm documents it at its type LowPrecisionEpilogue.
const lowPrecisionEpilogueParams = "rows int, d unsafe.Pointer, ldd int, s unsafe.Pointer, lds int, y unsafe.Pointer, ldy int, mask uint"

// lowPrecisionEpilogues writes the epilogues of products of 16 bits for AVX-512. Whether a
// number is positive is decided on its 16 bits: positive numbers are from 1 to 0x7c00 in
// float16, to 0x7f80 in bfloat16, which leaves out NaN and both zeros.
func (g *gen) lowPrecisionEpilogues() {
	for _, e := range []element{float16s, bfloat16s} {
		largest := map[element]int{float16s: 0x7c00, bfloat16s: 0x7f80}[e]
		for _, f := range []struct {
			name, doc string
			relu, add bool
		}{
			{"epilogueAdd", "is Add to " + string(e) + ": d[i*ldd+j] = s[i*lds+j] + y[i*ldy+j].", false, true},
			{"epilogueAddRelu", "is AddRelu to " + string(e) + ": d[i*ldd+j] = max(0, s[i*lds+j] + y[i*ldy+j]).", true, true},
			{"epilogueGrad", "is Grad to " + string(e) + ": d[i*ldd+j] = s[i*lds+j] where y[i*ldy+j] > 0, else 0.", false, false},
		} {
			g.text(f.name+string(e)+"AVX512", lowPrecisionEpilogueParams, f.doc)
			g.block("LOAD_LOW_EPILOGUE", func() {
				g.ins("MOVQ rows+0(FP), CX\nMOVQ d+8(FP), DI\nMOVQ ldd+16(FP), R8\nMOVQ s+24(FP), SI\nMOVQ lds+32(FP), R9\nMOVQ y+40(FP), BX\nMOVQ ldy+48(FP), R10")
				g.ins("MOVQ mask+56(FP), DX\nKMOVD DX, K7\nKMOVW DX, K1\nSHRQ $16, DX\nKMOVW DX, K2")
			})
			if e == bfloat16s {
				g.bfloat16Constants(narrowConstants)
				g.ins("MOVL $0xffff0000, DX\nVPBROADCASTD DX, Z10")
			}
			least := 1 // the positive numbers are the words from least on
			if f.relu {
				least = 0x8001
			}
			g.ins("MOVL $0x%x, DX\nVPBROADCASTW DX, Z8\nMOVL $0x%x, DX\nVPBROADCASTW DX, Z9", least, largest-1)
			g.label("row")
			g.ins("VMOVUPS.Z (SI), K1, Z0\nVMOVUPS.Z 64(SI), K2, Z1\nADDQ R9, SI")
			if f.add {
				for v := range 2 {
					at, k := fmt.Sprintf("%d(BX)", 32*v), v+1
					if e == float16s {
						g.ins("VCVTPS2PH $0, Z%[1]d, Y%[1]d\nVCVTPH2PS Y%[1]d, Z%[1]d\nVCVTPH2PS.Z %[2]s, K%[3]d, Z%[4]d", v, at, k, 2+v)
					} else {
						g.roundBFloat16(v, narrowConstants)
						g.ins("VPANDD Z10, Z%[1]d, Z%[1]d\nVPMOVZXWD.Z %[2]s, K%[3]d, Z%[4]d\nVPSLLD $16, Z%[4]d, Z%[4]d", v, at, k, 2+v)
					}
					g.ins("VADDPS Z%[2]d, Z%[1]d, Z%[1]d", v, 2+v)
				}
			}
			if e == float16s {
				g.ins("VCVTPS2PH $0, Z0, Y0\nVCVTPS2PH $0, Z1, Y1\nVINSERTI64X4 $1, Y1, Z0, Z0")
			} else {
				g.narrowBFloat16()
			}
			const lessOrEqual, greater = 2, 6
			switch {
			case f.relu:
				g.ins("VPSUBW Z8, Z0, Z1\nVPCMPUW $%d, Z9, Z1, K3\nVMOVDQU16.Z Z0, K3, Z0", greater)
			case !f.add:
				g.ins("VMOVDQU16.Z (BX), K7, Z1\nVPSUBW Z8, Z1, Z1\nVPCMPUW $%d, Z9, Z1, K3\nVMOVDQU16.Z Z0, K3, Z0", lessOrEqual)
			}
			g.ins("VMOVDQU16 Z0, K7, (DI)\nADDQ R8, DI\nADDQ R10, BX\nDECQ CX\nJNZ row\nVZEROUPPER\nRET")
		}
	}
}
