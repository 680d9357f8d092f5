package vec

import (
	"fmt"
	"strings"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/gen/arm64"
)

// columnsNEON is columns: 16 columns at a time, then 4, then one.
func columnsNEON(a *emitter, from elem, join string) {
	size, fours := from.size(), join == "" && from != f32
	a.framed(func() { a.arguments("acc", "x", "n", "rows", "stride") }, func() {
		a.line("LSL $%d, R4", map[int]int{2: 1, 4: 2}[size])
		for _, width := range []int{16, 4, 1} {
			a.rest = width == 1
			l := fmt.Sprint(width)
			vectors := max(width/4, 1)
			accs := func(write bool) {
				if a.rest {
					a.line("%s", map[bool]string{false: "FMOVD (R0), F4", true: "FMOVD F4, (R0)"}[write])
					return
				}
				name := fmt.Sprintf("LOAD_SUMS_%d", vectors)
				if write {
					name = fmt.Sprintf("WRITE_SUMS_%d", vectors)
				}
				a.block(name, func() {
					for i := range 2 * vectors {
						at, r := fmt.Sprintf("%d(R0)", 16*i), reg(4+i)
						if write {
							a.op("VMOVUPS", r, at)
						} else {
							a.op("VMOVUPS", at, r)
						}
					}
				})
			}
			each := func(kind string, step func(v int)) {
				for v := range vectors {
					a.block("JOIN_COLUMNS_"+joinName(join)+"_"+kind, func() {
						step(v)
						widen(a)
						a.joinDouble(join, 1, reg(4+2*v))
						a.joinDouble(join, 2, reg(5+2*v))
					})
				}
			}
			a.block("BEGIN_COLUMNS_"+l, func() {
				a.label("columns" + l)
				a.line("SUBS $%d, R2", width)
				a.line("BLT less%s", l)
				accs(false)
				a.line("MOVD R1, R5")
				a.line("MOVD R3, R6")
			})
			if fours {
				a.line("SUBS $4, R6")
				a.line("BLT few%s", l)
				a.label("four" + l)
				a.line("ADD R4, R5, R10")
				a.line("ADD R4, R10, R11")
				a.line("ADD R4, R11, R12")
				each(elemNames[from]+"_FOUR", func(v int) {
					var addresses []string
					for _, p := range []string{"R5", "R10", "R11", "R12"} {
						addresses = append(addresses, fmt.Sprintf("%d(%s)", 4*size*v, p))
					}
					a.sumOfFour(from, addresses)
				})
				a.block("NEXT_FOUR_ROWS", func() {
					a.line("ADD R4, R12, R5")
					a.line("SUBS $4, R6")
					a.line("BGE four%s", l)
					a.label("few" + l)
					a.line("ADDS $4, R6")
					a.line("BEQ write%s", l)
				})
			}
			a.label("rows" + l)
			kind := elemNames[from]
			if a.rest {
				kind += "_REST"
			}
			each(kind, func(v int) { a.element(from, fmt.Sprintf("%d(R5)", 4*size*v), 0, 0) })
			a.block("NEXT_COLUMNS_"+l, func() {
				a.line("ADD R4, R5")
				a.line("SUBS $1, R6")
				a.line("BNE rows%s", l)
				a.label("write" + l)
				accs(true)
				a.line("ADD $%d, R0", 8*width)
				a.line("ADD $%d, R1", size*width)
				a.line("B columns%s", l)
				a.label("less" + l)
				a.line("ADD $%d, R2", width)
			}, "size", size)
		}
		a.rest = false
		a.line("RET")
	})
}

// joinDoubleNEON is joinDouble: it takes x where x is larger (or smaller) or NaN.
func (a *emitter) joinDoubleNEON(join string, x, to int) {
	if join == "" {
		a.ins("FADD.2D", to, to, x)
		return
	}
	a.block("JOIN_"+joinName(join), func() { a.joinOneNEON(join, x, to) })
}

func (a *emitter) joinOneNEON(join string, x, to int) {
	const beyond, number = scratch, scratch + 1
	if join == "VMAXPD" {
		a.ins("FCMGT.2D", beyond, x, to)
	} else {
		a.ins("FCMGT.2D", beyond, to, x)
	}
	a.ins("FCMEQ.2D", number, x, x)
	a.ins("MVN", number, number)
	a.ins("ORR", beyond, beyond, number)
	a.ins("BIT", to, x, beyond)
}

// foldRowsNEON is foldRows, one row after the other.
func foldRowsNEON(a *emitter, join string) {
	neutral := map[string]uint32{"": 0, "VMAXPD": minusInf, "VMINPD": plusInf}[join]
	single := strings.TrimSuffix(join, "D") + "S"
	a.framed(func() { a.arguments("dst", "x", "n", "rows") }, func() {
		body := func() {
			a.element(f32, "(R1)", 0, neutral)
			if join == "" {
				widen(a)
				addDouble(a, 4, 5)
			} else {
				orderStep(a, single, 4)
			}
			if a.rest {
				a.line("ADD $4, R1")
			} else {
				a.line("ADD $16, R1")
			}
		}
		a.op("VPXOR", mask(1), mask(1), mask(1))
		a.label("row")
		for _, r := range []reg{4, 5} {
			a.op("VMOVUPS", bits(neutral), r)
		}
		a.line("SUBS $4, R2, R8")
		a.line("BLT rest")
		a.label("loop")
		body()
		a.line("SUBS $4, R8")
		a.line("BGE loop")
		a.label("rest")
		a.line("ADDS $4, R8")
		a.line("BEQ end")
		a.label("last")
		a.rest = true
		body()
		a.rest = false
		a.line("SUBS $1, R8")
		a.line("BNE last")
		a.label("end")
		if join == "" {
			a.ins("FADD.2D", 4, 4, 5)
			a.ins("FADDP.D", 4, 4)
		} else {
			across(a, single, 4, 5)
			a.line("FCVTSD F4, F4")
		}
		a.line("FMOVD.P F4, 8(R0)")
		a.line("SUBS $1, R3")
		a.line("BNE row")
		a.anyLane(1, "R10")
		a.line("MOVWU R10, R10")
		a.line("MOVD R10, ret+32(FP)")
		a.line("RET")
	})
}

// philoxNEON computes a block in each lane, with its words in four registers, which store
// writes to R0. store may change them and registers 24 to 27; constants must fill register 18
// and those from 20 to 23.
func philoxNEON(a *emitter, name string, constants func(), store func(c int)) {
	const (
		counter, key0, key1, c1  = 0, 1, 2, 11 // c2 and c3 follow
		m0, m1, w0, w1           = 14, 15, 16, 17
		groupStep, groups, first = 19, 2, 3
		low0, high0, low1, high1 = 24, 25, 26, 27
	)
	lane := a.vector([]uint32{0, 1, 2, 3})
	dup := func(name string, offset, to int) {
		a.line("MOVWU %s+%d(FP), R2", name, offset)
		a.line("VDUP R2, V%d.S4", to)
	}
	before := func() {
		a.line("MOVD dst+0(FP), R0")
		a.line("MOVD n+8(FP), R1")
		a.line("MOVD $%s, R3", lane)
		a.line("FMOVQ (R3), F%d", groupStep)
		dup("first", 16, counter)
		a.ins("ADD", counter, counter, groupStep)
		dup("c1", 28, c1)
		dup("c2", 32, c1+1)
		dup("c3", 36, c1+2)
	}
	a.framed(before, func() {
		a.into(bits(0xD2511F53), m0)
		a.into(bits(0xCD9E8D57), m1)
		a.into(bits(0x9E3779B9), w0)
		a.into(bits(0xBB67AE85), w1)
		constants()
		a.into(bits(4), groupStep)
		a.label("blocks")
		dup("k0", 20, key0)
		dup("k1", 24, key1)
		for g := range groups {
			c := first + 4*g
			a.into(reg(counter), c)
			a.ins("ADD", counter, counter, groupStep)
			for i := range 3 {
				a.into(reg(c1+i), c+1+i)
			}
		}
		a.block("PHILOX_ROUNDS", func() {
			for round := range 10 {
				for g := range groups {
					c := first + 4*g
					a.block("PHILOX_ROUND", func() {
						a.ins("UMULL", low0, c, m0)
						a.ins("UMULL2", high0, c, m0)
						a.ins("UMULL", low1, c+2, m1)
						a.ins("UMULL2", high1, c+2, m1)
						a.ins("UZP2", c, low1, high1)
						a.ins("EOR", c, c, c+1)
						a.ins("EOR", c, c, key0)
						a.ins("UZP1", c+1, low1, high1)
						a.ins("UZP2", c+2, low0, high0)
						a.ins("EOR", c+2, c+2, c+3)
						a.ins("EOR", c+2, c+2, key1)
						a.ins("UZP1", c+3, low0, high0)
					}, "c0", reg(c), "c1", reg(c+1), "c2", reg(c+2), "c3", reg(c+3))
				}
				if round < 9 {
					a.block("NEXT_KEYS", func() {
						a.ins("ADD", key0, key0, w0)
						a.ins("ADD", key1, key1, w1)
					})
				}
			}
		})
		for g := range groups {
			a.block(name, func() { store(first + 4*g) })
		}
		a.line("SUBS $%d, R1", 4*groups)
		a.line("BNE blocks")
		a.line("RET")
	})
}

// philoxNumbersNEON makes numbers of words; an interleaving store puts them in order.
func philoxNumbersNEON(a *emitter) {
	const scale = 18
	philoxNEON(a, "STORE_NUMBERS", func() { a.into(num(0x1p-24), scale) }, func(c int) {
		for i := range 4 {
			a.line("%s", arm64.Shift("USHR", c+i, c+i, 8))
			a.ins("SCVTF", c+i, c+i)
			a.ins("FMUL", c+i, c+i, scale)
		}
		a.line("VST4.P [V%d.S4, V%d.S4, V%d.S4, V%d.S4], 64(R0)", c, c+1, c+2, c+3)
	})
}

// philox16NEON makes numbers of the 16-bit halves of words.
func philox16NEON(a *emitter) {
	const scale = 18
	philoxNEON(a, "STORE_16_BITS", func() { a.into(num(0x1p-16), scale) }, func(c int) {
		eachBlockNEON(a, "STORE_16_BITS", c, func() {
			a.line("%s", arm64.Shift("USHR", c+1, c, 16))
			a.line("%s", arm64.Shift("SHL", c, c, 16))
			a.line("%s", arm64.Shift("USHR", c, c, 16))
			for i := range 2 {
				a.ins("SCVTF", c+i, c+i)
				a.ins("FMUL", c+i, c+i, scale)
			}
			a.line("VST2.P [V%d.S4, V%d.S4], 32(R0)", c, c+1)
		})
	})
}

// philoxAtLeastNEON compares the 16-bit halves of words with a bound.
func philoxAtLeastNEON(a *emitter) {
	const bound, yes = 18, 20
	philoxNEON(a, "STORE_AT_LEAST", func() {
		a.line("MOVWU bound+40(FP), R2")
		a.line("VDUP R2, V%d.S4", bound)
		a.into(bits(0x01010101), yes)
	}, func(c int) {
		eachBlockNEON(a, "STORE_AT_LEAST", c, func() {
			a.ins("CMHS.8H", c, c, bound)
			a.ins("XTN.8B", c, c)
			a.ins("AND", c, c, yes)
			a.line("FMOVD.P F%d, 8(R0)", c)
		})
	})
}

// eachBlockNEON puts the words of each block into register c, one block after the other; do
// may change it and the next register.
func eachBlockNEON(a *emitter, name string, c int, do func()) {
	const pairs = 24
	for i := 0; i < 4; i += 2 {
		a.ins("TRN1", pairs+i, c+i, c+i+1)
		a.ins("TRN2", pairs+i+1, c+i, c+i+1)
	}
	for i := range 4 {
		name := fmt.Sprintf("%s_BLOCK_%s", name, []string{"LOW", "HIGH"}[i/2])
		a.block(name, func() {
			a.ins([]string{"TRN1.2D", "TRN2.2D"}[i/2], c, pairs+i%2, pairs+2+i%2)
			do()
		})
	}
}

// square writes the start of a transpose: distances in bytes, R2 of dst and R3 of src.
func (a *emitter) square(size int) {
	a.arguments("dst", "src", "to", "from")
	a.line("LSL $%d, R2", map[int]int{2: 1, 4: 2}[size])
	a.line("LSL $%d, R3", map[int]int{2: 1, 4: 2}[size])
}

// transposeNEON loads columns 0 to 3 of row i to register i and the others to 8+i, and
// transposes four squares of four.
func transposeNEON(a *emitter) {
	a.square(4)
	for i := range 8 {
		a.line("FMOVQ (R1), F%d", i)
		a.line("FMOVQ 16(R1), F%d", 8+i)
		if i < 7 {
			a.line("ADD R3, R1")
		}
	}
	for at := 0; at < 16; at += 4 {
		for i := 0; i < 4; i += 2 {
			a.ins("TRN1", 16+i, at+i, at+i+1)
			a.ins("TRN2", 17+i, at+i, at+i+1)
		}
		for i := range 2 {
			a.ins("TRN1.2D", at+i, 16+i, 18+i)
			a.ins("TRN2.2D", at+2+i, 16+i, 18+i)
		}
	}
	for i := range 8 {
		at := i/4*8 + i%4
		a.line("FMOVQ F%d, (R0)", at)
		a.line("FMOVQ F%d, 16(R0)", at+4)
		if i < 7 {
			a.line("ADD R2, R0")
		}
	}
	a.line("RET")
}

// transpose16NEON is transposeNEON for elements of two bytes.
func transpose16NEON(a *emitter) {
	a.square(2)
	for i := range 8 {
		a.line("FMOVQ (R1), F%d", i)
		if i < 7 {
			a.line("ADD R3, R1")
		}
	}
	for i := 0; i < 8; i += 2 { // pairs of rows, even columns, then odd
		a.ins("TRN1.8H", 8+i, i, i+1)
		a.ins("TRN2.8H", 9+i, i, i+1)
	}
	for half := 0; half < 8; half += 4 { // fours of rows: columns j and j+4
		for j := range 2 {
			a.ins("TRN1", half+j, 8+half+j, 10+half+j)
			a.ins("TRN2", half+j+2, 8+half+j, 10+half+j)
		}
	}
	for j := range 4 {
		a.ins("TRN1.2D", 8+j, j, 4+j)
		a.ins("TRN2.2D", 12+j, j, 4+j)
	}
	for i := range 8 {
		a.line("FMOVQ F%d, (R0)", 8+i)
		if i < 7 {
			a.line("ADD R2, R0")
		}
	}
	a.line("RET")
}
