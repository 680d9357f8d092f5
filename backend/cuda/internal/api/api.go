//go:build cuda && linux && amd64

package api

/*
#cgo LDFLAGS: -L${SRCDIR}/stub -Wl,--as-needed -ldl
#include <stdlib.h>
#include "shim.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"sync"
	"unsafe"

	"gorgonia.org/cu"
)

// Oldest is the oldest driver that Mezzo runs on: that of CUDA 11.8.
const Oldest = 11080

// DriverSetting is the environment variable with the path of the driver's
// library, for machines that keep it in an unusual place.
const DriverSetting = "MEZZO_CUDA_DRIVER"

// NoDriverError says that there is no driver, or that it does not start.
type NoDriverError struct {
	Tried string // where it was looked for
	Err   error  // what cuInit said; nil when no library was found
}

// Error says where the library was looked for, and what cuInit said of it.
func (e *NoDriverError) Error() string {
	if e.Err == nil {
		return "no driver found: tried " + e.Tried
	}
	return fmt.Sprintf("the driver does not start: %v (library: %s)", e.Err, e.Tried)
}

func (e *NoDriverError) Unwrap() error { return e.Err }

// Error is a call of the driver that failed.
type Error struct {
	Call string // "cuLaunchKernel"
	Code int    // a CUresult
	What string // what it was about: a kernel's name
}

// Error prints "cuLaunchKernel softmax_f32: CUDA_ERROR_INVALID_VALUE (1): invalid argument".
func (e *Error) Error() string {
	var name, text *C.char
	C.cuGetErrorName(C.CUresult(e.Code), &name)
	C.cuGetErrorString(C.CUresult(e.Code), &text)
	what := ""
	if e.What != "" {
		what = " " + e.What
	}
	return fmt.Sprintf("%s%s: %s (%d): %s", e.Call, what, C.GoString(name), e.Code, C.GoString(text))
}

// ErrOutOfMemory is matched by errors.Is when the device had not enough
// memory.
var ErrOutOfMemory = errors.New("out of memory")

// Is makes errors.Is(err, ErrOutOfMemory) work.
func (e *Error) Is(target error) bool {
	return target == ErrOutOfMemory && e.Code == C.CUDA_ERROR_OUT_OF_MEMORY
}

func check(call, what string, code C.CUresult) error {
	if code == C.CUDA_SUCCESS {
		return nil
	}
	return &Error{Call: call, Code: int(code), What: what}
}

// wrap makes an error of package cu, whose type is not exported but is an
// integer, one of this package.
func wrap(call, what string, err error) error {
	if err == nil {
		return nil
	}
	for code := range errorCodes {
		if err == errorCodes[code] {
			return &Error{Call: call, Code: code, What: what}
		}
	}
	return fmt.Errorf("%s %s: %w", call, what, err)
}

// errorCodes are those that decide how a caller goes on.
var errorCodes = map[int]error{
	C.CUDA_ERROR_INVALID_VALUE:     cu.InvalidValue,
	C.CUDA_ERROR_OUT_OF_MEMORY:     cu.OutOfMemory,
	C.CUDA_ERROR_NO_DEVICE:         cu.NoDevice,
	C.CUDA_ERROR_INVALID_IMAGE:     cu.InvalidImage,
	C.CUDA_ERROR_INVALID_PTX:       cu.InvalidPtx,
	C.CUDA_ERROR_NO_BINARY_FOR_GPU: cu.NoBinaryForGpu,
	C.CUDA_ERROR_NOT_SUPPORTED:     cu.NotSupported,
	C.CUDA_ERROR_ILLEGAL_ADDRESS:   cu.IllegalAddress,
	C.CUDA_ERROR_LAUNCH_FAILED:     cu.LaunchFailed,
	C.CUDA_ERROR_NOT_FOUND:         cu.NotFound,
}

// driver is the library, opened once in a process.
var driver = sync.OnceValues(func() (int, error) {
	path := C.CString(os.Getenv(DriverSetting))
	defer C.free(unsafe.Pointer(path))
	var tried *C.char
	code := C.mezzo_cuda_open(path, &tried)
	switch {
	case code == -1:
		return 0, &NoDriverError{Tried: C.GoString(tried)}
	case code != C.CUDA_SUCCESS:
		err := check("cuInit", "", C.CUresult(code))
		if why := obstacle(os.Getenv, os.OpenFile); why != "" {
			err = fmt.Errorf("%w: %s", err, why)
		}
		return 0, &NoDriverError{Tried: C.GoString(tried), Err: err}
	}
	version := cu.Version()
	if version < Oldest {
		return 0, fmt.Errorf("the driver is of CUDA %d.%d, want 11.8 or newer", version/1000, version%1000/10)
	}
	return version, nil
})

// obstacle is what may keep a driver from finding a GPU.
func obstacle(getenv func(string) string, open func(string, int, fs.FileMode) (*os.File, error)) string {
	const visible, control = "CUDA_VISIBLE_DEVICES", "/dev/nvidiactl"
	f, err := open(control, os.O_RDWR, 0)
	if err == nil {
		err = f.Close()
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return control + " does not exist: there is no GPU, its kernel module is not loaded, or this container was started without it"
	case err != nil:
		return err.Error() // names the file: no permission
	case getenv(visible) == "-1":
		return visible + "=-1 hides all devices"
	}
	return ""
}

// Count is the number of GPUs.
func Count() (int, error) {
	if _, err := driver(); err != nil {
		return 0, err
	}
	n, err := cu.NumDevices()
	return n, wrap("cuDeviceGetCount", "", err)
}

// Ptr is an address in a device's memory.
type Ptr uint64

// Function is a kernel of a module.
type Function uintptr

// Stream is a queue of work of a device.
type Stream struct {
	cu     cu.Stream
	handle C.uintptr_t
}

// Hardware is what a GPU is.
type Hardware struct {
	Ordinal      int
	Name         string // "NVIDIA H200"
	Major, Minor int    // compute capability
	Processors   int    // streaming multiprocessors
	Bytes        int64  // of memory
}

// Device is a GPU with its primary context, which all libraries share.
type Device struct {
	Hardware
	Driver int // version: 12040 is that of CUDA 12.4

	dev cu.Device
	ctx cu.CUContext
}

// List describes the GPUs and opens none.
func List() ([]Hardware, error) {
	n, err := Count()
	if err != nil {
		return nil, err
	}
	list := make([]Hardware, n)
	for i := range list {
		if list[i], _, err = describe(i); err != nil {
			return nil, err
		}
	}
	return list, nil
}

func describe(ordinal int) (h Hardware, dev cu.Device, err error) {
	h.Ordinal = ordinal
	if dev, err = cu.GetDevice(ordinal); err != nil {
		return h, dev, wrap("cuDeviceGet", "", err)
	}
	if h.Name, err = dev.Name(); err != nil {
		return h, dev, wrap("cuDeviceGetName", "", err)
	}
	if h.Major, h.Minor, err = dev.ComputeCapability(); err != nil {
		return h, dev, wrap("cuDeviceGetAttribute", "compute capability", err)
	}
	if h.Processors, err = dev.Attribute(cu.MultiprocessorCount); err != nil {
		return h, dev, wrap("cuDeviceGetAttribute", "processors", err)
	}
	h.Bytes, err = dev.TotalMem()
	return h, dev, wrap("cuDeviceTotalMem", "", err)
}

// Open opens a GPU by number.
func Open(ordinal int) (*Device, error) {
	version, err := driver()
	if err != nil {
		return nil, err
	}
	n, err := Count()
	if err != nil {
		return nil, err
	}
	if ordinal < 0 || ordinal >= n {
		return nil, fmt.Errorf("got device %d, want one of 0 to %d (CUDA_VISIBLE_DEVICES hides devices)", ordinal, n-1)
	}
	d := &Device{Driver: version}
	if d.Hardware, d.dev, err = describe(ordinal); err != nil {
		return nil, err
	}
	if d.ctx, err = d.dev.RetainPrimaryCtx(); err != nil {
		return nil, wrap("cuDevicePrimaryCtxRetain", d.Name, err)
	}
	return d, nil
}

// Enter makes the device's context current. It locks the goroutine to its
// thread until [Device.Leave].
func (d *Device) Enter() error {
	runtime.LockOSThread()
	if err := cu.SetCurrentContext(d.ctx); err != nil {
		runtime.UnlockOSThread()
		return wrap("cuCtxSetCurrent", "", err)
	}
	return nil
}

// Leave ends what Enter began.
func (d *Device) Leave() { runtime.UnlockOSThread() }

// Close gives the context back. All else of the device must be freed before.
func (d *Device) Close() error {
	return wrap("cuDevicePrimaryCtxRelease", "", d.dev.ReleasePrimaryCtx())
}

// The functions below want the context current: between Enter and Leave.

// Free is the number of bytes that the device has left.
func (d *Device) Free() (int64, error) {
	free, _, err := cu.MemInfo()
	return free, wrap("cuMemGetInfo", "", err)
}

// Alloc takes memory of the device, of undefined contents.
func Alloc(bytes int) (Ptr, error) {
	p, err := cu.MemAlloc(int64(bytes))
	return Ptr(p), wrap("cuMemAlloc", fmt.Sprint(bytes, " bytes"), err)
}

// Release gives memory of the device back.
func Release(p Ptr) error { return wrap("cuMemFree", "", cu.MemFree(cu.DevicePtr(p))) }

// AllocPinned takes memory of the host that copies need not be staged for.
func AllocPinned(bytes int) ([]byte, error) {
	var p unsafe.Pointer
	if err := check("cuMemHostAlloc", fmt.Sprint(bytes, " bytes"), C.cuMemHostAlloc(&p, C.size_t(bytes), 0)); err != nil {
		return nil, err
	}
	return unsafe.Slice((*byte)(p), bytes), nil
}

// ReleasePinned gives memory of AllocPinned back.
func ReleasePinned(b []byte) error {
	return wrap("cuMemFreeHost", "", cu.MemFreeHost(unsafe.Pointer(unsafe.SliceData(b))))
}

// NewStream makes a stream that does not wait for others.
func NewStream() (Stream, error) {
	s, err := cu.MakeStream(cu.NonBlocking)
	if err != nil {
		return Stream{}, wrap("cuStreamCreate", "", err)
	}
	return Stream{s, C.uintptr_t(uintptr(unsafe.Pointer(s.C())))}, nil
}

// Handle is the stream as libraries take it.
func (s Stream) Handle() uintptr { return uintptr(s.handle) }

// Close ends the stream.
func (s *Stream) Close() error { return wrap("cuStreamDestroy", "", s.cu.Destroy()) }

// Wait waits until the stream has nothing left to do.
func (s Stream) Wait() error { return wrap("cuStreamSynchronize", "", s.cu.Synchronize()) }

// CopyIn copies from the host, CopyOut to it. With memory of AllocPinned they
// return at once; with other memory when the source has been read, or the
// destination written.
func (s Stream) CopyIn(to Ptr, from []byte) error {
	if len(from) == 0 {
		return nil
	}
	return wrap("cuMemcpyHtoDAsync", "", cu.MemcpyHtoDAsync(cu.DevicePtr(to), unsafe.Pointer(&from[0]), int64(len(from)), s.cu))
}

// CopyOut copies to the host.
func (s Stream) CopyOut(to []byte, from Ptr) error {
	if len(to) == 0 {
		return nil
	}
	return wrap("cuMemcpyDtoHAsync", "", cu.MemcpyDtoHAsync(unsafe.Pointer(&to[0]), cu.DevicePtr(from), int64(len(to)), s.cu))
}

// Copy copies within the device.
func (s Stream) Copy(to, from Ptr, bytes int) error {
	return wrap("cuMemcpyDtoDAsync", "", cu.MemcpyDtoDAsync(cu.DevicePtr(to), cu.DevicePtr(from), int64(bytes), s.cu))
}

// Fill sets bytes to a value.
func (s Stream) Fill(to Ptr, value byte, bytes int) error {
	if bytes == 0 {
		return nil
	}
	return wrap("cuMemsetD8Async", "", cu.MemsetD8Async(cu.DevicePtr(to), value, int64(bytes), s.cu))
}

// FillWords sets words of 4 bytes to a value.
func (s Stream) FillWords(to Ptr, value uint32, words int) error {
	return wrap("cuMemsetD32Async", "", cu.MemsetD32Async(cu.DevicePtr(to), uint(value), int64(words), s.cu))
}

// After makes what is put on the stream from now on wait for what an event
// was recorded behind.
func (s Stream) After(e Event) error {
	return check("cuStreamWaitEvent", "", C.cuStreamWaitEvent(C.CUstream(unsafe.Pointer(s.cu.C())), e.handle, 0))
}

// Event marks a place in a stream.
type Event struct{ handle C.CUevent }

// NewEvent makes an event, of a place that has been passed.
func NewEvent() (Event, error) {
	var e Event
	return e, check("cuEventCreate", "", C.cuEventCreate(&e.handle, C.CU_EVENT_DISABLE_TIMING))
}

// Record moves the event behind all that is on a stream now.
func (s Stream) Record(e Event) error {
	return check("cuEventRecord", "", C.cuEventRecord(e.handle, C.CUstream(unsafe.Pointer(s.cu.C()))))
}

// Wait waits until the stream has got there.
func (e Event) Wait() error {
	return check("cuEventSynchronize", "", C.cuEventSynchronize(e.handle))
}

// Passed reports whether the stream has got there.
func (e Event) Passed() (bool, error) {
	code := C.cuEventQuery(e.handle)
	if code == C.CUDA_ERROR_NOT_READY {
		return false, nil
	}
	return true, check("cuEventQuery", "", code)
}

// Close frees the event.
func (e Event) Close() error { return check("cuEventDestroy", "", C.cuEventDestroy(e.handle)) }

// Module is kernels on a device.
type Module struct{ cu cu.Module }

// Load makes a module of PTX or of a binary image.
func Load(image string) (Module, error) {
	m, err := cu.LoadData(image)
	return Module{m}, wrap("cuModuleLoadData", "", err)
}

// Function finds a kernel.
func (m Module) Function(name string) (Function, error) {
	f, err := m.cu.Function(name)
	return *(*Function)(unsafe.Pointer(&f)), wrap("cuModuleGetFunction", name, err)
}

// Close removes the module from the device.
func (m Module) Close() error { return wrap("cuModuleUnload", "", m.cu.Unload()) }

// MaxParameters is how many parameters a kernel may have.
const MaxParameters = C.MEZZO_MAX_PARAMETERS

// Launch is a call of a kernel with the parameters Words[First:First+Count] of
// its list.
type Launch = C.mezzo_launch

// NewLaunch makes a call; shared is bytes of dynamic shared memory.
func NewLaunch(f Function, grid, block [3]int, shared, first, count int) Launch {
	u := func(x [3]int) [3]C.uint32_t {
		return [3]C.uint32_t{C.uint32_t(x[0]), C.uint32_t(x[1]), C.uint32_t(x[2])}
	}
	return Launch{
		function: C.uintptr_t(f), grid: u(grid), block: u(block),
		shared: C.uint32_t(shared), first: C.uint32_t(first), count: C.uint32_t(count),
	}
}

// Launch calls kernels one after the other, each of whose parameters is a word
// of 8 bytes. It returns how many were called.
func (s Stream) Launch(list []Launch, words []uint64) (int, error) {
	if len(list) == 0 {
		return 0, nil
	}
	var failed C.int
	var w *C.uint64_t
	if len(words) > 0 {
		w = (*C.uint64_t)(unsafe.Pointer(&words[0]))
	}
	if code := C.mezzo_cuda_launch(&list[0], C.int(len(list)), w, s.handle, &failed); code != C.CUDA_SUCCESS {
		return int(failed), check("cuLaunchKernel", "", code)
	}
	return len(list), nil
}

// Graph is captured work, which one call starts.
type Graph struct{ exec C.CUgraphExec }

// Capture records what f does on the stream instead of doing it.
func (s Stream) Capture(f func() error) (*Graph, error) {
	stream := C.CUstream(unsafe.Pointer(s.cu.C()))
	if err := check("cuStreamBeginCapture", "", C.cuStreamBeginCapture(stream, C.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)); err != nil {
		return nil, err
	}
	failed := f()
	var g C.CUgraph
	err := check("cuStreamEndCapture", "", C.cuStreamEndCapture(stream, &g))
	if g != nil {
		defer C.cuGraphDestroy(g)
	}
	if err = errors.Join(failed, err); err != nil {
		return nil, err
	}
	made := &Graph{}
	if err := check("cuGraphInstantiate", "", C.cuGraphInstantiateWithFlags(&made.exec, g, 0)); err != nil {
		return nil, err
	}
	return made, nil
}

// Start puts the captured work on a stream.
func (s Stream) Start(g *Graph) error {
	return check("cuGraphLaunch", "", C.cuGraphLaunch(g.exec, C.CUstream(unsafe.Pointer(s.cu.C()))))
}

// Close frees the captured work.
func (g *Graph) Close() error {
	return check("cuGraphExecDestroy", "", C.cuGraphExecDestroy(g.exec))
}
