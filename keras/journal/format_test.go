package journal

import (
	"bytes"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/mezzo-ml/mezzo/keras"
)

// sample is a journal of two sessions and its frames.
func sample(t testing.TB) (file []byte, ends []int) {
	b := start()
	end := func() { ends = append(ends, len(b)) }
	session := func(done int64) {
		var err error
		b, err = appendSession(b, &Session{Args: []string{"-seed", "3"}, Ranks: 1, Model: math.MaxUint64, WeightParts: 7, SlotParts: 9})
		check(t, err)
		end()
		b = appendState(b, &State{Number: done, Step: int(done), Weights: 5, LossScale: 1024})
		end()
	}
	session(0)
	for n := range int64(4) {
		if n == 3 {
			session(2)
			n = 2
		}
		b = appendStep(b, &Step{Number: n + 1, Step: int(n + 1), Data: keras.Position{Epoch: 1, Batch: int(n)}, Inputs: 1 << 63, Loss: math.NaN(), GradientNorm: math.Inf(1)})
		end()
		if n == 1 {
			b = appendState(b, &State{Number: 2, Step: 2, Weights: 5, LossScale: 1024})
			end()
		}
	}
	return b, ends
}

func TestFormat(t *testing.T) {
	b, ends := sample(t)
	l, err := Read(bytes.NewReader(b), int64(len(b)))
	check(t, err)
	if len(l.Sessions) != 2 || !slices.Equal(l.Begins, []int64{0, 2}) || len(l.Steps) != 3 || len(l.States) != 2 || l.Repeated != 1 || len(l.Conflicts) != 0 {
		t.Errorf("got %+v", l)
	}
	if s := l.Steps[2]; s.Number != 3 || s.Data != (keras.Position{Epoch: 1, Batch: 2}) || s.Inputs != 1<<63 || s.Loss == s.Loss || !math.IsInf(s.GradientNorm, 1) {
		t.Errorf("got %+v", s)
	}
	if s := l.Sessions[1]; s.Model != math.MaxUint64 || s.WeightParts != 7 || s.Args[1] != "3" {
		t.Errorf("got %+v", s)
	}
	if n := len(appendStep(nil, &Step{})); n != 96 {
		t.Errorf("a step takes %d bytes, want 96", n)
	}
	// Cut anywhere: what is whole is there, and where that ends is known.
	for n := range b {
		want := 0
		for _, e := range ends {
			if e <= n {
				want = e
			}
		}
		whole, err := read(bytes.NewReader(b[:n]), int64(n), ignoring)
		switch {
		case n < len(start()):
			if !errors.Is(err, ErrNoJournal) {
				t.Fatalf("%d bytes: got error %v", n, err)
			}
		case err != nil || whole != int64(max(want, len(start()))):
			t.Fatalf("%d bytes: got %d, %v, want %d", n, whole, err, want)
		}
	}
	// Zeros behind the end, as after a power cut.
	padded := append(slices.Clone(b[:ends[3]]), make([]byte, 5000)...)
	if whole, err := read(bytes.NewReader(padded), int64(len(padded)), ignoring); err != nil || whole != int64(ends[3]) {
		t.Errorf("zeros behind: got %d, %v, want %d", whole, err, ends[3])
	}
	// A bit that flipped in the middle is damage.
	for _, at := range []int{ends[0] + 30, ends[2] + 9, ends[2] + 1} {
		bad := slices.Clone(b)
		bad[at] ^= 4
		if _, err := Read(bytes.NewReader(bad), int64(len(bad))); !errors.Is(err, ErrDamaged) {
			t.Errorf("byte %d: got %v", at, err)
		}
	}
	_, err = Read(bytes.NewReader(b[:len(start())]), int64(len(start())))
	wantError(t, err, "it has no session")
	bad := slices.Clone(b)
	bad[len(magic)] = 9
	_, err = Read(bytes.NewReader(bad), int64(len(bad)))
	wantError(t, err, "another version of this module wrote it: version 9, want 1")
	gap := appendStep(slices.Clone(b), &Step{Number: 7})
	_, err = Read(bytes.NewReader(gap), int64(len(gap)))
	wantError(t, err, "it is damaged: step 7 follows step 3")
	late := appendState(slices.Clone(b), &State{Number: 9})
	_, err = Read(bytes.NewReader(late), int64(len(late)))
	wantError(t, err, "it is damaged: a state after 9 steps follows step 3")
	early, err := appendSession(slices.Clone(b), &Session{WeightParts: 1, SlotParts: 1})
	check(t, err)
	early = appendState(early, &State{Number: 4})
	_, err = Read(bytes.NewReader(early), int64(len(early)))
	wantError(t, err, "it is damaged: a session begins after 4 steps of 3")
	path := filepath.Join(t.TempDir(), "j")
	check(t, os.WriteFile(path, []byte("no journal at all"), 0o666))
	_, err = Load(path)
	wantError(t, err, "journal: "+path+": it is no journal")
}

var ignoring = visitor{func(Session) error { return nil }, func(Step) error { return nil }, func(State) error { return nil }}

// TestConflicts: a step that was done again with another result is told, but not where the
// kernels are other ones.
func TestConflicts(t *testing.T) {
	for _, isa := range []string{"AVX2", "AVX-512"} {
		b := start()
		for i, level := range []string{"AVX2", isa} {
			s := Session{Ranks: 1, WeightParts: 1, SlotParts: 1}
			s.Made.ISA = level
			b, _ = appendSession(b, &s)
			b = appendState(b, &State{})
			b = appendStep(b, &Step{Number: 1, Weights: uint64(i)})
		}
		l, err := Read(bytes.NewReader(b), int64(len(b)))
		check(t, err)
		if got, want := len(l.Conflicts), map[bool]int{true: 1}[isa == "AVX2"]; got != want || l.Repeated != 1 {
			t.Errorf("AVX2, then %s: got %d conflicts of %d steps, want %d", isa, got, l.Repeated, want)
		}
	}
}

// FuzzRead: whatever a file has in it, reading it is an error or a journal whose steps are
// numbered from 1 on, in memory that the file warrants.
func FuzzRead(f *testing.F) {
	b, ends := sample(f)
	f.Add(b)
	f.Add(b[:ends[1]+20])
	f.Add(append(slices.Clone(b), make([]byte, 100)...))
	f.Add(append(start(), kindSession, 0xff, 0xff, 0x0f))
	f.Fuzz(func(t *testing.T, b []byte) {
		l, err := Read(bytes.NewReader(b), int64(len(b)))
		if err != nil {
			return
		}
		for i, s := range l.Steps {
			if s.Number != int64(i+1) {
				t.Fatalf("step %d has number %d", i+1, s.Number)
			}
		}
		if len(l.Steps)+len(l.States) > len(b)/(stateBytes+frameStart+frameEnd) || len(l.Sessions) == 0 || len(l.Begins) != len(l.Sessions) {
			t.Fatalf("%d steps, %d states, %d sessions from %d bytes", len(l.Steps), len(l.States), len(l.Sessions), len(b))
		}
	})
}
