package checkpoint

import (
	"errors"
	"os"

	"golang.org/x/sys/windows"
)

// lock takes the lock of a file, if nobody has it. It is on a byte far behind
// the text, which others may read.
func lock(f *os.File) error {
	at := windows.Overlapped{OffsetHigh: 1}
	err := windows.LockFileEx(windows.Handle(f.Fd()), windows.LOCKFILE_EXCLUSIVE_LOCK|windows.LOCKFILE_FAIL_IMMEDIATELY, 0, 1, 0, &at)
	if errors.Is(err, windows.ERROR_LOCK_VIOLATION) {
		return errLocked
	}
	return err
}

// unlock removes the file, which cannot be while it is open, unless another
// training has it already.
func unlock(f *os.File, path string) error {
	err := f.Close()
	os.Remove(path)
	return err
}
