package vec

import "github.com/mezzo-ml/mezzo/backend/cpu/internal/gen/arm64"

// On arm64 non-temporal stores are pairs with a hint. The hardware prefetcher continues across
// pages, so one stretch is enough.

// lines writes a loop over a number of bytes in a general register, a positive multiple of 64.
func (a *emitter) lines(label, bytes string, body func()) {
	a.label(label)
	body()
	a.line("SUBS $%d, %s", line, bytes)
	a.line("BNE %s", label)
}

// readLine loads 64 bytes from R1 on into V0 to V3 and moves R1.
func (a *emitter) readLine() { a.line("VLD1.P 64(R1), [V0.B16, V1.B16, V2.B16, V3.B16]") }

// writeLine stores V0 to V3 with the non-temporal hint, from R0 on, and moves R0.
func (a *emitter) writeLine() {
	a.line("%s", arm64.StorePair(0, 1, 0, 0))
	a.line("%s", arm64.StorePair(2, 3, 0, 32))
	a.line("ADD $%d, R0", line)
}

func prefetchLoadNEON(a *emitter) {
	a.line("MOVD src+0(FP), R1")
	a.line("MOVD n+8(FP), R2")
	a.line("CBZ R2, done")
	a.lines("lines", "R2", a.readLine)
	a.label("done")
	a.line("RET")
}

func prefetchRowsNEON(a *emitter) {
	a.arguments("src", "n", "rows", "step")
	a.label("row")
	a.line("MOVD $0, R4")
	a.label("lines")
	a.line("ADD R0, R4, R5")
	a.line("PRFM (R5), PLDL2KEEP")
	a.line("ADD $%d, R4", line)
	a.line("CMP R1, R4")
	a.line("BLT lines")
	a.line("ADD R3, R0")
	a.line("SUBS $1, R2")
	a.line("BNE row")
	a.line("RET")
}

func copyNTNEON(a *emitter) {
	a.arguments("dst", "src", "n")
	a.line("CBZ R2, done")
	a.lines("lines", "R2", func() {
		a.readLine()
		a.writeLine()
	})
	a.label("done")
	a.line("RET")
}

func fillNTNEON(a *emitter) {
	a.arguments("dst", "n")
	a.line("MOVWU x+16(FP), R2")
	for i := range 4 {
		a.line("VDUP R2, V%d.S4", i)
	}
	a.line("CBZ R1, done")
	a.lines("lines", "R1", a.writeLine)
	a.label("done")
	a.line("RET")
}

func copyRowsNTNEON(a *emitter) {
	a.arguments("dst", "src", "n", "rows", "to", "from")
	a.line("SUB R2, R4")
	a.line("SUB R2, R5")
	a.label("row")
	a.line("MOVD R2, R6")
	a.lines("lines", "R6", func() {
		a.readLine()
		a.writeLine()
	})
	a.line("ADD R4, R0")
	a.line("ADD R5, R1")
	a.line("SUBS $1, R3")
	a.line("BNE row")
	a.line("RET")
}

func fenceNEON(a *emitter) {
	a.line("DMB $0xb") // inner shareable
	a.line("RET")
}

func pauseNEON(a *emitter) {
	a.line("MOVD n+0(FP), R0")
	a.label("again")
	a.line("YIELD")
	a.line("SUBS $1, R0")
	a.line("BNE again")
	a.line("RET")
}
