//go:build unix

package examples_test

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

// block is a piece of code of a page, with the text before it.
type block struct{ before, language, code string }

// blocks are those of a section of a page.
func blocks(t *testing.T, page, section string) []block {
	t.Helper()
	b, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	_, text, ok := strings.Cut(string(b), "\n## "+section+"\n")
	if !ok {
		t.Fatalf("%s has no section %q", page, section)
	}
	text, _, _ = strings.Cut(text, "\n## ")
	var out []block
	for _, m := range regexp.MustCompile("(?s)(.*?)\n```(\\w*)\n(.*?)```\n").FindAllStringSubmatch(text, -1) {
		out = append(out, block{m[1], m[2], m[3]})
	}
	return out
}

// TestTutorial follows docs/training.md from an empty folder: it writes the
// files and runs the commands, and presses Ctrl-C where the page says so. The
// module is the one here, without a network.
func TestTutorial(t *testing.T) {
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	env := append(os.Environ(), "GOPROXY=off", "GOFLAGS=-mod=mod", "GONOSUMDB=*", "GOWORK=off")
	out := ""
	run := func(command string) {
		t.Helper()
		cmd := exec.Command("sh", "-c", command)
		cmd.Dir, cmd.Env = dir, env
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C is for all of a terminal's group
		pipe, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		cmd.Stderr = cmd.Stdout
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		strike := strings.Contains(command, "# Ctrl-C")
		out = ""
		for s := bufio.NewScanner(pipe); s.Scan(); {
			out += s.Text() + "\n"
			if strike && strings.HasPrefix(s.Text(), "Epoch 4/") {
				syscall.Kill(-cmd.Process.Pid, syscall.SIGINT)
			}
		}
		if err := cmd.Wait(); (err != nil) != strike {
			t.Fatalf("%s: %v\n%s", command, err, out)
		}
		if strike && !strings.Contains(out, "which is saved: context canceled") {
			t.Fatalf("%s: got\n%s\nwant it to be interrupted and saved", command, out)
		}
	}
	file := regexp.MustCompile("rite `([^`]+)`")
	done := map[string]bool{}
	for _, b := range blocks(t, "../docs/training.md", "From an empty folder") {
		switch b.language {
		case "go":
			m := file.FindAllStringSubmatch(b.before, -1)
			path := filepath.Join(dir, m[len(m)-1][1])
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(b.code), 0o644); err != nil {
				t.Fatal(err)
			}
		case "sh":
			for command := range strings.Lines(b.code) {
				command = strings.TrimSpace(command)
				if to, ok := strings.CutPrefix(command, "cd "); ok {
					dir = filepath.Join(dir, to)
					continue
				}
				if command == "go mod tidy" {
					// It would look for what the tests of other modules import, too,
					// which this machine need not have: what is required is as here.
					run("sed -n '/^module/p' go.mod > name; sed 1d '" + root + "/go.mod' | cat name - > go.mod; rm name")
					run("go mod edit -require=github.com/mezzo-ml/mezzo@v0.0.0 '-replace=github.com/mezzo-ml/mezzo=" + root + "'")
					run("cp '" + root + "/go.sum' .")
				} else {
					run(command)
				}
				done[command] = true
				switch command {
				case "go run .":
					if strings.Contains(out, "Epoch 1/") || last(t, out, "Test accuracy:") < 0.85 {
						t.Errorf("got\n%s\nwant a training that goes on, and an accuracy of 0.85 or more", out)
					}
				case "ls":
					if got, want := strings.Fields(out), strings.Fields("curves.png digits.keras go.mod go.sum log.csv logs main.go state"); strings.Join(got, " ") != strings.Join(want, " ") {
						t.Errorf("got the files %q, want %q", got, want)
					}
				case "head -3 log.csv":
					if !strings.HasPrefix(out, "epoch,accuracy,") {
						t.Errorf("got\n%s\nwant a table", out)
					}
				case "go run ./predict":
					if !strings.Contains(out, "predicted:") || !strings.Contains(out, "true:") {
						t.Errorf("got\n%s", out)
					}
				}
			}
		}
	}
	if !done["go run ."] || !done["go run . # Ctrl-C"] || !done["go run ./predict"] {
		t.Errorf("only %v was run", done)
	}
}

// TestResumeByHand runs the commands of the section on checkpoints.
func TestResumeByHand(t *testing.T) {
	bin, _ := buildAt(t, "resume")
	dir := t.TempDir()
	var page, got string
	for _, b := range blocks(t, "../docs/training.md", "Checkpoints") {
		if strings.HasPrefix(b.code, "$ go build ./examples/resume\n") {
			page = b.code
		}
	}
	sums := regexp.MustCompile(`[0-9a-f]{64}`)
	for line := range strings.Lines(page) {
		command, ok := strings.CutPrefix(strings.TrimSpace(line), "$ ")
		if !ok {
			continue
		}
		got += "$ " + command + "\n"
		if command == "go build ./examples/resume" { // as buildAt did
			continue
		}
		cmd := exec.Command("sh", "-c", strings.Replace(command, "./resume", bin, 1))
		cmd.Dir = dir
		out, err := cmd.Output()
		if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); err != nil && ok && status.ExitStatus() != 0 || status.Signaled() {
			out = append(out, "Killed\n"...)
		}
		got += strings.Join(strings.Fields(string(out)), " ") + "\n"
	}
	want := sums.ReplaceAllString(page, "SUM")
	want = regexp.MustCompile(` +`).ReplaceAllString(want, " ")
	if got := sums.ReplaceAllString(got, "SUM"); page == "" || got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
