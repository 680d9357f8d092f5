package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/distribution"
	"github.com/mezzo-ml/mezzo/keras/distribution/mpi/internal/mpitest"
	"github.com/mezzo-ml/mezzo/optimizers"
)

var kills = flag.Int("kills", 2, "how often TestKill kills a rank, with each launcher")

// TestMain is main if MEZZO_TEST_MPI is set: tests start their own binary with mpirun.
// Its value is a role, or "signal,rank,ms": a rank sends itself a signal after a time.
func TestMain(m *testing.M) {
	role := os.Getenv("MEZZO_TEST_MPI")
	switch parts := strings.Split(role, ","); {
	case role == "":
		os.Exit(m.Run())
	case role == "infinite" || role == "label":
		flag.Parse()
		distribution.Main(func(ctx context.Context, g *distribution.Group) error { return poisoned(ctx, g, role) })
	case len(parts) == 3:
		signal, _ := strconv.Atoi(parts[0])
		rank, _ := strconv.Atoi(parts[1])
		after, _ := strconv.Atoi(parts[2])
		flag.Parse()
		distribution.Main(func(ctx context.Context, g *distribution.Group) error {
			if g.Rank() == rank {
				time.AfterFunc(time.Duration(after)*time.Millisecond, func() { syscall.Kill(os.Getpid(), syscall.Signal(signal)) })
			}
			return run(ctx, g)
		})
	default:
		main()
	}
}

// poisoned trains with an infinite pixel in the last row of the second batch, or with a
// label that is out of range there: only the last rank sees it.
func poisoned(ctx context.Context, g *distribution.Group, role string) error {
	model, err := newModel(g)
	if err != nil {
		return err
	}
	const rows, bad = 64, 31
	x, y := make([]float32, rows*784), make([]int32, rows)
	for i := range x {
		x[i] = float32(i%13) / 13
	}
	for i := range y {
		y[i] = int32(i % 10)
	}
	if role == "infinite" {
		x[bad*784] = float32(math.Inf(1))
	} else {
		y[bad] = 99
	}
	_, err = model.Fit(ctx, keras.FromTensors(tensor.New(x, rows, 784), tensor.New(y, rows), nil), keras.FitConfig{BatchSize: 16, Output: io.Discard})
	if err != nil {
		return err
	}
	r, err := model.Optimizer().(*optimizers.LossScaleOptimizer).Result()
	if err != nil {
		return err
	}
	fmt.Printf("rank %d: skipped %d, scale %v\n", g.Rank(), r.SkippedSteps, r.LossScale)
	return g.Same(model, model.Optimizer())
}

// small are the arguments of a training of 10 steps, with short last batches.
var small = []string{"-samples", "400", "-batch", "90", "-epochs", "2"}

// start trains with a launcher.
func start(t *testing.T, m mpitest.Launcher, size int, role string, args ...string) mpitest.Outcome {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return m.Run(t, []string{"MEZZO_TEST_MPI=" + role}, append(append([]string{"-n", strconv.Itoa(size), self}, small...), args...)...)
}

var last = regexp.MustCompile(`processes: (\d), test accuracy: 0\.\d+, weights and optimizer: (\w{16})`)

// hash returns the hash that a training has printed.
func hash(t *testing.T, o mpitest.Outcome, size int) string {
	t.Helper()
	found := last.FindStringSubmatch(o.Text)
	if o.Code != 0 || found == nil || found[1] != strconv.Itoa(size) || strings.Count(o.Text, "Epoch 2/2") > 1 {
		t.Fatalf("exit code %d, want a hash of %d processes in\n%s", o.Code, size, o.Text)
	}
	return found[2]
}

// alone trains without a launcher, once for the same arguments.
func alone(t *testing.T, args ...string) string {
	t.Helper()
	key := strings.Join(args, " ")
	if hashes[key] == "" {
		hashes[key] = trainAlone(t, args...)
	}
	return hashes[key]
}

// hashes are those of trainAlone by its arguments.
var hashes = map[string]string{}

func trainAlone(t *testing.T, args ...string) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return hash(t, mpitest.Run(t, []string{"MEZZO_TEST_MPI=main", "MEZZO_DISTRIBUTION=none"}, self, append(small[:len(small):len(small)], args...)...), 1)
}

// TestBits: the same weights, slots and counters, to the bit, on 1, 2 and 4 processes of
// every MPI, as without MPI. Without -every each MPI has another number of processes for
// each policy: TestDistributedBits of keras/distribution has all numbers.
func TestBits(t *testing.T) {
	sizes := []int{1, 2, 4}
	for i, policy := range []string{"float32", "mixed_float16", "mixed_bfloat16"} {
		want := alone(t, "-policy", policy)
		mpitest.Each(t, func(t *testing.T, m mpitest.Launcher) {
			at := i
			if m.Name != "openmpi" {
				at++
			}
			for k, size := range sizes {
				if !mpitest.Every() && k != at%len(sizes) {
					continue
				}
				if got := hash(t, start(t, m, size, "main", "-policy", policy), size); got != want {
					t.Errorf("%s on %d processes: %s, want %s", policy, size, got, want)
				}
			}
		})
	}
}

// TestKill: a training whose ranks are killed at random moments, and that goes on with
// other numbers of processes from the last checkpoint, ends with the bits of one that is
// not interrupted.
func TestKill(t *testing.T) {
	want := alone(t, "-policy", "mixed_bfloat16") // the default
	mpitest.Each(t, func(t *testing.T, m mpitest.Launcher) {
		seed := uint64(time.Now().UnixNano())
		random := rand.New(rand.NewPCG(seed, 0))
		killed := 0
		for killed < *kills {
			directory := t.TempDir()
			args := []string{"-checkpoint", directory, "-save", "1"}
			for range 5 {
				if killed == *kills {
					break
				}
				size := 2 + random.IntN(3)
				role := fmt.Sprintf("%d,%d,%d", syscall.SIGKILL, random.IntN(size), random.IntN(300))
				if o := start(t, m, size, role, args...); o.Code == 0 {
					break // it was done before
				}
				killed++
			}
			size := []int{1, 2, 4}[random.IntN(3)]
			if got := hash(t, start(t, m, size, "main", args...), size); got != want {
				t.Errorf("seed %d, after %d kills, on %d processes: %s, want %s", seed, killed, size, got, want)
			}
		}
	})
}

// TestTerminate: if one rank is told to end, all save and end after the same step, and
// the training goes on with the same bits.
func TestTerminate(t *testing.T) {
	want := alone(t, "-policy", "mixed_bfloat16")
	mpitest.Each(t, func(t *testing.T, m mpitest.Launcher) {
		args := []string{"-checkpoint", t.TempDir()}
		if o := start(t, m, 2, fmt.Sprintf("%d,1,0", syscall.SIGTERM), args...); o.Code == 0 || !strings.Contains(o.Text, "stopped together") {
			t.Errorf("exit code %d:\n%s", o.Code, o.Text)
		}
		// On one: TestKill goes on with 1, 2 or 4.
		if got := hash(t, start(t, m, 1, "main", args...), 1); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	})
}

// TestTerminateLauncher: if the launcher is told to end, all save and end after the same
// step, and the training goes on with the same bits. Open MPI prints nothing more then and
// returns 1, MPICH returns 0.
func TestTerminateLauncher(t *testing.T) {
	const epochs = "100" // many more than are over when the signal comes
	want := alone(t, "-epochs", epochs)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	mpitest.Each(t, func(t *testing.T, m mpitest.Launcher) {
		directory := t.TempDir()
		args := []string{"-checkpoint", directory, "-epochs", epochs}
		o := m.RunUntil(t, "Epoch 2/"+epochs, syscall.SIGTERM, []string{"MEZZO_TEST_MPI=main"}, append(append([]string{"-n", "2", self}, small...), args...)...)
		if last.MatchString(o.Text) {
			t.Fatalf("the training was not interrupted:\n%s", o.Text)
		}
		if saved, err := filepath.Glob(filepath.Join(directory, "*.ckpt")); len(saved) == 0 || err != nil {
			t.Errorf("checkpoints %v, error %v; exit code %d:\n%s", saved, err, o.Code, o.Text)
		}
		o = start(t, m, 1, "main", args...) // as in TestTerminate
		if !strings.Contains(o.Text, "Epoch "+epochs) || strings.Contains(o.Text, "Epoch 1/") {
			t.Errorf("the training began again, or did not end:\n%s", o.Text)
		}
		if got := hash(t, o, 1); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	})
}

// TestPoison: an infinity on one rank has all skip the step and halve the scale; a label
// out of range on one rank ends all, with its layer.
func TestPoison(t *testing.T) {
	mpitest.Each(t, func(t *testing.T, m mpitest.Launcher) {
		o := start(t, m, 2, "infinite", "-policy", "mixed_float16")
		if n := strings.Count(o.Text, ": skipped 1, scale 16384"); o.Code != 0 || n != 2 {
			t.Errorf("exit code %d, %d of 2 ranks have skipped 1 step:\n%s", o.Code, n, o.Text)
		}
		o = start(t, m, 2, "label", "-policy", "mixed_float16")
		if want := regexp.MustCompile(`rank 1\b.*99`); o.Code == 0 || !want.MatchString(o.Text) {
			t.Errorf("exit code %d, want %v in\n%s", o.Code, want, o.Text)
		}
	})
}

// TestPage: docs/distributed.md shows what the program prints. Digits are those of AVX2.
func TestPage(t *testing.T) {
	page, err := os.ReadFile("../../../../../docs/distributed.md")
	if err != nil {
		t.Fatal(err)
	}
	want := regexp.MustCompile(`(?m)^processes: 2, test accuracy: 0\.\d{4}, weights and optimizer: `).FindString(string(page))
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	o := mpitest.Launchers(t)[0].Run(t, []string{"MEZZO_TEST_MPI=main", "MEZZO_CPU=avx2"}, "-n", "2", self)
	if want == "" || o.Code != 0 || !strings.Contains(o.Text, want) {
		t.Errorf("exit code %d, the page has %q:\n%s", o.Code, want, o.Text)
	}
}
