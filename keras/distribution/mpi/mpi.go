// Package mpi is the engine of keras/distribution for processes that mpirun, srun or
// Kubernetes has started: it moves their bytes with an MPI library. A blank import
// registers it:
//
//	import _ "github.com/mezzo-ml/mezzo/keras/distribution/mpi"
//
// The library is loaded at run time, without cgo: Open MPI 4 or 5, MPICH, Intel MPI, or
// a library with the standard binary interface of MPI 5. The engine uses all-to-all,
// all-gather, broadcast and barrier of bytes, and no arithmetic of the library.
//
// # Processes
//
// It joins the processes of a launcher: mpirun of Open MPI (OMPI_COMM_WORLD_SIZE), of
// MPICH and Intel MPI (PMI_SIZE), srun --mpi=pmix or pmi2 (PMIX_RANK, PMI_SIZE). Without
// these variables the process trains alone, and no library is loaded; with
// MEZZO_DISTRIBUTION=mpi one is.
//
// MEZZO_MPI is the path or the file name of the library. By default it is the first one
// that the system finds, of those that fit the launcher: libmpi.so.40, libmpi_abi.so.1,
// libmpi.so.12, libmpich.so.12. Joining fails if the library reports another number of
// ranks than the launcher, as the library of another MPI does, or if the ranks do not
// run the same executable with the same library.
//
// # Processors
//
// If ranks of a machine share cores, GOMAXPROCS of each is set to its share, unless the
// environment sets it. If a launcher has bound ranks to fewer cores than there are, one
// of them prints a warning.
//
// # Failures
//
// When a rank dies, the launcher ends the others. A call whose context has ended asks
// the other ranks where they are. Its error is a *distribution.RankError with the rank
// that does not answer (a stopped process, a machine without power), or has not joined
// the call. This requires a library that grants MPI_THREAD_MULTIPLE.
//
// Libraries replace signal handlers. Joining restores those of Go, so that a nil
// pointer stays a panic that can be recovered.
//
// A program with this import is not static: it needs the dynamic linker and the C
// library of glibc systems. So this package is a module of its own.
package mpi

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"time"
	"unsafe"

	"github.com/mezzo-ml/mezzo/keras/distribution"
	"github.com/mezzo-ml/mezzo/keras/distribution/mpi/internal/libmpi"
)

func init() { distribution.Register("mpi", join) }

// engine is this process's rank. Its methods are those of distribution.Engine,
// distribution.Summer and distribution.Exiter.
type engine struct {
	lib        *libmpi.Library
	world      libmpi.Comm
	rank, size int
	local      int // rank among the processes of this machine
	locals     int
	maxCount   int           // elements of a call; tests lower it
	first      *thread       // that has initialized the library
	calls      chan call     // of collectives, one at a time
	results    chan error    // of calls
	one        sync.Mutex    // held during a call
	failed     error         // guarded by one: of the call after which ranks are out of step
	watch      *watcher      // nil if the library cannot be called by two threads
	staging    [2][]byte     // of parts that are larger than maxCount
	left       chan struct{} // closed when the library is finalized
}

// thread is a goroutine on an operating system's thread of its own.
type thread struct{ jobs chan func() }

func newThread() *thread {
	t := &thread{make(chan func())}
	go func() {
		runtime.LockOSThread()
		for f := range t.jobs {
			f()
		}
	}()
	return t
}

// do runs f on the thread.
func (t *thread) do(f func()) {
	done := make(chan struct{})
	t.jobs <- func() { defer close(done); f() }
	<-done
}

// within is do for a limited time. It returns the cause of ctx's end.
func (t *thread) within(ctx context.Context, f func() error) error {
	done := make(chan error, 1)
	select {
	case t.jobs <- func() { done <- f() }:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// operation is a collective call.
type operation int32

const (
	none operation = iota
	allToAll
	allGather
	allReduce
	broadcast
	barrier
)

func (o operation) String() string {
	return [...]string{"no call", "all-to-all", "all-gather", "all-reduce", "broadcast", "barrier"}[o]
}

// call is a collective call with its buffers.
type call struct {
	op         operation
	send, recv []byte
	root       int
}

func (e *engine) Name() string   { return "mpi" }
func (e *engine) Rank() int      { return e.rank }
func (e *engine) Size() int      { return e.size }
func (e *engine) LocalRank() int { return e.local }
func (e *engine) LocalSize() int { return e.locals }

// AllToAll implements distribution.Engine.
func (e *engine) AllToAll(ctx context.Context, send, recv []byte) error {
	if len(send) != len(recv) || len(send)%e.size != 0 {
		return fmt.Errorf("mpi: AllToAll: got buffers of %d and %d bytes, want equal ones of %d parts", len(send), len(recv), e.size)
	}
	return e.do(ctx, call{op: allToAll, send: send, recv: recv})
}

// AllGather implements distribution.Engine.
func (e *engine) AllGather(ctx context.Context, send, recv []byte) error {
	if len(recv) != e.size*len(send) {
		return fmt.Errorf("mpi: AllGather: got %d bytes for %d ranks with %d each", len(recv), e.size, len(send))
	}
	return e.do(ctx, call{op: allGather, send: send, recv: recv})
}

// Broadcast implements distribution.Engine.
func (e *engine) Broadcast(ctx context.Context, b []byte, root int) error {
	if root < 0 || root >= e.size {
		return fmt.Errorf("mpi: Broadcast: got the root %d, want a rank of %d", root, e.size)
	}
	return e.do(ctx, call{op: broadcast, send: b, root: root})
}

// Barrier implements distribution.Engine.
func (e *engine) Barrier(ctx context.Context) error { return e.do(ctx, call{op: barrier}) }

// AllReduce implements distribution.Summer with MPI_Allreduce. All ranks get the same
// sum. The library chooses the order, which may depend on the length, the number of
// ranks and where they run.
func (e *engine) AllReduce(ctx context.Context, x []float32) error {
	return e.do(ctx, call{op: allReduce, send: unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), 4*len(x))})
}

// do makes a call. It returns when the call is done or the context has ended; then the
// call stays in progress, since MPI cannot cancel it.
func (e *engine) do(ctx context.Context, c call) error {
	e.one.Lock()
	defer e.one.Unlock()
	if e.failed != nil {
		return e.failed
	}
	if err := context.Cause(ctx); err != nil {
		e.failed = fmt.Errorf("mpi: %v: %w", c.op, err)
		return e.failed
	}
	began := time.Now()
	e.watch.enter(c.op, len(c.send))
	e.calls <- c
	select {
	case err := <-e.results:
		if err != nil {
			e.failed = fmt.Errorf("mpi: %v of %d bytes: %w", c.op, len(c.send), err)
		}
		return e.failed
	case <-ctx.Done():
	}
	e.failed = e.watch.explain(c.op, time.Since(began).Round(time.Millisecond), context.Cause(ctx))
	return e.failed
}

// serve makes the calls that do hands over.
func (e *engine) serve() {
	for c := range e.calls {
		e.results <- e.make(c)
	}
}

// make makes a call, in pieces that the library's counts can express.
func (e *engine) make(c call) error {
	switch c.op {
	case allToAll:
		return e.pieces(c, len(c.send)/e.size, e.size, func(send, recv []byte, n int) error {
			return e.lib.Alltoall(e.world, send, recv, n)
		})
	case allGather:
		return e.pieces(c, len(c.send), 1, func(send, recv []byte, _ int) error { return e.lib.Allgather(e.world, send, recv) })
	case broadcast:
		for b := c.send; len(b) > 0; {
			n := min(len(b), e.maxCount)
			if err := e.lib.Bcast(e.world, b[:n], c.root); err != nil {
				return err
			}
			b = b[n:]
		}
	case allReduce:
		x := unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(c.send))), len(c.send)/4)
		for len(x) > 0 {
			n := min(len(x), e.maxCount)
			if err := e.lib.SumFloat32(e.world, x[:n]); err != nil {
				return err
			}
			x = x[n:]
		}
	case barrier:
		return e.lib.Barrier(e.world)
	}
	return nil
}

// pieces calls f for a call in which each rank sends parts of n bytes, and receives Size
// of them. Parts larger than maxCount go through staging buffers, a column of all parts
// at a time.
func (e *engine) pieces(c call, n, sent int, f func(send, recv []byte, n int) error) error {
	if n == 0 {
		return nil
	}
	if n <= e.maxCount {
		return f(c.send, c.recv, n)
	}
	for from := 0; from < n; from += e.maxCount {
		m := min(e.maxCount, n-from)
		send, recv := e.stage(0, sent*m), e.stage(1, e.size*m)
		for i := range sent {
			copy(send[i*m:(i+1)*m], c.send[i*n+from:])
		}
		if err := f(send, recv, m); err != nil {
			return err
		}
		for i := range e.size {
			copy(c.recv[i*n+from:i*n+from+m], recv[i*m:])
		}
	}
	return nil
}

// stage returns a staging buffer of n bytes. It is kept for the next call.
func (e *engine) stage(which, n int) []byte {
	if cap(e.staging[which]) < n {
		e.staging[which] = make([]byte, n)
	}
	return e.staging[which][:n]
}

const (
	// abortTime is how long Abort waits for MPI_Abort, which tells the launcher.
	abortTime = 10 * time.Second
	// printTime is how long Abort waits before that: MPICH's launcher drops what it has
	// not yet read of the output of ranks, such as the error.
	printTime = 300 * time.Millisecond
)

// Abort implements distribution.Engine: it ends the processes of all ranks with the exit
// code, and does not return. Launchers pass on the code of one of them.
func (e *engine) Abort(code int, _ error) {
	time.Sleep(printTime)
	go e.lib.Abort(code) // may wait for a lock of a call in progress
	select {
	case <-e.left: // nobody is left to end
	case <-time.After(abortTime):
	}
	os.Exit(code) // a launcher ends the others when a process ends without MPI_Finalize
}

// errLeft is the error of calls after Leave.
var errLeft = errors.New("mpi: this rank has left")

// Leave implements distribution.Engine: it waits for all ranks and finalizes the
// library.
func (e *engine) Leave(ctx context.Context) error {
	if err := e.Barrier(ctx); err != nil { // so that no rank waits for one that has left
		return err
	}
	e.one.Lock()
	e.failed = errLeft
	close(e.calls) // the thread of Init may be making them
	e.one.Unlock()
	if err := e.watch.stop(ctx); err != nil {
		return fmt.Errorf("mpi: Leave: %w", err)
	}
	if err := e.first.within(ctx, e.lib.Finalize); err != nil {
		return fmt.Errorf("mpi: Leave: %w", err)
	}
	close(e.left)
	return nil
}

// Exit implements distribution.Exiter: see libmpi.Library.Exit.
func (e *engine) Exit(code int) {
	ctx, cancel := context.WithTimeout(context.Background(), abortTime)
	defer cancel()
	e.first.within(ctx, func() error { e.lib.Exit(code); return nil })
	os.Exit(code)
}
