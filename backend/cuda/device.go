//go:build cuda && linux && amd64

package cuda

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mezzo-ml/mezzo/backend"
	"github.com/mezzo-ml/mezzo/backend/cuda/internal/api"
	"github.com/mezzo-ml/mezzo/backend/cuda/internal/cublaslt"
	"github.com/mezzo-ml/mezzo/backend/cuda/internal/cudnn"
	"github.com/mezzo-ml/mezzo/backend/cuda/internal/ptx"
	"github.com/mezzo-ml/mezzo/backend/cuda/kernels"
	"github.com/mezzo-ml/mezzo/backend/driver"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/ir"
	"github.com/mezzo-ml/mezzo/backend/op"
)

func init() {
	backend.RegisterProvider("cuda", backend.Provider{
		Open:   func(number int) (driver.Device, error) { return Open(number) },
		Search: search,
	})
}

// search describes the GPUs without opening them.
func search() ([]backend.DeviceInfo, error) {
	list, err := api.List()
	if err != nil {
		return nil, err
	}
	found := make([]backend.DeviceInfo, len(list))
	for i, h := range list {
		_, err := kernels.PTX("functions", capability(h))
		found[i] = backend.DeviceInfo{Name: name(i), Hardware: h.Name, ISA: isa(h), Bytes: h.Bytes, Err: err}
	}
	return found, nil
}

// capability is the compute capability: 90 for 9.0.
func capability(h api.Hardware) int { return 10*h.Major + h.Minor }

func isa(h api.Hardware) string { return fmt.Sprintf("sm_%d", capability(h)) }

// name is "cuda", or "cuda:1" of another than the first GPU.
func name(ordinal int) string {
	if ordinal == 0 {
		return "cuda"
	}
	return "cuda:" + strconv.Itoa(ordinal)
}

// Device is a GPU.
type Device struct {
	gpu      *api.Device
	library  *ptx.Library
	lt       library
	dnn      convolutionLibrary
	settings settings

	// mu is held while something is put on the stream: captures and launches of
	// several goroutines must not mix.
	mu        sync.Mutex
	stream    api.Stream
	modules   map[string]api.Module // by unit of package kernels: those that were needed so far
	functions map[string]api.Function

	// idle is memory of freed buffers, by size: a training step allocates and
	// frees the same sizes again and again, which the driver does slowly and by
	// waiting for all work. Equal addresses also let a captured graph be used again.
	idle map[int][]api.Ptr

	// mark is how many marks were put on the stream of kernels: the last
	// runAhead of them, mark n at n%runAhead.
	mark  uint64
	marks [runAhead]api.Event

	// fault is the kernels' word for indices out of range, mirror where programs
	// copy it to.
	fault    api.Ptr
	mirror   []byte
	programs map[int]*Program // that may find one, by number
	numbered int              // how many programs were given a number

	ranks ranks // that this device exchanges with

	copies  api.Stream // from the host
	stageMu sync.Mutex
	stages  []*staging  // that nobody fills or reads, oldest first
	pinned  int         // bytes of all staging
	events  []api.Event // of staging that was freed

	maxPinned int // bytes of the host that are kept pinned, if so few will do

	taken int          // bytes that the driver has given and not got back
	peak  atomic.Int64 // of taken
	moved atomic.Int64 // of a run: see MovedBytes

	broken error // of the GPU, while a library's algorithms were tried

	limit atomic.Int64 // of memory, in bytes; 0: what the GPU has

	deadMu sync.Mutex
	dead   []block // of buffers that were freed, or forgotten
}

// Open opens the GPU of that number, 0 being the first one that
// CUDA_VISIBLE_DEVICES shows. Most users get a device from backend.Open("cuda").
func Open(ordinal int) (*Device, error) {
	gpu, err := api.Open(ordinal)
	if err != nil {
		return nil, err
	}
	d := &Device{
		gpu: gpu, modules: map[string]api.Module{}, functions: map[string]api.Function{},
		idle: map[int][]api.Ptr{}, programs: map[int]*Program{}, maxPinned: maxPinned,
	}
	text, err := kernels.PTX("functions", d.capability())
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", gpu.Name, err), gpu.Close())
	}
	if d.library, err = ptx.ParseLibrary(text); err != nil {
		return nil, errors.Join(err, gpu.Close())
	}
	if err := d.do(d.start); err != nil {
		return nil, err
	}
	if d.settings, err = readSettings(); err != nil {
		return nil, err
	}
	return d, d.do(func() error { // in the device's context
		d.lt, d.dnn = openLibrary(gpu.Driver), openConvolutionLibrary(gpu.Driver, d.settings)
		return nil
	})
}

// start makes what every program needs.
func (d *Device) start() (err error) {
	if d.stream, err = api.NewStream(); err != nil {
		return err
	}
	if d.copies, err = api.NewStream(); err != nil {
		return err
	}
	for i := range d.marks {
		if d.marks[i], err = api.NewEvent(); err != nil {
			return err
		}
	}
	if d.mirror, err = api.AllocPinned(faultBytes); err != nil {
		return err
	}
	clear(d.mirror)
	if d.fault, err = d.take(faultBytes, ""); err != nil {
		return err
	}
	return d.stream.Fill(d.fault, 0, faultBytes)
}

func (d *Device) capability() int { return capability(d.gpu.Hardware) }

// Name is "cuda", or "cuda:1" of another than the first GPU.
func (d *Device) Name() string { return name(d.gpu.Ordinal) }

// Supports reports whether there is a kernel for an operation on a type.
func (d *Device) Supports(c op.Code, t dtype.DType) bool {
	if t.Size() == 0 || t == dtype.Int8 {
		return false
	}
	if c.Info().Class == op.Elementwise {
		return c == op.Fused || c == op.ExtraOutput || c == op.Cast || c == op.Identity || d.library.Has(ptx.Name(c, t))
	}
	switch c {
	case op.Softmax, op.LogSoftmax, op.SoftmaxGrad, op.MatMul, op.Conv, op.ConvInputGrad, op.ConvKernelGrad,
		op.MaxPool, op.MaxPoolGrad, op.MaxPoolGradGrad, op.AvgPool, op.AvgPoolGrad, op.RNN, op.RNNGrad, op.Moments, op.BatchNormReduce:
		return t.IsFloat()
	case op.AttentionForward, op.AttentionGrad:
		return t.IsFloat() && t != dtype.Float64
	case op.Unique:
		return t == dtype.Int32 || t == dtype.Int64
	case op.ScatterAdd:
		return t != dtype.Bool
	case op.AllReduceStart, op.AllReduceDone, op.AllGatherStart, op.AllGatherDone:
		return t.IsFloat()
	case op.RandomUniform:
		return t == dtype.Int64
	}
	return c == op.Param || c == op.Const || builders[c] != nil
}

// take allocates memory of the device; what names its use in the error.
func (d *Device) take(bytes int, what string) (api.Ptr, error) {
	if err := d.reap(); err != nil {
		return 0, err
	}
	n := size(bytes)
	if list := d.idle[n]; len(list) > 0 {
		d.idle[n] = list[:len(list)-1]
		return list[len(list)-1], nil
	}
	p, err := api.Alloc(n)
	// What is idle goes first, then what the collector has not found yet.
	for try := 0; try < 3 && errors.Is(err, api.ErrOutOfMemory); try++ {
		if try > 0 {
			runtime.GC()
			time.Sleep(time.Millisecond) // the collector's cleanups run behind it
		}
		if err = d.trim(); err == nil {
			p, err = api.Alloc(n)
		}
	}
	if err == nil {
		d.taken += n
		d.peak.Store(max(d.peak.Load(), int64(d.taken)))
		return p, nil
	}
	if !errors.Is(err, api.ErrOutOfMemory) {
		return 0, fmt.Errorf("cuda: %s%w", what, err)
	}
	free, _ := d.gpu.Free()
	return 0, fmt.Errorf("cuda: %s%d bytes do not fit into the %d free ones of %d on %s: %w", what, bytes, free, d.gpu.Bytes, d.gpu.Name, err)
}

// give takes memory of take back. All work that uses it has been put on the
// stream, and so has all that will use it next.
func (d *Device) give(p api.Ptr, bytes int) { d.idle[size(bytes)] = append(d.idle[size(bytes)], p) }

// trim returns idle memory to the driver.
func (d *Device) trim() error {
	if err := d.reap(); err != nil {
		return err
	}
	for n, list := range d.idle {
		for _, p := range list {
			if err := api.Release(p); err != nil {
				return err
			}
			d.taken -= n
		}
		delete(d.idle, n)
	}
	return nil
}

// do runs f alone on the device, with its context current.
func (d *Device) do(f func() error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.gpu.Enter(); err != nil {
		return err
	}
	defer d.gpu.Leave()
	return f()
}

// function finds one of the kernels that come with Mezzo.
func (d *Device) function(name string) (api.Function, error) {
	if f, ok := d.functions[name]; ok {
		return f, nil
	}
	unit, err := kernels.UnitOf(name)
	if err != nil {
		return 0, err
	}
	m, ok := d.modules[unit]
	if !ok {
		if m, err = load(unit, d.capability()); err != nil {
			return 0, fmt.Errorf("cuda: kernels of unit %s: %w", unit, err)
		}
		d.modules[unit] = m
	}
	f, err := m.Function(name)
	if err == nil {
		d.functions[name] = f
	}
	return f, err
}

// load loads the kernels of a unit: as PTX, where the driver does not take what
// is compiled (CUDA_FORCE_PTX_JIT, for one, forbids it).
func load(unit string, capability int) (m api.Module, err error) {
	images, err := kernels.Images(unit, capability)
	if err != nil {
		return m, err
	}
	for _, image := range images {
		if m, err = api.Load(image); err == nil {
			break
		}
	}
	return m, err
}

// MemoryLimit is the bytes that a plan may need: MEZZO_MEMORY_LIMIT, or what the
// GPU has.
func (d *Device) MemoryLimit() int {
	if n := d.limit.Load(); n > 0 {
		return int(n)
	}
	if n := backend.MemoryLimitSetting(); n > 0 {
		return n
	}
	if n := d.gpu.Bytes; n > 0 && n < op.Limit {
		return int(n)
	}
	return op.Limit
}

// SetMemoryLimit sets MemoryLimit; 0 is the default.
func (d *Device) SetMemoryLimit(bytes int) { d.limit.Store(int64(max(bytes, 0))) }

// FusesBiasReLU reports whether the libraries add a bias, followed by ReLU, in the call of
// a product and of a convolution: where their ReLU makes zeros of NaNs they do not.
func (d *Device) FusesBiasReLU() (product, convolution bool, err error) {
	three := func(n int) [3]int { return [3]int{1, n, n} }
	err = d.do(func() error {
		product = d.product(cublaslt.Problem{
			M: 64, N: 64, K: 64, In: dtype.Float16, Out: dtype.Float16, Batch: 1, Bias: true, Activation: cublaslt.Relu, Align: [3]int{256, 256, 256},
		}) != nil
		convolution = d.convolution(cudnn.Problem{
			Operation: cudnn.Forward, Type: dtype.Float16, Batch: 1, Axes: 2, InChannels: 8, OutChannels: 8, Groups: 1, Bias: true, Relu: true,
			Input: [3]int{8, 8, 1}, Output: [3]int{6, 6, 1}, Window: [3]int{3, 3, 1}, Stride: three(1), Dilation: three(1),
		}) != nil
		return d.broken
	})
	return product, convolution, err
}

// PeakBytes is the most memory that was taken from the driver at a time, for buffers and
// programs: not what the context and libraries need, and what is tried out.
func (d *Device) PeakBytes() int { return int(d.peak.Load()) }

// MovedBytes is what the kernels of a run read and write, of the program that has most of
// it: their operands and results, each once.
func (d *Device) MovedBytes() int { return int(d.moved.Load()) }

// SplitsResults implements driver.ResultSplitter. The gradients of attention lie one
// behind the other, and collectives unpack all of theirs at once.
func (d *Device) SplitsResults(c op.Code) bool {
	return c == op.LayerNormGrad || c == op.AttentionForward
}

// Compile makes a program from a plan.
func (d *Device) Compile(ctx context.Context, g *ir.Graph) (driver.Program, error) {
	var p *Program
	err := d.do(func() (err error) {
		p, err = compile(d, g)
		return err
	})
	if err != nil {
		return nil, err
	}
	return p, nil
}

// Close gives the GPU back.
func (d *Device) Close() error {
	d.disconnect()
	return d.do(func() error {
		err := errors.Join(d.copies.Wait(), d.stream.Wait())
		d.give(d.fault, faultBytes)
		err = errors.Join(err, d.trim(), d.lt.close(), d.dnn.close(), d.unpin(), api.ReleasePinned(d.mirror))
		for _, m := range d.modules {
			err = errors.Join(err, m.Close())
		}
		for _, e := range slices.Concat(d.marks[:], d.events) {
			err = errors.Join(err, e.Close())
		}
		return errors.Join(err, d.copies.Close(), d.stream.Close(), d.gpu.Close())
	})
}

// Describe names the GPU, what products and convolutions are computed in and by
// which library.
func (d *Device) Describe() driver.Description {
	var missing []string
	products, convolutions := "", ""
	if d.lt.handle != nil {
		v := d.lt.handle.Library().Version
		products = fmt.Sprintf("cublasLt %d.%d.%d", v/10000, v/100%100, v%100)
	} else {
		missing = append(missing, d.lt.missing.Error())
	}
	if d.dnn.handle != nil {
		v := d.dnn.handle.Library().Version
		convolutions = fmt.Sprintf("cuDNN %d.%d.%d", v[0], v[1], v[2])
	} else {
		missing = append(missing, d.dnn.missing.Error())
	}
	single := "float32"
	if d.tf32() {
		single = "TensorFloat-32"
	}
	how := " (" + by(products, convolutions) + ")"
	return driver.Description{
		Device:   d.Name(),
		Hardware: d.gpu.Name,
		ISA:      isa(d.gpu.Hardware),
		Threads:  d.gpu.Processors,
		Arithmetic: map[dtype.DType]string{
			dtype.Float16: "float32 sums" + how, dtype.BFloat16: "float32 sums" + how,
			dtype.Float32: single + how, dtype.Float64: "float64 (" + by(products, "") + ")",
		},
		Missing: missing,
		Slow:    slow(d.gpu.Hardware),
	}
}

// by says which libraries compute products and convolutions, "" being none.
func by(products, convolutions string) string {
	switch {
	case products == "" && convolutions == "":
		return "own kernels"
	case products == "":
		return convolutions + ", products by own kernels"
	case convolutions == "":
		return products + ", convolutions by own kernels"
	}
	return products + ", " + convolutions
}

// slow is which types the GPU's Tensor Cores do not take. It goes by the compute
// capability, and by name for GPUs of 7.5 that have no Tensor Cores.
func slow(h api.Hardware) map[dtype.DType]string {
	m := map[dtype.DType]string{}
	if capability(h) == 75 && slices.ContainsFunc(strings.Fields(h.Name), noTensorCores) {
		m[dtype.Float16] = fmt.Sprintf("it has no Tensor Cores, unlike other GPUs of its compute capability. Your GPU: %s, compute capability %d.%d", h.Name, h.Major, h.Minor)
	}
	for t, least := range map[dtype.DType]int{dtype.Float16: 70, dtype.BFloat16: 80} {
		if capability(h) < least {
			m[t] = fmt.Sprintf("it does not have compute capability of at least %d.0. Your GPU: %s, compute capability %d.%d", least/10, h.Name, h.Major, h.Minor)
		}
	}
	return m
}

// noTensorCores reports whether a word of a GPU's name is that of a chip TU116 or
// TU117: GeForce GTX 1630 to 1660 Ti, the smallest GeForce MX, and small professional
// GPUs.
func noTensorCores(word string) bool {
	switch word {
	case "1630", "1650", "1660", "MX450", "MX550", "T400", "T500", "T550", "T600", "T1000", "T1200", "T2000":
		return true
	}
	return false
}
