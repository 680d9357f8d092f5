package journal

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"strings"

	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/doctor"
)

const usage = `usage:
	%[1]s run DIR [arguments of the program]      train, or resume, with a journal in DIR
	%[1]s show [-from N] [-to N] DIR              print the records of steps
	%[1]s replay -step N DIR                      compute the steps up to N again from the nearest checkpoint
	%[1]s audit [-segments N] [-seed N] DIR       compute steps between random checkpoints again
	%[1]s diff [-with PROGRAM] DIR DIR            find the first difference of two trainings
	%[1]s rows -step N DIR                        print which samples a step saw
`

// ErrDiffers is the error of a command that has found a difference.
var ErrDiffers = errors.New("journal: it differs")

// Main is the main function of a program that makes a training: it runs the command that
// os.Args name and exits. The status is 1 where a difference was found, and 2 after an
// error.
func Main(p Program) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	context.AfterFunc(ctx, stop)
	err := Run(ctx, p, os.Args[1:], os.Stdout)
	switch {
	case err == nil:
		return
	case errors.Is(err, ErrDiffers):
		os.Exit(1)
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(2)
}

// Run runs a command: its name, flags and directories, as the usage text lists them.
func Run(ctx context.Context, p Program, args []string, out io.Writer) error {
	if len(args) == 0 {
		return errors.New("journal: no command given\n" + usageText())
	}
	name, args := args[0], args[1:]
	fs := flag.NewFlagSet(name, flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	step := fs.Int64("step", 0, "")
	from, to := fs.Int64("from", 1, ""), fs.Int64("to", 0, "")
	segments, seed := fs.Int("segments", 20, ""), fs.Uint64("seed", 1, "")
	with := fs.String("with", "", "")
	var dirs []string
	if name == "run" {
		if len(args) > 0 {
			dirs, args = args[:1], args[1:]
		}
	} else {
		for { // flags and directories in any order
			if err := fs.Parse(args); err != nil {
				return fmt.Errorf("journal: %s: %w\n%s", name, err, usageText())
			}
			if args = fs.Args(); len(args) == 0 {
				break
			}
			dirs, args = append(dirs, args[0]), args[1:]
		}
	}
	want := map[string]int{"run": 1, "show": 1, "replay": 1, "audit": 1, "diff": 2, "rows": 1, serveCommand: 1}[name]
	switch {
	case want == 0:
		return fmt.Errorf("journal: unknown command %q\n%s", name, usageText())
	case len(dirs) != want:
		return fmt.Errorf("journal: %s: got %d directories, want %d\n%s", name, len(dirs), want, usageText())
	}
	dir := dirs[0]
	switch name {
	case "run":
		_, err := Train(ctx, p, dir, args)
		return err
	case "show":
		return show(out, dir, *from, *to)
	case "replay":
		return runReplay(ctx, p, out, dir, *step)
	case "audit":
		return runAudit(ctx, p, out, dir, *segments, *seed)
	case "rows":
		return runRows(ctx, p, out, dir, *step)
	case serveCommand:
		answers := os.Stdout
		os.Stdout = os.Stderr // what the program prints
		return serve(ctx, p, dir, os.Stdin, answers)
	}
	d, err := Diff(ctx, p, dir, dirs[1], Options{With: *with})
	if err != nil {
		return err
	}
	fmt.Fprint(out, d)
	if d.Kind != Same {
		return ErrDiffers
	}
	return nil
}

func usageText() string { return fmt.Sprintf(usage, "PROGRAM") }

// show prints records.
func show(out io.Writer, dir string, from, to int64) error {
	r, err := open(dir)
	if err != nil {
		return err
	}
	l := r.log
	for i, s := range l.Sessions {
		fmt.Fprintf(out, "session from step %d: policy %s, %s, seed %d, arguments %q\n", l.Begins[i]+1, s.Made.Policy, s.kernels(), s.Setup.Seed, strings.Join(s.Args, " "))
	}
	fmt.Fprintf(out, "%d steps, %d checkpoints; %d steps were done again, %d records changed\n", len(l.Steps), len(r.files), l.Repeated, len(l.Conflicts))
	if to == 0 {
		to = int64(len(l.Steps))
	}
	fmt.Fprintf(out, "%8s %6s %6s  %-16s %-16s %-16s %10s %12s %10s\n", "step", "epoch", "batch", "inputs", "weights", "slots", "loss", "gradients", "scale")
	for n := max(from, 1); n <= min(to, int64(len(l.Steps))); n++ {
		s := l.Steps[n-1]
		fmt.Fprintf(out, "%8d %6d %6d  %016x %016x %016x %10.6g %12.6g %10g\n", s.Number, s.Data.Epoch, s.Data.Batch, s.Inputs, s.Weights, s.Slots, s.Loss, s.GradientNorm, s.LossScale)
	}
	return nil
}

// elsewhere tells when a journal was made with other kernels, whose last bits differ.
func elsewhere(out io.Writer, s *Session) error {
	now, err := doctor.Here()
	if err != nil {
		return err
	}
	if is := (&Session{Made: now}).kernels(); is != s.kernels() {
		fmt.Fprintf(out, "the journal was made on %s, this is %s: last bits may differ (MEZZO_DEVICE and MEZZO_CPU choose)\n", s.kernels(), is)
	} else if a, b := settings(s.Made.Environment), settings(now.Environment); !maps.Equal(a, b) {
		fmt.Fprintf(out, "the journal was made with %v, this is with %v\n", a, b)
	}
	return nil
}

func runReplay(ctx context.Context, p Program, out io.Writer, dir string, step int64) error {
	r, err := open(dir)
	if err != nil {
		return err
	}
	if _, err := r.log.Step(step); err != nil {
		return err
	}
	if err := elsewhere(out, r.log.sessionOf(step)); err != nil {
		return err
	}
	got, err := r.replay(ctx, p, r.nearest(step-1), step, nil)
	if err != nil {
		return err
	}
	s := r.log.Steps[step-1]
	if got.First == nil {
		fmt.Fprintf(out, "steps %d to %d computed again: the same to the bit; loss %.6g, gradient norm %.6g\n", got.From+1, got.To, s.Loss, s.GradientNorm)
		return nil
	}
	return mismatch(out, got.From, got.First)
}

// mismatch prints a mismatch.
func mismatch(out io.Writer, from int64, m *Mismatch) error {
	if m.Step == 0 {
		fmt.Fprintf(out, "the state after step %d is not that of the journal, in %s\n", from, strings.Join(m.Fields, ", "))
	} else {
		fmt.Fprintf(out, "steps %d to %d computed again: step %d differs from the journal in %s\n", from+1, m.Step, m.Step, strings.Join(m.Fields, ", "))
	}
	return ErrDiffers
}

func runAudit(ctx context.Context, p Program, out io.Writer, dir string, n int, seed uint64) error {
	r, err := open(dir)
	if err != nil {
		return err
	}
	if err := elsewhere(out, r.log.last()); err != nil {
		return err
	}
	var found error
	for _, c := range r.log.Conflicts {
		fmt.Fprintf(out, "step %d was computed twice with different results, in %s\n", c.Number, strings.Join(c.Fields, ", "))
		found = ErrDiffers
	}
	all, err := Audit(ctx, p, dir, n, seed)
	if err != nil {
		return err
	}
	steps := int64(0)
	for _, s := range all {
		if s.First != nil {
			found = mismatch(out, s.From, s.First)
			continue
		}
		steps += s.To - s.From
	}
	fmt.Fprintf(out, "%d of %d segments computed again, %d steps the same to the bit\n", len(all), r.segments(), steps)
	return found
}

// runRows prints the samples of a step.
func runRows(ctx context.Context, p Program, out io.Writer, dir string, step int64) error {
	r, err := open(dir)
	if err != nil {
		return err
	}
	s, err := r.log.Step(step)
	if err != nil {
		return err
	}
	t, err := p.make(r.log.sessionOf(step).Args)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "step %d: batch %d of epoch %d of the data\n", step, s.Data.Batch+1, s.Data.Epoch+1)
	numbers, err := keras.SamplesOf(ctx, t.Data, t.Config, s.Data)
	if err != nil {
		return fmt.Errorf("journal: rows: %w", err)
	}
	fmt.Fprintf(out, "%d samples: %s\n", len(numbers), strings.Trim(fmt.Sprint(numbers), "[]"))
	return nil
}
