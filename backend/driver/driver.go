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

	// Supports reports whether the device has a kernel for an operation on an element
	// type: the first argument's type, or the result's for operations without
	// arguments. If it has none, the operation's expansion is compiled instead, or
	// compiling fails with a *backend.UnsupportedError.
	Supports(op.Code, dtype.DType) bool

	// Alloc returns a buffer filled with zeros. bytes may be 0.
	Alloc(bytes int) (Buffer, error)

	// Compile compiles a plan, a graph from ir.Optimize. The device keeps the graph,
	// which must not change afterwards. If the context ends first, Compile returns its
	// error.
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

	// Close releases the program's resources.
	Close() error
}

// HostBuffer is a Buffer in memory that the processor can address. Data returns
// that memory, aligned to at least 8 bytes. It must not be written to: writes go
// through CopyIn, Fill and CopyFrom, which change the version.
type HostBuffer interface {
	Data() []byte
}

// Watcher is a Program that can show every value: RunWatched is Run, and
// calls see after each value is computed with its elements on the host, valid
// during the call. The graph must have been optimized with Options.Watch.
type Watcher interface {
	RunWatched(ctx context.Context, in, out []Buffer, see func(v *ir.Value, data []byte) error) error
}

// AsyncProgram is a Program that runs asynchronously: Start is Run, but may return
// once the run is enqueued. Later work on the device sees its results. If the run
// fails after Start has returned (an index out of range), a later call of Start,
// Buffer.CopyOut or Synchronizer.Wait returns the error. Until then no run changes
// its inputs, and results are undefined.
type AsyncProgram interface {
	Start(ctx context.Context, in, out []Buffer) error
}

// Synchronizer is a Device with AsyncPrograms: Wait blocks until all enqueued runs
// are done and returns the error of the first that failed.
type Synchronizer interface {
	Wait() error
}

// DirectWriter is a Buffer that is written without an extra copy: f must write
// bytes bytes to dst, which is the buffer's memory or a staging buffer of the
// device. Fill has the effect of CopyIn.
type DirectWriter interface {
	Fill(bytes int, f func(dst []byte) error) error
}

// Copier is a Buffer that copies from another buffer of its device without a round trip
// through the host: CopyFrom overwrites its first bytes with src's.
type Copier interface {
	CopyFrom(src Buffer, bytes int) error
}

// CopyKeeper is a Program that keeps copies of inputs from run to run, such as packed
// operands. Copies calls see for each copy that a run would read while its input is not
// written: with the position of the value that reads it and the memory of the copy, valid during the
// call, which must not be written to.
type CopyKeeper interface {
	Copies(see func(value int, data []byte))
}

// Timer is a Program with a built-in profiler: after SetTiming(true), Times
// returns the nanoseconds of each value in the last run, 0 for views.
type Timer interface {
	SetTiming(on bool)
	Times() []int64
}

// Tracer is a Program that records the activity of its workers: RunTraced is Run
// and returns the spans.
type Tracer interface {
	RunTraced(ctx context.Context, in, out []Buffer) ([]Span, error)
}

// Span is an interval in which a worker computed a value.
type Span struct {
	Value           int // position in the graph's values
	Worker          int // 0: the calling goroutine, from the value's beginning to its end
	Start, Duration time.Duration
}

// MemoryLimiter is a Device with a memory limit. Plans that need more fail to
// compile with a *backend.MemoryError.
type MemoryLimiter interface {
	// MemoryLimit returns how many bytes buffers and programs may use together: by
	// default, and after SetMemoryLimit(0), the memory of the machine.
	MemoryLimit() int
	SetMemoryLimit(bytes int)
}

// Trimmer is a Program that keeps the memory of finished runs for later ones.
// Trim releases it; the next run allocates again.
type Trimmer interface {
	Trim()
}

// WorkspaceSizer is a Program that reports how much memory it uses besides its
// inputs, its outputs and the arena of its graph: Workspace returns the bytes of
// constants, packed operands and the scratch memory of all workers.
type WorkspaceSizer interface {
	Workspace() int
}

// Explainer is a Program that names the algorithm of its kernels: Explain returns
// the algorithm that computes value i of the plan and why, or "" if there is no choice.
type Explainer interface {
	Explain(i int) string
}

// EpilogueFuser is a Device whose contractions can apply an element-wise body
// to their result (op.Attr.Body). Devices without it get plain contractions.
type EpilogueFuser interface {
	FusesEpilogue() bool
}

// ReshapeMover is an EpilogueFuser whose element-wise bodies are faster as epilogues of
// contractions than fused with each other, so that Reshapes between them are moved (pass
// reshapes).
type ReshapeMover interface {
	MovesReshapes() bool
}

// ResultSplitter is a Device whose kernels of some operations can write each result of a
// multi-result value to its own slot (ir.Value.Split), rounded to the type of the
// Result. For other operations, and devices without it, the results are one packed vector.
type ResultSplitter interface {
	SplitsResults(op.Code) bool
}

// TF32Multiplier is a Device that can multiply float32 as TensorFloat-32. Where
// MultipliesTF32 is true it obeys backend.TF32; for other devices Compile rounds
// the operands.
type TF32Multiplier interface {
	MultipliesTF32() bool
}

// PortableComputer is a Device that can compute with the same bits on every processor, if
// backend.CurrentBits is backend.PortableBits when a program is compiled. For other devices
// Compile then returns an error.
type PortableComputer interface {
	ComputesPortably() bool
}

// Describer is a Device that describes its hardware: instruction set, threads,
// and the arithmetic of each float type.
type Describer interface {
	Describe() Description
}

// Description describes the hardware of a device and the kernels in use.
type Description struct {
	Device   string // "cpu"
	Hardware string // processor or GPU model, as the system names it
	ISA      string // instruction set of the kernels in use: "portable Go", "AVX-512", "sm_90"
	Threads  int    // workers a program may use
	// Arithmetic says for each float type how contractions are computed, e.g.
	// "float32" for native, "float32 (16-bit storage)" for a storage format.
	Arithmetic map[dtype.DType]string
	// Bits is "portable" where results have the same bits on every processor and
	// instruction set (policy.SetBits), else empty.
	Bits string
	// Missing lists the libraries that the device would use but could not load,
	// with the reason: "cuDNN: no library found …".
	Missing []string
	// Slow lists the float types that are no faster than float32 on this device
	// although they are on similar ones, with the reason: "it does not have …".
	Slow map[dtype.DType]string
}
