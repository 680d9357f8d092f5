package gemm

// epilogueParams is the signature of an epilogue; package gemm
// documents it at its type Epilogue.
const epilogueParams = "rows int, d unsafe.Pointer, ldd int, y unsafe.Pointer, ldy int, mask uint"

// epilogues writes the epilogues of products for AVX-512.
func (g *gen) epilogues() {
	for _, f := range []struct {
		name, doc       string
		add, relu, grad bool
	}{
		{"reluAVX512", "is Relu: d[i*ldd+j] = 0 if d[i*ldd+j] < 0. It does not read y.", false, true, false},
		{"addAVX512", "is Add: d[i*ldd+j] += y[i*ldy+j].", true, false, false},
		{"addReluAVX512", "is AddRelu: d[i*ldd+j] += y[i*ldy+j], or = 0 if that is below 0.", true, true, false},
		{"reluGradAVX512", "is ReluGrad: d[i*ldd+j] = 0 unless y[i*ldy+j] > 0.", false, true, true},
	} {
		g.text(f.name, epilogueParams, f.doc)
		g.ins("MOVQ rows+0(FP), CX\nMOVQ d+8(FP), DI\nMOVQ ldd+16(FP), R8\nMOVQ y+24(FP), SI\nMOVQ ldy+32(FP), R9")
		g.ins("MOVQ mask+40(FP), DX\nKMOVW DX, K1\nSHRQ $16, DX\nKMOVW DX, K2\nVPXORD Z0, Z0, Z0")
		g.label("row")
		if f.grad {
			const greater = 0x1e // ordered, quiet
			g.ins("VMOVUPS.Z (SI), K1, Z1\nVMOVUPS.Z 64(SI), K2, Z2")
			g.ins("VCMPPS $%d, Z0, Z1, K1, K3\nVCMPPS $%d, Z0, Z2, K2, K4", greater, greater)
			g.ins("VMOVUPS.Z (DI), K3, Z1\nVMOVUPS.Z 64(DI), K4, Z2\nADDQ R9, SI")
		} else {
			// VMAXPS returns its second operand, the first in Go's order, if either is NaN or
			// both are 0.
			g.ins("VMOVUPS.Z (DI), K1, Z1\nVMOVUPS.Z 64(DI), K2, Z2")
			if f.add {
				g.ins("VADDPS (SI), Z1, K1, Z1\nVADDPS 64(SI), Z2, K2, Z2\nADDQ R9, SI")
			}
			if f.relu {
				g.ins("VMAXPS Z1, Z0, Z1\nVMAXPS Z2, Z0, Z2")
			}
		}
		g.ins("VMOVUPS Z1, K1, (DI)\nVMOVUPS Z2, K2, 64(DI)\nADDQ R8, DI\nDECQ CX\nJNZ row\nVZEROUPPER\nRET")
	}
	g.divide()
}

// divide divides by a number. If it is a power of two, as loss scales are, and its reciprocal
// is a normal number, it multiplies by the reciprocal, which gives the same bits.
func (g *gen) divide() {
	g.text("divideAVX512", epilogueParams, "is Divide: d[i*ldd+j] /= y[0].")
	g.ins("MOVQ rows+0(FP), CX\nMOVQ d+8(FP), DI\nMOVQ ldd+16(FP), R8\nMOVQ y+24(FP), SI")
	g.ins("MOVQ mask+40(FP), DX\nKMOVW DX, K1\nSHRQ $16, DX\nKMOVW DX, K2\nVBROADCASTSS (SI), Z0")
	g.ins("MOVL (SI), AX\nTESTL $0x7fffff, AX\nJNZ row") // a power of two has no bits but the exponent's
	g.ins("SHRL $23, AX\nANDL $0xff, AX\nDECL AX\nCMPL AX, $252\nJHI row")
	g.ins("MOVL $0x3f800000, AX\nVPBROADCASTD AX, Z1\nVDIVPS Z0, Z1, Z0")
	for _, by := range []struct{ label, op string }{{"product", "VMULPS"}, {"row", "VDIVPS"}} {
		g.label(by.label)
		g.ins("VMOVUPS.Z (DI), K1, Z1\nVMOVUPS.Z 64(DI), K2, Z2\n%[1]s Z0, Z1, Z1\n%[1]s Z0, Z2, Z2", by.op)
		g.ins("VMOVUPS Z1, K1, (DI)\nVMOVUPS Z2, K2, 64(DI)\nADDQ R8, DI\nDECQ CX\nJNZ %s\nVZEROUPPER\nRET", by.label)
	}
}
