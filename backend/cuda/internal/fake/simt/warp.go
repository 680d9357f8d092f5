package simt

import (
	"fmt"
	"math/bits"
	"runtime"
)

// group is lanes of a warp that are at the same instruction.
type group struct {
	pc     int32
	mask   uint32
	parked bool // waits for other lanes
}

// warp is 32 threads of a block.
type warp struct {
	b         *blockState
	number    int
	registers []lanes
	preds     []uint32
	carry     uint32
	live      uint32 // lanes that have not ended
	local     []byte
	tid       [3]lanes
	copies    [width][]flight
	commits   [width]uint64 // groups of copies that the lane has begun

	// The lanes that run, and the others.
	pc    int32
	mask  uint32
	stop  int32 // where the lowest of the others is
	lease int   // instructions that run although others are lower
	spins int   // jumps back while others wait
	rest  []group

	atBarrier bool
	converged uint64 // bar.warp.sync since the last barrier
	steps     uint64
	scratch   lanes
}

// maxSteps bounds the instructions of a warp, unless a launch does.
const maxSteps = 1 << 30

// After spins jumps back the other lanes of a warp run a while: they may hold what
// these wait for.
const (
	maxSpins  = 64
	leaseSize = 256
)

// begin puts a warp at the start of the kernel, with threads from first on.
func (w *warp) begin(first, count int) {
	dims := w.b.Block
	w.live = uint32(full >> (width - min(width, count-first)))
	for l := range width {
		i := first + l
		w.tid[0][l], w.tid[1][l], w.tid[2][l] = uint64(i%dims[0]), uint64(i/dims[0]%dims[1]), uint64(i/(dims[0]*dims[1]))
		w.copies[l], w.commits[l] = w.copies[l][:0], 0
	}
	for _, r := range w.b.k.early {
		w.registers[r].fill(0xcbcbcbcbcbcbcbcb)
	}
	for i := range w.preds {
		w.preds[i] = 0xcbcbcbcb
	}
	for i := range w.local {
		w.local[i] = 0xcb
	}
	w.pc, w.mask, w.stop, w.rest, w.carry = 0, w.live, int32(len(w.b.k.code)), w.rest[:0], 0
	w.atBarrier, w.converged, w.steps, w.lease, w.spins = false, 0, 0, 0, 0
}

// row is an operand.
func (w *warp) row(r int32) *lanes {
	if r >= 0 {
		return &w.registers[r]
	}
	return &w.b.constants[^r]
}

// schedule chooses the lanes that run next: those at the lowest address of the ones
// that do not wait, together with all that are there. It reports whether there are any.
func (w *warp) schedule(skip bool) bool {
	if w.mask != 0 {
		w.rest = append(w.rest, group{pc: w.pc, mask: w.mask})
		w.mask = 0
	}
	best := int32(-1)
	for _, g := range w.rest {
		if !g.parked && (best < 0 || g.pc < best) && !(skip && g.pc == w.pc && len(w.rest) > 1) {
			best = g.pc
		}
	}
	if best < 0 {
		if skip {
			return w.schedule(false)
		}
		return false
	}
	w.stop = int32(len(w.b.k.code))
	kept := w.rest[:0]
	for _, g := range w.rest {
		switch {
		case g.pc == best && !g.parked:
			w.mask |= g.mask
		default:
			if !g.parked && g.pc < w.stop {
				w.stop = g.pc
			}
			kept = append(kept, g)
		}
	}
	w.rest = kept
	w.pc = best
	return true
}

// gather adds to the lanes that run those that wait at the same instruction, and
// reports whether all that are needed are there. If not, they wait, too.
func (w *warp) gather(needed uint32) bool {
	kept := w.rest[:0]
	for _, g := range w.rest {
		if g.pc == w.pc && g.parked {
			w.mask |= g.mask
		} else {
			kept = append(kept, g)
		}
	}
	w.rest = kept
	if needed&w.live&^w.mask == 0 {
		return true
	}
	w.rest = append(w.rest, group{w.pc, w.mask, true})
	w.mask = 0
	return false
}

// wake lets the lanes that wait try again, after others have ended; if that was in
// vain before, nothing can go on.
func (w *warp) wake() bool {
	any := false
	for i := range w.rest {
		any = any || w.rest[i].parked
		w.rest[i].parked = false
	}
	return any
}

// run executes a warp up to a barrier or its end.
func (w *warp) run() error {
	if w.atBarrier {
		w.atBarrier, w.converged = false, 0
		w.pc++
	}
	code := w.b.k.code
	woken := uint32(0) // lanes that were alive when those waiting tried last
	for w.live != 0 {
		if w.mask == 0 && !w.schedule(false) {
			if woken == w.live || !w.wake() {
				return w.deadlock()
			}
			woken = w.live
			continue
		}
		if len(w.rest) > 0 && w.pc >= w.stop && w.lease == 0 {
			w.schedule(false)
		}
		if w.lease > 0 {
			w.lease--
		}
		if w.steps++; w.steps > w.b.Steps {
			return w.fault(&code[w.pc], firstLane(w.mask), "the warp has not ended after %d instructions", w.b.Steps)
		}
		in := &code[w.pc]
		mask := w.mask
		if in.guard != none {
			if in.not {
				mask &^= w.preds[in.guard]
			} else {
				mask &= w.preds[in.guard]
			}
			if mask == 0 {
				w.pc++
				continue
			}
		}
		w.b.covered[w.pc] = true
		switch in.kind {
		case computes:
			if mask == full {
				in.f(&w.registers[in.d], w.row(in.a), w.row(in.b), w.row(in.c))
			} else {
				in.f(&w.scratch, w.row(in.a), w.row(in.b), w.row(in.c))
				w.registers[in.d].merge(&w.scratch, mask)
			}
		case compares:
			w.preds[in.p] = w.preds[in.p]&^mask | in.compare(w.row(in.a), w.row(in.b))&mask
		case selects:
			choose(&w.scratch, w.row(in.a), w.row(in.b), w.preds[in.q], in.mask)
			w.set(in.d, mask)
		case branches:
			w.branch(in, mask)
			continue
		case exits:
			w.live &^= mask
			w.mask &^= mask
			for l := range width {
				if mask>>l&1 != 0 && len(w.copies[l]) > 0 {
					return w.fault(in, l, "the thread ends while cp.async still copies")
				}
			}
			if w.mask == 0 {
				continue
			}
		case barrier:
			if !w.gather(full) {
				continue
			}
			w.atBarrier = true
			return nil
		case loads, stores:
			if err := w.access(in, mask); err != nil {
				return err
			}
		default:
			done, err := w.rare(in, mask)
			if err != nil {
				return err
			}
			if !done {
				continue
			}
		}
		w.pc++
	}
	return nil
}

// set writes scratch to the lanes of a mask.
func (w *warp) set(d int32, mask uint32) {
	if mask == full {
		w.registers[d] = w.scratch
	} else {
		w.registers[d].merge(&w.scratch, mask)
	}
}

// rare executes what is not frequent. It reports whether the instruction is done: if
// not, lanes wait.
func (w *warp) rare(in *instruction, mask uint32) (bool, error) {
	switch in.kind {
	case predicates:
		w.logic(in, mask)
	case carries:
		w.carryOp(in, mask)
	case reads:
		w.scratch = *w.special(in.how)
		w.set(in.d, mask)
	case packs:
		for l := range width {
			var u uint64
			for i, r := range in.list {
				u |= w.row(r)[l] & maskOf(in.bytes) << (8 * in.bytes * i)
			}
			w.scratch[l] = u
		}
		w.set(in.d, mask)
	case unpacks:
		a := *w.row(in.a)
		for i, r := range in.list {
			for l := range width {
				w.scratch[l] = a[l] >> (8 * in.bytes * i) & maskOf(in.bytes)
			}
			w.set(r, mask)
		}
	case swaps:
		return true, w.swap(in, mask)
	case copies:
		return true, w.copy(in, mask)
	case commits:
		w.commit(mask)
	case waits:
		return true, w.await(in, mask)
	default:
		return w.together(in)
	}
	return true, nil
}

// branch moves the lanes of a mask to the target; the others go on.
func (w *warp) branch(in *instruction, taken uint32) {
	back := in.target <= w.pc
	switch {
	case taken == w.mask:
		w.pc = in.target
	case w.lease > 0: // these go on, whoever is lower
		w.rest = append(w.rest, group{pc: in.target, mask: taken})
		w.mask &^= taken
		w.stop = min(w.stop, in.target)
		w.pc++
	default:
		w.rest = append(w.rest, group{pc: in.target, mask: taken}, group{pc: w.pc + 1, mask: w.mask &^ taken})
		w.mask = 0
		w.schedule(false)
	}
	if !back || len(w.rest) == 0 {
		return
	}
	// The lanes that jump back may wait for the others.
	if w.spins++; w.spins >= maxSpins {
		w.spins = 0
		runtime.Gosched()
		if w.schedule(true) {
			w.lease = leaseSize
		}
	}
}

func firstLane(mask uint32) int { return bits.TrailingZeros32(mask) }

// deadlock says where the lanes wait that can not go on.
func (w *warp) deadlock() error {
	text := "deadlock:"
	for _, g := range w.rest {
		in := &w.b.k.code[g.pc]
		text += fmt.Sprintf(" lanes %08x wait at line %d (%s);", g.mask, in.line, in.text)
	}
	g := w.rest[0]
	return w.fault(&w.b.k.code[g.pc], firstLane(g.mask), "%s lanes %08x have ended", text, ^w.live)
}

// special is a register that tells a thread where it is.
func (w *warp) special(i uint8) *lanes {
	var r lanes
	var u int
	switch {
	case i < 3:
		return &w.tid[i]
	case i < 6:
		u = w.b.Block[i-3]
	case i < 9:
		u = w.b.id[i-6]
	case i < 12:
		u = w.b.Grid[i-9]
	case i == 12:
		for l := range r {
			r[l] = uint64(l)
		}
		return &r
	default:
		u = w.number
	}
	r.fill(uint64(u))
	return &r
}

func (w *warp) logic(in *instruction, mask uint32) {
	var v uint32
	switch in.how {
	case predicateMove:
		v = w.preds[in.q]
	case predicateNot:
		v = ^w.preds[in.q]
	case predicateAnd:
		v = w.preds[in.q] & w.preds[in.r]
	case predicateOr:
		v = w.preds[in.q] | w.preds[in.r]
	case predicateXor:
		v = w.preds[in.q] ^ w.preds[in.r]
	case predicateSet:
		v = -uint32(in.target)
	}
	w.preds[in.p] = w.preds[in.p]&^mask | v&mask
}

// carryOp is an addition or subtraction of 32 bits with the carry of the lane.
func (w *warp) carryOp(in *instruction, mask uint32) {
	a, b, c := w.row(in.a), w.row(in.b), w.row(in.c)
	carry := w.carry
	for l := range width {
		x, y := a[l]&0xffffffff, b[l]&0xffffffff
		switch {
		case in.how&carryLow != 0:
			x, y = x*y&0xffffffff, c[l]&0xffffffff
		case in.how&carryHigh != 0:
			x, y = x*y>>32, c[l]&0xffffffff
		}
		var r uint64
		k := uint64(w.carry >> l & 1)
		if in.how&carryIn == 0 {
			k = 0
		}
		if in.how&carrySub != 0 {
			r = x - y - k
		} else {
			r = x + y + k
		}
		w.scratch[l] = r & 0xffffffff
		if in.how&carryOut != 0 {
			carry = carry&^(1<<l) | uint32(r>>32&1)<<l
		}
	}
	w.carry = w.carry&^mask | carry&mask
	w.set(in.d, mask)
}
