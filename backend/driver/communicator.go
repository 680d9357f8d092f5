package driver

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// Communicator connects a program to the ranks of a group, for op.AllReduceStart. It
// makes collective calls: all ranks make the same ones in the same order.
type Communicator interface {
	// Post queues a job. Jobs run in this order, one at a time: on the group's own
	// goroutine, which begins at once if soon is set, or in Help.
	Post(j CommunicatorJob, soon bool)

	// Help runs queued jobs up to j, unless another goroutine is running them. The caller is
	// about to wait for j, and all that j waits for is there.
	Help(j CommunicatorJob)

	// AllToAll sends part i of send to rank i and receives its part as part i of recv.
	// AllGather receives send of rank i as part i of recv. AllReduce adds up x of all
	// ranks, in an order of the engine's choice. Jobs call them; an error is final.
	AllToAll(send, recv []byte) error
	AllGather(send, recv []byte) error
	AllReduce(x []float32) error

	// SameText returns an error unless all ranks call it with the same lines, each a
	// predicate of a program such as "exchanges bucket 0". It is called before the
	// first run.
	SameText(lines string) error

	// Devices that exchange by a library of their own call these to connect, in the same
	// order on all ranks: Agree returns an error on all ranks if one has an error, and
	// Broadcast copies b of rank root to b of all others.
	Agree(err error) error
	Broadcast(b []byte, root int) error

	// Timeout is how long an exchange waits for other ranks.
	Timeout() time.Duration

	// Err returns why no exchange can succeed any more, as far as this rank knows, or nil.
	Err() error

	// Missing returns the error of an exchange that this rank has waited for so long, with
	// the rank that is missing where the group can find out. what is the exchange, cause
	// the reason to give up. No call but it may be in progress.
	Missing(what string, waited time.Duration, cause error) error
}

// CommunicatorJob is work that makes collective calls.
type CommunicatorJob interface{ Exchange() }

// reserved is how many of GOMAXPROCS kernels do not use.
var reserved atomic.Int32

// ReserveThread raises GOMAXPROCS by one, for a goroutine that makes calls of a
// communicator: when a call returns it can begin the next at once, and need not wait until a
// kernel ends. Kernels use as many threads as before.
func ReserveThread() {
	reserved.Add(1)
	runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) + 1)
}

// Threads returns how many threads a kernel may use: GOMAXPROCS without those that
// ReserveThread has added.
func Threads() int { return max(1, runtime.GOMAXPROCS(0)-int(reserved.Load())) }

var communicators struct {
	sync.Mutex
	all map[int]Communicator
	n   int
}

// AddCommunicator gives c a number, by which programs of this process find it, from 1.
func AddCommunicator(c Communicator) (number int) {
	communicators.Lock()
	defer communicators.Unlock()
	if communicators.all == nil {
		communicators.all = map[int]Communicator{}
	}
	communicators.n++
	communicators.all[communicators.n] = c
	return communicators.n
}

// RemoveCommunicator forgets a communicator; its programs cannot run any more.
func RemoveCommunicator(number int) {
	communicators.Lock()
	defer communicators.Unlock()
	delete(communicators.all, number)
}

// CommunicatorOf returns the communicator with a number, or nil.
func CommunicatorOf(number int) Communicator {
	communicators.Lock()
	defer communicators.Unlock()
	return communicators.all[number]
}
