// Package libmpi calls an MPI library that is loaded at run time, without cgo.
//
// Three binary interfaces are in use. They differ in what handles and constants are:
//
//	standard  libmpi_abi.so.1  MPI 5.0: MPICH 5, Intel MPI 2021.17, Open MPI 6; handles are small constants
//	openmpi   libmpi.so.40     Open MPI 4 and 5: handles are addresses of symbols
//	mpich     libmpi.so.12     MPICH 3.1 to 5, Intel MPI, Cray MPICH, MVAPICH: handles are 32-bit constants
//
// Functions are called by address with purego, which switches to a C stack as cgo does.
// A call that blocks occupies a thread, and no processor of Go's scheduler.
package libmpi

import (
	"bytes"
	"fmt"
	"runtime"
	"strings"
	"unsafe"
)

// Comm is a communicator.
type Comm uintptr

// Library is a loaded library. One goroutine calls it at a time, unless Level is
// Multiple.
type Library struct {
	Path string // as given to Open
	abi
	functions
	exit uintptr    // of the C library
	args [8]uintptr // of the collective call in progress
}

// functions holds the addresses of what is called.
type functions struct {
	initialized, initThread, finalize, abort          uintptr
	commRank, commSize, commDup, commSplitType        uintptr
	commSetErrhandler, errorString, libraryVersion    uintptr
	alltoall, allgather, allreduce, bcast, barrier    uintptr
	isend, irecv, test, getProcessorName, commSetName uintptr
}

// names returns the symbols of the functions.
func (f *functions) names() map[string]*uintptr {
	return map[string]*uintptr{
		"MPI_Initialized": &f.initialized, "MPI_Init_thread": &f.initThread, "MPI_Finalize": &f.finalize, "MPI_Abort": &f.abort,
		"MPI_Comm_rank": &f.commRank, "MPI_Comm_size": &f.commSize, "MPI_Comm_dup": &f.commDup, "MPI_Comm_split_type": &f.commSplitType,
		"MPI_Comm_set_errhandler": &f.commSetErrhandler, "MPI_Error_string": &f.errorString, "MPI_Get_library_version": &f.libraryVersion,
		"MPI_Alltoall": &f.alltoall, "MPI_Allgather": &f.allgather, "MPI_Allreduce": &f.allreduce, "MPI_Bcast": &f.bcast, "MPI_Barrier": &f.barrier,
		"MPI_Isend": &f.isend, "MPI_Irecv": &f.irecv, "MPI_Test": &f.test,
		"MPI_Get_processor_name": &f.getProcessorName, "MPI_Comm_set_name": &f.commSetName,
	}
}

// Level says which threads may call the library.
type Level int

const (
	Single     Level = iota // only the thread of Init
	Funneled                // only the thread of Init
	Serialized              // any thread, one at a time
	Multiple                // any thread
)

func (l Level) String() string {
	return [...]string{"MPI_THREAD_SINGLE", "MPI_THREAD_FUNNELED", "MPI_THREAD_SERIALIZED", "MPI_THREAD_MULTIPLE"}[l]
}

// An Error is a call of the library that failed.
type Error struct {
	Call string // "MPI_Alltoall"
	Code int
	Text string // of MPI_Error_string
}

func (e *Error) Error() string { return fmt.Sprintf("%s: %s (code %d)", e.Call, e.Text, e.Code) }

// result returns the error of a return value.
func (l *Library) result(name string, r uintptr) error {
	code := int32(r)
	if code == 0 {
		return nil
	}
	text := make([]byte, 8192) // MPI_MAX_ERROR_STRING is at most 512
	var n int32
	call(l.errorString, uintptr(code), uintptr(unsafe.Pointer(&text[0])), uintptr(unsafe.Pointer(&n)))
	return &Error{name, int(code), strings.TrimRight(string(text[:max(0, min(int(n), len(text)))]), "\x00\n ")}
}

// Init initializes the library and returns the level that it grants. It asks for
// Multiple. Its thread must call Finalize; it must make all calls if the level is below
// Serialized. Errors of later calls are returned: by default a library ends the process.
func (l *Library) Init() (Level, error) {
	var done, level int32
	if err := l.result("MPI_Initialized", call(l.initialized, uintptr(unsafe.Pointer(&done)))); err != nil {
		return 0, err
	}
	if done != 0 {
		return 0, fmt.Errorf("%s is initialized already", l.Path)
	}
	if err := l.result("MPI_Init_thread", call(l.initThread, 0, 0, uintptr(l.threadLevels[Multiple]), uintptr(unsafe.Pointer(&level)))); err != nil {
		return 0, err
	}
	granted := Single
	for i, n := range l.threadLevels {
		if level >= n {
			granted = Level(i)
		}
	}
	return granted, l.result("MPI_Comm_set_errhandler", call(l.commSetErrhandler, l.world, l.errorsReturn))
}

// World returns the communicator of all processes.
func (l *Library) World() Comm { return Comm(l.world) }

// Dup returns a communicator of the same processes, whose messages do not mix with
// those of c. It is collective.
func (l *Library) Dup(c Comm) (Comm, error) {
	var out uintptr
	err := l.result("MPI_Comm_dup", call(l.commDup, uintptr(c), uintptr(unsafe.Pointer(&out))))
	return l.comm(out), err
}

// SplitShared returns the communicator of the processes of this machine, in the order of
// their ranks in c. It is collective.
func (l *Library) SplitShared(c Comm) (Comm, error) {
	var out uintptr
	err := l.result("MPI_Comm_split_type", call(l.commSplitType, uintptr(c), uintptr(l.typeShared), 0, l.infoNull, uintptr(unsafe.Pointer(&out))))
	return l.comm(out), err
}

// comm returns a handle that the library has written: it may have written 32 bits.
func (l *Library) comm(h uintptr) Comm {
	if l.intHandles {
		h = uintptr(uint32(h))
	}
	return Comm(h)
}

// Rank returns the number of this process in c, Size the number of processes.
func (l *Library) Rank(c Comm) (int, error) {
	var n int32
	err := l.result("MPI_Comm_rank", call(l.commRank, uintptr(c), uintptr(unsafe.Pointer(&n))))
	return int(n), err
}

// Size returns the number of processes of c.
func (l *Library) Size(c Comm) (int, error) {
	var n int32
	err := l.result("MPI_Comm_size", call(l.commSize, uintptr(c), uintptr(unsafe.Pointer(&n))))
	return int(n), err
}

// Version returns the first line of the library's description of itself.
func (l *Library) Version() string {
	text := make([]byte, 8192+1) // MPI_MAX_LIBRARY_VERSION_STRING is at most 8192
	var n int32
	call(l.libraryVersion, uintptr(unsafe.Pointer(&text[0])), uintptr(unsafe.Pointer(&n)))
	text, _, _ = bytes.Cut(text, []byte{0})
	line, _, _ := strings.Cut(string(text), "\n")
	return strings.Join(strings.Fields(line), " ")
}

// ABI returns the name of the binary interface: "standard", "openmpi" or "mpich".
func (l *Library) ABI() string { return l.abi.name }

// Finalize ends the use of the library. It is collective.
func (l *Library) Finalize() error { return l.result("MPI_Finalize", call(l.finalize)) }

// Abort ends all processes of the job. It returns only if that fails.
func (l *Library) Abort(code int) {
	call(l.abort, l.world, uintptr(uint32(code)))
}

// MaxCount is the largest number of elements that a call takes. The counts of MPI are
// signed 32-bit numbers; some libraries multiply them by sizes in 32 bits.
const MaxCount = 1 << 30

// collect calls a collective function. One is called at a time, so that its arguments
// need no memory of their own: those of call are allocated. The buffers are on the heap.
func (l *Library) collect(name string, f uintptr, send, recv unsafe.Pointer, args []uintptr) error {
	r := call(f, args...)
	runtime.KeepAlive(send)
	runtime.KeepAlive(recv)
	return l.result(name, r)
}

// Alltoall sends part i of send, which has n bytes, to rank i of c, and puts the part of
// rank i that is sent here into part i of recv.
func (l *Library) Alltoall(c Comm, send, recv []byte, n int) error {
	from, to := unsafe.Pointer(unsafe.SliceData(send)), unsafe.Pointer(unsafe.SliceData(recv))
	args := append(l.args[:0], uintptr(from), uintptr(n), l.byte, uintptr(to), uintptr(n), l.byte, uintptr(c))
	return l.collect("MPI_Alltoall", l.alltoall, from, to, args)
}

// Allgather puts send of rank i into part i of recv, which has parts of len(send) bytes.
func (l *Library) Allgather(c Comm, send, recv []byte) error {
	from, to := unsafe.Pointer(unsafe.SliceData(send)), unsafe.Pointer(unsafe.SliceData(recv))
	n := uintptr(len(send))
	args := append(l.args[:0], uintptr(from), n, l.byte, uintptr(to), n, l.byte, uintptr(c))
	return l.collect("MPI_Allgather", l.allgather, from, to, args)
}

// SumFloat32 adds up x of all ranks in place, in an order that the library chooses.
func (l *Library) SumFloat32(c Comm, x []float32) error {
	at := unsafe.Pointer(unsafe.SliceData(x))
	args := append(l.args[:0], l.inPlace, uintptr(at), uintptr(len(x)), l.float, l.sum, uintptr(c))
	return l.collect("MPI_Allreduce", l.allreduce, at, nil, args)
}

// Bcast copies b of rank root to b of all others.
func (l *Library) Bcast(c Comm, b []byte, root int) error {
	at := unsafe.Pointer(unsafe.SliceData(b))
	args := append(l.args[:0], uintptr(at), uintptr(len(b)), l.byte, uintptr(root), uintptr(c))
	return l.collect("MPI_Bcast", l.bcast, at, nil, args)
}

// Barrier returns when all ranks of c have called it.
func (l *Library) Barrier(c Comm) error {
	return l.collect("MPI_Barrier", l.barrier, nil, nil, append(l.args[:0], uintptr(c)))
}

// Request is a message on its way. Its memory and that of the message must stay where
// they are until Test has said that it is done: both must be on the heap, and reachable.
type Request struct {
	handle uintptr
	done   int32      // of Test
	args   [3]uintptr // of Test, so that it does not allocate
}

// Send begins to send b to rank to.
func (l *Library) Send(c Comm, b []byte, to int, r *Request) error {
	return l.result("MPI_Isend", call(l.isend, uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)), l.byte, uintptr(to), 0, uintptr(c), uintptr(unsafe.Pointer(&r.handle))))
}

// Receive begins to receive a message of len(b) bytes from any rank.
func (l *Library) Receive(c Comm, b []byte, r *Request) error {
	return l.result("MPI_Irecv", call(l.irecv, uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)), l.byte, uintptr(uint32(l.anySource)), 0, uintptr(c), uintptr(unsafe.Pointer(&r.handle))))
}

// Test says whether a message has been sent or has come.
func (l *Library) Test(r *Request) (bool, error) {
	args := append(r.args[:0], uintptr(unsafe.Pointer(&r.handle)), uintptr(unsafe.Pointer(&r.done)), l.statusIgnore)
	err := l.result("MPI_Test", call(l.test, args...))
	return r.done != 0, err
}
