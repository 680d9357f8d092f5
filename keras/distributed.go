package keras

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"slices"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/op"
	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/keras/distribution"
	"github.com/mezzo-ml/mezzo/keras/internal/pipeline"
)

// rowsOf returns the number of samples of a batch.
func rowsOf(b Batch) int {
	for _, t := range b.tensors(nil) {
		if t.Rank() > 0 {
			return t.Dim(0)
		}
	}
	tensor.Fail("DataParallel", "the batch has no tensor with an axis of samples")
	return 0
}

// rows returns rows first to end-1 of the tensors of a batch.
func (b Batch) rows(first, end int) Batch {
	n := rowsOf(b)
	slice := func(t *Tensor) *Tensor {
		if t == nil || first == 0 && end == n {
			return t
		}
		parts := slices.Clone(t.Unpack())
		for i, p := range parts {
			if p.Rank() == 0 || p.Dim(0) != n {
				tensor.Fail("DataParallel", "a tensor of the batch is %v, want an axis of %d samples in front", p.Type(), n)
			}
			parts[i] = p.Slice(0, first, end)
		}
		if !t.IsTuple() {
			return parts[0]
		}
		return tensor.Tuple(parts...)
	}
	return Batch{X: slice(b.X), Y: slice(b.Y), Weight: slice(b.Weight)}
}

// testShare is testStep on this rank's rows.
func (m *Model) testShare(b Batch) none {
	first, end := m.shareOf(rowsOf(b))
	if first == end {
		return none{}
	}
	return m.testStep(b.rows(first, end))
}

// shareOf returns the rows of a batch that testShare uses.
func (m *Model) shareOf(rows int) (first, end int) {
	g := m.training.config.Distribution.Ranks()
	return op.ShardsOf(g.Rank(), g.Size(), rows)
}

// ranks is what Fit does with the other ranks of a group. nil: there are none, and its
// methods do what one process does.
type ranks struct {
	*distribution.Group
	synchronized bool // all ranks have rank 0's variables
	failed       bool // no collective call may follow
}

// distribute changes the arguments of Fit for a rank: only rank 0 writes.
func (m *Model) distribute(c *FitConfig) *ranks {
	d := m.training.config.Distribution
	if d == nil || d.Ranks().Size() == 1 {
		return nil
	}
	g := d.Ranks()
	if g.Rank() != 0 {
		c.Output, c.Verbose, c.Logger, c.Journal = io.Discard, VerbositySilent, nil, nil
		c.Callbacks = slices.DeleteFunc(slices.Clone(c.Callbacks), func(c Callback) bool { return c.FirstRankOnly })
		if c.Checkpoint != nil {
			c.Checkpoint = follower{}
		}
	}
	// Where nobody else looks at a batch a rank reads its own rows alone.
	if t := m.training; t.ownTrain == nil && t.ownTest == nil && c.Journal == nil && !slices.ContainsFunc(c.Callbacks, Callback.seesBatches) {
		c.own = d.RowsOfRank
	}
	return &ranks{Group: g}
}

// follower is the Checkpointer of ranks other than the first, which has all files.
type follower struct{}

func (follower) Load(context.Context) (*State, error) { return nil, nil }
func (follower) Save(context.Context, *State) error   { return nil }

// follow makes all ranks save when rank 0 does, which a callback may have decided.
func (r *ranks) follow(run *Run) error {
	if r == nil {
		return nil
	}
	b := make([]byte, 9)
	if run.Checkpoint != nil {
		b[0] = 1
	}
	binary.LittleEndian.PutUint64(b[1:], uint64(run.SaveEvery))
	if err := r.BroadcastBytes(b, 0); err != nil {
		return err
	}
	if r.Rank() != 0 {
		if run.Checkpoint = nil; b[0] == 1 {
			run.Checkpoint = follower{}
		}
		run.SaveEvery = int(binary.LittleEndian.Uint64(b[1:]))
	}
	return nil
}

// first reports whether this rank writes files.
func (r *ranks) first() bool { return r == nil || r.Rank() == 0 }

// fails says that ranks may be out of step: no collective call may follow.
func (r *ranks) fails() {
	if r != nil {
		r.failed = true
	}
}

// agree returns an error on all ranks if one has one.
func (r *ranks) agree(err error) error {
	if r == nil || r.failed {
		return err
	}
	if err = r.Agree(err); err != nil {
		r.failed = true
	}
	return err
}

// agreeToStop ends the training of all ranks if a callback of one has ended it.
func (r *ranks) agreeToStop(run *Run) error {
	if r == nil {
		return nil
	}
	code := byte(0)
	if run.Stop {
		code = 1
	}
	_, most, err := r.Status(code, nil)
	run.Stop = most == 1
	return err
}

// What a rank is about to do; the largest decides.
const (
	goesOn = iota
	hasNoBatch
	halts // a callback has set Run.Stop
	stops // its context has ended
)

// settle compares what ranks are about to do next: ok says whether this one has a batch,
// ended that its context has ended, err what went wrong. It returns the same on all of
// them.
func (r *ranks) settle(run *Run, ok, ended bool, err error) (all, stop bool, _ error) {
	code := byte(goesOn)
	switch {
	case ended:
		code, err = stops, nil
	case run.Stop:
		code = halts
	case !ok:
		code = hasNoBatch
	}
	least, most, err := r.Status(code, err)
	switch {
	case err != nil:
		r.failed = true
		return false, false, err
	case most == stops:
		return false, true, nil
	case most == halts:
		run.Stop = true
		return false, false, nil
	case least != most:
		r.failed = true
		return false, false, fmt.Errorf("Fit: ranks have different numbers of batches; rank %d has %s", r.Rank(), [...]string{goesOn: "one more than others", hasNoBatch: "none when others have one"}[code])
	}
	return most == goesOn, false, nil
}

// inStep returns a dataset that ends on all ranks when it ends on one, or when the
// context of one has ended.
func (r *ranks) inStep(ctx context.Context, at pipeline.Opener[Batch]) pipeline.Opener[Batch] {
	return func(start pipeline.Start, hold pipeline.Hold) iter.Seq2[Batch, error] {
		return func(yield func(Batch, error) bool) {
			next, stop := iter.Pull2(at(start, hold))
			defer stop()
			for {
				b, err, ok := next()
				ended := ctx.Err() != nil && (!ok || pipeline.EndedBy(ctx, err))
				ok, ended, err = r.settle(&Run{}, ok, ended, err)
				if ended {
					err = stopped(ctx)
				}
				if err != nil {
					yield(Batch{}, err)
					return
				}
				if !ok || !yield(b, nil) {
					return
				}
			}
		}
	}
}

// synchronize gives rank 0's variables to all ranks before the first step.
func (f *fitting) synchronize(b Batch) error {
	r := f.ranks
	if r == nil || r.synchronized {
		return nil
	}
	t := f.m.training
	_, err := t.train.MemoryOf(b) // records the step, which makes all variables
	if err = r.Agree(err); err != nil {
		r.failed = true
		return err
	}
	r.synchronized = true
	return r.Broadcast(f.m, t.optimizer, t.others())
}

// broadcast gives a state of the training to all ranks; nil stays nil.
func (r *ranks) broadcast(s *State, err error) (*State, error) {
	if r == nil {
		return s, err
	}
	if err := r.Agree(err); err != nil {
		r.failed = true
		return nil, err
	}
	var b bytes.Buffer
	if r.Rank() == 0 && s != nil {
		if err := gob.NewEncoder(&b).Encode(s); err != nil {
			return nil, err
		}
	}
	n := binary.LittleEndian.AppendUint64(nil, uint64(b.Len()))
	if err := r.BroadcastBytes(n, 0); err != nil {
		return nil, err
	}
	size := binary.LittleEndian.Uint64(n)
	if size == 0 {
		return nil, nil
	}
	if size > math.MaxInt32*64 {
		return nil, fmt.Errorf("Fit: rank 0 sends a state of %d bytes", size)
	}
	data := b.Bytes()
	if r.Rank() != 0 {
		data = make([]byte, size)
	}
	if err := r.BroadcastBytes(data, 0); err != nil || r.Rank() == 0 {
		return s, err
	}
	s = &State{}
	return s, gob.NewDecoder(bytes.NewReader(data)).Decode(s)
}

// whole returns the values of an optimizer's variables; of those that are divided among
// the ranks, the whole. All ranks call it; it is nil where rank 0 needs no help.
func (r *ranks) whole(o Stateful) ([]Array, error) {
	vars := o.Variables()
	if r == nil || !slices.ContainsFunc(vars, divided) {
		return nil, nil
	}
	if r.failed {
		return nil, fmt.Errorf("Fit: the slots of the optimizer are divided among ranks that are out of step")
	}
	arrays, err := ArraysOf(o)
	if err = r.agree(err); err != nil {
		return nil, err
	}
	for i, v := range vars {
		p, whole := v.Partition()
		if p == nil {
			continue
		}
		all := make([]byte, r.Size()*len(arrays[i].Data))
		if err := r.AllGather(arrays[i].Data, all); err != nil {
			return nil, err
		}
		if arrays[i].Type = whole; r.first() {
			if arrays[i].Data, err = p.Join(all, whole); err != nil {
				return nil, err
			}
		}
	}
	return arrays, nil
}

func divided(v *Variable) bool {
	p, _ := v.Partition()
	return p != nil
}

// ownParts returns the values of an optimizer's variables of a state: of those that are divided
// among ranks, the part of this one. What does not fit stays as it is.
func ownParts(arrays []Array, o Stateful) ([]Array, error) {
	out := slices.Clone(arrays)
	for i, v := range o.Variables() {
		p, whole := v.Partition()
		if p == nil || i >= len(out) || !out[i].Type.Equal(whole) {
			continue
		}
		data, err := p.Cut(out[i].Data, whole)
		if err != nil {
			return nil, fmt.Errorf("variable %d, %s: %w", i, out[i].Name, err)
		}
		out[i].Type, out[i].Data = v.Type(), data
	}
	return out, nil
}

// totals returns the variables of loss and metrics, summed over the ranks.
func (r *ranks) totals(t *training) ([]Array, error) {
	own, err := ArraysOf(t)
	if r == nil || r.failed || err != nil {
		return own, err
	}
	var text []byte
	vars := t.Variables()
	for _, v := range vars {
		x, err := v.Float64s()
		if err != nil {
			return nil, err
		}
		for _, x := range x {
			text = binary.LittleEndian.AppendUint64(text, math.Float64bits(x))
		}
	}
	all, err := r.Gather(text)
	if err != nil {
		return nil, err
	}
	sums := make([]float64, len(text)/8)
	for rank, b := range all {
		if len(b) != len(text) {
			return nil, fmt.Errorf("Fit: rank %d counts %d numbers of metrics, rank %d counts %d", rank, len(b)/8, r.Rank(), len(sums))
		}
		for i := range sums {
			sums[i] += math.Float64frombits(binary.LittleEndian.Uint64(b[8*i:]))
		}
	}
	out := slices.Clone(own)
	for i, v := range vars {
		n := v.Shape().Size()
		out[i].Data = make([]byte, len(out[i].Data))
		dtype.FromF64(out[i].Data, sums[:n], v.DType())
		sums = sums[n:]
	}
	return out, nil
}

// clear sets the variables of loss and metrics to 0.
func (r *ranks) clear(t *training) error {
	arrays, err := ArraysOf(t)
	if err != nil {
		return err
	}
	for i := range arrays {
		arrays[i].Data = make([]byte, len(arrays[i].Data))
	}
	return SetArrays(arrays, t)
}

// read is training.read of the totals of all ranks.
func (r *ranks) read(t *training, own *ownStep) (logs Logs, err error) {
	if r == nil {
		return t.read(own, nil)
	}
	before, err := ArraysOf(t)
	if err != nil {
		return nil, err
	}
	sums, err := r.totals(t)
	if err == nil {
		err = SetArrays(sums, t)
	}
	if err == nil {
		logs, err = t.read(own, nil)
	}
	return logs, errors.Join(err, SetArrays(before, t))
}

// stopped is the error of a training that another rank has stopped.
func stopped(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%w: %w", distribution.ErrStopped, err)
	}
	return fmt.Errorf("%w: %w", distribution.ErrStopped, context.Canceled)
}
