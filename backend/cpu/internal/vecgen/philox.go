package vecgen

import "fmt"

const philoxParams = "(dst unsafe.Pointer, n int, first, k0, k1, c1, c2, c3 uint32)"

// philoxGroups is how many vectors of blocks are worked on together, so that
// the multipliers do not wait for results.
func (a *asm) philoxGroups() int {
	if a.wide {
		return 4
	}
	return 2
}

// philox computes a block in each lane of 64 bits, whose upper half is of no
// account: a product has its upper word there and its lower where the next one
// reads it. Lane 2l has block l and lane 2l+1 the block half a vector of lanes
// later, so that interleaving pairs of words puts them in order.
func philox(a *asm) {
	if a.arm {
		philoxNEON(a)
		return
	}
	const counter, key0, key1 = reg(0), reg(1), reg(2)
	var m0, m1 any = bits(0xD2511F53), bits(0xCD9E8D57) // operands in memory
	groups, lanes := a.philoxGroups(), a.lanes()/2
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
		a.op("MOVL", 0xaaaa, "R10")
		a.op("KMOVW", "R10", "K1")
	}
	a.label("blocks")
	a.op("VBROADCASTSS", "k0+20(FP)", key0)
	a.op("VBROADCASTSS", "k1+24(FP)", key1)
	var state [4][4]reg
	next := reg(3)
	for g := range groups {
		for i := range state[g] {
			state[g][i] = next
			next++
		}
		a.op("VMOVUPS", counter, state[g][0])
		a.op("VPADDD", bits(lanes), counter, counter)
		for i, c := range []string{"c1+28(FP)", "c2+32(FP)", "c3+36(FP)"} {
			a.op("VBROADCASTSS", c, state[g][i+1])
		}
	}
	free := [4]reg{next, next + 1, next + 2, next + 3} // those of the group before
	for range 10 {
		for g := range groups {
			c, p, q, x, y := state[g], free[0], free[1], free[2], free[3]
			a.op("VPMULUDQ", m0, c[0], p)
			a.op("VPMULUDQ", m1, c[2], q)
			a.op("VPSRLQ", 32, q, x)
			a.op("VPSRLQ", 32, p, y)
			if a.wide {
				a.op("VPTERNLOGD", 0x96, key0, c[1], x) // all three xored
				a.op("VPTERNLOGD", 0x96, key1, c[3], y)
			} else {
				a.op("VPXOR", c[1], x, x)
				a.op("VPXOR", c[3], y, y)
				a.op("VPXOR", key0, x, x)
				a.op("VPXOR", key1, y, y)
			}
			state[g], free = [4]reg{x, q, y, p}, c
		}
		a.op("VPADDD", bits(0x9E3779B9), key0, key0)
		a.op("VPADDD", bits(0xBB67AE85), key1, key1)
	}
	for g := range groups {
		c := state[g]
		for i := 0; i < 4; i += 2 { // words 2j and 2j+1 of a block side by side
			a.op("VPSLLQ", 32, c[i+1], c[i+1])
			if a.wide {
				a.op("VMOVDQA32", c[i+1], "K1", c[i])
			} else {
				a.op("VPBLENDD", 0xaa, c[i+1], c[i], c[i])
			}
		}
		a.op("VPUNPCKLQDQ", c[2], c[0], c[1])
		a.op("VPUNPCKHQDQ", c[2], c[0], c[3])
		for i, r := range []reg{c[1], c[3]} {
			a.op("VPSRLD", 8, r, r)
			a.op("VCVTDQ2PS", r, r)
			a.op("VMULPS", num(0x1p-24), r, r)
			a.op("VMOVUPS", r, fmt.Sprintf("%d(DI)", (2*g+i)*4*a.lanes()))
		}
	}
	a.op("ADDQ", groups*lanes*16, "DI")
	a.op("SUBQ", groups*lanes, "CX")
	a.op("JNZ", "blocks")
	a.op("VZEROUPPER")
	a.op("RET")
}
