// Package exec runs the kernels of a compiled plan: it shares their work out to
// the processor's cores and owns the memory that they work in.
//
// Main types: [Kernel] computes a value of a plan; [Builder] collects what kernels
// need while they are made; [Run] is the memory of one run; [Task] is work in
// chunks, which [Run.Parallel] spreads over workers.
//
// Where to look: workers.go has the worker pool, packed.go the cache of packed
// operands, results.go the values that an operation with several results writes,
// guard.go allocation and its checks under MEZZO_DEBUG=check, trace.go what
// profilers and tracers see.
package exec

import (
	"context"
	"sync/atomic"

	"github.com/mezzo-ml/mezzo/backend/cpu/internal/lanes"
	"github.com/mezzo-ml/mezzo/backend/ir"
)

// Kernel computes one value of a plan. Its operands are positions among the plan's
// values; its sizes are fixed when it is built.
type Kernel interface {
	Run(r *Run)
}

// Producer is a kernel that can be fused into its one consumer: Produce writes
// float32 elements from element lo on to the consumer's block buffer.
type Producer interface {
	Kernel
	Produce(r *Run, lo int, out []float32)
}

// Plan is common to the runs of a program: the graph and the memory that kernels have
// reserved.
type Plan struct {
	Graph   *ir.Graph
	Memory  Memory
	Scratch int               // bytes for each worker
	Shared  int               // bytes that the workers of a step share
	Sums    int               // float64 numbers that last for a run
	Packed  []int             // bytes of each packed input
	Blocks  int               // block buffers of each worker
	Labels  []context.Context // of the values, for profiles

	states     []func() State // makers of Run.States
	StateBytes int            // of all States
}

// State is what a kernel keeps for a run. Settle is called when the run has ended, also
// early.
type State interface{ Settle() }

// Memory counts the bytes that runs hold.
type Memory interface {
	Hold(bytes int)         // by the program
	HoldByHelper(bytes int) // by a helper, which outlives the program
}

// Builder collects the memory that kernels need while they are built, and answers their
// questions about the program.
type Builder struct {
	*Plan
	Pos        map[*ir.Value]int
	Produced   map[*ir.Value]Producer  // values that are fused into their one consumer
	SquareSums map[*ir.Value]int       // place in Run.Sums of the sum of squares of a value
	CastOf     map[*ir.Value]*ir.Value // operands of casts that are folded into their consumers
	Choices    map[int]Choice          // algorithms by position

	stateOf map[*ir.Value]int
}

// NewBuilder returns a builder of the kernels of p.
func NewBuilder(p *Plan) *Builder {
	b := &Builder{Plan: p, Pos: make(map[*ir.Value]int, len(p.Graph.Values)), Produced: map[*ir.Value]Producer{}, SquareSums: map[*ir.Value]int{}}
	for i, v := range p.Graph.Values {
		b.Pos[v] = i
	}
	return b
}

// At returns the position of v among the plan's values.
func (b *Builder) At(v *ir.Value) int { return b.Pos[v] }

// Alias returns a copy of v, which has v's position, for a kernel that computes v
// as another operation.
func (b *Builder) Alias(v *ir.Value) *ir.Value {
	u := *v
	b.Pos[&u] = b.Pos[v]
	return &u
}

// ReserveScratch reserves memory for each worker. Kernels share it: each uses it from
// the beginning.
func (b *Builder) ReserveScratch(bytes int) { b.Scratch = max(b.Scratch, bytes) }

// ReserveShared reserves memory that the workers of a step share.
func (b *Builder) ReserveShared(bytes int) { b.Shared = max(b.Shared, bytes) }

// ReserveBlocks reserves n block buffers for each worker.
func (b *Builder) ReserveBlocks(n int) { b.Blocks = max(b.Blocks, n) }

// ReserveSum reserves a number that lasts for a run and returns its index in Run.Sums.
func (b *Builder) ReserveSum() int {
	b.Sums++
	return b.Sums - 1
}

// ReserveState reserves a State of some bytes that a run has for the kernel of v, and
// returns its index in Run.States.
func (b *Builder) ReserveState(v *ir.Value, bytes int, make func() State) int {
	if b.stateOf == nil {
		b.stateOf = map[*ir.Value]int{}
	}
	b.stateOf[v] = len(b.states)
	b.states = append(b.states, make)
	b.StateBytes += bytes
	return b.stateOf[v]
}

// StateOf returns the index of the State of v's kernel, or -1.
func (b *Builder) StateOf(v *ir.Value) int {
	if i, ok := b.stateOf[v]; ok {
		return i
	}
	return -1
}

// Run is the memory of one run of a program.
type Run struct {
	Plan    *Plan
	Procs   int
	arena   []byte
	Values  [][]byte // memory of each value
	Shared  []byte
	Sums    []float64
	Packed  []packedOperand
	States  []State
	Version []uint64 // of the buffers of inputs that are not overwritten, by position; else 0
	worker  Worker   // the caller
	place   int      // index of its last job
	places  uint     // places it has used, as a bit set
	Trace   *Tracer  // nil unless the run is traced
	At      int      // position of the value that is computed, when traced or labelled

	One [1]int64 // one element during a conversion
	// BadIndex is one more than the first position of an index out of range, or 0.
	BadIndex atomic.Int64
	Failed   error

	See  func(v *ir.Value, data []byte) error // or nil
	Done <-chan struct{}                      // of the context; set while it can end the run
}

// Init allocates the memory of a run of p.
func (r *Run) Init(p *Plan) {
	r.Plan = p
	r.arena = dirty(Aligned(p.Graph.ArenaBytes))
	r.Values = make([][]byte, len(p.Graph.Values))
	r.Shared = dirty(Aligned(p.Shared))
	r.Sums = lanes.ViewOf[float64](Aligned(8*p.Sums), p.Sums)
	r.Packed = make([]packedOperand, len(p.Packed))
	r.Version = make([]uint64, len(p.Graph.Values))
	for _, f := range p.states {
		r.States = append(r.States, f())
	}
	r.worker.fit(p)
	for i, v := range p.Graph.Values {
		if v.Slot.Place == ir.Arena {
			end := v.Slot.Offset + v.Type.Bytes()
			r.Values[i] = r.arena[v.Slot.Offset:end:end]
		}
	}
}

// Reset clears the state of one call.
func (r *Run) Reset() {
	for _, s := range r.States {
		s.Settle()
	}
	r.leave()
	r.Failed, r.Trace, r.See, r.Done = nil, nil, nil, nil
}

// Bytes returns the bytes that a run holds.
func (r *Run) Bytes() int {
	n := len(r.arena) + len(r.Shared) + 8*len(r.Sums) + len(r.worker.Scratch) + r.Plan.StateBytes
	for _, k := range r.Packed {
		n += len(k.Data)
	}
	return n
}

// ForgetPacked drops the packed operands of a run that ended early: they may be
// incomplete.
func (r *Run) ForgetPacked() {
	for i := range r.Packed {
		r.Packed[i].Version, r.Packed[i].seen = 0, 0
	}
}

// Over reports whether the run must end because its context has.
func (r *Run) Over() bool {
	if r.Done == nil {
		return false
	}
	select {
	case <-r.Done:
		return true
	default:
		return false
	}
}

// BatchTiled is a kernel that can process a batch of images piece by piece, right
// after the kernel that produces its operand, while the piece is in the cache.
// tiling.Cut cuts the images, into a power of two of pieces; a kernel that adds up
// cuts them alike when it runs alone, so the bits are the same.
type BatchTiled interface {
	Kernel
	// Cuts returns the number of images, the most pieces that they can be cut
	// into, 0 if they cannot, and the most chunks that different workers can do.
	Cuts() (images, pieces, chunks int)
	// Share places the kernel's part of shared memory at base and returns its end.
	Share(base int) int
	// Begin is called before the first piece. End is called after the last; it
	// writes the result of a kernel that adds up.
	Begin(r *Run)
	// Piece computes piece i. The first kernel's result lies shift images before
	// its usual place.
	Piece(r *Run, w *Worker, i, pieces, shift int)
	End(r *Run)
}

// Concurrent is a kernel whose chunks may run in one task with those of another
// Concurrent kernel, which needs nothing of it.
type Concurrent interface {
	Kernel
	Task
	// Share moves the kernel's part of shared memory base bytes up and returns its end,
	// or -1 if the kernel must have shared memory alone. It is called once.
	Share(base int) int
	// Begin is called before the first chunk.
	Begin(r *Run)
	// Chunks returns the number of chunks, Work their element operations.
	Chunks() int
	Work() int
}
