package simt

import (
	"cmp"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
)

// Launch is a grid to run.
type Launch struct {
	Grid, Block [3]int
	Shared      int      // bytes of dynamic shared memory
	Parameters  []uint64 // of the kernel
	Memory      []Region // global memory, in any order; sorted is best
	Workers     int      // goroutines; 0: as many as there are processors
	Steps       uint64   // that a warp may take; 0: 2^30
}

// Statistics are what a run took.
type Statistics struct {
	Instructions uint64 // of warps
	Swaps        uint64 // atomic compare-and-swaps, of threads
	Covered      []bool // instructions of the kernel that were executed
}

// Fault is what a kernel may not do.
type Fault struct {
	Kernel string
	Line   int    // of the module's text
	Text   string // the instruction
	Block  [3]int
	Thread int // of the block, in row-major order from x
	Err    error
}

// Error names the kernel, the line and the thread.
func (f *Fault) Error() string {
	return fmt.Sprintf("kernel %s, line %d (%s), block %v, thread %d: %v", f.Kernel, f.Line, f.Text, f.Block, f.Thread, f.Err)
}

func (f *Fault) Unwrap() error { return f.Err }

// Results of the driver for faults.
const (
	CodeIllegalAddress = 700
	CodeMisaligned     = 716
	CodeLaunchFailed   = 719
)

// Code is the CUresult of an error of Run.
func Code(err error) int {
	if e := (*addressError)(nil); errors.As(err, &e) {
		return CodeIllegalAddress
	}
	if e := (*alignmentError)(nil); errors.As(err, &e) {
		return CodeMisaligned
	}
	return CodeLaunchFailed
}

// fault is an error of a lane.
func (w *warp) fault(in *instruction, lane int, format string, v ...any) error {
	return &Fault{w.b.k.Name, int(in.line), in.text, w.b.id, w.number*width + lane, fmt.Errorf(format, v...)}
}

// worker is a goroutine that runs blocks, one at a time.
type worker struct {
	*Launch
	k         *Kernel
	constants []lanes
	last      Region // that was found last
	swaps     uint64
	covered   []bool
}

// blockState is the block that a worker runs.
type blockState struct {
	*worker
	id       [3]int
	warps    []warp
	rows     []lanes // registers of all warps
	shared   *sharedMemory
	barriers uint64
	steps    uint64
}

// maxThreads is the largest block.
const maxThreads = 1024

// Run runs a kernel on a grid. It returns the first fault of the block with the lowest
// number that had one, as far as blocks had begun.
func (k *Kernel) Run(l Launch) (Statistics, error) {
	if len(l.Parameters) != k.Parameters {
		return Statistics{}, fmt.Errorf("simt: %s: %d parameters, want %d", k.Name, len(l.Parameters), k.Parameters)
	}
	blocks, threads := 1, 1
	for i := range 3 {
		if l.Grid[i] < 1 || l.Grid[i] > 1<<31-1 || l.Block[i] < 1 || l.Block[i] > maxThreads {
			return Statistics{}, fmt.Errorf("simt: %s: grid %v of blocks %v", k.Name, l.Grid, l.Block)
		}
		blocks, threads = blocks*l.Grid[i], threads*l.Block[i]
	}
	if threads > maxThreads || l.Shared < 0 || l.Shared > maxVariable {
		return Statistics{}, fmt.Errorf("simt: %s: %d threads with %d bytes of shared memory", k.Name, threads, l.Shared)
	}
	byBase := func(a, b Region) int { return cmp.Compare(a.Base, b.Base) }
	if !slices.IsSortedFunc(l.Memory, byBase) {
		l.Memory = slices.Clone(l.Memory)
		slices.SortFunc(l.Memory, byBase)
	}
	constants := make([]lanes, len(k.constants))
	for i, c := range k.constants {
		u := c.value
		if c.parameter >= 0 {
			u = l.Parameters[c.parameter]
		}
		constants[i].fill(u)
	}
	if l.Steps == 0 {
		l.Steps = maxSteps
	}
	workers := l.Workers
	if workers == 0 {
		workers = runtime.GOMAXPROCS(0)
	}
	var (
		all    = Statistics{Covered: make([]bool, len(k.code))}
		next   atomic.Int64
		failed atomic.Bool
		mu     sync.Mutex
		group  sync.WaitGroup
		fault  error
		lowest int
	)
	for range min(workers, blocks) {
		group.Add(1)
		go func() {
			defer group.Done()
			b := k.newBlock(&l, constants, threads)
			for !failed.Load() {
				i := int(next.Add(1)) - 1
				if i >= blocks {
					break
				}
				b.id = [3]int{i % l.Grid[0], i / l.Grid[0] % l.Grid[1], i / (l.Grid[0] * l.Grid[1])}
				if err := b.run(threads); err != nil {
					failed.Store(true)
					mu.Lock()
					if fault == nil || i < lowest {
						fault, lowest = err, i
					}
					mu.Unlock()
				}
			}
			rowPool.Put(&b.rows)
			mu.Lock()
			defer mu.Unlock()
			all.Instructions += b.steps
			all.Swaps += b.swaps
			for i, c := range b.covered {
				all.Covered[i] = all.Covered[i] || c
			}
		}()
	}
	group.Wait()
	return all, fault
}

// newBlock makes what blocks of a worker need, one after the other.
func (k *Kernel) newBlock(l *Launch, constants []lanes, threads int) *blockState {
	b := &blockState{worker: &worker{Launch: l, k: k, constants: constants, covered: make([]bool, len(k.code))}}
	b.warps = make([]warp, (threads+width-1)/width)
	rows := takeRows(len(b.warps) * k.registers)
	b.rows = rows
	for i := range b.warps {
		w := &b.warps[i]
		w.b, w.number = b, i
		w.registers = rows[i*k.registers : (i+1)*k.registers]
		w.preds = make([]uint32, k.predicates)
		w.local = make([]byte, width*k.local)
	}
	b.shared = newShared(k.shared, l.Shared)
	return b
}

// rowPool keeps the registers of blocks that have run: what a kernel reads before it
// writes it is set for each block.
var rowPool sync.Pool

func takeRows(n int) []lanes {
	if p, ok := rowPool.Get().(*[]lanes); ok && cap(*p) >= n {
		return (*p)[:n]
	}
	return make([]lanes, n, max(n, 1024))
}

// run runs a block, warp by warp from barrier to barrier.
func (b *blockState) run(threads int) error {
	b.shared.clear()
	b.barriers = 0
	for i := range b.warps {
		b.warps[i].begin(i*width, threads)
	}
	for {
		waiting := 0
		for i := range b.warps {
			w := &b.warps[i]
			before := w.steps
			err := w.run()
			b.steps += w.steps - before
			if err != nil {
				return err
			}
			if w.atBarrier {
				waiting++
			}
		}
		if waiting == 0 {
			return nil
		}
		b.barriers++
	}
}
