// Package distribution trains one model on several processes, or goroutines, at once:
// data parallelism (Keras: keras.distribution). Each process is a rank. All ranks have
// the same variables, each computes the gradients of its rows of a batch, and all apply
// the sum.
//
// Main types: [Group], the ranks that train together, and [Engine], the library that
// moves bytes between them. Engines register themselves: [Local] runs ranks as
// goroutines of one process, and the package keras/distribution/mpi, a module of its
// own, calls an MPI library.
//
// Rules: all ranks make the same collective calls in the same order. An error on one
// rank ends all. What is added up is added in float32 in a fixed tree, so that results
// do not depend on the engine.
package distribution

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/mezzo-ml/mezzo/backend"
)

// Engine is what a library that connects ranks implements. It moves bytes and computes
// nothing, but for the optional interface [Summer].
//
// A collective call returns when this rank's part of it is done; it needs all ranks.
// All ranks make the same calls in the same order and with equal lengths. One rank makes
// one call at a time, but from any goroutine: an engine whose library is bound to a
// thread hands the call to it. Only Abort is called while another call is in progress.
//
// A call whose context ends before all ranks have joined it returns an error that wraps
// context.Cause. It should name the ranks that are missing, where the engine knows them.
// After an error the ranks are out of step: every later call returns an error, and the
// buffers of the failed call may still be in use, so callers must not use them again.
//
// Buffers must not overlap. Engines must take lengths of 0, and lengths beyond the
// range of their library's counts.
type Engine interface {
	Name() string // "local", "mpi"
	Rank() int    // of this process, from 0 to Size-1
	Size() int    // number of ranks
	// LocalRank and LocalSize are Rank and Size among the ranks of this machine.
	LocalRank() int
	LocalSize() int

	// AllToAll sends part i of send to rank i, and puts the part that rank i has sent
	// to this one into part i of recv. Both consist of Size equal parts.
	AllToAll(ctx context.Context, send, recv []byte) error

	// AllGather puts send of rank i into part i of recv, which has Size parts of
	// len(send) bytes.
	AllGather(ctx context.Context, send, recv []byte) error

	// Broadcast copies b of rank root to b of all others.
	Broadcast(ctx context.Context, b []byte, root int) error

	// Barrier returns once all ranks have called it.
	Barrier(ctx context.Context) error

	// Abort ends the group: calls of other ranks that are in progress or come later
	// fail with an error that has the cause, or their processes end with the code. On
	// an engine of processes it does not return.
	Abort(code int, cause error)

	// Leave ends the connection in order. All ranks call it. No call but Exit of
	// [Exiter] follows.
	Leave(ctx context.Context) error
}

// Summer is an Engine with a sum of its own, for DataParallel.Engine: AllReduce adds up
// x of all ranks, and every rank gets the same sum in x. In which order it adds is the
// engine's choice.
type Summer interface {
	AllReduce(ctx context.Context, x []float32) error
}

// Locator is an Engine that knows more about ranks that do not answer. Its methods may be
// called while a call is in progress.
type Locator interface {
	// Missing returns the error of this rank, which has waited for so long in an exchange
	// that the engine has no part in. It should be a *RankError with a rank that does not
	// answer, or is behind.
	Missing(what string, waited time.Duration, cause error) error

	// Err returns why no call can succeed any more, or nil.
	Err() error
}

// Exiter is an Engine whose processes must end in a way of their own, such as through
// the C library's exit, instead of os.Exit. It is called after Leave and does not
// return.
type Exiter interface {
	Exit(code int)
}

// ErrUnavailable is in the error of an engine's join function when its library is not
// there, or no launcher has started the process: [Main] then runs alone, unless
// MEZZO_DISTRIBUTION names the engine.
var ErrUnavailable = errors.New("not available")

var engines struct {
	sync.Mutex
	join map[string]func(context.Context) (Engine, error)
	name []string // in the order of registration
	main *Group   // of Main
	many bool     // Main runs several ranks in this process
}

// Register makes an engine available to [Main] under a name. Engine packages call it in
// init, so that a blank import is enough. join connects this process to the others that
// the launcher has started; it is called once. It panics if the name is empty, taken or
// one of "local" and "none".
func Register(name string, join func(ctx context.Context) (Engine, error)) {
	engines.Lock()
	defer engines.Unlock()
	if name == "" || name == "local" || name == "none" || engines.join[name] != nil {
		panic(fmt.Sprintf("distribution: Register: the name %q is taken", name))
	}
	if engines.join == nil {
		engines.join = map[string]func(context.Context) (Engine, error){}
	}
	engines.join[name] = join
	engines.name = append(engines.name, name)
}

// World returns the group of this process: the one that [Main] joined, or a group of one
// rank. It panics where Main runs several ranks as goroutines: there the group is the argument
// of their function.
func World() *Group {
	engines.Lock()
	defer engines.Unlock()
	if engines.many {
		panic("distribution: World: several ranks run in this process; use the Group that Main gives to its function")
	}
	if engines.main == nil {
		engines.main = NewGroup(alone{})
	}
	return engines.main
}

// Main joins the processes that a launcher such as mpirun has started, calls run, and
// ends the process; it never returns. Without a launcher, run is called with a group of
// one rank. The context ends with the first SIGINT or SIGTERM. Ranks of a machine have a GPU
// each: see backend.SetLocalRank.
//
// If run returns an error, Main prints it with the rank and ends all ranks with exit
// code 1, unless all ranks return ErrStopped together: these leave in order.
//
// The environment variable MEZZO_DISTRIBUTION chooses the engine: the name of one that
// is registered; "none"; or "local:N" for N ranks as goroutines of this process, to try
// a program without a launcher. By default it is the first that is registered.
func Main(run func(ctx context.Context, world *Group) error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	exit := func(code int) { stop(); os.Exit(code) }
	fail := func(err error) {
		fmt.Fprintln(os.Stderr, err)
		exit(1)
	}
	name := os.Getenv("MEZZO_DISTRIBUTION")
	if n, ok := strings.CutPrefix(name, "local:"); ok {
		size, err := strconv.Atoi(n)
		if err != nil || size < 1 {
			fail(fmt.Errorf("distribution: MEZZO_DISTRIBUTION is %q, want local:N with a number of ranks", name))
		}
		engines.Lock()
		engines.many = size > 1
		engines.Unlock()
		if err := Local(ctx, size, run); err != nil {
			fail(err)
		}
		exit(0)
	}
	e, err := join(ctx, name)
	if err != nil {
		fail(err)
	}
	g := NewGroup(e)
	engines.Lock()
	engines.main = g
	engines.Unlock()
	backend.SetLocalRank(g.LocalRank())
	if e, ok := e.(Exiter); ok {
		exit = func(code int) { stop(); e.Exit(code); os.Exit(code) }
	}
	err = run(ctx, g)
	if err != nil {
		if g.Size() > 1 {
			err = fmt.Errorf("rank %d of %d: %w", g.Rank(), g.Size(), err)
		}
		fmt.Fprintln(os.Stderr, err)
		if !errors.Is(err, ErrStopped) {
			e.Abort(1, err)
			exit(1)
		}
	}
	if e := e.Leave(context.WithoutCancel(ctx)); e != nil {
		fmt.Fprintln(os.Stderr, e)
		exit(1)
	}
	if err != nil {
		exit(1)
	}
	exit(0)
}

// join returns the engine that name stands for, see Main.
func join(ctx context.Context, name string) (Engine, error) {
	engines.Lock()
	names := slices.Clone(engines.name)
	f := engines.join[name]
	engines.Unlock()
	switch {
	case name == "none":
		return alone{}, nil
	case name == "":
		if len(names) == 0 {
			return alone{}, nil
		}
		engines.Lock()
		f = engines.join[names[0]]
		engines.Unlock()
		e, err := f(ctx)
		if errors.Is(err, ErrUnavailable) {
			slog.Info("distribution: this process trains alone", "engine", names[0], "reason", err.Error())
			return alone{}, nil
		}
		if err != nil {
			return nil, fmt.Errorf("distribution: engine %s: %w", names[0], err)
		}
		return e, nil
	case f == nil:
		return nil, fmt.Errorf("distribution: MEZZO_DISTRIBUTION is %q; the engines of this program are %q, local:N and none", name, names)
	}
	e, err := f(ctx)
	if err != nil {
		return nil, fmt.Errorf("distribution: engine %s: %w", name, err)
	}
	return e, nil
}
