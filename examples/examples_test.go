// Package examples_test runs the example programs and holds them to a target:
// what a newcomer runs first must work.
package examples_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// build compiles an example and returns a function that runs it.
func build(t *testing.T, name string) func(args ...string) string {
	t.Helper()
	bin := filepath.Join(t.TempDir(), name)
	if out, err := exec.Command("go", "build", "-o", bin, "./"+name).CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return func(args ...string) string {
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

func TestGuide(t *testing.T) {
	run := build(t, "guide")
	for _, policy := range []string{"float32", "mixed_bfloat16", "mixed_float16"} {
		out := run("-policy", policy, "-epochs", "3", "-batch", "128")
		if got := last(t, out, "Test accuracy:"); got < 0.85 {
			t.Errorf("%s: got test accuracy %v, want 0.85 or more", policy, got)
		}
		if scaled := strings.Contains(out, "loss_scale: "); scaled != (policy == "mixed_float16") {
			t.Errorf("%s: loss scale shown: %v\n%s", policy, scaled, out)
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

func TestMNISTCNN(t *testing.T) {
	run := build(t, "mnistcnn")
	for _, policy := range []string{"float32", "mixed_bfloat16", "mixed_float16"} {
		out := run("-policy", policy, "-epochs", "1")
		if got := last(t, out, "Parameters:"); got != 9098 {
			t.Errorf("%s: got %v parameters, want 9098", policy, got)
		}
		if got := last(t, out, "Test accuracy:"); got < 0.85 {
			t.Errorf("%s: got test accuracy %v, want 0.85 or more", policy, got)
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
