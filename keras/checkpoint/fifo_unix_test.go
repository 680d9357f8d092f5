//go:build unix

package checkpoint_test

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/mezzo-ml/mezzo/keras/checkpoint"
	"github.com/mezzo-ml/mezzo/keras/internal/hdf5"
	"github.com/mezzo-ml/mezzo/keras/saving"
)

// TestNamedPipes loads a pipe that has no writer: an error that names it, and
// no waiting.
func TestNamedPipes(t *testing.T) {
	dir := t.TempDir()
	pipe := filepath.Join(dir, "epoch-99999-step-00000000.ckpt")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, read := range map[string]func() error{
		"checkpoint.Load":        func() error { _, err := checkpoint.Load(pipe); return err },
		"Directory":              func() error { _, err := (&checkpoint.Directory{Path: dir}).Load(t.Context()); return err },
		"saving.Load":            func() error { _, err := saving.Load(pipe); return err },
		"saving.LoadWeights":     func() error { return saving.LoadWeights(pipe, nil) },
		"saving.LoadNPZ":         func() error { return saving.LoadNPZ(pipe, nil) },
		"saving.LoadSafetensors": func() error { return saving.LoadSafetensors(pipe, nil) },
		"hdf5.Open":              func() error { _, _, err := hdf5.Open(pipe); return err },
	} {
		ended := make(chan error, 1)
		go func() { ended <- read() }()
		select {
		case err := <-ended:
			if err == nil || !strings.Contains(err.Error(), pipe+": it is a named pipe, want a regular file") {
				t.Errorf("%s: got error %v, want one that names the pipe", name, err)
			}
		case <-time.After(time.Minute):
			t.Fatalf("%s waits for the pipe", name)
		}
	}
}
