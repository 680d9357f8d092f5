package journal

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/callbacks"
	"github.com/mezzo-ml/mezzo/keras/checkpoint"
)

var background = context.Background()

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantError(t testing.TB, err error, text string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), text) {
		t.Errorf("got error\n\t%v\nwant\n\t%s", err, text)
	}
}

// weightsOf are the elements of all variables of a model and its optimizer.
func weightsOf(t testing.TB, m *keras.Model) []byte {
	t.Helper()
	all, err := keras.ArraysOf(m, m.Optimizer())
	check(t, err)
	var b []byte
	for _, a := range all {
		b = append(b, a.Data...)
	}
	return b
}

// TestJournalChangesNothing: a training with a journal has the bits of one without, with
// the same memory for a step.
func TestJournalChangesNothing(t *testing.T) {
	for _, args := range []string{"-policy float32", "-policy mixed_float16 -optimizer adam", "-policy mixed_bfloat16 -optimizer momentum -freeze"} {
		t.Run(args, func(t *testing.T) {
			var want []byte
			for _, on := range []bool{false, true} {
				tr, err := program(strings.Fields(args))
				check(t, err)
				c := tr.Config
				c.Checkpoint = &checkpoint.Directory{Path: filepath.Join(t.TempDir(), "c")}
				if on {
					c.Journal = &File{Path: filepath.Join(t.TempDir(), "j")}
				}
				h, err := tr.Model.Fit(background, tr.Data, c)
				check(t, err)
				got := append(weightsOf(t, tr.Model), fmt.Sprint(h)...)
				if on && !bytes.Equal(got, want) {
					t.Error("the journal changes the training")
				}
				want = got
			}
		})
	}
}

// TestReplay: every step is the same to the bit when it is computed again, from every kind of
// optimizer and policy, also behind kills.
func TestReplay(t *testing.T) {
	for _, args := range trainings {
		t.Run(args, func(t *testing.T) {
			dir := t.TempDir()
			_, err := Train(background, program, dir, strings.Fields(args))
			check(t, err)
			l, err := Load(filepath.Join(dir, journalName))
			check(t, err)
			if want := 3 * stepsOfEpoch; len(l.Steps) != want {
				t.Fatalf("got %d steps, want %d", len(l.Steps), want)
			}
			for _, n := range []int64{1, 3, stepsOfEpoch, stepsOfEpoch + 1, 2*stepsOfEpoch + 3, 3 * stepsOfEpoch} {
				r, err := Replay(background, program, dir, n)
				check(t, err)
				if r.First != nil {
					t.Errorf("step %d, computed from %d: step %d differs in %v", n, r.From, r.First.Step, r.First.Fields)
				}
				if r.To != n || r.From >= n || n-r.From > 4 {
					t.Errorf("step %d: got steps %d to %d, want at most 4", n, r.From+1, r.To)
				}
			}
			all, err := Audit(background, program, dir, 100, 1)
			check(t, err)
			for _, s := range all {
				if s.First != nil {
					t.Errorf("steps %d to %d: %v", s.From+1, s.To, s.First)
				}
			}
			if last := all[len(all)-1]; last.To != 3*stepsOfEpoch {
				t.Errorf("the last of %d segments ends at %d", len(all), last.To)
			}
			r, err := open(dir)
			check(t, err)
			d, err := Diff(background, program, dir, dir, Options{})
			check(t, err)
			if d.Kind != Same {
				t.Errorf("a training differs from itself: %v", d)
			}
			if n := r.log.Steps[0]; n.Loss == 0 || n.GradientNorm == 0 {
				t.Errorf("got %+v", n)
			}
		})
	}
}

// TestKilled: a journal goes on after a kill, also in the middle of a record.
func TestKilled(t *testing.T) {
	args := strings.Fields("-policy mixed_float16 -optimizer adam")
	whole := t.TempDir()
	_, err := Train(background, program, whole, args)
	check(t, err)
	for _, kill := range []string{"5", "6", "11"} {
		dir := t.TempDir()
		path := filepath.Join(dir, journalName)
		killing := append(slices.Clone(args), "-kill", kill)
		for life := 0; ; life++ {
			_, err := Train(background, program, dir, killing)
			if err == nil {
				break
			}
			if !errors.Is(err, errKilled) || life > 20 {
				t.Fatal(err)
			}
			b, err := os.ReadFile(path) // as if it had been killed while it wrote
			check(t, err)
			check(t, os.WriteFile(path, b[:len(b)-7*life%90], 0o666))
		}
		l, err := Load(path)
		check(t, err)
		if len(l.Conflicts) > 0 || l.Repeated == 0 || len(l.Sessions) < 2 {
			t.Errorf("killed every %s steps: %d sessions, %d steps repeated, conflicts %v", kill, len(l.Sessions), l.Repeated, l.Conflicts)
		}
		d, err := Diff(background, program, whole, dir, Options{})
		check(t, err)
		if d.Kind != Same {
			t.Errorf("killed every %s steps: %v", kill, d)
		}
		all, err := Audit(background, program, dir, 3, 7)
		check(t, err)
		for _, s := range all {
			if s.First != nil {
				t.Errorf("killed every %s steps: steps %d to %d: %v", kill, s.From+1, s.To, s.First)
			}
		}
	}
}

// TestInterrupted: the state that an interrupted training saves is where the next one
// goes on.
func TestInterrupted(t *testing.T) {
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(background)
	stop := func(args []string) (*Training, error) {
		tr, err := program(args)
		if err == nil {
			tr.Config.Callbacks = append(tr.Config.Callbacks, keras.Callback{BatchEnd: func(_ context.Context, r *keras.Run) error {
				if r.Epoch == 1 && r.Step == 2 {
					cancel()
				}
				return nil
			}})
		}
		return tr, err
	}
	_, err := Train(ctx, stop, dir, nil)
	var i *keras.Interrupted
	if !errors.As(err, &i) || !i.Saved {
		t.Fatal(err)
	}
	_, err = Train(background, program, dir, nil)
	check(t, err)
	l, err := Load(filepath.Join(dir, journalName))
	check(t, err)
	if len(l.Sessions) != 2 || l.Begins[1] != stepsOfEpoch+2 || l.Repeated != 0 {
		t.Errorf("got %d sessions from %v, %d repeated", len(l.Sessions), l.Begins, l.Repeated)
	}
	all, err := Audit(background, program, dir, 100, 1)
	check(t, err)
	for _, s := range all {
		if s.First != nil {
			t.Errorf("steps %d to %d: %v", s.From+1, s.To, s.First)
		}
	}
}

// TestRows: the samples of a step are those whose inputs it saw.
func TestRows(t *testing.T) {
	for _, args := range []string{"", "-seed 3 -batched", "-stepsperepoch 4"} {
		t.Run(args, func(t *testing.T) {
			dir := t.TempDir()
			_, err := Train(background, program, dir, strings.Fields(args))
			check(t, err)
			l, err := Load(filepath.Join(dir, journalName))
			check(t, err)
			seen := map[int64]int{}
			for n := range 2 * stepsOfEpoch {
				var out bytes.Buffer
				check(t, Run(background, program, []string{"rows", dir, "-step", fmt.Sprint(n + 1)}, &out))
				_, list, _ := strings.Cut(strings.TrimSpace(out.String()), "samples: ")
				var rows []int
				for f := range strings.FieldsSeq(list) {
					var i int
					fmt.Sscan(f, &i)
					rows = append(rows, i)
					seen[int64(i)]++
				}
				if got, want := inputsOf(t, rows), l.Steps[n].Inputs; got != want {
					t.Fatalf("step %d: rows %v have the checksum %x, want %x", n+1, rows, got, want)
				}
			}
			if args == "" && len(seen) != samples {
				t.Errorf("two epochs saw %d samples, want %d", len(seen), samples)
			}
		})
	}
	dir := t.TempDir()
	_, err := Train(background, program, dir, strings.Fields("-generator"))
	check(t, err)
	wantError(t, Run(background, program, []string{"rows", "-step", "2", dir}, &bytes.Buffer{}),
		"journal: rows: SamplesOf: the samples of a *keras.Pipeline are not tensors in memory and have no numbers")
}

// TestTamperedCheckpoint: a checkpoint whose bits are not those of the journal is found before
// anything is computed from it.
func TestTamperedCheckpoint(t *testing.T) {
	dir := t.TempDir()
	_, err := Train(background, program, dir, nil)
	check(t, err)
	r, err := open(dir)
	check(t, err)
	s, err := checkpoint.Load(r.files[1].path)
	check(t, err)
	s.Model[0].Data[5] ^= 1
	check(t, checkpoint.Save(r.files[1].path, s))
	n := r.files[1].state.Number
	got, err := Replay(background, program, dir, n+1)
	check(t, err)
	if got.First == nil || got.First.Step != 0 || !slices.Equal(got.First.Fields, []string{"weights"}) {
		t.Errorf("got %+v", got.First)
	}
	var out bytes.Buffer
	if err := Run(background, program, []string{"audit", dir}, &out); !errors.Is(err, ErrDiffers) {
		t.Errorf("got %v", err)
	}
	if want := fmt.Sprintf("the state after step %d is not that of the journal, in weights\n", n); !strings.HasPrefix(out.String(), want) {
		t.Errorf("got %s, want %s", out.String(), want)
	}
}

// TestWriterCallbacks: replays leave the files of a training alone.
func TestWriterCallbacks(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "log.csv")
	with := func(args []string) (*Training, error) {
		tr, err := program(args)
		if err == nil {
			tr.Config.Callbacks = callbacks.List(&callbacks.CSVLogger{File: file})
		}
		return tr, err
	}
	_, err := Train(background, with, dir, nil)
	check(t, err)
	want, err := os.ReadFile(file)
	check(t, err)
	r, err := Replay(background, with, dir, 5)
	check(t, err)
	got, err := os.ReadFile(file)
	check(t, err)
	if r.First != nil || !bytes.Equal(got, want) {
		t.Errorf("got %v and a log of %d bytes, want %d", r.First, len(got), len(want))
	}
}

func TestErrors(t *testing.T) {
	dir := t.TempDir()
	_, err := Train(background, program, dir, nil)
	check(t, err)
	run := func(args ...string) error { return Run(background, program, args, &bytes.Buffer{}) }
	wantError(t, run(), "journal: no command given\nusage:")
	wantError(t, run("reply", dir), `journal: unknown command "reply"`)
	wantError(t, run("diff", dir), "journal: diff: got 1 directories, want 2")
	wantError(t, run("replay", "-stop", "3", dir), "journal: replay: flag provided but not defined: -stop")
	wantError(t, run("replay", dir, "-step", "99"), "there is no step 99; it has the steps 1 to 18")
	wantError(t, run("audit", dir, "-segments", "0"), "journal: Audit: got 0 segments, want a positive number")
	wantError(t, run("show", filepath.Join(dir, "none")), "no such file")
	_, err = Train(background, func([]string) (*Training, error) { return nil, nil }, dir, nil)
	wantError(t, err, "journal: the program made no training: Model or Data is nil")
	_, err = Train(background, program, dir, strings.Fields("-units 9"))
	wantError(t, err, "resuming")
	// The checkpoints of one training and the journal of another.
	check(t, os.RemoveAll(filepath.Join(dir, checkpointName)))
	_, err = Train(background, program, dir, strings.Fields("-units 9"))
	wantError(t, err, "it is of another model: the names or types of its variables differ")
	other := t.TempDir()
	_, err = Train(background, program, other, nil)
	check(t, err)
	check(t, os.Remove(filepath.Join(other, journalName)))
	_, err = Train(background, program, other, strings.Fields("-epochs 4"))
	wantError(t, err, "the training is resumed after 0 steps of epoch 4, and there is no journal of it")
	var out bytes.Buffer
	check(t, Run(background, program, []string{"show", dir, "-from", "2", "-to", "4"}, &out))
	if n := strings.Count(out.String(), "\n"); n != 6 {
		t.Errorf("got %d lines:\n%s", n, out.String())
	}
}
