package simt

import "math"

// together executes what lanes do with each other. It reports whether it is done:
// if not, they wait for others.
func (w *warp) together(in *instruction) (bool, error) {
	switch in.kind {
	case shuffles, converge:
		members := w.row(in.c)
		first := firstLane(w.mask)
		needed := uint32(members[first])
		for l := range width {
			switch {
			case w.mask>>l&1 == 0:
			case uint32(members[l]) != needed:
				return false, w.fault(in, l, "its mask is %#x, that of lane %d is %#x", uint32(members[l]), first, needed)
			case needed>>l&1 == 0:
				return false, w.fault(in, l, "its mask %#x is without itself", needed)
			}
		}
		if !w.gather(needed) {
			return false, nil
		}
		if in.kind == converge {
			w.converged++
			return true, nil
		}
		return true, w.shuffle(in, needed)
	}
	if !w.gather(full) {
		return false, nil
	}
	if w.mask != full {
		return false, w.fault(in, firstLane(^w.mask), "only lanes %08x of 32 take part", w.mask)
	}
	if in.kind == multiply {
		w.multiply(in)
		return true, nil
	}
	return true, w.matrix(in)
}

// shuffle is shfl.sync: lane l gets what lane j has, or its own where j lies outside
// of its segment.
func (w *warp) shuffle(in *instruction, members uint32) error {
	a, b, c := *w.row(in.a), w.row(in.b), w.row(in.list[0])
	var valid uint32
	for l := range width {
		if w.mask>>l&1 == 0 {
			continue
		}
		by, clamp, segment := int(b[l]&31), int(c[l]&31), int(c[l]>>8&31)
		most, least := l&segment|clamp&^segment, l&segment
		var j int
		var p bool
		switch in.how {
		case shuffleUp:
			j = l - by
			p = j >= most
		case shuffleDown:
			j = l + by
			p = j <= most
		case shuffleXor:
			j = l ^ by
			p = j <= most
		default:
			j = least | by&^segment
			p = j <= most
		}
		if !p {
			j = l
		}
		if w.mask>>j&1 == 0 {
			return w.fault(in, l, "it reads from lane %d, which does not take part (lanes %08x)", j, w.mask)
		}
		if members>>j&1 == 0 {
			return w.fault(in, l, "it reads from lane %d, which is not in the mask %#x", j, members)
		}
		if p {
			valid |= 1 << l
		}
		w.scratch[l] = a[j] & 0xffffffff
	}
	w.set(in.d, w.mask)
	if in.p != none {
		w.preds[in.p] = w.preds[in.p]&^w.mask | valid&w.mask
	}
	return nil
}

// matrix is ldmatrix.x4: lanes 8i to 8i+7 have the addresses of the rows of matrix i,
// of eight numbers of 16 bits. Lane l gets two neighbours of row l/4, or, transposed,
// of column l/4.
func (w *warp) matrix(in *instruction) error {
	a := *w.row(in.a)
	s := w.b.shared
	by := w.now(0)&^threads | severalOfWarp | mark(w.number) // each row goes to four lanes
	for l := range width {
		if err := s.read(a[l]+in.offset, 16, by); err != nil {
			return w.fault(in, l, "%w", err)
		}
	}
	at := func(matrix, row, column int) uint64 {
		p := a[8*matrix+row] + in.offset + uint64(2*column)
		return uint64(s.data[p]) | uint64(s.data[p+1])<<8
	}
	for i, d := range in.list {
		for l := range width {
			row, column := l/4, 2*(l%4)
			if in.how == 1 {
				w.registers[d][l] = at(i, column, row) | at(i, column+1, row)<<16
			} else {
				w.registers[d][l] = at(i, row, column) | at(i, row, column+1)<<16
			}
		}
	}
	return nil
}

// multiply is mma.sync: D = A·B + C of 16 by k, k by 8 and 16 by 8 numbers, which lie
// in registers as the manual's figures of fragments have them.
func (w *warp) multiply(in *instruction) {
	var a [16][16]float32
	var b [16][8]float32
	var c [16][8]float32
	k := 16
	if in.how == mmaTF32 {
		k = 8
		for i, r := range in.list[4:8] {
			for l, u := range w.row(r) {
				a[l/4+8*(i&1)][l%4+4*(i>>1)] = getF32(u &^ 0x1fff)
			}
		}
		for i, r := range in.list[8:10] {
			for l, u := range w.row(r) {
				b[l%4+4*i][l/4] = getF32(u &^ 0x1fff)
			}
		}
	} else {
		for i, r := range in.list[4:8] {
			for l, u := range w.row(r) {
				to := a[l/4+8*(i&1)][2*(l%4)+8*(i>>1):]
				to[0], to[1] = of16(u, in.how), of16(u>>16, in.how)
			}
		}
		for i, r := range in.list[8:10] {
			for l, u := range w.row(r) {
				row, g := 2*(l%4)+8*i, l/4
				b[row][g], b[row+1][g] = of16(u, in.how), of16(u>>16, in.how)
			}
		}
	}
	for i, r := range in.list[10:] {
		for l, u := range w.row(r) {
			c[l/4+8*(i>>1)][2*(l%4)+i&1] = getF32(u)
		}
	}
	finite := true // b
	for x := range b[:k] {
		for _, v := range b[x] {
			finite = finite && v-v == 0
		}
	}
	for i := range 16 {
		row := &c[i]
		if finite && a[i] == [16]float32{} && !hasMinusZero(row) {
			continue // zeros of the padding: the sums stay
		}
		for x, ax := range a[i][:k] {
			bx := &b[x]
			for j := range row {
				row[j] += float32(ax * bx[j])
			}
		}
	}
	for i, d := range in.list[:4] {
		for l := range width {
			w.registers[d][l] = putF32(c[l/4+8*(i>>1)][2*(l%4)+i&1])
		}
	}
}

func hasMinusZero(row *[8]float32) bool {
	for _, v := range row {
		if math.Float32bits(v) == 1<<31 {
			return true
		}
	}
	return false
}

// halves has the float16s.
var halves = func() *[1 << 16]float32 {
	t := new([1 << 16]float32)
	for i := range t {
		t[i] = fromHalf(uint16(i))
	}
	return t
}()

func of16(u uint64, how uint8) float32 {
	if how == mmaBF16 {
		return getF32(u & 0xffff << 16)
	}
	return halves[uint16(u)]
}
