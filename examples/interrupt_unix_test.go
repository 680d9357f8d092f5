//go:build unix

package examples_test

import (
	"bufio"
	"errors"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// TestInterrupt: Ctrl-C saves what a program trains, in whatever step it
// strikes, and the command that it prints goes on, to the same end.
func TestInterrupt(t *testing.T) {
	cases := []struct {
		name string
		args []string
		line string // after which it is struck
		end  string // what must be the same in the end
	}{
		{"guide", []string{"-epochs", "8", "-units", "32", "-batch", "128"}, "Epoch 3/", "Test loss:"},
		{"customloop", []string{"-epochs", "8", "-units", "32", "-batch", "128"}, "Epoch 2:", "loss="},
		{"mnistcnn", []string{"-epochs", "3", "-steps", "30"}, "Epoch 2/", "Test loss:"},
		{"rossmann", []string{"-epochs", "3", "-rows", "3000", "-batch", "128"}, "Epoch 2/", "Test loss:"},
		{"unet", []string{"-epochs", "4", "-images", "40"}, "Epoch 2/", "Test loss:"},
		{"bert", []string{"-epochs", "3", "-texts", "600"}, "Epoch 2/", "Test loss:"},
	}
	switch { // the first two are Fit and a loop of one's own; the last two take longest
	case *full:
	case *every:
		cases = cases[:4]
	default:
		cases = cases[:2]
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			bin, run := buildAt(t, c.name)
			cmd := exec.Command(bin, c.args...)
			cmd.Env = append(os.Environ(), "TMPDIR="+t.TempDir())
			pipe, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			var out strings.Builder
			struck := false
			for s := bufio.NewScanner(pipe); s.Scan(); {
				out.WriteString(s.Text() + "\n")
				if !struck && strings.HasPrefix(s.Text(), c.line) {
					struck = true
					cmd.Process.Signal(syscall.SIGINT)
				}
			}
			var exit *exec.ExitError
			if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != 130 {
				t.Fatalf("got %v, want exit code 130, after\n%s", err, &out)
			}
			m := regexp.MustCompile(`(?m)^To go on: (.*)$`).FindStringSubmatch(out.String())
			if m == nil || !strings.Contains(out.String(), "context canceled") {
				t.Fatalf("got\n%s\nwant how to go on", &out)
			}
			words := strings.Fields(m[1])
			if words[0] != bin || !slices.Equal(words[1:1+len(c.args)], c.args) || words[len(words)-2] != "-dir" {
				t.Fatalf("got the command %q, want %s with %q and -dir", words, bin, c.args)
			}
			resumed := run(words[1:]...)
			if strings.Contains(resumed, "Epoch 1/") || strings.Contains(resumed, "Epoch 0:") {
				t.Errorf("it began anew:\n%s", resumed)
			}
			if got, want := last(t, resumed, c.end), last(t, run(c.args...), c.end); got != want {
				t.Errorf("got %s %v, want %v as without a break", c.end, got, want)
			}
		})
	}
}
