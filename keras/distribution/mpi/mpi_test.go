package mpi

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"runtime"
	"runtime/pprof"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/keras/distribution"
	"github.com/mezzo-ml/mezzo/keras/distribution/enginetest"
	"github.com/mezzo-ml/mezzo/keras/distribution/mpi/internal/libmpi"
	"github.com/mezzo-ml/mezzo/keras/distribution/mpi/internal/mpitest"
)

var (
	runs  = flag.Int("runs", 3, "runs of TestExitCode with each launcher")
	ranks = flag.Int("ranks", 4, "TestConformance has up to so many")
)

// roles holds what a rank does, by the value of MEZZO_TEST_MPI: tests start their own
// binary with mpirun.
var roles = map[string]func(ctx context.Context, g *distribution.Group) error{
	"conformance":   conformance,
	"funneled":      conformance,
	"timed":         timed,
	"step":          func(ctx context.Context, g *distribution.Group) error { return step(ctx, g, false) },
	"step-parallel": func(ctx context.Context, g *distribution.Group) error { return step(ctx, g, true) },
	"exit":          func(_ context.Context, g *distribution.Group) error { return g.Barrier() },
	"error": func(_ context.Context, g *distribution.Group) error {
		if g.Rank() == 1 {
			return errors.New("no data")
		}
		return g.Barrier()
	},
	"panic": func(_ context.Context, g *distribution.Group) error {
		if g.Rank() == 1 {
			panic("deliberate")
		}
		return g.Barrier()
	},
	"kill":  func(_ context.Context, g *distribution.Group) error { return signals(g, syscall.SIGKILL) },
	"stop":  func(_ context.Context, g *distribution.Group) error { return signals(g, syscall.SIGSTOP) },
	"sleep": func(_ context.Context, g *distribution.Group) error { return differs(g, func() error { select {} }) },
	"other": func(_ context.Context, g *distribution.Group) error {
		return differs(g, func() error { return g.BroadcastBytes(make([]byte, 8), 1) })
	},
	"leaves": func(_ context.Context, g *distribution.Group) error { return differs(g, func() error { return nil }) },
	"levels": func(ctx context.Context, g *distribution.Group) error {
		dp := &distribution.DataParallel{Group: g}
		f := tensor.Function(func(x *tensor.Tensor) *tensor.Tensor { return dp.AllReduce([]*tensor.Tensor{x})[0] })
		_, err := f.Call(ctx, tensor.New([]float32{1, 2}, 2))
		return err
	},
	"large": large,
	"greeting": func(_ context.Context, g *distribution.Group) error {
		fmt.Printf("%s: rank %d of %d\n", g.Engine().Name(), g.Rank(), g.Size())
		return nil
	},
}

func TestMain(m *testing.M) {
	role := os.Getenv("MEZZO_TEST_MPI")
	if role == "" {
		os.Exit(m.Run())
	}
	if role == "funneled" {
		granted = libmpi.Funneled
	}
	distribution.Main(roles[role])
}

// signals sends a signal to rank 1 in the middle of calls.
func signals(g *distribution.Group, s syscall.Signal) error {
	g.SetTimeout(2 * time.Second) // longer than a busy machine lets a process wait
	buffers := [2][]byte{make([]byte, 300*g.Size()), make([]byte, 300*g.Size())}
	for i := range 1000 {
		if i == 100 && g.Rank() == 1 {
			syscall.Kill(os.Getpid(), s)
		}
		if err := g.AllToAll(buffers[0], buffers[1]); err != nil {
			return err
		}
	}
	return errors.New("all calls have succeeded")
}

// differs has rank 1 do something else than the others.
func differs(g *distribution.Group, f func() error) error {
	g.SetTimeout(2 * time.Second) // longer than a busy machine lets a process wait
	if err := g.Barrier(); err != nil {
		return err
	}
	if g.Rank() == 1 {
		g.SetTimeout(time.Minute)
		return f()
	}
	return g.AllGather(make([]byte, 1), make([]byte, g.Size()))
}

// conformance is the suite of all engines, and what is MPI's own: pieces, one sum on all
// ranks, no allocation, and a Go runtime that works as before.
func conformance(ctx context.Context, g *distribution.Group) error {
	e := g.Engine().(*engine)
	if want, err := strconv.Atoi(os.Getenv("MEZZO_TEST_SIZE")); err != nil || g.Size() != want || g.LocalSize() != want || g.LocalRank() != g.Rank() {
		return fmt.Errorf("Size %d, LocalSize %d, Rank %d, LocalRank %d, want %d ranks of one machine", g.Size(), g.LocalSize(), g.Rank(), g.LocalRank(), want)
	}
	counts := []int{30_000, libmpi.MaxCount}
	if e.size > 2 && e.lib.ABI() == "mpich" { // which does not yield if there are more ranks than cores
		counts = counts[:1]
	}
	for _, e.maxCount = range counts {
		if err := enginetest.Conformance(ctx, e); err != nil {
			return fmt.Errorf("pieces of %d: %w", e.maxCount, err)
		}
	}
	x := make([]float32, 10_007)
	for i := range x {
		x[i] = float32(i%101) / float32(3+e.rank)
	}
	if err := e.AllReduce(ctx, x); err != nil {
		return err
	}
	all, err := g.Gather(floats(x))
	if err != nil {
		return err
	}
	for r := range all {
		if !bytes.Equal(all[r], all[0]) {
			return fmt.Errorf("AllReduce: rank %d has another sum than rank 0", r)
		}
	}
	send, recv := make([]byte, 64*e.size), make([]byte, 64*e.size)
	if n := testing.AllocsPerRun(100, func() { err = errors.Join(err, e.AllToAll(ctx, send, recv), e.AllGather(ctx, send[:64], recv)) }); n != 0 || err != nil {
		return fmt.Errorf("%v allocations of AllToAll and AllGather, error %v, want 0", n, err)
	}
	if err := lives(); err != nil {
		return err
	}
	fmt.Printf("rank %d of %d conforms: %s, %s\n", e.rank, e.size, e.lib.ABI(), e.lib.Version())
	return nil
}

// large gathers and broadcasts more than 2 GiB of a rank: more than a count of MPI's
// functions can say.
func large(ctx context.Context, g *distribution.Group) error {
	const size = 1<<31 + 4096 + 1
	// Every mebibyte begins with the rank and its number.
	words := func(rank, at int) []byte {
		return binary.LittleEndian.AppendUint64(nil, uint64(rank)<<32|uint64(at))
	}
	whole := func(b []byte, rank int) error {
		for at := 0; at+8 <= len(b); at += 1 << 20 {
			if !bytes.Equal(b[at:at+8], words(rank, at)) || at+9 < len(b) && b[at+8] != 0 {
				return fmt.Errorf("rank %d has other bytes of rank %d from %d on", g.Rank(), rank, at)
			}
		}
		if b[len(b)-1] != byte(rank+1) {
			return fmt.Errorf("rank %d has the last byte %d of rank %d", g.Rank(), b[len(b)-1], rank)
		}
		return nil
	}
	send := make([]byte, size)
	for at := 0; at+8 <= size; at += 1 << 20 {
		copy(send[at:], words(g.Rank(), at))
	}
	send[size-1] = byte(g.Rank() + 1)
	all := make([]byte, g.Size()*size)
	if err := g.AllGather(send, all); err != nil {
		return err
	}
	for r := range g.Size() {
		if err := whole(all[r*size:(r+1)*size], r); err != nil {
			return fmt.Errorf("AllGather: %w", err)
		}
	}
	if err := g.BroadcastBytes(send, 1); err != nil {
		return err
	}
	if err := whole(send, 1); err != nil {
		return fmt.Errorf("Broadcast: %w", err)
	}
	fmt.Printf("rank %d has all\n", g.Rank())
	return nil
}

func floats(x []float32) []byte {
	var b bytes.Buffer
	for _, v := range x {
		fmt.Fprintf(&b, "%x ", v)
	}
	return b.Bytes()
}

// lives returns an error unless nil pointers are panics that can be recovered, signals
// arrive, and a profile can be taken.
func lives() error {
	recovered := func() (p any) {
		defer func() { p = recover() }()
		var nothing *int
		*nothing = 1
		return nil
	}()
	if err, ok := recovered.(error); !ok || !strings.Contains(err.Error(), "nil pointer") {
		return fmt.Errorf("a nil pointer is the panic %v", recovered)
	}
	for _, s := range []os.Signal{syscall.SIGUSR1, syscall.SIGHUP} {
		c := make(chan os.Signal, 1)
		signal.Notify(c, s)
		syscall.Kill(os.Getpid(), s.(syscall.Signal))
		select {
		case <-c:
		case <-time.After(10 * time.Second):
			return fmt.Errorf("signal %v has not come", s)
		}
		signal.Stop(c)
	}
	var profile bytes.Buffer
	if err := pprof.StartCPUProfile(&profile); err != nil {
		return err
	}
	for began := time.Now(); time.Since(began) < 30*time.Millisecond; {
	}
	pprof.StopCPUProfile()
	if profile.Len() == 0 {
		return errors.New("the profile is empty")
	}
	return nil
}

// launch starts ranks of this binary in a role. env is added to the environment.
func launch(t testing.TB, m mpitest.Launcher, role string, size int, env ...string) mpitest.Outcome {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return m.Run(t, append(env, "MEZZO_TEST_MPI="+role, "MEZZO_TEST_SIZE="+strconv.Itoa(size)), "-n", strconv.Itoa(size), self)
}

func TestConformance(t *testing.T) {
	mpitest.Each(t, func(t *testing.T, m mpitest.Launcher) {
		most := *ranks
		if m.Name != "openmpi" && runtime.NumCPU() < most && !mpitest.Every() {
			most = 3 // MPICH does not yield if there are more ranks than cores: 4 take 9 s
		}
		for size := 1; size <= most; size++ {
			o := launch(t, m, "conformance", size)
			if n := strings.Count(o.Text, fmt.Sprintf("of %d conforms: %s,", size, m.Name)); n != size || o.Code != 0 {
				t.Errorf("%d ranks: %d conform, exit code %d:\n%s", size, n, o.Code, o.Text)
			}
		}
		// A library that may only be called by the thread that has initialized it.
		if o := launch(t, m, "funneled", 2); strings.Count(o.Text, "conforms") != 2 || o.Code != 0 {
			t.Errorf("MPI_THREAD_FUNNELED: exit code %d:\n%s", o.Code, o.Text)
		}
	})
}

// TestLarge needs up to 20 GiB of memory. An all-to-all of such parts would need 30: it goes
// through the same pieces, which TestConformance makes small.
func TestLarge(t *testing.T) {
	if !mpitest.Every() {
		t.Skip("two ranks with up to 10 GiB each: with -every")
	}
	mpitest.Each(t, func(t *testing.T, m mpitest.Launcher) {
		if o := launch(t, m, "large", 2); o.Code != 0 || strings.Count(o.Text, "has all") != 2 {
			t.Errorf("exit code %d:\n%s", o.Code, o.Text)
		}
	})
}

// TestExitCode: launchers return 0 when all ranks have succeeded. MPICH does not when
// processes end without the C library's exit.
func TestExitCode(t *testing.T) {
	mpitest.Each(t, func(t *testing.T, m mpitest.Launcher) {
		for i := range *runs {
			if o := launch(t, m, "exit", 2+2*(i%2)); o.Code != 0 {
				t.Errorf("run %d: exit code %d:\n%s", i, o.Code, o.Text)
			}
		}
	})
}

// TestFailures: whatever happens to rank 1, all ranks end, the launcher's exit code is
// not 0, and the output says what it was.
func TestFailures(t *testing.T) {
	for role, want := range map[string]string{
		"error":  `rank 1 of 3: no data`,
		"panic":  `panic: deliberate`,
		"kill":   `(?i)signal:? 9|exit code: 9`,
		"stop":   `rank 1: process \d+ on \S+: it does not answer; rank [02] has waited \S+ in all-to-all of 900 bytes`,
		"sleep":  `rank 1: process \d+ on \S+: it has not joined; its last call was barrier of 0 bytes \(call 1\); rank [02] has waited \S+ in all-gather of 1 bytes \(call 2\)`,
		"other":  `rank 1: process \d+ on \S+: it has made another call, broadcast of 8 bytes \(call 2\); rank [02] has waited \S+ in all-gather of 1 bytes`,
		"leaves": `rank 1: process \d+ on \S+: it has made another call, barrier of 0 bytes \(call 2\); rank [02] has waited \S+ in all-gather of 1 bytes`,
	} {
		t.Run(role, func(t *testing.T) {
			mpitest.Each(t, func(t *testing.T, m mpitest.Launcher) {
				t.Parallel() // they wait most of the time
				o := launch(t, m, role, 3)
				if o.Code == 0 || !regexp.MustCompile(want).MatchString(o.Text) {
					t.Errorf("exit code %d, want %s in\n%s", o.Code, want, o.Text)
				}
			})
		})
	}
}

// TestOtherProgram: ranks with another executable, such as an old one on one machine,
// are refused.
func TestOtherProgram(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	other := t.TempDir() + "/other"
	if err := os.WriteFile(other, append(program, 0), 0o700); err != nil {
		t.Fatal(err)
	}
	mpitest.Each(t, func(t *testing.T, m mpitest.Launcher) {
		o := m.Run(t, []string{"MEZZO_TEST_MPI=greeting"}, "-n", "1", self, ":", "-n", "1", other)
		want := regexp.MustCompile(`rank 1: process \d+ on \S+ has another executable than rank 0 on \S+: sha256 \w{16}, want sha256 \w{16}`)
		if o.Code == 0 || !want.MatchString(o.Text) || strings.Contains(o.Text, "mpi: rank") {
			t.Errorf("exit code %d, want %v in\n%s", o.Code, want, o.Text)
		}
	})
}

// TestOtherLevel: ranks that compute with other kernels, as on a machine with an older
// processor, are refused before they exchange anything.
func TestOtherLevel(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	mpitest.Each(t, func(t *testing.T, m mpitest.Launcher) {
		o := m.Run(t, []string{"MEZZO_TEST_MPI=levels"}, "-n", "1", self, ":", "-n", "1", "env", "MEZZO_CPU=portable", self)
		want := regexp.MustCompile(`rank 1: its program computes on cpu, \w+ with portable Go; that of rank 0 computes on cpu, \w+ with .*: weights would differ from rank to rank; set MEZZO_CPU`)
		if o.Code == 0 || !want.MatchString(o.Text) {
			t.Errorf("exit code %d, want %v in\n%s", o.Code, want, o.Text)
		}
	})
}

// TestOtherLauncher: a library comes up as a world of one under the launcher of another
// MPI.
func TestOtherLauncher(t *testing.T) {
	all := mpitest.Launchers(t)
	if len(all) < 2 {
		t.Skip("there is only one launcher")
	}
	for i, library := range []string{"libmpich.so.12", "libmpi.so.40"} {
		o := launch(t, all[i], "greeting", 2, "MEZZO_MPI="+library)
		want := fmt.Sprintf("has started 2 ranks (%s), but %s", []string{"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"}[i], library)
		if o.Code == 0 || !strings.Contains(o.Text, want) || strings.Contains(o.Text, "mpi: rank") {
			t.Errorf("%s: exit code %d, want %q in\n%s", all[i].Name, o.Code, want, o.Text)
		}
	}
}

// TestNoLibrary: without a library ranks of a launcher fail, and a process without a
// launcher is alone.
func TestNoLibrary(t *testing.T) {
	mpitest.Each(t, func(t *testing.T, m mpitest.Launcher) {
		o := launch(t, m, "greeting", 2, "MEZZO_MPI=libmpi-missing.so")
		if o.Code == 0 || !strings.Contains(o.Text, "libmpi-missing.so: cannot open shared object file") || strings.Contains(o.Text, "mpi: rank") {
			t.Errorf("exit code %d:\n%s", o.Code, o.Text)
		}
		if o := launch(t, m, "greeting", 2, "MEZZO_MPI=libc.so.6"); o.Code == 0 || !strings.Contains(o.Text, "libc.so.6 has an unknown binary interface") {
			t.Errorf("exit code %d:\n%s", o.Code, o.Text)
		}
	})
}

// TestAlone: a program that no launcher has started trains alone; with
// MEZZO_DISTRIBUTION=mpi it needs a library.
func TestAlone(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if o := mpitest.Run(t, []string{"MEZZO_TEST_MPI=greeting"}, self); o.Code != 0 || !strings.Contains(o.Text, "none: rank 0 of 1") || !strings.Contains(o.Text, "no launcher has started this process") {
		t.Errorf("exit code %d:\n%s", o.Code, o.Text)
	}
	o := mpitest.Run(t, []string{"MEZZO_TEST_MPI=greeting", "MEZZO_DISTRIBUTION=mpi", "MEZZO_MPI=libmpi-missing.so"}, self)
	if o.Code != 1 || !strings.Contains(o.Text, "no MPI library: libmpi-missing.so") {
		t.Errorf("exit code %d:\n%s", o.Code, o.Text)
	}
	for _, m := range mpitest.Launchers(t) {
		library := map[string]string{"openmpi": "libmpi.so.40", "mpich": "libmpich.so.12"}[m.Name]
		o := mpitest.Run(t, append([]string{"MEZZO_TEST_MPI=greeting", "MEZZO_DISTRIBUTION=mpi", "MEZZO_MPI=" + library}, m.Env...), self)
		if o.Code != 0 || !strings.Contains(o.Text, "mpi: rank 0 of 1") {
			t.Errorf("%s: exit code %d:\n%s", m.Name, o.Code, o.Text)
		}
	}
}
