package gemm

import "fmt"

// element is the element type of loops over windows, in the names of loops: float32, or a
// 16-bit type that is converted to float32 in registers.
type element string

const (
	float32s  element = "F32"
	float16s  element = "F16"
	bfloat16s element = "BF16"
)

// loadHalf loads the 16 channels of a mask into a register as float32.
func (g *gen) loadHalf(e element, half int, from string, mask, to int) {
	g.block("LOAD_"+string(e), func() { g.loadLanes(e, half, from, mask, to) }, "mask", fmt.Sprintf("K%d", mask), "to", fmt.Sprintf("Z%d", to))
}

func (g *gen) loadLanes(e element, half int, from string, mask, to int) {
	switch e {
	case float32s:
		g.ins("VMOVUPS.Z %d%s, K%d, Z%d", 64*half, from, mask, to)
	case float16s:
		g.ins("VCVTPH2PS.Z %d%s, K%d, Z%d", 32*half, from, mask, to)
	case bfloat16s:
		g.ins("VPMOVZXWD.Z %[1]d%[2]s, K%[3]d, Z%[4]d\nVPSLLD $16, Z%[4]d, Z%[4]d", 32*half, from, mask, to)
	}
}

// prefetchPixel prefetches the pixel that is prefetchDistancePool bytes after an address.
func (g *gen) prefetchPixel(e element, at string) {
	g.ins("PREFETCHT0 %d%s", prefetchDistancePool, at)
	if e == float32s {
		g.ins("PREFETCHT0 %d%s", prefetchDistancePool+64, at)
	}
}

// poolStart is windowsStart with K7 for all channels.
func (g *gen) poolStart() {
	g.windowsStart()
	g.ins("KMOVD mask+72(FP), K7\nTESTQ CX, CX\nJLE done")
}

// prefetchDistancePool is the distance in bytes at which pixels are prefetched: rows are about
// as long as pages, and the hardware prefetcher stops at the end of a page.
const prefetchDistancePool = 2048

// maxima computes the maxima of a pixel's window in Z0 and Z1. Z8 has the least number.
func (g *gen) maxima(e element) {
	g.block("MAXPOOL_WINDOW_"+string(e), func() { g.maximaOf(e) })
}

func (g *gen) maximaOf(e element) {
	g.ins("VMOVAPS Z8, Z0\nVMOVAPS Z8, Z1\nMOVQ AX, DX\nMOVQ R8, R12\nTESTQ DX, DX\nJZ most")
	g.label("tap")
	g.ins("MOVQ (R12), R13\nADDQ $8, R12")
	g.prefetchPixel(e, "(SI)(R13*1)")
	for i := range 2 {
		// VMAXPS returns the operand that is first in Go's order if one is NaN: a NaN in the
		// maximum stays, and a NaN of the window is blended in.
		g.loadHalf(e, i, "(SI)(R13*1)", i+1, 2+i)
		g.block("MAX_FIRST_NAN", func() {
			g.ins("VCMPPS $3, Z%[1]d, Z%[1]d, K3\nVCMPPS $3, Z%[2]d, Z%[2]d, K4\nVMAXPS Z%[2]d, Z%[1]d, Z%[2]d", 2+i, i)
			g.ins("KANDNW K3, K4, K3\nVMOVAPS Z%d, K3, Z%d", 2+i, i)
		}, "x", fmt.Sprintf("Z%d", 2+i), "most", fmt.Sprintf("Z%d", i))
	}
	g.ins("DECQ DX\nJNZ tap")
	g.label("most")
}

// maxPool computes the maxima of a pixel's window, 32 channels at a time.
func (g *gen) maxPool(e element) {
	g.text("maxPool"+string(e)+"AVX512", windowsParams, "is MaxPool of 32 channels of "+string(e)+" for AVX-512.")
	g.poolStart()
	g.ins("MOVL $0xff800000, DX\nVPBROADCASTD DX, Z8")
	g.fourTaps(e, func() {
		g.storeRegisters(e, 9)
		g.ins("ADDQ R9, SI\nADDQ R11, DI")
	})
	g.label("pixel")
	g.maxima(e)
	g.storeRegisters(e, 0)
	g.ins("ADDQ R9, SI\nADDQ R11, DI\nDECQ CX\nJNZ pixel")
	g.label("done")
	g.end()
}

// storeRegisters stores registers z and z+1.
func (g *gen) storeRegisters(e element, z int) {
	g.block("STORE_"+string(e), func() { g.storeLanes(e, z) }, "low", fmt.Sprintf("Z%d", z), "high", fmt.Sprintf("Z%d", z+1))
}

func (g *gen) storeLanes(e element, z int) {
	switch e {
	case float32s:
		g.ins("VMOVUPS Z%d, K1, (DI)\nVMOVUPS Z%d, K2, 64(DI)", z, z+1)
		return
	case float16s:
		g.ins("VCVTPS2PH $0, Z%[1]d, Y%[1]d\nVCVTPS2PH $0, Z%[2]d, Y%[2]d", z, z+1)
	case bfloat16s: // whose lower half is zero
		g.ins("VPSRLD $16, Z%[1]d, Z%[1]d\nVPSRLD $16, Z%[2]d, Z%[2]d\nVPMOVDW Z%[1]d, Y%[1]d\nVPMOVDW Z%[2]d, Y%[2]d", z, z+1)
	}
	g.ins("VINSERTI64X4 $1, Y%[2]d, Z%[1]d, Z%[1]d\nVMOVDQU16 Z%[1]d, K7, (DI)", z, z+1)
}

// The elements of a window of four have their offsets in registers.
var fourPlaces = []string{"(R10*1)", "(R12*1)", "(R13*1)", "(R14*1)"}

// fourTaps computes windows of four elements, which are in Z0 to Z7, up to the first window
// with a NaN; the caller computes the rest. For each window then uses the maxima in Z9 and Z10
// and goes to the next window.
func (g *gen) fourTaps(e element, then func()) {
	g.block("LOAD_FOUR_PLACES", func() {
		g.ins("CMPQ AX, $4\nJNE pixel\nMOVQ (R8), R10\nMOVQ 8(R8), R12\nMOVQ 16(R8), R13\nMOVQ 24(R8), R14")
	})
	g.label("four")
	g.block("MAXPOOL_FOUR_"+string(e), func() { g.fourOf(e) })
	then()
	g.ins("DECQ CX\nJNZ four\nJMP done")
}

func (g *gen) fourOf(e element) {
	for i := range 2 {
		for t, at := range fourPlaces {
			if i == 0 {
				g.prefetchPixel(e, "(SI)"+at)
			}
			g.loadHalf(e, i, "(SI)"+at, i+1, 4*i+t)
		}
		g.ins("VCMPPS $3, Z%d, Z%d, K%d\nVCMPPS $3, Z%d, Z%d, K%d", 4*i, 4*i+1, 3+2*i, 4*i+2, 4*i+3, 4+2*i)
		// For two zeros VMAXPS returns the operand that is first in Go's order.
		g.ins("VMAXPS Z%d, Z%d, Z%d\nVMAXPS Z%d, Z%d, Z11\nVMAXPS Z%[3]d, Z11, Z%[3]d", 4*i, 4*i+1, 9+i, 4*i+2, 4*i+3)
	}
	g.ins("KORW K3, K4, K3\nKORW K5, K6, K5\nKORTESTW K3, K5\nJNZ pixel")
}

// giveFour distributes the gradient of a window: the first element that is the maximum gets
// the gradient.
func (g *gen) giveFour(e element, positive bool) {
	if e == float32s {
		g.ins("VMOVUPS.Z (BX), K1, Z12\nVMOVUPS.Z 64(BX), K2, Z13")
	} else {
		g.ins("VMOVDQU16.Z (BX), K7, Z12")
	}
	for i := range 2 {
		if positive {
			g.ins("VCMPPS $14, Z8, Z%d, K%d, K%d", 9+i, i+1, 5+i)
		} else {
			g.ins("KMOVW K%d, K%d", i+1, 5+i)
		}
	}
	for t, at := range fourPlaces {
		g.prefetchPixel(e, "(DI)"+at)
		last := ""
		if t == len(fourPlaces)-1 {
			last = "_LAST"
		}
		g.block("GIVE_GRAD_"+string(e)+last, func() { g.giveOne(e, t, at) })
	}
	g.ins("ADDQ R9, SI\nADDQ R11, DI\nADDQ ys+48(FP), BX")
}

// giveOne writes the gradient to element t of a window where that is the first maximum, else 0.
func (g *gen) giveOne(e element, t int, at string) {
	for i := range 2 {
		g.ins("VCMPPS $0, Z%d, Z%d, K%d, K%d", 4*i+t, 9+i, 5+i, 3+i)
		if t < len(fourPlaces)-1 {
			g.ins("KANDNW K%[1]d, K%[2]d, K%[1]d", 5+i, 3+i)
		}
		if e == float32s {
			g.ins("VMOVAPS.Z Z%d, K%d, Z%d\nVMOVUPS Z%[3]d, K%[4]d, %[5]d(DI)%[6]s", 12+i, 3+i, 14+i, i+1, 64*i, at)
		}
	}
	if e != float32s {
		g.ins("KUNPCKWD K3, K4, K3\nVMOVDQU16.Z Z12, K3, Z14\nVMOVDQU16 Z14, K7, (DI)%s", at)
	}
}

// maxPoolGrad writes the gradient of a window to its first maximal element and 0 to the others,
// with positive only if the maximum is positive. With add it adds the gradient to the element.
// 16-bit gradients are copied without conversion.
func (g *gen) maxPoolGrad(e element, positive, add bool) {
	name := "MaxPoolGrad"
	switch {
	case positive:
		name = "ReluMaxPoolGrad"
	case add:
		name = "MaxPoolGradAdd"
	}
	g.text(string(name[0]|0x20)+name[1:]+string(e)+"AVX512", windowsParams, "is "+name+" of 32 channels of "+string(e)+" for AVX-512.")
	g.poolStart()
	if positive {
		g.ins("VPXORD Z8, Z8, Z8")
	} else {
		g.ins("MOVL $0xff800000, DX\nVPBROADCASTD DX, Z8")
	}
	if !add {
		g.fourTaps(e, func() { g.giveFour(e, positive) })
	}
	g.label("pixel")
	g.maxima(e)
	if e == float32s {
		g.ins("VMOVUPS.Z (BX), K1, Z4\nVMOVUPS.Z 64(BX), K2, Z5")
	} else {
		g.ins("VMOVDQU16.Z (BX), K7, Z4")
	}
	for i := range 2 { // the gradient that is not yet distributed
		if positive {
			g.ins("VCMPPS $14, Z8, Z%d, K%d, K%d", i, i+1, 5+i)
		} else {
			g.ins("KMOVW K%d, K%d", i+1, 5+i)
		}
	}
	g.block("BEGIN_GIVE", func() {
		g.ins("MOVQ AX, DX\nMOVQ R8, R12\nTESTQ DX, DX\nJZ next")
		g.label("give")
		g.ins("MOVQ (R12), R13\nADDQ $8, R12\nLEAQ (DI)(R13*1), R10")
	})
	g.prefetchPixel(e, "(R10)")
	for i := range 2 {
		left, takes := 5+i, 3+i
		g.loadHalf(e, i, "(SI)(R13*1)", i+1, 2+i)
		g.ins("VCMPPS $0, Z%d, Z%d, K%d", 2+i, i, takes)
		if !positive {
			g.ins("VCMPPS $3, Z%[1]d, Z%[1]d, K0\nKORW K0, K%[2]d, K%[2]d", 2+i, takes)
		}
		g.ins("KANDW K%[1]d, K%[2]d, K%[2]d\nKANDNW K%[1]d, K%[2]d, K%[1]d", left, takes)
		switch {
		case e != float32s:
		case add:
			g.ins("VMOVUPS.Z %[1]d(R10), K%[4]d, Z%[2]d\nVADDPS Z%[3]d, Z%[2]d, Z%[2]d\nVMOVUPS Z%[2]d, K%[4]d, %[1]d(R10)", 64*i, 6+i, 4+i, takes)
		default:
			g.ins("VMOVAPS.Z Z%d, K%d, Z%d\nVMOVUPS Z%d, K%d, %d(R10)", 4+i, takes, 6+i, 6+i, i+1, 64*i)
		}
	}
	if e != float32s {
		g.ins("KUNPCKWD K3, K4, K3\nVMOVDQU16.Z Z4, K3, Z6\nVMOVDQU16 Z6, K7, (R10)")
	}
	g.block("NEXT_GIVE", func() {
		g.ins("DECQ DX\nJNZ give")
		g.label("next")
		g.ins("ADDQ R9, SI\nADDQ R11, DI\nADDQ ys+48(FP), BX\nDECQ CX\nJNZ pixel")
		g.label("done")
		g.end()
	})
}
