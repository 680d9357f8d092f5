//go:build cuda && linux && amd64

package cuda

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestGPUCheck runs what will be carried to a GPU, at small sizes: every section
// has its figures, no case fails, and the losses are those of the processor.
func TestGPUCheck(t *testing.T) {
	if os.Getenv("MEZZO_CUDA_TEST") == "gpu" {
		t.Skip("the program itself is for the GPU")
	}
	bin := filepath.Join(t.TempDir(), "gpucheck")
	if out, err := exec.Command("go", "build", "-tags", "cuda", "-o", bin, "../../examples/gpucheck").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	args := []string{"-small", "-cases", "Softmax/float16,Gather/float32", "-limit", "5m"}
	if testing.Short() {
		args = append(args, "-only", "inventory,conformance,steps", "-rows", "small-mlp")
	}
	out, err := exec.Command(bin, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	text := string(out)
	for _, want := range []string{`\* cuda: Fake GPU, sm_90`, `\* default: .*cublasLt 12\.2\.5, cuDNN 9\.10\.2`, "cases of 2 operations pass, 0 fail", `\| small-mlp \| mixed_float16 \| [0-9.]+ \| [0-9.]+ \|`} {
		if !regexp.MustCompile(want).MatchString(text) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	for _, bad := range []string{"exit status", "error", "not done"} {
		if strings.Contains(text, bad) {
			t.Errorf("%q in\n%s", bad, text)
		}
	}
	if testing.Short() {
		return
	}
	for _, want := range []string{`\| adam \| float32 \| [0-9.]+ \| \d+ GB/s`, `\| mixed_bfloat16 \| cuda \| [0-9. ]+ \| (0\.\d+|\d(\.\d+)?e-\d+) %`, `\| bert \| float32 \| [0-9.]+`} {
		if !regexp.MustCompile(want).MatchString(text) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}
