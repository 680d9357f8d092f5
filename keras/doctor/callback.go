package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"

	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/optimizers"
)

// CallbackConfig has the arguments of Callback. Dir or Report is required.
type CallbackConfig struct {
	Config

	Every       int   // examine every n-th step; 0: none for that reason
	OnSkips     int   // examine when so many steps in a row were skipped; default 3, negative: never
	OnNonFinite *bool // examine when the loss, or a gradient that no loss scale checks, is not finite; nil is true
	Most        int   // reports of one Fit at most; default 3

	// Bundle examines a step from the state before it, and writes that state with the
	// batch into bundle-<step>.mezzo besides: see LoadBundle. Before a step that may be
	// examined, all variables of the step are copied to the host: weights, slots, totals.
	// That is each step while OnNonFinite is on; else each Every-th, and what follows
	// OnSkips-1 skips in a row.
	Bundle bool

	// Dir is where report-<step>.html, .json and .txt are written, counting the steps of
	// Fit from 1. It is made if it does not exist.
	Dir string
	// Report, if not nil, is called with each report. An error ends Fit.
	Report func(step int, r *Report) error
}

// Callback returns a callback for Fit that examines steps: every n-th one, and those on
// which training fails. Training computes the same bits with it as without. A step that
// is not examined reads counters, or the loss, back from the device.
//
// Without Bundle a step is examined from the state after it. A step that is not finite
// changes nothing where there is a loss scale, or under NonFiniteSkip and NonFiniteError,
// so that it is this very step that is examined. Under NonFiniteApply without a loss scale
// the weights are spoiled by then.
func Callback(c CallbackConfig) keras.Callback {
	w := &watch{config: c}
	k := keras.Callback{TrainBegin: w.begin, EpochBegin: w.epoch, BatchEnd: w.step, BatchRefused: w.refused}
	if c.Bundle {
		k.BatchBegin = w.keep
	}
	return k
}

// watch is the state of a callback during Fit.
type watch struct {
	config     CallbackConfig
	steps      int
	reports    int
	skips      int64 // in a row, after the last step
	unfiniteIn bool  // the loss of this epoch was not finite

	variables []*keras.Variable // of the step, if before has their values from before it
	before    []keras.Array
}

func (w *watch) begin(_ context.Context, _ *keras.Run) error {
	c := &w.config
	switch {
	case c.Dir == "" && c.Report == nil:
		return fmt.Errorf("doctor: Callback: Dir and Report are empty, want one of them")
	case c.Every < 0:
		return fmt.Errorf("doctor: Callback: Every is %d, want a positive number, or 0 for never", c.Every)
	case c.Most < 0:
		return fmt.Errorf("doctor: Callback: Most is %d, want a positive number, or 0 for 3", c.Most)
	case c.Bundle && c.Dir == "":
		return fmt.Errorf("doctor: Callback: Dir is empty, want a directory for bundles")
	}
	*w = watch{config: w.config}
	return nil
}

// most is how many steps of one Fit are examined.
func (w *watch) most() int { return cmp.Or(w.config.Most, 3) }

// atSkips is how many skips in a row are examined, 0 or less for none.
func (w *watch) atSkips() int64 { return int64(cmp.Or(w.config.OnSkips, 3)) }

// onNonFinite reports whether steps are examined that are not finite.
func (w *watch) onNonFinite() bool { return w.config.OnNonFinite == nil || *w.config.OnNonFinite }

// keep copies the state before a step that may be examined.
func (w *watch) keep(_ context.Context, r *keras.Run) (err error) {
	w.variables, w.before = nil, nil
	c := &w.config
	may := c.Every > 0 && (w.steps+1)%c.Every == 0 || w.atSkips() > 0 && w.skips >= w.atSkips()-1 || w.onNonFinite() && !w.unfiniteIn
	if !may || w.reports >= w.most() {
		return nil
	}
	if w.variables, err = r.Model.StepVariables(r.Batch); err == nil {
		w.before, err = keras.ArraysOf(variables(w.variables))
	}
	if err != nil {
		return fmt.Errorf("doctor: Callback: %w", err)
	}
	return nil
}

func (w *watch) epoch(_ context.Context, _ *keras.Run) error {
	w.unfiniteIn = false
	return nil
}

func (w *watch) step(ctx context.Context, r *keras.Run) error {
	w.steps++
	if w.reports >= w.most() {
		return nil
	}
	due, err := w.due(r)
	if !due || err != nil {
		return err
	}
	return w.report(ctx, r)
}

// refused examines a step that Fit ends with.
func (w *watch) refused(ctx context.Context, r *keras.Run) error {
	w.steps++
	if w.reports >= w.most() || !w.onNonFinite() {
		return nil
	}
	return w.report(ctx, r)
}

// report examines the step that was just taken, or refused.
func (w *watch) report(ctx context.Context, r *keras.Run) error {
	w.reports++
	report, err := w.examine(ctx, r)
	if err != nil {
		return err
	}
	if w.config.Dir != "" {
		path, err := write(w.config.Dir, w.steps, report)
		if err != nil {
			return err
		}
		r.Report = path
	}
	if w.config.Report != nil {
		return w.config.Report(w.steps, report)
	}
	return nil
}

// examine examines the step that was just taken, from the state before it if that was
// kept; then the state after it is put back.
func (w *watch) examine(ctx context.Context, r *keras.Run) (report *Report, err error) {
	if w.before == nil {
		return Examine(ctx, r.Model, r.Batch, w.config.Config)
	}
	after, err := keras.ArraysOf(variables(w.variables))
	if err == nil {
		defer func() { err = errors.Join(err, keras.SetArrays(after, variables(w.variables))) }()
		err = keras.SetArrays(w.before, variables(w.variables))
	}
	if err != nil {
		return nil, fmt.Errorf("doctor: Callback: %w", err)
	}
	b, err := Capture(ctx, r.Model, r.Batch)
	if err != nil {
		return nil, err
	}
	b.Epoch, b.Step = r.Epoch+1, w.steps
	if err := os.MkdirAll(w.config.Dir, 0o777); err != nil {
		return nil, fmt.Errorf("doctor: Callback: %w", err)
	}
	if err := b.Save(filepath.Join(w.config.Dir, fmt.Sprintf("bundle-%d.mezzo", w.steps))); err != nil {
		return nil, err
	}
	return Examine(ctx, r.Model, r.Batch, w.config.Config)
}

// due reports whether the step that was just taken is to be examined.
func (w *watch) due(r *keras.Run) (bool, error) {
	c := &w.config
	due := c.Every > 0 && w.steps%c.Every == 0
	result, err := r.Model.StepResult()
	if err != nil {
		return false, err
	}
	atSkips, skips := w.atSkips(), result.ConsecutiveSkips
	due = due || atSkips > 0 && skips >= atSkips && w.skips < atSkips
	_, scaled := r.Model.Optimizer().(*optimizers.LossScaleOptimizer)
	if w.onNonFinite() {
		switch {
		case !scaled && skips > 0: // NonFiniteSkip
			due = due || w.skips == 0
		case !w.unfiniteIn:
			logs, err := r.Read()
			if err != nil {
				return false, err
			}
			if loss := logs.Get("loss"); logs.Has("loss") && (math.IsNaN(loss) || math.IsInf(loss, 0)) {
				due, w.unfiniteIn = true, true
			}
		}
	}
	w.skips = skips
	return due, nil
}

// write writes the files of a report, each under another name first, and returns the
// path of the HTML file.
func write(dir string, step int, r *Report) (string, error) {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return "", fmt.Errorf("doctor: Callback: %w", err)
	}
	base := filepath.Join(dir, fmt.Sprintf("report-%d", step))
	for _, suffix := range []string{".txt", ".json", ".html"} {
		if err := r.Save(base + suffix); err != nil {
			return "", err
		}
	}
	return base + ".html", nil
}
