package vec

import "fmt"

// elemNames are the element types in names of macros.
var elemNames = map[elem]string{f32: "F32", f16: "F16", bf16: "BF16", u8: "U8", i32: "I32", truth: "FLAGS", i8: "I8"}

// streams is the main part of a reduction, over several equal stretches of the elements at the
// same time: see stretch. Its sums are combined with those of the loop over the remaining
// elements, which follows.
type streams struct {
	before func(a *emitter)
	body   func(a *emitter, addresses []string)
	after  func(a *emitter)
}

// stretchCount returns the number of stretches: the sums of each take registers.
func (a *emitter) stretchCount() int {
	if a.wide {
		return 8
	}
	return 4
}

// foldStreams writes the part for stretches. CX has the number of elements and DI points to
// them; afterwards they have those of the remaining elements.
func (a *emitter) foldStreams(s *streams, size int) {
	pointers := []string{"DI", "SI", "DX", "R8", "R9", "R10", "R11", "R12"}[:a.stretchCount()]
	shift := map[int]int{4: 2, 8: 3}[len(pointers)]
	a.block("STRETCHES", func() {
		a.op("MOVQ", "CX", "BX")
		a.op("SHRQ", shift, "BX")
		a.op("ANDQ", -a.lanes(), "BX")
		a.op("JZ", "short")
		a.op("LEAQ", fmt.Sprintf("(BX*%d)", size), "R13")
		for i, p := range pointers[1:] {
			a.op("LEAQ", fmt.Sprintf("(%s)(R13*1)", pointers[i]), p)
		}
	}, "size", size)
	s.before(a)
	a.op("XORQ", "AX", "AX")
	a.label("stretches")
	var addresses []string
	for _, p := range pointers {
		addresses = append(addresses, fmt.Sprintf("(%s)(AX*%d)", p, size))
	}
	s.body(a, addresses)
	a.block("NEXT_OF_STRETCHES", func() {
		a.op("ADDQ", a.lanes(), "AX")
		a.op("CMPQ", "AX", "BX")
		a.op("JLT", "stretches")
	})
	s.after(a)
	a.block("STRETCHES_END", func() {
		a.op("LEAQ", fmt.Sprintf("(%s)(R13*1)", pointers[len(pointers)-1]), "DI")
		a.op("SHLQ", shift, "BX")
		a.op("SUBQ", "BX", "CX")
		a.label("short")
	})
}

// widened loads a vector of elements as float32.
func (a *emitter) widened(from elem, address string, to reg) {
	if a.arm {
		a.element(from, address, int(to), 0)
		return
	}
	switch from {
	case f32:
		a.op("VMOVUPS", address, to)
	case f16:
		a.op("VCVTPH2PS", address, to)
	case bf16:
		a.block("LOAD_BF16", func() {
			a.op("VPMOVZXWD", address, to)
			a.op("VPSLLD", 16, to, to)
		}, "from", address, "to", to)
	}
}

// firstSum returns the first register for the sums of stretches.
func (a *emitter) firstSum() reg {
	if a.wide {
		return 16
	}
	return 6
}

// join32 has one register for each stretch, which the instruction name combines; body folds
// register 0 into it.
func join32(from elem, what, name string, fill func(a *emitter, r reg), body func(a *emitter, sum reg)) *streams {
	return &streams{
		before: func(a *emitter) {
			for s := range a.stretchCount() {
				fill(a, a.firstSum()+reg(s))
			}
		},
		body: func(a *emitter, addresses []string) {
			for s, x := range addresses {
				a.block("FOLD_"+elemNames[from]+"_"+what, func() {
					a.widened(from, x, 0)
					body(a, a.firstSum()+reg(s))
				}, "from", x, "to", a.firstSum()+reg(s))
			}
		},
		after: func(a *emitter) {
			for s := range a.stretchCount() {
				a.op(name, a.firstSum()+reg(s), reg(4), reg(4))
			}
		},
	}
}

// join64 adds in float64, in registers 4 to 5 and pairs from firstSum on, with
// step as the addition of two registers to two others.
func join64(from elem, what string, step func(a *emitter, low, high reg)) *streams {
	const pairs = 3
	zero := func(a *emitter, r reg) { a.op("VPXOR", r, r, r) }
	return &streams{
		before: func(a *emitter) {
			for i := range reg(2 * pairs) {
				zero(a, a.firstSum()+i)
			}
		},
		body: func(a *emitter, addresses []string) {
			if from == f32 && !a.arm {
				for s, x := range addresses {
					low := a.firstSum() + reg(s%pairs*2)
					a.block("FOLD_F32_"+what, func() {
						a.op("VCVTPS2PD", x, reg(1))
						a.op("VCVTPS2PD", fmt.Sprintf("%d%s", 2*a.lanes(), x), reg(2))
						step(a, low, low+1)
					}, "from", x, "low", low, "high", low+1)
				}
				return
			}
			for s, x := range addresses {
				low := a.firstSum() + reg(s%pairs*2)
				a.block("FOLD_"+elemNames[from]+"_"+what, func() {
					a.widened(from, x, 0)
					widen(a)
					step(a, low, low+1)
				}, "from", x, "low", low, "high", low+1)
			}
		},
		after: func(a *emitter) {
			for i := range reg(2 * pairs) {
				a.op("VADDPD", a.firstSum()+i, 4+i%2, 4+i%2)
			}
		},
	}
}

func addDouble(a *emitter, low, high reg) {
	a.op("VADDPD", reg(1), low, low)
	a.op("VADDPD", reg(2), high, high)
}

// fours adds 16-bit floats of four stretches in float32, which loses no bits, before they are
// widened to float64: widening costs more than adding.
func fours(from elem) *streams {
	s := join64(from, "SUM", addDouble)
	s.body = func(a *emitter, addresses []string) {
		for i := 0; i < len(addresses); i += 4 {
			a.sumOfFour(from, addresses[i:i+4])
			widen(a)
			addDouble(a, a.firstSum()+reg(i/4*2), a.firstSum()+reg(i/4*2+1))
		}
	}
	return s
}

// sumOfFour computes the sums of four vectors in register 0 and changes 1 to 3.
func (a *emitter) sumOfFour(from elem, addresses []string) {
	hints := []any{}
	for i, x := range addresses {
		hints = append(hints, fmt.Sprintf("row%d", i), x)
	}
	a.block("SUM_OF_FOUR_"+elemNames[from], func() {
		for i, x := range addresses {
			a.widened(from, x, reg(i))
		}
		a.op("VADDPS", reg(1), reg(0), reg(0))
		a.op("VADDPS", reg(3), reg(2), reg(2))
		a.op("VADDPS", reg(2), reg(0), reg(0))
	}, hints...)
}
