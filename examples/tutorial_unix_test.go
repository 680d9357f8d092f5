//go:build unix

package examples_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestTutorial follows docs/training.md from an empty folder: it writes the
// files, runs the commands, presses Ctrl-C where the page says so, and compares
// what is printed with the page. The module is the one here, without a network.
func TestTutorial(t *testing.T) {
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	s := newShell(t)
	s.env = append(s.env, "GOPROXY=off", "GOFLAGS=-mod=mod", "GONOSUMDB=*", "GOWORK=off")
	page := readPage(t, "docs/training.md")
	out := "" // of the last block of commands
	file := regexp.MustCompile("rite `([^`]+)`")
	done := map[string]int{}
	for _, f := range page.section(t, "From an empty folder") {
		switch f.language {
		case "go":
			m := file.FindAllStringSubmatch(f.before, -1)
			path := filepath.Join(s.dir, m[len(m)-1][1])
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(strings.Join(f.text, "\n")), 0o644); err != nil {
				t.Fatal(err)
			}
		case "sh":
			out = ""
			for _, command := range commandsOf(f) {
				done[command]++
				if to, ok := strings.CutPrefix(command, "cd "); ok {
					s.dir = filepath.Join(s.dir, to)
					continue
				}
				if command == "go mod tidy" {
					// It would look for what the tests of other modules import, too,
					// which this machine need not have: what is required is as here.
					out += s.run(t, "sed -n '/^module/p' go.mod > name; sed 1d '"+root+"/go.mod' | cat name - > go.mod; rm name", nil)
					out += s.run(t, "go mod edit -require=github.com/mezzo-ml/mezzo@v0.0.0 '-replace=github.com/mezzo-ml/mezzo="+root+"'", nil)
					out += s.run(t, "cp '"+root+"/go.sum' .", nil)
					continue
				}
				var strike *regexp.Regexp
				if i := slices.Index(page.fences, f); i+1 < len(page.fences) && page.fences[i+1].previous == f && command == "go run ." {
					strike = strikeOf(page.fences[i+1])
				}
				out += s.run(t, command, strike)
			}
		case "":
			hold(t, f, out)
		}
	}
	page.write(t)
	if done["go run ."] != 2 || done["go run ./predict"] != 1 {
		t.Errorf("only %v was run", done)
	}
}
