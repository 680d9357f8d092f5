package checkpoint

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/internal/atomicfile"
)

// Directory keeps the last states of one training, for Fit to go on from. It
// is a keras.Checkpointer. The directory is made when it is first needed. One
// training at a time may use it: Fit keeps others out, see Hold.
type Directory struct {
	Path string
	Keep int // the newest files to keep; default: 2

	// Best also keeps the state of the end of the epoch in which the log of
	// this name was best, such as "val_loss". Mode says whether the least
	// value is best, "min", or the largest, "max"; default: "min" for losses,
	// others need it. A name that is not among the logs is an error of the
	// first Save that finds out, after it has saved.
	Best, Mode string

	// Logger is told of files that are passed over because they are damaged, and
	// of old ones that cannot be removed. Default: slog.Default().
	Logger *slog.Logger

	files   atomicfile.FS // nil: the machine's
	removed bool          // by Remove, but for what Hold has in it
}

// name is the name of a file: the epoch and the step in it that come next.
var name = regexp.MustCompile(`^epoch-(\d{1,9})-step-(\d{1,9})\.ckpt$`)

func (d *Directory) file(epoch, step int) string {
	return filepath.Join(d.Path, fmt.Sprintf("epoch-%05d-step-%08d.ckpt", epoch, step))
}

func (d *Directory) system() atomicfile.FS {
	if d.files != nil {
		return d.files
	}
	return atomicfile.System{}
}

func (d *Directory) check() error {
	switch {
	case d.Path == "":
		return errors.New("checkpoint: Directory: no Path given")
	case d.Keep < 0:
		return fmt.Errorf("checkpoint: Directory: Keep is %d, want a positive number", d.Keep)
	case d.Mode != "" && d.Mode != "min" && d.Mode != "max":
		return fmt.Errorf("checkpoint: Directory: Mode is %q, want min or max", d.Mode)
	case d.Best != "" && d.Mode == "" && !strings.HasSuffix(d.Best, "loss"):
		return fmt.Errorf("checkpoint: Directory: Best is %q; want a Mode, min or max, for what is not a loss", d.Best)
	}
	return nil
}

// Save writes a state to a file of its own and removes those that are not kept
// any more. An old file that cannot be removed is a warning for the Logger, and
// tried again by the next Save.
func (d *Directory) Save(ctx context.Context, s *keras.State) error {
	if err := d.check(); err != nil {
		return err
	}
	if err := makeDir(d.system(), d.Path); err != nil {
		return err
	}
	if err := save(d.system(), d.file(s.Epoch, s.Step), s); err != nil {
		return err
	}
	return errors.Join(d.prune(ctx, s), d.checkBest(s))
}

// checkBest wants Best among the logs of the last epoch; those of validations
// may come with a later one.
func (d *Directory) checkBest(s *keras.State) error {
	have := s.History.Names()
	validated := slices.ContainsFunc(have, func(n string) bool { return strings.HasPrefix(n, "val_") })
	switch {
	case d.Best == "" || len(have) == 0 || slices.Contains(have, d.Best):
		return nil
	case s.Validated && !validated && strings.HasPrefix(d.Best, "val_"):
		return nil
	}
	return fmt.Errorf("checkpoint: Directory: Best is %q, want one of %s", d.Best, strings.Join(have, ", "))
}

// Load returns the newest state: the one in the file that is furthest in the
// training. A file that is damaged, or was cut, is passed over if there is
// another. One that cannot be read for another reason is an error: it may hold
// newer work. nil means that there is no file.
func (d *Directory) Load(ctx context.Context) (*keras.State, error) {
	if err := d.check(); err != nil {
		return nil, err
	}
	all, err := d.Files()
	if err != nil {
		return nil, err
	}
	var first error
	for _, path := range slices.Backward(all) {
		s, err := Load(path)
		if err == nil {
			s.From = path
			return s, nil
		}
		if !damaged(err) {
			return nil, fmt.Errorf("%w; it may be the newest, so it is not passed over: "+
				"see that it can be read, or move it away to go on from an older one", err)
		}
		d.warn(ctx, "checkpoint passed over", path, err)
		first = cmp.Or(first, err)
	}
	return nil, first
}

// damaged reports whether err, of Load, says that nobody can read the file.
func damaged(err error) bool {
	return errors.Is(err, ErrDamaged) || errors.Is(err, ErrTruncated) || errors.Is(err, ErrNoCheckpoint)
}

// warn tells the Logger.
func (d *Directory) warn(ctx context.Context, message, path string, err error) {
	l := d.Logger
	if l == nil {
		l = slog.Default()
	}
	l.WarnContext(ctx, message, slog.String("file", path), slog.Any("error", err))
}

// Files lists the paths of the files, the newest state last.
func (d *Directory) Files() ([]string, error) {
	type numbered struct {
		epoch, step int
		name        string
	}
	var found []numbered
	entries, err := os.ReadDir(d.Path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("checkpoint: %w", err)
	}
	for _, e := range entries {
		if m := name.FindStringSubmatch(e.Name()); m != nil {
			epoch, _ := strconv.Atoi(m[1]) // digits, few enough
			step, _ := strconv.Atoi(m[2])
			found = append(found, numbered{epoch, step, e.Name()})
		}
	}
	slices.SortFunc(found, func(a, b numbered) int { return cmp.Or(cmp.Compare(a.epoch, b.epoch), cmp.Compare(a.step, b.step)) })
	paths := make([]string, len(found))
	for i, f := range found {
		paths[i] = filepath.Join(d.Path, f.name)
	}
	return paths, nil
}

// BestFile is the path of the file that is kept for Best, "" when there is
// none.
func (d *Directory) BestFile(h *keras.History) string {
	at, best := -1, math.NaN()
	if d.Best == "" {
		return ""
	}
	for i, x := range h.Get(d.Best) {
		better := x < best
		if d.Mode == "max" {
			better = x > best
		}
		if better || math.IsNaN(best) && !math.IsNaN(x) {
			at, best = i, x
		}
	}
	if at < 0 {
		return ""
	}
	return d.file(h.Epochs[at]+1, 0)
}

// prune removes what is not kept, and what was left unfinished.
func (d *Directory) prune(ctx context.Context, s *keras.State) error {
	all, err := d.Files()
	if err != nil {
		return err
	}
	// What lies further ahead belongs to a training that is no more: the newest
	// file is the one that was just written. But what cannot be read stays, as it
	// may be somebody's work.
	now := slices.Index(all, d.file(s.Epoch, s.Step))
	var drop []string
	for _, path := range all[now+1:] {
		_, err := Load(path)
		if err != nil && !damaged(err) {
			d.warn(ctx, "checkpoint kept: it cannot be read", path, err)
			continue
		}
		if e := d.remove(path); e != nil && err == nil { // or a training would go on from it
			return fmt.Errorf("checkpoint: %w", e)
		} else if e != nil {
			d.warn(ctx, "checkpoint not removed", path, e)
		}
	}
	best := d.BestFile(&s.History)
	for _, path := range all[:max(0, now+1-cmp.Or(d.Keep, 2))] {
		if path != best {
			drop = append(drop, path)
		}
	}
	left, err := filepath.Glob(filepath.Join(escape(d.Path), "*.ckpt.*"+atomicfile.Suffix))
	if err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	for _, path := range append(drop, left...) {
		if err := d.remove(path); err != nil {
			d.warn(ctx, "checkpoint not removed", path, err)
		}
	}
	return nil
}

// remove removes a file if it is there.
func (d *Directory) remove(path string) error {
	if err := d.system().Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// escape makes a path a pattern that matches it alone.
func escape(path string) string {
	return regexp.MustCompile(`[\\*?\[]`).ReplaceAllString(path, `\$0`)
}

// Remove deletes the files of the training, and the directory if nothing else
// is in it; one that is held goes when it is released.
func (d *Directory) Remove() error {
	all, err := d.Files()
	if err != nil {
		return err
	}
	for _, path := range all {
		if err := d.system().Remove(path); err != nil {
			return fmt.Errorf("checkpoint: %w", err)
		}
	}
	os.Remove(d.Path) // what else is in it stays
	d.removed = true
	return nil
}
