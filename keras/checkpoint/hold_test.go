package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mezzo-ml/mezzo/keras"
)

// TestHold: one training at a time uses a directory, and who comes second is
// told before its first step; a file that a killed process left keeps nobody
// out.
func TestHold(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	first, second := &Directory{Path: dir}, &Directory{Path: dir}
	release, err := first.Lock()
	check(t, err)
	inUse := fmt.Sprintf("checkpoint: %s: another training uses the directory, process %d; wait until it is done, or use another", dir, os.Getpid())
	_, err = second.Lock()
	wantError(t, err, inUse)
	s := settings()["mixed_float16, loss scale"]
	steps := 0
	_, err = s.run(t, second, 0, keras.Callback{BatchBegin: func(context.Context, *keras.Run) error { steps++; return nil }})
	wantError(t, err, "Fit: "+inUse)
	if !errors.Is(err, ErrInUse) || steps > 0 {
		t.Errorf("got %v after %d steps, want ErrInUse before the first", err, steps)
	}
	if _, err := second.Load(background); err != nil { // who only reads may
		t.Error(err)
	}
	check(t, release())
	if got := names(t, dir); len(got) > 0 {
		t.Errorf("released, it leaves %q", got)
	}

	check(t, os.WriteFile(filepath.Join(dir, lockName), []byte("process 1\n"), 0o644))
	if _, err := s.run(t, second, 0); err != nil {
		t.Error(err)
	}
	release, err = first.Lock()
	check(t, err)
	check(t, first.Remove())
	check(t, release())
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("removed and released, the directory is there: %v", err)
	}
}

// TestNowhere: a directory that cannot be is found before the first step.
func TestNowhere(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	check(t, os.WriteFile(file, nil, 0o644))
	steps := 0
	_, err := settings()["float16, generator, class weights"].run(t, &Directory{Path: filepath.Join(file, "run")}, 0,
		keras.Callback{BatchBegin: func(context.Context, *keras.Run) error { steps++; return nil }})
	if err == nil || !strings.HasPrefix(err.Error(), "Fit: checkpoint: mkdir "+file) || steps > 0 {
		t.Errorf("got %v after %d steps, want an error that names %s before the first", err, steps, file)
	}
}

// breaking is a dataset that fails in some epoch after so many batches, once.
type breaking struct {
	*keras.Pipeline
	epoch, after int
	err          error
}

func (b *breaking) EpochBatches(epoch int) iter.Seq2[keras.Batch, error] {
	return func(yield func(keras.Batch, error) bool) {
		n := 0
		for x, err := range b.Pipeline.Epoch(background, epoch, 0) {
			if broken := b.err; epoch == b.epoch && n == b.after && broken != nil {
				b.err = nil
				yield(keras.Batch{}, broken)
				return
			}
			if n++; !yield(x, err) {
				return
			}
		}
	}
}

// Epoch implements keras.SeekableDataset.
func (b *breaking) Epoch(ctx context.Context, epoch, skip int) iter.Seq2[keras.Batch, error] {
	return func(yield func(keras.Batch, error) bool) {
		for x, err := range b.EpochBatches(epoch) {
			if skip--; skip >= 0 && err == nil {
				continue
			}
			if !yield(x, err) {
				return
			}
		}
	}
}

// TestBrokenData: when a dataset fails within an epoch, or that of the
// validation, the steps before are saved, and the training goes on with the
// batch that failed, to the same bits.
func TestBrokenData(t *testing.T) {
	s := settings()["bfloat16, Nadam, cosine"]
	whole := func() *keras.Pipeline { return data(36, 1).Shuffle(10, 3).Batch(8) }
	s.data = func() keras.Dataset { return whole() }
	s.config.ValidationFreq = 1
	want, err := s.run(t, nil, 0)
	check(t, err)
	cause := errors.New("the cable is out")
	for _, c := range []struct {
		epoch, after int
		validation   bool
		want         string
	}{
		{1, 3, false, "Fit: batch 4 of epoch 2: the cable is out; the 3 steps of epoch 2 before that are saved"},
		{1, 0, false, "Fit: batch 1 of epoch 2: the cable is out"},
		{0, 0, true, "Evaluate: batch 1: the cable is out; the 5 steps of epoch 1 before that are saved"},
	} {
		d := &Directory{Path: t.TempDir()}
		broken := s
		if c.validation {
			v := &breaking{Pipeline: data(8, 3).Batch(8), epoch: c.epoch, after: c.after, err: cause}
			broken.config.ValidationData = v
		} else {
			broken.data = func() keras.Dataset { return &breaking{Pipeline: whole(), epoch: c.epoch, after: c.after, err: cause} }
		}
		_, err := broken.run(t, d, 0)
		wantError(t, err, c.want)
		if !errors.Is(err, cause) {
			t.Errorf("got %v, want its cause in it", err)
		}
		begun := -1
		got, err := s.run(t, d, 0, keras.Callback{BatchBegin: func(_ context.Context, r *keras.Run) error {
			if begun < 0 {
				begun = 5*r.Epoch + r.Step
			}
			return nil
		}})
		check(t, err)
		next := 5*c.epoch + c.after
		if c.validation {
			next = 5
		}
		if got != want || begun != next {
			t.Errorf("%v: resumed with step %d, got\n%v, want %d and\n%v", c, begun, got, next, want)
		}
	}
}

// TestBestUnknown: a Best that is not in the logs is told, and the state is kept.
func TestBestUnknown(t *testing.T) {
	d := &Directory{Path: t.TempDir(), Best: "val_los_loss"}
	s := state(1, 0, 0.5)
	wantError(t, d.Save(background, s), `checkpoint: Directory: Best is "val_los_loss", want one of loss, val_loss`)
	if got := names(t, d.Path); len(got) != 1 {
		t.Errorf("got files %q, want the state", got)
	}
	s.History.Logs[0] = s.History.Logs[0][:1]
	wantError(t, d.Save(background, s), `checkpoint: Directory: Best is "val_los_loss", want one of loss`)
	s.Validated = true // in a later epoch
	check(t, d.Save(background, s))
}
