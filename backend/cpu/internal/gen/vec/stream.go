package vec

import "fmt"

// Kernels of this file copy bytes. Kernels that read go through eight stretches at the same
// time: the hardware prefetcher works within pages of 4 KiB only and starts again in each
// page, so a single stretch would not use the memory's bandwidth.
const (
	copyParams = "(dst, src unsafe.Pointer, n int)"
	fillParams = "(dst unsafe.Pointer, n int, x uint32)"
	line       = 64
)

var stretches = []string{"SI", "BX", "R8", "R9", "R10", "R11", "R12", "R13"}

// stretch writes the loop over n bytes from SI on, a line of each stretch at a time; body
// writes the code for a vector at an address of its stretch.
func (a *emitter) stretch(n string, body func(r reg, address string)) {
	a.op("MOVQ", n, "CX")
	a.op("SHRQ", 3, "CX")
	for i, r := range stretches[1:] {
		a.op("LEAQ", fmt.Sprintf("(%s)(CX*1)", stretches[i]), r)
	}
	a.op("SHRQ", 6, "CX")
	a.op("JZ", "done")
	a.label("lines")
	vector := 4 * a.lanes()
	for i, r := range stretches {
		for at := 0; at < line; at += vector {
			body(reg(i+at/vector*8), fmt.Sprintf("%d(%s)", at, r))
		}
	}
	for _, r := range stretches {
		a.op("ADDQ", line, r)
	}
	a.op("DECQ", "CX")
	a.op("JNZ", "lines")
	a.label("done")
}

func prefetchLoad(a *emitter) {
	if a.arm {
		prefetchLoadNEON(a)
		return
	}
	a.op("MOVQ", "src+0(FP)", "SI")
	a.stretch("n+8(FP)", func(r reg, address string) { a.op("VMOVUPS", address, r) })
	a.end()
}

// prefetch prefetches a line at a time.
func prefetch(a *emitter) {
	if a.arm {
		a.line("MOVD src+0(FP), R1")
		a.line("MOVD n+8(FP), R2")
		a.label("lines")
		a.line("SUBS $%d, R2", line)
		a.line("BLT done")
		a.line("PRFM (R1), PLDL1KEEP")
		a.line("ADD $%d, R1", line)
		a.line("B lines")
		a.label("done")
		a.line("RET")
		return
	}
	a.op("MOVQ", "src+0(FP)", "SI")
	a.op("MOVQ", "n+8(FP)", "CX")
	a.label("lines")
	a.op("SUBQ", line, "CX")
	a.op("JLT", "done")
	a.op("PREFETCHT0", "(SI)")
	a.op("ADDQ", line, "SI")
	a.op("JMP", "lines")
	a.label("done")
	a.op("RET")
}

// prefetchRows prefetches a line at a time, to L2.
func prefetchRows(a *emitter) {
	if a.arm {
		prefetchRowsNEON(a)
		return
	}
	a.op("MOVQ", "src+0(FP)", "SI")
	a.op("MOVQ", "n+8(FP)", "DX")
	a.op("MOVQ", "rows+16(FP)", "R8")
	a.op("MOVQ", "step+24(FP)", "R9")
	a.label("row")
	a.op("XORQ", "AX", "AX")
	a.label("lines")
	a.op("PREFETCHT1", "(SI)(AX*1)")
	a.op("ADDQ", line, "AX")
	a.op("CMPQ", "AX", "DX")
	a.op("JLT", "lines")
	a.op("ADDQ", "R9", "SI")
	a.op("DECQ", "R8")
	a.op("JNZ", "row")
	a.op("RET")
}

func copyNT(a *emitter) {
	if a.arm {
		copyNTNEON(a)
		return
	}
	a.op("MOVQ", "dst+0(FP)", "DI")
	a.op("MOVQ", "src+8(FP)", "SI")
	a.op("SUBQ", "SI", "DI")
	a.stretch("n+16(FP)", func(r reg, address string) {
		a.op("VMOVUPS", address, r)
		a.op("VMOVNTPS", r, address+"(DI*1)")
	})
	a.end()
}

func fillNT(a *emitter) {
	if a.arm {
		fillNTNEON(a)
		return
	}
	a.op("MOVQ", "dst+0(FP)", "DI")
	a.op("VBROADCASTSS", "x+16(FP)", reg(0))
	a.op("MOVQ", "n+8(FP)", "CX")
	a.op("SHRQ", 6, "CX")
	a.op("JZ", "done")
	a.label("lines")
	for at := 0; at < line; at += 4 * a.lanes() {
		a.op("VMOVNTPS", reg(0), fmt.Sprintf("%d(DI)", at))
	}
	a.op("ADDQ", line, "DI")
	a.op("DECQ", "CX")
	a.op("JNZ", "lines")
	a.label("done")
	a.end()
}

// copyRowsNT copies rows of whole lines.
func copyRowsNT(a *emitter) {
	if a.arm {
		copyRowsNTNEON(a)
		return
	}
	a.op("MOVQ", "dst+0(FP)", "DI")
	a.op("MOVQ", "src+8(FP)", "SI")
	a.op("MOVQ", "n+16(FP)", "CX")
	a.op("MOVQ", "rows+24(FP)", "DX")
	a.op("MOVQ", "to+32(FP)", "R8")
	a.op("MOVQ", "from+40(FP)", "R9")
	a.op("SUBQ", "CX", "R8")
	a.op("SUBQ", "CX", "R9")
	a.label("row")
	a.op("MOVQ", "CX", "AX")
	a.label("lines")
	for at := 0; at < line; at += 4 * a.lanes() {
		r := reg(at / (4 * a.lanes()))
		a.op("VMOVUPS", fmt.Sprintf("%d(SI)", at), r)
		a.op("VMOVNTPS", r, fmt.Sprintf("%d(DI)", at))
	}
	a.op("ADDQ", line, "SI")
	a.op("ADDQ", line, "DI")
	a.op("SUBQ", line, "AX")
	a.op("JNZ", "lines")
	a.op("ADDQ", "R8", "DI")
	a.op("ADDQ", "R9", "SI")
	a.op("DECQ", "DX")
	a.op("JNZ", "row")
	a.end()
}

// fence orders non-temporal stores before later stores.
func fence(a *emitter) {
	if a.arm {
		fenceNEON(a)
		return
	}
	a.op("SFENCE")
	a.op("RET")
}
