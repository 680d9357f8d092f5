// Package collective has the kernels that exchange elements with other ranks.
//
// AllReduceStart packs its arguments, in the type of the wire, into what this rank sends
// and returns; the group's own goroutine exchanges them while the program goes on:
//
//	all-to-all   each rank gets one part of the vectors of all
//	sum          in a fixed tree over the shards, wide, rounded once
//	all-gather   each rank gets the sums of all parts
//
// AllReduceDone waits for it and unpacks the sums. The bits depend on the shards and the
// wire's type alone. AllGatherStart and AllGatherDone exchange parts of tensors that ranks
// have computed: the all-gather alone. An AllReduce that scatters is the rest of it.
package collective

import (
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
	rows     int
	chunks   int
}

// NewStart returns the kernel of AllReduceStart.
func NewStart(b *exec.Builder, v *ir.Value) exec.Kernel {
	a := v.Attr.AllReduce
	k := &start{attr: a, partials: len(op.Partials(a.Rank, a.Ranks, a.Shards)), dst: b.At(v), from: v.Args[0].Type.DType, part: a.Part(), rows: a.Rows()}
	for _, x := range v.Args[:k.partials*len(a.Shapes)] {
		k.args = append(k.args, b.At(x))
	}
	for _, s := range a.Sections() {
		k.at = append(k.at, s.Start)
	}
	k.at = append(k.at, a.Results())
	k.chunks = (a.Ranks*k.part + chunkElements - 1) / chunkElements
	bytes := 0
	if a.Ranks > 1 {
		sums := a.Ranks
		if a.Scatter {
			sums = 0
		}
		bytes = (a.Ranks*k.rows + sums + 1) * k.part * a.Wire.Size()
	}
	k.state = b.ReserveState(v, bytes, func() exec.State { return newExchange(a) })
	return k
}

func (k *start) Run(r *exec.Run) {
	r.Parallel(k, k.rows*k.chunks, k.rows*k.attr.Ranks*k.part)
	if k.attr.Ranks > 1 && !r.Over() {
		r.Failed = r.States[k.state].(*exchange).begin(r.Values[k.dst])
	}
}

// Chunk packs elements of one partial sum. Rows that this rank has no partial sum for
// are zeros, which nobody reads.
func (k *start) Chunk(r *exec.Run, _ *exec.Worker, c int) {
	p, c := c/k.chunks, c%k.chunks
	if k.attr.Scatter {
		k.scatter(r, p, c)
		return
	}
	lo, hi := c*chunkElements, min((c+1)*chunkElements, k.attr.Ranks*k.part)
	n := len(k.attr.Shapes)
	size, wire := k.from.Size(), k.attr.Wire.Size()
	tensor := 0
	for lo < hi {
		rank := lo / k.part
		end := min(hi, (rank+1)*k.part)
		dst := r.Values[k.dst][((rank*k.rows+p)*k.part+lo-rank*k.part)*wire:]
		if lo >= k.at[n] || p >= k.partials { // or behind the last tensor
			clear(dst[:(end-lo)*wire])
			lo = end
			continue
		}
		for k.at[tensor+1] <= lo {
			tensor++
		}
		end = min(end, k.at[tensor+1])
		src := r.Values[k.args[p*n+tensor]][(lo-k.at[tensor])*size : (end-k.at[tensor])*size]
		convert(dst[:(end-lo)*wire], src, k.attr.Wire, k.from)
		lo = end
	}
}

// scatter is Chunk of parts that consist of the parts of all tensors.
func (k *start) scatter(r *exec.Run, p, c int) {
	lo, hi := c*chunkElements, min((c+1)*chunkElements, k.attr.Ranks*k.part)
	n := len(k.attr.Shapes)
	size, wire := k.from.Size(), k.attr.Wire.Size()
	tensor := 0
	for lo < hi {
		rank := lo / k.part
		begin := rank * k.part
		end := min(hi, begin+k.part)
		dst := r.Values[k.dst][((rank*k.rows+p)*k.part+lo-begin)*wire:]
		if lo-begin >= k.at[n] || p >= k.partials {
			clear(dst[:(end-lo)*wire])
			lo, tensor = end, 0
			continue
		}
		for k.at[tensor+1] <= lo-begin {
			tensor++
		}
		end = min(end, begin+k.at[tensor+1])
		from := rank*(k.at[tensor+1]-k.at[tensor]) + lo - begin - k.at[tensor]
		there := min(max(k.attr.Shapes[tensor].Size()-from, 0), end-lo) // behind the last element are zeros
		if there > 0 {
			convert(dst[:there*wire], r.Values[k.args[p*n+tensor]][from*size:(from+there)*size], k.attr.Wire, k.from)
		}
		clear(dst[there*wire : (end-lo)*wire])
		if lo = end; lo == begin+k.part {
			tensor = 0
		}
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
	chunks  int
}

// NewDone returns the kernel of AllReduceDone. Its argument must be computed by the same
// program.
func NewDone(b *exec.Builder, v *ir.Value) exec.Kernel {
	a := v.Attr.AllReduce
	k := &done{attr: a, src: b.At(v.Args[0]), state: b.StateOf(v.Args[0]), results: b.Results(v)}
	k.chunks = (a.Results() + chunkElements - 1) / chunkElements
	return k
}

func (k *done) Run(r *exec.Run) {
	if k.attr.Ranks > 1 {
		if k.state < 0 {
			r.Failed = fmt.Errorf("cpu: AllReduceDone: another program has begun %v", k.attr)
			return
		}
		if r.Failed = r.States[k.state].(*exchange).wait(); r.Failed != nil {
			return
		}
	}
	r.Parallel(k, k.chunks, k.attr.Results())
}

// Chunk unpacks elements of the sums.
func (k *done) Chunk(r *exec.Run, _ *exec.Worker, c int) {
	lo, hi := c*chunkElements, min((c+1)*chunkElements, k.attr.Results())
	sums := r.Values[k.src]
	if k.attr.Ranks > 1 {
		e := r.States[k.state].(*exchange)
		if sums = e.sums; k.attr.Scatter {
			sums = e.own
		}
	}
	wire, at := k.attr.Wire.Size(), 0
	for i, s := range k.attr.Shapes {
		n := s.Size()
		if k.attr.Scatter {
			n = op.PartOf(n, k.attr.Ranks)
		}
		from, end := max(lo, at), min(hi, at+n)
		if to := k.results[i].In(r); from < end && to != nil {
			d := k.results[i].DType
			dst, src := to[(from-at)*d.Size():(end-at)*d.Size()], sums[from*wire:end*wire]
			if k.attr.Ranks == 1 && k.attr.Scale != 1 {
				scaled(dst, src, d, k.attr)
			} else {
				convert(dst, src, d, k.attr.Wire)
			}
		}
		at += n
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
	attr   *op.AllReduce
	gather bool  // AllGather: send are this rank's parts, sums those of all
	tree   []int // op.AllReduce.Tree
	comm   driver.Communicator
	send   []byte
	recv   []byte // of all-to-all
	own    []byte // sums of this rank's part
	sums   []byte // of all parts
	busy   bool
	done   chan error // of the job, one element
	stack  []sumBlock // scratch of the sum
	scale  []float32  // a block of Scale, nil if it is 1
}

// blockElements is how many elements are added up at a time: three blocks fit into L1.
const blockElements = 1024

type sumBlock struct {
	f32 [blockElements]float32
	f64 [blockElements]float64
	x32 []float32 // the number: a block, or a row of recv
	x64 []float64
}

func newExchange(a *op.AllReduce) *exchange {
	e := &exchange{attr: a, done: make(chan error, 1)}
	if a.Ranks == 1 {
		return e
	}
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
	part := a.Part() * a.Wire.Size()
	sums := a.Ranks * part
	if a.Scatter {
		sums = 0
	}
	all := exec.Aligned(a.Ranks*a.Rows()*part + sums + part)
	e.recv, all = all[:a.Ranks*a.Rows()*part], all[a.Ranks*a.Rows()*part:]
	e.sums, e.own = all[:sums], all[sums:sums+part]
	return e
}

// begin hands the exchange of what lies in send to the group's goroutine. send must not
// change until wait has returned.
func (e *exchange) begin(send []byte) error {
	if e.comm == nil {
		if e.comm = driver.CommunicatorOf(e.attr.Group); e.comm == nil {
			return fmt.Errorf("cpu: the group of %v has ended", e.attr)
		}
	}
	e.send, e.busy = send, true
	e.comm.Post(e)
	return nil
}

// wait waits until the exchange is over.
func (e *exchange) wait() error {
	if !e.busy {
		return fmt.Errorf("cpu: the exchange of %v has not begun", e.attr)
	}
	e.busy = false
	return <-e.done
}

// Settle implements exec.State: a run that has failed must not leave its memory while
// others write to it.
func (e *exchange) Settle() {
	if e.busy {
		e.wait()
	}
}

// Exchange implements driver.CommunicatorJob.
func (e *exchange) Exchange() {
	err := e.exchange()
	e.send = nil
	e.done <- err
}

func (e *exchange) exchange() error {
	if e.gather {
		return e.comm.AllGather(e.send, e.sums)
	}
	if e.attr.Native {
		x := dtype.View[float32](e.send)
		if err := e.comm.AllReduce(x); err != nil {
			return err
		}
		sums := dtype.View[float32](e.sums)
		for i, v := range x {
			sums[i] = v * float32(e.attr.Scale)
		}
		return nil
	}
	if err := e.comm.AllToAll(e.send, e.recv); err != nil {
		return err
	}
	if e.attr.Wire == dtype.Float64 {
		e.sum64()
	} else {
		e.sum32()
	}
	if e.attr.Scatter {
		return nil
	}
	return e.comm.AllGather(e.own, e.sums)
}

// sum32 adds up this rank's part in float32.
func (e *exchange) sum32() {
	add, mul := lanes.OfF32().Binary[op.Add], lanes.OfF32().Binary[op.Mul]
	part, d := e.attr.Part(), e.attr.Wire
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
			x := e.recv[(row*part+lo)*d.Size() : (row*part+lo+n)*d.Size()]
			if d == dtype.Float32 {
				b.x32 = dtype.View[float32](x)
				continue
			}
			b.x32 = b.f32[:n]
			lanes.ToF32(b.x32, x, d)
		}
		sum, own := e.stack[0].x32, e.own[lo*d.Size():(lo+n)*d.Size()]
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
func (e *exchange) sum64() {
	part := e.attr.Part()
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
			e.stack[top].x64 = dtype.View[float64](e.recv[(row*part+lo)*8 : (row*part+lo+n)*8])
		}
		to := dtype.View[float64](e.own[lo*8 : (lo+n)*8])
		for i, x := range e.stack[0].x64 {
			to[i] = x * e.attr.Scale
		}
	}
}
