//go:build cuda && linux && amd64

package cuda

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestCubins: a GPU takes what is compiled for its major version, and PTX where
// there is nothing or the driver must not take it.
func TestCubins(t *testing.T) {
	fakeOnly(t)
	for _, c := range []struct{ name, env, want string }{
		{"same", "FAKECUDA_CAPABILITY=90", "sm_90"},
		{"newer minor version", "FAKECUDA_CAPABILITY=86", "sm_80"},
		{"newer major version", "FAKECUDA_CAPABILITY=100", "PTX"},
		{"older", "FAKECUDA_CAPABILITY=75", "PTX"},
		{"forbidden", "CUDA_FORCE_PTX_JIT=1", "sm_90 PTX"},
	} {
		t.Run(c.name, func(t *testing.T) {
			log := filepath.Join(t.TempDir(), "loads")
			// One unit: reductions have no chains, which are always PTX.
			cmd := exec.Command(os.Args[0], "-test.run=^TestConformance$/^Sum$/^float32$", "-test.short")
			cmd.Env = append(os.Environ(), "MEZZO_CUDA_TEST=gpu", "FAKECUDA_LOADS="+log, c.env)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			loads, err := os.ReadFile(log)
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.Join(strings.Fields(string(loads)), " "); got != c.want {
				t.Errorf("loaded %s, want %s", got, c.want)
			}
		})
	}
}
