package mpi

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime"
	"strconv"

	"github.com/mezzo-ml/mezzo/backend/driver"
	"github.com/mezzo-ml/mezzo/keras/distribution"
	"github.com/mezzo-ml/mezzo/keras/distribution/mpi/internal/libmpi"
)

// launcher is what has started this process, as the environment shows.
type launcher struct {
	name      string
	variable  string   // that shows it
	size      int      // number of ranks, or 0 if the environment does not say
	libraries []string // names of files, in the order in which they are tried
}

// libraries holds the names of files by binary interface.
var libraries = map[string][]string{
	"linux":  {"libmpi.so.40", "libmpi_abi.so.1", "libmpi.so.12", "libmpich.so.12"},
	"darwin": {"libmpi.40.dylib", "libmpi_abi.1.dylib", "libmpi.12.dylib"},
}

// findLauncher looks for the variables of launchers. env is os.Getenv.
func findLauncher(goos string, env func(string) string) (launcher, bool) {
	all := libraries[goos]
	if all == nil {
		all = libraries["linux"]
	}
	notOpenMPI := append(append([]string(nil), all[2:]...), all[1])
	for _, l := range []struct {
		launcher
		size string // a variable
	}{
		{launcher{"mpirun of Open MPI", "OMPI_COMM_WORLD_SIZE", 0, all[:2]}, "OMPI_COMM_WORLD_SIZE"},
		{launcher{"mpiexec of MPICH or Intel MPI, or srun --mpi=pmi2", "PMI_SIZE", 0, notOpenMPI}, "PMI_SIZE"},
		{launcher{"srun --mpi=pmix, or another launcher with PMIx", "PMIX_RANK", 0, all}, "SLURM_STEP_NUM_TASKS"},
		{launcher{"srun", "SLURM_STEP_NUM_TASKS", 0, all}, "SLURM_STEP_NUM_TASKS"},
	} {
		if env(l.variable) == "" {
			continue
		}
		l.launcher.size, _ = strconv.Atoi(env(l.size))
		if l.variable == "SLURM_STEP_NUM_TASKS" && l.launcher.size < 2 {
			continue // one process, which may be meant to be alone
		}
		return l.launcher, true
	}
	return launcher{name: "no launcher", libraries: all}, false
}

// peer is what ranks tell each other when they join.
type peer struct {
	Host       string
	PID        int
	Executable string // SHA-256 of the program
	Library    string // version
	Leader     int    // rank of the first process of the machine
	Cores      []int  // that the process may use, nil if unknown
	Possible   int    // cores that it could use without a binding
}

// granted is the highest level of threads that is used. Tests lower it.
var granted = libmpi.Multiple

// join connects this process to the others.
func join(ctx context.Context) (distribution.Engine, error) {
	from, launched := findLauncher(runtime.GOOS, os.Getenv)
	if !launched && os.Getenv("MEZZO_DISTRIBUTION") != "mpi" {
		return nil, fmt.Errorf("no launcher has started this process, such as mpirun: none of OMPI_COMM_WORLD_SIZE, PMI_SIZE, PMIX_RANK is set: %w", distribution.ErrUnavailable)
	}
	names := from.libraries
	if name := os.Getenv("MEZZO_MPI"); name != "" {
		names = []string{name}
	}
	e := &engine{maxCount: libmpi.MaxCount, first: newThread(), calls: make(chan call), results: make(chan error), left: make(chan struct{})}
	var level libmpi.Level
	own := peer{Host: "?", PID: os.Getpid()}
	own.Host, _ = os.Hostname()
	own.Executable = executable()
	var peers []peer
	handlers := saveHandlers()
	defer handlers.restore()
	err := e.first.within(ctx, func() error {
		own.Cores, own.Possible = cores()
		if yields(os.Getenv, len(own.Cores), own.Possible, runtime.GOMAXPROCS(0)) {
			os.Setenv(yieldVariable, "1") // before the library reads it
		}
		var err error
		if e.lib, err = libmpi.Open(names...); err != nil {
			return fmt.Errorf("%s has started this process, so it needs a library; MEZZO_MPI is the path of one: %w", from.name, err)
		}
		if level, err = e.lib.Init(); err != nil {
			return err
		}
		handlers.restore() // before anything else can fail
		level = min(level, granted)
		e.world = e.lib.World()
		if e.rank, err = e.lib.Rank(e.world); err != nil {
			return err
		}
		if e.size, err = e.lib.Size(e.world); err != nil {
			return err
		}
		own.Library = e.lib.Version()
		if from.size > 0 && e.size != from.size {
			return fmt.Errorf("%s has started %d ranks (%s), but %s (%s) has a world of %d: it belongs to another launcher; MEZZO_MPI is the path of the right one",
				from.name, from.size, from.variable, e.lib.Path, own.Library, e.size)
		}
		shared, err := e.lib.SplitShared(e.world)
		if err != nil {
			return err
		}
		if e.local, err = e.lib.Rank(shared); err != nil {
			return err
		}
		if e.locals, err = e.lib.Size(shared); err != nil {
			return err
		}
		leader := binary.LittleEndian.AppendUint64(nil, uint64(e.rank))
		if err := e.lib.Bcast(shared, leader, 0); err != nil {
			return err
		}
		own.Leader = int(binary.LittleEndian.Uint64(leader))
		if peers, err = e.introduce(own); err != nil {
			return err
		}
		if err := agree(peers); err != nil {
			return err
		}
		if level >= libmpi.Multiple {
			comm, err := e.lib.Dup(e.world)
			if err != nil {
				return err
			}
			e.watch, err = newWatcher(e.lib, comm, e.rank, peers)
			return err
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	place := placement(e.rank, peers, runtime.GOMAXPROCS(0))
	if os.Getenv("GOMAXPROCS") == "" && place.procs != runtime.GOMAXPROCS(0) {
		runtime.GOMAXPROCS(place.procs)
	}
	if e.size > 1 {
		driver.ReserveThread()
	}
	if place.warning != "" && e.local == 0 {
		slog.Warn("mpi: " + place.warning)
	}
	slog.Debug("mpi: joined", "rank", e.rank, "size", e.size, "local rank", e.local, "local size", e.locals, "path", e.lib.Path,
		"library", own.Library, "interface", e.lib.ABI(), "threads", level.String(), "GOMAXPROCS", driver.Threads())
	if level >= libmpi.Serialized {
		go e.serve()
	} else { // all calls are made by the thread of Init
		go e.first.do(e.serve)
	}
	return e, nil
}

// yieldVariable tells Open MPI to yield the core in the loops in which it waits, which it
// does by itself only if there are more ranks than cores.
const yieldVariable = "OMPI_MCA_mpi_yield_when_idle"

// yields reports whether the library should yield, because the thread that makes calls has
// no core of its own. This process may use own cores, without a binding the possible ones,
// and kernels use procs of them.
func yields(env func(string) string, own, possible, procs int) bool {
	locals, err := strconv.Atoi(env("OMPI_COMM_WORLD_LOCAL_SIZE"))
	if err != nil || env(yieldVariable) != "" {
		return false
	}
	if env("GOMAXPROCS") == "" {
		return true // ranks share all cores
	}
	if own < possible { // bound to cores of its own
		locals = 1
	}
	return locals*(procs+1) > own
}

// introduce returns what all ranks say of themselves.
func (e *engine) introduce(own peer) ([]peer, error) {
	text, err := json.Marshal(own)
	if err != nil {
		return nil, err
	}
	lengths := make([]byte, 8*e.size)
	if err := e.lib.Allgather(e.world, binary.LittleEndian.AppendUint64(nil, uint64(len(text))), lengths); err != nil {
		return nil, err
	}
	most := 0
	for r := range e.size {
		n := binary.LittleEndian.Uint64(lengths[8*r:])
		if n > 1<<20 {
			return nil, fmt.Errorf("rank %d introduces itself in %d bytes, want at most 1 MiB", r, n)
		}
		most = max(most, int(n))
	}
	all := make([]byte, most*e.size)
	if err := e.lib.Allgather(e.world, append(text, bytes.Repeat([]byte{' '}, most-len(text))...), all); err != nil {
		return nil, err
	}
	peers := make([]peer, e.size)
	for r := range peers {
		if err := json.Unmarshal(all[r*most:(r+1)*most], &peers[r]); err != nil {
			return nil, fmt.Errorf("rank %d introduces itself: %w", r, err)
		}
	}
	return peers, nil
}

// agree returns an error if ranks run other programs or other libraries than rank 0:
// their results could differ, and so could the calls that they make.
func agree(peers []peer) error {
	for r, p := range peers {
		for _, c := range []struct{ what, here, there string }{
			{"executable", peers[0].Executable, p.Executable}, {"MPI library", peers[0].Library, p.Library},
		} {
			if c.here != c.there {
				return &distribution.RankError{Rank: r, Err: fmt.Errorf("process %d on %s has another %s than rank 0 on %s: %s, want %s", p.PID, p.Host, c.what, peers[0].Host, c.there, c.here)}
			}
		}
	}
	return nil
}

// executable returns a hash of the program that runs.
func executable() string {
	path := "/proc/self/exe" // also where the file has been replaced since
	f, err := os.Open(path)
	if err != nil {
		if path, err = os.Executable(); err != nil {
			return "unknown"
		}
		if f, err = os.Open(path); err != nil {
			return "unknown"
		}
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "unknown"
	}
	return fmt.Sprintf("sha256 %x", h.Sum(nil)[:8])
}

// placed is how many processors a rank uses.
type placed struct {
	procs   int
	warning string
}

// placement shares the cores of a machine among its ranks. procs is GOMAXPROCS, which is
// the number of cores that the process may use, or less in a cgroup with a quota.
func placement(rank int, peers []peer, procs int) placed {
	own := peers[rank]
	users := map[int]int{} // ranks by core
	locals := 0
	for _, p := range peers {
		if p.Leader == own.Leader {
			locals++
			for _, c := range p.Cores {
				users[c]++
			}
		}
	}
	if own.Cores == nil {
		return placed{procs: max(1, procs/locals)}
	}
	share := 0.0
	for _, c := range own.Cores {
		share += 1 / float64(users[c])
	}
	p := placed{procs: max(1, int(share+1e-9))}
	if procs < len(own.Cores) { // a quota, which all ranks of the machine share
		p.procs = min(p.procs, max(1, procs/locals))
	}
	if len(users) < own.Possible {
		p.warning = fmt.Sprintf("the launcher has bound the ranks of %s to %d of its %d cores, this one to %d; start with --bind-to none, or I_MPI_PIN=off for Intel MPI",
			own.Host, len(users), own.Possible, len(own.Cores))
	}
	return p
}
