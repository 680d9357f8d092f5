package checkpoint

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/mezzo-ml/mezzo/keras/internal/atomicfile"
	"github.com/mezzo-ml/mezzo/keras/internal/safeio"
)

// ErrInUse is found in the error of a Directory that another training uses.
var ErrInUse = errors.New("another training uses the directory")

// lockName is the file that a training holds a lock on. The system drops the
// lock when the process dies, however it does; the file that is left then means
// nothing.
const lockName = ".lock"

// errLocked is what lock returns when another process, or another training of
// this one, has the lock.
var errLocked = errors.New("it is locked")

// Lock makes the directory and keeps other trainings out of it until release
// is called. Fit holds its Directory from before the first step on, so that a
// directory that cannot be written to is found then, and not an epoch later.
// Where the file system has no locks nobody is kept out.
func (d *Directory) Lock() (release func() error, err error) {
	if err := d.check(); err != nil {
		return nil, err
	}
	if err := makeDir(d.system(), d.Path); err != nil {
		return nil, err
	}
	d.removed = false
	path := filepath.Join(d.Path, lockName)
	for {
		f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
		if err != nil {
			return nil, fmt.Errorf("checkpoint: %w", err)
		}
		if err := lock(f); err != nil {
			f.Close()
			if errors.Is(err, errLocked) {
				return nil, fmt.Errorf("checkpoint: %s: %w%s; wait until it is done, or use another", d.Path, ErrInUse, holder(path))
			}
			return nil, fmt.Errorf("checkpoint: %s: %w", path, atomicfile.Bare(err))
		}
		// The one before may have removed the file after it was opened here.
		mine, err1 := f.Stat()
		there, err2 := os.Stat(path)
		if err1 != nil || err2 != nil || !os.SameFile(mine, there) {
			f.Close()
			continue
		}
		f.Truncate(0)
		fmt.Fprintf(f, "process %d\n", os.Getpid()) // for the message of others only
		return func() error {
			err := unlock(f, path)
			if d.removed {
				os.Remove(d.Path)
			}
			return err
		}, nil
	}
}

// holder says which process has the lock, if it can be told.
func holder(path string) string {
	f, _, err := safeio.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, 64))
	if text := strings.TrimSpace(string(b)); err == nil && strings.HasPrefix(text, "process ") {
		return ", " + text
	}
	return ""
}

// makeDir makes a directory and those above it, and brings their names to the
// disk.
func makeDir(fs atomicfile.FS, path string) error {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return nil
	}
	if err := os.MkdirAll(path, 0o755); err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	if err := fs.SyncDir(filepath.Dir(path)); err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	return nil
}
