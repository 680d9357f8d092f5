// Package examples_test runs the example programs and holds them to a target:
// what a newcomer runs first must work.
package examples_test

import (
	"debug/elf"
	"flag"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"

	// What the programs import and these tests do not: go test compiles it before it runs
	// them, so that buildAll does not do that a second time at the same time.
	_ "github.com/mezzo-ml/mezzo/keras/callbacks"
	_ "github.com/mezzo-ml/mezzo/keras/data"
	_ "github.com/mezzo-ml/mezzo/keras/datasets/mnist"
	_ "github.com/mezzo-ml/mezzo/keras/hub"
	_ "github.com/mezzo-ml/mezzo/keras/journal"
	_ "github.com/mezzo-ml/mezzo/keras/onnx"
	_ "github.com/mezzo-ml/mezzo/keras/serving"
	_ "github.com/mezzo-ml/mezzo/keras/tensorboard"
	_ "gonum.org/v1/gonum/mat"
	_ "gonum.org/v1/plot/plotter"
)

// programs is where the examples are built.
var programs string

func TestMain(m *testing.M) {
	if name := os.Getenv(snippetVariable); name != "" {
		os.Exit(runSnippetOf(name))
	}
	var err error
	if programs, err = os.MkdirTemp("", "examples"); err != nil {
		log.Fatal(err)
	}
	code := m.Run()
	os.RemoveAll(programs)
	os.Exit(code)
}

// buildAll compiles the examples, when the first of them is wanted: one command
// for all takes half as long as one for each.
var buildAll = sync.OnceValue(func() error {
	args := []string{"build", "-ldflags=-s -w", "-o", programs + string(filepath.Separator)}
	for _, name := range []string{"accuracy", "audit", "bert", "customloop", "distributed", "doctor", "gan", "guide", "mnistcnn", "onnx", "overflow", "pcm", "predict", "quantize", "quickstart", "refine", "resume", "rossmann", "serve", "translate", "unet", "vae"} {
		args = append(args, "./"+name)
	}
	cmd := exec.Command("go", args...)
	// With GOAMD64=v3 sums of products are fused, and their last digits are others.
	// CGO_ENABLED stays as it is: with another value package net and all packages
	// above it would be compiled a second time.
	cmd.Env = append(os.Environ(), "GOAMD64=v1")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build: %w\n%s", err, out)
	}
	return nil
})

// TestStatic: the program that CGO_ENABLED=0 makes needs no libraries, as the
// README says. Where cgo is on, package net is linked to libc, and the program is
// built once more without, with all packages above net.
func TestStatic(t *testing.T) {
	out, err := exec.Command("go", "env", "CGO_ENABLED").Output()
	if err != nil {
		t.Fatal(err)
	}
	cgo := strings.TrimSpace(string(out)) != "0"
	if cgo && !*every {
		t.Skip("cgo is on: half of the packages would be compiled once more; with -every")
	}
	bin, _ := buildAt(t, "guide")
	if cgo {
		bin = filepath.Join(t.TempDir(), "guide")
		cmd := exec.Command("go", "build", "-o", bin, "./guide")
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("go build: %v\n%s", err, out)
		}
	}
	f, err := elf.Open(bin)
	if err != nil {
		if runtime.GOOS == "linux" {
			t.Fatal(err)
		}
		return // only Linux has programs that need no libraries
	}
	defer f.Close()
	if libraries, err := f.ImportedLibraries(); len(libraries) > 0 {
		t.Errorf("got libraries %v, %v, want none", libraries, err)
	}
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			t.Error("the program is dynamically linked")
		}
	}
}

var (
	every = flag.Bool("every", false, "run also what takes seconds: the long blocks of docs, four programs of TestInterrupt, and TestAccuracy, as CI does")
	full  = flag.Bool("full", false, "train each program under three policies to an accuracy, not under one, and interrupt all: three times as long")
)

// policies are those to train a program under: one, another for each program, unless -full
// is given. TestAccuracy runs four of them under all three.
func policies(one string) []string {
	if *full {
		return []string{"float32", "mixed_bfloat16", "mixed_float16"}
	}
	return []string{one}
}

// build compiles an example and returns a function that runs it.
func build(t *testing.T, name string) func(args ...string) string {
	t.Helper()
	_, run := buildAt(t, name)
	return run
}

// buildAt is build, and tells where the program is.
func buildAt(t *testing.T, name string) (bin string, run func(args ...string) string) {
	t.Helper()
	if err := buildAll(); err != nil {
		t.Fatal(err)
	}
	bin = filepath.Join(programs, name)
	return bin, func(args ...string) string {
		t.Helper()
		out, err := exec.Command(bin, args...).CombinedOutput()
		if err != nil {
			t.Fatalf("%s %q: %v\n%s", name, args, err, out)
		}
		return string(out)
	}
}

// last is the last number that follows label in the output of a program.
func last(t *testing.T, out, label string) float64 {
	t.Helper()
	m := regexp.MustCompile(regexp.QuoteMeta(label)+`\s*([0-9.eE+-]+)`).FindAllStringSubmatch(out, -1)
	if m == nil {
		t.Fatalf("no %q in\n%s", label, out)
	}
	x, err := strconv.ParseFloat(m[len(m)-1][1], 64)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// TestDistributed: any number of ranks ends with the same weights.
func TestDistributed(t *testing.T) {
	bin, _ := buildAt(t, "distributed")
	var first string
	for _, ranks := range []string{"none", "local:2", "local:3"} {
		cmd := exec.Command(bin, "-epochs", "2")
		cmd.Env = append(os.Environ(), "MEZZO_DISTRIBUTION="+ranks)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", ranks, err, out)
		}
		_, weights, _ := strings.Cut(string(out), "weights ")
		if first == "" {
			first = weights
		}
		if weights != first || weights == "" {
			t.Errorf("%s: weights %q, want %q", ranks, weights, first)
		}
		if accuracy := last(t, string(out), "Test accuracy:"); accuracy < 0.7 {
			t.Errorf("%s: test accuracy %v, want at least 0.7", ranks, accuracy)
		}
	}
}

func TestGuide(t *testing.T) {
	run := build(t, "guide")
	for _, policy := range policies("mixed_float16") {
		out := run("-policy", policy, "-epochs", "3", "-batch", "128")
		if got := last(t, out, "Test accuracy:"); got < 0.85 {
			t.Errorf("%s: got test accuracy %v, want 0.85 or more", policy, got)
		}
		if strings.Contains(out, "loss_scale: ") || strings.Contains(out, "skipped: ") {
			t.Errorf("%s: the loss scale is shown, though it has not changed:\n%s", policy, out)
		}
	}
}

// TestGuideMNIST trains on the real files where there are any.
func TestGuideMNIST(t *testing.T) {
	dir := os.Getenv("MEZZO_MNIST_DIR")
	if dir == "" {
		t.Skip("MEZZO_MNIST_DIR names no directory with the MNIST files")
	}
	out := build(t, "guide")("-data", dir, "-epochs", "1", "-batch", "256")
	if got := last(t, out, "Test accuracy:"); got < 0.88 {
		t.Errorf("got test accuracy %v, want 0.88 or more", got)
	}
}

func TestCustomLoop(t *testing.T) {
	out := build(t, "customloop")("-epochs", "3", "-batch", "128")
	if got := last(t, out, "test accuracy="); got < 0.85 {
		t.Errorf("got test accuracy %v, want 0.85 or more\n%s", got, out)
	}
}

// TestONNX: 200 images are enough for a network that can read digits.
func TestONNX(t *testing.T) {
	path := filepath.Join(t.TempDir(), "digits.onnx")
	out := build(t, "onnx")("-file", path)
	if got := last(t, out, "Digits: test accuracy"); got < 0.85 {
		t.Errorf("got test accuracy %v, want 0.85 or more", got)
	}
	if got := last(t, out, "Even or odd: test accuracy"); got < 0.8 {
		t.Errorf("even or odd: got test accuracy %v, want 0.8 or more", got)
	}
	if got := last(t, out, "Imported:"); got != 50890 {
		t.Errorf("got %v imported weights, want 50890", got)
	}
	if info, err := os.Stat(path); err != nil || info.Size() < 4*50890 {
		t.Errorf("the file: %v, %v", info, err)
	}
}

// TestOwnSteps: the programs with training steps of their own. A picture of this data
// costs 543 nats before training; a critic that tells nothing has the loss ln 2.
func TestOwnSteps(t *testing.T) {
	out := build(t, "vae")("-epochs", "4", "-images", "2000")
	if got := last(t, out, "Test loss:"); got > 230 {
		t.Errorf("vae: got test loss %v, want 230 or less\n%s", got, out)
	}
	out = build(t, "gan")("-epochs", "3", "-images", "1000")
	if got := last(t, out, "critic_loss:"); got > 0.6 {
		t.Errorf("gan: got a critic's loss of %v, want 0.6 or less\n%s", got, out)
	}
	if n := strings.Count(out[strings.Index(out, "Drawn by"):], "\n"); n != 15 {
		t.Errorf("gan: drew pictures of %d lines, want 14\n%s", n-1, out)
	}
}

func TestMNISTCNN(t *testing.T) {
	run := build(t, "mnistcnn")
	if got := last(t, run("-epochs", "1", "-rate", "1e-9", "-steps", "20"), "Training accuracy:"); got > 0.3 {
		t.Errorf("got training accuracy %v with a learning rate of 1e-9, want that of a guess", got)
	}
	for _, policy := range policies("mixed_bfloat16") {
		out := run("-policy", policy, "-epochs", "1")
		if got := last(t, out, "Parameters:"); got != 9098 {
			t.Errorf("%s: got %v parameters, want 9098", policy, got)
		}
		if got := last(t, out, "Test accuracy:"); got < 0.85 {
			t.Errorf("%s: got test accuracy %v, want 0.85 or more", policy, got)
		}
		if got := last(t, out, "Training accuracy:"); got < 0.85 {
			t.Errorf("%s: got training accuracy %v, want 0.85 or more", policy, got)
		}
	}
}

// TestMNISTCNNBudget holds the large model to what mixed precision is for: in
// the memory of 512 samples in float32, at least 1.6 times as many.
func TestMNISTCNNBudget(t *testing.T) {
	out := build(t, "mnistcnn")("-model", "big", "-budget", "2048")
	full, half := last(t, out, "under float32:"), last(t, out, "under mixed_float16:")
	if full < 300 || half < 1.6*full {
		t.Errorf("got batches of %v in float32 and %v in mixed_float16, want 1.6 times as many", full, half)
	}
}

// TestMNISTCNNLint: the small model is fine but for its classes, as are most
// classifiers; the large one has filters that are no multiple of 8.
func TestMNISTCNNLint(t *testing.T) {
	run := build(t, "mnistcnn")
	if out := run("-lint", "-policy", "float32"); strings.Count(out, "\n") != 1 {
		t.Errorf("float32: got findings\n%s", out)
	}
	for model, want := range map[string][]string{"small": {"Units: 16"}, "big": {"Filters: 424", "Units: 16", "take 96 or 104"}} {
		out := run("-lint", "-model", model)
		for _, w := range want {
			if !strings.Contains(out, w) {
				t.Errorf("%s: got\n%s\nwant %q in it", model, out, w)
			}
		}
		if n := strings.Count(out, "\n") - 1; n != len(want) {
			t.Errorf("%s: got %d findings, want %d:\n%s", model, n, len(want), out)
		}
	}
}

// TestRossmann holds the example to what it is for: a loss that float16 cannot
// hold comes down like that of float32, because the loss scale falls.
func TestRossmann(t *testing.T) {
	run := build(t, "rossmann")
	want, names := 0.0, policies("mixed_float16")
	if !*full {
		names = append([]string{"float32"}, names...)
	}
	for _, policy := range names {
		out := run("-policy", policy, "-rows", "4000", "-batch", "256", "-epochs", "8", "-rate", "0.02")
		first, end := last(t, out, "Loss of the epochs: ["), last(t, out, "Test loss:")
		if first < 1e7 || end > 0.9*first {
			t.Errorf("%s: got a loss of %v in the first epoch and %v at the end, want above 10,000,000 and a tenth less", policy, first, end)
		}
		if want == 0 {
			want = end
		} else if end < 0.8*want || end > 1.25*want {
			t.Errorf("%s: got test loss %v, want about %v as in float32", policy, end, want)
		}
		skipped, scale := last(t, out, "skipped:"), last(t, out, "loss scale at the end:")
		if policy == "mixed_float16" && (skipped < 3 || scale >= 32768) || policy != "mixed_float16" && (skipped != 0 || scale != 1) {
			t.Errorf("%s: got %v skipped steps and loss scale %v", policy, skipped, scale)
		}
	}
}

func TestUNet(t *testing.T) {
	run := build(t, "unet")
	for _, policy := range policies("float32") {
		out := run("-policy", policy, "-images", "80", "-epochs", "3", "-batch", "4")
		if got := last(t, out, "Test IoU:"); got < 0.4 {
			t.Errorf("%s: got an IoU of %v, want 0.4 or more", policy, got)
		}
	}
}

func TestBERT(t *testing.T) {
	run := build(t, "bert")
	if out := run("-texts", "100", "-epochs", "1", "-steps", "2", "-remat"); !strings.Contains(out, "Test loss:") {
		t.Errorf("-remat: got\n%s", out)
	}
	for _, policy := range policies("mixed_float16") {
		out := run("-policy", policy, "-texts", "900", "-epochs", "3")
		// A guess has a loss of 2·ln 40 = 7.4.
		if got := last(t, out, "Test loss:"); got > 5.5 {
			t.Errorf("%s: got test loss %v, want 5.5 or less", policy, got)
		}
	}
}

// TestTranslate: a guess has a loss of ln 386 = 6.0, and no four words right.
func TestTranslate(t *testing.T) {
	run := build(t, "translate")
	for _, policy := range policies("mixed_bfloat16") {
		out := run("-policies", policy, "-pairs", "3000", "-tests", "100", "-epochs", "4", "-features", "32", "-layers", "1", "-warmup", "100", "-rate", "2")
		if loss, score := last(t, out, "test loss"), last(t, out, "BLEU"); loss > 3.3 || score < 3 {
			t.Errorf("%s: got test loss %v and BLEU %v, want 3.3 or less and 3 or more\n%s", policy, loss, score, out)
		}
	}
}

// TestAccuracy runs what makes the tables of docs/benchmarks/accuracy.md, too
// short to learn anything: each program says what is read from it.
func TestAccuracy(t *testing.T) {
	if !*every {
		t.Skip("it builds programs and runs each under three policies: with -every")
	}
	bin, _ := buildAt(t, "accuracy")
	cmd := exec.Command(bin, "-mnist=false", "-seeds", "1", "--", "-steps", "1", "-epochs", "1")
	cmd.Dir = ".."
	cmd.Env = append(os.Environ(), "GOFLAGS="+os.Getenv("GOFLAGS")+" -ldflags=-s") // it builds programs
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, want := range []string{"| `examples/mnistcnn` (8 and 16 filters, 3 epochs) | test accuracy | ", "| IoU of drawn", "| skipped steps | 0 | 0 | 1 |", "| answers found exactly | ", "| time of a step, ms | ", "| planned memory of a step, MiB | ", "| peak memory of the process, MiB | "} {
		if !strings.Contains(string(out), want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
}

func TestOverflow(t *testing.T) {
	out := build(t, "overflow")()
	for _, want := range []string{
		"256² in float16   = +Inf", "256² in bfloat16  = 65536", "1e-05² in float16   = 0\n",
		"float16   loss scale 1      gradient 0\n",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	if got := last(t, out, fmt.Sprintf("%-9v loss scale %-6v gradient", "float16", 32768)); got < 0.99e-8 || got > 1.01e-8 {
		t.Errorf("got a scaled float16 gradient of %v, want 1e-8", got)
	}
}
