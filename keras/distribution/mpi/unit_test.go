package mpi

import (
	"context"
	"errors"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/mezzo-ml/mezzo/keras/distribution"
)

func TestFindLauncher(t *testing.T) {
	for _, c := range []struct {
		env   map[string]string
		name  string
		size  int
		first string // library that is tried
	}{
		{map[string]string{}, "no launcher", 0, "libmpi.so.40"},
		{map[string]string{"OMPI_COMM_WORLD_SIZE": "4", "PMIX_RANK": "0"}, "mpirun of Open MPI", 4, "libmpi.so.40"},
		{map[string]string{"PMI_SIZE": "3", "PMI_RANK": "2"}, "mpiexec of MPICH or Intel MPI, or srun --mpi=pmi2", 3, "libmpi.so.12"},
		{map[string]string{"PMIX_RANK": "1", "SLURM_STEP_NUM_TASKS": "8"}, "srun --mpi=pmix, or another launcher with PMIx", 8, "libmpi.so.40"},
		{map[string]string{"PMIX_RANK": "0"}, "srun --mpi=pmix, or another launcher with PMIx", 0, "libmpi.so.40"},
		{map[string]string{"SLURM_STEP_NUM_TASKS": "2"}, "srun", 2, "libmpi.so.40"},
		{map[string]string{"SLURM_STEP_NUM_TASKS": "1"}, "no launcher", 0, "libmpi.so.40"},
	} {
		l, found := findLauncher("linux", func(name string) string { return c.env[name] })
		if l.name != c.name || l.size != c.size || l.libraries[0] != c.first || found == (c.name == "no launcher") {
			t.Errorf("%v: got %+v, %v, want %+v", c.env, l, found, c)
		}
		if d, _ := findLauncher("darwin", func(name string) string { return c.env[name] }); !strings.HasSuffix(d.libraries[0], ".dylib") {
			t.Errorf("%v: macOS tries %v", c.env, d.libraries)
		}
	}
}

func TestPlacement(t *testing.T) {
	on := func(leader, possible int, cores ...int) peer {
		return peer{Host: "a", Leader: leader, Cores: cores, Possible: possible}
	}
	free := on(0, 8, 0, 1, 2, 3, 4, 5, 6, 7)
	for name, c := range map[string]struct {
		peers []peer
		procs []int // GOMAXPROCS before
		want  []int
		warns bool
	}{
		"one rank":              {[]peer{free}, []int{8}, []int{8}, false},
		"two share all":         {[]peer{free, free}, []int{8, 8}, []int{4, 4}, false},
		"three share all":       {[]peer{free, free, free}, []int{8, 8, 8}, []int{2, 2, 2}, false},
		"more ranks than cores": {[]peer{on(0, 1, 0), on(0, 1, 0)}, []int{1, 1}, []int{1, 1}, false},
		"bound to one core":     {[]peer{on(0, 8, 0), on(0, 8, 1)}, []int{1, 1}, []int{1, 1}, true},
		"bound to halves":       {[]peer{on(0, 8, 0, 1, 2, 3), on(0, 8, 4, 5, 6, 7)}, []int{4, 4}, []int{4, 4}, false},
		"overlap":               {[]peer{on(0, 4, 0, 1, 2), on(0, 4, 2, 3)}, []int{3, 2}, []int{2, 1}, false},
		"a quota of 2 for all":  {[]peer{free, free}, []int{2, 2}, []int{1, 1}, false},
		"two machines":          {[]peer{free, on(1, 4, 0, 1, 2, 3)}, []int{8, 4}, []int{8, 4}, false},
		"unknown":               {[]peer{{}, {}}, []int{4, 4}, []int{2, 2}, false},
	} {
		for rank, want := range c.want {
			got := placement(rank, c.peers, c.procs[rank])
			if got.procs != want || (got.warning != "") != c.warns {
				t.Errorf("%s: rank %d: got %+v, want %d processors, warning %v", name, rank, got, want, c.warns)
			}
		}
	}
	if got, want := placement(0, []peer{on(0, 64, 5)}, 1).warning, "the launcher has bound the ranks of a to 1 of its 64 cores, this one to 1; "; !strings.HasPrefix(got, want) {
		t.Errorf("got the warning %q, want %q", got, want)
	}
}

// TestYields: Open MPI yields unless a core is left for the thread that exchanges.
func TestYields(t *testing.T) {
	for _, c := range []struct {
		locals, procs, variable string
		own, possible           int
		want                    bool
	}{
		{"", "", "", 8, 8, false}, // another library
		{"2", "", "", 8, 8, true},
		{"2", "", "0", 8, 8, false}, // the user decides
		{"2", "4", "", 8, 8, true},
		{"2", "3", "", 8, 8, false},
		{"2", "4", "", 4, 8, true}, // bound to halves
		{"2", "3", "", 4, 8, false},
	} {
		env := map[string]string{"OMPI_COMM_WORLD_LOCAL_SIZE": c.locals, "GOMAXPROCS": c.procs, yieldVariable: c.variable}
		procs := c.own
		if c.procs != "" {
			procs, _ = strconv.Atoi(c.procs)
		}
		if got := yields(func(name string) string { return env[name] }, c.own, c.possible, procs); got != c.want {
			t.Errorf("%+v: got %v", c, got)
		}
	}
}

// TestCores: a process that is not bound may use all cores that it could use.
func TestCores(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("cores are known on Linux")
	}
	own, possible := cores()
	if len(own) == 0 || possible < len(own) || len(own) != runtime.NumCPU() {
		t.Errorf("got cores %v of %d, want %d", own, possible, runtime.NumCPU())
	}
}

func TestMessage(t *testing.T) {
	want := report{place{1<<40 + 3, allGather, 1 << 35}, place{7, barrier, 0}}
	b := message(answer, 1023, want)
	kind, rank, got := parse(b)
	if len(b) != messageSize || kind != answer || rank != 1023 || got != want {
		t.Errorf("got %d bytes, kind %d, rank %d, %+v", len(b), kind, rank, got)
	}
}

// TestDiagnose: which rank is to blame, and why.
func TestDiagnose(t *testing.T) {
	own := place{5, allToAll, 64}
	there := report{now: own, then: own}
	ahead := report{place{6, barrier, 0}, own}
	for _, c := range []struct {
		answers map[int]report
		rank    int // -1: none
		want    string
	}{
		{map[int]report{0: there, 2: there}, 3, "process 13 on d: it does not answer; rank 1 has waited 2s in all-to-all of 64 bytes (call 5): "},
		{map[int]report{2: there}, 0, "it does not answer (and so ranks [3]); "},
		{map[int]report{0: there, 2: {now: place{4, barrier, 0}}, 3: there}, 2, "it has not joined; its last call was barrier of 0 bytes (call 4); "},
		{map[int]report{0: {}, 2: there, 3: there}, 0, "its last call was no call yet; "},
		{map[int]report{0: there, 2: there, 3: {place{5, allGather, 64}, place{5, allGather, 64}}}, 3, "it has made another call, all-gather of 64 bytes (call 5); "},
		{map[int]report{0: there, 2: {place{9, barrier, 0}, place{5, allToAll, 65}}, 3: there}, 2, "it has made another call, all-to-all of 65 bytes (call 5); "},
		{map[int]report{0: there, 2: ahead, 3: {now: place{99, barrier, 0}}}, -1, "mpi: rank 1 has waited 2s in all-to-all of 64 bytes (call 5), which all ranks have joined: "},
	} {
		err := diagnose(own, own.String(), 1, []peer{{Host: "a", PID: 10}, {Host: "b", PID: 11}, {Host: "c", PID: 12}, {Host: "d", PID: 13}}, c.answers, 2*time.Second, context.DeadlineExceeded)
		var rank *distribution.RankError
		if got := errors.As(err, &rank); got != (c.rank >= 0) || got && rank.Rank != c.rank || !strings.Contains(err.Error(), c.want) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v: got %v, want rank %d and %q", c.answers, err, c.rank, c.want)
		}
	}
	var w *watcher
	if err := w.explain(barrier, time.Second, context.Canceled); !strings.Contains(err.Error(), "the rank that is missing is not known") || !errors.Is(err, context.Canceled) {
		t.Errorf("without a watcher: got %v", err)
	}
}

// TestAgree: ranks with other programs or libraries are refused, by name.
func TestAgree(t *testing.T) {
	a := peer{Host: "a", PID: 1, Executable: "x", Library: "Open MPI 4"}
	b := a
	b.Host, b.Library = "b", "Open MPI 5"
	if err := agree([]peer{a, a}); err != nil {
		t.Error(err)
	}
	err := agree([]peer{a, a, b})
	var rank *distribution.RankError
	if !errors.As(err, &rank) || rank.Rank != 2 || !strings.Contains(err.Error(), "process 1 on b has another MPI library than rank 0 on a: Open MPI 5, want Open MPI 4") {
		t.Errorf("got %v", err)
	}
}

func TestExecutable(t *testing.T) {
	if e := executable(); !strings.HasPrefix(e, "sha256 ") || e != executable() {
		t.Errorf("got %q", e)
	}
}
