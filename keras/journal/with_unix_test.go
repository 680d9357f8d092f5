//go:build unix

package journal

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestWith: a training of another program is computed again by that program.
func TestWith(t *testing.T) {
	a, b := t.TempDir(), t.TempDir()
	_, err := Train(background, program, a, nil)
	check(t, err)
	other := filepath.Join(t.TempDir(), "other")
	script := fmt.Sprintf("#!/bin/sh\nMEZZO_TEST_ACTIVATION=tanh exec %s journal-command \"$@\"\n", os.Args[0])
	check(t, os.WriteFile(other, []byte(script), 0o777))
	if out, err := exec.Command(other, "run", b).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	d, err := Diff(background, program, a, b, Options{With: other})
	check(t, err)
	if d.Kind != OtherProgram || d.Step != 1 || !strings.HasPrefix(string(d.A), "first/Relu#0") || !strings.HasPrefix(string(d.B), "first/Tanh#0") {
		t.Errorf("got %v", d)
	}
	_, err = Diff(background, program, a, b, Options{With: "/bin/cat"})
	wantError(t, err, "/bin/cat: it does not answer as a program does whose main calls journal.Main")
}
