// Package driver is what a provider of kernels implements: a [Device] that
// compiles a graph to a [Program] and keeps data in [Buffer]s. It is the whole
// contract between Mezzo and a machine; everything else about kernels is
// private to the device.
//
// Devices may offer more through the optional interfaces below, found by type
// assertion as in database/sql/driver.
package driver

import (
	"context"
	"time"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// Device runs programs. Its methods may be called from several goroutines.
type Device interface {
	// Name is the name it is registered by: "cpu", "cuda", "null".
	Name() string

	// Supports reports whether the device has a kernel for an operation on an
	// element type (that of its first argument; of the result for operations without any).
	// Where it has none the operation's expansion is compiled instead, or
	// compiling fails with a *backend.UnsupportedError.
	Supports(op.Code, dtype.DType) bool

	// Alloc makes a buffer, filled with zeros. bytes may be 0.
	Alloc(bytes int) (Buffer, error)

	// Compile makes a program from a plan: a graph that ir.Optimize has been
	// over. The device keeps the graph; nobody changes it afterwards. When the
	// context ends first, its error is returned.
	Compile(context.Context, *ir.Graph) (Program, error)

	// Close releases the device. Its buffers and programs must not be used
	// afterwards.
	Close() error
}

// Buffer is memory of a device.
type Buffer interface {
	// Bytes is the size.
	Bytes() int
	// CopyIn overwrites the buffer's first len(src) bytes; CopyOut reads them.
	// They wait for programs that use the buffer.
	CopyIn(src []byte) error
	CopyOut(dst []byte) error
	// Version names the contents: it changes with every write, see [Contents].
	Version() uint64
	// Free returns the memory. Using the buffer afterwards is a bug.
	Free()
}

// Program is a compiled plan. Run may be called from several goroutines with
// different buffers.
type Program interface {
	// Run computes out from in, in the order of the graph's inputs and
	// outputs. An output that the plan donated ([ir.Graph.Donated]) gets the
	// buffer of its input; all other outputs get buffers of their own, of at
	// least the value's size. An input that the graph does not use may be nil.
	//
	// When Run fails, or the context ends first, no input has changed: inputs
	// are overwritten only after everything that can fail.
	Run(ctx context.Context, in, out []Buffer) error

	// Close releases what the program holds.
	Close() error
}

// Host is a Buffer whose memory the processor can address; Data is that
// memory, aligned to at least 8 bytes, for reading only: writes go through
// CopyIn, Fill and CopyFrom, which change the version.
type Host interface {
	Data() []byte
}

// Watcher is a Program that can show every value: RunWatched is Run, and
// calls see after each value is computed with its elements on the host, valid
// during the call. The graph must have been optimized with Options.Watch.
type Watcher interface {
	RunWatched(ctx context.Context, in, out []Buffer, see func(v *ir.Value, data []byte) error) error
}

// Starter is a Program that the caller need not wait for: Start is Run, but may
// return when the device knows of the run. What follows on the device sees its
// results. Of a run that fails later, as on an index out of range, the error is
// that of a later call of Start or Buffer.CopyOut, or of Waiter.Wait. From the
// failed run on until then no run changes its inputs, and what they compute is
// undefined.
type Starter interface {
	Start(ctx context.Context, in, out []Buffer) error
}

// Waiter is a Device whose programs are Starters: Wait returns when all of the
// runs are done, and the error of the first that failed.
type Waiter interface {
	Wait() error
}

// Filler is a Buffer that copies faster from memory of its own choice: Fill is
// CopyIn of the bytes that f writes to dst.
type Filler interface {
	Fill(bytes int, f func(dst []byte) error) error
}

// Copier is a Buffer that copies from another one of its device without the
// host: CopyFrom overwrites its first bytes with those of src.
type Copier interface {
	CopyFrom(src Buffer, bytes int) error
}

// Timer is a Program that measures itself: after SetTiming(true), Times gives
// the nanoseconds of each value of the last run, 0 for views.
type Timer interface {
	SetTiming(on bool)
	Times() []int64
}

// Tracer is a Program that tells what its workers do: RunTraced is Run.
type Tracer interface {
	RunTraced(ctx context.Context, in, out []Buffer) ([]Span, error)
}

// Span is some time that a worker spent on a value.
type Span struct {
	Value           int // position in the graph's values
	Worker          int // 0: the caller, who is there from the value's beginning to its end
	Start, Duration time.Duration
}

// MemoryLimiter is a Device that says how much memory it may take. Plans that do
// not fit are not compiled for it: a *backend.MemoryError.
type MemoryLimiter interface {
	// MemoryLimit is the bytes that buffers and programs may take together: by
	// default, and after SetMemoryLimit(0), what the machine has.
	MemoryLimit() int
	SetMemoryLimit(bytes int)
}

// Trimmer is a Program that keeps the memory of finished runs for the next ones:
// Trim gives it back. The next run takes memory anew.
type Trimmer interface {
	Trim()
}

// Sizer is a Program that knows what memory it holds on to once it has run, in
// bytes, besides the buffers of its inputs and outputs and the arena of its
// graph: constants, operands in other forms, and what kernels work in, for as
// many workers as there may be now.
type Sizer interface {
	Workspace() int
}

// EpilogueFuser is a Device whose contractions can apply an element-wise body
// to their result (op.Attr.Body). Devices without it get plain contractions.
type EpilogueFuser interface {
	FusesEpilogue() bool
}

// ResultSplitter is a Device whose kernels can write each result of a
// multi-result value to its own slot (ir.Value.Split), rounded to the type of the
// Result. Devices without it get one packed vector.
type ResultSplitter interface {
	SplitsResults() bool
}

// Describer is a Device that can say what it runs on: instruction set,
// threads, and per element type whether arithmetic or only storage is native.
type Describer interface {
	Describe() Description
}

// Description says what really runs.
type Description struct {
	Device   string // "cpu"
	Hardware string // processor or GPU model, as the system names it
	ISA      string // instruction set of the kernels in use: "portable Go", "AVX-512", "sm_90"
	Threads  int    // workers a program may use
	// Arithmetic says for each float type how contractions are computed, e.g.
	// "float32" for native, "float32 (16-bit storage)" for a storage format.
	Arithmetic map[dtype.DType]string
	// Missing says of each library that the device would use and has not, why:
	// "cuDNN: no library found …".
	Missing []string
	// Slow says of the float types that the device computes no faster than
	// float32 although others like it do, why: "it does not have …".
	Slow map[dtype.DType]string
}
