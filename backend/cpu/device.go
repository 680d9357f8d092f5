// Package cpu is the device "cpu": kernels for every operation, parallel over
// the processor's cores, in Go and in assembly for its vector instructions.
//
// Main types: [Device] opens and compiles, [Buffer] is memory in Go slices,
// [Program] is a compiled plan. Importing the package registers the device.
//
// Rules:
//
//   - A plan becomes a list of steps; each is a kernel whose sizes are fixed when it
//     is compiled. Run only binds buffers and calls kernels; in the steady state it
//     allocates nothing.
//   - Work is split by shape, never by the number of workers, and reductions have a
//     fixed tree: results have the same bits for every GOMAXPROCS.
//   - 16-bit floats are storage formats. They are converted to float32 when loaded,
//     computed in float32 (sums in float64) and rounded once when stored; each
//     instruction of a fused chain rounds to its own type.
//   - Kernels trust the plan. Only indices, which are data, are checked.
//   - If bits must be portable (backend.SetBits), a kernel is portable Go, or assembly whose
//     results are the same on every level: vec.Current and gemm.Current then have none.
//   - Every assembly kernel has an equivalent in Go that it must match: exactly where
//     IEEE 754 defines the result, to a few units in the last place elsewhere.
//     MEZZO_CPU selects a level of instructions, see package isa.
//
// Where to look: device.go is the device; program.go compiles plans and runs them, and
// its table lists the package of each operation's kernel; loop.go runs loops;
// batch_tiling.go fuses kernels that process a batch image by image; buffer.go and
// limit.go count memory. The kernels are in the packages below internal, each of which
// imports only those after it:
//
//   - attention, recurrent, conv, pooling, on window for the geometry of the latter two
//   - product: matrix products
//   - elementwise: chains and epilogues
//   - reduce: reductions, normalization, softmax
//   - move: copies, gathers, scatters
//   - exec: workers, memory of runs, packed operands
//   - lanes: conversions and loops; tiling: arithmetic of tiles
//   - gemm, vec: micro-kernels and vector loops in assembly
//   - isa: levels of instructions
package cpu

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"weak"

	"github.com/mezzo-ml/mezzo/backend"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/elementwise"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/gemm"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/isa"
	"github.com/mezzo-ml/mezzo/backend/driver"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

func init() {
	backend.Register("cpu", func() (driver.Device, error) { return New(), nil })
}

// Device is the processor that the process runs on. Its state is the memory that it has
// handed out, and the limit for that.
type Device struct {
	held  atomic.Int64
	limit atomic.Int64 // 0: not yet determined

	mu       sync.Mutex
	programs []weak.Pointer[Program]
}

// New returns a device. Most users get it from backend.Open("cpu").
func New() *Device { return &Device{} }

// Name returns "cpu".
func (*Device) Name() string { return "cpu" }

// Supports reports whether there is a kernel for an operation on a type.
func (*Device) Supports(c op.Code, d dtype.DType) bool {
	if d.Size() == 0 {
		return false
	}
	switch info := c.Info(); info.Class {
	case op.Elementwise:
		// Expanded into vector loops it is faster than a loop of calls.
		return c == op.Fused || c == op.ExtraOutput || info.Expand == nil && elementwise.Supports(c, d)
	case op.Contraction:
		switch c {
		case op.AttentionForward, op.AttentionGrad: // float64 is expanded
			return d.IsFloat() && d != dtype.Float64
		case op.QuantizedMatMul:
			return d == dtype.Float32 || d == dtype.BFloat16
		case op.QuantizedConv:
			return d == dtype.Float32 || d == dtype.BFloat16 || d == dtype.Int8
		case op.Loop: // its body has been checked, or is expanded
			return true
		}
		return kernels[c] != nil && d.IsFloat()
	case op.Collective:
		return d.IsFloat()
	case op.Leaf, op.Reduction, op.Movement:
		switch c {
		case op.LayerNorm, op.LayerNormGrad, op.SoftmaxGrad, op.Moments, op.BatchNormReduce: // float64 is expanded
			return d.IsFloat() && d != dtype.Float64
		case op.Softmax, op.LogSoftmax, op.Stats, op.MaxPool, op.MaxPoolGrad, op.MaxPoolGradGrad, op.AvgPool, op.AvgPoolGrad:
			return d.IsFloat()
		case op.ScatterAdd:
			return d != dtype.Bool
		case op.RandomUniform:
			return d == dtype.Int64
		case op.Unique:
			return d == dtype.Int32 || d == dtype.Int64
		}
		return c == op.Param || c == op.Const || kernels[c] != nil
	}
	return false
}

// Alloc returns a buffer filled with zeros. It returns a *backend.MemoryError if the
// device would hold more than MemoryLimit.
func (d *Device) Alloc(bytes int) (driver.Buffer, error) {
	if bytes < 0 {
		return nil, fmt.Errorf("cpu: Alloc: got %d bytes, want 0 or more", bytes)
	}
	if err := d.reserve(bytes, "a buffer"); err != nil {
		return nil, err
	}
	return newBuffer(d, bytes), nil
}

// Compile compiles a plan.
func (d *Device) Compile(ctx context.Context, g *ir.Graph) (driver.Program, error) {
	p, err := compile(ctx, d, g)
	if err != nil {
		return nil, err
	}
	d.compiled(p)
	return p, nil
}

// Close does nothing: the garbage collector owns the memory.
func (*Device) Close() error { return nil }

// Describe names the instruction set in use and the types that matrix products compute
// in.
func (*Device) Describe() driver.Description {
	const storage = "float32 (16-bit storage)"
	level := isa.Current()
	bf16, f16 := storage, storage
	if set := gemm.Current(); set != nil {
		if set.Pairs != nil || set.Panels != nil {
			bf16 = "bfloat16 (" + set.Name + ")"
			if set.Adds[gemm.Pairs] == nil {
				bf16 = "bfloat16 (" + set.Name + "; in products of a single row float32, with other bits)"
			}
		}
		if set.Panels != nil { // see the promise of rows in docs/architecture.md
			const small = "; in products of few rows float32, with other bits)"
			bf16 = "bfloat16 (" + set.Name + small
			f16 = "float32 (as pairs of bfloat16 on " + set.Name + small
		}
	}
	slow := map[dtype.DType]string{}
	for t, how := range map[dtype.DType]string{dtype.Float16: f16, dtype.BFloat16: bf16} {
		if how == storage {
			slow[t] = fmt.Sprintf("its processor has no %v arithmetic that Mezzo uses (%s)", t, level.Name())
		}
	}
	return driver.Description{
		Device:   "cpu",
		Hardware: model(),
		ISA:      level.Name(),
		Threads:  driver.Threads(),
		Arithmetic: map[dtype.DType]string{
			dtype.Float16: f16, dtype.BFloat16: bf16,
			dtype.Float32: "float32", dtype.Float64: "float64",
		},
		Slow: slow,
	}
}

// model returns the processor's name if the system tells it, else its architecture.
func model() string {
	text, _ := os.ReadFile("/proc/cpuinfo") // Linux only
	for line := range strings.Lines(string(text)) {
		key, value, _ := strings.Cut(line, ":")
		if strings.TrimSpace(key) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return runtime.GOARCH
}

// FusesEpilogue implements driver.EpilogueFuser.
func (d *Device) FusesEpilogue() bool { return true }

// MovesReshapes implements driver.ReshapeMover.
func (d *Device) MovesReshapes() bool { return true }

// ComputesPortably implements driver.PortableComputer.
func (d *Device) ComputesPortably() bool { return true }

// SplitsResults implements driver.ResultSplitter.
func (d *Device) SplitsResults(op.Code) bool { return true }
