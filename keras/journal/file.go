package journal

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/doctor"
	"github.com/mezzo-ml/mezzo/keras/internal/safeio"
)

// File writes the journal of one training to a file. It is a keras.Journaler. A training
// that is resumed goes on in the same file. Records are written ten times a second, so that
// a kill loses few of them, and brought to the disk before a checkpoint is saved and when Fit
// ends. Only one training at a time may use it, as it may its checkpoints.
type File struct {
	Path string   // the directory is made when it is needed
	Args []string // of the program, for a replay to make the same training

	f       *os.File
	frames  []byte // not written yet
	written time.Time
}

// pause is the time between two writes of records. A write after each step would take longer than
// the checksums of a small network.
const pause = 100 * time.Millisecond

// Begin opens the file, or makes it, and appends a session to it.
func (j *File) Begin(_ context.Context, _ *keras.Run, s keras.JournalState) (done int64, err error) {
	if j.Path == "" {
		return 0, errors.New("journal: File: no Path given")
	}
	if j.f != nil {
		return 0, fmt.Errorf("%s: it is in use by another Fit", j.Path)
	}
	now := Session{Args: j.Args, Setup: s.Setup, Ranks: s.Ranks, Model: s.Model, Program: s.Program, WeightParts: s.WeightParts, SlotParts: s.SlotParts}
	if now.Made, err = doctor.Here(); err != nil {
		return 0, err
	}
	f, whole, err := j.open()
	if err != nil {
		return 0, err
	}
	defer func() {
		if err != nil {
			f.Close()
		}
	}()
	begin := stateOf(s)
	switch {
	case whole == 0:
		j.frames = append(j.frames[:0], start()...)
		if s.Resumed {
			return 0, fmt.Errorf("%s: the training is resumed after %d steps of epoch %d, and there is no journal of it; begin both anew, or move the journal back", j.Path, s.Step, s.Epoch+1)
		}
	default:
		j.frames = j.frames[:0]
		l, err := Load(j.Path)
		if err != nil {
			return 0, err
		}
		if before := l.last(); before.Model != now.Model {
			return 0, fmt.Errorf("%s: it is of another model: the names or types of its variables differ", j.Path)
		} else if before.WeightParts != now.WeightParts || before.Ranks == now.Ranks && before.SlotParts != now.SlotParts {
			return 0, fmt.Errorf("%s: it has other parts of the variables: %d and %d, want %d and %d", j.Path, before.WeightParts, before.SlotParts, now.WeightParts, now.SlotParts)
		}
		if s.Resumed {
			saved, ok := l.saved(s.Epoch, s.Step)
			if !ok {
				return 0, fmt.Errorf("%s: the training is resumed after %d steps of epoch %d, and the journal has no such checkpoint", j.Path, s.Step, s.Epoch+1)
			}
			begin.Number = saved.Number
		}
	}
	if j.frames, err = appendSession(j.frames, &now); err != nil {
		return 0, err
	}
	j.frames = appendState(j.frames, &begin)
	if err := f.Truncate(whole); err != nil { // what a writer that was killed has left unfinished
		return 0, err
	}
	if _, err := f.Seek(whole, io.SeekStart); err != nil {
		return 0, err
	}
	j.f = f
	if err := j.write(); err != nil {
		j.f = nil
		return 0, err
	}
	return begin.Number, nil
}

func stateOf(s keras.JournalState) State {
	return State{Number: s.Number, Epoch: s.Epoch, Step: s.Step, Data: s.Data, Weights: s.Weights, Slots: s.Slots, Random: s.Random, Totals: s.Totals, LossScale: s.LossScale}
}

// open opens the file for writing and returns how many bytes of it are whole frames.
func (j *File) open() (f *os.File, whole int64, err error) {
	r, size, err := safeio.Open(j.Path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if err := os.MkdirAll(filepath.Dir(j.Path), 0o777); err != nil {
			return nil, 0, err
		}
	case err != nil:
		return nil, 0, err
	default:
		defer r.Close()
		ignore := visitor{func(Session) error { return nil }, func(Step) error { return nil }, func(State) error { return nil }}
		whole, err = read(r, size, ignore)
		switch {
		case errors.Is(err, ErrNoJournal) && size < int64(len(start())): // killed before the first bytes
		case err != nil:
			return nil, 0, fmt.Errorf("%s: %w", j.Path, err)
		case whole == int64(len(start())):
			whole = 0
		}
	}
	f, err = os.OpenFile(j.Path, os.O_RDWR|os.O_CREATE, 0o666)
	return f, whole, err
}

func (j *File) write() error {
	_, err := j.f.Write(j.frames)
	j.frames, j.written = j.frames[:0], time.Now()
	return err
}

// Step appends a step.
func (j *File) Step(_ context.Context, _ *keras.Run, s keras.JournalStep) error {
	j.frames = appendStep(j.frames, &s)
	if time.Since(j.written) < pause {
		return nil
	}
	return j.write()
}

// Saving appends the state of a checkpoint and brings the file to the disk.
func (j *File) Saving(_ context.Context, _ *keras.Run, s keras.JournalState) error {
	now := stateOf(s)
	j.frames = appendState(j.frames, &now)
	if err := j.write(); err != nil {
		return err
	}
	return j.f.Sync()
}

// End closes the file.
func (j *File) End() error {
	if j.f == nil {
		return nil
	}
	err := errors.Join(j.write(), j.f.Sync(), j.f.Close())
	j.f = nil
	return err
}
