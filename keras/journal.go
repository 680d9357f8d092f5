package keras

import (
	"context"
	"fmt"
	"hash/fnv"
	"math"
	"slices"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/keras/metrics"
)

// Journaler keeps a record of each step of a training; journal.File of package
// keras/journal is one. If a method returns an error, Fit returns it.
type Journaler interface {
	// Begin is called once in a Fit, before its first step. It returns how many steps of
	// the training are done: 0, or when it is resumed those that Saving has told of for
	// the state it is resumed from.
	Begin(ctx context.Context, r *Run, s JournalState) (done int64, err error)
	// Step is called after each step, before BatchEnd.
	Step(ctx context.Context, r *Run, s JournalStep) error
	// Saving is called before a state is given to the Checkpointer.
	Saving(ctx context.Context, r *Run, s JournalState) error
	// End is called when Fit ends, also when Begin was not called.
	End() error
}

// JournalStep has checksums of a step of Fit. Equal bits have equal checksums.
type JournalStep struct {
	Number int64    // of the step, from 1 on, over all epochs
	Epoch  int      // 0-based
	Step   int      // of the epoch, from 1 on
	Data   Position // of its batch

	Inputs  uint64 // of the batch: X, Y and Weight; of a tensor of more than 128 KiB of a part, all parts in turn
	Weights uint64 // of a part of the model's variables after the step, see Parts
	Slots   uint64 // of a part of the optimizer's variables and CompileConfig.Parts
	Random  uint64 // of the states of random numbers
	Totals  uint64 // of the totals of loss and metrics; 0 with several ranks

	Loss         float64 // mean of the epoch so far; NaN where there is none, or with several ranks
	LossScale    float64 // of the next step; 1 without one
	GradientNorm float64 // L2 norm of all gradients, unscaled; NaN where the optimizer tells none
}

// JournalState has checksums of the whole state of a training between two steps.
type JournalState struct {
	Number int64 // steps done, over all epochs; at Begin of a resumed training unknown: 0
	Epoch  int   // of the next step, 0-based
	Step   int   // steps of that epoch that are done
	Data   Position

	Weights, Slots, Random, Totals uint64
	LossScale                      float64

	// Of Begin:
	Resumed bool // from a state of the Checkpointer
	Setup   RunConfig
	Ranks   int    // processes that train
	Model   uint64 // checksum of the names and types of all variables
	Program uint64 // checksum of the compiled step: it depends on the device, too
	// The parts that the variables of model and optimizer are in. Step n has the checksum of
	// part n modulo the number of parts, counted from 0.
	WeightParts, SlotParts int
}

// mostParts is how many steps it takes at most until every element was part of a step's
// checksums. A step reads and writes weights and slots several times. So it moves
// several hundred times as many bytes as are hashed for the journal.
const mostParts = 64

// mostInputs is how many bytes of a tensor of the batch are hashed. A step of a small network
// reads a large batch in little more time than a hash of all of it.
const mostInputs = 128 << 10

// journaling is what Fit does for a Journaler.
type journaling struct {
	to             Journaler
	begun          bool
	done           int64
	weights, slots *tensor.Checksums
	random, totals *tensor.Checksums
	logs           int // of a TrainStep, whose totals these are
	inputs         []*Tensor
}

// partsOf is the number of parts of blocks.
func partsOf(b *tensor.Checksums) int { return min(max(b.Len(), 1), mostParts) }

// JournalPart returns which blocks JournalStep.Weights of a step, or JournalStep.Slots, is the
// checksum of.
func JournalPart(b *tensor.Checksums, step int64) (from, to int) {
	n := int64(partsOf(b))
	i := int(step % n)
	return i * b.Len() / int(n), (i + 1) * b.Len() / int(n)
}

// JournalChecksums returns the variables of which JournalStep.Weights and JournalStep.Slots
// are checksums. The model must be compiled, and its step recorded.
func (m *Model) JournalChecksums() (weights, slots *tensor.Checksums) {
	t := m.training
	own := slices.Concat(t.optimizer.Variables(), t.others().Variables())
	if t.guard != nil {
		own = append(own, t.guard.Variables()...)
	}
	// Parts of slots that are divided among ranks are those of this rank alone.
	own = slices.DeleteFunc(own, divided)
	return tensor.ChecksumsOf(m.Variables()...), tensor.ChecksumsOf(own...)
}

// begin tells the Journaler the state before the first step. The step is recorded.
func (f *fitting) journalBegins(ctx context.Context, b Batch, s JournalState) (err error) {
	j, m := f.journal, f.m
	j.weights, j.slots = m.JournalChecksums()
	var states []*Variable
	for _, v := range m.Variables() {
		if !v.Trainable() && v.DType() == dtype.Int64 {
			states = append(states, v)
		}
	}
	j.random = tensor.ChecksumsOf(states...)
	if err := f.journalState(ctx, &s); err != nil {
		return err
	}
	s.Setup, s.Ranks = f.setup(), 1
	if f.ranks != nil {
		s.Ranks = f.ranks.Size()
	}
	s.WeightParts, s.SlotParts = partsOf(j.weights), partsOf(j.slots)
	s.Model = j.model(m)
	plan, err := m.training.train.Plan(b)
	if err != nil {
		return err
	}
	s.Program = hashText(plan.String())
	if j.done, err = j.to.Begin(ctx, f.run, s); err != nil {
		return fmt.Errorf("Fit: journal: %w", err)
	}
	j.begun = true
	return nil
}

// model is the checksum of names and types.
func (j *journaling) model(m *Model) uint64 {
	text := ""
	for _, v := range slices.Concat(m.Variables(), m.training.optimizer.Variables(), m.training.others().Variables()) {
		whole := v.Type()
		if p, t := v.Partition(); p != nil {
			whole = t
		}
		text += fmt.Sprintln(v.Name(), whole, v.Trainable())
	}
	return hashText(text)
}

func hashText(text string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(text))
	return h.Sum64()
}

// journalState fills in the checksums of a state.
func (f *fitting) journalState(ctx context.Context, s *JournalState) (err error) {
	j, t := f.journal, f.m.training
	if s.Weights, err = j.weights.Sum(ctx, 0, j.weights.Len()); err != nil {
		return err
	}
	if s.Slots, err = j.slots.Sum(ctx, 0, j.slots.Len()); err != nil {
		return err
	}
	if s.Random, err = j.random.Sum(ctx, 0, j.random.Len()); err != nil {
		return err
	}
	if s.Totals, err = f.journalTotals(ctx); err != nil {
		return err
	}
	res, err := t.result()
	s.LossScale = res.LossScale
	return err
}

// journalTotals is the checksum of the totals of loss and metrics. Each rank has its own.
func (f *fitting) journalTotals(ctx context.Context) (uint64, error) {
	if f.ranks != nil {
		return 0, nil
	}
	j, t, logs := f.journal, f.m.training, 0
	if t.ownTrain != nil {
		logs = len(t.ownTrain.logs) // more after other recordings of the step
	}
	if j.totals == nil || j.logs != logs {
		j.totals, j.logs = tensor.ChecksumsOf(t.Variables()...), logs
	}
	return j.totals.Sum(ctx, 0, j.totals.Len())
}

// journalStep tells the Journaler of a step that is done; at is where its batch was.
func (f *fitting) journalStep(ctx context.Context, b Batch, at Position) (err error) {
	j, t := f.journal, f.m.training
	j.done++
	s := JournalStep{Number: j.done, Epoch: f.run.Epoch, Step: f.run.Step, Data: at, Loss: math.NaN()}
	j.inputs = b.tensors(j.inputs[:0])
	if s.Inputs, err = tensor.PartialChecksum(ctx, j.done, mostInputs, j.inputs...); err != nil {
		return err
	}
	clear(j.inputs)
	sum := func(b *tensor.Checksums) (sum uint64) {
		if err == nil {
			from, to := JournalPart(b, j.done)
			sum, err = b.Sum(ctx, from, to)
		}
		return sum
	}
	s.Weights, s.Slots = sum(j.weights), sum(j.slots)
	if err == nil {
		s.Random, err = j.random.Sum(ctx, 0, j.random.Len())
	}
	if err == nil {
		s.Totals, err = f.journalTotals(ctx)
	}
	if err != nil {
		return err
	}
	if f.ranks == nil {
		t.each(t.ownTrain, func(name string, m metrics.Accumulator) {
			if name == "loss" && err == nil {
				s.Loss, err = m.Result()
			}
		})
		if err != nil {
			return err
		}
	}
	res, err := t.result()
	if err != nil {
		return err
	}
	s.LossScale, s.GradientNorm = res.LossScale, res.GradientNorm
	if err := j.to.Step(ctx, f.run, s); err != nil {
		return fmt.Errorf("Fit: journal: %w", err)
	}
	return nil
}

// journalSaving tells the Journaler of a state that is saved.
func (f *fitting) journalSaving(ctx context.Context, epoch, step int, at Position) error {
	if f.journal == nil || !f.journal.begun {
		return nil
	}
	s := JournalState{Number: f.journal.done, Epoch: epoch, Step: step, Data: at}
	if err := f.journalState(ctx, &s); err != nil {
		return err
	}
	if err := f.journal.to.Saving(ctx, f.run, s); err != nil {
		return fmt.Errorf("Fit: journal: %w", err)
	}
	return nil
}
