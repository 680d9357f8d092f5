//go:build unix

package checkpoint

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/mezzo-ml/mezzo/keras"
)

// The child process of TestKill: a training that saves after every step and
// prints a line for each. With a number of calls it kills itself in one of
// them to the file system, in the middle of a write if it is one.
func TestMain(m *testing.M) {
	dir := os.Getenv("MEZZO_TEST_TRAIN_IN")
	if dir == "" {
		os.Exit(m.Run())
	}
	calls, _ := strconv.Atoi(os.Getenv("MEZZO_TEST_DIE_IN_CALL"))
	if limit, err := strconv.Atoi(os.Getenv("MEZZO_TEST_FILE_LIMIT")); err == nil {
		limitFiles(limit)
	}
	d := &Directory{Path: dir, files: &faulty{fail: calls, die: func() { syscall.Kill(os.Getpid(), syscall.SIGKILL); select {} }}}
	tell := keras.Callback{BatchEnd: func(_ context.Context, r *keras.Run) error {
		fmt.Println("step", r.Epoch, r.Step)
		time.Sleep(time.Millisecond) // so that the parent can strike
		return nil
	}}
	t := &child{}
	r, err := settings()[killed].run(t, d, 1, tell)
	if err != nil || t.failed != "" {
		fmt.Println("failed", err, t.failed)
		os.Exit(1)
	}
	fmt.Println("done", r.sum, r.history)
}

// limitFiles makes writes beyond so many bytes of a file fail, as on a disk that
// is full.
func limitFiles(bytes int) {
	signal.Ignore(syscall.SIGXFSZ) // so that write returns EFBIG
	var r syscall.Rlimit
	err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &r)
	if err == nil {
		r.Cur = uint64(bytes)
		err = syscall.Setrlimit(syscall.RLIMIT_FSIZE, &r)
	}
	if err != nil {
		panic(err)
	}
}

const killed = "mixed_float16, loss scale"

// child is the testing.TB of the child process.
type child struct {
	testing.TB
	failed string
}

func (*child) Helper() {}
func (c *child) Fatal(args ...any) {
	fmt.Println(append([]any{"failed"}, args...)...)
	os.Exit(1)
}

// TestKill: a process that is killed with SIGKILL at any moment, also while it
// writes, and started again loses at most the steps since the last checkpoint,
// and makes the same bits.
func TestKill(t *testing.T) {
	want, err := settings()[killed].run(t, nil, 0)
	check(t, err)
	random := rand.New(rand.NewPCG(1, 2))
	dir := t.TempDir()
	lives, best := 0, -1
	live := func(calls, lines int) (done string) {
		lives++
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), "MEZZO_TEST_TRAIN_IN="+dir, fmt.Sprintf("MEZZO_TEST_DIE_IN_CALL=%d", calls))
		out, err := cmd.StdoutPipe()
		check(t, err)
		check(t, cmd.Start())
		first := true
		for s := bufio.NewScanner(out); s.Scan(); {
			if text, ok := bytes.CutPrefix(s.Bytes(), []byte("done ")); ok {
				done = string(text)
			} else if bytes.HasPrefix(s.Bytes(), []byte("failed")) {
				t.Fatal(s.Text())
			}
			var epoch, step int
			if n, _ := fmt.Sscanf(s.Text(), "step %d %d", &epoch, &step); n == 2 {
				at := 4*epoch + step - 1 // 4 steps of an epoch, counted from 0
				// The step that was under way when the process died is the
				// only one that is done again.
				if first && at != best && at != best+1 {
					t.Fatalf("life %d begins with step %d after step %d", lives, at, best)
				}
				first, best = false, at
				if lines--; lines == 0 {
					time.Sleep(time.Duration(random.IntN(2000)) * time.Microsecond)
					cmd.Process.Kill()
				}
			}
		}
		cmd.Wait() // it was killed, or is done
		return done
	}
	var done string
	for done == "" && lives < 60 {
		if lives%2 == 0 {
			done = live(0, 1+random.IntN(2))
		} else {
			done = live(1+random.IntN(60), 0)
		}
	}
	if got := fmt.Sprintln(done); got != fmt.Sprintln(want.sum, want.history) {
		t.Errorf("after %d lives: got\n%s, want\n%v", lives, got, want)
	}
	if lives < 5 {
		t.Errorf("it was killed only %d times", lives-1)
	}
	t.Logf("%d lives", lives)
}

// TestFileLimit: a training whose checkpoints grow beyond what the system lets
// it write fails with an error that says so, leaves whole files alone, and goes
// on from them, to the same bits, where there is room.
func TestFileLimit(t *testing.T) {
	want, err := settings()[killed].run(t, nil, 0)
	check(t, err)
	run := func(dir string, limit int) string {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), "MEZZO_TEST_TRAIN_IN="+dir)
		if limit > 0 {
			cmd.Env = append(cmd.Env, fmt.Sprintf("MEZZO_TEST_FILE_LIMIT=%d", limit))
		}
		out, _ := cmd.Output() // it fails
		lines := strings.Split(strings.TrimSpace(string(out)), "\n")
		return lines[len(lines)-1]
	}
	// The history makes the last file the longest.
	whole := t.TempDir()
	if got := run(whole, 0); got != fmt.Sprint("done ", want.sum, " ", want.history) {
		t.Fatalf("got %s", got)
	}
	files, err := (&Directory{Path: whole}).Files()
	check(t, err)
	last, err := os.Stat(files[len(files)-1])
	check(t, err)
	for _, limit := range []int{int(last.Size()) - 1, int(last.Size()) * 3 / 4, 100} {
		dir := t.TempDir()
		got := run(dir, limit)
		if !strings.HasPrefix(got, "failed Fit: checkpoint: "+dir) || !strings.Contains(got, "cannot save: file too large") {
			t.Errorf("limit %d: got %s", limit, got)
		}
		left, err := filepath.Glob(filepath.Join(dir, "*"))
		check(t, err)
		for _, path := range left {
			if _, err := Load(path); err != nil {
				t.Errorf("limit %d: %v", limit, err)
			}
		}
		if limit == int(last.Size())-1 && len(left) != 2 || limit == 100 && len(left) != 0 {
			t.Errorf("limit %d: got the files %v", limit, left)
		}
		if got := run(dir, 0); got != fmt.Sprint("done ", want.sum, " ", want.history) {
			t.Errorf("limit %d: resumed, got\n%s, want\n%v", limit, got, want)
		}
	}
}
