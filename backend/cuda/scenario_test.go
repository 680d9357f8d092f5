//go:build cuda && linux && amd64

package cuda

import (
	"os"
	"os/exec"
	"testing"
)

// TestScenarios runs every fourth of the whole programs of keras/internal/scenario
// on this device, with caches and passes on and off, and compares with plain Go.
// docs/testing.md explains it.
func TestScenarios(t *testing.T) {
	t.Parallel()
	cmd := exec.Command("go", "test", "-tags", "cuda", "-count=1", "-short", "-run", "TestScenarios", "../../keras/internal/scenario", "-device", "cuda")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
