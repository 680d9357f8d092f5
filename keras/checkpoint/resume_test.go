package checkpoint

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/mezzo-ml/mezzo/keras"
)

var errKilled = errors.New("killed")

// killAfter is a callback that ends Fit after so many of its steps, as if the
// process had died there.
func killAfter(steps int) keras.Callback {
	return keras.Callback{BatchEnd: func(context.Context, *keras.Run) error {
		if steps--; steps <= 0 {
			return errKilled
		}
		return nil
	}}
}

// TestResume: training that is killed after any step, and again so many steps
// later until it is done, makes the same bits as one that is not.
func TestResume(t *testing.T) {
	for name, s := range settings() {
		t.Run(name, func(t *testing.T) {
			want, err := s.run(t, nil, 0)
			check(t, err)
			if strings.HasPrefix(name, "mixed_float16") && !strings.Contains(want.history, `"skipped_steps","Value":"8"`) {
				t.Errorf("got history %s, want 8 of 12 steps skipped", want.history)
			}
			d := &Directory{Path: t.TempDir()}
			saved, err := s.run(t, d, 2)
			check(t, err)
			if saved != want {
				t.Fatalf("saving changes the training: got\n%v, want\n%v", saved, want)
			}
			// Done: nothing is left to train, and the end is made again.
			if again, err := s.run(t, d, 2, killAfter(1)); err != nil || again != want {
				t.Errorf("resumed after the end: got %v, %v, want %v", again, err, want)
			}
			intervals, kills := []int{0, 1, 3}, []int{1, 4, 7, 10, 13}
			if testing.Short() { // as under the race detector
				intervals, kills = []int{1}, []int{4}
			}
			for i, every := range intervals {
				for j, life := range kills {
					if (i+j)%2 != 0 {
						continue // each of both with half of the others
					}
					d := &Directory{Path: t.TempDir(), Keep: 1}
					lives := 1
					got, err := s.run(t, d, every, killAfter(life))
					for ; errors.Is(err, errKilled) && lives < 30; lives++ {
						// At least an epoch, so that every life gets on.
						got, err = s.run(t, d, every, killAfter(max(life, 6)))
					}
					check(t, err)
					if got != want {
						t.Fatalf("saved every %d steps, killed every %d, %d lives: got\n%v, want\n%v", every, life, lives, got, want)
					}
				}
			}
		})
	}
}

// TestResumeRefused: a state that does not fit the program is an error, and
// changes nothing.
func TestResumeRefused(t *testing.T) {
	s := settings()["mixed_float16, loss scale"]
	d := &Directory{Path: t.TempDir()}
	if _, err := s.run(t, d, 2, killAfter(5)); !errors.Is(err, errKilled) {
		t.Fatal(err)
	}
	try := func(s setting, want string) {
		t.Helper()
		_, err := s.run(t, d, 0)
		files, e := d.Files()
		check(t, e)
		wantError(t, err, "Fit: resuming from "+files[len(files)-1]+": "+want)
	}
	other := s
	other.config.BatchSize = 4
	try(other, "BatchSize is 4, the checkpoint was saved with 8; use the same, or another directory")
	other = s
	other.config.Seed = 1
	try(other, "Seed is 1, the checkpoint was saved with 0; use the same, or another directory")
	other = s
	other.data = func() keras.Dataset { return data(50, 1) }
	try(other, "the number of batches is 5, the checkpoint was saved with 4; use the same, or another directory")
	other = s
	other.policy = "float32" // the optimizer is a LossScaleOptimizer nevertheless
	if _, err := other.run(t, d, 0); err != nil {
		t.Errorf("under another policy: %v", err)
	}
	other = s
	other.optimizer = settings()["float32, Adam, schedule, averages"].optimizer
	d = &Directory{Path: t.TempDir()}
	if _, err := s.run(t, d, 2, killAfter(5)); !errors.Is(err, errKilled) {
		t.Fatal(err)
	}
	other.policy = "mixed_bfloat16"
	try(other, "optimizer: variable 0: got loss_scale_optimizer/loss_scale float32[], want adam/iteration int64[]")
}

// TestStopped: when a callback has ended training, nothing is trained after a
// resumption either.
func TestStopped(t *testing.T) {
	s := settings()["float32, Adam, schedule, averages"]
	stop := keras.Callback{EpochEnd: func(_ context.Context, r *keras.Run) error {
		r.Stop = r.Epoch == 1
		return nil
	}}
	d := &Directory{Path: t.TempDir()}
	want, err := s.run(t, d, 2, stop)
	check(t, err)
	if got, err := s.run(t, d, 2, killAfter(1)); err != nil || got != want {
		t.Errorf("got %v, %v, want %v", got, err, want)
	}
}
