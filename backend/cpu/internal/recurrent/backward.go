package recurrent

import (
	"slices"
	"unsafe"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/exec"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/lanes"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/tiling"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/vec"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// scanGrad is the kernel of RNNGrad: the steps of a scan from the last to the first.
// Each step computes the gradients of the gates' pre-activations, a few rows at a time.
// Their product with the transposed recurrent kernel is the gradient of the h before.
type scanGrad[T lanes.Real] struct {
	recurrence[T]
	s, all, last, state, x, mask, out int // positions in Run.Values, or -1
	saved                             op.RNNSections
	to                                op.RNNGradSections

	// Offsets of blocks in scratch memory: the gradients of h and c, the part of dh
	// that bypasses the gates, the values that RNN saved, the gradient of q.
	atOutput, atState, atPass, atKeep int
	atGates                           [4]int
	atH, atLast, atC, atLastC, atQ    int

	pieceRows int
	atPiece   [5]int

	// The gradients of the pre-activations: bytes from row to row, and the column where
	// those of gate 2's input begin. With Weights they are no result but terms of
	// totals, converted in atStep if their type differs.
	ldSums, third   int
	totals          weightSums[T]
	atStep, atInput int
}

func makeScanGrad[T lanes.Real](b *exec.Builder, v *ir.Value, l *lanes.Table[T]) exec.Kernel {
	s, o := v.Attr.Scan, v.Attr.Scan.GradOperands()
	k := &scanGrad[T]{out: b.At(v)}
	position := func(i int) int {
		if i < 0 {
			return -1
		}
		return b.At(v.Args[i])
	}
	k.s, k.all, k.last, k.state, k.mask = position(o.S), position(o.Steps), position(o.Last), position(o.State), position(o.Mask)
	k.x = position(o.X)
	steps, batch, units := v.Attr.Dims[0], v.Attr.Dims[1], v.Attr.Dims[2]
	u := position(o.U)
	blocks := []columns{{u, units, 0, s.Cell.Gates() * units}}
	if s.Cell == op.GRUBeforeCell {
		blocks = []columns{{u, units, 0, 2 * units}, {u, units, 2 * units, units}}
	}
	k.ldSums, k.third = s.Cell.Gates()*units*v.Args[o.S].Type.DType.Size(), 2*units
	if s.Features { // GRUCell needs two products: its input gates are not adjacent
		w, features := position(o.W), v.Attr.Dims[3]
		if cut := 2 * units; s.Cell == op.GRUCell {
			blocks = append(blocks, columns{w, features, 0, cut}, columns{w, features, cut, units})
		} else {
			blocks = append(blocks, columns{w, features, 0, s.Cell.Gates() * units})
		}
	}
	k.fn = arithmeticOf(l)
	k.init(s, v.Args[o.S].Type.DType, steps, batch, units, true, blocks...)
	k.saved, k.to = s.Sections(steps, batch, units), s.GradSections(v.Attr.Dims)
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
	if s.Weights {
		k.totals.init(b, k, v.Attr.Dims[3])
		k.ldSums = k.totals.ldB
		if s.Cell == op.GRUCell {
			k.third = 3 * units
		}
		if k.totals.copies {
			k.ldSums = k.totals.wideB * k.dtype.Size()
			k.atStep = k.takeBytes(k.rows * k.ldSums)
		}
		if s.Features {
			k.atInput = k.takeBytes(k.padded * k.inputLD())
		}
	}
	k.reserve(b)
	return k
}

// inputLD returns the leading dimension, in bytes, of a step's gradient of x. Products
// write it in whole panels.
func (k *scanGrad[T]) inputLD() int {
	nr := 1
	if t := k.products[len(k.products)-1].tiles; t != nil {
		nr = t.NR
	}
	return lanes.SizeOf[T]() * tiling.RoundUp(k.totals.features, nr)
}

func (k *scanGrad[T]) Run(r *exec.Run) {
	n := tiling.CeilDiv(k.batch, k.rows)
	if k.Weights {
		n = k.totals.parts
	}
	if k.prepare(r) {
		k.start(r, k, n)
	}
	if k.Weights {
		k.totals.Run(r)
	}
}

// Chunk takes block i, or with Weights the blocks of part i, through all steps.
func (k *scanGrad[T]) Chunk(r *exec.Run, w *exec.Worker, i int) {
	k.begin()
	defer k.end()
	if !k.Weights {
		k.through(r, w, i, nil)
		return
	}
	window := window{part: i, first: true}
	from, to := tiling.Cut(i, k.totals.parts, tiling.CeilDiv(k.batch, k.rows))
	for block := from; block < to; block++ {
		k.through(r, w, block, &window)
	}
	k.totals.flush(r, w, i, window.rows, window.first)
}

// window counts the rows of gradients that are not yet added to the sums of a part.
// first is whether they are the part's first rows.
type window struct {
	part, rows int
	first      bool
}

// through takes block i through all steps.
func (k *scanGrad[T]) through(r *exec.Run, w *exec.Worker, i int, win *window) {
	first, rows := k.span(i)
	dh, dc := k.blockOf(w, k.atOutput, rows), k.blockOf(w, k.atState, rows)
	load := func(dst []T, pos int) {
		clear(dst)
		if pos >= 0 {
			k.read(dst, k.bytesOf(r.Values[pos], 0, 0, first, rows, k.units))
		}
	}
	load(dh, k.last)
	load(dc, k.state)
	for j := k.steps - 1; j >= 0; j-- {
		if j%checkSteps == 0 && r.Over() {
			return
		}
		k.step(r, w, j, first, rows, dh, dc, win)
	}
	k.result(r, k.to.Output, first, rows, dh)
	if k.Cell.HasState() {
		k.result(r, k.to.State, first, rows, dc)
	}
}

// result writes a block to a section of the result. With Weights the result has
// elements of T.
func (k *scanGrad[T]) result(r *exec.Run, to op.Section, first, rows int, x []T) {
	out := r.Values[k.out]
	if !k.Weights {
		k.save(k.bytesOf(out, to.Start, 0, first, rows, k.units), x)
		return
	}
	d := dtype.View[T](out)[to.Start+first*k.units:]
	for i := range rows {
		copy(d[i*k.units:][:k.units], x[i*k.wide:])
	}
}

// stepRows is the rows of a block at one step.
type stepRows[T lanes.Real] struct {
	gates   [4][]T // as RNN saved them
	h, last []T    // after and before the step
	c, lastC,
	dh, dc,
	pass, // the part of dh that bypasses the gates
	q []T // gradient of q
	sums [4][]T // gradients of the pre-activations, and of h·u
	t    []T
}

// cut returns elements lo to hi of each slice.
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

// step computes step j: it replaces dh and dc after the step by those before it.
func (k *scanGrad[T]) step(r *exec.Run, w *exec.Worker, j, first, rows int, dh, dc []T, win *window) {
	t, before, after := k.place(j)
	s := r.Values[k.s]
	if k.all >= 0 {
		k.fn.add(dh, dh, k.load(k.blockOf(w, k.atH, rows), k.bytesOf(r.Values[k.all], 0, t, first, rows, k.units)))
	}
	all := stepRows[T]{dh: dh, dc: dc, pass: k.blockOf(w, k.atPass, rows), q: k.blockOf(w, k.atQ, rows)}
	var mask []byte
	if k.mask >= 0 {
		mask = r.Values[k.mask][t*k.batch+first:][:rows]
		copy(k.blockOf(w, k.atKeep, rows), dc)
	}

	size := k.dtype.Size()
	input, recurrent := k.gradients(r, w, t, first, rows, win)
	lstm, gru := k.Cell == op.LSTMCell, k.Cell == op.GRUCell || k.Cell == op.GRUBeforeCell
	fused := lstm && k.cells.LSTMGrad != nil || k.Cell == op.GRUCell && k.cells.GRUGrad != nil
	column := func(data []byte, from int) vec.Operand {
		return vec.Operand{P: pointer(data[from*size:]), Stride: k.ldSums}
	}
	if fused {
		for g := range 4 {
			w.Operands[g] = k.storedAt(k.bytesOf(s, k.saved.Saved.Start, 4*t+g, first, rows, k.units), k.units)
		}
	}
	switch {
	case fused && lstm:
		for g := range 4 {
			w.Operands[8+g] = column(input, g*k.units)
		}
		w.Operands[4] = k.storedAt(k.bytesOf(s, k.saved.States.Start, after, first, rows, k.units), k.units)
		w.Operands[5] = k.storedAt(k.bytesOf(s, k.saved.States.Start, before, first, rows, k.units), k.units)
		w.Operands[6], w.Operands[7] = k.blockAt(dh), k.blockAt(dc)
		k.cells.LSTMGrad(w.Operands[:12], rows, k.units)
	case fused:
		w.Operands[4] = k.storedAt(k.bytesOf(s, k.saved.Outputs.Start, before, first, rows, k.units), k.units)
		w.Operands[5], w.Operands[6] = k.blockAt(dh), k.blockAt(all.pass)
		w.Operands[7], w.Operands[8] = column(input, 0), column(input, k.units)
		w.Operands[9], w.Operands[10] = column(input, k.third), column(recurrent, 2*k.units)
		k.cells.GRUGrad(w.Operands[:11], rows, k.units)
		for i := 0; !k.Weights && i < rows; i++ { // the other gates equal the input's
			copy(recurrent[i*k.ldSums:][:2*k.units*size], input[i*k.ldSums:])
		}
	default:
		k.sums(r, w, &all, t, before, after, first, rows, input, recurrent)
	}
	var past unsafe.Pointer
	ld := 0
	if gru || mask != nil {
		past, ld = pointer(all.pass), k.ld()
	}
	if mask != nil {
		k.skip(w, mask, &all, gru, input, recurrent)
	}
	p := &k.products[0]
	a := p.operand(r, recurrent, k.ldSums, rows, w.Scratch[k.operand:])
	p.mul(r, rows, a, past, ld, pointer(dh), k.ld())
	if win != nil {
		k.add(r, w, t, before, first, rows, input, win)
	}
}

// gradients returns the memory for a step's gradients of the pre-activations: with
// respect to the input, and with respect to h·u.
func (k *scanGrad[T]) gradients(r *exec.Run, w *exec.Worker, t, first, rows int, win *window) (input, recurrent []byte) {
	switch {
	case win == nil:
		out, width := r.Values[k.out], k.gates*k.units
		return k.bytesOf(out, k.to.Input.Start, t, first, rows, width), k.bytesOf(out, k.to.Recurrent.Start, t, first, rows, width)
	case k.totals.copies:
		input = w.Scratch[k.atStep:]
	default:
		if win.rows+rows > k.totals.rows {
			k.totals.flush(r, w, win.part, win.rows, win.first)
			win.rows, win.first = 0, false
		}
		input = k.totals.rowsOfB(w, win.rows)
	}
	return input, input
}

// add appends the gradients of a step to the window and, with Features, computes the
// gradient of x.
func (k *scanGrad[T]) add(r *exec.Run, w *exec.Worker, t, before, first, rows int, input []byte, win *window) {
	if k.totals.copies {
		if win.rows+rows > k.totals.rows {
			k.totals.flush(r, w, win.part, win.rows, win.first)
			win.rows, win.first = 0, false
		}
		k.totals.convert(w, win.rows, rows, input, k.ldSums)
	}
	k.totals.fill(r, w, win.rows, t, before, first, rows)
	win.rows += rows
	if !k.Features {
		return
	}
	d, ld := w.Scratch[k.atInput:], k.inputLD()
	multiply := func(p *stepProduct[T], col int, s unsafe.Pointer) {
		a := p.operand(r, input[col*k.dtype.Size():], k.ldSums, rows, w.Scratch[k.operand:])
		p.mul(r, rows, a, s, ld, pointer(d), ld)
	}
	if n := len(k.products); k.Cell == op.GRUCell {
		multiply(&k.products[n-2], 0, nil)
		multiply(&k.products[n-1], k.third, pointer(d))
	} else {
		multiply(&k.products[n-1], 0, nil)
	}
	to := dtype.View[T](r.Values[k.out])[k.to.X.Start+(t*k.batch+first)*k.totals.features:]
	for i := range rows {
		copy(to[i*k.totals.features:][:k.totals.features], lanes.ViewOf[T](d[i*ld:], k.totals.features))
	}
}

// sums computes the gradients of the pre-activations, one piece at a time.
func (k *scanGrad[T]) sums(r *exec.Run, w *exec.Worker, all *stepRows[T], t, before, after, first, rows int, input, recurrent []byte) {
	s, size := r.Values[k.s], k.dtype.Size()
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
			k.scatter(input, row, p.sums[:4], [4]int{0, k.units, 2 * k.units, 3 * k.units})
		case op.GRUCell, op.GRUBeforeCell:
			k.gru(&p)
			k.scatter(input, row, p.sums[:3], [4]int{0, k.units, k.third})
			if k.Cell == op.GRUCell {
				p.sums[2] = p.sums[3]
				k.scatter(recurrent, row, p.sums[:3], [4]int{0, k.units, 2 * k.units})
			}
		default:
			k.simple(&p)
			k.scatter(input, row, p.sums[:1], [4]int{})
		}
	}
	if k.Cell == op.GRUBeforeCell {
		p := &k.products[1]
		a := p.operand(r, input[2*k.units*size:], k.ldSums, rows, w.Scratch[k.operand:])
		p.mul(r, rows, a, nil, 0, pointer(all.q), k.ld())
		for lo := 0; lo < len(all.dh); lo += step {
			p := all.cut(lo, min(len(all.dh), lo+step))
			k.pieceOf(w, &p)
			k.reset(&p)
			k.scatter(input, lo/k.wide, p.sums[1:2], [4]int{k.units})
		}
	}
}

// skip lets the gradients of rows that the mask leaves out bypass the step.
func (k *scanGrad[T]) skip(w *exec.Worker, mask []byte, all *stepRows[T], gru bool, input, recurrent []byte) {
	keep := k.blockOf(w, k.atKeep, len(mask))
	n := k.gates * k.units * k.dtype.Size()
	if k.Weights {
		n = k.totals.wideB * k.dtype.Size()
	}
	for i, on := range mask {
		at := i * k.wide
		switch {
		case on == 0:
			clear(input[i*k.ldSums:][:n])
			clear(recurrent[i*k.ldSums:][:n])
			copy(all.pass[at:][:k.wide], all.dh[at:])
			copy(all.dc[at:][:k.wide], keep[at:])
		case !gru:
			clear(all.pass[at:][:k.wide])
		}
	}
}

// pieceOf gives p scratch memory for its results.
func (k *scanGrad[T]) pieceOf(w *exec.Worker, p *stepRows[T]) {
	n := len(p.dh)
	for i := range p.sums {
		p.sums[i] = lanes.ViewOf[T](w.Scratch[k.atPiece[i]:], n)
	}
	p.t = lanes.ViewOf[T](w.Scratch[k.atPiece[4]:], n)
}

// scatter stores gradients of pre-activations in rows from row on; those of sums[i] in
// columns from from[i] on.
func (k *scanGrad[T]) scatter(dst []byte, row int, sums [][]T, from [4]int) {
	size := k.dtype.Size()
	for i, x := range sums {
		at := row*k.ldSums + from[i]*size
		for ; len(x) > 0; x = x[k.wide:] {
			to := dst[at:][:k.units*size]
			if size == lanes.SizeOf[T]() {
				copy(dtype.View[T](to), x)
			} else {
				lanes.StoreReal(to, x[:k.units], k.dtype)
			}
			at += k.ldSums
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

// gru computes all of GRUCell, and of GRUBeforeCell all but r, which needs the gradient
// of q.
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

// reset computes the reset gate of GRUBeforeCell from the gradient of q.
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
