package keras

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"time"

	"github.com/mezzo-ml/mezzo/backend/op"
	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/keras/internal/pipeline"
)

// Checkpointer stores the states of a training so that a later Fit can resume
// it; checkpoint.Directory is one. If it is also a Locker, Fit locks it while
// it runs.
type Checkpointer interface {
	// Load returns the newest state that was kept, nil when there is none.
	Load(ctx context.Context) (*State, error)
	// Save keeps a state. It must be safe on return: what happens to the
	// process afterwards must not touch it.
	Save(ctx context.Context, s *State) error
}

// Locker is a Checkpointer that only one training at a time may use.
type Locker interface {
	// Lock keeps others out until release is called; it fails when another
	// training is there, or when nothing can be kept.
	Lock() (release func() error, err error)
}

// State is a training between two steps: everything that later steps depend
// on, except the program itself and its data. Fit passes it to a Checkpointer
// and resumes from it with the same bits as a training without interruption.
type State struct {
	Epoch   int      // of the next step, 0-based
	Step    int      // steps of that epoch that are done
	Stopped bool     // a callback has ended training
	Data    Position // where the dataset is read on
	Setup   RunConfig
	History History // of the epochs that are done

	Callbacks []CallbackState // of those with Save, in order
	Model     []Array         // weights and states of random numbers
	Optimizer []Array         // slots, iterations, learning rate, averages, accumulators, the loss scale and its counters
	Metrics   []Array         // totals of loss and metrics
	Parts     []Array         // of CompileConfig.Parts

	Skipped, SkippedInRow int64 // steps that NonFiniteSkip left out: all, and those since the last that it did not

	Validated bool   // whether Fit validates epochs, or some of them; not kept
	From      string // where Load has found the state, for messages; not kept
}

// Position is a place in a dataset: after the first Batch batches of an epoch.
type Position struct{ Epoch, Batch int }

// RunConfig has the arguments of Fit that must be the same when a training is
// resumed.
type RunConfig struct {
	BatchSize     int
	StepsPerEpoch int
	Shuffle       bool
	Seed          uint64
	Batches       int // of an epoch of the dataset, -1: unknown
	Shards        int `json:",omitempty"` // of a batch, with a Distribution; the number of ranks may change
}

// CallbackState is the state of a callback in a checkpoint.
type CallbackState struct {
	Name   string          // Callback.Name, which Fit fills in; the n-th state of a name goes to the n-th callback of it
	Data   json.RawMessage // of any form
	Arrays []Array
}

// Array is the value of a variable: its elements in row-major order,
// little-endian.
type Array struct {
	Name string
	Type op.Type
	Data []byte
}

// ArraysOf returns the values of all variables of the owners, in order.
func ArraysOf(owners ...Stateful) ([]Array, error) {
	var vs []*Variable
	for _, o := range owners {
		vs = append(vs, o.Variables()...)
	}
	data, err := tensor.BytesOf(vs...)
	if err != nil {
		return nil, err
	}
	all := make([]Array, len(vs))
	for i, v := range vs {
		all[i] = Array{v.Name(), v.Type(), data[i]}
	}
	return all, nil
}

// SetArrays assigns arrays, as ArraysOf returned them, to the variables of the
// owners. Names and types must agree; if they do not, SetArrays returns an
// error and no variable changes.
func SetArrays(arrays []Array, owners ...Stateful) error {
	var vs []*Variable
	for _, o := range owners {
		vs = append(vs, o.Variables()...)
	}
	if err := match(arrays, vs); err != nil {
		return err
	}
	data := make([][]byte, len(vs))
	for i := range vs {
		data[i] = arrays[i].Data
	}
	return tensor.SetBytesOf(vs, data)
}

// match checks that arrays are values of the variables.
func match(arrays []Array, vs []*Variable) error {
	for i, v := range vs {
		if i >= len(arrays) {
			return fmt.Errorf("got %d variables, want %d: %s is missing", len(arrays), len(vs), v.Name())
		}
		a := arrays[i]
		if a.Name != v.Name() || !a.Type.Equal(v.Type()) {
			return fmt.Errorf("variable %d: got %s %v, want %s %v", i, a.Name, a.Type, v.Name(), v.Type())
		}
		if n := v.Type().Bytes(); len(a.Data) != n {
			return fmt.Errorf("variable %d, %s: got %d bytes, want %d", i, a.Name, len(a.Data), n)
		}
	}
	if len(arrays) > len(vs) {
		return fmt.Errorf("got %d variables, want %d: there is no %s", len(arrays), len(vs), arrays[len(vs)].Name)
	}
	return nil
}

func (f *fitting) setup() RunConfig {
	shards := 0
	if d := f.m.training.config.Distribution; d != nil {
		shards = d.ShardsOfBatch()
	}
	return RunConfig{
		Shards:        shards,
		BatchSize:     f.c.BatchSize,
		StepsPerEpoch: f.c.StepsPerEpoch,
		Shuffle:       f.c.Shuffle == nil || *f.c.Shuffle,
		Seed:          f.c.Seed,
		Batches:       f.source.steps,
	}
}

// save hands the state of the training to the Checkpointer, if there is one.
// The next step is step of epoch.
func (f *fitting) save(ctx context.Context, epoch, step int, at Position) error {
	if f.run.Checkpoint == nil {
		return nil
	}
	totals, err := f.ranks.totals(f.m.training)
	if err != nil {
		return err
	}
	begun := time.Now()
	slots, err := f.ranks.whole(f.m.training.optimizer)
	if err != nil {
		return err
	}
	if f.ranks.first() {
		err = f.saveState(ctx, &State{Optimizer: slots, Epoch: epoch, Step: step, Stopped: f.run.Stop, Data: at, Setup: f.setup(), History: *f.h, Validated: f.validation != nil}, totals)
	}
	if err = f.ranks.agree(err); err != nil {
		return err
	}
	f.saved = true
	f.event(ctx, slog.LevelInfo, "checkpoint saved", slog.Duration("took", time.Since(begun)))
	return nil
}

// saveState completes a state and hands it to the Checkpointer.
func (f *fitting) saveState(ctx context.Context, s *State, totals []Array) (err error) {
	for _, c := range f.c.Callbacks {
		if c.Save == nil {
			continue
		}
		state, err := c.Save()
		if err != nil {
			return fmt.Errorf("callback %s: %w", c.Name, err)
		}
		state.Name = c.Name
		s.Callbacks = append(s.Callbacks, state)
	}
	if s.Skipped, s.SkippedInRow, err = f.m.training.guard.counts(); err != nil {
		return err
	}
	for _, p := range f.parts(s) {
		if *p.values != nil {
			continue
		}
		if *p.values, err = ArraysOf(p.owner); err != nil {
			return err
		}
	}
	s.Metrics = totals
	if err := f.journalSaving(ctx, s.Epoch, s.Step, s.Data); err != nil {
		return err
	}
	// Also if ctx has ended meanwhile: completed steps are worth keeping.
	if err := f.run.Checkpoint.Save(context.WithoutCancel(ctx), s); err != nil {
		return fmt.Errorf("Fit: %w", err)
	}
	return nil
}

// resume brings the training to the newest state that was kept. It returns the
// epoch to go on with.
func (f *fitting) resume(ctx context.Context, stream *stream) (epoch int, err error) {
	if f.run.Checkpoint == nil {
		return f.c.InitialEpoch, nil
	}
	s, err := f.run.Checkpoint.Load(ctx)
	if s, err = f.ranks.broadcast(s, err); err != nil {
		return 0, fmt.Errorf("Fit: %w", err)
	}
	if s == nil {
		return f.c.InitialEpoch, nil
	}
	from := ""
	if s.From != "" {
		from = " from " + s.From
	}
	if err := s.Setup.check(f.setup()); err != nil {
		return 0, fmt.Errorf("Fit: resuming%s: %w", from, err)
	}
	// Slots of the optimizer exist only once a step was recorded, which takes a
	// batch. It must be the first that is read, so that the dataset is opened
	// no oftener than without the resumption.
	stream.seek(s.Data)
	b, ok, err := stream.peek()
	switch {
	case ctx.Err() != nil && (!ok || pipeline.EndedBy(ctx, err)):
		f.run.Epoch, f.run.Step = s.Epoch, s.Step
		return 0, f.told(ctx, &Interrupted{Epoch: s.Epoch, Step: s.Step, Saved: true, Err: pipeline.Ended(ctx)})
	case err != nil:
		return 0, fmt.Errorf("Fit: first batch after resuming: %w", err)
	case !ok:
		return 0, fmt.Errorf("Fit: %w in epoch %d", ErrEmptyDataset, s.Data.Epoch+1)
	}
	if err := f.m.ready(b); err != nil {
		return 0, err
	}
	if _, err := f.m.training.train.MemoryOf(b); err != nil {
		return 0, err
	}
	if err := f.restore(s); err != nil {
		return 0, fmt.Errorf("Fit: resuming%s: %w", from, err)
	}
	if !f.ranks.first() { // rank 0 has the totals of all
		if err := f.ranks.clear(f.m.training); err != nil {
			return 0, err
		}
	}
	if f.journal != nil {
		if err := f.journalBegins(ctx, b, JournalState{Epoch: s.Epoch, Step: s.Step, Data: s.Data, Resumed: true}); err != nil {
			return 0, err
		}
	}
	f.h.Epochs, f.h.Logs = s.History.Epochs, s.History.Logs
	f.run.Stop, f.run.Epoch, f.run.Step = f.run.Stop || s.Stopped, s.Epoch, s.Step
	f.resumed, f.saved = s.Step > 0, true
	f.event(ctx, slog.LevelInfo, "training resumed")
	return s.Epoch, nil
}

// restore gives variables and callbacks their values.
func (f *fitting) restore(s *State) (err error) {
	parts := f.parts(s)
	if s.Optimizer, err = ownParts(s.Optimizer, f.m.training.optimizer); err != nil {
		return fmt.Errorf("optimizer: %w", err)
	}
	for _, p := range parts { // all before the first is changed
		if err := match(*p.values, p.owner.Variables()); err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
	}
	for _, p := range parts {
		if err := SetArrays(*p.values, p.owner); err != nil {
			return err
		}
	}
	if err := f.m.training.guard.set(s.Skipped, s.SkippedInRow); err != nil {
		return err
	}
	left := slices.Clone(s.Callbacks)
	for _, c := range f.c.Callbacks {
		i := slices.IndexFunc(left, func(s CallbackState) bool { return s.Name == c.Name })
		if c.Load == nil || i < 0 {
			continue
		}
		if err := c.Load(left[i]); err != nil {
			return fmt.Errorf("callback %s: %w", c.Name, err)
		}
		left = slices.Delete(left, i, i+1)
	}
	return nil
}

// section is a part of a training that has variables.
type section struct {
	name   string
	owner  Stateful
	values *[]Array
}

func (f *fitting) parts(s *State) []section {
	t := f.m.training
	return []section{{"model", f.m, &s.Model}, {"optimizer", t.optimizer, &s.Optimizer}, {"metrics", t, &s.Metrics}, {"parts", t.others(), &s.Parts}}
}

// check compares the setup of a checkpoint with that of the Fit to resume.
func (s RunConfig) check(now RunConfig) error {
	for _, f := range []struct {
		name      string
		then, now any
	}{
		{"BatchSize", s.BatchSize, now.BatchSize},
		{"StepsPerEpoch", s.StepsPerEpoch, now.StepsPerEpoch},
		{"Shuffle", s.Shuffle, now.Shuffle},
		{"Seed", s.Seed, now.Seed},
		{"the number of batches", s.Batches, now.Batches},
		{"the number of shards of a batch", s.Shards, now.Shards},
	} {
		if f.then != f.now {
			return &RunConfigError{f.name, f.now, f.then}
		}
	}
	return nil
}

// jsonLog is a Log in JSON, which has no NaN and no infinities.
type jsonLog struct {
	Name  string
	Value string
}

// MarshalJSON writes the value as text that reads back to the same bits.
func (l Log) MarshalJSON() ([]byte, error) {
	return json.Marshal(jsonLog{l.Name, strconv.FormatFloat(l.Value, 'g', -1, 64)})
}

// UnmarshalJSON reads what MarshalJSON has written.
func (l *Log) UnmarshalJSON(b []byte) error {
	var j jsonLog
	if err := json.Unmarshal(b, &j); err != nil {
		return err
	}
	x, err := strconv.ParseFloat(j.Value, 64)
	if err != nil {
		return fmt.Errorf("log %s: got %q, want a number", j.Name, j.Value)
	}
	*l = Log{j.Name, x}
	return nil
}
