package saving_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/saving"
	"github.com/mezzo-ml/mezzo/layers"
)

// TestNoDevice: a device that is not there is an error of whatever reads or
// writes. MEZZO_DEVICE is read once, so a child process has it.
func TestNoDevice(t *testing.T) {
	const variable = "MEZZO_TEST_FILES"
	m := keras.Sequential(&layers.Dense{Units: 1})
	if err := m.Build(2); err != nil {
		t.Fatal(err)
	}
	ways := []struct {
		file string
		save func(string, *keras.Model) error
		load func(string, *keras.Model) error
	}{
		{"m.keras", func(p string, m *keras.Model) error { return saving.Save(p, m) }, func(p string, m *keras.Model) error {
			_, err := saving.Load(p)
			return err
		}},
		{"m.weights.h5", saveWeights, loadWeights},
		{"m.safetensors", saving.SaveSafetensors, saving.LoadSafetensors},
		{"m.npz", saving.SaveNPZ, saving.LoadNPZ},
	}
	if dir := os.Getenv(variable); dir != "" {
		for _, w := range ways {
			for _, err := range []error{w.load(filepath.Join(dir, w.file), m), w.save(filepath.Join(t.TempDir(), w.file), m)} {
				if err == nil || !strings.Contains(err.Error(), w.file) || !strings.Contains(err.Error(), "nowhere") {
					t.Errorf("%s: got error %v, want one that names the file and the device", w.file, err)
				}
			}
		}
		return
	}
	dir := t.TempDir()
	for _, w := range ways {
		if err := w.save(filepath.Join(dir, w.file), m); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestNoDevice$")
	cmd.Env = append(os.Environ(), variable+"="+dir, "MEZZO_DEVICE=nowhere")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}
