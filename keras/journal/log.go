package journal

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/mezzo-ml/mezzo/keras/internal/safeio"
)

// Log is the content of a journal. A session that resumes a training drops the steps after
// its first state, and computes them again.
type Log struct {
	Path     string
	Sessions []Session
	Begins   []int64 // the steps that were done when each session began
	Steps    []Step  // in order of their numbers, from 1 on, without gaps
	States   []State // in order of their numbers

	// Repeated is how many steps were computed again. Conflicts are the steps and states
	// whose records changed, although arguments, program and kernels were the same.
	Repeated  int
	Conflicts []Conflict

	known  []Step // of all sessions; Steps are the first of them
	states map[moment]State
}

// moment is a time between two steps. The same number of steps may be the end of an epoch and
// the beginning of the next.
type moment struct {
	number      int64
	epoch, step int
}

func (s State) moment() moment { return moment{s.Number, s.Epoch, s.Step} }

// Conflict is a step, or the state after it, whose record changed when it was computed again.
type Conflict struct {
	Number int64
	Fields []string
}

// Load reads a journal. Damage is an error, but for a last record that a killed writer has
// left unfinished, which is left out.
func Load(path string) (*Log, error) {
	f, size, err := safeio.Open(path)
	if err != nil {
		return nil, fmt.Errorf("journal: %w", err)
	}
	defer f.Close()
	l, err := Read(f, size)
	if err != nil {
		return nil, fmt.Errorf("journal: %s: %w", path, err)
	}
	l.Path = path
	return l, nil
}

// Read reads a journal of so many bytes. It takes memory in proportion to them.
func Read(r io.Reader, size int64) (*Log, error) {
	l := &Log{states: map[moment]State{}}
	begin := false
	_, err := read(r, size, visitor{
		session: func(s Session) error {
			l.Sessions = append(l.Sessions, s)
			begin = true
			return nil
		},
		step: func(s Step) error {
			if begin {
				return fmt.Errorf("%w: a session without its first state", ErrDamaged)
			}
			return l.addStep(s)
		},
		state: func(s State) error {
			if begin {
				begin = false
				if err := l.begin(s.Number); err != nil {
					return err
				}
			}
			return l.addState(s)
		},
	})
	if err != nil {
		return nil, err
	}
	if begin { // killed between the two
		l.Sessions = l.Sessions[:len(l.Sessions)-1]
	}
	if len(l.Sessions) == 0 {
		return nil, fmt.Errorf("%w: it has no session", ErrDamaged)
	}
	return l, nil
}

// begin begins a session after n steps.
func (l *Log) begin(n int64) error {
	if n > int64(len(l.Steps)) {
		return fmt.Errorf("%w: a session begins after %d steps of %d", ErrDamaged, n, len(l.Steps))
	}
	l.Begins = append(l.Begins, n)
	l.Steps = l.known[:n]
	l.States = slices.DeleteFunc(l.States, func(s State) bool { return s.Number > n })
	return nil
}

func (l *Log) addStep(s Step) error {
	n := len(l.Steps)
	if s.Number != int64(n+1) {
		return fmt.Errorf("%w: step %d follows step %d", ErrDamaged, s.Number, n)
	}
	if n == len(l.known) {
		l.known = append(l.known, s)
	} else {
		l.Repeated++
		l.conflict(s.Number, differs(l.known[n], s, l.sameWay()))
		l.known[n] = s
	}
	l.Steps = l.known[:n+1]
	return nil
}

func (l *Log) addState(s State) error {
	if s.Number != int64(len(l.Steps)) {
		return fmt.Errorf("%w: a state after %d steps follows step %d", ErrDamaged, s.Number, len(l.Steps))
	}
	if before, ok := l.states[s.moment()]; ok {
		l.conflict(s.Number, before.differs(s, l.sameWay()))
	}
	l.states[s.moment()] = s
	i, found := slices.BinarySearchFunc(l.States, s, func(a, b State) int { return a.compare(b) })
	if !found {
		l.States = slices.Insert(l.States, i, s)
	}
	l.States[i] = s
	return nil
}

func (l *Log) conflict(number int64, fields []string) {
	if len(fields) > 0 && l.repeats() {
		l.Conflicts = append(l.Conflicts, Conflict{number, fields})
	}
}

// compare orders states in time.
func (s State) compare(o State) int {
	return cmp.Or(cmp.Compare(s.Number, o.Number), cmp.Compare(s.Epoch, o.Epoch), cmp.Compare(s.Step, o.Step))
}

// last is the newest session.
func (l *Log) last() *Session { return &l.Sessions[len(l.Sessions)-1] }

// sameWay reports whether the last session had as many ranks as the one before.
func (l *Log) sameWay() bool {
	n := len(l.Sessions)
	return n < 2 || l.Sessions[n-1].Ranks == l.Sessions[n-2].Ranks
}

// repeats reports whether the last session does what the one before did.
func (l *Log) repeats() bool {
	n := len(l.Sessions)
	if n < 2 {
		return true
	}
	a, b := &l.Sessions[n-2], &l.Sessions[n-1]
	return a.kernels() == b.kernels() && a.Program == b.Program && slices.Equal(a.Args, b.Args)
}

// kernels is what bits depend on besides the program.
func (s *Session) kernels() string {
	if s.Made.Bits != "" {
		return fmt.Sprintf("%s with %s bits", s.Made.Device, s.Made.Bits)
	}
	return s.Made.Device + " " + s.Made.ISA
}

// saved finds the state that was saved before a step of an epoch: the newest.
func (l *Log) saved(epoch, step int) (State, bool) {
	for _, s := range slices.Backward(l.States) {
		if s.Epoch == epoch && s.Step == step {
			return s, true
		}
	}
	return State{}, false
}

// Step returns step number n, from 1 on.
func (l *Log) Step(n int64) (Step, error) {
	if n < 1 || n > int64(len(l.Steps)) {
		return Step{}, fmt.Errorf("journal: %s: there is no step %d; it has the steps 1 to %d", l.Path, n, len(l.Steps))
	}
	return l.Steps[n-1], nil
}

// differs lists the fields in which two records of a step differ. Without all, only those
// are compared that do not depend on the number of ranks.
func differs(a, b Step, all bool) (fields []string) {
	add := func(name string, differ bool) {
		if differ {
			fields = append(fields, name)
		}
	}
	add("place in the data", a.Data != b.Data || a.Epoch != b.Epoch || a.Step != b.Step)
	add("inputs", a.Inputs != b.Inputs)
	add("random state", a.Random != b.Random)
	add("loss scale", apart(a.LossScale, b.LossScale))
	add("weights", a.Weights != b.Weights)
	if all { // a norm is summed up in another order where slots are divided
		add("gradient norm", apart(a.GradientNorm, b.GradientNorm))
		add("loss", apart(a.Loss, b.Loss))
		add("slots", a.Slots != b.Slots)
		add("metrics", a.Totals != b.Totals)
	}
	return fields
}

// differs does the same for states.
func (s State) differs(o State, all bool) (fields []string) {
	add := func(name string, differ bool) {
		if differ {
			fields = append(fields, name)
		}
	}
	add("place in the data", s.Data != o.Data)
	add("random state", s.Random != o.Random)
	add("loss scale", apart(s.LossScale, o.LossScale))
	add("weights", s.Weights != o.Weights)
	if all {
		add("slots", s.Slots != o.Slots)
		add("metrics", s.Totals != o.Totals)
	}
	return fields
}

// apart reports whether two numbers differ in their bits. All NaNs are one.
func apart(x, y float64) bool {
	return math.Float64bits(x) != math.Float64bits(y) && (x == x || y == y)
}
