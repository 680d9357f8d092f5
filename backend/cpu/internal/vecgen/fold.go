package vecgen

import "fmt"

// streams is the main part of a fold, over equal stretches of the elements
// side by side: see stretch. Its sums are joined to those of the loop over the
// rest, which follows.
type streams struct {
	before func(a *asm)
	body   func(a *asm, addresses []string)
	after  func(a *asm)
}

// stretchCount is how many there are: the sums of each take registers.
func (a *asm) stretchCount() int {
	if a.wide {
		return 8
	}
	return 4
}

// foldStreams writes the part for stretches. CX has the number of elements and
// DI points to them; afterwards they have those of the rest.
func (a *asm) foldStreams(s *streams, size int) {
	pointers := []string{"DI", "SI", "DX", "R8", "R9", "R10", "R11", "R12"}[:a.stretchCount()]
	shift := map[int]int{4: 2, 8: 3}[len(pointers)]
	a.op("MOVQ", "CX", "BX")
	a.op("SHRQ", shift, "BX")
	a.op("ANDQ", -a.lanes(), "BX")
	a.op("JZ", "short")
	a.op("LEAQ", fmt.Sprintf("(BX*%d)", size), "R13")
	for i, p := range pointers[1:] {
		a.op("LEAQ", fmt.Sprintf("(%s)(R13*1)", pointers[i]), p)
	}
	s.before(a)
	a.op("XORQ", "AX", "AX")
	a.label("stretches")
	var addresses []string
	for _, p := range pointers {
		addresses = append(addresses, fmt.Sprintf("(%s)(AX*%d)", p, size))
	}
	s.body(a, addresses)
	a.op("ADDQ", a.lanes(), "AX")
	a.op("CMPQ", "AX", "BX")
	a.op("JLT", "stretches")
	s.after(a)
	a.op("LEAQ", fmt.Sprintf("(%s)(R13*1)", pointers[len(pointers)-1]), "DI")
	a.op("SHLQ", shift, "BX")
	a.op("SUBQ", "BX", "CX")
	a.label("short")
}

// widened loads a vector of elements as float32.
func (a *asm) widened(from elem, address string, to reg) {
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
		a.op("VPMOVZXWD", address, to)
		a.op("VPSLLD", 16, to, to)
	}
}

// firstSum is the first of the registers for sums of stretches.
func (a *asm) firstSum() reg {
	if a.wide {
		return 16
	}
	return 6
}

// join32 has one register for each stretch, which name joins; body folds
// register 0 into it.
func join32(from elem, name string, fill func(a *asm, r reg), body func(a *asm, sum reg)) *streams {
	return &streams{
		before: func(a *asm) {
			for s := range a.stretchCount() {
				fill(a, a.firstSum()+reg(s))
			}
		},
		body: func(a *asm, addresses []string) {
			for s, x := range addresses {
				a.widened(from, x, 0)
				body(a, a.firstSum()+reg(s))
			}
		},
		after: func(a *asm) {
			for s := range a.stretchCount() {
				a.op(name, a.firstSum()+reg(s), reg(4), reg(4))
			}
		},
	}
}

// join64 adds in float64, in registers 4 to 5 and pairs from firstSum on, with
// step as the addition of two registers to two others.
func join64(from elem, step func(a *asm, low, high reg)) *streams {
	const pairs = 3
	zero := func(a *asm, r reg) { a.op("VPXOR", r, r, r) }
	return &streams{
		before: func(a *asm) {
			for i := range reg(2 * pairs) {
				zero(a, a.firstSum()+i)
			}
		},
		body: func(a *asm, addresses []string) {
			if from == f32 && !a.arm {
				for s, x := range addresses {
					a.op("VCVTPS2PD", x, reg(1))
					a.op("VCVTPS2PD", fmt.Sprintf("%d%s", 2*a.lanes(), x), reg(2))
					step(a, a.firstSum()+reg(s%pairs*2), a.firstSum()+reg(s%pairs*2+1))
				}
				return
			}
			for s, x := range addresses {
				a.widened(from, x, 0)
				widen(a)
				step(a, a.firstSum()+reg(s%pairs*2), a.firstSum()+reg(s%pairs*2+1))
			}
		},
		after: func(a *asm) {
			for i := range reg(2 * pairs) {
				a.op("VADDPD", a.firstSum()+i, 4+i%2, 4+i%2)
			}
		},
	}
}

func addDouble(a *asm, low, high reg) {
	a.op("VADDPD", reg(1), low, low)
	a.op("VADDPD", reg(2), high, high)
}

// fours adds 16-bit floats of four stretches in float32, which has bits to
// spare, before they are widened to float64: to widen costs more than to add.
func fours(from elem) *streams {
	s := join64(from, addDouble)
	s.body = func(a *asm, addresses []string) {
		for i := 0; i < len(addresses); i += 4 {
			a.sumOfFour(from, addresses[i:i+4])
			widen(a)
			addDouble(a, a.firstSum()+reg(i/4*2), a.firstSum()+reg(i/4*2+1))
		}
	}
	return s
}

// sumOfFour leaves the sums of four vectors in register 0 and changes 1 to 3.
func (a *asm) sumOfFour(from elem, addresses []string) {
	for i, x := range addresses {
		a.widened(from, x, reg(i))
	}
	a.op("VADDPS", reg(1), reg(0), reg(0))
	a.op("VADDPS", reg(3), reg(2), reg(2))
	a.op("VADDPS", reg(2), reg(0), reg(0))
}
