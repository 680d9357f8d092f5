package vec

import (
	"fmt"
	"strings"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/gen/arm64"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/gen/asm"
)

// Loops on arm64 have pointers that move: R0 and up; R8 counts. Remaining elements are
// computed one at a time, in lane 0.

// shortBody is the most instructions of a body that is unrolled four times.
const shortBody = 10

func (a *emitter) addressNEON(i int) string {
	address := fmt.Sprintf("(R%d)", i)
	if a.offset > 0 {
		address = fmt.Sprint(a.offset*4*a.k.params[i].elem.size()) + address
	}
	return address
}

// element loads a vector as float32, or one element with the neutral value in the other lanes.
// Neutral has the bits of a float32.
func (a *emitter) element(from elem, address string, to int, neutral uint32) {
	switch {
	case !a.rest && from.size() == 4:
		a.line("FMOVQ %s, F%d", address, to)
	case !a.rest && from.size() == 2:
		a.line("FMOVD %s, F%d", address, to)
	case !a.rest:
		a.line("FMOVS %s, F%d", address, to)
	case neutral != 0:
		a.into(bits(inElements(neutral, from)), to)
		a.line("VLD1 %s, V%d.%s[0]", address, to, map[int]string{2: "H", 4: "S"}[from.size()])
	case from.size() == 4:
		a.line("FMOVS %s, F%d", address, to)
	default:
		a.line("%s %s, R15", map[int]string{1: "MOVBU", 2: "MOVHU"}[from.size()], address)
		a.line("FMOVS R15, F%d", to)
	}
	switch from {
	case f16:
		a.ins("FCVTL", to, to)
	case bf16:
		a.ins("SHLL", to, to)
	case u8, truth:
		a.ins("USHLL.8H", to, to)
		a.ins("USHLL", to, to)
	case i8:
		a.ins("SSHLL.8H", to, to)
		a.ins("SSHLL", to, to)
	}
	if from == u8 || from == i8 || from == i32 {
		a.ins("SCVTF", to, to)
	}
}

// inElements returns 32 bits of infinities of a type.
func inElements(neutral uint32, e elem) uint32 {
	switch e {
	case bf16:
		return neutral | neutral>>16
	case f16:
		return map[uint32]uint32{plusInf: 0x7c007c00, minusInf: 0xfc00fc00}[neutral]
	}
	return neutral
}

// put stores a vector of elements of size bytes, or only the first one for remaining elements.
func (a *emitter) put(from, size int, address string) {
	switch {
	case a.rest:
		a.line("VST1 V%d.%s[0], %s", from, map[int]string{1: "B", 2: "H", 4: "S"}[size], address)
	default:
		a.line("%s F%d, %s", map[int]string{1: "FMOVS", 2: "FMOVD", 4: "FMOVQ"}[size], from, address)
	}
}

// putBF16 rounds a register to bfloat16, changing t and u, and stores it.
func (a *emitter) putBF16(from, t, u reg, address string) {
	a.toBF16(from, t, u)
	a.op("VPSRLD", 16, from, from)
	a.ins("XTN", scratch, int(from))
	a.put(scratch, 2, address)
}

// storeNEON stores a register as elements of a type. For bfloat16 it changes
// registers 1 and 2.
func (a *emitter) storeNEON(e elem, from reg, address string) {
	switch e {
	case f32:
		a.put(int(from), 4, address)
	case f16:
		a.ins("FCVTN", scratch, int(from))
		a.put(scratch, 2, address)
	case bf16:
		a.putBF16(from, 1, 2, address)
	}
}

func (a *emitter) storeFlagsNEON(m mask) {
	a.ins("XTN", scratch, maskFirst-int(m))
	a.ins("XTN.8B", scratch, scratch)
	a.op("VPAND", bits(0x01010101), reg(scratch), reg(scratch))
	a.put(scratch, 1, a.address(0))
}

// advance moves the pointers by some elements.
func (a *emitter) advance(k *kernel, elements int) {
	i := 0
	sizes := ""
	for _, p := range k.params {
		if !p.scalar {
			sizes += fmt.Sprint(p.elem.size())
		}
	}
	a.block("ADVANCE_"+sizes, func() {
		for _, p := range k.params {
			if !p.scalar {
				a.line("ADD $%d, R%d", elements*p.elem.size(), i)
				i++
			}
		}
	}, "n", elements)
}

// functionNEON writes a kernel.
func (a *emitter) functionNEON(k *kernel) {
	offsets, args := k.layout()
	size := args
	if k.folds != nil {
		size += 4
		if k.folds.double {
			size += 4
		}
	}
	a.begin(k, 0, size)
	before := func() {
		a.block(k.argsMacro(), func() {
			p, s := 0, 0
			for i, x := range k.params {
				if x.scalar {
					a.broadcast(fmt.Sprintf("%s+%d(FP)", x.name, offsets[i]), int(k.number(s)))
					s++
					continue
				}
				a.line("MOVD %s+%d(FP), R%d", x.name, offsets[i], p)
				p++
			}
			a.line("MOVD n+%d(FP), R8", args-8)
		})
	}
	a.framed(before, func() {
		if k.folds != nil {
			k.folds.before(a)
			if k.folds.streams != nil {
				a.foldStreamsNEON(k.folds.streams, k.params[0].elem.size())
			}
		}
		if k.form != "" {
			a.block(k.form+"_"+k.types(), func() {
				a.loopNEON(k)
				a.line("RET")
			}, "step", k.step)
			return
		}
		a.loopNEON(k)
		if k.folds == nil {
			a.line("RET")
			return
		}
		k.folds.after(a)
		if k.folds.double {
			a.line("FMOVD F0, ret+%d(FP)", args)
		} else {
			a.line("FMOVS F0, ret+%d(FP)", args)
		}
		a.line("RET")
	})
}

// loopNEON writes the loops over the elements: four vectors at a time for short bodies, then
// one vector, then one element.
func (a *emitter) loopNEON(k *kernel) {
	a.rest = false
	length := asm.Count(a.Capture(func() { k.body(a) }))
	body := func() { a.block(macroName(k.name)+"_VECTOR", func() { k.body(a) }) }
	if length <= shortBody && k.folds == nil {
		a.block("LOOP_OF_FOUR", func() {
			a.line("SUBS $16, R8")
			a.line("BLT few")
			a.label("many")
		})
		for a.offset = 0; a.offset < 4; a.offset++ {
			body()
		}
		a.offset = 0
		a.advance(k, 16)
		a.block("LOOP_OF_ONE", func() {
			a.line("SUBS $16, R8")
			a.line("BGE many")
			a.label("few")
			a.line("ADD $16, R8")
			a.line("SUBS $4, R8")
			a.line("BLT rest")
			a.label("loop")
		})
	} else {
		a.line("SUBS $4, R8")
		a.line("BLT rest")
		a.label("loop")
	}
	body()
	a.advance(k, 4)
	a.block("LOOP_OF_REST", func() {
		a.line("SUBS $4, R8")
		a.line("BGE loop")
		a.label("rest")
		a.line("ADDS $4, R8")
		a.line("BEQ done")
		a.label("last")
	})
	a.rest = true
	k.body(a)
	a.advance(k, 1)
	a.line("SUBS $1, R8")
	a.line("BNE last")
	a.rest = false
	a.label("done")
}

// foldStreamsNEON writes the part for stretches, which begin at R0 and R10 to R12. Afterwards
// R0 and R8 are those of the remaining elements.
func (a *emitter) foldStreamsNEON(s *streams, size int) {
	pointers := []string{"R0", "R10", "R11", "R12"}
	addresses := make([]string, len(pointers))
	a.block("STRETCHES", func() {
		a.line("LSR $2, R8, R13")
		a.line("AND $-4, R13")
		a.line("CBZ R13, short")
		a.line("LSL $%d, R13, R14", map[int]int{2: 1, 4: 2}[size])
		for i, p := range pointers {
			addresses[i] = "(" + p + ")"
			if i > 0 {
				a.line("ADD R14, %s, %s", pointers[i-1], p)
			}
		}
	})
	s.before(a)
	a.line("MOVD R13, R14")
	a.label("stretches")
	s.body(a, addresses)
	a.block("NEXT_OF_STRETCHES", func() {
		for _, p := range pointers {
			a.line("ADD $%d, %s", 4*size, p)
		}
		a.line("SUBS $4, R14")
		a.line("BNE stretches")
	})
	s.after(a)
	a.block("STRETCHES_END", func() {
		a.line("MOVD R12, R0")
		a.line("SUB R13<<2, R8")
		a.label("short")
	})
}

// writeNEON writes a pass; s is at R7.
func (p pass) writeNEON(a *emitter, suffix string, elems []elem) {
	vector := func(u int) passAt {
		at := func(i int) string { return fmt.Sprintf("%d(R%d)", u*p.spacing(a)*elems[i].size(), i) }
		store := func(from reg) {
			if elems[0] == bf16 {
				a.putBF16(from, 2, 3, at(0))
			} else {
				a.storeNEON(elems[0], from, at(0))
			}
		}
		return passAt{
			at:       at,
			load:     func(i int, to reg) { a.widened(elems[i], at(i), to) },
			prefetch: func(i int) { a.op("PREFETCHT0", at(i)) },
			number:   p.number,
			sum:      [2]reg{reg(4 + u), reg(8 + u)},
			store:    store,
			number16: store,
			cut: func(from reg) {
				a.op("VPSRLD", 16, from, from)
				a.ins("XTN", scratch, int(from))
				a.put(scratch, 2, at(0))
			},
		}
	}
	sizes := ""
	for i := range p.slices {
		sizes += fmt.Sprint(elems[i].size())
	}
	advance := func(n int) {
		a.macro("ADVANCE_SLICES_"+sizes, func() {
			for i := range p.slices {
				a.line("ADD $%d, R%d", n*elems[i].size(), i)
			}
		}, "n", n)
	}
	before := func() {
		a.block("BEGIN_"+macroName(p.name), func() {
			for i, s := range p.slices {
				a.line("MOVD %s+%d(FP), R%d", strings.TrimPrefix(s, "*"), 8*i, i)
			}
			a.line("MOVD s+%d(FP), R7", 8*len(p.slices))
			a.line("MOVD n+%d(FP), R8", 8*len(p.slices)+8)
			for i := range p.numbers {
				a.broadcast(fmt.Sprintf("%d(R7)", 4*i), int(p.number(i)))
			}
		})
	}
	spacing := p.spacing(a)
	a.framed(before, func() {
		name := macroName(p.name+suffix) + "_STEP"
		body := func(u int) {
			v := vector(u)
			a.macro(name, func() { p.body(a, v) }, "u", u, "sum", v.sum[0], "sum1", v.sum[1], "n", int(v.sum[0]), "n1", int(v.sum[1]))
		}
		if p.parts(a) == 1 {
			p.zeroSums(a)
			a.block("PASS_LOOPS", func() {
				a.block("LOOP_OF_FOUR", func() {
					a.line("SUBS $%d, R8", unrolled*spacing)
					a.line("BLT few")
					a.label("many")
				})
				for u := range unrolled {
					body(u)
				}
				advance(unrolled * spacing)
				a.block("LOOP_OF_VECTORS", func() {
					a.line("SUBS $%d, R8", unrolled*spacing)
					a.line("BGE many")
					a.label("few")
					a.line("ADDS $%d, R8", unrolled*spacing)
					a.line("BEQ done")
					a.label("one")
				})
				body(0)
				advance(spacing)
				a.line("SUBS $%d, R8", spacing)
				a.line("BNE one")
				a.label("done")
			}, "step", name)
			for i := range p.sums {
				first := reg(4 + 4*i)
				a.block("STORE_SUM", func() {
					for u := 1; u < unrolled; u++ {
						a.op("VADDPS", first+reg(u), first, first)
					}
					across(a, "VADDPS", first, 0)
					a.line("FMOVS F%d, %d(R7)", first, 4*(p.numbers+i))
				})
			}
			a.line("RET")
			return
		}
		// R10 counts parts, and R11 is the elements from the beginning of a part on.
		a.block(fmt.Sprintf("PART_LOOPS_%d", p.sums), func() {
			p.zeroParts(a)
			a.line("MOVD $%d, R10", p.parts(a))
			a.line("MOVD R8, R11")
			a.label("part")
			p.zeroSums(a)
			a.line("SUBS $%d, R8", (unrolled-1)*spacing+4)
			a.line("BLT few")
			a.label("many")
			for u := range unrolled {
				body(u)
			}
			advance(unrolled * spacing)
			a.line("SUBS $%d, R8", unrolled*spacing)
			a.line("BGE many")
			a.label("few")
			a.line("ADDS $%d, R8", (unrolled-1)*spacing+4)
			a.line("BLE done")
			a.label("one")
			body(0)
			advance(spacing)
			a.line("SUBS $%d, R8", spacing)
			a.line("BGT one")
			a.label("done")
			p.addPart(a)
			a.line("SUBS $1, R10")
			a.line("BEQ sums")
			a.line("SUB $4, R11")
			a.line("SUB R8, R11, R12") // elements back to the next part
			a.macro("NEXT_PART_"+sizes, func() {
				for i := range p.slices {
					a.line("SUB R12<<%d, R%d", elems[i].size()/2, i)
				}
			})
			a.line("MOVD R11, R8")
			a.line("B part")
			a.label("sums")
		}, "step", name)
		for i := range p.sums {
			to, place := partSums[i], 4*(p.numbers+i)
			a.block("STORE_PARTS", func() {
				a.op("VADDPS", to[1], to[0], to[0])
				across(a, "VADDPS", to[0], 0)
				a.line("FMOVS F%d, %d(R7)", to[0], place)
			}, "sum", to[0], "sum1", to[1], "place", place)
		}
		a.line("RET")
	})
}

// perRowNEON is perRow; a row has up to four elements.
func perRowNEON(a *emitter, step any, store bool, load, body func()) {
	const lane = reg(11)
	elements := func(name, end string) {
		for i := range 4 {
			if i > 0 {
				a.line("CMP $%d, R2", i+1)
				a.line("BLT %s", end)
			}
			if name == "VLD1" {
				a.line("VLD1.P 4(R1), V0.S[%d]", i)
			} else {
				a.line("VST1.P V0.S[%d], 4(R0)", i)
			}
		}
		a.label(end)
	}
	a.framed(func() { a.arguments("dst", "x", "n", "rows") }, func() {
		a.line("MOVD $%s, R10", a.vector([]uint32{0, 1, 2, 3}))
		a.line("FMOVQ (R10), F%d", lane)
		a.line("VDUP R2, V0.S4")
		a.op("VPCMPGTD", lane, reg(0), mask(2))
		a.label("row")
		a.op("VPXOR", reg(0), reg(0), reg(0))
		elements("VLD1", "loaded")
		load()
		a.op("VMOVUPS", bits(minusInf), reg(1))
		a.op("VBLENDVPS", mask(2), reg(0), reg(1), reg(0))
		body()
		if store {
			elements("VST1", "stored")
		} else {
			a.line("ADD $%d, R0", step)
		}
		a.line("SUBS $1, R3")
		a.line("BNE row")
		a.line("RET")
	})
}

// firstLane writes the index of the first lane with a NaN, or else of the first lane in mask
// 1, to R0.
func (a *emitter) firstLane() {
	a.anyLane(0, "R10")
	a.line("CBZW R10, numbers")
	a.line("%s", arm64.Move(maskFirst-1, maskFirst))
	a.label("numbers")
	a.ins("MVN", scratch, maskFirst-1)
	a.op("VPOR", reg(11), reg(scratch), reg(scratch)) // lanes outside of the mask get a large index
	a.ins("UMINV", scratch, scratch)
	a.line("FMOVS F%d, (R0)", scratch)
}
