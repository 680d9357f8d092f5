//go:build cuda && linux && amd64

package cuda

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// queueScripts is where the scripts for a GPU are.
const queueScripts = "../../examples/gpucheck"

// TestGPUQueue rehearses the three calls of docs/gpu-queue.md, the very scripts, at
// small sizes: what they start is there, every section has its figures, no case fails,
// and the losses are those of the processor.
func TestGPUQueue(t *testing.T) {
	fakeOnly(t)
	t.Parallel()
	root := t.TempDir()
	scripts, bin := filepath.Join(root, "examples", "gpucheck"), filepath.Join(root, "bin")
	for _, dir := range []string{scripts, bin} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	buildGPUCheck(t, bin)
	own, err := os.Executable()
	if err == nil {
		err = os.Symlink(own, filepath.Join(bin, "cuda.test"))
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"common.sh", "first.sh", "second.sh", "third.sh"} {
		text, err := os.ReadFile(filepath.Join(queueScripts, name))
		if err == nil {
			err = os.WriteFile(filepath.Join(scripts, name), text, 0o755)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string][]string{
		"first": {
			`\* cuda: Fake GPU, sm_90`, `\* default: .*cublasLt 12\.2\.5, cuDNN 9\.10\.2`, `\* a bias and ReLU in one call: product yes, convolution yes`, `--- PASS: TestCapture`, `\* Softmax: \d+ pass`, `\* Iota: \d+ pass`,
			`cases of 3 operations pass, 0 fail`, `cases of 1 operations pass, 0 fail`, `\| mixed_float16 \| cuda \| [0-9. ]+ \| (0\.\d+|\d(\.\d+)?e-\d+) %`, `--- PASS: TestLateFault`,
		},
		"second": {
			`\| cnn-b2 \| float32 \| [0-9.]+ \| 1.00 \| – \| [0-9.]+ \| [0-9.]+ \| 1.00 \| – \|`, `\| cnn-b2 \| float32, TF32 \| [0-9.]+ \|`, `\| cnn-b2 \| mixed_bfloat16 \| [0-9.]+ \| [0-9.]+ \|`,
			`\| copy \| float16 \| [0-9.]+ \| \d+ GB/s \| 100 %`, `\| softmax \| float16 \| [0-9.]+ \| \d+ GB/s`, `\| transpose \| float32 \| [0-9.]+ \| \d+ GB/s`,
		},
		"third": {`\| small-mlp \| mixed_float16 \| [0-9.]+ \| [0-9.]+ \| [0-9.]+ \| [0-9.]+ \|`, `\| lstm \| mixed_float16 \| [0-9.]+ \| [0-9.]+ \|`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd := exec.Command("bash", filepath.Join(scripts, name+".sh"))
			cmd.Env = append(os.Environ(), "REHEARSAL=1", "OUT="+filepath.Join(root, name))
			out, err := cmd.CombinedOutput()
			text := string(out)
			if err != nil {
				t.Fatalf("%v\n%s", err, text)
			}
			for _, w := range append(want, `== \[\d+ s\] done`) {
				if !regexp.MustCompile(w).MatchString(text) {
					t.Errorf("no %q in\n%s", w, text)
				}
			}
			for _, bad := range []string{"exit status", "not done", "--- FAIL", "left out"} {
				if strings.Contains(text, bad) {
					t.Errorf("%q in\n%s", bad, text)
				}
			}
			if log, err := os.ReadFile(filepath.Join(root, name, name+".log")); err != nil || string(log) != text {
				t.Errorf("the log is not what was printed (%v)", err)
			}
		})
	}
}

// TestGPUQueueNames: the tests and benchmarks that the scripts name are there.
func TestGPUQueueNames(t *testing.T) {
	own, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	list := exec.Command(own, "-test.list", ".*")
	list.Env = append(os.Environ(), "MEZZO_CUDA_TEST=gpu") // the fake driver is there
	out, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	there, found := strings.Fields(string(out)), 0
	for _, name := range []string{"first.sh", "second.sh", "third.sh"} {
		text, err := os.ReadFile(filepath.Join(queueScripts, name))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`\^Test\(?([\w|]+)\)?\$|'Products`).FindAllStringSubmatch(string(text), -1) {
			for _, test := range strings.Split(m[1], "|") {
				found++
				if m[1] != "" && !slices.Contains(there, "Test"+test) {
					t.Errorf("%s: no Test%s", name, test)
				}
			}
		}
	}
	if found < 15 || !slices.Contains(there, "BenchmarkProducts") {
		t.Errorf("%d names found, of tests and benchmarks %v", found, there)
	}
}

// TestSeeds rehearses the rows of the seed models that second.sh leaves out at small sizes,
// on a fake driver that computes nothing: each model is trained under each arithmetic, and
// its shares stand beside those that were published.
func TestSeeds(t *testing.T) {
	fakeOnly(t)
	t.Parallel()
	cmd := exec.Command(buildGPUCheck(t, t.TempDir()), "-small", "-only", "seeds", "-least", "1ms", "-rows", "rossmann,unet,bert,bert-remat")
	cmd.Env = append(os.Environ(), "FAKECUDA_DRY=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	const figures = ` \| [0-9.]+ \| [0-9.]+ \| `
	for model, published := range map[string]string{"rossmann": "1.07, 0.99", "unet": "0.95, 0.70", "bert": "0.46, 0.37", "bert-remat": "–"} {
		for _, arithmetic := range []string{"float32", "float32, TF32", "mixed_float16", "mixed_bfloat16"} {
			want := "–"
			switch {
			case strings.HasPrefix(arithmetic, "mixed"):
				want = published
			case model == "bert-remat" && arithmetic == "float32":
				want = "1.26, 1.28" // beside bert
			}
			if row := `(?m)^\| ` + model + ` \| ` + arithmetic + figures + want + figures; !regexp.MustCompile(row).Match(out) {
				t.Errorf("no row %q in\n%s", row, out)
			}
		}
	}
}
