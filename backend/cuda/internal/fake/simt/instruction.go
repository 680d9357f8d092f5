package simt

import "math"

// kind says how a warp executes an instruction.
type kind uint8

const (
	computes   kind = iota // f of a, b and c
	compares               // setp
	selects                // selp
	predicates             // and.pred, or.pred, xor.pred, not.pred, mov.pred
	carries                // addc, madc.hi.cc and the like
	reads                  // a special register
	packs                  // mov of several registers into one
	unpacks                // and of one into several
	loads
	stores
	swaps    // atom.exch, atom.cas
	branches // bra
	exits    // ret
	barrier  // bar.sync
	converge // bar.warp.sync
	shuffles // shfl.sync
	matrices // ldmatrix
	multiply // mma.sync
	copies   // cp.async
	commits  // cp.async.commit_group
	waits    // cp.async.wait_group
)

// none is an operand that is absent.
const none = math.MinInt32

// instruction is one that is decoded. Operands are numbers of registers, or, if
// negative, complements of numbers of constants.
type instruction struct {
	kind  kind
	space space
	how   uint8 // of a kind
	guard int32 // a predicate, or none
	not   bool  // runs unless the guard is set

	d, a, b, c int32
	list       []int32 // more results of loads, sources of stores, both of mma
	p, q, r    int32   // predicates: result and operands
	f          vector
	compare    comparison

	target int32  // of a branch
	bytes  int    // of an element in memory
	offset uint64 // added to the address a
	mask   uint64 // of the register that a load or selp writes
	signed bool   // a load extends the sign

	line int32
	text string
}

// results calls f for every register that an instruction writes, sources for every
// one that it reads; f may change the number.
func (in *instruction) results(f func(*int32)) {
	if in.d != none {
		f(&in.d)
	}
	switch in.kind {
	case loads, unpacks, matrices:
		for i := range in.list {
			f(&in.list[i])
		}
	case multiply: // the first four
		for i := range in.list[:4] {
			f(&in.list[i])
		}
	}
}

func (in *instruction) sources(f func(*int32)) {
	for _, r := range []*int32{&in.a, &in.b, &in.c} {
		if *r >= 0 {
			f(r)
		}
	}
	list := in.list
	switch in.kind {
	case loads, unpacks, matrices:
		list = nil
	case multiply:
		list = list[4:]
	}
	for i := range list {
		if list[i] >= 0 {
			f(&list[i])
		}
	}
}

// constant is an operand that is the same for all threads: a number, or a
// parameter of the kernel.
type constant struct {
	value     uint64
	parameter int // or -1
}
