package simt

import (
	"math/bits"
	"slices"
)

// set is a set of registers.
type set []uint64

func (s set) add(r int32)      { s[r/64] |= 1 << (r % 64) }
func (s set) has(r int32) bool { return s[r/64]>>(r%64)&1 != 0 }

// each calls f for the members.
func (s set) each(f func(int32)) {
	for i, w := range s {
		for ; w != 0; w &= w - 1 {
			f(int32(64*i + bits.TrailingZeros64(w)))
		}
	}
}

// basicBlock is instructions [begin, end) without jumps into or out of it.
type basicBlock struct {
	begin, end int
	next       [2]int // blocks, or -1
	in, out    set
}

// blocks cuts the code at labels and behind branches.
func (k *Kernel) blocks() []basicBlock {
	leader := make([]bool, len(k.code)+1)
	leader[0] = true
	for i := range k.code {
		if in := &k.code[i]; in.kind == branches || in.kind == exits {
			leader[i+1] = true
			if in.kind == branches {
				leader[in.target] = true
			}
		}
	}
	number := make([]int, len(k.code)+1)
	var list []basicBlock
	for i := range k.code {
		if leader[i] {
			if n := len(list); n > 0 {
				list[n-1].end = i
			}
			list = append(list, basicBlock{begin: i, next: [2]int{-1, -1}})
		}
		number[i] = len(list) - 1
	}
	list[len(list)-1].end = len(k.code)
	for i := range list {
		last := &k.code[list[i].end-1]
		always := last.guard == none
		if last.kind == branches {
			list[i].next[1] = number[last.target]
		}
		if i+1 < len(list) && (last.kind != branches && last.kind != exits || !always) {
			list[i].next[0] = i + 1
		}
	}
	return list
}

// live computes which registers blocks need when they begin and end.
func (k *Kernel) live(registers int) []basicBlock {
	list := k.blocks()
	words := (registers + 63) / 64
	uses, kills := make([]set, len(list)), make([]set, len(list))
	for i := range list {
		b := &list[i]
		b.in, b.out, uses[i], kills[i] = make(set, words), make(set, words), make(set, words), make(set, words)
		for j := b.begin; j < b.end; j++ {
			in := &k.code[j]
			in.sources(func(r *int32) {
				if !kills[i].has(*r) {
					uses[i].add(*r)
				}
			})
			in.results(func(r *int32) {
				if in.guard == none { // else the lanes that skip it keep what they had
					kills[i].add(*r)
				}
			})
		}
		copy(b.in, uses[i])
	}
	for changed := true; changed; {
		changed = false
		for i := len(list) - 1; i >= 0; i-- {
			b := &list[i]
			for _, n := range b.next {
				if n >= 0 {
					for w := range b.out {
						b.out[w] |= list[n].in[w]
					}
				}
			}
			for w := range b.in {
				if u := uses[i][w] | b.out[w]&^kills[i][w]; u != b.in[w] {
					b.in[w], changed = u, true
				}
			}
		}
	}
	return list
}

// interval is where a register holds something that is needed.
type interval struct {
	register   int32
	begin, end int
}

// allocate gives registers rows: those whose intervals of the code are apart share
// one (Poletto and Sarkar, "Linear Scan Register Allocation", 1999), so that what a
// block of threads computes on stays in the caches. Sharing begins behind the last
// use: no instruction writes over its own operands.
func (k *Kernel) allocate(registers int) {
	all := make([]interval, registers)
	for r := range all {
		all[r] = interval{int32(r), len(k.code), -1}
	}
	touch := func(r int32, i int) {
		all[r].begin, all[r].end = min(all[r].begin, i), max(all[r].end, i)
	}
	list := k.live(registers)
	for i := range list {
		b := &list[i]
		b.in.each(func(r int32) { touch(r, b.begin) })
		b.out.each(func(r int32) { touch(r, b.end) })
		for j := b.begin; j < b.end; j++ {
			k.code[j].sources(func(r *int32) { touch(*r, j) })
			k.code[j].results(func(r *int32) { touch(*r, j) })
		}
	}
	used := slices.DeleteFunc(slices.Clone(all), func(v interval) bool { return v.end < 0 })
	slices.SortFunc(used, func(a, b interval) int { return a.begin - b.begin })
	ending := make([][]int32, len(k.code)+2) // rows that are free from there on
	row := make([]int32, registers)
	var free []int32
	done := 0
	for _, v := range used {
		for ; done <= v.begin; done++ {
			free = append(free, ending[done]...)
		}
		if n := len(free); n > 0 {
			row[v.register], free = free[n-1], free[:n-1]
		} else {
			row[v.register] = int32(k.registers)
			k.registers++
		}
		ending[v.end+1] = append(ending[v.end+1], row[v.register])
	}
	list[0].in.each(func(r int32) { k.early = append(k.early, row[r]) })
	for i := range k.code {
		rename := func(r *int32) { *r = row[*r] }
		k.code[i].sources(rename)
		k.code[i].results(rename)
	}
}
