package journal

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"slices"

	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/checkpoint"
)

// Training is a training that can be made again: a compiled model, its data, and the
// arguments of Fit. Config must have no Checkpoint and no Journal.
type Training struct {
	Model  *keras.Model
	Data   keras.Dataset
	Config keras.FitConfig
	Keep   int // the newest checkpoints to keep; default: all, so that every step can be replayed from one near it
}

// Program makes a training anew from the arguments of a command line. The
// same arguments must make the same training, whatever the process did before.
type Program func(args []string) (*Training, error)

func (p Program) make(args []string) (*Training, error) {
	t, err := p(slices.Clone(args))
	switch {
	case err != nil:
		return nil, err
	case t == nil || t.Model == nil || t.Data == nil:
		return nil, errors.New("journal: the program made no training: Model or Data is nil")
	case t.Config.Checkpoint != nil || t.Config.Journal != nil:
		return nil, errors.New("journal: the training has a Checkpoint or a Journal; both are set by the command")
	}
	return t, nil
}

// Names of what is in the directory of a training.
const (
	journalName    = "journal.mzj"
	checkpointName = "checkpoints"
)

// Train trains with a journal and checkpoints in dir, or resumes the training that is
// there.
func Train(ctx context.Context, p Program, dir string, args []string) (*keras.History, error) {
	t, err := p.make(args)
	if err != nil {
		return nil, err
	}
	c := t.Config
	c.Journal = &File{Path: filepath.Join(dir, journalName), Args: args}
	c.Checkpoint = &checkpoint.Directory{Path: filepath.Join(dir, checkpointName), Keep: cmp.Or(t.Keep, math.MaxInt32)}
	return t.Model.Fit(ctx, t.Data, c)
}

// recording is what is known of a training: its journal and its checkpoints.
type recording struct {
	dir   string
	log   *Log
	files []saved // in order of their steps
}

// saved is a checkpoint that the journal knows.
type saved struct {
	path  string
	state State
}

func open(dir string) (*recording, error) {
	l, err := Load(filepath.Join(dir, journalName))
	if err != nil {
		return nil, err
	}
	r := &recording{dir: dir, log: l}
	files, err := (&checkpoint.Directory{Path: filepath.Join(dir, checkpointName)}).Files()
	if err != nil {
		return nil, err
	}
	for _, path := range files {
		var epoch, step int
		if _, err := fmt.Sscanf(filepath.Base(path), "epoch-%d-step-%d.ckpt", &epoch, &step); err != nil {
			continue
		}
		if s, ok := l.saved(epoch, step); ok {
			r.files = append(r.files, saved{path, s})
		}
	}
	return r, nil
}

// nearest is the last checkpoint with at most n steps done; nil means that a replay begins
// with the training.
func (r *recording) nearest(n int64) *saved {
	var best *saved
	for i := range r.files {
		if r.files[i].state.Number <= n {
			best = &r.files[i]
		}
	}
	return best
}

// begin is the state that a replay from a checkpoint begins with.
func (r *recording) begin(from *saved) State {
	if from != nil {
		return from.state
	}
	return r.log.States[0]
}

// errReached ends a replay.
var errReached = errors.New("the replay is done")

// replay is a Fit that computes steps of a training again. It is the Fit's Journaler and
// Checkpointer.
type replay struct {
	training *Training
	from     *saved // nil: the beginning
	begin    State  // as the journal has it
	ranks    int    // of the journal
	until    int64  // the last step

	// before stops the replay before step number until, with its batch in batch.
	before bool
	batch  keras.Batch

	step func(r *keras.Run, s Step) error // sees each step

	whole *State // if set, the replay ends when this state is saved, after step until

	done    int64
	all     bool     // the fields that depend on the number of ranks can be compared
	differs []string // of the state that the replay began with, from the journal
	ended   []string // the same of whole
}

// run computes the steps. It returns nil when the last one was reached.
func (p *replay) run(ctx context.Context) error {
	c := p.training.Config
	c.Output, c.Verbose, c.Logger = io.Discard, keras.VerbositySilent, nil
	c.Checkpoint, c.Journal = p, p
	// Callbacks that only write files would write over those of the training.
	c.Callbacks = slices.DeleteFunc(slices.Clone(c.Callbacks), func(c keras.Callback) bool { return c.FirstRankOnly })
	if p.before {
		c.Callbacks = append(c.Callbacks, keras.Callback{BatchBegin: func(_ context.Context, r *keras.Run) (err error) {
			if p.done+1 < p.until {
				return nil
			}
			if p.batch, err = r.Batch.Clone(); err != nil {
				return err
			}
			return errReached
		}})
	}
	_, err := p.training.Model.Fit(ctx, p.training.Data, c)
	switch {
	case errors.Is(err, errReached):
		return nil
	case err != nil:
		return fmt.Errorf("journal: replay: %w", err)
	}
	return fmt.Errorf("journal: replay: the training ends after step %d, want step %d", p.done, p.until)
}

// Load implements keras.Checkpointer.
func (p *replay) Load(context.Context) (*keras.State, error) {
	if p.from == nil {
		return nil, nil
	}
	s, err := checkpoint.Load(p.from.path)
	if err == nil {
		s.From = p.from.path
	}
	return s, err
}

// Save implements keras.Checkpointer.
func (p *replay) Save(context.Context, *keras.State) error { return nil }

// Begin implements keras.Journaler.
func (p *replay) Begin(_ context.Context, _ *keras.Run, s keras.JournalState) (int64, error) {
	p.done, p.all = p.begin.Number, s.Ranks == p.ranks
	p.differs = p.begin.differs(stateOf(s), p.all)
	if (p.until <= p.done || len(p.differs) > 0) && !p.before {
		return p.done, errReached
	}
	return p.done, nil
}

// Step implements keras.Journaler.
func (p *replay) Step(_ context.Context, r *keras.Run, s Step) error {
	p.done = s.Number
	if p.step != nil {
		if err := p.step(r, s); err != nil {
			return err
		}
	}
	if p.done >= p.until && !p.before && p.whole == nil {
		return errReached
	}
	return nil
}

// Saving implements keras.Journaler.
func (p *replay) Saving(_ context.Context, _ *keras.Run, s keras.JournalState) error {
	if p.whole == nil || s.Number < p.until {
		return nil
	}
	if o := stateOf(s); o.compare(*p.whole) == 0 {
		p.ended = p.whole.differs(o, p.all)
	}
	return errReached
}

// End implements keras.Journaler.
func (p *replay) End() error { return nil }

// Mismatch is a step of a replay that differs from the journal.
type Mismatch struct {
	Step   int64 // 0: the state that the replay began with
	Fields []string
}

// Replayed is what a replay found.
type Replayed struct {
	From, To   int64  // steps From+1 … To were computed
	Checkpoint string // that the replay began from; "" for the beginning of the training
	First      *Mismatch
	Model      *keras.Model // in the state after step To, or after the first mismatch
}

// Replay computes the steps of the training in dir from the nearest checkpoint to step n
// again and compares each with the journal. It stops at the first mismatch.
func Replay(ctx context.Context, p Program, dir string, n int64) (*Replayed, error) {
	r, err := open(dir)
	if err != nil {
		return nil, err
	}
	if _, err := r.log.Step(n); err != nil {
		return nil, err
	}
	return r.replay(ctx, p, r.nearest(n-1), n, nil)
}

// replay computes steps from a checkpoint to step n, and compares the state after it with
// whole if that is given.
func (r *recording) replay(ctx context.Context, p Program, from *saved, n int64, whole *State) (*Replayed, error) {
	session := r.log.sessionOf(n)
	t, err := p.make(session.Args)
	if err != nil {
		return nil, err
	}
	out := &Replayed{From: r.begin(from).Number, To: n, Model: t.Model}
	if from != nil {
		out.Checkpoint = from.path
	}
	run := &replay{training: t, from: from, begin: r.begin(from), ranks: session.Ranks, until: n, whole: whole}
	run.step = func(_ *keras.Run, s Step) error {
		if s.Number > n { // an interrupted training was saved after step n
			return errReached
		}
		if d := differs(r.log.Steps[s.Number-1], s, run.all); len(d) > 0 {
			out.First = &Mismatch{s.Number, d}
			return errReached
		}
		return nil
	}
	if err := run.run(ctx); err != nil {
		return nil, err
	}
	switch {
	case len(run.differs) > 0:
		out.First = &Mismatch{0, run.differs}
	case len(run.ended) > 0:
		out.First = &Mismatch{n, run.ended}
	}
	return out, nil
}

// sessionOf is the session that has computed step n: its last one.
func (l *Log) sessionOf(n int64) *Session {
	for i, begin := range slices.Backward(l.Begins) {
		if begin < n {
			return &l.Sessions[i]
		}
	}
	return &l.Sessions[0]
}
