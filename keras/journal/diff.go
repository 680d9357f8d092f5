package journal

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/mezzo-ml/mezzo/backend/op"
	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/keras/doctor"
)

// Kind says what makes the first difference of two trainings.
type Kind int

// The values of Kind.
const (
	Same         Kind = iota
	OtherProgram      // the step is another one: operations or shapes differ
	OtherInitial      // a variable differs before the first step
	OtherState        // a variable was changed between two steps: by a callback, or by a fault that comes again
	OtherInputs       // the batch differs
	OtherResult       // an operation has another result on the same operands, or another constant
	OtherCopy         // a copy that is kept of weights differs; the weights are the same
	Fault             // a replay differs from its own journal: a bit changed that the program does not change
	Unknown           // the steps differ, but not when they are computed operation by operation
)

func (k Kind) String() string {
	return [...]string{"no difference", "another program", "another initial value", "changed between two steps",
		"another batch", "another result of an operation", "another copy of weights", "not reproducible", "unknown"}[k]
}

// Difference is the first difference of two trainings.
type Difference struct {
	Header []string // what sessions of the journals differ in: the seed, the policy, the level
	Kind   Kind
	Step   int64 // the first that differs: in its inputs, in its result, or before it
	Record int64 // the first step whose records differ; 0: the states after step State differ before any record does
	State  int64

	A, B    tensor.TapID // the operation, variable or argument; they differ for another Program
	Type    op.Type
	Element []int   // of the tensor
	X, Y    float64 // the element in a and in b

	Side    string   // of a Fault: "a" or "b"
	Fields  []string // that the records of a Fault, or of the first difference, differ in
	Where   []string // of a Fault: the elements that the fields are checksums of
	Replays int      // of each training
}

// Options are the options of Diff.
type Options struct {
	// With is a program whose main calls Main. It made the second training; default: this
	// one.
	With string
}

// Diff compares the journals of two trainings. Where they first differ it computes the
// steps since the last checkpoint that they have in common again, to find the first step
// that differs, and then that step operation by operation. Steps that were
// computed under other settings (MEZZO_CPU, MEZZO_SKIP …) than those of this process
// are computed in processes of their own.
func Diff(ctx context.Context, p Program, dirA, dirB string, o Options) (d *Difference, err error) {
	a, err := open(dirA)
	if err != nil {
		return nil, err
	}
	b, err := open(dirB)
	if err != nil {
		return nil, err
	}
	d = &Difference{}
	d.Header = headers(a.log.last(), b.log.last())
	from, to := d.compare(a.log, b.log)
	if d.Kind == Same && to == 0 {
		return d, nil
	}
	from = common(a, b, from)
	sides := [2]side{}
	for i, r := range []*recording{a, b} {
		with := ""
		if i == 1 {
			with = o.With
		}
		if sides[i], err = sideOf(ctx, p, r, with); err != nil {
			return nil, err
		}
		defer sides[i].close()
	}
	if d.Kind == Same {
		if err := d.walk(ctx, sides, from, to); err != nil || d.Kind == Fault {
			return d, err
		}
	}
	return d, d.trace(ctx, sides)
}

// sideOf makes a side: of this process if it computes as the session did.
func sideOf(ctx context.Context, p Program, r *recording, with string) (side, error) {
	made := r.log.last().Made
	wanted := settings(made.Environment)
	now, err := doctor.Here()
	if err != nil {
		return nil, err
	}
	want := r.log.last().kernels()
	if with == "" && maps.Equal(settings(now.Environment), wanted) && (&Session{Made: now}).kernels() == want {
		return &local{program: p, recording: r}, nil
	}
	var before []string
	if with == "" {
		if with, err = os.Executable(); err != nil {
			return nil, err
		}
		before = serveBefore
	}
	s, err := startRemote(ctx, with, before, r.dir, wanted)
	if err != nil {
		return nil, err
	}
	got, err := s.kernels()
	if err == nil && got != want {
		err = fmt.Errorf("journal: %s was computed on %s; with its settings this machine computes on %s", r.dir, want, got)
	}
	if err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// settings are the environment variables on which bits may depend. A journal is a file from
// outside: it sets no others.
func settings(environment map[string]string) map[string]string {
	return maps.Collect(func(yield func(string, string) bool) {
		for name, value := range environment {
			other := !strings.HasPrefix(name, "MEZZO_") || name == "MEZZO_DEBUG" || strings.HasPrefix(name, "MEZZO_TEST_")
			if !other && !yield(name, value) {
				return
			}
		}
	})
}

// serveBefore are arguments of this program before those of Main, for tests.
var serveBefore []string

// headers lists what sessions differ in.
func headers(a, b *Session) (all []string) {
	add := func(name string, x, y any) {
		if !reflect.DeepEqual(x, y) {
			all = append(all, fmt.Sprintf("%s: %v, %v", name, x, y))
		}
	}
	add("arguments", fmt.Sprintf("%q", strings.Join(a.Args, " ")), fmt.Sprintf("%q", strings.Join(b.Args, " ")))
	add("policy", a.Made.Policy, b.Made.Policy)
	add("device", a.Made.Device, b.Made.Device)
	add("instruction set", a.Made.ISA, b.Made.ISA)
	add("bits", a.Made.Bits, b.Made.Bits)
	add("Go", a.Made.Go, b.Made.Go)
	add("ranks", a.Ranks, b.Ranks)
	add("BatchSize", a.Setup.BatchSize, b.Setup.BatchSize)
	add("StepsPerEpoch", a.Setup.StepsPerEpoch, b.Setup.StepsPerEpoch)
	add("Shuffle", a.Setup.Shuffle, b.Setup.Shuffle)
	add("Seed", a.Setup.Seed, b.Setup.Seed)
	add("batches of an epoch", a.Setup.Batches, b.Setup.Batches)
	add("shards of a batch", a.Setup.Shards, b.Setup.Shards)
	if a.Model != b.Model {
		all = append(all, "names or types of variables")
	}
	if a.Program != b.Program {
		all = append(all, "the compiled step")
	}
	return all
}

// compare finds the first records that differ. The first difference of the trainings is in
// the steps from+1 … to. If to is 0 there is none, unless Kind is set: then the first step
// differs.
func (d *Difference) compare(a, b *Log) (from, to int64) {
	all := a.last().Ranks == b.last().Ranks
	if a.last().Model != b.last().Model || a.last().WeightParts != b.last().WeightParts {
		d.Kind, d.Step = OtherProgram, 1
		return 0, 1
	}
	if d.Fields = a.States[0].differs(b.States[0], all); len(d.Fields) > 0 {
		d.Kind, d.Step = OtherInitial, 1
		return 0, 1
	}
	n := min(len(a.Steps), len(b.Steps))
	to = int64(n) + 1
	for i := range n {
		if f := differs(a.Steps[i], b.Steps[i], all); len(f) > 0 {
			to, d.Record, d.Fields = int64(i+1), int64(i+1), f
			break
		}
	}
	// States are compared as a whole. So they may differ before a record does.
	i := 0
	for _, s := range a.States {
		for i < len(b.States) && b.States[i].compare(s) < 0 {
			i++
		}
		if i == len(b.States) || s.Number > to || s.Number > int64(n) {
			break
		}
		if b.States[i].compare(s) != 0 {
			continue
		}
		f := s.differs(b.States[i], all)
		switch {
		case len(f) == 0 && s.Number < to:
			from = s.Number
		case len(f) > 0 && s.Number < to:
			// After the step, or between it and the next one.
			d.Record, d.State, d.Fields = 0, s.Number, f
			return from, min(s.Number+1, int64(n))
		}
	}
	if to > int64(n) {
		return from, 0
	}
	return from, to
}

// common is the last state up to a number of steps that both have a checkpoint of.
func common(a, b *recording, most int64) int64 {
	for _, s := range slices.Backward(a.files) {
		if s.state.Number > most {
			continue
		}
		if n := b.nearest(s.state.Number); n != nil && n.state.compare(s.state) == 0 && len(n.state.differs(s.state, false)) == 0 {
			return s.state.Number
		}
	}
	return 0
}

// walk computes steps again and finds the first that differs.
func (d *Difference) walk(ctx context.Context, sides [2]side, from, to int64) error {
	d.Replays++
	var all [2]*walked
	for i, s := range sides {
		var err error
		if all[i], err = s.walk(ctx, from, to); err != nil {
			return err
		}
	}
	a, b := all[0], all[1]
	n := min(len(a.Steps), len(b.Steps))
	for i := range n {
		x, y := a.Steps[i], b.Steps[i]
		if x.Inputs != y.Inputs || !slices.Equal(x.Sums, y.Sums) {
			d.Step = x.Step.Number
			break
		}
	}
	// A fault before the first difference of the programs, or without one.
	for i, w := range all {
		if w.First != nil && (d.Step == 0 || w.First.Step <= d.Step) {
			d.Kind, d.Step, d.Side, d.Fields, d.Where = Fault, w.First.Step, "ab"[i:i+1], w.First.Fields, w.Where
			return nil
		}
	}
	if d.Step == 0 {
		d.Kind, d.Step = Unknown, to
	}
	return nil
}

// trace computes the first step that differs operation by operation.
func (d *Difference) trace(ctx context.Context, sides [2]side) error {
	if d.Kind == Unknown {
		return nil
	}
	d.Replays++
	var all [2]*traced
	for i, s := range sides {
		var err error
		if all[i], err = s.trace(ctx, d.Step); err != nil {
			return err
		}
	}
	a, b := all[0].Values, all[1].Values
	at := func(all []tensor.Digest, i int) (v tensor.Digest) {
		if i < len(all) {
			v = all[i]
		}
		return v
	}
	for i := range max(len(a), len(b)) {
		if x, y := at(a, i), at(b, i); x.ID != y.ID || !x.Type.Equal(y.Type) {
			d.Kind, d.A, d.B, d.Type = OtherProgram, x.ID, y.ID, x.Type
			return nil
		}
	}
	initial := d.Kind == OtherInitial
	d.Kind = Unknown
	for i, x := range a {
		if x.Sum == b[i].Sum {
			continue
		}
		d.A, d.B, d.Type = x.ID, x.ID, x.Type
		switch name := string(x.ID); {
		case !strings.Contains(name, "/"+op.Param.String()+"#"):
			d.Kind = OtherResult
		case strings.HasPrefix(name, "argument "):
			d.Kind = OtherInputs
		case initial:
			d.Kind = OtherInitial
		default:
			d.Kind = OtherState
		}
		return d.element(ctx, sides, x.ID)
	}
	for i := range min(len(all[0].Copies), len(all[1].Copies)) {
		x, y := all[0].Copies[i], all[1].Copies[i]
		if x.ID == y.ID && x.Type.Equal(y.Type) && x.Sum != y.Sum {
			d.Kind, d.A, d.B, d.Type = OtherCopy, x.ID, x.ID, x.Type
			return d.element(ctx, sides, tensor.TapID(fmt.Sprint(copyPrefix, i)))
		}
	}
	return nil
}

// element finds the first element in which a value differs.
func (d *Difference) element(ctx context.Context, sides [2]side, id tensor.TapID) error {
	var all [2]*content
	for i, s := range sides {
		var err error
		if all[i], err = s.value(ctx, id); err != nil {
			return err
		}
	}
	if !all[0].Type.Equal(all[1].Type) {
		return fmt.Errorf("journal: %s is %v and %v when it is computed again", id, all[0].Type, all[1].Type)
	}
	i, x, y := firstApart(all[0], all[1])
	if i < 0 {
		return nil
	}
	d.X, d.Y = x, y
	d.Element = make([]int, len(d.Type.Shape))
	for axis, size := range slices.Backward(d.Type.Shape) {
		d.Element[axis], i = i%size, i/size
	}
	return nil
}

// String says it in a few lines.
func (d *Difference) String() string {
	var s strings.Builder
	for _, h := range d.Header {
		fmt.Fprintf(&s, "different: %s\n", h)
	}
	switch {
	case d.Kind == Same:
		return s.String() + "no step and no checkpoint that both have differs\n"
	case d.Record > 0:
		fmt.Fprintf(&s, "the records of step %d are the first that differ, in %s\n", d.Record, strings.Join(d.Fields, ", "))
	case d.Kind == OtherInitial:
		fmt.Fprintf(&s, "the states before step 1 differ, in %s\n", strings.Join(d.Fields, ", "))
	case len(d.Fields) > 0 && d.Kind != Fault:
		fmt.Fprintf(&s, "the states after step %d are the first records that differ, in %s\n", d.State, strings.Join(d.Fields, ", "))
	}
	name := func(id tensor.TapID) string { return strings.TrimSuffix(string(id), "/"+op.Param.String()+"#0") }
	what := fmt.Sprintf("%s %v", name(d.A), d.Type)
	switch d.Kind {
	case OtherProgram:
		other := string(d.B)
		if d.A == d.B {
			other = "another type"
		}
		what = fmt.Sprintf("%s is %s in the other", cmp.Or(string(d.A), "nothing"), cmp.Or(other, "nothing"))
	case Fault:
		what = fmt.Sprintf("a replay of %s differs from its journal in %s", d.Side, strings.Join(d.Fields, ", "))
		if d.Step == 0 {
			what = fmt.Sprintf("the checkpoint of %s that a replay begins with is not that of its journal: it differs in %s", d.Side, strings.Join(d.Fields, ", "))
		}
		for _, w := range d.Where {
			what += "\n  " + w
		}
	case Unknown:
		what = "no value of the step differs when it is computed operation by operation"
	default:
		if d.Element != nil {
			bits := 64
			if d.Type.DType.Size() < 8 {
				bits = 32
			}
			what += fmt.Sprintf(", element %v: %s, %s", d.Element, strconv.FormatFloat(d.X, 'g', -1, bits), strconv.FormatFloat(d.Y, 'g', -1, bits))
		}
	}
	fmt.Fprintf(&s, "step %d: %v: %s\n", d.Step, d.Kind, what)
	fmt.Fprintf(&s, "replays of each training: %d\n", d.Replays)
	return s.String()
}
