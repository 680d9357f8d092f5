//go:build cuda && linux && amd64

package cuda

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/backendtest"
	"github.com/mezzo-ml/mezzo/backend/cuda/internal/api"
	"github.com/mezzo-ml/mezzo/backend/cuda/internal/fake"
	"github.com/mezzo-ml/mezzo/backend/cuda/internal/nvlib"
	"github.com/mezzo-ml/mezzo/backend/cuda/kernels"
	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/op"
)

// interpret has the fake driver execute the PTX of kernels, if the setting says so.
func interpret() error {
	if os.Getenv(fake.InterpretSetting) != "1" {
		return nil
	}
	return fake.Interpret(os.Getenv(api.DriverSetting))
}

// chosen says which cases of the suite run. Without -short all do, but where PTX is
// interpreted only the small ones. With -short, of each operation and type:
//
//   - on kernels compiled for the host every second one;
//   - where PTX is interpreted one in four or five, of element-wise operations, whose
//     chains differ by little but the function, the first, and of the older PTX, whose
//     kernels have mostly the same sources, the first of all.
func chosen() func(backendtest.Case) bool {
	interpreted := os.Getenv(fake.InterpretSetting) == "1"
	older := os.Getenv("FAKECUDA_CAPABILITY") == "75"
	type key struct {
		op    op.Code
		dtype dtype.DType
		large bool
	}
	seen := map[key]int{}
	return func(c backendtest.Case) bool {
		if interpreted && c.Large {
			return false
		}
		k := key{c.Op, c.DType, c.Large}
		n := seen[k]
		seen[k]++
		switch {
		case !testing.Short(), n == 0 && !c.Large:
			return true
		case !interpreted:
			return n%2 == 0 && !(c.Large && c.Op == op.Stats) // which is expanded: its operations have large cases of their own
		case older:
			return false
		case c.Op == op.ScatterAdd, c.Op == op.Unique, c.Op == op.Transpose: // sizes have kernels of their own
			return true
		case c.Op.Info().Class == op.Elementwise:
			return false
		case c.Op == op.Conv, c.Op == op.ConvInputGrad, c.Op == op.ConvKernelGrad:
			return n%4 == 0
		}
		return n%5 == 0 // other cases come in twos and fours
	}
}

// tallySetting names a file for what has been executed of the PTX.
const tallySetting = "FAKECUDA_PTX_TALLY"

func writeTallies() error {
	name := os.Getenv(tallySetting)
	if name == "" {
		return nil
	}
	data, err := json.Marshal(fake.Tallies())
	if err != nil {
		return err
	}
	return os.WriteFile(name, data, 0o644)
}

// interpretedRuns are the tests that TestInterpreted starts: of the newest PTX, and of
// the older one those whose kernels are others (bfloat16 has the sources of float16).
var interpretedRuns = []struct {
	capability, architecture int
	libraries                bool
	tests                    string
}{
	{90, 80, false, "^(TestConformance|TestAttention|TestPadding|TestTogether|TestWaiting|TestDroppedSum|TestMaxPool)$"},
	{90, 80, false, "^TestConvolution$/exact=false/float32"},
	{90, 80, true, "^(TestEight|TestIm2colReused)"},
	{75, 70, false, "^TestConformance$/^(MatMul|Conv|Attention|RNN)/^float"},
}

// without are the kernels that no single operation of the suite calls: they come from
// what passes make of programs (a float32 operation that stores 16 bits, a random
// number that is compared), are for types that it does not mix, or for several ranks.
var without = regexp.MustCompile(`^(centered_sums|normalize|normalize_grad|softmax_rows|softmax_grad_rows)_float32_b?float16$|^normalize_grad_b?float16_float32$|` +
	`^reduce_(block|thread)_b?float16_wide$|^eight_(turned_)?(b?float16|float32)$|^random_mask$|^scatter_add_bool$|^pieces_|^tree_sum_`)

// TestInterpreted runs the suite on the PTX that is kept in the tree, and on the PTX of
// the chains, executed by package simt: every kernel but those is called, the results are
// within the suite's tolerances, and no kernel does what simt forbids. With -short it
// leaves whole programs out, and most of the cases.
func TestInterpreted(t *testing.T) {
	fakeOnly(t)
	if os.Getenv(fake.InterpretSetting) == "1" {
		t.Skip("everything is interpreted")
	}
	t.Parallel()
	called := map[int][]fake.Tally{} // by architecture
	for _, c := range interpretedRuns {
		file := filepath.Join(t.TempDir(), "tallies")
		cmd := exec.Command(os.Args[0], "-test.run="+c.tests, fmt.Sprint("-test.short=", testing.Short()))
		if testing.Short() {
			cmd.Args = append(cmd.Args, "-test.skip=^TestConformance$/^(Training|Program|Fusion)$")
		}
		cmd.Env = append(os.Environ(), "MEZZO_CUDA_TEST=gpu", fake.InterpretSetting+"=1", tallySetting+"="+file, fmt.Sprint("FAKECUDA_CAPABILITY=", c.capability))
		if !c.libraries {
			cmd.Env = append(cmd.Env, nvlib.Setting+"=-")
		}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("sm_%d, %s: %v\n%s", c.architecture, c.tests, err, out)
		}
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var list []fake.Tally
		if err := json.Unmarshal(data, &list); err != nil {
			t.Fatal(err)
		}
		called[c.architecture] = append(called[c.architecture], list...)
		var sum fake.Tally
		for _, k := range list {
			sum.Launches += k.Launches
			sum.Instructions += k.Instructions
			sum.Executed += k.Executed
			sum.Total += k.Total
		}
		t.Logf("sm_%d, %s: %d kernels, %d launches of %d instructions of warps, %d of %d instructions of PTX, %.0f s of processors",
			c.architecture, c.tests, len(list), sum.Launches, sum.Instructions, sum.Executed, sum.Total, (cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Seconds())
	}
	for architecture, list := range called {
		if missing := uncalled(t, architecture, list); len(missing) > 0 && architecture == kernels.Architectures[0] {
			t.Errorf("sm_%d: %d kernels were not called: %v", architecture, len(missing), missing)
		}
	}
}

// uncalled are the kernels of an architecture that are not on a list, sorted.
func uncalled(t *testing.T, architecture int, list []fake.Tally) (missing []string) {
	t.Helper()
	for _, unit := range kernels.Units() {
		text, err := kernels.PTX(unit, architecture)
		if err != nil {
			t.Fatal(err)
		}
		for _, part := range strings.Split(text, ".entry ")[1:] {
			name, _, _ := strings.Cut(part, "(")
			if !without.MatchString(name) && !slices.ContainsFunc(list, func(k fake.Tally) bool { return k.Kernel == name }) {
				missing = append(missing, name)
			}
		}
	}
	slices.Sort(missing)
	return missing
}
