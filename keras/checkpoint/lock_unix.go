//go:build darwin || dragonfly || freebsd || illumos || linux || netbsd || openbsd

package checkpoint

import (
	"errors"
	"os"
	"syscall"
)

// lock takes the lock of a file, if nobody has it.
func lock(f *os.File) error {
	switch err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); {
	case errors.Is(err, syscall.EWOULDBLOCK):
		return errLocked
	case errors.Is(err, errors.ErrUnsupported), errors.Is(err, syscall.ENOLCK): // of some network file systems
		return nil
	default:
		return err
	}
}

// unlock removes the file while it is still locked: who opens it later makes
// another one.
func unlock(f *os.File, path string) error { return errors.Join(os.Remove(path), f.Close()) }
