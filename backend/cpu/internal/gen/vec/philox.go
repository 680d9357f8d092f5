package vec

import "fmt"

const (
	philoxParams      = "(dst unsafe.Pointer, n int, first, k0, k1, c1, c2, c3 uint32)"
	philoxFlagsParams = "(dst unsafe.Pointer, n int, first, k0, k1, c1, c2, c3, bound uint32)"
	philoxScaleParams = "(dst unsafe.Pointer, n int, first, k0, k1, c1, c2, c3, bound uint32, s float32, x unsafe.Pointer)"
)

const weyl0, weyl1 = 0x9E3779B9, 0xBB67AE85

// philoxGroups returns how many vectors of blocks are computed at the same time, so that
// multiplications do not wait for results.
func (a *emitter) philoxGroups() int {
	if a.wide {
		return 4
	}
	return 2
}

// philox makes numbers in [0, 1) of words.
func philox(a *emitter) {
	if a.arm {
		philoxNumbersNEON(a)
		return
	}
	philoxBlocks(a, "STORE_NUMBERS", 16, func(g int, words [2]reg, _ reg) {
		for i, r := range words {
			a.op("VPSRLD", 8, r, r)
			a.op("VCVTDQ2PS", r, r)
			a.op("VMULPS", num(0x1p-24), r, r)
			a.op("VMOVUPS", r, fmt.Sprintf("%d(DI)", (2*g+i)*4*a.lanes()))
		}
	})
}

// philox16 makes numbers in [0, 1) of the 16-bit halves of words.
func philox16(a *emitter) {
	if a.arm {
		philox16NEON(a)
		return
	}
	philoxBlocks(a, "STORE_16_BITS", 32, func(g int, words [2]reg, spare reg) {
		for i, r := range words {
			lower, upper, take := fmt.Sprintf("X%d", r), fmt.Sprintf("Y%d", r), "VEXTRACTI128"
			if a.wide {
				lower, upper, take = upper, fmt.Sprintf("Z%d", r), "VEXTRACTI64X4"
			}
			a.op("VPMOVZXWD", lower, spare)
			a.op(take, 1, upper, lower)
			a.op("VPMOVZXWD", lower, r)
			for j, x := range []reg{spare, r} {
				a.op("VCVTDQ2PS", x, x)
				a.op("VMULPS", num(0x1p-16), x, x)
				a.op("VMOVUPS", x, fmt.Sprintf("%d(DI)", (4*g+2*i+j)*4*a.lanes()))
			}
		}
	})
}

// notLess is a comparison of VPCMPUW, and of VCMPPS, true also for NaNs, with AVX-512.
const notLess = 5

// philoxAtLeast compares the 16-bit halves of words with a bound: true if they are at least
// that.
func philoxAtLeast(a *emitter) {
	if a.arm {
		philoxAtLeastNEON(a)
		return
	}
	if !a.wide {
		const bound = reg(15)
		a.op("VBROADCASTSS", "bound+40(FP)", bound)
		philoxBlocks(a, "STORE_AT_LEAST", 8, func(g int, words [2]reg, spare reg) {
			for _, r := range words {
				a.op("VPMAXUW", bound, r, spare)
				a.op("VPCMPEQW", spare, r, r)
			}
			a.op("VPACKSSWB", words[1], words[0], spare)
			a.op("VPERMQ", 0xd8, spare, spare)
			a.op("VPAND", bits(0x01010101), spare, spare)
			a.op("VMOVUPS", spare, fmt.Sprintf("%d(DI)", g*4*a.lanes()))
		})
		return
	}
	const bound, yes = reg(24), reg(25)
	a.op("VBROADCASTSS", "bound+40(FP)", bound)
	a.op("VMOVUPS", bits(0x01010101), yes)
	philoxBlocks(a, "STORE_AT_LEAST", 8, func(g int, words [2]reg, _ reg) {
		for i, r := range words {
			a.op("VPCMPUW", notLess, bound, r, mask(1))
			to := fmt.Sprintf("Y%d", r)
			a.op("VMOVDQU8.Z", fmt.Sprintf("Y%d", yes), mask(1), to)
			a.op("VMOVUPS", to, fmt.Sprintf("%d(DI)", (2*g+i)*2*a.lanes()))
		}
	})
}

// philoxScale multiplies x by a factor where 16-bit halves of words are at least a bound, and
// writes 0 elsewhere. It prefetches a page ahead. It is for AVX-512. Dropped elements are
// loaded as 0, so that the product is 0.
func philoxScale(t elem, nt bool) func(a *emitter) {
	return func(a *emitter) {
		const bound, factor, even, page = reg(24), reg(25), "K7", 4096
		a.op("VBROADCASTSS", "bound+40(FP)", bound)
		a.op("VBROADCASTSS", "s+44(FP)", factor)
		a.op("MOVQ", "x+48(FP)", "SI")
		if t == bf16 {
			a.op("MOVL", 0x55555555, "R10")
			a.op("KMOVD", "R10", even)
		}
		size := t.size()
		philoxBlocks(a, "STORE_SCALED_"+elemNames[t]+map[bool]string{true: "_NT"}[nt], 8*size, func(g int, words [2]reg, spare reg) {
			for i, r := range words {
				at := (2*g + i) * 2 * size * a.lanes()
				for l := 0; l < 2*size*a.lanes(); l += line {
					a.op("PREFETCHT0", fmt.Sprintf("%d(SI)", page+at+l))
				}
				a.op("VPCMPUW", notLess, bound, r, mask(1))
				if t == bf16 { // even and odd elements are in the upper half of their lanes
					a.op("VMOVDQU16.Z", fmt.Sprintf("%d(SI)", at), mask(1), r)
					a.op("VPSLLD", 16, r, spare)
					a.op("VPAND", bits(0xffff0000), r, r)
					for _, x := range []reg{spare, r} {
						a.op("VMULPS", factor, x, x)
						a.nearestBF16(x, x) // a NaN of x has no lower bits
					}
					a.op("VPSRLD", 16, spare, spare)
					a.op("VMOVDQU16", spare, even, r)
					a.storeRow(f32, "", nil, nt, r, fmt.Sprintf("%d(DI)", at))
					continue
				}
				a.op("KSHIFTRD", 16, mask(1), mask(2))
				for j, x := range []reg{spare, r} {
					from, to := fmt.Sprintf("%d(SI)", at+j*size*a.lanes()), fmt.Sprintf("%d(DI)", at+j*size*a.lanes())
					if t == f32 {
						a.op("VMULPS.Z", from, factor, mask(1+j), x)
					} else {
						a.op("VCVTPH2PS.Z", from, mask(1+j), x)
						a.op("VMULPS", factor, x, x)
					}
					a.storeRow(t, "", func(from reg) { a.op("VCVTPS2PH", 0, from, fmt.Sprintf("Y%d", from)) }, nt, x, to)
				}
			}
		}, func() { a.op("ADDQ", 4*a.philoxGroups()*size*a.lanes(), "SI") })
	}
}

// philoxBlocks computes a block in each lane of 64 bits. The upper half of a lane does not
// matter: a product has its upper word there and its lower word where the next product reads
// it. Lane 2l has block l and lane 2l+1 the block half a vector of lanes later, so that
// interleaving pairs of words puts them in order. store writes the words of a group, in order,
// to DI, which advances by bytes for each block; it may change a spare register.
func philoxBlocks(a *emitter, name string, bytes int, store func(g int, words [2]reg, spare reg), after ...func()) {
	const counter, key0, key1 = reg(0), reg(1), reg(2)
	var m0, m1 any = bits(0xD2511F53), bits(0xCD9E8D57) // operands in memory
	groups, lanes := a.philoxGroups(), a.lanes()/2
	a.block("PHILOX_BEGIN", func() {
		a.op("MOVQ", "dst+0(FP)", "DI")
		a.op("MOVQ", "n+8(FP)", "CX")
		if a.wide { // which cannot broadcast half a lane
			a.op("VMOVUPS", m0, reg(30))
			a.op("VMOVUPS", m1, reg(31))
			m0, m1 = reg(30), reg(31)
		}
		first := make([]uint32, 2*lanes)
		for i := range lanes {
			first[2*i] = uint32(i%2*(lanes/2) + i/2)
		}
		a.op("VBROADCASTSS", "first+16(FP)", counter)
		a.op("VPADDD", a.vector(first), counter, counter)
		if a.wide {
			a.op("MOVL", 0x5555, "R10")
			a.op("KMOVW", "R10", "K1")
		}
	})
	var state [4][4]reg
	next := reg(3)
	for g := range groups {
		for i := range state[g] {
			state[g][i] = next
			next++
		}
	}
	free := [4]reg{next, next + 1, next + 2, next + 3} // registers of the previous group
	const words0, words1, words2, words3 = reg(26), reg(27), reg(28), reg(29)
	third := func(g int) reg { return state[g][3] } // the last word of a state
	rounds := 10
	if a.wide {
		// Only the first word differs between blocks: most of the first two rounds is the same
		// for all blocks.
		a.block("PHILOX_COMMON", func() {
			a.op("VBROADCASTSS", "k0+20(FP)", key0)
			a.op("VBROADCASTSS", "k1+24(FP)", key1)
			a.op("VBROADCASTSS", "c2+32(FP)", reg(3))
			a.op("VPMULUDQ", m1, reg(3), words1)
			a.op("VPSRLQ", 32, words1, reg(3))
			a.op("VBROADCASTSS", "c1+28(FP)", reg(4))
			a.op("VPTERNLOGD", 0x96, key0, reg(4), reg(3))
			a.op("VBROADCASTSS", "c3+36(FP)", words0)
			a.op("VPXOR", key1, words0, words0)
			a.op("VPMULUDQ", m0, reg(3), words3)
			a.op("VPSRLQ", 32, words3, words2)
			a.op("VPADDD", bits(weyl0), key0, key0)
			a.op("VPADDD", bits(weyl1), key1, key1)
			a.op("VPXOR", key0, words1, words1)
			a.op("VPXOR", key1, words2, words2)
		})
	}
	a.label("blocks")
	a.op("VBROADCASTSS", "k0+20(FP)", key0)
	a.op("VBROADCASTSS", "k1+24(FP)", key1)
	a.block("PHILOX_ROUNDS", func() {
		if a.wide {
			for g := range groups {
				c := state[g]
				a.block("PHILOX_FIRST", func() {
					a.op("VPMULUDQ", m0, counter, c[0])
					a.op("VPADDD", bits(lanes), counter, counter)
					a.op("VPSRLQ", 32, c[0], c[2])
					a.op("VPXOR", words0, c[2], c[2])
					a.op("VPMULUDQ", m1, c[2], c[1])
					a.op("VPXOR", words2, c[0], c[2])
					a.op("VPSRLQ", 32, c[1], c[0])
					a.op("VPXOR", words1, c[0], c[0])
				}, "c0", c[0], "c1", c[1], "c2", c[2])
			}
			a.op("VPADDD", bits(2*weyl0&(1<<32-1)), key0, key0)
			a.op("VPADDD", bits(2*weyl1&(1<<32-1)), key1, key1)
			third = func(int) reg { return words3 }
			rounds -= 2
		} else {
			for g := range groups {
				a.op("VMOVUPS", counter, state[g][0])
				a.op("VPADDD", bits(lanes), counter, counter)
				for i, c := range []string{"c1+28(FP)", "c2+32(FP)", "c3+36(FP)"} {
					a.op("VBROADCASTSS", c, state[g][i+1])
				}
			}
		}
		for round := range rounds {
			for g := range groups {
				c, p, q, x, y := state[g], free[0], free[1], free[2], free[3]
				name := "PHILOX_ROUND"
				last := a.wide && round == rounds-1 // words 2j and 2j+1 of a block side by side
				if last {
					name += "_LAST"
				}
				a.block(name, func() {
					a.op("VPMULUDQ", m0, c[0], p)
					a.op("VPMULUDQ", m1, c[2], q)
					if last {
						a.op("VPROLQ", 32, q, x)
						a.op("VPROLQ", 32, p, y)
						a.op("VPTERNLOGD", 0x96, key0, c[1], "K1", x)
						a.op("VPTERNLOGD", 0x96, key1, third(g), "K1", y)
						return
					}
					a.op("VPSRLQ", 32, q, x)
					a.op("VPSRLQ", 32, p, y)
					if a.wide {
						a.op("VPTERNLOGD", 0x96, key0, c[1], x) // all three xored
						a.op("VPTERNLOGD", 0x96, key1, third(g), y)
					} else {
						a.op("VPXOR", c[1], x, x)
						a.op("VPXOR", c[3], y, y)
						a.op("VPXOR", key0, x, x)
						a.op("VPXOR", key1, y, y)
					}
				}, "c0", c[0], "c1", c[1], "c2", c[2], "c3", third(g), "to0", x, "to1", q, "to2", y, "to3", p)
				state[g], free = [4]reg{x, q, y, p}, c
			}
			third = func(g int) reg { return state[g][3] }
			if round < rounds-1 {
				a.block("NEXT_KEYS", func() {
					a.op("VPADDD", bits(weyl0), key0, key0)
					a.op("VPADDD", bits(weyl1), key1, key1)
				})
			}
		}
	})
	for g := range groups {
		c := state[g]
		for i := 0; i < 4 && !a.wide; i += 2 { // words 2j and 2j+1 of a block side by side
			a.op("VPSLLQ", 32, c[i+1], c[i+1])
			a.op("VPBLENDD", 0xaa, c[i+1], c[i], c[i])
		}
		a.block(name, func() {
			a.op("VPUNPCKLQDQ", c[2], c[0], c[1])
			a.op("VPUNPCKHQDQ", c[2], c[0], c[3])
			store(g, [2]reg{c[1], c[3]}, c[0])
		}, "c0", c[0], "c1", c[1], "c2", c[2], "c3", c[3])
	}
	for _, f := range after {
		f()
	}
	a.op("ADDQ", groups*lanes*bytes, "DI")
	a.op("SUBQ", groups*lanes, "CX")
	a.op("JNZ", "blocks")
	a.end()
}
