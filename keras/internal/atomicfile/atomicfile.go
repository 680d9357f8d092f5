// Package atomicfile writes files in such a way that there is always the old file
// or the new one: under another name, brought to the disk, renamed.
package atomicfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
)

// Suffix ends the names of files that are being written, path.NUMBER.tmp; one
// that a killed program left behind may be deleted.
const Suffix = ".tmp"

// FS is what is needed of a file system; tests give one that fails.
type FS interface {
	// Create makes a file to become path, with a name of its own beside it.
	Create(path string) (File, error)
	Rename(from, to string) error
	Remove(path string) error
	SyncDir(path string) error
}

// File is a file that is being written.
type File interface {
	io.WriteCloser
	io.WriterAt
	Name() string // the unfinished one
	Sync() error
}

// System is the file system of the machine.
type System struct{}

// Create makes a file that was not there: two writers of a path have one each, and
// nothing that somebody left under a name of one is written to.
func (System) Create(path string) (File, error) {
	for {
		f, err := os.OpenFile(fmt.Sprintf("%s.%08x%s", path, rand.Uint32(), Suffix), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o666)
		if !errors.Is(err, fs.ErrExist) {
			return f, err
		}
	}
}

// Rename is os.Rename.
func (System) Rename(from, to string) error { return os.Rename(from, to) }

// Remove is os.Remove.
func (System) Remove(path string) error { return os.Remove(path) }

// SyncDir brings the names in a directory to the disk: a rename survives a
// power cut.
func (System) SyncDir(path string) error {
	if runtime.GOOS == "windows" { // it has no such call
		return nil
	}
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// Write makes the file at path, or replaces it, with what write writes. Errors
// of package os come without the path, which would be that of the unfinished
// file. Of several writers at a time the last one's file stays.
func Write(fs FS, path string, write func(File) error) error {
	f, err := fs.Create(path)
	if err != nil {
		return Bare(err)
	}
	if err = store(f, write); err == nil {
		err = fs.Rename(f.Name(), path)
	}
	if err != nil {
		fs.Remove(f.Name()) // the cause is err
		return Bare(err)
	}
	return Bare(fs.SyncDir(filepath.Dir(path)))
}

func store(f File, write func(File) error) error {
	if err := write(f); err != nil {
		f.Close()
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// Bare is the cause in an error of package os, without path.
func Bare(err error) error {
	var p *os.PathError
	var l *os.LinkError
	switch {
	case errors.As(err, &p):
		return p.Err
	case errors.As(err, &l):
		return l.Err
	}
	return err
}
