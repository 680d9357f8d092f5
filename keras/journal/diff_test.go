package journal

import (
	"flag"
	"fmt"
	"math/bits"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mezzo-ml/mezzo/keras"
)

var every = flag.Bool("every", false, "find all 100 planted differences, not one in eight and the first of each sort")

// difference is a difference that a test plants, and what Diff must say about it.
type difference struct {
	policy  string
	args    string
	kind    Kind
	step    int64
	name    string // of the operation, variable, argument or copy: its beginning
	element []int  // nil: not told
}

// differences are 100 of them: code, data and their order, seeds, bits of weights, of slots and of
// copies that are kept of weights.
func differences(t testing.TB) (all []difference) {
	const policies = "float32 mixed_bfloat16 mixed_float16"
	i := 0
	add := func(d difference) {
		d.policy = strings.Fields(policies)[i%3]
		if d.kind == OtherCopy && d.policy == "float32" && strings.Contains(d.args, "shadow") {
			d.policy = "mixed_bfloat16" // float32 has no shadow weights
		}
		i++
		all = append(all, d)
	}
	const last = 3 * stepsOfEpoch
	at := func(k, least int) int64 { return int64(least + (k*7)%(last-least)) }
	for k := range 24 { // of the first kernel, [120 70]
		element := (k*997 + 13) % (120 * 70)
		n := at(k, 1)
		add(difference{args: fmt.Sprintf("-plant weight -at %d -element %d", n, 4*element+2), kind: OtherState, step: n, name: "first/kernel/Param#0", element: []int{element / 70, element % 70}})
	}
	for k := range 20 { // of the largest slot, of the second kernel, [70 130]
		element := (k*1009 + 5) % (70 * 130)
		n := at(k, 2)
		add(difference{args: fmt.Sprintf("-plant slot -at %d -element %d", n, 4*element+2), kind: OtherState, step: n, name: "adam/", element: []int{element / 130, element % 130}})
	}
	for k := range 16 { // a pixel of a sample
		sample := (k*5 + 3) % samples
		n, row := stepOf(t, int64(sample))
		add(difference{args: fmt.Sprintf("-plant sample -at %d", sample), kind: OtherInputs, step: n, name: "argument 0/Param#0", element: []int{row, 7}})
	}
	for k := range 8 {
		add(difference{args: fmt.Sprintf("-seed %d", k+1), kind: OtherInputs, step: 1, name: "argument 0/Param#0"})
	}
	for k := range 6 {
		add(difference{args: fmt.Sprintf("-initial %d", k+1), kind: OtherInitial, step: 1, name: "first/kernel/Param#0", element: []int{0, 0}})
	}
	for k := range 4 {
		add(difference{args: fmt.Sprintf("-learning 0.0%d", k+2), kind: OtherInitial, step: 1, name: "adam/learning_rate/Param#0", element: []int{}})
	}
	for k := range 4 {
		n := at(k, 2)
		add(difference{args: fmt.Sprintf("-plant rate -at %d", n), kind: OtherState, step: n, name: "adam/learning_rate/Param#0", element: []int{}})
	}
	for _, a := range []string{"tanh", "elu", "sigmoid", "softplus"} {
		add(difference{args: "-activation " + a, kind: OtherProgram, step: 1, name: "first/"})
	}
	for _, r := range []string{"0.1", "0.3"} {
		add(difference{args: "-drop " + r, kind: OtherResult, step: 1, name: "drop/"})
	}
	// Copies are made in the second step after a checkpoint, or the third. Those of 64 KiB
	// are packed.
	copied := func(k int) int64 { return []int64{4, 10, 16, 9}[k%4] }
	for k := range 7 {
		n := copied(k)
		add(difference{args: fmt.Sprintf("-plant shadow -at %d -element %d", n, 204*k+3), kind: OtherCopy, step: n, name: "first/kernel (", element: []int{(204*k + 3) / 2 / 70, (204*k + 3) / 2 % 70}})
	}
	for k := range 5 {
		n := copied(k)
		add(difference{args: fmt.Sprintf("-freeze -units 300 -plant packed -at %d -element %d", n, 404*k+3), kind: OtherCopy, step: n, name: "first/MatMul"})
	}
	return all
}

// stepOf is the first step that sees a sample, and its row in the batch.
func stepOf(t testing.TB, sample int64) (step int64, row int) {
	tr, err := program(nil)
	check(t, err)
	for n := range stepsOfEpoch {
		rows, err := keras.SamplesOf(background, tr.Data, tr.Config, keras.Position{Batch: n})
		check(t, err)
		for i, s := range rows {
			if s == sample {
				return int64(n + 1), i
			}
		}
	}
	t.Fatalf("no step sees sample %d", sample)
	return 0, 0
}

// TestDifferences: every planted difference is found, at the step and in the operation or
// element where it was planted, in at most log2(steps) replays.
func TestDifferences(outer *testing.T) {
	t := outer
	all := differences(t)
	if len(all) != 100 {
		t.Errorf("got %d differences, want 100", len(all))
	}
	good, sorts := map[string]string{}, map[string]bool{}
	for i, d := range all {
		words := strings.Fields(d.args)
		sort := words[0]
		if sort == "-plant" {
			sort += words[1]
		}
		if !*every && i%8 != 0 && sorts[sort] {
			continue
		}
		sorts[sort] = true
		t.Run(d.args, func(t *testing.T) {
			args := "-policy " + d.policy
			if strings.Contains(d.args, "-freeze") {
				args += " -freeze -units 300"
			}
			if good[args] == "" {
				good[args] = outer.TempDir()
				_, err := Train(background, program, good[args], strings.Fields(args))
				check(t, err)
			}
			dir := t.TempDir()
			_, err := Train(background, program, dir, strings.Fields("-policy "+d.policy+" "+d.args))
			check(t, err)
			got, err := Diff(background, program, good[args], dir, Options{})
			check(t, err)
			if got.Kind != d.kind || got.Step != d.step || !strings.HasPrefix(string(got.A), d.name) {
				t.Errorf("%s: got\n%vwant %v in step %d, in %s", args, got, d.kind, d.step, d.name)
			}
			if d.element != nil && fmt.Sprint(got.Element) != fmt.Sprint(d.element) {
				t.Errorf("%s: got\n%vwant element %v", args, got, d.element)
			}
			if got.Kind != OtherProgram && got.Element != nil && got.X == got.Y {
				t.Errorf("%s: element %v is %v in both", args, got.Element, got.X)
			}
			if most := bits.Len(3*stepsOfEpoch) - 1; got.Replays > most {
				t.Errorf("%s: %d replays, want at most %d", args, got.Replays, most)
			}
		})
	}
}

// TestFault: a bit that flips in a training, and not when it is computed again, is a
// fault, and the journal names the step.
func TestFault(t *testing.T) {
	good, bad := t.TempDir(), t.TempDir()
	_, err := Train(background, program, good, nil)
	check(t, err)
	faulty := func(args []string) (*Training, error) {
		return program(append(args, "-plant", "weight", "-at", "7", "-element", "2003"))
	}
	_, err = Train(background, faulty, bad, nil)
	check(t, err)
	for i, pair := range [][2]string{{good, bad}, {bad, good}} {
		d, err := Diff(background, program, pair[0], pair[1], Options{})
		check(t, err)
		if side := "ba"[i : i+1]; d.Kind != Fault || d.Step != 7 || d.Side != side || len(d.Fields) == 0 {
			t.Errorf("got %v, want a fault of %s in step 7", d, side)
		}
	}
	all, err := Audit(background, program, bad, 100, 1)
	check(t, err)
	found := 0
	for _, s := range all {
		if s.First != nil {
			found++
			if s.First.Step != 7 {
				t.Errorf("steps %d to %d: got %v", s.From+1, s.To, s.First)
			}
		}
	}
	if found != 1 {
		t.Errorf("%d segments differ, want 1", found)
	}
}

// TestOtherLevel: two trainings that computed on different instruction sets are compared in a
// process for each; the first operation that rounds otherwise is found.
func TestOtherLevel(t *testing.T) {
	dirs := [2]string{t.TempDir(), t.TempDir()}
	for i, settings := range []string{"MEZZO_CPU=portable", "MEZZO_SKIP=fuse"} {
		cmd := exec.Command(os.Args[0], "journal-command", "run", dirs[i], "-policy", "float32", "-epochs", "1")
		cmd.Env = append(os.Environ(), settings)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	a, err := Load(filepath.Join(dirs[0], journalName))
	check(t, err)
	b, err := Load(filepath.Join(dirs[1], journalName))
	check(t, err)
	d, err := Diff(background, program, dirs[0], dirs[1], Options{})
	check(t, err)
	if a.last().kernels() == b.last().kernels() { // no processor that a level is written for
		if d.Kind != Same {
			t.Errorf("got %v", d)
		}
		return
	}
	if d.Kind != OtherResult || d.Step != 1 || !strings.HasPrefix(string(d.A), "first/MatMul#0") || d.X == d.Y {
		t.Errorf("got %v, want another result of first/MatMul#0 in step 1", d)
	}
}
