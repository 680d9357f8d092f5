package vec

import "fmt"

// cellPointers are the registers of a cell's operands; R19 counts rows, R20 the elements of a
// row; R21 and R22 have the list and the number of elements.
var cellPointers = []string{"R0", "R1", "R2", "R3", "R4", "R5", "R6", "R7", "R8", "R10", "R11", "R12"}

// writeNEON writes a cell, for whole vectors.
func (c cell) writeNEON(a *emitter, at map[string]int, elems []elem) {
	address := func(i int) string { return fmt.Sprintf("(%s)", cellPointers[i]) }
	v := cellAt{
		load: func(name string, to reg) {
			e := elems[at[name]]
			a.macro("LOAD_ELEMENTS_"+elemNames[e], func() { a.element(e, address(at[name]), int(to), 0) },
				"from", address(at[name]), "to", to, "f", fmt.Sprintf("F%d", to), "n", int(to))
		},
		store: func(from reg, name string) {
			i := at[name]
			a.block("STORE_ELEMENTS_"+elemNames[elems[i]], func() { a.storeNEON(elems[i], from, address(i)) },
				"from", from, "to", address(i), "f", fmt.Sprintf("F%d", from), "n", int(from))
		},
	}
	a.framed(func() {
		a.line("MOVD p+0(FP), R21")
		a.line("MOVD rows+8(FP), R19")
		a.line("MOVD n+16(FP), R22")
	}, func() {
		a.label("row")
		a.line("SUB $1, R19")
		a.block(fmt.Sprintf("POINT_OPERANDS_%d", len(c.operands)), func() {
			for i := range c.operands {
				a.block("POINT_OPERAND", func() {
					a.line("MOVD %d(R21), %s", 16*i, cellPointers[i])
					a.line("MOVD %d(R21), R20", 16*i+8)
					a.line("MADD R19, %s, R20, %[1]s", cellPointers[i])
				}, "place", 16*i, "to", cellPointers[i])
			}
		})
		a.line("MOVD R22, R20")
		a.label("loop")
		a.block(macroName(c.name)+"_CELL", func() { c.body(a, v) })
		a.block(fmt.Sprintf("ADVANCE_OPERANDS_%s", macroName(c.name)), func() {
			for i, p := range cellPointers[:len(c.operands)] {
				a.line("ADD $%d, %s", 4*elems[i].size(), p)
			}
		})
		a.line("SUBS $4, R20")
		a.line("BNE loop")
		a.line("CBNZ R19, row")
		a.line("RET")
	})
}
