package recurrent

import (
	"unsafe"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/exec"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/gemm"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/lanes"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/tiling"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// scan is the kernel of RNN.
type scan[T lanes.Real] struct {
	recurrence[T]
	x, h, c, b, w, v, mask, out int // positions in Run.Values, or -1
	features                    int // of x
	ahead                       int // steps whose inputs are multiplied together, 0: each on its own
	at                          op.RNNSections

	// Offsets in scratch memory: the input of a step, the gates, h, and c of even and
	// odd steps.
	atInput   int
	atOffsets [4]int // v of each gate
	atGates   [4]int
	atOutput  int
	atLast    int
	atStates  [2]int
	atBias    int
}

func makeScan[T lanes.Real](b *exec.Builder, v *ir.Value, l *lanes.Table[T]) exec.Kernel {
	s, o := v.Attr.Scan, v.Attr.Scan.Operands()
	x, units := v.Args[o.X].Type, v.Args[o.U].Type.Shape[0]
	k := &scan[T]{out: b.At(v), features: x.Shape[2]}
	position := func(i int) int {
		if i < 0 {
			return -1
		}
		return b.At(v.Args[i])
	}
	k.x, k.h, k.c, k.b, k.w, k.v, k.mask = position(o.X), position(o.H), position(o.C), position(o.B), position(o.W), position(o.V), position(o.Mask)
	var blocks, inputs []columns
	for g := range s.Cell.Gates() {
		blocks = append(blocks, columns{position(o.U), units, g * units, units})
		if k.features > 0 && k.w >= 0 {
			inputs = append(inputs, columns{k.w, k.features, g * units, units})
		}
	}
	k.fn = arithmeticOf(l)
	k.init(s, x.DType, x.Shape[0], x.Shape[1], units, false, append(blocks, inputs...)...)
	kernels := []*ir.Value{v.Args[o.U]}
	if len(inputs) > 0 {
		kernels = append(kernels, v.Args[o.W])
	}
	k.cachePacked(b, kernels...)
	k.at = s.Sections(k.steps, k.batch, k.units)
	if set := gemm.Current(); set != nil && k.batch == 1 && k.native && len(inputs) > 0 && s.Cell.Saved() > 0 {
		k.ahead = set.F32.MR
	}
	if k.w < 0 {
		k.atInput = k.take(k.padded * k.gates * units)
	}
	for g := range k.gates {
		k.atOffsets[g] = k.take(k.wide)
	}
	for i := range max(s.Cell.Saved(), 1) {
		k.atGates[i] = k.block()
	}
	k.atOutput, k.atLast = k.block(), k.block()
	k.atStates = [2]int{k.block(), k.block()}
	k.atBias = k.take(k.wide)
	k.reserve(b)
	return exec.Choose(b, v, "rnn", scanAlgorithms[T](), scanProblem[T]{k, b})
}

func (k *scan[T]) Run(r *exec.Run) {
	if k.Begin(r); k.Chunks() > 0 {
		r.Parallel(k, k.Chunks(), k.Work())
	}
}

// Share implements exec.Concurrent.
func (k *scan[T]) Share(base int) (end int) {
	if k.products[0].panels != nil {
		return -1 // the flag of split operands has one place
	}
	for i := range k.products {
		p := &k.products[i]
		p.at += base
		end = p.at + p.bytes()
	}
	return end
}

// Begin implements exec.Concurrent.
func (k *scan[T]) Begin(r *exec.Run) { k.prepare(r) }

// Chunks implements exec.Concurrent.
func (k *scan[T]) Chunks() int {
	if k.units == 0 {
		return 0
	}
	return tiling.CeilDiv(k.batch, k.rows)
}

// Chunk takes block i of the batch through all steps.
func (k *scan[T]) Chunk(r *exec.Run, w *exec.Worker, i int) {
	first, rows := k.span(i)
	out := r.Values[k.out]
	states := [2][]T{k.blockOf(w, k.atStates[0], rows), k.blockOf(w, k.atStates[1], rows)}
	_, before, _ := k.place(0)
	copy(k.outputs(out, before, first, rows), k.bytesOf(r.Values[k.h], 0, 0, first, rows, k.units))
	if k.c >= 0 {
		c := k.bytesOf(r.Values[k.c], 0, 0, first, rows, k.units)
		copy(k.states(out, before, first, rows), c)
		k.read(states[0], c)
	}
	if k.v >= 0 {
		for g := range k.gates {
			v := r.Values[k.v][g*k.units*k.dtype.Size():][:k.units*k.dtype.Size()]
			to := lanes.ViewOf[T](w.Scratch[k.atOffsets[g]:], k.units)
			copy(to, lanes.RealView(v, k.dtype, to))
		}
	}
	if k.b >= 0 {
		b := lanes.ViewOf[T](w.Scratch[k.atBias:], k.units)
		copy(b, lanes.RealView(r.Values[k.b], k.dtype, b))
	}
	k.begin()
	defer k.end()
	for j := range k.steps {
		if j%checkSteps == 0 && r.Over() {
			return
		}
		k.step(r, w, j, first, rows, states[j%2], states[(j+1)%2])
	}
}

func (k *scan[T]) outputs(out []byte, i, first, rows int) []byte {
	return k.bytesOf(out, k.at.Outputs.Start, i, first, rows, k.units)
}

func (k *scan[T]) states(out []byte, i, first, rows int) []byte {
	return k.bytesOf(out, k.at.States.Start, i, first, rows, k.units)
}

// saved returns the memory for gate g of step t.
func (k *scan[T]) saved(out []byte, t, g, first, rows int) []byte {
	return k.bytesOf(out, k.at.Saved.Start, t*k.Cell.Saved()+g, first, rows, k.units)
}

// step computes step j: it reads c and writes next, both in scratch memory.
func (k *scan[T]) step(r *exec.Run, w *exec.Worker, j, first, rows int, c, next []T) {
	t, before, after := k.place(j)
	out := r.Values[k.out]
	hBytes, lastBytes := k.outputs(out, after, first, rows), k.outputs(out, before, first, rows)
	h := k.room(k.blockOf(w, k.atOutput, rows), hBytes)
	var gates [4][]T
	for g := range k.Cell.Saved() {
		gates[g] = k.room(k.blockOf(w, k.atGates[g], rows), k.saved(out, t, g, first, rows))
	}
	var in []T
	switch {
	case k.w < 0:
		in = k.input(r, w, t, first, rows)
	case k.ahead > 0:
		if j%k.ahead == 0 {
			k.multiplyAhead(r, w, j)
		}
	case k.Cell.Saved() == 0:
		k.multiply(r, w, t, first, rows, h)
	default:
		k.multiply(r, w, t, first, rows, gates[:k.gates]...)
	}
	a := k.products[0].operand(r, lastBytes, k.units*k.dtype.Size(), rows, w.Scratch[k.operand:])
	stored := false
	switch k.Cell {
	case op.LSTMCell:
		for g := range gates {
			k.product(r, g, rows, a, in, gates[g])
		}
		if stored = k.cells.LSTM != nil; stored {
			for g, x := range gates {
				w.Operands[g], w.Operands[6+g] = k.blockAt(x), k.storedAt(k.saved(out, t, g, first, rows), k.units)
			}
			w.Operands[4], w.Operands[5] = k.blockAt(c), k.blockAt(next)
			w.Operands[10], w.Operands[11] = k.storedAt(hBytes, k.units), k.storedAt(k.states(out, after, first, rows), k.units)
			k.cells.LSTM(w.Operands[:12], rows, k.units)
			break
		}
		pieces(len(h), scanPiece, func(lo, hi int) {
			k.lstm(gates[0][lo:hi], gates[1][lo:hi], gates[2][lo:hi], gates[3][lo:hi], c[lo:hi], next[lo:hi], h[lo:hi])
		})
	case op.GRUCell:
		k.product(r, 0, rows, a, in, gates[0])
		k.product(r, 1, rows, a, in, gates[1])
		bias := pointer(lanes.ViewOf[T](w.Scratch[k.atBias:], k.wide))
		k.products[2].mul(r, rows, a, bias, 0, pointer(gates[3]), k.ld())
		if k.w < 0 {
			k.copyInput(in, 2, gates[2], rows)
		}
		if stored = k.cells.GRU != nil; stored {
			for g, x := range gates {
				w.Operands[g], w.Operands[5+g] = k.blockAt(x), k.storedAt(k.saved(out, t, g, first, rows), k.units)
			}
			w.Operands[4], w.Operands[9] = k.storedAt(lastBytes, k.units), k.storedAt(hBytes, k.units)
			k.cells.GRU(w.Operands[:10], rows, k.units)
			break
		}
		k.gru(gates, k.load(k.blockOf(w, k.atLast, rows), lastBytes), h)
	case op.GRUBeforeCell:
		last := k.load(k.blockOf(w, k.atLast, rows), lastBytes)
		k.product(r, 0, rows, a, in, gates[0])
		k.product(r, 1, rows, a, in, gates[1])
		pieces(len(h), scanPiece, func(lo, hi int) {
			k.fn.sigmoid(gates[1][lo:hi], gates[1][lo:hi])
			k.fn.mul(gates[3][lo:hi], gates[1][lo:hi], last[lo:hi])
		})
		q := k.saved(out, t, 3, first, rows)
		k.store(q, gates[3])
		a = k.products[2].operand(r, q, k.units*k.dtype.Size(), rows, w.Scratch[k.operand:])
		k.product(r, 2, rows, a, in, gates[2])
		k.gru(gates, last, h)
	default:
		k.product(r, 0, rows, a, in, h)
		f := k.fn.tanh
		if k.Cell == op.ReluCell {
			f = k.fn.relu
		}
		pieces(len(h), scanPiece, func(lo, hi int) { f(h[lo:hi], h[lo:hi]) })
	}
	if !stored {
		for g := range k.Cell.Saved() {
			k.store(k.saved(out, t, g, first, rows), gates[g])
		}
		k.store(hBytes, h)
		if k.c >= 0 {
			k.save(k.states(out, after, first, rows), next)
		}
	}
	if k.mask < 0 {
		return
	}
	n := k.units * k.dtype.Size()
	for i, on := range r.Values[k.mask][t*k.batch+first:][:rows] {
		if on != 0 {
			continue
		}
		copy(hBytes[i*n:][:n], lastBytes[i*n:])
		if k.c >= 0 {
			copy(next[i*k.wide:][:k.units], c[i*k.wide:])
			copy(k.states(out, after, first, rows)[i*n:][:n], k.states(out, before, first, rows)[i*n:])
		}
	}
}

// input returns the input of a step as T: rows of all gates.
func (k *scan[T]) input(r *exec.Run, w *exec.Worker, t, first, rows int) []T {
	data := k.bytesOf(r.Values[k.x], 0, t, first, rows, k.gates*k.units)
	if k.dtype.Size() == lanes.SizeOf[T]() {
		return dtype.View[T](data)
	}
	in := lanes.ViewOf[T](w.Scratch[k.atInput:], rows*k.gates*k.units)
	return lanes.RealView(data, k.dtype, in)
}

// multiply computes x·w+v of a step, dst[g] for gate g.
func (k *scan[T]) multiply(r *exec.Run, w *exec.Worker, t, first, rows int, dst ...[]T) {
	inputs := k.products[k.gates:]
	var a stepOperand
	if len(inputs) > 0 {
		x := k.bytesOf(r.Values[k.x], 0, t, first, rows, k.features)
		a = inputs[0].operand(r, x, k.features*k.dtype.Size(), rows, w.Scratch[k.operand:])
	}
	for g, d := range dst {
		v := lanes.ViewOf[T](w.Scratch[k.atOffsets[g]:], k.wide)
		if len(inputs) > 0 {
			inputs[g].mul(r, rows, a, pointer(v), 0, pointer(d), k.ld())
			continue
		}
		for i := range rows {
			copy(d[i*k.wide:], v)
		}
	}
}

// multiplyAhead is multiply for steps j to j+ahead-1 of a single sequence, whose inputs
// are consecutive rows. Micro-kernels for one row take several times as long for each.
// Results go to where the steps have their gates.
func (k *scan[T]) multiplyAhead(r *exec.Run, w *exec.Worker, j int) {
	n := min(k.ahead, k.steps-j)
	t, _, _ := k.place(j)
	if k.Reverse {
		t -= n - 1
	}
	inputs := k.products[k.gates:]
	x := k.bytesOf(r.Values[k.x], 0, t, 0, n, k.features)
	a := inputs[0].operand(r, x, k.features*k.dtype.Size(), n, w.Scratch[k.operand:])
	for g := range k.gates {
		d := k.saved(r.Values[k.out], t, g, 0, 1)
		inputs[g].mul(r, n, a, pointer(lanes.ViewOf[T](w.Scratch[k.atOffsets[g]:], k.wide)), 0, pointer(d), k.Cell.Saved()*k.ld())
	}
}

// product computes the pre-activation of gate g: the input plus a·u. The input is in d
// if it is a product, else it is the argument in.
func (k *scan[T]) product(r *exec.Run, g, rows int, a stepOperand, in, d []T) {
	p := &k.products[g]
	if k.w >= 0 {
		p.mul(r, rows, a, pointer(d), k.ld(), pointer(d), k.ld())
		return
	}
	if p.masks() && (p.unit() == 1 || k.dtype.Size() < lanes.SizeOf[T]()) {
		s := unsafe.Pointer(&in[g*k.units])
		p.mul(r, rows, a, s, lanes.SizeOf[T]()*k.gates*k.units, pointer(d), k.ld())
		return
	}
	// The micro-kernel would read past the input's end.
	k.copyInput(in, g, d, rows)
	p.mul(r, rows, a, pointer(d), k.ld(), pointer(d), k.ld())
}

// copyInput copies gate g of the input to a block.
func (k *scan[T]) copyInput(in []T, g int, d []T, rows int) {
	for i := range rows {
		copy(d[i*k.wide:][:k.units], in[(i*k.gates+g)*k.units:])
	}
}

// lstm computes a piece of LSTMCell from the pre-activations of the gates.
func (k *scan[T]) lstm(i, f, g, o, c, next, h []T) {
	fn := &k.fn
	fn.sigmoid(i, i)
	fn.sigmoid(f, f)
	fn.tanh(g, g)
	fn.sigmoid(o, o)
	fn.mul(h, i, g)
	fn.mul(next, f, c)
	fn.add(next, next, h)
	fn.tanh(h, next)
	fn.mul(h, h, o)
}

// gru computes the rest of a GRU from the pre-activation of z. For GRUCell, r is a
// pre-activation too, and g the input alone.
func (k *scan[T]) gru(gates [4][]T, last, h []T) {
	fn := &k.fn
	pieces(len(h), scanPiece, func(lo, hi int) {
		z, r, g, q, h, last := gates[0][lo:hi], gates[1][lo:hi], gates[2][lo:hi], gates[3][lo:hi], h[lo:hi], last[lo:hi]
		fn.sigmoid(z, z)
		if k.Cell == op.GRUCell {
			fn.sigmoid(r, r)
			fn.mul(h, r, q)
			fn.add(g, g, h)
		}
		fn.tanh(g, g)
		fn.sub(h, last, g)
		fn.mul(h, h, z)
		fn.add(h, h, g)
	})
}
