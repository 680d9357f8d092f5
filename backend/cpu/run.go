package cpu

import (
	"context"
	"sync/atomic"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
)

// kernel computes one value. It knows the positions of its operands among the
// program's values; everything else was settled when it was made.
type kernel interface {
	run(r *run)
}

// producer is a kernel that can make float32 elements from element lo on in the
// block buffers of the one value that reads them, so that they need not be stored.
type producer interface {
	kernel
	produce(r *run, lo int, out []float32)
}

// Plan is what the runs of a program share: the graph and the memory that its
// kernels have asked for.
type Plan struct {
	graph   *ir.Graph
	memory  memory
	scratch int               // bytes for each worker
	shared  int               // bytes that the workers of a step share
	sums    int               // numbers that stay during a run
	kept    []int             // bytes of packed inputs
	regs    int               // block buffers of each worker
	labels  []context.Context // of the values, for profiles
}

// memory counts the bytes that runs hold.
type memory interface {
	hold(bytes int)         // by the program
	holdByHelper(bytes int) // by a helper, which outlives the program
}

// builder collects what kernels need while they are made, and tells them what
// they need to know of their program.
type builder struct {
	*Plan
	pos     map[*ir.Value]int
	made    map[*ir.Value]producer  // values whose one reader makes the elements itself
	squares map[*ir.Value]int       // place in run.sums of the sum of squares of a value
	source  map[*ir.Value]*ir.Value // casts that their readers make themselves
}

// newBuilder returns a builder of the kernels of p.
func newBuilder(p *Plan) *builder {
	b := &builder{Plan: p, pos: make(map[*ir.Value]int, len(p.graph.Values)), made: map[*ir.Value]producer{}, squares: map[*ir.Value]int{}}
	for i, v := range p.graph.Values {
		b.pos[v] = i
	}
	return b
}

// at is the position of v among the program's values.
func (b *builder) at(v *ir.Value) int { return b.pos[v] }

// alias returns a copy of v, which has v's position, for a kernel that computes v
// as another operation.
func (b *builder) alias(v *ir.Value) *ir.Value {
	u := *v
	b.pos[&u] = b.pos[v]
	return &u
}

// wantScratch reserves memory for each worker. All kernels use it from its
// beginning on.
func (b *builder) wantScratch(bytes int) { b.scratch = max(b.scratch, bytes) }

// wantShared reserves memory that the workers of a step share.
func (b *builder) wantShared(bytes int) { b.shared = max(b.shared, bytes) }

// wantRegs reserves n block buffers for each worker.
func (b *builder) wantRegs(n int) { b.regs = max(b.regs, n) }

// wantSum reserves a number that stays during a run, and returns its place.
func (b *builder) wantSum() int {
	b.sums++
	return b.sums - 1
}

// run is the memory of one run of a program.
type run struct {
	plan    *Plan
	procs   int
	arena   []byte
	values  [][]byte // where each value lies
	shared  []byte
	sums    []float64
	kept    []keptOperand
	version []uint64 // of the buffers of inputs that are not overwritten, by position; else 0
	worker  worker   // the caller's own
	place   int      // where its last job was
	places  uint     // where it had any, as bits
	trace   *tracer  // nil unless the run is traced
	at      int      // position of the value that is computed, when traced or labelled

	one [1]int64 // an element on its way to another type
	// badIndex is one more than the first position of an index out of range, or 0.
	badIndex atomic.Int64
	failed   error

	see  func(v *ir.Value, data []byte) error // or nil
	done <-chan struct{}                      // of the context, while the run may end with it
}

// init allocates the memory of a run of p.
func (r *run) init(p *Plan) {
	r.plan = p
	r.arena = dirty(aligned(p.graph.ArenaBytes))
	r.values = make([][]byte, len(p.graph.Values))
	r.shared = dirty(aligned(p.shared))
	r.sums = viewOf[float64](aligned(8*p.sums), p.sums)
	r.kept = make([]keptOperand, len(p.kept))
	r.version = make([]uint64, len(p.graph.Values))
	r.worker.fit(p)
}

// reset forgets what belongs to one call of a run that is kept for the next.
func (r *run) reset() {
	r.leave()
	r.failed, r.trace, r.see, r.done = nil, nil, nil, nil
}

// bytes is what a run holds.
func (r *run) bytes() int {
	n := len(r.arena) + len(r.shared) + 8*len(r.sums) + len(r.worker.scratch)
	for _, k := range r.kept {
		n += len(k.data)
	}
	return n
}

// forgetKept drops the packed operands of a run that ended early: they may be
// packed in part.
func (r *run) forgetKept() {
	for i := range r.kept {
		r.kept[i].version, r.kept[i].seen = 0, 0
	}
}

// over reports whether the context has ended and the run is to do no more.
func (r *run) over() bool {
	if r.done == nil {
		return false
	}
	select {
	case <-r.done:
		return true
	default:
		return false
	}
}

// constant returns the elements of a Const.
func constant(v *ir.Value) []byte {
	data := aligned(v.Type.Bytes())
	if v.Attr.Data != nil {
		copy(data, v.Attr.Data)
		return data
	}
	fill(data, v.Type.DType, v.Attr.Value)
	return data
}

// fill sets all elements of data to x.
func fill(data []byte, d dtype.DType, x float64) {
	if len(data) == 0 {
		return
	}
	dtype.FromF64(data[:d.Size()], []float64{x}, d)
	repeat(data, d.Size())
}

// repeat copies the first n bytes of b over the rest.
func repeat(b []byte, n int) {
	for ; n > 0 && n < len(b); n *= 2 {
		copy(b[n:], b[:n])
	}
}
