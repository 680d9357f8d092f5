package cpu

import (
	"slices"
	"unsafe"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// scanGrad is RNNGrad: the steps of a scan from the last to the first. At each
// the gradients by the gates' sums are computed, a few rows at a time, and
// their product with the transposed recurrent kernel is the gradient by the h
// before.
type scanGrad[T real] struct {
	recurrence[T]
	s, all, last, state, mask, out int // positions; -1 is none
	saved                          op.RNNSections
	to                             op.RNNGradSections

	// Scratch memory for blocks: the gradients by h and c, what of them passes
	// a step by, what RNN saved, the gradient by q.
	atOutput, atState, atPass, atKeep int
	atGates                           [4]int
	atH, atLast, atC, atLastC, atQ    int

	pieceRows int
	atPiece   [5]int
}

func makeScanGrad[T real](b *builder, v *ir.Value, l *loops[T]) kernel {
	s, o := v.Attr.Scan, v.Attr.Scan.GradOperands()
	k := &scanGrad[T]{out: b.at(v)}
	position := func(i int) int {
		if i < 0 {
			return -1
		}
		return b.at(v.Args[i])
	}
	k.s, k.all, k.last, k.state, k.mask = position(o.S), position(o.Steps), position(o.Last), position(o.State), position(o.Mask)
	steps, batch, units := v.Attr.Dims[0], v.Attr.Dims[1], v.Attr.Dims[2]
	u := position(o.U)
	blocks := []columns{{u, units, 0, s.Cell.Gates() * units}}
	if s.Cell == op.GRUBeforeCell {
		blocks = []columns{{u, units, 0, 2 * units}, {u, units, 2 * units, units}}
	}
	k.fn = arithmeticOf(l)
	k.init(s, v.Type.DType, steps, batch, units, true, blocks...)
	k.saved, k.to = s.Sections(steps, batch, units), s.GradSections(steps, batch, units)
	for _, at := range []*int{&k.atOutput, &k.atState, &k.atPass, &k.atKeep, &k.atH, &k.atLast, &k.atC, &k.atLastC, &k.atQ} {
		*at = k.block()
	}
	for g := range s.Cell.Saved() {
		k.atGates[g] = k.block()
	}
	k.pieceRows = max(1, scanPiece/max(1, k.wide))
	k.fn.ones = slices.Repeat([]T{1}, k.pieceRows*k.wide)
	for i := range k.atPiece {
		k.atPiece[i] = k.take(k.pieceRows * k.wide)
	}
	k.reserve(b)
	return k
}

func (k *scanGrad[T]) run(r *run) {
	if k.prepare(r) {
		k.start(r, k)
	}
}

// chunk takes block i of the batch through all steps.
func (k *scanGrad[T]) chunk(r *run, w *worker, i int) {
	first, rows := k.span(i)
	dh, dc := k.blockOf(w, k.atOutput, rows), k.blockOf(w, k.atState, rows)
	load := func(dst []T, pos int) {
		clear(dst)
		if pos >= 0 {
			k.read(dst, k.bytesOf(r.values[pos], 0, 0, first, rows, k.units))
		}
	}
	load(dh, k.last)
	load(dc, k.state)
	for j := k.steps - 1; j >= 0; j-- {
		k.step(r, w, j, first, rows, dh, dc)
	}
	out := r.values[k.out]
	k.save(k.bytesOf(out, k.to.Output.Start, 0, first, rows, k.units), dh)
	if k.Cell.HasState() {
		k.save(k.bytesOf(out, k.to.State.Start, 0, first, rows, k.units), dc)
	}
}

// stepRows is rows of a block at a step.
type stepRows[T real] struct {
	gates   [4][]T // as RNN saved them
	h, last []T    // after and before the step
	c, lastC,
	dh, dc,
	pass, // what of dh goes past the sums
	q []T // gradient by q
	sums [4][]T // gradients by the sums of the gates, and by what h·u gave
	t    []T
}

// cut is elements lo to hi of each.
func (s *stepRows[T]) cut(lo, hi int) stepRows[T] {
	part := func(x []T) []T {
		if x == nil {
			return nil
		}
		return x[lo:hi]
	}
	return stepRows[T]{
		gates: [4][]T{part(s.gates[0]), part(s.gates[1]), part(s.gates[2]), part(s.gates[3])},
		h:     part(s.h), last: part(s.last), c: part(s.c), lastC: part(s.lastC),
		dh: s.dh[lo:hi], dc: s.dc[lo:hi], pass: s.pass[lo:hi], q: s.q[lo:hi],
	}
}

// step computes step j: dh and dc from those after it.
func (k *scanGrad[T]) step(r *run, w *worker, j, first, rows int, dh, dc []T) {
	t, before, after := k.place(j)
	s, out := r.values[k.s], r.values[k.out]
	if k.all >= 0 {
		k.fn.add(dh, dh, k.load(k.blockOf(w, k.atH, rows), k.bytesOf(r.values[k.all], 0, t, first, rows, k.units)))
	}
	all := stepRows[T]{dh: dh, dc: dc, pass: k.blockOf(w, k.atPass, rows), q: k.blockOf(w, k.atQ, rows)}
	var mask []byte
	if k.mask >= 0 {
		mask = r.values[k.mask][t*k.batch+first:][:rows]
		copy(k.blockOf(w, k.atKeep, rows), dc)
	}

	width, size := k.gates*k.units, k.dtype.Size()
	input := k.bytesOf(out, k.to.Input.Start, t, first, rows, width)
	recurrent := k.bytesOf(out, k.to.Recurrent.Start, t, first, rows, width)
	if k.cells.LSTMGrad != nil && k.Cell == op.LSTMCell {
		for g := range 4 {
			w.operands[g] = k.storedAt(k.bytesOf(s, k.saved.Saved.Start, 4*t+g, first, rows, k.units), k.units)
			w.operands[8+g] = k.storedAt(input[g*k.units*size:], width)
		}
		w.operands[4] = k.storedAt(k.bytesOf(s, k.saved.States.Start, after, first, rows, k.units), k.units)
		w.operands[5] = k.storedAt(k.bytesOf(s, k.saved.States.Start, before, first, rows, k.units), k.units)
		w.operands[6], w.operands[7] = k.blockAt(dh), k.blockAt(dc)
		k.cells.LSTMGrad(w.operands[:12], rows, k.units)
	} else {
		k.sums(r, w, &all, t, before, after, first, rows, input, recurrent)
	}
	gru := k.Cell == op.GRUCell || k.Cell == op.GRUBeforeCell
	var past unsafe.Pointer
	lead := 0
	if gru || mask != nil {
		past, lead = pointer(all.pass), k.lead()
	}
	if mask != nil {
		k.skip(w, mask, &all, gru, input, recurrent)
	}
	p := &k.products[0]
	a, lda := p.operand(recurrent, width*size, rows, w.scratch[k.operand:])
	p.mul(r, rows, a, lda, past, lead, pointer(dh), k.lead())
}

// sums computes the gradients by the gates' sums, a piece after the other.
func (k *scanGrad[T]) sums(r *run, w *worker, all *stepRows[T], t, before, after, first, rows int, input, recurrent []byte) {
	s, width, size := r.values[k.s], k.gates*k.units, k.dtype.Size()
	read := func(at int, from op.Section, i int) []T {
		return k.load(k.blockOf(w, at, rows), k.bytesOf(s, from.Start, i, first, rows, k.units))
	}
	for g := range k.Cell.Saved() {
		all.gates[g] = read(k.atGates[g], k.saved.Saved, t*k.Cell.Saved()+g)
	}
	switch {
	case k.Cell.HasState():
		all.c, all.lastC = read(k.atC, k.saved.States, after), read(k.atLastC, k.saved.States, before)
	case k.Cell.Saved() > 0:
		all.last = read(k.atLast, k.saved.Outputs, before)
	default:
		all.h = read(k.atH, k.saved.Outputs, after)
	}
	step := k.wide * k.pieceRows
	for lo := 0; lo < len(all.dh); lo += step {
		p := all.cut(lo, min(len(all.dh), lo+step))
		k.pieceOf(w, &p)
		row := lo / k.wide
		switch k.Cell {
		case op.LSTMCell:
			k.lstm(&p)
			k.scatter(input, row, p.sums[:4], [4]int{0, 1, 2, 3})
		case op.GRUCell, op.GRUBeforeCell:
			k.gru(&p)
			k.scatter(input, row, p.sums[:3], [4]int{0, 1, 2})
			if k.Cell == op.GRUCell {
				p.sums[2] = p.sums[3]
				k.scatter(recurrent, row, p.sums[:3], [4]int{0, 1, 2})
			}
		default:
			k.simple(&p)
			k.scatter(input, row, p.sums[:1], [4]int{0})
		}
	}
	if k.Cell == op.GRUBeforeCell {
		p := &k.products[1]
		a, lda := p.operand(input[2*k.units*size:], width*size, rows, w.scratch[k.operand:])
		p.mul(r, rows, a, lda, nil, 0, pointer(all.q), k.lead())
		for lo := 0; lo < len(all.dh); lo += step {
			p := all.cut(lo, min(len(all.dh), lo+step))
			k.pieceOf(w, &p)
			k.reset(&p)
			k.scatter(input, lo/k.wide, p.sums[1:2], [4]int{1})
		}
	}
}

// skip has the gradients of rows that the mask leaves out pass the step by.
func (k *scanGrad[T]) skip(w *worker, mask []byte, all *stepRows[T], gru bool, input, recurrent []byte) {
	keep := k.blockOf(w, k.atKeep, len(mask))
	n := k.gates * k.units * k.dtype.Size()
	for i, on := range mask {
		at := i * k.wide
		switch {
		case on == 0:
			clear(input[i*n:][:n])
			clear(recurrent[i*n:][:n])
			copy(all.pass[at:][:k.wide], all.dh[at:])
			copy(all.dc[at:][:k.wide], keep[at:])
		case !gru:
			clear(all.pass[at:][:k.wide])
		}
	}
}

// pieceOf gives p room for what it computes.
func (k *scanGrad[T]) pieceOf(w *worker, p *stepRows[T]) {
	n := len(p.dh)
	for i := range p.sums {
		p.sums[i] = viewOf[T](w.scratch[k.atPiece[i]:], n)
	}
	p.t = viewOf[T](w.scratch[k.atPiece[4]:], n)
}

// scatter stores gradients by the sums of gates, from a row on, in the columns
// of these gates.
func (k *scanGrad[T]) scatter(dst []byte, row int, sums [][]T, gates [4]int) {
	size := k.dtype.Size()
	for i, x := range sums {
		at := (row*k.gates + gates[i]) * k.units * size
		for ; len(x) > 0; x = x[k.wide:] {
			to := dst[at:][:k.units*size]
			if size == sizeOf[T]() {
				copy(dtype.View[T](to), x)
			} else {
				storeReal(to, x[:k.units], k.dtype)
			}
			at += k.gates * k.units * size
		}
	}
}

func (k *scanGrad[T]) lstm(p *stepRows[T]) {
	fn := &k.fn
	i, f, g, o := p.gates[0], p.gates[1], p.gates[2], p.gates[3]
	di, df, dg, do := p.sums[0], p.sums[1], p.sums[2], p.sums[3]
	fn.tanh(df, p.c)
	fn.mul(do, p.dh, df)
	fn.mul(di, p.dh, o)
	fn.oneLess(di, df, p.t)
	fn.add(p.dc, p.dc, di)
	fn.through(do, o, p.t)
	fn.mul(di, p.dc, g)
	fn.through(di, i, p.t)
	fn.mul(df, p.dc, p.lastC)
	fn.through(df, f, p.t)
	fn.mul(dg, p.dc, i)
	fn.oneLess(dg, g, p.t)
	fn.mul(p.dc, p.dc, f)
}

// gru computes all of GRUCell; of GRUBeforeCell r remains, which needs the
// gradient by q.
func (k *scanGrad[T]) gru(p *stepRows[T]) {
	fn := &k.fn
	z, r, g, q := p.gates[0], p.gates[1], p.gates[2], p.gates[3]
	dz, dr, dg, dq := p.sums[0], p.sums[1], p.sums[2], p.sums[3]
	fn.mul(p.pass, p.dh, z)
	fn.sub(dz, p.last, g)
	fn.mul(dz, dz, p.dh)
	fn.through(dz, z, p.t)
	fn.sub(dg, fn.ones[:len(z)], z)
	fn.mul(dg, dg, p.dh)
	fn.oneLess(dg, g, p.t)
	fn.mul(dq, dg, r)
	fn.mul(dr, dg, q)
	fn.through(dr, r, p.t)
}

// reset computes the reset gate of GRUBeforeCell from the gradient by q.
func (k *scanGrad[T]) reset(p *stepRows[T]) {
	fn := &k.fn
	r, dr := p.gates[1], p.sums[1]
	fn.mul(dr, p.q, r)
	fn.add(p.pass, p.pass, dr)
	fn.mul(dr, p.q, p.last)
	fn.through(dr, r, p.t)
}

func (k *scanGrad[T]) simple(p *stepRows[T]) {
	d := p.sums[0]
	copy(d, p.dh)
	if k.Cell == op.TanhCell {
		k.fn.oneLess(d, p.h, p.t)
		return
	}
	for i, h := range p.h {
		if !(h > 0) { // also NaN
			d[i] = 0
		}
	}
}
