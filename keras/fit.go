package keras

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math"
	"os"
	"slices"
	"strconv"

	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/keras/distribution"
	"github.com/mezzo-ml/mezzo/keras/internal/pipeline"
	"github.com/mezzo-ml/mezzo/optimizers"
)

// Verbosity is what Fit and Evaluate print.
type Verbosity int

// The values of Verbosity.
const (
	VerbosityAuto   Verbosity = iota // a progress bar on a terminal, a line per epoch elsewhere
	VerbositySilent                  // nothing
	VerbosityBar                     // a progress bar on a terminal
	VerbosityLines                   // a line per epoch
)

// FitConfig has the arguments of Fit (Keras: Model.fit).
type FitConfig struct {
	BatchSize       int     // default: 32; for datasets that are not batched yet, of keras and of keras/data
	Epochs          int     // number of the last epoch; default: 1
	InitialEpoch    int     // epochs done before, when training goes on
	StepsPerEpoch   int     // default: all of the dataset. With it, an epoch goes on where the last one ended
	ValidationSplit float64 // share of samples in memory to validate on, from their end
	ValidationData  Dataset
	ValidationSteps int   // default: all of the validation data
	ValidationFreq  int   // validate every so many epochs; default: 1
	Shuffle         *bool // mix samples in memory anew each epoch; default: true
	Seed            uint64

	// ClassWeight weights samples by class: integer targets, or the largest
	// of one-hot targets. Weights are finite and 0 or more; classes that are
	// missing count 1.
	ClassWeight map[int]float64

	Callbacks []Callback

	// Checkpoint saves the training at the end of each epoch and, with
	// SaveEvery, after every so many steps of an epoch. If it has a state
	// already, Fit resumes from it, with the same bits as a training without
	// interruption: run the same program again after it was killed. See
	// checkpoint.Directory.
	Checkpoint Checkpointer
	SaveEvery  int

	// Journal gets checksums of each step and of each state that is saved, so that the
	// training can be replayed, compared with another and audited. No bit depends on it.
	// See package keras/journal. Default: none.
	Journal Journaler

	Output  io.Writer // progress; default: standard output
	Verbose Verbosity

	// Logger gets events: the start, resumption and interruption of the
	// training, epochs, checkpoints and changes of the loss scale (Info), skipped
	// steps and a fallback to another device (Warn). Default: none.
	Logger *slog.Logger

	// MaxSkipsAtFloor is how many steps in a row may be skipped with the loss
	// scale at its minimum, or by NonFiniteSkip, before Fit gives up with an error
	// that names the layer. Default: 10; negative: never.
	MaxSkipsAtFloor int

	own func(rows int) (first, end int) // rows of each batch that this rank uses; nil: all
}

func (c FitConfig) withDefaults() FitConfig {
	c.BatchSize = cmp.Or(c.BatchSize, 32)
	c.Epochs = cmp.Or(c.Epochs, 1)
	c.ValidationFreq = cmp.Or(c.ValidationFreq, 1)
	c.MaxSkipsAtFloor = cmp.Or(c.MaxSkipsAtFloor, 10)
	if c.Output == nil {
		c.Output = os.Stdout
	}
	return c
}

func (c FitConfig) check() error {
	for _, f := range []struct {
		name string
		bad  bool
		got  any
		want string
	}{
		{"Verbose", c.Verbose < VerbosityAuto || c.Verbose > VerbosityLines, int(c.Verbose), "a Verbosity such as VerbositySilent"},
		{"BatchSize", c.BatchSize < 1, c.BatchSize, "a positive number"},
		{"Epochs", c.Epochs < 0, c.Epochs, "a positive number"},
		{"InitialEpoch", c.InitialEpoch < 0, c.InitialEpoch, "0 or more"},
		{"StepsPerEpoch", c.StepsPerEpoch < 0, c.StepsPerEpoch, "a positive number, or 0 for the whole dataset"},
		{"ValidationSteps", c.ValidationSteps < 0, c.ValidationSteps, "a positive number, or 0 for all"},
		{"ValidationFreq", c.ValidationFreq < 1, c.ValidationFreq, "a positive number"},
		{"SaveEvery", c.SaveEvery < 0, c.SaveEvery, "a positive number of steps, or 0 for the ends of epochs only"},
		{"ValidationSplit", !(c.ValidationSplit >= 0 && c.ValidationSplit < 1), c.ValidationSplit, "a share from 0 to below 1"},
	} {
		if f.bad {
			return fmt.Errorf("Fit: %s is %v, want %s", f.name, f.got, f.want)
		}
	}
	for _, class := range slices.Sorted(maps.Keys(c.ClassWeight)) {
		if w := c.ClassWeight[class]; !(w >= 0 && w <= math.MaxFloat32) {
			return fmt.Errorf("Fit: ClassWeight of class %d is %v, want a finite number of 0 or more", class, w)
		}
	}
	if c.ValidationSplit > 0 && c.ValidationData != nil {
		return fmt.Errorf("Fit: both ValidationSplit and ValidationData are given; use one")
	}
	return nil
}

// Fit trains the model (Keras: Model.fit). Samples are batched, those in memory
// also shuffled; datasets that are batched already are taken as they come. It
// returns the logs of the epochs that finished, also together with an error.
// When ctx ends Fit stops within a step and returns an *Interrupted; the model
// has the weights of the last finished step, and the Checkpoint, if there is
// one, its state.
func (m *Model) Fit(ctx context.Context, d Dataset, c FitConfig) (h *History, err error) {
	h = &History{}
	defer tensor.Catch(&err)
	c = c.withDefaults()
	if err := c.check(); err != nil {
		return h, err
	}
	if m.training == nil {
		return h, m.errorf("%w; call Compile before Fit", ErrNotCompiled)
	}
	if err := needs(ctx, "Fit"); err != nil {
		return h, err
	}
	if isNil(d) {
		return h, fmt.Errorf("Fit: no dataset given")
	}
	if err := m.quantized(); err != nil {
		return h, err
	}
	ranks := m.distribute(&c)
	if t := m.training.trained; t != nil {
		if err := t.unchanged(); err != nil {
			return h, err
		}
	}
	validation := c.ValidationData
	if c.ValidationSplit > 0 {
		p, ok := d.(*Pipeline)
		if !ok {
			return h, fmt.Errorf("Fit: ValidationSplit works on samples in memory; give ValidationData instead")
		}
		train, held, err := p.split(c.ValidationSplit)
		if err != nil {
			return h, fmt.Errorf("Fit: %w", err)
		}
		d, validation = train, held
	}
	byClass := c.ClassWeight
	if p, ok := d.(*Pipeline); ok && byClass != nil && p.arrays != nil && !p.batched {
		if d, err = p.weighArrays(byClass); err != nil {
			return h, fmt.Errorf("Fit: %w", err)
		}
		byClass = nil
	}
	d, close, err := batched(ctx, m, d, c, c.Shuffle == nil || *c.Shuffle)
	defer close()
	if err != nil {
		return h, fmt.Errorf("Fit: %w", err)
	}
	if byClass != nil {
		d = weighted(d, byClass)
	}
	source, err := epochsOf(ctx, d, c).bounded(c.StepsPerEpoch, "give StepsPerEpoch")
	if err != nil {
		return h, fmt.Errorf("Fit: %w", err)
	}
	f := &fitting{m: m, h: h, c: c, ranks: ranks, source: source, run: &Run{Model: m, Config: c, Steps: source.steps, Checkpoint: c.Checkpoint, SaveEvery: c.SaveEvery}}
	if c.Journal != nil {
		f.journal = &journaling{to: c.Journal}
	}
	if validation != nil {
		c := c
		if c.own != nil {
			c.own = m.shareOf
		}
		v, err := batchedSource(ctx, m, validation, c, c.ValidationSteps, "give ValidationSteps")
		if err != nil {
			return h, fmt.Errorf("Fit: validation: %w", err)
		}
		f.validation = &v
	}
	return h, f.ended(ctx, f.fit(ctx))
}

// fitting is one call of Fit.
type fitting struct {
	m          *Model
	h          *History
	c          FitConfig
	ranks      *ranks // nil: this process trains alone
	source     epochs
	validation *epochs
	run        *Run
	progress   *progress
	logs       Logs
	items      []logItem
	announced  bool
	resumed    bool        // in the middle of the epoch that comes next
	saved      bool        // the Checkpoint has a state of this training
	journal    *journaling // nil: there is none
	at         Position    // of the batch of the step
	last       optimizers.StepResult
	firstScale float64 // the loss scale when Fit began; 0: not read yet
	unread     int     // so many steps from now MaxSkipsAtFloor can be reached: devices are not asked before
}

func (f *fitting) fit(ctx context.Context) (err error) {
	steps := f.source.steps
	if f.c.StepsPerEpoch > 0 {
		steps = f.c.StepsPerEpoch
	}
	f.run.Steps = steps
	f.progress = newProgress(f.c.Output, f.c.Verbose.mode(), steps)
	defer f.progress.interrupt()
	f.begins(ctx)
	if f.journal != nil {
		defer func() {
			if e := f.journal.to.End(); e != nil {
				err = errors.Join(err, fmt.Errorf("Fit: journal: %w", e))
			}
		}()
	}
	if err := f.run.call(ctx, func(c Callback) func(context.Context, *Run) error { return c.TrainBegin }); err != nil {
		return err
	}
	if err := f.ranks.follow(f.run); err != nil {
		return err
	}
	if h, ok := f.run.Checkpoint.(Locker); ok {
		release, e := h.Lock()
		if e != nil {
			return fmt.Errorf("Fit: %w", e)
		}
		defer func() {
			if e := release(); e != nil {
				err = errors.Join(err, fmt.Errorf("Fit: %w", e))
			}
		}()
	}
	// With StepsPerEpoch the reader keeps its place from epoch to epoch.
	stream := newStream(f.source, f.c.InitialEpoch, f.c.StepsPerEpoch)
	defer stream.close()
	first, err := f.resume(ctx, stream)
	if err != nil {
		return err
	}
	for epoch := first; epoch < f.c.Epochs && !f.run.Stop; epoch++ {
		if err := f.epoch(ctx, epoch, stream); err != nil {
			return err
		}
	}
	for _, o := range f.m.training.optimizers {
		if err := optimizers.FinalizeVariables(o); err != nil {
			return err
		}
	}
	return f.run.call(ctx, func(c Callback) func(context.Context, *Run) error { return c.TrainEnd })
}

func (f *fitting) epoch(ctx context.Context, epoch int, stream *stream) error {
	r, t := f.run, f.m.training
	r.Epoch, r.Logs = epoch, nil
	begin, resumed := true, f.resumed
	if f.resumed = false; !resumed {
		r.Step = 0
		if err := f.run.call(ctx, func(c Callback) func(context.Context, *Run) error { return c.EpochBegin }); err != nil {
			return err
		}
		if err := f.ranks.agreeToStop(r); err != nil {
			return err
		}
		if r.Stop {
			return nil
		}
		if f.c.StepsPerEpoch == 0 {
			stream.restart(epoch)
		}
	}
	for (!r.Stop || f.ranks != nil) && (f.c.StepsPerEpoch == 0 || r.Step < f.c.StepsPerEpoch) {
		at := stream.place()
		b, ok, ended, err := f.next(ctx, epoch, stream)
		f.at = Position{stream.at.Epoch, stream.at.Batch - 1}
		switch {
		case ended:
			return f.interrupted(ctx, epoch, at)
		case err != nil:
			return f.broken(ctx, epoch, at, err)
		}
		if !ok {
			break
		}
		if err := f.synchronize(b); err != nil {
			return err
		}
		if begin {
			if err := f.begin(epoch); err != nil {
				return err
			}
			if !resumed {
				if err := t.restart(t.ownTrain, t.train, b); err != nil {
					return err
				}
			}
		}
		begin = false
		r.Batch = b
		done, err := f.step(ctx, b)
		b.Release()
		r.Batch = Batch{}
		switch {
		case err == nil:
		case !done && pipeline.EndedBy(ctx, err):
			return f.interrupted(ctx, epoch, at)
		case !done:
			return f.broken(ctx, epoch, at, err)
		default:
			return err
		}
		if r.SaveEvery > 0 && r.Step%r.SaveEvery == 0 && (!r.Stop || f.ranks != nil) {
			if err := f.save(ctx, epoch, r.Step, stream.at); err != nil {
				return err
			}
		}
	}
	if r.Step == 0 {
		return fmt.Errorf("Fit: %w in epoch %d", ErrEmptyDataset, epoch+1)
	}
	if r.Steps < 0 && !r.Stop {
		r.Steps = r.Step
	}
	if begin { // it was interrupted after its last step
		if err := f.begin(epoch); err != nil {
			return err
		}
	}
	if err := f.finish(ctx, epoch, stream.at); err != nil {
		return err
	}
	if f.c.StepsPerEpoch == 0 {
		return f.save(ctx, epoch+1, 0, Position{Epoch: epoch + 1})
	}
	return f.save(ctx, epoch+1, 0, stream.at)
}

// next reads a batch and makes the model ready for it. ended says that training is
// interrupted: ctx has ended, or that of another rank.
func (f *fitting) next(ctx context.Context, epoch int, stream *stream) (b Batch, ok, ended bool, err error) {
	ended = ctx.Err() != nil
	if !ended && !f.run.Stop {
		b, ok, err = stream.next(f.c.StepsPerEpoch > 0)
		ended = ctx.Err() != nil && (!ok || pipeline.EndedBy(ctx, err)) // which also ends datasets
		switch {
		case ended:
			err = nil
		case err != nil:
			err = fmt.Errorf("Fit: batch %d of epoch %d: %w", f.run.Step+1, epoch+1, err)
		case ok:
			err = f.m.ready(b)
		}
	}
	if f.ranks == nil {
		return b, ok, ended, err
	}
	ok, ended, err = f.ranks.settle(f.run, ok, ended, err)
	return b, ok, ended, err
}

// begin reports that an epoch begins or continues.
func (f *fitting) begin(epoch int) (err error) {
	f.announce()
	f.progress.epoch(epoch+1, f.c.Epochs)
	if t := f.m.training; t.skips() && (f.c.Logger != nil || f.firstScale == 0) {
		f.last, err = t.result()
		if f.firstScale == 0 {
			f.firstScale = f.last.LossScale
		}
	}
	return err
}

// step trains on one batch. Unless it is done nothing has changed.
func (f *fitting) step(ctx context.Context, b Batch) (done bool, err error) {
	if f.journal != nil && !f.journal.begun {
		if _, err := f.m.training.train.MemoryOf(b); err != nil { // records the step, which makes all variables
			return false, err
		}
		if err := f.journalBegins(ctx, b, JournalState{Epoch: f.run.Epoch, Step: f.run.Step, Data: f.at}); err != nil {
			return false, err
		}
	}
	if err := f.run.call(ctx, func(c Callback) func(context.Context, *Run) error { return c.BatchBegin }); err != nil {
		return false, err
	}
	if f.ranks != nil { // ranks stop between two steps
		ctx = context.WithoutCancel(ctx)
	}
	err = f.m.trainOn(ctx, b)
	if err != nil {
		f.ranks.fails()
	}
	if errors.Is(err, errNonFinite) {
		if err := f.run.call(ctx, func(c Callback) func(context.Context, *Run) error { return c.BatchRefused }); err != nil {
			return false, err
		}
		return false, fmt.Errorf("Fit: batch %d of epoch %d: %w%s", f.run.Step+1, f.run.Epoch+1, err, f.reported())
	} else if err != nil {
		return false, err
	}
	return true, f.stepped(ctx, b)
}

// stepped does the work after a step.
func (f *fitting) stepped(ctx context.Context, b Batch) error {
	r, t := f.run, f.m.training
	r.Step++
	if f.journal != nil {
		if err := f.journalStep(ctx, b, f.at); err != nil {
			return err
		}
	}
	if most := f.c.MaxSkipsAtFloor; t.skips() && (f.c.Logger != nil || most > 0 && f.unread <= 1) {
		res, err := t.result()
		if err != nil {
			return err
		}
		_, refused, err := t.guard.counts()
		if err != nil {
			return err
		}
		f.scaled(ctx, res)
		switch {
		case most <= 0:
		case refused >= int64(most):
			return f.giveUp(ctx, b, fmt.Errorf("Fit: %d steps in a row were not finite", refused), f.reported())
		case res.SkipsAtFloor >= int64(most):
			return f.giveUp(ctx, b, fmt.Errorf("Fit: %d steps in a row had gradients that are not finite with the loss scale at its minimum %v", res.SkipsAtFloor, res.LossScale), cmp.Or(f.reported(), "; doctor.Examine finds a remedy (docs/doctor.md)"))
		}
		f.unread = most - int(max(res.SkipsAtFloor, refused))
	} else {
		f.unread--
	}
	if err := f.run.call(ctx, func(c Callback) func(context.Context, *Run) error { return c.BatchEnd }); err != nil {
		return err
	}
	if f.progress.due(r.Step) {
		logs, err := t.read(t.ownTrain, f.logs[:0])
		if err != nil {
			return err
		}
		f.logs = logs
		f.progress.step(r.Step, f.show(logs, nil))
	}
	return nil
}

// reported says where a callback has written why steps are not finite; "" if none has.
func (f *fitting) reported() string {
	if f.run.Report == "" {
		return ""
	}
	return "; see " + f.run.Report
}

// giveUp explains why steps are skipped although the scale cannot fall, or would
// not help. hint ends the message.
func (f *fitting) giveUp(ctx context.Context, b Batch, why error, hint string) error {
	// The totals include non-finite losses, which would hide the first non-finite
	// value.
	if err := f.m.training.reset(f.m.training.ownTrain); err != nil {
		return err
	}
	first, err := f.m.training.train.FirstNonFinite(ctx, b)
	switch {
	case err != nil:
		return err
	case first == nil:
		return fmt.Errorf("%w%s", why, hint)
	}
	return fmt.Errorf("%w: %w%s", why, inBatch(first, b), hint)
}

// inBatch renames an argument of a step to its name in the batch.
func inBatch(n *tensor.NonFinite, b Batch) *tensor.NonFinite {
	i := n.Argument
	if i < 0 {
		return n
	}
	for _, part := range []struct {
		name string
		t    *Tensor
	}{{"X", b.X}, {"Y", b.Y}, {"Weight", b.Weight}} {
		switch {
		case part.t == nil:
		case i >= part.t.Len():
			i -= part.t.Len()
		case part.t.IsTuple():
			n.Path = fmt.Sprintf("%s[%d] of the batch", part.name, i)
			return n
		default:
			n.Path = part.name + " of the batch"
			return n
		}
	}
	return n
}

// finish ends an epoch; at is where the next one goes on in the data with
// StepsPerEpoch.
func (f *fitting) finish(ctx context.Context, epoch int, at Position) error {
	r, t := f.run, f.m.training
	logs, err := f.ranks.read(t, t.ownTrain)
	if err != nil {
		return err
	}
	var validated Logs
	if f.validation != nil && (epoch+1)%f.c.ValidationFreq == 0 {
		totals, err := ArraysOf(t) // which the validation uses for its own
		if err != nil {
			return err
		}
		if validated, err = f.validate(ctx); err != nil {
			if e := SetArrays(totals, t); e != nil {
				return errors.Join(err, e)
			}
			if !pipeline.EndedBy(ctx, err) && !errors.Is(err, distribution.ErrStopped) {
				return f.broken(ctx, epoch, at, err)
			}
			return f.interrupted(ctx, epoch, at)
		}
	}
	f.progress.finish(f.show(logs, validated))
	last, err := f.lastStep()
	if err != nil {
		return err
	}
	r.Logs = slices.Concat(logs, validated, last)
	err = f.run.call(ctx, func(c Callback) func(context.Context, *Run) error { return c.EpochEnd })
	err = f.run.settle(ctx, err, func(c Callback) func(context.Context, *Run) error { return c.EpochDone })
	if err != nil {
		return err
	}
	if err := f.ranks.agreeToStop(r); err != nil {
		return err
	}
	f.event(ctx, slog.LevelInfo, "epoch done", r.Logs.attrs()...)
	f.h.Epochs = append(f.h.Epochs, epoch)
	f.h.Logs = append(f.h.Logs, r.Logs)
	return nil
}

// validate judges the model on the validation data.
func (f *fitting) validate(ctx context.Context) (Logs, error) {
	err := f.run.call(ctx, func(c Callback) func(context.Context, *Run) error { return c.TestBegin })
	var logs Logs
	if err == nil {
		logs, err = f.m.evaluate(ctx, *f.validation, f.c.ValidationSteps, f.ranks)
	}
	for i := range logs {
		logs[i].Name = "val_" + logs[i].Name
	}
	return logs, f.run.settle(ctx, err, func(c Callback) func(context.Context, *Run) error { return c.TestEnd })
}

// lastStep returns the logs of an epoch that describe its last step.
func (f *fitting) lastStep() (Logs, error) {
	t := f.m.training
	var logs Logs
	for i, o := range t.optimizers {
		prefix := ""
		res, err := t.result() // which counts steps of all optimizers
		if i > 0 {
			prefix = t.nameOf(i) + "_"
			res, err = optimizers.Result(o)
		}
		if err != nil {
			return nil, err
		}
		if _, ok := o.(*optimizers.LossScaleOptimizer); ok {
			logs = append(logs, Log{prefix + "loss_scale", res.LossScale})
		}
		if i == 0 && t.skips() {
			logs = append(logs, Log{"skipped_steps", float64(res.SkippedSteps)})
		}
		if _, ok := o.(optimizers.Reporter); ok {
			logs = append(logs, Log{prefix + "gradient_norm", res.GradientNorm})
		}
		rate, err := optimizers.CurrentLearningRate(o)
		switch {
		case errors.Is(err, errors.ErrUnsupported):
		case err != nil:
			return nil, err
		default:
			logs = append(logs, Log{prefix + "learning_rate", rate})
		}
	}
	return logs, nil
}

// show returns the items of the progress line for logs: the loss scale is among them
// once it has changed in this Fit, the number of skipped steps once it is not 0.
func (f *fitting) show(logs, validated Logs) []logItem {
	f.items = f.items[:0]
	for _, l := range logs {
		f.items = append(f.items, logItem{Name: l.Name, Value: l.Value})
	}
	if t := f.m.training; t.skips() {
		if res, err := t.result(); err == nil {
			if res.LossScale != f.firstScale {
				f.items = append(f.items, logItem{Name: "loss_scale", Text: "loss_scale: " + strconv.FormatFloat(res.LossScale, 'f', -1, 64)})
			}
			if res.SkippedSteps > 0 {
				f.items = append(f.items, logItem{Name: "skipped", Text: "skipped: " + strconv.FormatInt(res.SkippedSteps, 10)})
			}
		}
	}
	for _, l := range validated {
		f.items = append(f.items, logItem{Name: l.Name, Value: l.Value})
	}
	return f.items
}

func (v Verbosity) mode() int {
	return [...]int{VerbosityAuto: progressAuto, VerbositySilent: progressSilent, VerbosityBar: progressBar, VerbosityLines: progressLine}[v]
}
