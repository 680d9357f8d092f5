package callbacks

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/checkpoint"
	"github.com/mezzo-ml/mezzo/keras/internal/atomicfile"
	"github.com/mezzo-ml/mezzo/keras/saving"
)

// ModelCheckpoint writes the model to a file at the end of epochs, or every
// SaveFreq batches (Keras: ModelCheckpoint). To resume a training that was
// killed, use FitConfig.Checkpoint.
type ModelCheckpoint struct {
	// File is where to; required. In it, {epoch}, from 1, {batch}, from 1 and
	// with SaveFreq only, and the names of logs are replaced, with formats as
	// in Python: "{epoch:02d}-{val_loss:.2f}.ckpt". Directories are made.
	File         string
	Monitor      string // for SaveBestOnly; default: "val_loss"
	Verbose      int    // 1 prints what it does
	SaveBestOnly bool   // write only when Monitor is better than ever
	Mode         Mode
	SaveFreq     int // batches between files, counted over epochs; 0: each epoch
	// InitialValueThreshold is what Monitor must beat at first.
	InitialValueThreshold *float64
	// Save writes the model. By default the suffix of File decides: .keras is
	// Keras's whole model, .weights.h5 Keras's weights, .safetensors and .npz
	// are weights by name (see package saving), and any other, such as .ckpt,
	// is a file for checkpoint.LoadWeights.
	Save func(file string, m *keras.Model) error

	m     monitor
	seen  int // batches since the last file
	write func(file string, m *keras.Model) error
}

// writer is what writes files of such a name. It makes their directory, where
// that is the same for all, and tries it: that nothing can be written there must
// be found before the first epoch, not after it.
func writer(file string) (func(string, *keras.Model) error, error) {
	if dir := filepath.Dir(file); !strings.Contains(dir, "{") {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, err
		}
		f, err := os.CreateTemp(dir, "."+filepath.Base(os.Args[0])+"-*"+atomicfile.Suffix)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", dir, atomicfile.Bare(err))
		}
		if err := errors.Join(f.Close(), os.Remove(f.Name())); err != nil {
			return nil, err
		}
	}
	for suffix, write := range map[string]func(string, *keras.Model) error{
		".keras":       func(file string, m *keras.Model) error { return saving.Save(file, m) },
		".weights.h5":  func(file string, m *keras.Model) error { return saving.SaveWeights(file, m) },
		".safetensors": saving.SaveSafetensors,
		".npz":         saving.SaveNPZ,
	} {
		if strings.HasSuffix(file, suffix) {
			return write, nil
		}
	}
	if strings.HasSuffix(file, ".h5") {
		return nil, fmt.Errorf("File: got %q, want .keras for whole models or .weights.h5 for weights", file)
	}
	return checkpoint.SaveWeights, nil
}

type modelCheckpointState struct {
	Seen int
	Best *number
}

// Callback makes the hooks.
func (c *ModelCheckpoint) Callback() keras.Callback {
	return keras.Callback{
		Name:          "ModelCheckpoint",
		FirstRankOnly: true,
		TrainBegin: func(context.Context, *keras.Run) error {
			c.seen = 0
			c.m = monitor{class: "ModelCheckpoint", log: cmp.Or(c.Monitor, "val_loss"), mode: c.Mode, best: c.InitialValueThreshold}
			switch {
			case c.File == "":
				return fmt.Errorf("callback ModelCheckpoint: no File given")
			case c.SaveFreq < 0:
				return fmt.Errorf("callback ModelCheckpoint: SaveFreq: got %d, want a number of batches, or 0 for each epoch", c.SaveFreq)
			}
			if c.write = c.Save; c.write != nil {
				return nil
			}
			var err error
			if c.write, err = writer(c.File); err != nil {
				return fmt.Errorf("callback ModelCheckpoint: %w", err)
			}
			return nil
		},
		BatchEnd: func(_ context.Context, r *keras.Run) error {
			if c.seen++; c.SaveFreq == 0 || c.seen < c.SaveFreq {
				return nil
			}
			c.seen = 0
			logs, err := r.Read()
			if err != nil {
				return err
			}
			return c.save(r, logs, map[string]int{"epoch": r.Epoch + 1, "batch": r.Step})
		},
		EpochEnd: func(_ context.Context, r *keras.Run) error {
			if c.SaveFreq > 0 {
				return nil
			}
			return c.save(r, r.Logs, map[string]int{"epoch": r.Epoch + 1})
		},
		Save: func() (keras.CallbackState, error) {
			return save(modelCheckpointState{c.seen, (*number)(c.m.best)})
		},
		Load: func(s keras.CallbackState) error {
			var m modelCheckpointState
			err := load(s, &m)
			c.seen, c.m.best = m.Seen, (*float64)(m.Best)
			return err
		},
	}
}

func (c *ModelCheckpoint) save(r *keras.Run, logs keras.Logs, counts map[string]int) error {
	file, err := format(c.File, counts, logs)
	if err != nil {
		return fmt.Errorf("callback ModelCheckpoint: %w", err)
	}
	say := func(format string, args ...any) {
		if c.Verbose > 0 {
			fmt.Fprintf(r.Config.Output, "\nEpoch %d: "+format+"\n", append([]any{r.Epoch + 1}, args...)...)
		}
	}
	if c.SaveBestOnly {
		value, ok, err := c.m.get(r, logs)
		if err != nil || !ok {
			return err
		}
		best := "None"
		if c.m.best != nil {
			best = float(*c.m.best, "5", "f")
		}
		if !c.m.improves(value, c.m.best) {
			say("%s did not improve from %s", c.m.log, best)
			return nil
		}
		say("%s improved from %s to %s, saving model to %s", c.m.log, best, float(value, "5", "f"), file)
		c.m.best = &value
	} else {
		say("saving model to %s", file)
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return fmt.Errorf("callback ModelCheckpoint: %w", err)
	}
	if err := c.write(file, r.Model); err != nil {
		return fmt.Errorf("callback ModelCheckpoint: %w", err)
	}
	say("finished saving model to %s", file)
	return nil
}
