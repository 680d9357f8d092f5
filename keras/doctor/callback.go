package doctor

import (
	"context"
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
// A step is examined after it was taken: where a step that is not finite is applied,
// under NonFiniteApply without a loss scale, the weights are spoiled by then. Compile
// with NonFiniteSkip to learn where it comes from. Under NonFiniteError Fit ends before
// the callback sees the step.
func Callback(c CallbackConfig) keras.Callback {
	w := &watch{config: c}
	return keras.Callback{TrainBegin: w.begin, EpochBegin: w.epoch, BatchEnd: w.step}
}

// watch is the state of a callback during Fit.
type watch struct {
	config     CallbackConfig
	steps      int
	reports    int
	skips      int64 // in a row, after the last step
	unfiniteIn bool  // the loss of this epoch was not finite
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
	}
	w.steps, w.reports, w.skips, w.unfiniteIn = 0, 0, 0, false
	return nil
}

func (w *watch) epoch(_ context.Context, _ *keras.Run) error {
	w.unfiniteIn = false
	return nil
}

func (w *watch) step(ctx context.Context, r *keras.Run) error {
	w.steps++
	most := w.config.Most
	if most == 0 {
		most = 3
	}
	if w.reports >= most {
		return nil
	}
	due, err := w.due(r)
	if !due || err != nil {
		return err
	}
	w.reports++
	report, err := Examine(ctx, r.Model, r.Batch, w.config.Config)
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

// due reports whether the step that was just taken is to be examined.
func (w *watch) due(r *keras.Run) (bool, error) {
	c := &w.config
	due := c.Every > 0 && w.steps%c.Every == 0
	result, err := r.Model.StepResult()
	if err != nil {
		return false, err
	}
	atSkips := int64(c.OnSkips)
	if atSkips == 0 {
		atSkips = 3
	}
	skips := result.ConsecutiveSkips
	due = due || atSkips > 0 && skips >= atSkips && w.skips < atSkips
	_, scaled := r.Model.Optimizer().(*optimizers.LossScaleOptimizer)
	if c.OnNonFinite == nil || *c.OnNonFinite {
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
