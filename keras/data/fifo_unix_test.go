//go:build unix

package data_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/mezzo-ml/mezzo/keras/data"
)

// TestNamedPipes reads a pipe that has no writer with every source of files: an
// error that names it, and no waiting.
func TestNamedPipes(t *testing.T) {
	dir := t.TempDir()
	class := filepath.Join(dir, "class")
	if err := os.Mkdir(class, 0o700); err != nil {
		t.Fatal(err)
	}
	pipe := filepath.Join(class, "pipe.txt")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir, "linked")
	if err := os.Mkdir(link, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(pipe, filepath.Join(link, "link.txt")); err != nil {
		t.Fatal(err)
	}
	keep := false
	for name, read := range map[string]func() error{
		"LoadNPY":  func() error { _, err := data.LoadNPY(pipe); return err },
		"LoadNPZ":  func() error { _, err := data.LoadNPZ(pipe); return err },
		"CSV":      func() error { _, err := data.CSV[[]string](pipe, data.CSVOptions{}).Collect(t.Context()); return err },
		"TFRecord": func() error { _, err := data.TFRecord(pipe).Collect(t.Context()); return err },
		"Lines":    func() error { _, err := data.Lines(pipe).Collect(t.Context()); return err },
		"CacheFile": func() error {
			_, err := data.FromSlice([][]byte{nil}).CacheFile(pipe, data.Bytes()).Collect(t.Context())
			return err
		},
		"TextFromDirectory": func() error { _, _, err := data.TextFromDirectory(dir, data.DirectoryOptions{}); return err },
		"linked": func() error {
			_, _, err := data.FilesFromDirectory(link, []string{".txt"}, data.DirectoryOptions{Unlabeled: true, Shuffle: &keep})
			return err
		},
	} {
		ended := make(chan error, 1)
		go func() { ended <- read() }()
		select {
		case err := <-ended:
			if err == nil || !strings.Contains(err.Error(), ".txt: it is a named pipe, want a regular file") {
				t.Errorf("%s: got error %v, want one that names the pipe", name, err)
			}
		case <-time.After(time.Minute):
			t.Fatalf("%s waits for the pipe", name)
		}
	}
}
