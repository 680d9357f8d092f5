//go:build unix

package examples_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// require is go mod tidy for a module that needs this one. That would look for
// what the tests of other modules import, too, which this machine need not have:
// what is required is as here.
func (s *shell) require(t *testing.T) (out string) {
	t.Helper()
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	for _, command := range []string{
		"sed -n '/^module/p' go.mod > name; sed 1d '" + root + "/go.mod' | cat name - > go.mod; rm name",
		"go mod edit -require=github.com/mezzo-ml/mezzo@v0.0.0 '-replace=github.com/mezzo-ml/mezzo=" + root + "'",
		"cp '" + root + "/go.sum' .",
	} {
		out += s.run(t, command, nil)
	}
	return out
}

// withinTest is a test of the metric of docs/add-an-op.md, and what it leaves
// out of that of the layer.
const withinTest = `package user

import (
	"context"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/op"
	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/metrics"
	"github.com/mezzo-ml/mezzo/layers"
	"github.com/mezzo-ml/mezzo/layers/layertest"
	"github.com/mezzo-ml/mezzo/losses"
	"github.com/mezzo-ml/mezzo/optimizers"
)

var (
	_ metrics.Metric       = &Within{}
	_ losses.Loss          = LogCosh{}
	_ optimizers.Optimizer = &SignSGD{}
)

func TestWithin(t *testing.T) {
	w := &Within{Tolerance: 1, Mean: metrics.Mean{Name: "within"}}
	update := keras.Function(func(b keras.Batch) *keras.Tensor {
		w.UpdateWeighted(b.Y, b.X, b.Weight)
		return b.X
	}, w)
	x, y := keras.NewTensor([]float32{1, 2, 3}, 3), keras.NewTensor([]float32{1.5, 3, 3}, 3)
	weight := keras.NewTensor([]float32{1, 2, 5}, 3)
	for range 2 {
		if _, err := update.Call(context.Background(), keras.Batch{X: x, Y: y, Weight: weight}); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := w.Result(); got != 0.75 || err != nil || w.MetricName() != "within" {
		t.Errorf("got %s %v, %v, want within 0.75", w.MetricName(), got, err)
	}
}

func TestSignSGD(t *testing.T) {
	m := keras.Sequential(&Scale{Shift: 0.5})
	err := m.Compile(keras.CompileConfig{Loss: LogCosh{}, Optimizer: &SignSGD{LearningRate: 0.25}})
	if err != nil {
		t.Fatal(err)
	}
	b := keras.Batch{X: keras.NewTensor([]float32{1, -2}, 1, 2), Y: keras.NewTensor([]float32{9, 9}, 1, 2)}
	if _, err := m.TrainOnBatch(context.Background(), b); err != nil {
		t.Fatal(err)
	}
	gain, err := m.Weights()[0].Variable.Float64s()
	if err != nil || gain[0] != 1.25 || gain[1] != 0.75 {
		t.Errorf("got gains %v, %v, want 1.25 and 0.75", gain, err)
	}
}

`

// TestUserCode: what docs/add-an-op.md adds from outside of this module compiles
// there, and works.
func TestUserCode(t *testing.T) {
	s := newShell(t)
	s.env = append(s.env, "GOPROXY=off", "GOFLAGS="+os.Getenv("GOFLAGS")+" -mod=mod", "GONOSUMDB=*", "GOWORK=off")
	s.run(t, "go mod init user", nil)
	s.require(t)
	test, n := withinTest, 0
	for _, f := range readPage(t, "docs/add-an-op.md").fences {
		code := strings.Join(f.text, "\n") + "\n"
		switch {
		case strings.HasPrefix(code, "func Test"):
			test += code
		case strings.Contains("\n"+code, "\npackage user\n"):
			n++
			if err := os.WriteFile(filepath.Join(s.dir, fmt.Sprintf("user%d.go", n)), []byte(code), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	if n != 4 {
		t.Errorf("the page has %d parts, want a layer, a loss, a metric and an optimizer", n)
	}
	if err := os.WriteFile(filepath.Join(s.dir, "user_test.go"), []byte(test), 0o644); err != nil {
		t.Fatal(err)
	}
	if out := s.run(t, "go test .", nil); !strings.HasPrefix(out, "ok ") {
		t.Error(out)
	}
}

// TestTutorial follows docs/tutorial.md from an empty folder: it writes the
// files, runs the commands, presses Ctrl-C where the page says so, and compares
// what is printed with the page. The module is the one here, without a network.
func TestTutorial(t *testing.T) {
	s := newShell(t)
	s.env = append(s.env, "GOPROXY=off", "GOFLAGS="+os.Getenv("GOFLAGS")+" -mod=mod", "GONOSUMDB=*", "GOWORK=off")
	page := readPage(t, "docs/tutorial.md")
	out := "" // of the last block of commands
	file := regexp.MustCompile("rite `([^`]+)`")
	done := map[string]int{}
	for _, f := range page.fences {
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
					out += s.require(t)
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
