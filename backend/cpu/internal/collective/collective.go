// Package collective has the kernels that exchange elements with other ranks.
//
// AllReduceStart packs its arguments, in the type of the wire, into what this rank sends
// and returns; the group's own goroutine exchanges them while the program goes on:
//
//	all-to-all   each rank gets one part of the vectors of all
//	sum          in a fixed tree over the shards, wide, rounded once
//	all-gather   each rank gets the sums of all parts
//
// AllReduceDone waits for it and unpacks the sums. All of it goes piece by piece. The
// bits depend on the shards and the wire's type alone. AllGatherStart and AllGatherDone
// exchange parts of tensors that ranks have computed: the all-gather alone. An AllReduce
// that scatters is the rest of it.
package collective

import (
	"errors"
	"fmt"
	"slices"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/exec"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/lanes"
	"github.com/mezzo-ml/mezzo/backend/driver"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// chunkElements is how many elements of a vector a worker packs at a time.
const chunkElements = 1 << 15

// Exchanges are cut into pieces, so that one is on its way and added up while the next is
// packed, and what has been packed, received or added up is still in the cache when it is
// read. A piece has pieceBytes of all ranks together, or more if they are many: at least
// messageBytes go to each rank, so that the latency does not count.
const (
	pieceBytes   = 2 << 20
	messageBytes = 256 << 10
)

// pieceAlign is what the columns of a piece are a multiple of, but for the last: a cache
// line of float32.
const pieceAlign = 16

// pieces are ranges of the columns of a matrix that has a row for each rank, or several.
// Each piece is a matrix of its own in memory, one behind the other.
type pieces struct {
	columns int // of the whole matrix
	step    int // columns of a piece; the last may have less
	n       int
}

// piecesOf cuts a matrix with a row for each rank. It depends on what is the same on all
// ranks alone.
func piecesOf(columns, ranks int, t dtype.DType) pieces {
	if ranks == 1 { // nothing is exchanged
		return pieces{columns, columns, 1}
	}
	most := max(pieceAlign, max(pieceBytes/ranks, messageBytes)/t.Size())
	n := max(1, (columns+most-1)/most)
	step := (columns + n - 1) / n
	step = max(pieceAlign, (step+pieceAlign-1)/pieceAlign*pieceAlign)
	return pieces{columns, step, max(1, (columns+step-1)/step)}
}

// of returns the columns of piece i.
func (p pieces) of(i int) (lo, hi int) { return min(i*p.step, p.columns), min((i+1)*p.step, p.columns) }

// chunks returns the chunks of piece i of a matrix with some rows.
func (p pieces) chunks(i, rows int) int {
	lo, hi := p.of(i)
	return rows * ((hi - lo + chunkElements - 1) / chunkElements)
}

// chunk returns chunk c of piece i: columns of a row, and where they begin in memory.
func (p pieces) chunk(i, rows, c int) (row, from, end, at int) {
	lo, hi := p.of(i)
	each := (hi - lo + chunkElements - 1) / chunkElements
	row, c = c/each, c%each
	from = lo + c*chunkElements
	return row, from, min(hi, from+chunkElements), rows*lo + row*(hi-lo) + from - lo
}

// tensorAt returns the tensor that has element position of a vector, at the positions
// where tensors begin and the length; the number of tensors behind the last element.
func tensorAt(at []int, position int) int {
	i, _ := slices.BinarySearch(at, position+1)
	return i - 1
}

// start is the kernel of AllReduceStart.
type start struct {
	attr     *op.AllReduce
	args     []int // tensors of each partial sum
	partials int   // of this rank
	dst      int
	state    int // index in Run.States
	from     dtype.DType
	at       []int // where each tensor begins in the vector, or in a part if it is scattered; at the end the length
	part     int
	rows     int  // of a rank
	soon     bool // there is work to do before the sums are waited for
}

// NewStart returns the kernel of AllReduceStart.
func NewStart(b *exec.Builder, v *ir.Value) exec.Kernel {
	a := v.Attr.AllReduce
	k := &start{attr: a, partials: len(op.Partials(a.Rank, a.Ranks, a.Shards)), dst: b.At(v), from: v.Args[0].Type.DType, part: a.Part(), rows: a.Rows(), at: starts(a), soon: overlaps(b, v)}
	for _, x := range v.Args[:k.partials*len(a.Shapes)] {
		k.args = append(k.args, b.At(x))
	}
	bytes := 0
	if a.Ranks > 1 {
		recv, own, sums := memory(a)
		bytes = recv + own + sums
	}
	k.state = b.ReserveState(v, bytes, func() exec.State { return newExchange(a) })
	return k
}

// overlaps reports whether the program computes anything between v, which begins an
// exchange, and the value that waits for it.
func overlaps(b *exec.Builder, v *ir.Value) bool {
	for _, u := range b.Graph.Values[b.At(v)+1:] {
		switch {
		case (u.Op == op.AllReduceDone || u.Op == op.AllGatherDone) && u.Args[0] == v:
			return false
		case u.Op != op.Result && u.Op.Info().Class != op.Collective:
			return true
		}
	}
	return true
}

// starts returns where the tensors begin in the result, and its length.
func starts(a *op.AllReduce) (at []int) {
	for _, s := range a.Sections() {
		at = append(at, s.Start)
	}
	return append(at, a.Results())
}

func (k *start) Run(r *exec.Run) {
	e := r.States[k.state].(*exchange)
	e.pack(r, k, r.Values[k.dst], k.attr.Ranks*k.rows, k.soon)
}

// Chunk packs columns of one row: elements of one partial sum, for one rank. Rows that
// this rank has no partial sum for are zeros, which nobody reads.
func (k *start) Chunk(r *exec.Run, _ *exec.Worker, c int) {
	e := r.States[k.state].(*exchange)
	row, from, end, at := e.chunk(e.piece, k.attr.Ranks*k.rows, c)
	rank, p := row/k.rows, row%k.rows
	size, wire := k.from.Size(), k.attr.Wire.Size()
	dst := r.Values[k.dst][at*wire : (at+end-from)*wire]
	if p >= k.partials {
		clear(dst)
		return
	}
	position, last := from, len(k.attr.Shapes)
	if !k.attr.Scatter {
		position += rank * k.part
	}
	for i := tensorAt(k.at, position); len(dst) > 0; i++ {
		if i >= last { // behind the last tensor
			clear(dst)
			return
		}
		n := min(len(dst)/wire, k.at[i+1]-position)
		offset, there := position-k.at[i], n
		if k.attr.Scatter { // a rank's part of a tensor, behind whose last element are zeros
			offset += rank * (k.at[i+1] - k.at[i])
			there = min(max(k.attr.Shapes[i].Size()-offset, 0), n)
		}
		if there > 0 {
			convert(dst[:there*wire], r.Values[k.args[p*last+i]][offset*size:(offset+there)*size], k.attr.Wire, k.from)
		}
		clear(dst[there*wire : n*wire])
		dst, position = dst[n*wire:], position+n
	}
}

// convert copies elements and rounds them to another type.
func convert(dst, src []byte, to, from dtype.DType) {
	switch {
	case to == from:
		copy(dst, src)
	case from == dtype.Float32:
		lanes.FromF32(dst, dtype.View[float32](src), to)
	case to == dtype.Float32:
		lanes.ToF32(dtype.View[float32](dst), src, from)
	default: // 16 bits to 16 bits, or float64 to 16 bits
		var wide [256]float64
		for n := len(src) / from.Size(); n > 0; n = len(src) / from.Size() {
			n = min(n, len(wide))
			dtype.ToF64(wide[:n], src[:n*from.Size()], from)
			dtype.FromF64(dst[:n*to.Size()], wide[:n], to)
			src, dst = src[n*from.Size():], dst[n*to.Size():]
		}
	}
}

// done is the kernel of AllReduceDone.
type done struct {
	attr    *op.AllReduce
	src     int
	state   int
	results []exec.Result
	at      []int // where each tensor begins in the result; at the end the length
	rows    int   // of the sums: the ranks, or 1 if they are scattered
	pieces
}

// NewDone returns the kernel of AllReduceDone. Its argument must be computed by the same
// program.
func NewDone(b *exec.Builder, v *ir.Value) exec.Kernel {
	a := v.Attr.AllReduce
	k := &done{attr: a, src: b.At(v.Args[0]), state: b.StateOf(v.Args[0]), results: b.Results(v), at: starts(a), rows: a.Ranks, pieces: piecesOf(a.Part(), a.Ranks, a.Wire)}
	if a.Scatter {
		k.rows = 1
	}
	return k
}

func (k *done) Run(r *exec.Run) { unpack(r, k, k.attr, k.state, k.pieces, k.rows) }

// Chunk unpacks columns of one rank's part of the sums.
func (k *done) Chunk(r *exec.Run, _ *exec.Worker, c int) {
	i, sums := 0, r.Values[k.src]
	if k.attr.Ranks > 1 {
		e := r.States[k.state].(*exchange)
		i, sums = e.piece, e.sums
	}
	rank, from, end, at := k.chunk(i, k.rows, c)
	wire, position := k.attr.Wire.Size(), rank*k.columns+from
	src := sums[at*wire : (at+min(end-from, max(0, k.attr.Results()-position)))*wire]
	for i := tensorAt(k.at, position); len(src) > 0; i++ {
		n := min(len(src)/wire, k.at[i+1]-position)
		if to := k.results[i].In(r); to != nil {
			d := k.results[i].DType
			dst := to[(position-k.at[i])*d.Size() : (position-k.at[i]+n)*d.Size()]
			if k.attr.Ranks == 1 && k.attr.Scale != 1 {
				scaled(dst, src[:n*wire], d, k.attr)
			} else {
				convert(dst, src[:n*wire], d, k.attr.Wire)
			}
		}
		src, position = src[n*wire:], position+n
	}
}

// scaled is convert with the factor Scale, for a group of one rank.
func scaled(dst, src []byte, d dtype.DType, a *op.AllReduce) {
	if a.Wire == dtype.Float64 {
		var x [256]float64
		for n := len(src) / 8; n > 0; n = len(src) / 8 {
			n = min(n, len(x))
			dtype.ToF64(x[:n], src[:8*n], a.Wire)
			for i := range n {
				x[i] *= a.Scale
			}
			dtype.FromF64(dst[:n*d.Size()], x[:n], d)
			src, dst = src[8*n:], dst[n*d.Size():]
		}
		return
	}
	var x [256]float32
	size := a.Wire.Size()
	for n := len(src) / size; n > 0; n = len(src) / size {
		n = min(n, len(x))
		lanes.ToF32(x[:n], src[:n*size], a.Wire)
		for i := range n {
			x[i] *= float32(a.Scale)
		}
		lanes.FromF32(dst[:n*d.Size()], x[:n], d)
		src, dst = src[n*size:], dst[n*d.Size():]
	}
}

// exchange is an AllReduce or AllGather of a run.
type exchange struct {
	attr *op.AllReduce
	pieces
	piece  int   // that is packed, or unpacked
	gather bool  // AllGather: send are this rank's parts, sums those of all
	tree   []int // op.AllReduce.Tree
	comm   driver.Communicator
	send   []byte
	recv   []byte     // of the all-to-all of a piece
	own    []byte     // sums of this rank's part of a piece
	sums   []byte     // of all parts, or of this rank's if they are scattered
	busy   int        // pieces that have been posted and not waited for
	packed chan bool  // of each piece; false: the run is over
	done   chan error // of each piece; an error is the last
	stack  []sumBlock // scratch of the sum
	scale  []float32  // a block of Scale, nil if it is 1
}

// blockElements is how many elements are added up at a time: three blocks fit into L1.
const blockElements = 1024

type sumBlock struct {
	f32 [blockElements]float32
	f64 [blockElements]float64
	x32 []float32 // the number: a block, or a row of what was received
	x64 []float64
}

// memory returns the bytes of recv, own and sums of an exchange.
func memory(a *op.AllReduce) (recv, own, sums int) {
	p, size := piecesOf(a.Part(), a.Ranks, a.Wire), a.Wire.Size()
	recv, own = a.Ranks*a.Rows()*p.step*size, p.step*size
	if a.Scatter {
		return recv, 0, p.columns * size
	}
	return recv, own, a.Ranks * p.columns * size
}

func newExchange(a *op.AllReduce) *exchange {
	e := &exchange{attr: a, pieces: piecesOf(a.Part(), a.Ranks, a.Wire)}
	if a.Ranks == 1 {
		return e
	}
	e.open()
	if !a.Native {
		e.tree = a.Tree()
	}
	depth, most := 0, 0
	for _, row := range e.tree {
		if row == op.AddSums {
			depth--
		} else {
			depth++
		}
		most = max(most, depth)
	}
	e.stack = make([]sumBlock, most)
	if a.Scale != 1 {
		e.scale = slices.Repeat([]float32{float32(a.Scale)}, blockElements)
	}
	recv, own, sums := memory(a)
	all := exec.Aligned(recv + own + sums)
	e.recv, e.own, e.sums = all[:recv], all[recv:recv+own], all[recv+own:]
	return e
}

// open makes the channels, whose tokens an exchange that has failed may leave behind.
func (e *exchange) open() { e.packed, e.done = make(chan bool, e.n), make(chan error, e.n) }

// pack packs the pieces of send, a matrix with some rows, with the chunks of a task, and
// hands each to the group. send must not change until all have been waited for. Unless the
// exchange is to begin soon, a single piece is left to the goroutine that waits for it: to
// wake another one would take longer.
func (e *exchange) pack(r *exec.Run, t exec.Task, send []byte, rows int, soon bool) {
	if e.attr.Ranks > 1 {
		if e.comm == nil {
			if e.comm = driver.CommunicatorOf(e.attr.Group); e.comm == nil {
				r.Failed = fmt.Errorf("cpu: the group of %v has ended", e.attr)
				return
			}
		}
	}
	for e.piece = range e.n {
		lo, hi := e.of(e.piece)
		r.Parallel(t, e.chunks(e.piece, rows), rows*(hi-lo))
		if e.attr.Ranks == 1 {
			continue
		}
		over := r.Over()
		if over && e.busy == 0 {
			return // nothing has been posted
		}
		if e.packed <- !over; over {
			return
		}
		if e.busy == 0 {
			e.send, e.busy = send, e.n
			e.comm.Post(e, soon || e.n > 1)
		}
	}
}

// unpack runs chunks of a task on each piece of a result, a matrix with some rows, once it
// is there.
func unpack(r *exec.Run, t exec.Task, a *op.AllReduce, state int, p pieces, rows int) {
	if a.Ranks > 1 && state < 0 {
		r.Failed = fmt.Errorf("cpu: another program has begun %v", a)
		return
	}
	for i := range p.n {
		lo, hi := p.of(i)
		if a.Ranks > 1 {
			e := r.States[state].(*exchange)
			if r.Failed = e.wait(); r.Failed != nil {
				return
			}
			e.piece = i
		}
		r.Parallel(t, p.chunks(i, rows), rows*(hi-lo))
	}
}

// wait waits until the exchange of the next piece is over.
func (e *exchange) wait() error {
	if e.busy == 0 {
		return fmt.Errorf("cpu: the exchange of %v has not begun", e.attr)
	}
	if e.n == 1 {
		e.comm.Help(e)
	}
	err := <-e.done
	if e.busy--; err != nil { // the last one
		e.busy = 0
		e.open()
	}
	return err
}

// Settle implements exec.State: a run that has failed must not leave its memory while
// others write to it.
func (e *exchange) Settle() {
	for e.busy > 0 {
		e.wait()
	}
}

// errOver is the error of a piece that has not been packed.
var errOver = errors.New("cpu: the run has ended while gradients were packed")

// Exchange implements driver.CommunicatorJob.
func (e *exchange) Exchange() {
	for i := range e.n {
		var err error
		if <-e.packed {
			err = e.exchange(i)
		} else {
			err = errOver
		}
		if i == e.n-1 || err != nil {
			e.send = nil
		}
		if e.done <- err; err != nil {
			return
		}
	}
}

// exchange exchanges a piece.
func (e *exchange) exchange(i int) error {
	lo, hi := e.of(i)
	a, size := e.attr, e.attr.Wire.Size()
	n := (hi - lo) * size // bytes of a row
	if e.gather {
		return e.comm.AllGather(e.send[lo*size:hi*size], e.sums[a.Ranks*lo*size:a.Ranks*hi*size])
	}
	rows := a.Ranks * a.Rows()
	send := e.send[rows*lo*size : rows*hi*size]
	if a.Native {
		x := dtype.View[float32](send)
		if err := e.comm.AllReduce(x); err != nil {
			return err
		}
		sums := dtype.View[float32](e.sums)[a.Ranks*lo:]
		for i, v := range x {
			sums[i] = v * float32(a.Scale)
		}
		return nil
	}
	recv := e.recv[:len(send)]
	if err := e.comm.AllToAll(send, recv); err != nil {
		return err
	}
	own := e.own
	if a.Scatter {
		own = e.sums[lo*size:]
	}
	if own = own[:n]; a.Wire == dtype.Float64 {
		e.sum64(own, recv)
	} else {
		e.sum32(own, recv)
	}
	if a.Scatter {
		return nil
	}
	return e.comm.AllGather(own, e.sums[a.Ranks*lo*size:a.Ranks*hi*size])
}

// sum32 adds up rows in float32.
func (e *exchange) sum32(sums, rows []byte) {
	add, mul := lanes.OfF32().Binary[op.Add], lanes.OfF32().Binary[op.Mul]
	d := e.attr.Wire
	part := len(sums) / d.Size()
	for lo := 0; lo < part; lo += blockElements {
		n, top := min(blockElements, part-lo), -1
		for _, row := range e.tree {
			if row == op.AddSums {
				top--
				to := e.stack[top].f32[:n]
				add(to, e.stack[top].x32, e.stack[top+1].x32)
				e.stack[top].x32 = to
				continue
			}
			top++
			b := &e.stack[top]
			x := rows[(row*part+lo)*d.Size() : (row*part+lo+n)*d.Size()]
			if d == dtype.Float32 {
				b.x32 = dtype.View[float32](x)
				continue
			}
			b.x32 = b.f32[:n]
			lanes.ToF32(b.x32, x, d)
		}
		sum, own := e.stack[0].x32, sums[lo*d.Size():(lo+n)*d.Size()]
		switch {
		case e.scale == nil:
		case d == dtype.Float32:
			mul(dtype.View[float32](own), sum, e.scale[:n])
			continue
		default:
			to := e.stack[0].f32[:n]
			mul(to, sum, e.scale[:n])
			sum = to
		}
		lanes.FromF32(own, sum, d)
	}
}

// sum64 is sum32 in float64.
func (e *exchange) sum64(sums, rows []byte) {
	part := len(sums) / 8
	for lo := 0; lo < part; lo += blockElements {
		n, top := min(blockElements, part-lo), -1
		for _, row := range e.tree {
			if row == op.AddSums {
				top--
				to := e.stack[top].f64[:n]
				for i, x := range e.stack[top].x64 {
					to[i] = x + e.stack[top+1].x64[i]
				}
				e.stack[top].x64 = to
				continue
			}
			top++
			e.stack[top].x64 = dtype.View[float64](rows[(row*part+lo)*8 : (row*part+lo+n)*8])
		}
		to := dtype.View[float64](sums[lo*8 : (lo+n)*8])
		for i, x := range e.stack[0].x64 {
			to[i] = x * e.attr.Scale
		}
	}
}
