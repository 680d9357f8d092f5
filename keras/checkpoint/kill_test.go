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
	"strconv"
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
