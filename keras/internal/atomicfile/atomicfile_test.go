package atomicfile

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// faulty fails at one of its calls.
type faulty struct {
	System
	left int
}

var errDisk = errors.New("disk full")

func (f *faulty) fail() error {
	f.left--
	if f.left == 0 {
		return &os.PathError{Op: "write", Path: "x.tmp", Err: errDisk}
	}
	return nil
}

func (f *faulty) Create(path string) (File, error) {
	if err := f.fail(); err != nil {
		return nil, err
	}
	g, err := f.System.Create(path)
	return faultyFile{g, f}, err
}

func (f *faulty) Rename(from, to string) error {
	if err := f.fail(); err != nil {
		return err
	}
	return f.System.Rename(from, to)
}

func (f *faulty) SyncDir(path string) error {
	if err := f.fail(); err != nil {
		return err
	}
	return f.System.SyncDir(path)
}

type faultyFile struct {
	File
	fs *faulty
}

func (f faultyFile) Write(b []byte) (int, error) {
	if err := f.fs.fail(); err != nil {
		return 0, err
	}
	return f.File.Write(b)
}

func (f faultyFile) Sync() error { return errors.Join(f.fs.fail(), f.File.Sync()) }

// TestWrite fails at every call: there is the old file or the new one, alone,
// and the error does not name another.
func TestWrite(t *testing.T) {
	const calls = 5
	for n := range calls + 1 {
		dir := t.TempDir()
		path := filepath.Join(dir, "x")
		if err := os.WriteFile(path, []byte("old"), 0o644); err != nil {
			t.Fatal(err)
		}
		err := Write(&faulty{left: n}, path, func(w File) error {
			_, err := fmt.Fprint(w, "new")
			return err
		})
		if failed := n > 0; (err != nil) != failed || failed && err != errDisk {
			t.Errorf("failure %d: got error %v", n, err)
		}
		want := "old"
		if n == 0 || n == calls { // the last call is after the rename
			want = "new"
		}
		got, err := os.ReadFile(path)
		if err != nil || string(got) != want {
			t.Errorf("failure %d: the file holds %q (%v), want %q", n, got, err, want)
		}
		if all, _ := os.ReadDir(dir); len(all) != 1 {
			t.Errorf("failure %d: got %d files, want one", n, len(all))
		}
	}
}
